/* Execution workspaces. */
#include "api/api.h"
#include "api/encode.h"
#include "core/workspaces/execution_workspace.h"

void encode_execution_workspace(struct jw *w, const struct execution_workspace *e)
{
        json_t *config = execution_workspace_config(e->metadata);

        jw_object(w);
        encode_members(w, &execution_workspace_table, e);
        jw_kvalue(w, "config", config);
        jw_kstring(w, "deliveryState", "unknown"); /* git is asked for close-readiness only */
        jw_key(w, "runtimeServices");
        jw_array(w);
        jw_array_end(w);
        jw_object_end(w);
        json_decref(config);
}

static void encode_summary(struct jw *w, const struct execution_workspace *e)
{
        jw_object(w);
        jw_kstring(w, "id", e->id);
        jw_kstring(w, "name", e->name);
        jw_kstring(w, "mode", e->mode);
        jw_kstring(w, "projectWorkspaceId", e->project_workspace_id);
        jw_object_end(w);
}

/* Listing */

struct listing {
        struct jw *w;
        bool summary;
};

static int show_execution_workspace(void *ctx, const struct execution_workspace *e)
{
        struct listing *l = ctx;

        (l->summary ? encode_summary : encode_execution_workspace)(l->w, e);
        return 0;
}

static int list_execution_workspaces(struct call *c, struct err *err)
{
        struct listing l = { call_list(c), call_query_flag(c, "summary") };
        struct execution_workspace_filter filter = {
                .project_id = call_query(c, "projectId"),
                .project_workspace_id = call_query(c, "projectWorkspaceId"),
                .issue_id = call_query(c, "issueId"),
                .status = call_query(c, "status"),
                .reuse_eligible = call_query_flag(c, "reuseEligible"),
        };

        return call_list_end(c, execution_workspace_list(c->op, c->rt, c->params[0], &filter,
                                                         show_execution_workspace, &l, err));
}

static int answer_workspace(struct call *c, int r, const struct execution_workspace *e)
{
        if (r >= 0)
                encode_execution_workspace(call_json(c), e);
        return r;
}

static int show_one_execution_workspace(struct call *c, struct err *err)
{
        struct execution_workspace e;

        return answer_workspace(c, execution_workspace_get(c->op, c->rt, c->params[0], &e, err),
                                &e);
}

/* Closing */

static void encode_issues(struct jw *w, const struct issue_rows *issues)
{
        jw_key(w, "linkedIssues");
        jw_array(w);
        for (size_t i = 0; i < issues->n; i++) {
                const struct issue *row = &issues->at[i];

                jw_object(w);
                jw_kstring(w, "id", row->id);
                jw_kstring(w, "identifier", row->identifier);
                jw_kstring(w, "title", row->title);
                jw_kstring(w, "status", row->status);
                jw_kbool(w, "isTerminal",
                         streq(row->status, "done") || streq(row->status, "cancelled"));
                jw_object_end(w);
        }
        jw_array_end(w);
}

/* `3 lease(s) use this workspace.`, when there are any. */
static void write_count(struct call *c, struct jw *w, int64_t n, const char *what)
{
        if (n > 0)
                jw_string(w, arena_printf(c->op->arena, "%lld %s", (long long)n, what));
}

static void encode_git_state(struct jw *w, const struct execution_workspace *e,
                             const struct close_readiness *k)
{
        const struct git_worktree_state *g = &k->git;

        jw_key(w, "git");
        if (!k->has_worktree) {
                jw_null(w);
                return;
        }
        jw_object(w);
        jw_kstring(w, "repoRoot", e->worktree_of);
        jw_kstring(w, "workspacePath", e->worktree_path);
        jw_kstring(w, "branchName", e->branch_name);
        jw_kstring(w, "baseRef", e->base_ref);
        jw_kbool(w, "hasDirtyTrackedFiles", g->modified > 0);
        jw_kbool(w, "hasUntrackedFiles", g->untracked > 0);
        jw_kint(w, "dirtyEntryCount", g->modified);
        jw_kint(w, "untrackedEntryCount", g->untracked);
        jw_kint(w, "aheadCount", g->ahead);
        jw_kint(w, "behindCount", g->behind);
        jw_kbool(w, "isMergedIntoBase", g->tip && g->is_merged);
        jw_kbool(w, "createdByRuntime", true);
        jw_object_end(w);
}

static void encode_action(struct jw *w, const char *kind, const char *label, const char *text)
{
        jw_object(w);
        jw_kstring(w, "kind", kind);
        jw_kstring(w, "label", label);
        jw_kstring(w, "description", text);
        jw_knull(w, "command");
        jw_object_end(w);
}

static void encode_readiness(struct call *c, struct jw *w, const struct execution_workspace *e,
                             const struct close_readiness *k, const struct issue_rows *issues)
{
        const struct git_worktree_state *g = &k->git;
        bool blocked = close_is_blocked(k), unmerged = k->has_worktree && g->tip && !g->is_merged;

        jw_object(w);
        jw_kstring(w, "workspaceId", e->id);
        jw_kstring(w, "deliveryState",
                   !k->has_worktree || k->unknown || !g->tip ? "unknown"
                   : g->is_merged                            ? "merged_by_ancestry"
                                                             : "unmerged");
        jw_kstring(w, "state",
                   blocked                     ? "blocked"
                   : k->issues > 0 || unmerged ? "ready_with_warnings"
                                               : "ready");
        jw_key(w, "blockingReasons");
        jw_array(w);
        write_count(c, w, k->leases, "lease(s) use this workspace.");
        write_count(c, w, g->modified, "changed file(s) of the worktree are in no commit.");
        write_count(c, w, g->untracked, "new file(s) of the worktree are in no commit.");
        if (k->has_worktree && !k->unknown && g->tip && !g->is_published)
                jw_string(w, "Commits of the worktree are not in the project's repository.");
        if (k->unknown)
                jw_string(w, k->unknown);
        jw_array_end(w);
        jw_key(w, "warnings");
        jw_array(w);
        write_count(c, w, k->issues, "open issue(s) refer to this workspace.");
        write_count(c, w, unmerged ? g->ahead : 0, "commit(s) are not merged; their branch stays.");
        jw_array_end(w);
        encode_issues(w, issues);
        jw_key(w, "plannedActions");
        jw_array(w);
        encode_action(w, "archive_record", "Archive the record",
                      k->has_worktree ? "No further run works here."
                                      : "The record is archived. Files stay where they are.");
        if (k->has_worktree)
                encode_action(w, "git_worktree_remove", "Remove the worktree",
                              "The directory is removed. Its branch stays in the project's "
                              "repository.");
        jw_array_end(w);
        jw_kbool(w, "isDestructiveCloseAllowed", !blocked && !k->is_shared);
        jw_kbool(w, "isSharedWorkspace", k->is_shared);
        jw_kbool(w, "isProjectPrimaryWorkspace", streq(e->strategy_type, "project_primary"));
        encode_git_state(w, e, k);
        jw_kraw(w, "runtimeServices", "[]");
        jw_object_end(w);
}

static int linked_issues(struct call *c, const struct execution_workspace *e,
                         struct issue_rows *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue_filter filter = { .company_id = e->company_id,
                                       .execution_workspace_id = e->id,
                                       .limit = 1000 };
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        *ret = (struct issue_rows){ .arena = c->op->arena };
        return r < 0 ? r : issues_list(db, &filter, c->op->arena, issue_collect, ret, err);
}

static int show_readiness(struct call *c, struct err *err)
{
        struct close_readiness k = { 0 };
        struct issue_rows issues;
        struct execution_workspace e;
        int r = execution_workspace_readiness(c->op, c->rt, c->params[0], &e, &k, err);

        if (r >= 0)
                r = linked_issues(c, &e, &issues, err);
        if (r >= 0)
                encode_readiness(c, call_json(c), &e, &k, &issues);
        return r;
}

static int update_execution_workspace(struct call *c, struct err *err)
{
        struct close_readiness k = { 0 };
        struct issue_rows issues;
        struct execution_workspace e;
        int r = execution_workspace_update(c->op, c->rt, c->params[0], c->body, &e, &k, err);

        if (r <= 0)
                return answer_workspace(c, r, &e);
        r = linked_issues(c, &e, &issues, err);
        if (r < 0)
                return r;
        c->status = 409;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "error", "The workspace cannot be closed now; closeReadiness says why.");
        jw_key(w, "closeReadiness");
        encode_readiness(c, w, &e, &k, &issues);
        jw_object_end(w);
        return 0;
}

/* What was done in it */

static const char *operation_status(const struct workspace_row *row)
{
        if (streq(row->state, WORKSPACE_STAGING) || streq(row->state, WORKSPACE_RESTORING))
                return "running";
        return row->cwd ? "succeeded" : "failed";
}

struct operations {
        struct arena *arena;
        struct workspace_row *at;
        size_t n, room;
};

static int collect_operation(void *ctx, const struct workspace_row *row)
{
        struct operations *all = ctx;

        all->at = arena_more(all->arena, all->at, all->n, &all->room, sizeof(*all->at));
        all->at[all->n++] = *row;
        return 0;
}

static void encode_operation(struct jw *w, const struct workspace_row *row,
                             const struct lease *lease)
{
        static const char *const without[] = { "command",       "exitCode",     "logStore",
                                               "logRef",        "logBytes",     "logSha256",
                                               "stdoutExcerpt", "stderrExcerpt" };

        jw_object(w);
        jw_kstring(w, "id", row->id);
        jw_kstring(w, "companyId", row->company_id);
        jw_kstring(w, "leaseId", row->lease_id);
        jw_kstring(w, "executionWorkspaceId", lease->execution_workspace_id);
        jw_kstring(w, "heartbeatRunId", lease->heartbeat_run_id);
        jw_kstring(w, "issueId", lease->issue_id);
        jw_kstring(w, "phase", row->restored_at ? "workspace_restore" : "workspace_stage");
        jw_kstring(w, "status", operation_status(row));
        jw_kstring(w, "cwd", row->cwd);
        for (size_t i = 0; i < ARRAY_LEN(without); i++) /* it is no command */
                jw_knull(w, without[i]);
        jw_kbool(w, "logCompressed", false);
        jw_key(w, "metadata");
        jw_object(w);
        jw_kstring(w, "way", row->way);
        jw_kstring(w, "localPath", row->local_path);
        jw_kraw(w, "lastRestore", row->report);
        jw_kstring(w, "note", row->note);
        jw_object_end(w);
        jw_ktime(w, "startedAt", row->created_at);
        jw_ktime(w, "finishedAt", row->restored_at);
        jw_ktime(w, "createdAt", row->created_at);
        jw_ktime(w, "updatedAt", row->updated_at);
        jw_object_end(w);
}

int answer_operations(struct call *c,
                      int (*list)(struct op *op, struct runtime *rt, const char *id,
                                  workspace_row_fn fn, void *ctx, struct err *err),
                      struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct operations all = { .arena = c->op->arena };
        struct jw *w;
        int r = list(c->op, c->rt, c->params[0], collect_operation, &all, err);

        if (r >= 0)
                r = store_read_begin(c->op, c->rt->store, &db, err);
        if (r < 0)
                return r;
        w = call_list(c);
        for (size_t i = 0; r >= 0 && i < all.n; i++) {
                struct lease lease = { 0 };

                r = leases_get(db, all.at[i].lease_id, c->op->arena, &lease, err);
                if (r == ERR_NOT_FOUND) { /* it went with its environment meanwhile */
                        err_clear(err);
                        r = 0;
                }
                encode_operation(w, &all.at[i], &lease);
        }
        return call_list_end(c, r);
}

static int list_operations(struct call *c, struct err *err)
{
        return answer_operations(c, execution_workspace_operations, err);
}

static int control_services(struct call *c, struct err *err)
{
        return execution_workspace_control(c->op, c->rt, c->params[0], c->params[1], err);
}

const struct route routes_execution_workspaces[] = {
        { "GET", "/api/companies/:companyId/execution-workspaces",
          .fn = list_execution_workspaces },
        { "GET", "/api/execution-workspaces/:id", .fn = show_one_execution_workspace },
        { "PATCH", "/api/execution-workspaces/:id", .fn = update_execution_workspace },
        { "GET", "/api/execution-workspaces/:id/close-readiness", .fn = show_readiness },
        { "GET", "/api/execution-workspaces/:id/workspace-operations", .fn = list_operations },
        { "POST", "/api/execution-workspaces/:id/runtime-services/:action", .fn = control_services,
          .flags = ROUTE_BODY_FREE },
        { "POST", "/api/execution-workspaces/:id/runtime-commands/:action", .fn = control_services,
          .flags = ROUTE_BODY_FREE },
        { 0 },
};
