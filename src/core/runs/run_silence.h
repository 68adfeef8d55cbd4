/* Runs that print nothing: how silent one is, and what follows from it. An event says so when a run
 * becomes suspicious and when it becomes critical. It is ended only when its agent asks for that
 * (`runtimeConfig.heartbeat.cancelSilentSec`). Who looked at it decides how it goes on: see
 * run_decide() in run_view.h. */
#pragma once

#include "core/runtime.h"
#include "store/run_decisions.h"
#include "store/runs.h"

#define RUN_SILENCE_SUSPICIOUS_MS INT64_C(3600000)
#define RUN_SILENCE_CRITICAL_MS   INT64_C(14400000)
#define RUN_SILENCE_CONTINUE_MS                                                                    \
        INT64_C(1800000) /* the decision `continue` is quiet for so long                           \
                          */

struct run_silence {
        const char *level;     /* not_applicable, ok, suspicious, critical, snoozed */
        int64_t since, age_ms; /* of a running one */
        int64_t snoozed_until; /* 0: it is not */
        bool is_excused;       /* somebody decided that it may go on for now */
};

/* `decision` is the last one about the run; its id is NULL when there is none. Any thread. */
struct run_silence run_silence(const struct run *run, const struct run_decision *decision,
                               int64_t now_us);

/* Operation: look at every run whose command runs. *ret_kick: run_host_kick() is to follow. */
int run_silence_watch(struct op *op, struct runtime *rt, int64_t now_us, bool *ret_kick,
                      struct err *err);
