/* Whether an agent may work, and what its runtimeConfig.heartbeat says about when. Any thread. */
#pragma once

#include "codec/json.h"
#include "store/agents.h"

#define RUN_INTERVAL_MIN_S 10

struct run_policy {
        bool timer;             /* `enabled`, and there is an interval or a cron line */
        bool wake_on_demand;    /* false: only the agent's timer wakes it */
        int64_t interval_s;     /* 0: none */
        const char *cron;       /* NULL: none; the arena's */
        int64_t max_concurrent; /* runs at a time: 1 to 50, 20 unless told */
        int64_t max_follow_ups; /* of a run that left its issue open: 0 to 10, 2 unless told */
        int64_t silent_max_s; /* a run that prints nothing for so long is cancelled; <= 0: never */
};

/* ERR_UNPROCESSABLE for a schedule that cannot be parsed. Takes the value of runtimeConfig, or
 * NULL. */
int run_policy_check(const json_t *runtime_config, struct err *err);
/* A value that makes no sense reads as absent. */
void run_policy_read(const struct agent *agent, struct arena *arena, struct run_policy *ret);

#define RUN_NOT_INVOKABLE_TEXT "Agent is not invokable in its current state"

/* Whether the agent may work at all: not paused, terminated or pending approval. No other function
 * decides that. */
bool run_agent_is_invokable(const struct agent *agent);
/* The same as an answer: 409 with details.status. */
int run_agent_check(const struct agent *agent, struct err *err);
/* Why the agent can have neither keys nor work of its own: `terminated`, `pending approval`; NULL
 * when it can. A paused agent can. */
const char *run_agent_absence(const struct agent *agent);
