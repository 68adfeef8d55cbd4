/* Which execute requests are accepted: one table of checks, whatever runs the command. */
#include "core/exec/exec_request.h"

#include "codec/check.h"

#define TIMEOUT_MAX   (INT64_C(366) * 86400000)
#define ARGS_MAX      4096
#define ARG_BYTES_MAX 131072 /* of the kernel, its NUL included */
#define COMMAND_MAX   ((size_t)2 << 20)

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
int exec_request_check_size(const struct exec_request *req, struct err *err)
{
        const char *const one[] = { req->command, NULL };
        const char *const *const lists[] = { one, req->args, req->env };
        size_t size = 0, longest = 0;

        for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
                for (const char *const *s = lists[i]; s && *s; s++) {
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

int exec_request_parse(struct op *op, json_t *request, struct exec_request *ret,
                       const json_t **ret_env, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = op->arena;
        const char *input, *agent;
        json_t *args, *env;

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
        agent = check_uuid(&c, "agentId", CHECK_NULLABLE);
        ret->agent_id = agent ? arena_strdup(a, agent) : NULL;
        (void)check_bool(&c, "detach", CHECK_OPTIONAL, false);
        ret->open_stdin = check_bool(&c, "openStdin", CHECK_OPTIONAL, false);
        check_terminal(&c, ret);
        check_unknown(&c, (const char *[]){ "command", "args", "cwd", "env", "stdin", "timeoutMs",
                                            "idempotencyKey", "agentId", "detach", "openStdin",
                                            "tty", NULL });
        if (input) {
                ret->stdin_text = arena_strdup(a, input);
                ret->stdin_len = strlen(input);
        }
        if (!check_failed(&c)) {
                ret->args = copy_args(op, args);
                ret->args_json = args ? json_to_arena(a, args) : "[]";
        }
        *ret_env = ret->own_env = env;
        return check_end(&c, err);
}

int exec_request_set_env(struct op *op, const json_t *variables, struct exec_request *req,
                         struct err *err)
{
        const char **list =
                arena_alloc(op->arena, (json_object_size(variables) + 1) * sizeof(*list));
        const char *name;
        json_t *value;
        size_t n = 0;

        json_object_foreach((json_t *)variables, name, value) list[n++] =
                arena_printf(op->arena, "%s=%s", name, json_string_value(value));
        req->env = list;
        return exec_request_check_size(req, err);
}

void exec_variables_update(json_t *variables, const json_t *members)
{
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)members, name, value)
        {
                if (json_is_string(value))
                        json_object_set(variables, name, value);
        }
}
