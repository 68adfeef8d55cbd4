/* Decides which environment a run works in (environment-runtime 5.1), and which execution workspace
 * it belongs to, in one transaction, so that the choice is what is written. Whether the environment
 * can be used is checked after that. A run without a chosen environment works in the default
 * environment of its company; without a default, or with one that cannot be used, the run fails. It
 * never comes to this machine unless somebody chose that. */
#include <stdio.h>

#include "base/clock.h"
#include "core/access/agent_fields.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/environments/env_default.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/kinds/kind.h"
#include "core/runs/run_internal.h"
#include "core/workspaces/execution_workspace.h"
#include "core/workspaces/worktree.h"
#include "store/project_workspaces.h"
#include "store/settings.h"

#define MODE_SHARED   "shared_workspace"
#define MODE_ISOLATED "isolated_workspace"
#define MODE_OPERATOR "operator_branch"
#define MODE_AGENT    "agent_default"
#define REUSE         "reuse_existing"
#define WORKTREE      "git_worktree"

/* A member that counts only when it is a text. */
static const char *id_in(struct run_task *t, const char *document)
{
        return document ? json_get_string(run_parse(t->op->arena, document), "environmentId")
                        : NULL;
}

/* 1, or 0 when it is gone or of another company. */
static int find_issue(struct db *db, struct run_task *t, struct issue *ret, struct err *err)
{
        int r = t->run.issue_id ? issues_get(db, t->run.issue_id, t->op->arena, ret, err)
                                : ERR_NOT_FOUND;

        if (r == ERR_NOT_FOUND)
                err_clear(err);
        return r == ERR_NOT_FOUND ? 0 : r < 0 ? r : streq(ret->company_id, t->run.company_id);
}

int run_find_project(struct db *db, struct run_task *t, struct project *ret, struct err *err)
{
        struct issue issue;
        int r = find_issue(db, t, &issue, err);
        const char *id = r > 0 ? issue.project_id : json_get_string(t->context, "projectId");

        if (r < 0 || !id)
                return MIN(r, 0);
        r = projects_get(db, id, t->op->arena, ret, err);
        if (r == ERR_NOT_FOUND)
                err_clear(err);
        return r == ERR_NOT_FOUND ? 0 : r < 0 ? r : streq(ret->company_id, t->run.company_id);
}

/* Load the run's issue, project and workspace; objects that are gone by now count as absent. */
static int load_work(struct db *db, struct run_task *t, struct err *err)
{
        struct run_choice *c = &t->choice;
        const char *id;
        int r = find_issue(db, t, &c->issue, err);

        if (r == 0)
                c->issue = (struct issue){ 0 };
        if (r >= 0)
                r = run_find_project(db, t, &c->project, err);
        if (r == 0)
                c->project = (struct project){ 0 };
        /* Without an issue the workspace is the run's own, by the run's id. */
        id = c->issue.id ? c->issue.execution_workspace_id : c->project.id ? t->run.id : NULL;
        if (r < 0 || !id)
                return MIN(r, 0);
        r = execution_workspaces_get(db, id, t->op->arena, &c->workspace, err);
        if (r == ERR_NOT_FOUND)
                err_clear(err);
        if (r == ERR_NOT_FOUND || (r >= 0 && (streq(c->workspace.status, "archived") ||
                                              !streq(c->workspace.company_id, t->run.company_id))))
                c->workspace = (struct execution_workspace){ 0 };
        return r == ERR_NOT_FOUND ? 0 : MIN(r, 0);
}

static bool is_reused(const struct run_choice *c)
{
        return c->workspace.id && c->issue.execution_workspace_preference &&
               streq(c->issue.execution_workspace_preference, REUSE);
}

/* Load the work of the run; *ret is the first environment that is named, or NULL. A reused
 * workspace without an environment stands for the default one, whatever issue, project and agent
 * say. */
static int find_named_environment(struct db *db, struct run_task *t, const char **ret,
                                  struct err *err)
{
        struct run_choice *c = &t->choice;
        struct instance_settings settings;
        const char *id = NULL;
        bool isolated;
        int r = settings_get(db, t->op->arena, &settings, err);

        if (r >= 0)
                r = load_work(db, t, err);
        if (r < 0)
                return r;
        isolated = json_is_true(json_object_get(run_parse(t->op->arena, settings.experimental),
                                                "enableIsolatedWorkspaces"));
        c->has_policy = isolated;
        c->config = run_keep(t->op->arena, execution_workspace_config(c->workspace.metadata));
        if (is_reused(c) && c->config) {
                *ret = json_get_string(c->config, "environmentId");
                return 0;
        }
        if (isolated && c->issue.id)
                id = id_in(t, c->issue.execution_workspace_settings);
        if (!id && isolated && c->project.id)
                id = id_in(t, c->project.execution_workspace_policy);
        *ret = id ? id : t->agent.default_environment_id;
        return 0;
}

/* -- The execution workspace ------------------------------------------------------------------- */

static const char *with_environment(struct run_task *t, const char *metadata, const char *id)
{
        json_t *document = run_parse(t->op->arena, metadata);
        json_t *config = json_get_object(document, "config");

        if (!config) {
                config = json_object();
                json_object_set_new(document, "config", config);
        }
        json_object_set_new(config, "environmentId", json_string(id));
        return json_to_arena(t->op->arena, document);
}

/* A directory that the board named belongs to the side, inside or outside, that first works in it
 * (judge_directory()). */
static int take_directory(struct db *db, struct run_task *t, const char *environment_id,
                          struct err *err)
{
        struct execution_workspace *w = &t->choice.workspace;
        bool isolated;
        int r;

        if (!w->cwd_from || !streq(w->cwd_from, WORKSPACE_CWD_HOST))
                return 0;
        r = agent_environment_is_isolated(db, t->rt, t->op->arena, t->run.company_id,
                                          environment_id, &isolated, err);
        if (r >= 0)
                w->cwd_from = isolated ? NULL : WORKSPACE_CWD_OUTSIDE;
        return r;
}

/* Where a new workspace is to be: what issue, project and agent say, in the order in which they
 * count. An issue overrides its project unless the project says otherwise. */
struct plan {
        const char *mode;
        const json_t *strategy;      /* never NULL */
        struct project_workspace of; /* id NULL: the project has none */
        bool is_worktree;
};

static const char *strategy_text(struct run_task *t, const struct plan *p, const char *name)
{
        return arena_strtrim(t->op->arena, json_get_string(p->strategy, name));
}

static int plan_workspace(struct db *db, struct run_task *t, struct plan *ret, struct err *err)
{
        const struct run_choice *c = &t->choice;
        const json_t *policy = run_parse(t->op->arena, c->project.execution_workspace_policy);
        const json_t *settings = run_parse(t->op->arena, c->issue.execution_workspace_settings);
        bool enabled = c->has_policy && json_is_true(json_object_get(policy, "enabled"));
        bool may_override =
                c->has_policy && c->issue.id &&
                !(enabled && json_is_false(json_object_get(policy, "allowIssueOverride")));
        const json_t *strategy = NULL;
        const char *mode = may_override ? json_get_string(settings, "mode") : NULL, *type, *wanted;
        struct project_workspace *all = NULL;
        int n;

        if (mode && (streq(mode, "inherit") || streq(mode, REUSE)))
                mode = NULL;
        if (!mode && enabled)
                mode = json_get_string(policy, "defaultMode");
        if (mode && streq(mode, "adapter_default"))
                mode = MODE_AGENT;
        if (may_override)
                strategy = json_get_object(settings, "workspaceStrategy");
        if (!strategy && enabled)
                strategy = json_get_object(policy, "workspaceStrategy");
        if (!strategy && c->has_policy)
                strategy = json_get_object(t->config, "workspaceStrategy");
        *ret = (struct plan){ .mode = mode ? mode : MODE_SHARED,
                              .strategy =
                                      strategy ? strategy : run_keep(t->op->arena, json_object()) };
        type = strategy_text(t, ret, "type");
        ret->is_worktree = streq(ret->mode, MODE_AGENT) ? type && streq(type, WORKTREE)
                           : streq(ret->mode, MODE_ISOLATED) || streq(ret->mode, MODE_OPERATOR)
                                   ? !type || streq(type, WORKTREE)
                                   : false;
        n = project_workspaces_of(db, c->project.id, t->op->arena, &all, err);
        wanted = c->issue.id ? c->issue.project_workspace_id : NULL;
        if (!wanted && enabled)
                wanted = json_get_string(policy, "defaultProjectWorkspaceId");
        for (int i = n - 1; i >= 0; i--)
                if (i == 0 || (wanted && streq(all[i].id, wanted))) {
                        ret->of = all[i];
                        break;
                }
        return MIN(n, 0);
}

static const char *template_value(void *ctx, const char *name)
{
        struct run_task *t = ((void **)ctx)[0];
        const struct plan *p = ((void **)ctx)[1];
        const struct run_choice *c = &t->choice;
        const struct {
                const char *name, *value;
        } all[] = {
                { "issue.id", c->issue.id },
                { "issue.identifier", c->issue.identifier },
                { "issue.title", c->issue.title },
                { "slug", c->issue.title ? arena_slug(t->op->arena, c->issue.title) : NULL },
                { "agent.id", t->agent.id },
                { "agent.name", t->agent.name },
                { "project.id", c->project.id },
                { "project.name", c->project.name },
                { "workspace.repoRef", p->of.repo_ref },
                { "run.id", t->run.id },
        };

        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                if (streq(all[i].name, name))
                        return all[i].value;
        return NULL;
}

/* The directory that is going to be made, and its branch. */
static int plan_worktree(struct run_task *t, const struct plan *p, struct execution_workspace *w,
                         struct err *err)
{
        const char *template = strategy_text(t, p, "branchTemplate");
        const char *ref = p->of.repo_ref ? p->of.repo_ref : p->of.default_ref;
        const char *base = strategy_text(t, p, "baseRef");

        t->failure_code = "workspace_realization_failed";
        if (!p->of.cwd)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Project \"%s\" has no workspace with a directory, from which a "
                               "worktree could be made. Add one with: berth project workspace add "
                               "'%s' --directory DIR",
                               t->choice.project.name, t->choice.project.name);
        if (!template)
                template = streq(p->mode, MODE_OPERATOR) && ref ? ref
                           : t->choice.issue.id                 ? "{{issue.identifier}}-{{slug}}"
                                                                : "run-{{run.id}}";
        w->branch_name =
                worktree_branch(t->op->arena, template, template_value, (void *[]){ t, (void *)p });
        if (!w->branch_name)
                return err_set(err, ERR_UNPROCESSABLE,
                               "The branch template \"%s\" gives no name of a branch", template);
        t->failure_code = NULL;
        w->base_ref = base ? base : ref;
        w->strategy_type = w->provider_type = WORKTREE;
        w->worktree_of = p->of.cwd;
        w->worktree_path =
                worktree_path(t->op->arena, p->of.cwd, strategy_text(t, p, "worktreeParentDir"),
                              w->branch_name, w->id);
        w->cwd = w->provider_ref = w->worktree_path;
        return 0;
}

/* What the workspace is made ready and cleaned up with. */
static const char *plan_metadata(struct run_task *t, const struct plan *p,
                                 const char *environment_id)
{
        const char *provision = strategy_text(t, p, "provisionCommand");
        const char *teardown = strategy_text(t, p, "teardownCommand");
        json_t *metadata = run_keep(
                t->op->arena, json_pack("{s:{s:s}}", "config", "environmentId", environment_id));
        json_t *config = json_get_object(metadata, "config");

        if (!provision)
                provision = arena_strtrim(t->op->arena, p->of.setup_command);
        if (!teardown)
                teardown = arena_strtrim(t->op->arena, p->of.cleanup_command);
        if (provision)
                json_object_set_new(config, "provisionCommand", json_string(provision));
        if (teardown)
                json_object_set_new(config, "teardownCommand", json_string(teardown));
        return json_to_arena(t->op->arena, metadata);
}

static int make_workspace(struct db *db, struct run_task *t, const char *environment_id,
                          struct err *err)
{
        struct run_choice *c = &t->choice;
        struct execution_workspace *w = &c->workspace;
        struct issue seen = c->issue;
        struct execution_workspace ended;
        int64_t now = clock_now_us();
        const char *id;
        bool is_named;
        struct plan p;
        int r = plan_workspace(db, t, &p, err);

        if (r < 0)
                return r;
        /* The run's own by its id, unless one of that id was archived meanwhile. */
        id = c->issue.id || execution_workspaces_get(db, t->run.id, t->op->arena, &ended, NULL) >= 0
                     ? arena_strdup(t->op->arena, uuid_new().s)
                     : t->run.id;
        is_named = p.of.cwd && !streq(p.mode, MODE_AGENT); /* the project names the directory */
        *w = (struct execution_workspace){
                .id = id,
                .company_id = t->run.company_id,
                .project_id = c->project.id,
                .project_workspace_id = p.of.id,
                .source_issue_id = c->issue.id,
                .mode = p.mode,
                .strategy_type = "project_primary",
                .name = c->issue.id ? c->issue.identifier : c->project.name,
                .status = "active",
                .cwd = is_named ? p.of.cwd : json_get_string(t->config, "cwd"),
                .cwd_from = is_named || p.is_worktree ? p.of.cwd_from : t->agent.id,
                .repo_url = p.of.repo_url,
                .base_ref = p.of.repo_ref,
                .provider_type = "local_fs",
                .last_used_at = now,
                .opened_at = now,
                .metadata = plan_metadata(t, &p, environment_id),
                .created_at = now,
                .updated_at = now,
        };
        if (p.is_worktree)
                r = plan_worktree(t, &p, w, err);
        if (r >= 0)
                r = take_directory(db, t, environment_id, err);
        if (r >= 0)
                r = execution_workspaces_insert(db, w, err);
        if (r < 0 || !c->issue.id)
                return r;
        c->issue.execution_workspace_id = w->id;
        c->issue.updated_at = clock_now_us();
        return issues_update(db, &c->issue, &seen, err);
}

/* A reused workspace keeps its configuration. */
static int write_workspace(struct db *db, struct run_task *t, const char *environment_id,
                           struct err *err)
{
        struct execution_workspace *w = &t->choice.workspace;
        int64_t seen = w->updated_at;
        int r;

        if (!w->id)
                return t->choice.project.id ? make_workspace(db, t, environment_id, err) : 0;
        w->last_used_at = w->updated_at = clock_now_us();
        if (!is_reused(&t->choice))
                w->metadata = with_environment(t, w->metadata, environment_id);
        r = take_directory(db, t, environment_id, err);
        if (r >= 0)
                r = execution_workspaces_replace(db, w, seen, err);
        return r == 0 ? err_set(err, ERR_CONFLICT, "The workspace was changed by someone else") : r;
}

/* -- The environment --------------------------------------------------------------------------- */

bool run_needs_place(const struct run_task *t)
{
        const struct adapter_descriptor *d = adapter_find(t->agent.adapter_type);

        return !d || !d->is_http;
}

/* An error that says what to do about it. */
static int fail_select(struct run_task *t, int r, const char *code, struct err *err)
{
        t->failure_code = code;
        return t->choice.is_default
                       ? err_set(err, r,
                                 "%s It is the default environment of company \"%s\"; choose "
                                 "another with: berth company update '%s' --default-environment ENV",
                                 err->msg, t->company_name, t->company_name)
                       : r;
}

/* Whether one directory is the other, or beneath it. */
static bool overlaps(const char *a, const char *b)
{
        size_t n = strlen(a), m = strlen(b);

        while (n > 0 && a[n - 1] == '/')
                n--;
        while (m > 0 && b[m - 1] == '/')
                m--;
        if (strncmp(a, b, MIN(n, m)) != 0)
                return false;
        return n == m || (n < m ? b[n] : a[m]) == '/';
}

struct outsider {
        struct db *db;
        struct run_task *t;
        const char *dir;
        bool found;
        struct err *err;
};

static int look_for_outsider(void *ctx, const struct agent *g)
{
        struct outsider *o = ctx;
        const struct adapter_descriptor *d = adapter_find(g->adapter_type);
        const char *cwd = json_get_string(run_parse(o->t->op->arena, g->adapter_config), "cwd");
        bool isolated;
        int r;

        if (o->found || !cwd || !overlaps(cwd, o->dir) || (d && d->is_http) ||
            streq(g->status, "terminated"))
                return 0;
        r = agent_place_is_isolated(o->db, o->t->rt, o->t->op->arena, g, &isolated, o->err);
        o->found = r >= 0 && !isolated;
        return r;
}

/* Outside of an isolated place a program takes orders from its directory (a Makefile, hooks,
 * settings), and agents' keys decide which agent works on an issue. So an agent that works inside
 * an isolated place fills no directory that an agent outside works in, and an agent outside works
 * in no directory that was filled from inside. The directory of the workspace counts
 *
 *   outside   when somebody who may decide what runs on this machine named it, and no run worked
 *             there from inside before (take_directory())
 *   inside    unless an agent outside works there: by the rule above, or because the agent's
 *             configuration names it
 *
 * Otherwise the run works in the directory of its agent's configuration, which always counts. */
static int judge_directory(struct db *db, struct run_task *t, struct err *err)
{
        struct execution_workspace *w = &t->choice.workspace;
        const char *own = json_get_string(t->config, "cwd");
        struct outsider o = { .db = db, .t = t, .dir = w->cwd, .err = err };
        bool is_outside = w->cwd_from && streq(w->cwd_from, WORKSPACE_CWD_OUTSIDE);
        int r = 0;

        if (!w->cwd || (own && streq(own, w->cwd)))
                return 0;
        if (kind_is_isolated(t->rt, &t->choice.env)) {
                r = agents_list(db, t->run.company_id, t->op->arena, look_for_outsider, &o, err);
                if (is_outside || o.found)
                        w->cwd = NULL;
        } else if (!is_outside) {
                w->cwd = NULL;
        }
        return r;
}

/* Whether the chosen environment can be used. */
static int check_environment(struct run_task *t, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct environment *env = &t->choice.env;
        const char *id = t->run.environment_id;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        if (r < 0)
                return r;
        r = environments_get(db, id, t->op->arena, env, err);

        if (r == ERR_NOT_FOUND)
                r = err_set(err, r, "Environment \"%s\" not found.", id);
        else if (r >= 0 && !streq(env->company_id, t->run.company_id))
                r = err_set(err, ERR_NOT_FOUND,
                            "Environment \"%s\" does not belong to this company.", id);
        if (r < 0)
                return fail_select(t, r, "environment_not_found", err);
        if (!streq(env->status, "active")) {
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Environment \"%s\" is not active (status: %s).", env->name,
                            env->status);
                return fail_select(t, r, "environment_inactive", err);
        }
        r = env_allowed(db, t->rt, t->op->arena, env, err);
        if (r < 0)
                return fail_select(t, r, "unsupported_environment", err);
        r = host_use_check_run(db, t->rt, t->op->arena, &t->agent, env, err);
        if (r < 0)
                return fail_select(t, r, "environment_not_isolated", err);
        return judge_directory(db, t, err);
}

static int select_in(struct db *db, void *arg, struct err *err)
{
        struct run_task *t = arg;
        struct run_choice *c = &t->choice;
        const char *id, *kept = NULL;
        int r;

        *c = (struct run_choice){ .mode = MODE_SHARED };
        r = find_named_environment(db, t, &id, err);
        if (r < 0)
                return r;
        if (!id) {
                c->is_default = true;
                r = env_default_get(db, t->run.company_id, t->op->arena, &id, err);
        }
        if (r >= 0 && !id) {
                t->failure_code = "environment_not_found";
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Agent \"%s\" has no environment, and company \"%s\" has no default "
                            "environment. Choose one with: berth agent update '%s' --environment "
                            "ENV, or berth company update '%s' --default-environment ENV",
                            t->agent.name, t->company_name, t->agent.name, t->company_name);
        }
        if (r >= 0)
                r = write_workspace(db, t, id, err);
        if (r < 0)
                return r;
        if (c->workspace.id) {
                c->mode = c->workspace.mode;
                c->config =
                        run_keep(t->op->arena, execution_workspace_config(c->workspace.metadata));
                kept = c->config ? json_get_string(c->config, "environmentId") : NULL;
        }
        t->run.environment_id = kept ? kept : id;
        return 0;
}

int run_lane(struct op *op, struct runtime *rt, const char *id, bool is_request,
             struct lane_name *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run_task t;
        int r = run_task_load(op, rt, id, &t, err);

        /* Nothing is written: another choice may be made between this guess and the choice itself.
         * Then the run has a seat in the wrong lane, which does no harm. */
        if (r >= 0 && !is_request && !t.run.environment_id) {
                r = store_read_begin(op, rt->store, &db, err);
                if (r >= 0)
                        r = find_named_environment(db, &t, &t.run.environment_id, err);
                if (r >= 0 && !t.run.environment_id)
                        r = env_default_get(db, t.run.company_id, op->arena, &t.run.environment_id,
                                            err);
        }
        if (r < 0)
                return r;
        *ret = lane_name(t.run.company_id, t.run.agent_id);
        if (!is_request && t.run.environment_id)
                snprintf(ret->key, sizeof(ret->key), "runs:%s", t.run.environment_id);
        else if (!is_request)
                snprintf(ret->key, sizeof(ret->key), "runs of %s", t.run.company_id);
        return 0;
}

int run_select(struct run_task *t, struct err *err)
{
        int r = store_write(t->op, t->rt->store, select_in, t, err);

        return r < 0 ? r : check_environment(t, err);
}
