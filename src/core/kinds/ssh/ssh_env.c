/* Which variables a command on an ssh host gets, and the shell lines that set them. */
#include "core/kinds/ssh/ssh_env.h"

#include "ssh/script.h"

static bool is_name(const char *s)
{
        if (!((*s >= 'A' && *s <= 'Z') || (*s >= 'a' && *s <= 'z') || *s == '_'))
                return false;
        for (; *s; s++)
                if (!((*s >= 'A' && *s <= 'Z') || (*s >= 'a' && *s <= 'z') ||
                      (*s >= '0' && *s <= '9') || *s == '_'))
                        return false;
        return true;
}

int ssh_env_check(const json_t *env, struct err *err)
{
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)env, name, value)
        {
                if (!is_name(name))
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "Invalid SSH environment variable key: %s", name);
        }
        return 0;
}

/* Wrapping */

static size_t count(const char *const *list)
{
        size_t n = 0;

        while (list && list[n])
                n++;
        return n;
}

static const char *name_of(struct arena *arena, const char *variable)
{
        return arena_strndup(arena, variable, strcspn(variable, "="));
}

static bool has_name(const char *const *names, const char *variable)
{
        size_t n = strcspn(variable, "=");

        for (; *names; names++)
                if (strlen(*names) == n && strncmp(*names, variable, n) == 0)
                        return true;
        return false;
}

void ssh_env_wrap(struct arena *arena, const struct exec_request *in, struct exec_request *ret)
{
        size_t n_env = count(in->env), n_login = count(in->login), n_args = count(in->args), n = 0;
        const char **names = arena_alloc(arena, (n_env + 1) * sizeof(*names));
        const char **env = arena_alloc(arena, (n_env + n_login + 1) * sizeof(*env));
        const char **args = arena_alloc(arena, (n_args + 5) * sizeof(*args));
        CLEAN(buf_done) struct buf script = BUF_INIT;

        for (size_t i = 0; i < n_env; i++)
                names[i] = name_of(arena, in->env[i]);
        for (size_t i = 0; i < n_login; i++)
                if (!has_name(names, in->login[i]))
                        env[n++] = in->login[i];
        for (size_t i = 0; i < n_env; i++)
                env[n++] = in->env[i];
        ssh_script_command(names, &script);
        args[0] = "-c";
        args[1] = arena_strdup(arena, buf_str(&script));
        args[2] = "sh";
        args[3] = in->command;
        for (size_t i = 0; i < n_args; i++)
                args[4 + i] = in->args[i];
        *ret = *in;
        ret->command = "/bin/sh";
        ret->args = args;
        ret->env = env;
        ret->login = NULL;
        ret->wrap = NULL;
}
