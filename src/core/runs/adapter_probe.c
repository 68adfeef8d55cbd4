/* Decides which checks an adapter test makes in a place, and what they say. */
#include "core/runs/adapter_probe.h"

#include "base/clock.h"
#include "codec/shell.h"
#include "core/runs/run_wait.h"

#define HELPER_MS       15000
#define INSTALL_MS      240000
#define HELLO_DEFAULT_S 45
#define HELLO           "Respond with hello."

void adapter_check(json_t *checks, const char *key, const char *code, const char *level,
                   const char *message, const char *detail)
{
        CLEAN(cleanup_free) char *full = xasprintf("%s%s%s", key ? key : "", key ? "_" : "", code);
        json_t *check =
                json_pack("{s:s, s:s, s:s}", "code", full, "level", level, "message", message);

        if (detail && *detail)
                json_object_set_new(check, "detail", json_string(detail));
        json_array_append_new(checks, check);
}

static void note(struct adapter_probe *p, const char *code, const char *level, const char *message,
                 const char *detail)
{
        adapter_check(p->checks, p->d->key, code, level, message, detail);
}

static const char *said(struct arena *arena, const struct run_command_end *end)
{
        const char *line = adapter_first_line(arena, end->how.err);

        return line && *line ? line : adapter_first_line(arena, end->how.out);
}

static bool went_well(const struct run_command_end *end)
{
        return !end->how.timed_out && end->how.has_code && end->how.code == 0;
}

/* The plain variables of the agent: they may decide where a command is found. Secrets belong to
 * saved agents, and are not given to a test. */
static json_t *plain_env(const json_t *config)
{
        struct adapter_input in = { .config = config };
        json_t *env = adapter_env_scope(&in), *value;
        const char *name;
        void *next;

        json_object_foreach_safe(env, next, name, value)
        {
                if (!json_is_string(value))
                        json_object_del(env, name);
        }
        return env;
}

/* Explains why an agent with a key may appear as not logged in. */
static void note_secrets(struct adapter_probe *p)
{
        CLEAN(json_decrefp) json_t *env = NULL;
        CLEAN(buf_done) struct buf names = BUF_INIT;
        struct adapter_input in = { .config = p->config };
        const char *name;
        json_t *value;

        env = adapter_env_scope(&in);
        json_object_foreach(env, name, value)
        {
                if (!json_is_string(value))
                        buf_appendf(&names, "%s%s", names.len ? ", " : "", name);
        }
        if (names.len > 0)
                note(p, "env_secrets_skipped", "info",
                     "Variables that are secrets are not given to a test.", buf_str(&names));
}

static int run_script(struct adapter_probe *p, const char *script, const char *cwd, int64_t limit,
                      struct run_command_end *ret, struct err *err)
{
        struct exec_request req = {
                .command = "sh",
                .args = (const char *[]){ "-c", script, NULL },
                .cwd = cwd,
                .own_env = adapter_keep(p->op->arena, plain_env(p->config)),
                .timeout_ms = limit,
        };

        return run_command_wait(p->op, p->rt, p->record, &req, ret, err);
}

/* The directory */

static int check_cwd(struct adapter_probe *p, bool *ret_good, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(buf_done) struct buf script = BUF_INIT;
        struct arena *a = p->op->arena;
        int r;

        *ret_good = false;
        if (*p->cwd != '/') {
                note(p, "cwd_invalid", "error",
                     arena_printf(a,
                                  "Working directory must be an absolute POSIX path on the remote "
                                  "target: \"%s\"",
                                  p->cwd),
                     NULL);
                return 0;
        }
        buf_puts(&script, "mkdir -p ");
        shell_quote(&script, p->cwd);
        buf_puts(&script, " && cd ");
        shell_quote(&script, p->cwd);
        r = run_script(p, buf_str(&script), "/", HELPER_MS, &end, err);
        if (r < 0)
                return r;
        *ret_good = went_well(&end);
        if (*ret_good)
                note(p, "cwd_valid", "info",
                     arena_printf(a, "Working directory is valid: %s", p->cwd), NULL);
        else if (end.how.timed_out)
                note(p, "cwd_invalid", "error",
                     arena_printf(a,
                                  "Timed out checking working directory on remote target: \"%s\"",
                                  p->cwd),
                     NULL);
        else
                note(p, "cwd_invalid", "error",
                     arena_printf(a, "Could not create working directory \"%s\" on remote target.",
                                  p->cwd),
                     said(a, &end));
        return 0;
}

/* The command */

static int find_command(struct adapter_probe *p, const char *command, bool *ret_found,
                        bool *ret_late, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(buf_done) struct buf script = BUF_INIT;
        int r;

        buf_puts(&script, "command -v ");
        shell_quote(&script, command);
        r = run_script(p, buf_str(&script), p->cwd, HELPER_MS, &end, err);
        if (r < 0)
                return r;
        *ret_found = went_well(&end);
        *ret_late = end.how.timed_out;
        return 0;
}

static int install(struct adapter_probe *p, const char *script, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        int r = run_script(p, script, p->cwd, INSTALL_MS, &end, err);

        if (r < 0)
                return r;
        if (went_well(&end))
                note(p, "install_command_run", "info", "The install command was run.", NULL);
        else
                note(p, "install_command_run", "warn",
                     end.how.timed_out ? "The install command took too long."
                                       : "The install command failed.",
                     said(p->op->arena, &end));
        return 0;
}

static int check_command(struct adapter_probe *p, const char *command, bool *ret_found,
                         struct err *err)
{
        struct arena *a = p->op->arena;
        const char *own = json_get_string(p->d->json, "command");
        const char *script = adapter_install_script(p->d, a);
        bool late = false;
        int r = find_command(p, command, ret_found, &late, err);

        if (r >= 0 && !*ret_found && !late && script && p->kind->is_disposable && own &&
            streq(own, command)) {
                r = install(p, script, err);
                if (r >= 0)
                        r = find_command(p, command, ret_found, &late, err);
        }
        if (r < 0)
                return r;
        if (*ret_found)
                note(p, "command_resolvable", "info",
                     arena_printf(a, "Command is executable: %s", command), NULL);
        else if (late)
                note(p, "command_unresolvable", "error",
                     arena_printf(a, "Timed out checking command \"%s\" on %s target.", command,
                                  p->kind->label),
                     NULL);
        else
                note(p, "command_unresolvable", "error",
                     arena_printf(a,
                                  "Command \"%s\" is not installed or not on PATH in the %s "
                                  "environment.",
                                  command, p->kind->label),
                     NULL);
        return 0;
}

/* Hello */

/* The agent's configuration with a prompt of ours, and without the members about its work. */
static json_t *hello_config(const json_t *config)
{
        static const char *const without[] = { "bootstrapPromptTemplate", "instructionsFilePath",
                                               "cwd", "timeoutSec" };
        json_t *copy = json_copy((json_t *)config);

        for (size_t i = 0; i < ARRAY_LEN(without); i++)
                json_object_del(copy, without[i]);
        json_object_set_new(copy, "promptTemplate", json_string(HELLO));
        return copy;
}

static bool needs_login(const struct adapter_probe *p, const struct adapter_result *res,
                        const struct run_command_end *end)
{
        const json_t *patterns = json_object_get(json_get_object(p->d->json, "probe"), "auth");

        return (res->error_code && strstr(res->error_code, "auth_required")) ||
               adapter_like_any(patterns, buf_str(&end->out), end->out.len) ||
               adapter_like_any(patterns, buf_str(&end->err), end->err.len);
}

static void judge(struct adapter_probe *p, const struct adapter_result *res,
                  const struct run_command_end *end)
{
        const json_t *expect = json_object_get(json_get_object(p->d->json, "probe"), "expect");
        const char *label = p->d->label;
        const char *summary = res->summary ? res->summary : buf_str(&end->out);
        struct arena *a = p->op->arena;

        if (end->how.timed_out)
                note(p, "hello_probe_timed_out", "warn",
                     arena_printf(a, "%s did not answer in time.", label), NULL);
        else if (went_well(end) && !res->error_message &&
                 adapter_like_any(expect, summary, strlen(summary)))
                note(p, "hello_probe_passed", "info", arena_printf(a, "%s answered.", label), NULL);
        else if (went_well(end) && !res->error_message)
                note(p, "hello_probe_unexpected_output", "warn",
                     arena_printf(a, "%s ran, but did not say hello.", label),
                     adapter_first_line(a, summary));
        else if (needs_login(p, res, end))
                note(p, "hello_probe_auth_required", "warn",
                     arena_printf(a, "%s is installed, but nobody is logged in.", label),
                     adapter_first_line(a, res->error_message ? res->error_message : ""));
        else
                note(p, "hello_probe_failed", "error", arena_printf(a, "%s failed.", label),
                     adapter_first_line(a, res->error_message ? res->error_message : ""));
}

static int parse_hello(struct adapter_probe *p, const struct adapter_input *in,
                       const struct adapter_command *c, const struct run_command_end *end,
                       struct err *err)
{
        struct adapter_exit exit = { .code = end->how.has_code ? end->how.code : -1,
                                     .signal = end->how.signal,
                                     .timed_out = end->how.timed_out };
        struct adapter_parser *parser;
        struct adapter_result res;
        int r = adapter_parser_new(p->rt, in, c, &parser, err);

        if (r < 0)
                return r;
        adapter_parser_feed(parser, false, buf_str(&end->out), end->out.len);
        adapter_parser_feed(parser, true, buf_str(&end->err), end->err.len);
        adapter_parser_finish(parser, &exit, p->op->arena, &res);
        judge(p, &res, end);
        adapter_parser_free(parser);
        return 0;
}

static int say_hello(struct adapter_probe *p, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(err_done) struct err why = { 0 };
        json_t *config = adapter_keep(p->op->arena, hello_config(p->config));
        const json_t *probe = json_get_object(p->d->json, "probe");
        const json_t *seconds = json_object_get(probe, "seconds");
        int64_t limit = 1000 * (seconds ? json_integer_value(seconds) : HELLO_DEFAULT_S);
        const struct agent agent = { .id = "test",
                                     .company_id = p->record->lease.company_id,
                                     .name = "Test" };
        struct adapter_input in = { .type = p->d->type,
                                    .config = config,
                                    .agent = &agent,
                                    .run_id = p->record->lease.id,
                                    .target = { .kind = p->kind,
                                                .cwd = p->cwd,
                                                .is_root =
                                                        p->kind->runs_on_host && geteuid() == 0 } };
        struct adapter_command c;
        struct exec_request req;
        json_t *env;
        int r = adapter_build(p->op, p->rt, &in, true, &c, &why);

        if (r < 0) {
                note(p, "config_invalid", "error", why.msg, NULL);
                return 0;
        }
        env = adapter_keep(p->op->arena, plain_env(p->config));
        json_object_update(env, c.env);
        req = (struct exec_request){
                .command = c.command,
                .args = c.args,
                .cwd = c.cwd,
                .own_env = env,
                .stdin_text = c.stdin_text,
                .stdin_len = c.stdin_len,
                .timeout_ms = limit,
        };
        r = run_command_wait(p->op, p->rt, p->record, &req, &end, err);
        return r < 0 ? r : parse_hello(p, &in, &c, &end, err);
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

static int try_hello(struct adapter_probe *p, const char *command, struct err *err)
{
        const char *own = json_get_string(p->d->json, "command");

        if (!json_object_get(p->d->json, "probe"))
                return 0;
        if (own && !streq(base_name(command), base_name(own))) {
                note(p, "hello_probe_skipped_custom_command", "info",
                     "The command is not the adapter's own; it was not asked to say hello.", NULL);
                return 0;
        }
        return say_hello(p, err);
}

int adapter_probe(struct adapter_probe *p, struct err *err)
{
        const char *command = adapter_trimmed(p->op->arena, json_object_get(p->config, "command"));
        bool good = false;
        int r = check_cwd(p, &good, err);

        if (!command)
                command = json_get_string(p->d->json, "command");
        if (r < 0 || !good)
                return r;
        note_secrets(p);
        if (!command) {
                note(p, "command_missing", "error", adapter_text(p->d, "missing", "No command"),
                     NULL);
                return 0;
        }
        r = check_command(p, command, &good, err);
        return r < 0 || !good ? r : try_hello(p, command, err);
}
