/* The local driver: this machine. A lease by itself is only a row; the box, and with it a place in
 * the world, is made when a command is first run in it (exec.h).
 *
 * A command's environment is built from zero: the few variables below as the daemon has them, what
 * the operator names (BERTH_LOCAL_ENV), what the environment's configuration sets (`env`), and what
 * the request sets, later ones winning. Nothing else of the daemon's gets in. */
#include "codec/json.h"
#include "core/exec/exec_output.h"
#include "core/exec/exec_request.h"
#include "core/kinds/realization.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static const char *const inherited[] = { "PATH", "HOME", "USER", "SHELL", "LANG", "TMPDIR" };

static int local_plan(struct op *op, struct runtime *rt, const struct environment *env,
                      const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        json_t *config = NULL, *own = json_object();

        (void)json_parse(env->config, strlen(env->config), &config, NULL);
        exec_output_keep(config, own);
        *ret = (struct lease_plan){ .provider = "local",
                                    .policy = POLICY_EPHEMERAL,
                                    .config = json_to_arena(op->arena, own) };
        json_decref(config);
        json_decref(own);
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

static bool local_matches(const char *recorded, const char *wanted)
{
        return false;
}

static int local_list(struct op *op, struct runtime *rt, driver_found_fn fn, void *ctx,
                      struct err *err)
{
        return exec_list_boxes(op, rt, fn, ctx, err);
}

static int local_realize(struct op *op, struct runtime *rt, const struct environment *env,
                         const struct lease *lease, json_t *workspace, struct buf *ret_json,
                         json_t **ret_realization, struct err *err)
{
        const char *local = json_get_string(workspace, "localPath");
        const char *remote = json_get_string(workspace, "remotePath");
        const char *cwd = local ? local : remote;

        *ret_realization = realization_record(env, lease, workspace, cwd);
        realization_answer(ret_json, cwd ? cwd : "/", *ret_realization);
        return 0;
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
        json_t *variables = json_object(), *config = NULL;

        json_object_set_new(variables, "PATH", json_string(DEFAULT_PATH));
        for (size_t i = 0; i < ARRAY_LEN(inherited); i++)
                inherit(variables, inherited[i]);
        inherit_named(variables, rt->settings.local_env, op->arena);
        if (json_parse(env->config, strlen(env->config), &config, NULL) >= 0)
                exec_variables_update(variables, json_get_object(config, "env"));
        exec_variables_update(variables, requested);
        json_decref(config);
        return variables;
}

/* Where the workspace is, if one was realized here. */
static const char *workspace_path(struct op *op, const struct lease *lease)
{
        json_t *metadata = NULL;
        const char *path = NULL;

        if (lease->metadata &&
            json_parse(lease->metadata, strlen(lease->metadata), &metadata, NULL) >= 0)
                path = arena_strdup(
                        op->arena,
                        json_get_string(
                                json_get_object(json_get_object(metadata, "workspaceRealization"),
                                                "local"),
                                "path"));
        json_decref(metadata);
        return path;
}

static int local_prepare_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                              json_t *request, struct exec_request *ret, struct err *err)
{
        const char *home = getenv("HOME");
        const json_t *env;
        json_t *variables;
        int r = exec_request_parse(op, request, ret, &env, err);

        if (r < 0)
                return r;
        variables = build_env(op, rt, &record->env, env);
        r = exec_request_set_env(op, variables, ret, err);
        json_decref(variables);
        if (!ret->cwd)
                ret->cwd = workspace_path(op, &record->lease);
        if (!ret->cwd)
                ret->cwd = home && *home == '/' ? arena_strdup(op->arena, home) : "/";
        return r;
}

const struct driver driver_local = {
        .key = "local",
        .isolation = "this machine, not isolated",
        .runs_on_host = true,
        .plan = local_plan,
        .open = local_open,
        .close = local_close,
        .matches = local_matches,
        .list = local_list,
        .realize = local_realize,
        .prepare_exec = local_prepare_exec,
        .makes_world_lazily = true,
};
