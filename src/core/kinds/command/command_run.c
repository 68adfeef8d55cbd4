/* Which environment a command gets, how long it may take, and what its failure means. */
#include "core/kinds/command/command_run.h"

#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/path.h"
#include "codec/redact.h"
#include "codec/secret_refs.h"
#include "rt/pool.h"
#include "ssh/session.h"
#include "ssh/text.h"

#define OUT_MAX    ((size_t)4 << 20)
#define SAID_MAX   500
#define SECONDS    60
#define ENV_MAX    64
#define PATH_VALUE "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* The environment */

struct env_list {
        struct arena *arena;
        const char *list[ENV_MAX + 1];
        size_t n;
};

static void set(struct env_list *e, const char *name, const char *value)
{
        size_t len = strlen(name);

        for (size_t i = 0; i < e->n; i++)
                if (strncmp(e->list[i], name, len) == 0 && e->list[i][len] == '=') {
                        e->list[i] = arena_printf(e->arena, "%s=%s", name, value);
                        return;
                }
        if (e->n < ENV_MAX)
                e->list[e->n++] = arena_printf(e->arena, "%s=%s", name, value);
}

static const char *home_of_user(struct arena *arena)
{
        struct passwd entry, *user = NULL;
        char text[4096];

        if (getenv("HOME"))
                return getenv("HOME");
        return getpwuid_r(getuid(), &entry, text, sizeof(text), &user) == 0 && user
                       ? arena_strdup(arena, user->pw_dir)
                       : "/";
}

static int set_home(struct op *op, const struct runtime *rt, const struct command_job *j,
                    const json_t *environment, struct env_list *e, struct err *err)
{
        const char *home = json_get_string(environment, "home");
        const char *path;
        int r;

        if (home && streq(home, "user")) {
                set(e, "HOME", home_of_user(op->arena));
                return 0;
        }
        path = arena_printf(op->arena, "%s/kinds-home/%s", rt->data_dir, j->kind->kind.provider);
        r = path_make_dirs(path, 0700, err);
        if (r >= 0)
                set(e, "HOME", path);
        return r;
}

static int make_env(struct op *op, const struct runtime *rt, struct command_job *j, struct err *err)
{
        const json_t *environment = json_object_get(j->kind->descriptor, "environment"), *one;
        struct env_list *e = arena_new(op->arena, struct env_list);
        const char *key, *value;
        size_t i;
        int r;

        e->arena = op->arena;
        set(e, "PATH", getenv("PATH") ? getenv("PATH") : PATH_VALUE);
        set(e, "LANG", "C.UTF-8"); /* the patterns of errors are in one language */
        set(e, "LC_ALL", "C.UTF-8");
        r = set_home(op, rt, j, environment, e, err);
        if (r < 0)
                return r;
        json_array_foreach(json_object_get(environment, "pass"), i, one)
        {
                if ((value = getenv(json_string_value(one))))
                        set(e, json_string_value(one), value);
        }
        json_object_foreach(json_object_get(environment, "set"), key, one)
        {
                value = command_fill_text(op->arena, json_string_value(one), &j->vars);
                if (value)
                        set(e, key, value);
        }
        j->env = e->list;
        return 0;
}

static int make_redactor(struct op *op, struct command_job *j, struct err *err)
{
        json_t *paths = json_keep(op->arena, secret_ref_paths(j->kind->schema)), *path;
        const char **values =
                arena_alloc(op->arena, (json_array_size(paths) + 1) * sizeof(*values));
        bool too_much = false;
        size_t n = 0, i;

        json_array_foreach(paths, i, path)
        {
                const char *v = json_get_string(j->resolved, json_string_value(path));

                if (v)
                        values[n++] = v;
        }
        j->redactor = redactor_new(values, n, &too_much);
        return too_much ? err_set(err, ERR_UNPROCESSABLE, "The secrets are too large.") : 0;
}

static void make_vars(struct op *op, const struct runtime *rt, struct command_job *j)
{
        const json_t *renew = command_of(j->kind->descriptor, COMMAND_RENEW);
        const char *name = j->place_id ? arena_printf(op->arena, "berth-%s", j->place_id) : NULL;

        j->vars = (struct command_vars){
                .options = j->resolved,
                .words = {
                        [WORD_ID] = j->place_id,
                        [WORD_NAME] = name,
                        [WORD_REF] = j->ref ? j->ref : name,
                        [WORD_NODE] = arena_strdup(op->arena, rt->node.id.s),
                        [WORD_COMPANY] = j->company_id,
                        [WORD_ENVIRONMENT] = j->environment_id ? j->environment_id : "unsaved",
                        [WORD_LOST_AFTER] = arena_printf(
                                op->arena, "%lld",
                                (long long)command_ms(renew, "lostAfterSeconds", 0) / 1000),
                },
        };
}

int command_job_begin(struct op *op, struct runtime *rt, struct command_job *j, struct err *err)
{
        CLEAN(json_decrefp) json_t *config = command_config_of(j->config);
        int r = 0;

        if (j->kind->kind.has_secrets_by_schema && j->environment_id)
                r = secret_resolve_config(op, rt, j->company_id, j->environment_id, &j->kind->kind,
                                          config, j->kind->schema, j->context, &j->resolved, err);
        else
                j->resolved = json_incref(config);
        if (r < 0)
                return r;
        make_vars(op, rt, j);
        r = make_redactor(op, j, err);
        return r < 0 ? r : make_env(op, rt, j, err);
}

void command_job_done(struct command_job *j)
{
        redactor_free(j->redactor);
        json_decref(j->resolved);
        j->redactor = NULL;
        j->resolved = NULL;
}

/* Running */

void command_result_done(struct command_result *r)
{
        buf_wipe(&r->out);
}

struct collecting {
        struct buf *out, errors;
};

static void collect(void *ctx, bool is_stderr, const char *data, size_t len)
{
        struct collecting *c = ctx;

        if (is_stderr)
                buf_append(&c->errors, data, MIN(len, SESSION_ERRORS_MAX - c->errors.len));
        else
                buf_append(c->out, data, len);
}

static int code_of(enum command_failure failure)
{
        switch (failure) {
        case FAILURE_GONE:
                return ERR_NOT_FOUND;
        case FAILURE_EXISTS:
                return ERR_CONFLICT;
        case FAILURE_BUSY:
                return ERR_BUSY;
        case FAILURE_UNREACHABLE:
                return ERR_UNREACHABLE;
        case FAILURE_REFUSED:
                return ERR_UNPROCESSABLE;
        case FAILURE_DENIED:
        case FAILURE_OTHER:
                break;
        }
        return ERR_PROVIDER;
}

int command_explain(struct op *op, const struct command_job *j, const char *verb, const char *said,
                    int code, struct command_result *ret, struct err *err)
{
        CLEAN(buf_done) struct buf redacted = BUF_INIT;
        CLEAN(buf_done) struct buf line = BUF_INIT;
        const char *hint;

        if (j->redactor)
                redact_text(j->redactor, said, strlen(said), &redacted);
        else
                buf_puts(&redacted, said);
        ssh_text_clean(buf_str(&redacted), redacted.len, SAID_MAX, &line);
        ret->failure = command_failure_of(op->arena, j->kind->descriptor, said, &hint);
        ret->hint = hint;
        ret->said = arena_strdup(op->arena, line.len ? buf_str(&line) : "it said nothing");
        if (ret->failure != FAILURE_OTHER || !code)
                code = code_of(ret->failure);
        return err_set(err, code, "%s: %s of the place failed: %s%s%s", j->kind->kind.display_name,
                       verb, hint ? hint : "", hint ? ". It said: " : "", ret->said);
}

static int run_session(struct op *op, struct ssh_session *s, const char *input, struct buf *out,
                       const char **ret_errors, struct err *err)
{
        struct collecting c = { .out = out, .errors = { .max = SESSION_ERRORS_MAX } };
        int r = ssh_session_follow(op, s, input ? input : "", input ? strlen(input) : 0, collect,
                                   &c, err);

        *ret_errors = arena_strdup(op->arena, buf_str(&c.errors));
        buf_done(&c.errors);
        if (r >= 0 && buf_failed(out))
                r = err_set(err, ERR_PROVIDER, "it printed more than %zu bytes", OUT_MAX);
        return r;
}

int command_run(struct op *caller, struct runtime *rt, struct command_job *j,
                enum command_verb verb, struct command_result *ret, struct err *err)
{
        const json_t *command = command_of(j->kind->descriptor, verb);
        int64_t limit = command_ms(command, "seconds", SECONDS);
        struct op limited = *caller, *op = &limited;
        struct ssh_session session = SSH_SESSION_INIT;
        const char *input = NULL, *errors = "";
        const char **args;
        int r;

        *ret = (struct command_result){ .status = -1, .out = { .max = OUT_MAX } };
        pool_needs_seat(caller, "a provider's command");
        limited.deadline_ms = MIN(caller->deadline_ms, clock_mono_ms() + limit);
        r = command_fill_args(op->arena, json_object_get(command, "run"), &j->vars, &args, err);
        if (r >= 0)
                r = command_fill_input(op->arena, json_object_get(command, "input"), &j->vars,
                                       &input, err);
        if (r >= 0)
                r = ssh_session_start(rt->settings.trampoline, args, j->env, &session, err);
        if (r < 0)
                return r;
        r = run_session(op, &session, input, &ret->out, &errors, err);
        if (session.ended)
                ret->status = session.status.exit_code;
        ssh_session_done(caller, &session);
        if (r == ERR_TIMEOUT)
                return err_set(err, ERR_TIMEOUT, "%s: %s took more than %lld seconds: %s",
                               j->kind->kind.display_name, command_verbs[verb],
                               (long long)limit / 1000, args[0]);
        if (r < 0)
                return r;
        if (ret->status == 0)
                return 0;
        if (ret->status == 127 && strstr(errors, args[0]))
                return err_set(err, ERR_PROVIDER,
                               "%s: the program \"%s\" cannot be run on this machine: %s. Install "
                               "it, or see that it is in the PATH of the daemon.",
                               j->kind->kind.display_name, args[0], errors);
        return command_explain(op, j, command_verbs[verb], *errors ? errors : buf_str(&ret->out), 0,
                               ret, err);
}
