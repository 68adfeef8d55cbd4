/* Starting: what the command line says, the request, and once more when the connection broke. */
#include <ctype.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/clock.h"
#include "base/uuid.h"
#include "cli/duration.h"
#include "cli/remote.h"
#include "cli/terminal.h"

#define RECONNECT_MS (2 * 60 * 1000)
#define START_PAUSE  100

/* Options */

/* K=V, or K alone for the value that it has here. */
static int add_variable(json_t *env, const char *text, struct err *err)
{
        const char *equals = strchr(text, '=');
        CLEAN(cleanup_free)
        char *name = xstrndup(text, equals ? (size_t)(equals - text) : strlen(text));
        const char *value = equals ? equals + 1 : getenv(name);

        if (!*name)
                return err_set(err, ERR_USAGE, "'%s' is not NAME=VALUE", text);
        if (value && json_object_set_new(env, name, json_string(value)) < 0)
                return err_set(err, ERR_USAGE, "the variable %s is not UTF-8 text", name);
        return 0;
}

int remote_options(struct cli *c, const struct args *a, size_t first, const char *variables,
                   struct remote_spec *ret, struct err *err)
{
        const char *timeout = args_value(a, "timeout"), *text;
        bool is_typed = isatty(STDIN_FILENO);
        struct stat st;
        int r = 0;

        *ret = (struct remote_spec){
                .command = a->words[first],
                .args = a->words + first + 1,
                .n_args = a->n_words > first ? a->n_words - first - 1 : 0,
                .cwd = args_value(a, "cwd"),
                .terminal = args_flag(a, "tty"),
                .env = cli_keep(c, json_object()),
        };
        /* /dev/null has nothing to forward, and a command without input reads from its own. */
        ret->forward_stdin = ret->terminal || args_flag(a, "interactive") ||
                             (!is_typed && fstat(STDIN_FILENO, &st) == 0 &&
                              !(S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3)));
        if (timeout)
                r = duration_parse("--timeout", timeout, &ret->timeout_ms, err);
        /* A program on our terminal has to know which kind it is. */
        if (r >= 0 && ret->terminal)
                r = add_variable(ret->env, "TERM", err);
        for (size_t i = 0; r >= 0 && (text = args_item(a, variables, i)); i++)
                r = add_variable(ret->env, text, err);
        return r;
}

int remote_agent(struct cli *c, const struct args *a, struct remote_spec *spec, struct err *err)
{
        const char *given = args_value(a, "agent");
        json_t *agent;

        if (!given)
                return 0;
        int r = cli_find(c, &kind_agent, given, &agent, err);
        if (r >= 0)
                spec->agent_id = cli_text(agent, "id");
        return r;
}

/* Life cycle */

/* poll() promises room for PIPE_BUF bytes in a pipe; a file takes whatever comes. */
static void open_output(struct remote_stream *s, int fd)
{
        struct stat st;
        bool is_file = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);

        *s = (struct remote_stream){ .fd = fd, .piece = is_file ? 256 * 1024 : 4096 };
}

int remote_init(struct remote *m, struct cli *c, const struct remote_spec *spec, struct err *err)
{
        const char *reconnect = cli_env("BERTH_RECONNECT", NULL);
        int r = 0;

        *m = (struct remote){
                .c = c,
                .spec = *spec,
                .events = FLOW_INIT,
                .input = FLOW_INIT,
                .control = FLOW_INIT,
                .input_over = !spec->forward_stdin,
                .exit_code = -1,
                .heard_ms = clock_mono_ms(),
        };
        if (spec->renew_ms)
                m->renew_at_ms = clock_mono_ms() + spec->renew_ms / 3;
        open_output(&m->out[0], spec->all_to_error ? STDERR_FILENO : STDOUT_FILENO);
        open_output(&m->out[1], STDERR_FILENO);
        m->reconnect_ms = RECONNECT_MS;
        if (reconnect)
                r = duration_parse("BERTH_RECONNECT", reconnect, &m->reconnect_ms, err);
        return r < 0 ? r : cli_connect(c, &m->api, err);
}

void remote_done(struct remote *m)
{
        flow_close(&m->events);
        flow_close(&m->input);
        flow_close(&m->control);
        sse_decoder_done(&m->sse);
        buf_done(&m->refusal);
        buf_done(&m->piece);
        for (int i = 0; i < 2; i++) {
                buf_done(&m->out[i].waiting);
                buf_done(&m->out[i].part);
        }
}

/* The request */

static json_t *start_body(const struct remote_spec *s, const char *key, struct err *err)
{
        json_t *body = json_object(), *args = json_array();
        int columns, rows;

        json_object_set_new(body, "command", json_string(s->command));
        for (size_t i = 0; i < s->n_args; i++) {
                if (json_array_append_new(args, json_string(s->args[i])) < 0) {
                        (void)err_set(err, ERR_USAGE, "argument %zu is not UTF-8 text", i + 1);
                        json_decref(args);
                        json_decref(body);
                        return NULL;
                }
        }
        json_object_set_new(body, "args", args);
        json_object_set_new(body, "detach", json_true());
        json_object_set_new(body, "idempotencyKey", json_string(key));
        if (s->cwd)
                json_object_set_new(body, "cwd", json_string(s->cwd));
        if (json_object_size(s->env) > 0)
                json_object_set(body, "env", s->env);
        if (s->agent_id)
                json_object_set_new(body, "agentId", json_string(s->agent_id));
        if (s->timeout_ms)
                json_object_set_new(body, "timeoutMs", json_integer(s->timeout_ms));
        if (s->terminal) {
                terminal_size(&columns, &rows);
                json_object_set_new(body, "tty",
                                    json_pack("{s:i,s:i}", "columns", columns, "rows", rows));
        } else if (s->forward_stdin) {
                json_object_set_new(body, "openStdin", json_true());
        }
        return body;
}

/* The key makes it safe to ask again when it is not known whether the daemon heard us. */
static int post_start(struct remote *m, json_t *body, json_t **ret, struct err *err)
{
        const char *path = cli_printf(m->c, "/api/environment-leases/%s/execute", m->spec.lease_id);
        int64_t until = clock_mono_ms() + m->reconnect_ms;

        for (;;) {
                int r = cli_call(m->c, "POST", path, json_incref(body), ret, err);

                if ((r != ERR_UNCERTAIN && r != ERR_UNREACHABLE) || clock_mono_ms() > until)
                        return r;
                if (m->spec.revive)
                        m->spec.revive(m->c);
                if (usleep(START_PAUSE * 1000) < 0) /* a signal: let the caller look */
                        return r;
                err_clear(err);
        }
}

/* Whether it was refused because its input was to stay open. */
static bool wants_whole_input(int r, const struct err *err)
{
        json_t *details = NULL, *issue;
        bool found = false;
        size_t i;

        if ((r != ERR_INVALID && r != ERR_UNPROCESSABLE) || !err || !err->details ||
            json_parse(err->details, strlen(err->details), &details, NULL) < 0)
                return false;
        json_array_foreach(details, i, issue)
        {
                const char *field =
                        json_string_value(json_array_get(json_object_get(issue, "path"), 0));

                found = found || (field && streq(field, "openStdin"));
        }
        json_decref(details);
        return found;
}

int remote_start(struct remote *m, struct err *err)
{
        struct uuid key = uuid_new();
        json_t *body = start_body(&m->spec, key.s, err), *answer, *input;

        if (!body)
                return ERR_USAGE;
        int r = post_start(m, body, &answer, err);
        if (m->spec.forward_stdin && wants_whole_input(r, err)) {
                /* What a plugin runs gets its input at the start. None of it was read yet. */
                err_clear(err);
                r = remote_input_whole(m, &input, err);
                if (r >= 0) {
                        json_object_del(body, "openStdin");
                        json_object_set_new(body, "stdin", input);
                        r = post_start(m, body, &answer, err);
                }
        }
        json_decref(body);
        if (r < 0)
                return r;
        (void)snprintf(m->id, sizeof(m->id), "%s", cli_text(answer, "execId"));
        m->pid = json_integer_value(json_object_get(answer, "pid"));
        m->started_us = clock_mono_us();
        if (!uuid_is_valid(m->id))
                return err_set(err, ERR_PROVIDER, "the daemon did not say which execution it is");
        return 0;
}

int remote_refusal_status(const struct err *err)
{
        json_t *details = NULL;
        int status = 0;

        if (err->code != ERR_UNPROCESSABLE || !err->details ||
            json_parse(err->details, strlen(err->details), &details, NULL) < 0)
                return 0;
        status = (int)json_integer_value(json_object_get(details, "exitCode"));
        json_decref(details);
        return status;
}
