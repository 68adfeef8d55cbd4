/* Decides which assets a run gets, and brings them to its place. */
#define _GNU_SOURCE
#include "core/runs/run_assets.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/adapters/adapter_expr.h"
#include "core/runs/run_wait.h"
#include "core/workspaces/workspace.h"

#define ASSETS_DIR       "run-assets"
#define SCRIPT_MS        120000
#define RESTORE_MS       60000
#define MAX_SAID         400 /* bytes of the output of a script that failed */
#define SAYS_MAX         ((size_t)1 << 20)
#define ASSET_ERROR_CODE "asset_staging_failed"

void run_assets_recover(const struct runtime *rt)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/" ASSETS_DIR, rt->data_dir);
        CLEAN(err_done) struct err why = { 0 };

        if (asset_tree_remove(path, &why) < 0)
                log_warn("what runs left was not removed", LOG_S("error", why.msg));
}

static const char *scratch(struct run_task *t)
{
        return arena_printf(t->op->arena, "%s/" ASSETS_DIR "/%s", t->rt->data_dir, t->run.id);
}

static bool is_local(const struct run_task *t)
{
        return kind_runs_on_host(t->rt, t->record.env.driver);
}

/* One after the other */

static int bring_asset(struct run_asset *a, struct buf *script, bool *ret_empty, struct err *err)
{
        int r = run_asset_gather(a, ret_empty, err);

        if (r >= 0 && *ret_empty)
                run_asset_script_empty(a, script);
        if (r < 0 || *ret_empty)
                return r;
        FAULT("run.assets.before");
        r = run_asset_put(a, err);
        FAULT("run.assets.after");
        if (r >= 0)
                run_asset_script(a, script);
        return r;
}

/* Whether a file of the asset has what the descriptor looks for. */
static bool says(const struct run_asset *a)
{
        const json_t *wanted = json_get_object(a->plan, "says");
        CLEAN(buf_done) struct buf text = BUF_INIT;

        return wanted &&
               file_read_at(AT_FDCWD,
                            arena_printf(a->t->op->arena, "%s/%s",
                                         is_local(a->t) ? a->dir : a->tree,
                                         json_get_string(wanted, "file")),
                            SAYS_MAX, &text, NULL) >= 0 &&
               adapter_like_any(json_object_get(wanted, "like"), buf_str(&text), text.len);
}

static int bring_assets(struct run_task *t, const json_t *plan, json_t *known, struct buf *script,
                        struct err *err)
{
        struct skill_list skills;
        size_t i;
        json_t *one;
        int r = skill_list(t->op->arena, t->rt->data_dir, t->run.company_id, &skills, err);

        json_array_foreach((json_t *)plan, i, one)
        {
                struct run_asset a = {
                        .t = t,
                        .plan = one,
                        .key = json_get_string(one, "key"),
                        .dir = json_get_string(one, "dir"),
                        .skills = &skills,
                        .missing = run_keep(t->op->arena, json_array()),
                };
                bool empty = false;

                if (r < 0)
                        return r;
                a.tree = arena_printf(t->op->arena, "%s/%s", scratch(t), a.key);
                r = is_local(t) ? run_asset_provide(&a, &empty, err)
                                : bring_asset(&a, script, &empty, err);
                if (r < 0 && r != ERR_CANCELLED)
                        return err_wrap(err, r, "asset \"%s\"", a.key);
                if (r < 0 || empty)
                        continue;
                json_object_set_new(known, a.key,
                                    json_pack("{s:s, s:s, s:O*, s:b}", "dir", a.dir, "key",
                                              a.content, "missing",
                                              json_array_size(a.missing) ? a.missing : NULL, "says",
                                              says(&a)));
        }
        return r;
}

/* Afterwards, in the place */

static int finish_there(struct run_task *t, const json_t *plan, const char *script, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        const char *home = json_get_string(json_array_get(plan, 0), "home");
        struct exec_request req = {
                .command = run_shell(t),
                .args = (const char *[]){ "-c", script, NULL },
                .cwd = "/",
                .own_env = home ? run_keep(t->op->arena, json_pack("{s:s}", "HOME", home)) : NULL,
                .timeout_ms = SCRIPT_MS,
                .agent_id = t->agent.id,
        };
        int r;

        FAULT("run.assets.script.before");
        r = run_command_wait(t->op, t->rt, &t->record, &req, &end, err);
        FAULT("run.assets.script.after");
        if (r < 0)
                return r;
        if (!end.how.timed_out && end.how.has_code && end.how.code == 0)
                return 0;
        return err_set(err, ERR_PROVIDER, "they could not be put in place: %.*s", MAX_SAID,
                       end.err.len ? buf_str(&end.err) : "the command failed");
}

/* The command never starts, so the files there will not change any more. */
static void bring_home(struct run_task *t)
{
        struct op shield = op_shield(t->op, RESTORE_MS);
        CLEAN(err_done) struct err why = { 0 };
        struct restore_report report;
        struct workspace_row row;

        if (is_local(t) || workspace_get(&shield, t->rt, t->run.lease_id, &row, &why) < 0 ||
            !streq(row.state, WORKSPACE_STAGED))
                return;
        if (workspace_restore(&shield, t->rt, &t->record, NULL, &report, &why) < 0)
                log_warn("the workspace of a run that could not begin is saved with its lease",
                         LOG_S("run", t->run.id), LOG_S("error", why.msg));
}

int run_assets(struct run_task *t, struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT;
        json_t *known = run_keep(t->op->arena, json_object());
        const struct adapter_descriptor *d = adapter_find(t->agent.adapter_type);
        const struct environment *env = &t->record.env;
        const json_t *plan;
        int r = 0;

        json_object_del(t->context, RUN_ASSETS_MEMBER); /* only this file says where they are */
        if (!d || !json_object_get(d->json, "assets"))
                return 0;
        run_input(t, NULL);
        plan = adapter_assets(t->op, &t->input);
        if (json_array_size(plan) == 0)
                return 0;
        if (!is_local(t)) {
                r = asset_tree_remove(scratch(t), err);
                if (r >= 0)
                        r = path_make_dirs(scratch(t), 0700, err);
        }
        if (r >= 0)
                r = bring_assets(t, plan, known, &script, err);
        if (!is_local(t))
                (void)asset_tree_remove(scratch(t), NULL); /* else the next start removes it */
        if (r >= 0 && script.len > 0)
                r = finish_there(t, plan, buf_str(&script), err);
        if (r < 0 && r != ERR_CANCELLED) {
                bring_home(t);
                t->failure_code = ASSET_ERROR_CODE;
                r = err_set(err, r, "Failed to stage assets for environment \"%s\" (%s): %s",
                            env->name, env->driver, err->msg);
        }
        if (r < 0)
                return r;
        if (json_object_size(known) > 0)
                json_object_set(t->context, RUN_ASSETS_MEMBER, known);
        return 0;
}
