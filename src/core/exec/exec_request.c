/* Decides which requests for commands are accepted, whatever runs the command. */
#define _GNU_SOURCE
#include "core/exec/exec_request.h"

#include <strings.h>
#include <unistd.h>

#define ARG_BYTES_MAX 131072 /* of the kernel, its NUL included */
#define COMMAND_MAX   ((size_t)2 << 20)

bool exec_is_variable_name(const char *s)
{
        if (!*s)
                return false;
        for (; *s; s++)
                if (*s == '=' || (unsigned char)*s <= ' ')
                        return false;
        return true;
}

int exec_admit(struct op *op, struct runtime *rt, const struct kind *kind,
               const struct lease_record *record, struct exec_request *req, struct err *err)
{
        int r = kind->admit_exec ? kind->admit_exec(op, rt, record, req, err) : 0;

        req->is_single = r > 0;
        if (r >= 0 && !kind->prepare_exec)
                r = kind_unsupported(kind, "command execution", err);
        return MIN(r, 0);
}

/* What api/executions.c tells of a body member by member. */
static int check_own(const struct exec_request *req, struct err *err)
{
        const char *cwd = req->cwd, *key = req->idempotency_key, *name;
        size_t n_args = 0;
        json_t *value;
        bool good = req->command && *req->command && req->timeout_ms >= 0 &&
                    req->timeout_ms <= EXEC_TIMEOUT_MAX &&
                    (!cwd || (*cwd && strlen(cwd) <= EXEC_CWD_MAX)) &&
                    (!key || (*key && strlen(key) <= EXEC_KEY_MAX));

        while (req->args && req->args[n_args])
                n_args++;
        json_object_foreach((json_t *)req->own_env, name, value) good =
                good && json_is_string(value) && (req->is_single || exec_is_variable_name(name));
        if (good && n_args <= EXEC_ARGS_MAX)
                return 0;
        return err_set(err, ERR_INVALID, "Validation error");
}

int exec_prepare(struct op *op, struct runtime *rt, const struct kind *kind,
                 const struct lease_record *record, struct exec_request *req, struct err *err)
{
        int r = exec_admit(op, rt, kind, record, req, err);

        if (r >= 0)
                r = check_own(req, err);
        if (r >= 0)
                r = kind->prepare_exec(op, rt, record, req, err);
        if (r >= 0 && req->acp && req->remote)
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Commands in this place run without a box, and an agent that speaks "
                            "ACP needs one.");
        return r;
}

/* What the kernel and the box protocol carry. */
int exec_request_check_size(const struct exec_request *req, struct err *err)
{
        const char *const one[] = { req->command, NULL };
        const char *const *const lists[] = { one, req->args, req->env, req->acp };
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

/* Variables for another machine */

static const char *const identity[] = {
        "PATH",
        "HOME",
        "PWD",
        "SHELL",
        "USER",
        "LOGNAME",
        "NVM_DIR",
        "TMPDIR",
        "TMP",
        "TEMP",
        "XDG_CONFIG_HOME",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "XDG_STATE_HOME",
        "XDG_RUNTIME_DIR",
};

static bool is_identity(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(identity); i++)
                if (strcasecmp(name, identity[i]) == 0)
                        return true;
        return false;
}

/* Under that very name first, then under one that differs in case only. */
static const char *own_value(const char *name)
{
        const char *value = getenv(name);
        size_t n = strlen(name);

        for (char **v = environ; !value && v && *v; v++)
                if (strncasecmp(*v, name, n) == 0 && (*v)[n] == '=')
                        value = *v + n + 1;
        return value;
}

json_t *exec_variables_sanitize(const json_t *env)
{
        json_t *kept = json_object(), *value;
        const char *name;

        json_object_foreach((json_t *)env, name, value)
        {
                const char *own = is_identity(name) ? own_value(name) : NULL;
                const char *text = json_is_string(value) ? json_string_value(value)
                                                         : json_get_string(value, "value");

                if (!own || !text || !streq(own, text))
                        json_object_set(kept, name, value);
        }
        return kept;
}
