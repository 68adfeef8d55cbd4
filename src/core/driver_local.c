/* The local driver: this machine. A lease by itself is only a row; the box, and with it a place in
 * the world, is made when a command is first run in it (exec.h).
 *
 * A command's environment is built from zero: the few variables below as the daemon has them, what
 * the operator names (BERTH_LOCAL_ENV), what the environment's configuration sets (`env`), and what
 * the request sets, later ones winning. Nothing else of the daemon's gets in. */
#include "codec/check.h"
#include "core/exec.h"
#include "core/realization.h"

#define DEFAULT_PATH  "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define TIMEOUT_MAX   (INT64_C(366) * 86400000)
#define ARGS_MAX      4096
#define ARG_BYTES_MAX 131072 /* of the kernel, its NUL included */
#define COMMAND_MAX   ((size_t)2 << 20)

static const char *const inherited[] = { "PATH", "HOME", "USER", "SHELL", "LANG", "TMPDIR" };

static int local_plan(struct op *op, struct runtime *rt, const struct environment *env,
                      const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        *ret = (struct lease_plan){ .provider = "local",
                                    .policy = POLICY_EPHEMERAL,
                                    .config = "{}" };
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

static void set_members(json_t *variables, const json_t *members)
{
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)members, name, value)
        {
                if (json_is_string(value))
                        json_object_set(variables, name, value);
        }
}

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

static const char *const *build_env(struct op *op, const struct runtime *rt,
                                    const struct environment *env, const json_t *requested)
{
        json_t *variables = json_object(), *config = NULL;
        const char **list, *name;
        json_t *value;
        size_t n = 0;

        json_object_set_new(variables, "PATH", json_string(DEFAULT_PATH));
        for (size_t i = 0; i < ARRAY_LEN(inherited); i++)
                inherit(variables, inherited[i]);
        inherit_named(variables, rt->settings.local_env, op->arena);
        if (json_parse(env->config, strlen(env->config), &config, NULL) >= 0)
                set_members(variables, json_get_object(config, "env"));
        set_members(variables, requested);
        list = arena_alloc(op->arena, (json_object_size(variables) + 1) * sizeof(*list));
        json_object_foreach(variables, name, value) list[n++] =
                arena_printf(op->arena, "%s=%s", name, json_string_value(value));
        json_decref(config);
        json_decref(variables);
        return list;
}

/* The request */

static bool is_variable_name(const char *s)
{
        if (!*s)
                return false;
        for (; *s; s++)
                if (*s == '=' || (unsigned char)*s <= ' ')
                        return false;
        return true;
}

static json_t *check_env(struct check *c)
{
        json_t *env = check_record(c, "env", CHECK_OPTIONAL), *value;
        const char *name;
        struct check n;

        check_nested(&n, c, "env", env);
        json_object_foreach(env, name, value)
        {
                (void)check_string(&n, name, CHECK_REQUIRED, 0, 0);
                if (!is_variable_name(name))
                        check_custom(&n, name, "Not a name for a variable");
        }
        return env;
}

static const char *const *copy_args(struct op *op, const json_t *args)
{
        const char **list = arena_alloc(op->arena, (json_array_size(args) + 1) * sizeof(*list));
        json_t *arg;
        size_t i;

        json_array_foreach(args, i, arg) list[i] = arena_strdup(op->arena, json_string_value(arg));
        return list;
}

static void check_terminal(struct check *c, struct exec_request *ret)
{
        json_t *tty = check_record(c, "tty", CHECK_OPTIONAL);
        struct check n;

        if (!tty)
                return;
        check_nested(&n, c, "tty", tty);
        ret->terminal = ret->open_stdin = true;
        ret->columns = (uint16_t)check_int(&n, "columns", CHECK_OPTIONAL, 1, 9999, NULL);
        ret->rows = (uint16_t)check_int(&n, "rows", CHECK_OPTIONAL, 1, 9999, NULL);
        check_unknown(&n, (const char *[]){ "columns", "rows", NULL });
        if (!ret->columns)
                ret->columns = 80;
        if (!ret->rows)
                ret->rows = 24;
}

/* What the kernel and the box protocol carry. */
static int check_size(const struct exec_request *req, struct err *err)
{
        const char *const one[] = { req->command, NULL };
        const char *const *const lists[] = { one, req->args, req->env };
        size_t size = 0, longest = 0;

        for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
                for (const char *const *s = lists[i]; *s; s++) {
                        size_t n = strlen(*s);

                        size += n + 5;
                        longest = MAX(longest, n);
                }
        }
        if (longest >= ARG_BYTES_MAX)
                return err_set(err, ERR_TOO_LARGE,
                               "One argument or variable has at most %d bytes; send large input "
                               "through stdin.",
                               ARG_BYTES_MAX - 1);
        if (size > COMMAND_MAX)
                return err_set(
                        err, ERR_TOO_LARGE,
                        "Arguments and environment together are at most %zu bytes; send large "
                        "input through stdin.",
                        COMMAND_MAX);
        return 0;
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
        CLEAN(check_done) struct check c;
        struct arena *a = op->arena;
        const char *input, *home = getenv("HOME");
        json_t *args, *env;
        int r;

        *ret = (struct exec_request){ 0 };
        check_init(&c, request);
        ret->command = arena_strdup(a, check_string(&c, "command", CHECK_REQUIRED, 1, 0));
        args = check_strings(&c, "args", CHECK_OPTIONAL, 0);
        check_array_size(&c, "args", args, 0, ARGS_MAX);
        ret->cwd = arena_strdup(a, check_string(&c, "cwd", CHECK_NULLABLE, 1, 4096));
        env = check_env(&c);
        input = check_string(&c, "stdin", CHECK_NULLABLE, 0, 0);
        ret->timeout_ms = check_int(&c, "timeoutMs", CHECK_NULLABLE, 1, TIMEOUT_MAX, NULL);
        ret->idempotency_key =
                arena_strdup(a, check_string(&c, "idempotencyKey", CHECK_NULLABLE, 1, 255));
        (void)check_bool(&c, "detach", CHECK_OPTIONAL, false);
        ret->open_stdin = check_bool(&c, "openStdin", CHECK_OPTIONAL, false);
        check_terminal(&c, ret);
        check_unknown(&c, (const char *[]){ "command", "args", "cwd", "env", "stdin", "timeoutMs",
                                            "idempotencyKey", "detach", "openStdin", "tty", NULL });
        if (input) {
                ret->stdin_text = arena_strdup(a, input);
                ret->stdin_len = strlen(input);
        }
        if (!check_failed(&c)) {
                ret->args = copy_args(op, args);
                ret->args_json = args ? json_to_arena(a, args) : "[]";
                ret->env = build_env(op, rt, &record->env, env);
        }
        r = check_end(&c, err);
        if (r >= 0)
                r = check_size(ret, err);
        if (r >= 0 && !ret->cwd)
                ret->cwd = workspace_path(op, &record->lease);
        if (r >= 0 && !ret->cwd)
                ret->cwd = home && *home == '/' ? arena_strdup(a, home) : "/";
        return r;
}

const struct driver driver_local = {
        .key = "local",
        .plan = local_plan,
        .open = local_open,
        .close = local_close,
        .matches = local_matches,
        .list = local_list,
        .realize = local_realize,
        .prepare_exec = local_prepare_exec,
        .makes_world_lazily = true,
};
