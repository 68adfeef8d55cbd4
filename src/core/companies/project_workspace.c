/* Decides which workspaces a project has, and which of them is the primary one. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/companies/project.h"
#include "core/workspaces/execution_workspace.h"

static const char *const source_types[] = { "local_path", "git_repo", "remote_managed",
                                            "non_git_path", NULL };
static const char *const visibilities[] = { "default", "advanced", NULL };

#define P struct project_workspace_patch
static const struct body_member members[] = {
        BODY_TEXT(P, row.name, "name", .min = 1),
        BODY_WORD(P, row.source_type, "sourceType", source_types),
        BODY_TEXT(P, row.cwd, "cwd", .flags = CHECK_NULLABLE, .min = 1),
        BODY_TEXT(P, row.repo_url, "repoUrl", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.repo_ref, "repoRef", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.default_ref, "defaultRef", .flags = CHECK_NULLABLE),
        BODY_WORD(P, row.visibility, "visibility", visibilities),
        BODY_TEXT(P, row.setup_command, "setupCommand", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.cleanup_command, "cleanupCommand", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.remote_provider, "remoteProvider", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.remote_workspace_ref, "remoteWorkspaceRef", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.shared_workspace_key, "sharedWorkspaceKey", .flags = CHECK_NULLABLE),
        BODY_DOCUMENT(P, row.metadata, "metadata", .flags = CHECK_NULLABLE),
        BODY_DOCUMENT(P, row.runtime_config, "runtimeConfig", .flags = CHECK_NULLABLE),
        BODY_FLAG(P, row.is_primary, "isPrimary"),
};
#undef P
const struct body_type project_workspace_body = BODY_TYPE(members);

/* -- Reading ---------------------------------------------------------------------------------- */

static bool is_blank(const char *text)
{
        return !text || !text[strspn(text, " \t\r\n\f\v")];
}

int project_workspace_list(struct op *op, struct runtime *rt, const char *project,
                           struct project_workspace **ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct project p;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = project_load(db, op, project, NULL, false, &p, err);
        return r < 0 ? r : project_workspaces_of(db, p.id, op->arena, ret, err);
}

/* One of the project's. */
static int load_of_project(struct db *db, struct op *op, const struct project *p, const char *id,
                           struct project_workspace *ret, struct err *err)
{
        int r = project_workspaces_get(db, id, op->arena, ret, err);

        if (r >= 0 && !streq(ret->project_id, p->id))
                r = err_set(err, ERR_NOT_FOUND, "Project workspace not found");
        return r;
}

int project_workspace_control(struct op *op, struct runtime *rt, const char *project,
                              const char *id, const char *action, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct project_workspace row;
        struct project p;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = project_load(db, op, project, NULL, true, &p, err);
        if (r >= 0)
                r = load_of_project(db, op, &p, id, &row, err);
        return r < 0 ? r : execution_workspace_refuse_services(op, action, err);
}

/* -- Writing ---------------------------------------------------------------------------------- */

static int check_source(const struct project_workspace *w, struct err *err)
{
        if (streq(w->source_type, "remote_managed"))
                return is_blank(w->remote_workspace_ref) && is_blank(w->repo_url)
                               ? err_set(err, ERR_UNPROCESSABLE,
                                         "Remote-managed workspace requires remoteWorkspaceRef or "
                                         "repoUrl.")
                               : 0;
        if (is_blank(w->cwd) && is_blank(w->repo_url))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Workspace requires at least one of cwd or repoUrl.");
        if (w->cwd && *w->cwd != '/')
                return err_set(err, ERR_UNPROCESSABLE,
                               "Working directory must be an absolute path: \"%s\"", w->cwd);
        return 0;
}

/* The last part of its directory or its repository. */
static const char *derive_name(struct arena *arena, const struct project_workspace *w)
{
        const char *of = is_blank(w->cwd) ? w->repo_url : w->cwd, *slash;
        char *name;
        size_t n;

        if (is_blank(of))
                return "Workspace";
        name = arena_strdup(arena, of);
        for (n = strlen(name); n > 1 && name[n - 1] == '/'; n--)
                name[n - 1] = '\0';
        slash = strrchr(name, '/');
        if (n > 4 && is_blank(w->cwd) && streq(name + n - 4, ".git"))
                name[n - 4] = '\0';
        return slash && slash[1] ? slash + 1 : name;
}

/* What agents and members may not set, by the table of agent_fields.h. */
static json_t *fields_of(const struct project_workspace *w)
{
        json_t *runtime = NULL;

        if (w->runtime_config)
                (void)json_parse(w->runtime_config, strlen(w->runtime_config), &runtime, NULL);
        return json_pack("{s:s?, s:s?, s:s?, s:o?}", "cwd", w->cwd, "setupCommand",
                         w->setup_command, "cleanupCommand", w->cleanup_command, "runtimeConfig",
                         runtime);
}

/* Exactly one is primary: this one when it says so, else the one that was, else the oldest. */
static int settle_primary(struct db *db, struct op *op, struct project_workspace *w,
                          struct err *err)
{
        struct project_workspace *all;
        int n = project_workspaces_of(db, w->project_id, op->arena, &all, err), r;

        if (n <= 0)
                return n;
        r = project_workspaces_make_primary(db, w->is_primary ? w : &all[0], err);
        w->is_primary = w->is_primary || streq(all[0].id, w->id);
        return r;
}

int project_workspace_write(struct db *db, struct op *op, struct runtime *rt,
                            const struct project *project,
                            const struct project_workspace_patch *patch, bool is_new,
                            struct project_workspace *row, struct err *err)
{
        struct field_change change = { .of = FIELD_OF_PROJECT,
                                       .company_id = project->company_id,
                                       .path = "workspace" };
        struct project_workspace before;
        int r = body_check(&patch->body, err);

        if (r < 0)
                return r;
        if (is_new)
                *row = (struct project_workspace){
                        .id = arena_strdup(op->arena, uuid_new().s),
                        .company_id = project->company_id,
                        .project_id = project->id,
                        .source_type = "local_path",
                        .visibility = "default",
                        .created_at = clock_now_us(),
                };
        before = *row;
        body_apply(&project_workspace_body, &patch->body, patch, row, sizeof(*row));
        row->updated_at = clock_now_us();
        if (!row->name)
                row->name = derive_name(op->arena, row);
        r = check_source(row, err);
        if (r < 0)
                return r;
        CLEAN(json_decrefp) json_t *was = fields_of(&before), *is = fields_of(row);

        change.before = was;
        change.after = is;
        r = agent_fields_check(db, op, &change, NULL, err);
        if (r < 0)
                return r;
        if (body_has(&project_workspace_body, &patch->body, "cwd"))
                row->cwd_from =
                        row->cwd && access_may_use_host(rt, op->actor) ? WORKSPACE_CWD_HOST : NULL;
        r = is_new ? project_workspaces_insert(db, row, err)
                   : project_workspaces_update(db, row, err);
        if (r >= 0)
                r = settle_primary(db, op, row, err);
        return r < 0 ? r
                     : audit(db, op, project->company_id,
                             is_new ? "project.workspace_created" : "project.workspace_updated",
                             "project", project->id,
                             json_pack(
                                     "{s:s, s:s, s:O}", "workspaceId", row->id, "name", row->name,
                                     "changedKeys",
                                     body_names(&project_workspace_body, &patch->body, op->arena)),
                             err);
}

struct request {
        struct op *op;
        struct runtime *rt;
        const char *project, *id;
        const struct project_workspace_patch *patch;
        struct project_workspace *row;
};

static int project_workspace_save(struct db *db, void *arg, struct err *err)
{
        const struct request *q = arg;
        struct project p;
        int r = project_load(db, q->op, q->project, NULL, true, &p, err);

        if (r >= 0 && q->id)
                r = load_of_project(db, q->op, &p, q->id, q->row, err);
        return r < 0 ? r
                     : project_workspace_write(db, q->op, q->rt, &p, q->patch, !q->id, q->row, err);
}

int project_workspace_put(struct op *op, struct runtime *rt, const char *project, const char *id,
                          const struct project_workspace_patch *patch,
                          struct project_workspace *ret, struct err *err)
{
        struct request q = { op, rt, project, id, patch, ret };
        int r;

        FAULT("project_workspace.put.before");
        r = store_write(op, rt->store, project_workspace_save, &q, err);
        FAULT("project_workspace.put.after");
        return r;
}

static int project_workspace_remove(struct db *db, void *arg, struct err *err)
{
        const struct request *q = arg;
        struct project_workspace next;
        struct project p;
        int r = project_load(db, q->op, q->project, NULL, true, &p, err);

        if (r >= 0)
                r = load_of_project(db, q->op, &p, q->id, q->row, err);
        if (r >= 0)
                r = project_workspaces_delete(db, q->id, err);
        next = *q->row;
        next.is_primary = false;
        if (r >= 0)
                r = settle_primary(db, q->op, &next, err);
        return r < 0 ? r
                     : audit(db, q->op, p.company_id, "project.workspace_deleted", "project", p.id,
                             json_pack("{s:s, s:s}", "workspaceId", q->id, "name", q->row->name),
                             err);
}

int project_workspace_delete(struct op *op, struct runtime *rt, const char *project, const char *id,
                             struct project_workspace *ret, struct err *err)
{
        struct request q = { op, rt, project, id, NULL, ret };
        int r;

        FAULT("project_workspace.delete.before");
        r = store_write(op, rt->store, project_workspace_remove, &q, err);
        FAULT("project_workspace.delete.after");
        return r;
}
