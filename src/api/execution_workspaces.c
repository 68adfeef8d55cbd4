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

static void encode_texts(struct jw *w, const char *key, const char *text)
{
        jw_key(w, key);
        jw_array(w);
        if (text)
                jw_string(w, text);
        jw_array_end(w);
}

static void encode_readiness(struct call *c, struct jw *w, const struct execution_workspace *e,
                             const struct close_readiness *k)
{
        const char *blocking = NULL, *warning = NULL;

        if (k->leases > 0)
                blocking = arena_printf(c->op->arena, "%lld lease(s) use this workspace.",
                                        (long long)k->leases);
        if (k->issues > 0)
                warning = arena_printf(c->op->arena, "%lld open issue(s) refer to this workspace.",
                                       (long long)k->issues);
        jw_object(w);
        jw_kstring(w, "workspaceId", e->id);
        jw_kstring(w, "state", blocking ? "blocked" : warning ? "ready_with_warnings" : "ready");
        encode_texts(w, "blockingReasons", blocking);
        encode_texts(w, "warnings", warning);
        encode_texts(w, "plannedActions", "The record is archived. Files stay where they are.");
        jw_kbool(w, "isDestructiveCloseAllowed", !blocking && !k->is_shared);
        jw_kbool(w, "isSharedWorkspace", k->is_shared);
        jw_kbool(w, "isProjectPrimaryWorkspace", streq(e->strategy_type, "project_primary"));
        encode_texts(w, "runtimeServices", NULL);
        jw_object_end(w);
}

static int show_readiness(struct call *c, struct err *err)
{
        struct close_readiness k = { 0 };
        struct execution_workspace e;
        int r = execution_workspace_readiness(c->op, c->rt, c->params[0], &e, &k, err);

        if (r >= 0)
                encode_readiness(c, call_json(c), &e, &k);
        return r;
}

static int update_execution_workspace(struct call *c, struct err *err)
{
        struct close_readiness k = { 0 };
        struct execution_workspace e;
        struct jw *w;
        int r = execution_workspace_update(c->op, c->rt, c->params[0], c->body, &e, &k, err);

        if (r <= 0)
                return answer_workspace(c, r, &e);
        c->status = 409;
        w = call_json(c);
        jw_object(w);
        jw_kstring(w, "error", "The workspace cannot be closed while it is in use.");
        jw_key(w, "closeReadiness");
        encode_readiness(c, w, &e, &k);
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

int show_workspace_operation(void *ctx, const struct workspace_row *row)
{
        struct jw *w = ctx;

        jw_object(w);
        jw_kstring(w, "id", row->id);
        jw_kstring(w, "companyId", row->company_id);
        jw_kstring(w, "leaseId", row->lease_id);
        jw_kstring(w, "phase", row->restored_at ? "workspace_restore" : "workspace_stage");
        jw_kstring(w, "status", operation_status(row));
        jw_kstring(w, "cwd", row->cwd);
        jw_key(w, "metadata");
        jw_object(w);
        jw_kstring(w, "way", row->way);
        jw_kstring(w, "localPath", row->local_path);
        jw_kraw(w, "lastRestore", row->report);
        jw_kstring(w, "note", row->note);
        jw_object_end(w);
        jw_ktime(w, "startedAt", row->created_at);
        jw_ktime(w, "finishedAt", row->restored_at);
        jw_object_end(w);
        return 0;
}

static int list_operations(struct call *c, struct err *err)
{
        return call_list_end(c, execution_workspace_operations(c->op, c->rt, c->params[0],
                                                               show_workspace_operation,
                                                               call_list(c), err));
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
