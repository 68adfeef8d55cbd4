/* Shared by the files of waking (run.h, run_wake.h). Inside write functions of the store. */
#ifndef BERTH_CORE_RUN_WAKE_INTERNAL_H
#define BERTH_CORE_RUN_WAKE_INTERNAL_H

#include "core/runs/run_wake.h"
#include "store/agents.h"
#include "store/issues.h"
#include "store/wakeups.h"

/* One wake-up on its way to its rows. */
struct wake {
        struct db *db;
        const struct op *op;
        const struct wake_request *req;
        const char *actor_type, *actor_id; /* who asked */
        struct agent agent;
        struct issue issue; /* id NULL: none */
        const char *task_key;
        const json_t *earlier; /* ids of comments that waited with it, of the op's arena; NULL */
        int64_t now;
};

#define WAKE_COMMENTS_MAX 20 /* that one run is told of: the last */

/* Its agent, issue and task. 404 for an issue that is not of the agent's company. */
int wake_load(struct wake *w, struct err *err);

/* What the run is told (contextSnapshot), over what it was told before (NULL: nothing). A text of
 * the operation's arena. */
int wake_context(struct wake *w, const char *before, const char **ret, struct err *err);

/* A new run with its request: a row of its own, or the deferred one `from` when that is not NULL. 0
 * when somebody moved that one first. */
int wake_queue(struct wake *w, const struct wakeup *from, struct wake_result *ret, struct err *err);
/* Another run holds the issue: remember the wake-up until it ends. */
int wake_defer(struct wake *w, const char *holder_run_id, struct wake_result *ret, struct err *err);
/* heartbeat.run.queued, once it is committed. */
void run_announce_queued(struct db *db, const struct run *run);
/* A new row for the request. */
struct wakeup wake_row(const struct wake *w, const char *status);
/* Names the run that holds the issue, and whose it is. */
int wake_tell_holder(struct wake *w, const char *run_id, struct wake_result *ret, struct err *err);

#endif
