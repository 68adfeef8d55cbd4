/* Routes of projects and their workspaces. */
#include "api/api.h"
#include "api/encode.h"
#include "core/companies/project.h"

/* -- As the API shows them -------------------------------------------------------------------- */

static void encode_workspace(struct jw *w, const struct project_workspace *row)
{
        jw_object(w);
        encode_members(w, &project_workspace_table, row);
        jw_kraw(w, "runtimeServices", "[]");
        jw_object_end(w);
}

/* Where its code is. Berth fetches no repository: there is no checkout that it manages. */
static void encode_codebase(struct jw *w, const struct project_workspace *primary)
{
        static const struct project_workspace nothing;
        const struct project_workspace *p = primary ? primary : &nothing;
        const char *end = p->repo_url ? strrchr(p->repo_url, '/') : NULL;
        size_t n = end ? strlen(end + 1) : 0;

        if (n > 4 && streq(end + 1 + n - 4, ".git"))
                n -= 4;
        jw_key(w, "codebase");
        jw_object(w);
        jw_kstring(w, "workspaceId", p->id);
        jw_kstring(w, "repoUrl", p->repo_url);
        jw_kstring(w, "repoRef", p->repo_ref);
        jw_kstring(w, "defaultRef", p->default_ref);
        jw_key(w, "repoName");
        if (n)
                jw_string_n(w, end + 1, n);
        else
                jw_null(w);
        jw_kstring(w, "localFolder", p->cwd);
        jw_kstring(w, "managedFolder", "");
        jw_kstring(w, "effectiveLocalFolder", p->cwd ? p->cwd : "");
        jw_kstring(w, "origin", "local_folder");
        jw_object_end(w);
}

void encode_project(struct jw *w, const struct project *p,
                    const struct project_workspace *workspaces, size_t n)
{
        const struct project_workspace *primary =
                n > 0 && workspaces[0].is_primary ? &workspaces[0] : NULL;

        jw_object(w);
        encode_members(w, &project_table, p);
        jw_knull(w, "goalId");
        jw_kraw(w, "goalIds", "[]");
        jw_kraw(w, "goals", "[]");
        encode_codebase(w, primary);
        jw_key(w, "workspaces");
        jw_array(w);
        for (size_t i = 0; i < n; i++)
                encode_workspace(w, &workspaces[i]);
        jw_array_end(w);
        jw_key(w, "primaryWorkspace");
        if (primary)
                encode_workspace(w, primary);
        else
                jw_null(w);
        jw_object_end(w);
}

/* -- Projects --------------------------------------------------------------------------------- */

static int encode_with_workspaces(struct call *c, struct db *db, struct jw *w,
                                  const struct project *p, struct err *err)
{
        struct project_workspace *all = NULL;
        int n = project_workspaces_of(db, p->id, c->op->arena, &all, err);

        if (n >= 0)
                encode_project(w, p, all, (size_t)n);
        return n;
}

static int answer_project(struct call *c, int r, const struct project *project, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;

        if (r >= 0)
                r = store_read_begin(c->op, c->rt->store, &db, err);
        return r < 0 ? r : encode_with_workspaces(c, db, call_json(c), project, err);
}

struct listing {
        struct call *c;
        struct db *db;
        struct jw *w;
        struct err *err;
};

static int show_project(void *ctx, const struct project *row)
{
        const struct listing *l = ctx;

        return encode_with_workspaces(l->c, l->db, l->w, row, l->err);
}

static int list_projects(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct listing l = { .c = c, .err = err };
        int r = call_read(c, c->params[0], &db, err);

        if (r < 0)
                return r;
        l.db = db;
        l.w = call_list(c);
        return call_list_end(c,
                             projects_list(db, c->params[0], c->op->arena, show_project, &l, err));
}

static int create_project(struct call *c, struct err *err)
{
        struct project_patch patch = { 0 };
        struct project project;
        int r;

        patch.body = body_decode(&project_body, c->body, true, c->op->arena, &patch);
        r = project_create(c->op, c->rt, c->params[0], &patch, &project, err);
        return answer_project(c, r, &project, err);
}

static int get_project(struct call *c, struct err *err)
{
        struct project project;
        int r = project_get(c->op, c->rt, c->params[0], call_query(c, "companyId"), &project, err);

        return answer_project(c, r, &project, err);
}

static int patch_project(struct call *c, struct err *err)
{
        struct project_patch patch = { 0 };
        struct project project;
        int r;

        patch.body = body_decode(&project_body, c->body, false, c->op->arena, &patch);
        r = project_update(c->op, c->rt, c->params[0], call_query(c, "companyId"), &patch, &project,
                           err);
        return answer_project(c, r, &project, err);
}

static int delete_project(struct call *c, struct err *err)
{
        struct project project;
        int r = project_delete(c->op, c->rt, c->params[0], call_query(c, "companyId"), &project,
                               err);

        return answer_project(c, r, &project, err);
}

/* -- Their workspaces ------------------------------------------------------------------------- */

static int answer_workspace(struct call *c, int r, const struct project_workspace *row)
{
        if (r >= 0)
                encode_workspace(call_json(c), row);
        return r;
}

static int list_workspaces(struct call *c, struct err *err)
{
        struct project_workspace *all = NULL;
        struct jw *w = call_list(c);
        int n = project_workspace_list(c->op, c->rt, c->params[0], &all, err);

        for (int i = 0; i < n; i++)
                encode_workspace(w, &all[i]);
        return call_list_end(c, n);
}

static int put_workspace(struct call *c, struct err *err)
{
        struct project_workspace_patch patch = { 0 };
        struct project_workspace row;
        const char *id = c->route->arg ? c->params[1] : NULL;
        int r;

        patch.body = body_decode(&project_workspace_body, c->body, !id, c->op->arena, &patch);
        r = project_workspace_put(c->op, c->rt, c->params[0], id, &patch, &row, err);
        return answer_workspace(c, r, &row);
}

static int delete_workspace(struct call *c, struct err *err)
{
        struct project_workspace row;
        int r = project_workspace_delete(c->op, c->rt, c->params[0], c->params[1], &row, err);

        return answer_workspace(c, r, &row);
}

static int control_services(struct call *c, struct err *err)
{
        return project_workspace_control(c->op, c->rt, c->params[0], c->params[1], c->params[2],
                                         err);
}

#define WORKSPACES "/api/projects/:id/workspaces"
const struct route routes_projects[] = {
        { "GET", "/api/companies/:companyId/projects", .fn = list_projects },
        { "POST", "/api/companies/:companyId/projects", .fn = create_project, .status = 201 },
        { "GET", "/api/projects/:id", .fn = get_project },
        { "PATCH", "/api/projects/:id", .fn = patch_project },
        { "DELETE", "/api/projects/:id", .fn = delete_project },
        { "GET", WORKSPACES, .fn = list_workspaces },
        { "POST", WORKSPACES, .fn = put_workspace, .status = 201 },
        { "PATCH", WORKSPACES "/:workspaceId", .fn = put_workspace, .arg = 1 },
        { "DELETE", WORKSPACES "/:workspaceId", .fn = delete_workspace },
        { "POST", WORKSPACES "/:workspaceId/runtime-services/:action", .fn = control_services,
          .flags = ROUTE_BODY_FREE },
        { "POST", WORKSPACES "/:workspaceId/runtime-commands/:action", .fn = control_services,
          .flags = ROUTE_BODY_FREE },
        { 0 },
};
