/* Execution workspaces: where the work of a project is done, over many runs (environment-runtime
 * 1.4). Runs make them; here they are read, changed and closed. Each function checks the actor's
 * rights inside the transaction that does the work.
 *
 * The configuration is `metadata.config`. Closing a workspace that is in use, or whose worktree has
 * work that would be lost, is refused, and the answer says why. Closing it removes its worktree.
 * Operation threads; results live in the operation's arena. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/execution_workspaces.h"
#include "store/workspaces.h"
#include "workspace/git_worktree.h"

/* What prevents closing one. */
struct close_readiness {
        int64_t leases; /* living ones in it: they block */
        int64_t issues; /* open ones that refer to it: a warning */
        bool is_shared; /* others may use its directory */
        /* Of a worktree that is there. Files that are in no commit block, and commits that the
         * project's repository does not have; commits that are not merged are a warning, since
         * their branch stays. */
        bool has_worktree;
        struct git_worktree_state git;
        const char *unknown; /* why it could not be looked at, which blocks; NULL: it could */
};
bool close_is_blocked(const struct close_readiness *k);

int execution_workspace_list(struct op *op, struct runtime *rt, const char *company_id,
                             const struct execution_workspace_filter *filter,
                             execution_workspace_fn fn, void *ctx, struct err *err);
int execution_workspace_get(struct op *op, struct runtime *rt, const char *id,
                            struct execution_workspace *ret, struct err *err);
/* `body` is the API's. 1: archiving is blocked, and *ret_readiness says by what. */
int execution_workspace_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                               struct execution_workspace *ret,
                               struct close_readiness *ret_readiness, struct err *err);
int execution_workspace_readiness(struct op *op, struct runtime *rt, const char *id,
                                  struct execution_workspace *ret,
                                  struct close_readiness *ret_readiness, struct err *err);
/* What was staged and brought home in it, newest first. */
int execution_workspace_operations(struct op *op, struct runtime *rt, const char *id,
                                   workspace_row_fn fn, void *ctx, struct err *err);
/* 403 for agents; ERR_UNPROCESSABLE: there are no runtime services here. */
int execution_workspace_control(struct op *op, struct runtime *rt, const char *id,
                                const char *action, struct err *err);

/* The same for a caller that was let in: also what the workspaces of projects answer. */
int execution_workspace_refuse_services(const struct op *op, const char *action, struct err *err);

/* The configuration of stored metadata, as readers see it; NULL when it has none. A new reference.
 */
json_t *execution_workspace_config(const char *metadata);
