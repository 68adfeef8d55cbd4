/* Shared by the files of waking (run.h, run_wake.h). Inside write functions of the store. */
#ifndef BERTH_CORE_RUN_WAKE_INTERNAL_H
#define BERTH_CORE_RUN_WAKE_INTERNAL_H

#include "core/runs/run_wake.h"
#include "store/agents.h"
#include "store/issues.h"
#include "store/wakeups.h"

/* One wake-up, before its rows are written. */
struct wake {
        struct db *db;
        const struct op *op;
        const struct wake_request *req;
        const char *actor_type, *actor_id; /* the caller */
        struct agent agent;
        struct issue issue; /* id NULL: none */
        const char *task_key;
        const json_t *earlier; /* ids of comments that waited with it, of the op's arena; NULL */
        int64_t now;
};

#define WAKE_COMMENTS_MAX 20 /* passed to one run: the last ones */

/* Load the wake-up's agent, issue and task. 404 for an issue of another company. */
int wake_load(struct wake *w, struct err *err);

/* Make the run's contextSnapshot, over an earlier one (NULL: none). A text of the operation's
 * arena. */
int wake_context(struct wake *w, const char *before, const char **ret, struct err *err);

/* A new run with its request: a row of its own, or the deferred row `from` when that is not NULL. 0
 * when another writer moved that row first. */
int wake_queue(struct wake *w, const struct wakeup *from, struct wake_result *ret, struct err *err);
/* Another run holds the issue: keep the wake-up until that run ends. */
int wake_defer(struct wake *w, const char *holder_run_id, struct wake_result *ret, struct err *err);
/* heartbeat.run.queued, once it is committed. */
void run_announce_queued(struct db *db, const struct run *run);
/* A new row for the request. */
struct wakeup wake_row(const struct wake *w, const char *status);
/* Name the run that holds the issue, and its agent. */
int wake_tell_holder(struct wake *w, const char *run_id, struct wake_result *ret, struct err *err);

#endif
