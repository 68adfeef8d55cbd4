/* The local driver: this machine. A lease by itself is only a row; the box, and with it a place in
 * the world, is made when a command is first run in it (exec.h).
 *
 * A command's environment is built from zero: the few variables below as the daemon has them, what
 * the operator names (BERTH_LOCAL_ENV), what the environment's configuration sets (`env`), and what
 * the request sets, later ones winning. No other variable of the daemon gets in. */
#include <limits.h>
#include <unistd.h>

#include "codec/json.h"
#include "core/exec/box_route.h"
#include "core/exec/exec_output.h"
#include "core/exec/exec_request.h"
#include "core/kinds/realization.h"
#include "core/workspaces/workspace.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *const inherited[] = { "PATH", "HOME", "USER", "SHELL", "LANG", "TMPDIR" };

extern const struct kind kind_local;

/* Any member is accepted; only `env` and the limits of the output have a meaning. */
static int local_normalize(const struct kind *kind, json_t *config, enum config_form form,
                           json_t **ret, struct err *err)
{
        *ret = json_copy(config);
        return 0;
}

static int local_probe(struct op *op, struct runtime *rt, const struct probe_target *target,
                       json_t *config, struct probe_result *ret, struct err *err)
{
        char host[HOST_NAME_MAX + 1] = "", cwd[PATH_MAX] = "";

        (void)gethostname(host, sizeof(host) - 1);
        (void)!getcwd(cwd, sizeof(cwd));
        ret->ok = true;
        buf_puts(&ret->summary, "Local environment is available on this Paperclip host.");
        json_object_set_new(ret->details, "hostname", json_string(host));
        json_object_set_new(ret->details, "cwd", json_string(cwd));
        return 0;
}

static int local_plan(struct op *op, struct runtime *rt, const struct environment *env,
                      const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *own = json_object();

        exec_output_keep(json_from_text(op->arena, env->config), own);
        *ret = (struct lease_plan){ .provider = "local",
                                    .policy = POLICY_EPHEMERAL,
                                    .config = json_to_arena(op->arena, own) };
        return 0;
}

/* Never reached: a plan without a world opens nothing. */
static int local_open(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        return 0;
}

static int local_close(struct op *op, struct runtime *rt, const struct place *place,
                       struct err *err)
{
        return exec_close_place(op, rt, place, err);
}

static int local_list(struct op *op, struct runtime *rt, const struct kind *kind, kind_found_fn fn,
                      void *ctx, struct err *err)
{
        return exec_list_boxes(op, rt, kind_local.driver, fn, ctx, err);
}

static int local_realize(struct op *op, struct runtime *rt, const struct environment *env,
                         const struct lease *lease, json_t *workspace, json_t **ret,
                         struct err *err)
{
        const char *local = json_get_string(workspace, "localPath");
        const char *remote = json_get_string(workspace, "remotePath");
        const char *cwd = local ? local : remote;

        *ret = realization_answer(op, cwd ? cwd : "/",
                                  realization_record(&kind_local, env, lease, workspace, cwd));
        return 0;
}

static json_t *local_summary(const json_t *metadata, const char *local, const char *remote,
                             const char *cwd)
{
        return json_sprintf("Local workspace realized at %s.", local);
}

/* The environment of a command */

static void inherit(json_t *variables, const char *name)
{
        const char *value = getenv(name);

        if (value)
                json_object_set_new(variables, name, json_string(value));
}

static void inherit_named(json_t *variables, const char *names, struct arena *arena)
{
        while (names && *names) {
                size_t n;

                names += strspn(names, ", ");
                n = strcspn(names, ", ");
                if (n > 0)
                        inherit(variables, arena_strndup(arena, names, n));
                names += n;
        }
}

/* A new reference. */
static json_t *build_env(struct op *op, const struct runtime *rt, const struct environment *env,
                         const json_t *requested)
{
        json_t *variables = json_object();

        json_object_set_new(variables, "PATH", json_string(DEFAULT_PATH));
        for (size_t i = 0; i < ARRAY_LEN(inherited); i++)
                inherit(variables, inherited[i]);
        inherit_named(variables, rt->settings.local_env, op->arena);
        exec_variables_update(variables,
                              json_get_object(json_from_text(op->arena, env->config), "env"));
        exec_variables_update(variables, requested);
        return variables;
}

/* Where the workspace is, if one was realized here. */
static const char *workspace_path(struct op *op, const struct lease *lease)
{
        const json_t *metadata = json_from_text(op->arena, lease->metadata);
        const json_t *realization = json_get_object(metadata, "workspaceRealization");

        return json_get_string(json_get_object(realization, "local"), "path");
}

static int local_prepare_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                              struct exec_request *ret, struct err *err)
{
        const char *home = getenv("HOME");
        json_t *variables = build_env(op, rt, &record->env, ret->own_env);
        int r = exec_request_set_env(op, variables, ret, err);

        json_decref(variables);
        if (!ret->cwd)
                ret->cwd = workspace_path(op, &record->lease);
        if (!ret->cwd)
                ret->cwd = home && *home == '/' ? arena_strdup(op->arena, home) : "/";
        return r;
}

static const struct box_route *local_route(const struct place *place)
{
        return box_route_here();
}

static const struct workspace_way *const in_place[] = { &workspace_in_place, NULL };
static const struct workspace_way *const copied[] = { &workspace_sync, &workspace_archive, NULL };

static const struct kind_realization local_realization = {
        .strategy = "none",
        .prepare = "The command works in the workspace itself.",
        .summary = local_summary,
};

static const struct kind_starter local_starter = { 0 };

const struct kind kind_local = {
        .driver = "local",
        .label = "local",
        .isolation = "this machine, not isolated",
        .runs_on_host = true,
        .has_own_files = true,
        .takes_runs = true,
        .is_managed = true,
        .makes_world_lazily = true,
        .starter = &local_starter,
        .normalize = local_normalize,
        .probe = local_probe,
        .plan = local_plan,
        .open = local_open,
        .close = local_close,
        .list = local_list,
        .realize = local_realize,
        .prepare_exec = local_prepare_exec,
        .route = local_route,
        .ways = in_place,
        .ways_copy = copied,
        .realization = &local_realization,
};
