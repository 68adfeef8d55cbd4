/* Which variables a command on an ssh host gets, and the shell lines that set them. */
#include "core/kinds/ssh/ssh_env.h"

#include <strings.h>

#include "ssh/script.h"

extern char **environ;

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

json_t *ssh_env_sanitize(const json_t *env)
{
        json_t *kept = json_object(), *value;
        const char *name;

        json_object_foreach((json_t *)env, name, value)
        {
                const char *own = is_identity(name) ? own_value(name) : NULL;

                if (!own || !json_is_string(value) || !streq(own, json_string_value(value)))
                        json_object_set(kept, name, value);
        }
        return kept;
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
