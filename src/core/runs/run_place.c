/* The place of a run: its lease, and its directory there (environment-runtime 5.3, 5.4). */
#define _GNU_SOURCE
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/path.h"
#include "core/adapters/adapter.h"
#include "core/kinds/provision.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_wait.h"
#include "core/workspaces/execution_workspace.h"
#include "core/workspaces/workspace.h"
#include "core/workspaces/worktree.h"

#define AGENTS_DIR "agents"

static bool is_local(const struct run_task *t)
{
        return kind_runs_on_host(t->rt, t->choice.env.driver);
}

/* `text "name" (driver): the cause`, with the code that names the step. */
static int fail_in_place(struct run_task *t, int r, const char *code, const char *text,
                         struct err *err)
{
        const struct environment *env = &t->choice.env;

        if (r == ERR_CANCELLED)
                return r;
        t->failure_code = code;
        return err_wrap(err, r, "%s \"%s\" (%s)", text, env->name, env->driver);
}

int run_fail_transport(struct run_task *t, int r, const char *what, struct err *err)
{
        if (r == ERR_CANCELLED)
                return r;
        t->failure_code = "transport_resolution_failed";
        return err_wrap(err, r, "Failed to resolve execution %s for \"%s\"", what,
                        t->record.env.name);
}

int run_check_place(struct run_task *t, const struct environment *env, struct err *err)
{
        if (!t->agent.configured_by_agent_id || (env->driver && kind_is_isolated(t->rt, env)))
                return 0;
        t->failure_code = "environment_not_isolated";
        return err_set(err, ERR_FORBIDDEN,
                       "What the agent \"%s\" runs was written with an agent's key, so it does not "
                       "run outside an isolated environment. To let it run in \"%s\", a board user "
                       "saves the agent's whole adapterConfig (replaceAdapterConfig), or chooses "
                       "its environment.",
                       t->agent.name, env->name ? env->name : "this machine");
}

int run_acquire(struct run_task *t, struct err *err)
{
        struct lease_request req = {
                .run_id = t->run.id,
                .issue_id = t->choice.issue.id,
                .execution_workspace_id = t->choice.workspace.id,
                .execution_workspace_mode = t->choice.mode,
                .agent_id = t->agent.id,
                .adapter_type = t->agent.adapter_type,
                .requested_cwd = t->choice.workspace.cwd,
        };
        const struct environment *env = &t->choice.env;
        int r;

        if (!req.requested_cwd)
                req.requested_cwd = json_get_string(t->config, "cwd");
        if (t->choice.issue.execution_workspace_settings)
                req.workspace_settings =
                        run_parse(t->op->arena, t->choice.issue.execution_workspace_settings);
        /* A command that has to run elsewhere must not run on this machine instead. */
        if (!is_local(t) && !adapter_is_remote_capable(t->agent.adapter_type)) {
                t->failure_code = "unsupported_adapter_environment";
                return err_set(err, ERR_UNPROCESSABLE,
                               "Adapter \"%s\" cannot run in environment \"%s\" (%s).",
                               t->agent.adapter_type, env->name, env->driver);
        }
        r = run_check_place(t, env, err);
        if (r < 0)
                return r;
        FAULT("run.acquire.before");
        r = run_lease_key(t, &req.idempotency_key, err);
        if (r >= 0)
                r = lease_acquire(t->op, t->rt, env, &req, &t->record, err);
        FAULT("run.acquire.after");
        if (r < 0)
                return fail_in_place(t, r, "lease_acquire_failed",
                                     "Failed to acquire lease for environment", err);
        r = lease_kind(t->rt, &t->record, &t->kind, err);
        if (r < 0)
                return run_fail_transport(t, r, "transport", err);
        t->run.environment_id = t->choice.env.id;
        t->run.lease_id = t->record.lease.id;
        t->run.leased_at = clock_now_us();
        return run_step(t, STEP_PREPARING, STEP_PREPARING, NULL, err);
}

/* -- The directory ----------------------------------------------------------------------------- */

static const char *agent_home(struct run_task *t)
{
        return arena_printf(t->op->arena, "%s/" AGENTS_DIR "/%s", t->rt->data_dir, t->agent.id);
}

/* The directory of the workspace, as far as it counts here (judge_directory() in run_select.c),
 * else the one that the agent's configuration names. No part of it comes from the run's context,
 * which agents can influence. */
static const char *find_directory(struct run_task *t, const char **ret_source)
{
        const char *cwd = arena_strtrim(t->op->arena, t->choice.workspace.cwd);

        *ret_source = "project_primary";
        if (!cwd) {
                *ret_source = "adapter_config";
                cwd = arena_strtrim(t->op->arena, json_get_string(t->config, "cwd"));
        }
        if (!cwd && is_local(t)) {
                *ret_source = "agent_home";
                cwd = agent_home(t);
        }
        return cwd;
}

static int make_directory(struct run_task *t, const char *cwd, struct err *err)
{
        int r;

        if (*cwd != '/')
                return err_set(err, ERR_UNPROCESSABLE,
                               "Working directory must be an absolute path: \"%s\"", cwd);
        if (!is_local(t))
                return 0;
        r = path_make_dirs(cwd, 0755, err);
        return r < 0 ? err_wrap(err, r, "Could not create working directory \"%s\"", cwd) : r;
}

static const char *lease_text(struct run_task *t, const char *key)
{
        return json_get_string(run_parse(t->op->arena, t->record.lease.metadata), key);
}

const char *run_shell(struct run_task *t)
{
        const char *shell = lease_text(t, "shellCommand");

        return shell && streq(shell, "bash") ? "bash" : "sh";
}

void run_find_cwd(struct run_task *t)
{
        const json_t *here = json_get_object(t->context, "paperclipWorkspace");

        t->local_cwd = json_get_string(here, "cwd");
        t->cwd = json_get_string(json_get_object(t->context, "paperclipEnvironment"), "cwd");
}

/* Tell the agent where it works. */
static void describe_workspace(struct run_task *t, const char *source)
{
        const struct execution_workspace *w = &t->choice.workspace;
        json_t *here = json_pack("{s:s?, s:s, s:s, s:s?, s:s?, s:s?, s:s?, s:s?, s:s?}", "cwd",
                                 t->local_cwd, "source", source, "mode", t->choice.mode, "strategy",
                                 w->strategy_type, "projectId", t->choice.project.id, "workspaceId",
                                 w->id, "repoUrl", w->repo_url, "repoRef", w->base_ref,
                                 "branchName", w->branch_name);

        if (worktree_is(w))
                json_object_set_new(here, "worktreePath", json_string(w->worktree_path));
        if (is_local(t))
                json_object_set_new(here, "agentHome", json_string(agent_home(t)));
        json_object_set_new(t->context, "paperclipWorkspace", here);
}

static void describe_environment(struct run_task *t, const json_t *realization)
{
        static const char *const hosts[] = { "host", "port", "username" };
        const json_t *metadata = run_parse(t->op->arena, t->record.lease.metadata);
        const struct environment *env = &t->choice.env;
        json_t *place =
                json_pack("{s:s, s:s, s:s, s:s, s:o}", "id", env->id, "name", env->name, "driver",
                          env->driver, "leaseId", t->record.lease.id, "workspaceRealization",
                          realization ? json_deep_copy(realization) : json_object());

        if (json_get_string(metadata, "remoteCwd")) {
                json_object_set(place, "remoteCwd", json_object_get(metadata, "remoteCwd"));
                for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
                        if (json_object_get(metadata, hosts[i]))
                                json_object_set(place, hosts[i],
                                                json_object_get(metadata, hosts[i]));
        }
        if (t->cwd)
                json_object_set_new(place, "cwd", json_string(t->cwd));
        json_object_set_new(t->context, "paperclipEnvironment", place);
}

/* -- Realizing --------------------------------------------------------------------------------- */

static json_t *realization_of(struct run_task *t, const char *source)
{
        const struct execution_workspace *w = &t->choice.workspace;
        struct realization_input input = {
                .adapter_type = t->agent.adapter_type,
                .company_id = t->run.company_id,
                .environment_id = t->choice.env.id,
                .run_id = t->run.id,
                .execution_workspace_id = w->id,
                .issue_id = t->choice.issue.id,
                .mode = t->choice.mode,
                .source_kind = source,
                .strategy = w->strategy_type,
                .local_path = t->local_cwd,
                .project_id = t->choice.project.id,
                .repo_url = w->repo_url,
                .repo_ref = w->base_ref,
                .branch_name = w->branch_name,
                .worktree_path = w->worktree_path,
                .project_workspace_id = w->project_workspace_id,
                .config = t->choice.config,
        };

        return run_keep(t->op->arena, realization_request(&input));
}

/* Record the realization with the workspace, as lease_realize() does with the lease. */
struct note {
        struct run_task *t;
        json_t *request;
        const json_t *realization;
};

static int note_workspace(struct db *db, void *arg, struct err *err)
{
        struct note *n = arg;
        struct execution_workspace *w = &n->t->choice.workspace;
        json_t *metadata;
        int64_t seen;
        int r = execution_workspaces_get(db, w->id, n->t->op->arena, w, err);

        if (r < 0)
                return r;
        metadata = run_parse(n->t->op->arena, w->metadata);
        json_object_set(metadata, "workspaceRealizationRequest", n->request);
        json_object_set(metadata, "workspaceRealization", (json_t *)n->realization);
        w->metadata = json_to_arena(n->t->op->arena, metadata);
        seen = w->updated_at;
        w->updated_at = clock_now_us();
        return execution_workspaces_replace(db, w, seen, err);
}

static int realize_workspace(struct run_task *t, json_t *request, json_t **ret, struct err *err)
{
        const char *remote = lease_text(t, "remoteCwd");
        json_t *workspace = run_keep(t->op->arena,
                                     json_pack("{s:s, s:{s:O}}", "mode", t->choice.mode, "metadata",
                                               "workspaceRealizationRequest", request));
        json_t *document = NULL;
        int r;

        *ret = NULL;
        if (t->local_cwd)
                json_object_set_new(workspace, "localPath", json_string(t->local_cwd));
        if (remote && *remote)
                json_object_set_new(workspace, "remotePath", json_string(remote));
        r = lease_realize(t->op, t->rt, t->record.lease.id, workspace, &document, err);
        if (r < 0)
                return r;
        *ret = json_get_object(json_get_object(document, "metadata"), "workspaceRealization");
        if (!t->cwd && !is_local(t))
                t->cwd = arena_strtrim(t->op->arena, json_get_string(document, "cwd"));
        if (json_object_size(*ret) > 0 && t->choice.workspace.id) {
                struct note n = { t, request, *ret };

                r = store_write(t->op, t->rt->store, note_workspace, &n, err);
        }
        return r;
}

/* Read the lease again: staging and realizing write to its metadata. */
static int reload_lease(struct run_task *t, struct err *err)
{
        return lease_load(t->op, t->rt, t->record.lease.id, &t->record, err);
}

static int bring_in(struct run_task *t, struct err *err)
{
        struct stage_request req = { .local_path = t->local_cwd };
        struct workspace_row row;
        int r;

        FAULT("run.stage.before");
        r = workspace_stage(t->op, t->rt, &t->record, &req, &row, err);
        FAULT("run.stage.after");
        if (r >= 0)
                r = reload_lease(t, err);
        if (r >= 0)
                t->cwd = row.cwd;
        return r;
}

/* Commands of a workspace run where its work is done. On this machine they do so only in a
 * worktree, which is the workspace's own. */
static bool runs_commands(const struct run_task *t, const struct execution_workspace *w)
{
        return worktree_is(w) || !kind_runs_on_host(t->rt, t->record.env.driver);
}

static json_t *command_env(struct run_task *t, const struct execution_workspace *w)
{
        json_t *env = json_pack("{s:s, s:s*, s:s*, s:s*}", "SHELL", "/bin/bash",
                                "PAPERCLIP_WORKSPACE_CWD", t->cwd, "PAPERCLIP_WORKSPACE_BRANCH",
                                w->branch_name, "PAPERCLIP_WORKSPACE_REPO_REF", w->base_ref);

        return run_keep(t->op->arena, env);
}

static int provision_workspace(struct run_task *t, const json_t *request, struct err *err)
{
        const struct environment *env = &t->choice.env;
        const char *script = provision_script(request, !runs_commands(t, &t->choice.workspace));
        struct exec_request req;
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(cleanup_free) char *failure = NULL;
        int r;

        if (!script)
                return 0;
        req = (struct exec_request){
                .command = "bash",
                .args = (const char *[]){ "-lc", script, NULL },
                .cwd = provision_cwd(t->op->arena, t->cwd, lease_text(t, "remoteCwd"),
                                     t->local_cwd),
                .own_env = command_env(t, &t->choice.workspace),
                .timeout_ms = PROVISION_TIMEOUT_MS,
                .idempotency_key = arena_printf(t->op->arena, "provision:%s", t->run.id),
        };
        FAULT("run.provision.before");
        r = run_command_wait(t->op, t->rt, &t->record, &req, &end, err);
        FAULT("run.provision.after");
        if (r < 0)
                return fail_in_place(t, r, "workspace_realization_failed",
                                     "Failed to provision workspace for environment", err);
        failure = provision_failure(env->name, env->driver, &end.how);
        if (!failure)
                return 0;
        t->failure_code = "workspace_realization_failed";
        return err_set(err, ERR_PROVIDER, "%s", failure);
}

int run_stage(struct run_task *t, struct err *err)
{
        const char *source;
        json_t *request, *realization = NULL;
        int r = 0;

        t->local_cwd = find_directory(t, &source);
        if (t->choice.workspace.cwd && worktree_is(&t->choice.workspace))
                r = worktree_ensure(t->op, t->rt, &t->choice.workspace, err);
        else if (t->local_cwd)
                r = make_directory(t, t->local_cwd, err);
        if (is_local(t))
                t->cwd = t->local_cwd;
        else if (r >= 0 && t->local_cwd)
                r = bring_in(t, err);
        request = realization_of(t, source);
        if (r >= 0 && kind_driver_takes_runs(t->rt, t->choice.env.driver))
                r = realize_workspace(t, request, &realization, err);
        if (r >= 0)
                r = reload_lease(t, err);
        if (r < 0)
                return fail_in_place(t, r, "workspace_realization_failed",
                                     "Failed to realize workspace for environment", err);
        if (!t->cwd)
                t->cwd = lease_text(t, "remoteCwd");
        describe_workspace(t, source);
        describe_environment(t, realization);
        r = provision_workspace(t, request, err);
        if (r < 0)
                return r;
        t->run.staged_at = clock_now_us();
        return run_step(t, STEP_PREPARING, STEP_PREPARING, NULL, err);
}

/* -- Afterwards -------------------------------------------------------------------------------- */

struct remark {
        struct run_task *t;
        const char *level, *text;
};

static int add_remark(struct db *db, void *arg, struct err *err)
{
        const struct remark *m = arg;

        return run_event_add(db, m->t->rt, &m->t->run, "workspace", m->level, m->text, NULL, err);
}

/* The workspace that the run's lease is for: 1, or 0 when there is none. */
static int workspace_of_lease(struct run_task *t, struct execution_workspace *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r;

        if (!t->record.lease.id || !t->record.lease.execution_workspace_id)
                return 0;
        r = store_read_begin(t->op, t->rt->store, &db, err);
        if (r >= 0)
                r = execution_workspaces_get(db, t->record.lease.execution_workspace_id,
                                             t->op->arena, ret, err);
        if (r == ERR_NOT_FOUND)
                err_clear(err);
        return r == ERR_NOT_FOUND ? 0 : r < 0 ? r : 1;
}

int run_teardown(struct run_task *t, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        struct remark failed = { .t = t, .level = "warn" };
        struct execution_workspace w;
        const char *script;
        int r = workspace_of_lease(t, &w, err);

        if (r <= 0 || !streq(t->record.lease.status, LEASE_ACTIVE) || !runs_commands(t, &w))
                return MIN(r, 0);
        script = json_get_string(run_keep(t->op->arena, execution_workspace_config(w.metadata)),
                                 "teardownCommand");
        if (!script)
                return 0;
        FAULT("run.teardown.before");
        r = run_command_wait(
                t->op, t->rt, &t->record,
                &(struct exec_request){
                        .command = "bash",
                        .args = (const char *[]){ "-lc", script, NULL },
                        .cwd = t->cwd,
                        .own_env = command_env(t, &w),
                        .timeout_ms = PROVISION_TIMEOUT_MS,
                        .idempotency_key = arena_printf(t->op->arena, "teardown:%s", t->run.id),
                },
                &end, err);
        FAULT("run.teardown.after");
        if (r == ERR_CANCELLED ||
            (r >= 0 && !end.how.timed_out && end.how.has_code && end.how.code == 0))
                return MIN(r, 0);
        failed.text =
                r < 0 ? arena_printf(t->op->arena, "The teardown command failed: %s", err->msg)
                : end.how.timed_out ? "The teardown command took too long"
                                    : arena_printf(t->op->arena,
                                                   "The teardown command failed with exit code %d",
                                                   end.how.code);
        err_clear(err);
        return MIN(store_write(t->op, t->rt->store, add_remark, &failed, err), 0);
}

int run_publish(struct run_task *t, struct err *err)
{
        struct remark said = { .t = t, .level = "info" };
        struct git_report report = { 0 };
        struct execution_workspace w;
        int r = workspace_of_lease(t, &w, err);

        if (r <= 0 || !worktree_is(&w))
                return MIN(r, 0);
        r = worktree_publish(t->op, t->rt, &w, &report, err);
        if (r == ERR_CANCELLED || (r >= 0 && !report.kept && !report.note))
                return MIN(r, 0);
        if (r >= 0 && report.kept) {
                said.text = arena_printf(t->op->arena, "%s of the worktree is %s in %s",
                                         report.kept->name, report.kept->here, w.worktree_of);
        } else {
                said.level = "warn";
                said.text = arena_printf(t->op->arena,
                                         "Commits of the worktree %s were not brought home: %s",
                                         w.worktree_path, r < 0 ? err->msg : report.note);
        }
        err_clear(err);
        return MIN(store_write(t->op, t->rt->store, add_remark, &said, err), 0);
}
