/* Shared by run_wake.c and run_wake_context.c. Inside write functions of the store. */
#pragma once

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

/* Make the run's contextSnapshot, over an earlier one (NULL: none). A text of the operation's
 * arena. */
int wake_context(struct wake *w, const char *before, const char **ret, struct err *err);
