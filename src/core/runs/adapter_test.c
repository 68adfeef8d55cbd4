/* Decides where an agent's configuration is tested, which checks are made there, and what they say.
 * Without an environment the test uses the company's default one; it never uses this machine
 * instead. */
#include "core/runs/adapter_test.h"

#include "base/clock.h"
#include "codec/shell.h"
#include "core/adapters/adapter_internal.h"
#include "core/environments/env_default.h"
#include "core/leases/lease.h"
#include "core/runs/run_wait.h"

#define TEST_MS         360000 /* all of it: installing, and waiting for an answer */
#define RELEASE_MS      30000
#define HELPER_MS       15000
#define INSTALL_MS      240000
#define HELLO_DEFAULT_S 45
#define HELLO           "Respond with hello."

struct test {
        struct op *op;
        struct runtime *rt;
        const struct adapter_test_request *req;
        const char *environment_id; /* NULL: the company has no default */
        const struct adapter_descriptor *d;
        struct environment env;  /* id NULL: not found */
        const struct kind *kind; /* of env; NULL: it has none here, and takes no lease */
        struct lease_record record;
        struct adapter_target target; /* where the agent would work */
        const char *program;          /* the command's path there, when it is in ~/.local/bin */
        struct adapter_test_result *result;
};

static void add_finding(struct test *t, const char *code, const char *level, const char *message,
                        const char *detail)
{
        struct adapter_test_result *res = t->result;
        struct arena *a = t->op->arena;

        res->findings = arena_more(a, res->findings, res->n, &res->room, sizeof(*res->findings));
        res->findings[res->n++] = (struct adapter_finding){
                .code = arena_strdup(a, code),
                .level = level,
                .message = arena_strdup(a, message),
                .detail = detail && *detail ? arena_strdup(a, detail) : NULL,
        };
        if (streq(level, "error"))
                res->status = "fail";
        else if (streq(level, "warn") && streq(res->status, "pass"))
                res->status = "warn";
}

/* A finding about the adapter. */
static void note(struct test *t, const char *code, const char *level, const char *message,
                 const char *detail)
{
        add_finding(t, arena_printf(t->op->arena, "%s_%s", t->d->key, code), level, message,
                    detail);
}

/* A finding about the environment, whose name is the text's `%s`. */
static void note_environment(struct test *t, const char *code, const char *level, const char *fmt,
                             const char *detail)
{
        const char *hole = strstr(fmt, "%s");

        add_finding(t, code, level,
                    arena_printf(t->op->arena, "%.*s%s%s", (int)(hole - fmt), fmt, t->env.name,
                                 hole + 2),
                    detail);
}

/* -- The checks in the place ------------------------------------------------------------------- */

static const char *first_said(struct arena *arena, const struct run_command_end *end)
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
static void note_secrets(struct test *t)
{
        CLEAN(json_decrefp) json_t *env = NULL;
        CLEAN(buf_done) struct buf names = BUF_INIT;
        struct adapter_input in = { .config = t->req->config };
        const char *name;
        json_t *value;

        env = adapter_env_scope(&in);
        json_object_foreach(env, name, value)
        {
                if (!json_is_string(value))
                        buf_appendf(&names, "%s%s", names.len ? ", " : "", name);
        }
        if (names.len > 0)
                note(t, "env_secrets_skipped", "info",
                     "Variables that are secrets are not given to a test.", buf_str(&names));
}

static int run_script(struct test *t, const char *script, const char *cwd, int64_t limit,
                      struct run_command_end *ret, struct err *err)
{
        struct exec_request req = {
                .command = "sh",
                .args = (const char *[]){ "-c", script, NULL },
                .cwd = cwd,
                .own_env = adapter_keep(t->op->arena, plain_env(t->req->config)),
                .timeout_ms = limit,
        };

        return run_command_wait(t->op, t->rt, &t->record, &req, ret, err);
}

static int check_cwd(struct test *t, bool *ret_good, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(buf_done) struct buf script = BUF_INIT;
        struct arena *a = t->op->arena;
        int r;

        *ret_good = false;
        if (*t->target.cwd != '/') {
                note(t, "cwd_invalid", "error",
                     arena_printf(a,
                                  "Working directory must be an absolute POSIX path on the remote "
                                  "target: \"%s\"",
                                  t->target.cwd),
                     NULL);
                return 0;
        }
        buf_puts(&script, "mkdir -p ");
        shell_quote(&script, t->target.cwd);
        buf_puts(&script, " && cd ");
        shell_quote(&script, t->target.cwd);
        r = run_script(t, buf_str(&script), "/", HELPER_MS, &end, err);
        if (r < 0)
                return r;
        *ret_good = went_well(&end);
        if (*ret_good)
                note(t, "cwd_valid", "info",
                     arena_printf(a, "Working directory is valid: %s", t->target.cwd), NULL);
        else if (end.how.timed_out)
                note(t, "cwd_invalid", "error",
                     arena_printf(a,
                                  "Timed out checking working directory on remote target: \"%s\"",
                                  t->target.cwd),
                     NULL);
        else
                note(t, "cwd_invalid", "error",
                     arena_printf(a, "Could not create working directory \"%s\" on remote target.",
                                  t->target.cwd),
                     first_said(a, &end));
        return 0;
}

static int find_command(struct test *t, const char *command, bool *ret_found, bool *ret_late,
                        struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(buf_done) struct buf script = BUF_INIT;
        int r;

        if (t->kind->is_disposable) /* as for runs: adapter_setup_script() */
                buf_puts(&script, "PATH=\"$HOME/.local/bin:$PATH\"\n");
        buf_puts(&script, "p=$(command -v ");
        shell_quote(&script, command);
        buf_puts(&script, ") || exit 1\ncase $p in \"$HOME\"/.local/bin/*) echo \"$p\" ;; esac\n");
        r = run_script(t, buf_str(&script), t->target.cwd, HELPER_MS, &end, err);
        if (r < 0)
                return r;
        *ret_found = went_well(&end);
        *ret_late = end.how.timed_out;
        t->program =
                *ret_found && end.out.len ? adapter_first_line(t->op->arena, end.how.out) : NULL;
        return 0;
}

static int run_install(struct test *t, const char *script, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        int r = run_script(t, script, t->target.cwd, INSTALL_MS, &end, err);

        if (r < 0)
                return r;
        if (went_well(&end))
                note(t, "install_command_run", "info", "The install command was run.", NULL);
        else
                note(t, "install_command_run", "warn",
                     end.how.timed_out ? "The install command took too long."
                                       : "The install command failed.",
                     first_said(t->op->arena, &end));
        return 0;
}

static int check_command(struct test *t, const char *command, bool *ret_found, struct err *err)
{
        struct arena *a = t->op->arena;
        const char *own = json_get_string(t->d->json, "command");
        const char *script = adapter_install_script(t->d, a);
        bool late = false, installs;
        int r = find_command(t, command, ret_found, &late, err);

        installs = r >= 0 && !*ret_found && !late && script && t->kind->is_disposable && own &&
                   streq(own, command);
        if (installs && t->target.is_offline) {
                note(t, "command_unresolvable", "error",
                     adapter_setup_error(a, command, &t->target), NULL);
                return 0;
        }
        if (installs) {
                r = run_install(t, script, err);
                if (r >= 0)
                        r = find_command(t, command, ret_found, &late, err);
        }
        if (r < 0)
                return r;
        if (*ret_found)
                note(t, "command_resolvable", "info",
                     arena_printf(a, "Command is executable: %s", command), NULL);
        else if (late)
                note(t, "command_unresolvable", "error",
                     arena_printf(a, "Timed out checking command \"%s\" on %s target.", command,
                                  t->kind->label),
                     NULL);
        else
                note(t, "command_unresolvable", "error",
                     arena_printf(a,
                                  "Command \"%s\" is not installed or not on PATH in the %s "
                                  "environment.",
                                  command, t->kind->label),
                     NULL);
        return 0;
}

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

static bool needs_login(const struct test *t, const struct adapter_result *res,
                        const struct run_command_end *end)
{
        const json_t *patterns = json_object_get(json_get_object(t->d->json, "probe"), "auth");

        return (res->error_code && strstr(res->error_code, "auth_required")) ||
               adapter_like_any(patterns, buf_str(&end->out), end->out.len) ||
               adapter_like_any(patterns, buf_str(&end->err), end->err.len);
}

static void judge_hello(struct test *t, const struct adapter_result *res,
                        const struct run_command_end *end)
{
        const json_t *expect = json_object_get(json_get_object(t->d->json, "probe"), "expect");
        const char *label = t->d->label;
        const char *summary = res->summary ? res->summary : buf_str(&end->out);
        struct arena *a = t->op->arena;

        if (end->how.timed_out)
                note(t, "hello_probe_timed_out", "warn",
                     arena_printf(a, "%s did not answer in time.", label), NULL);
        else if (went_well(end) && !res->error_message &&
                 adapter_like_any(expect, summary, strlen(summary)))
                note(t, "hello_probe_passed", "info", arena_printf(a, "%s answered.", label), NULL);
        else if (went_well(end) && !res->error_message)
                note(t, "hello_probe_unexpected_output", "warn",
                     arena_printf(a, "%s ran, but did not say hello.", label),
                     adapter_first_line(a, summary));
        else if (needs_login(t, res, end))
                note(t, "hello_probe_auth_required", "warn",
                     arena_printf(a, "%s is installed, but nobody is logged in.", label),
                     adapter_first_line(a, res->error_message ? res->error_message : ""));
        else
                note(t, "hello_probe_failed", "error", arena_printf(a, "%s failed.", label),
                     adapter_first_line(a, res->error_message ? res->error_message : ""));
}

static int parse_hello(struct test *t, const struct adapter_input *in,
                       const struct adapter_command *c, const struct run_command_end *end,
                       struct err *err)
{
        struct adapter_exit exit = { .code = end->how.has_code ? end->how.code : -1,
                                     .signal = end->how.signal,
                                     .timed_out = end->how.timed_out };
        struct adapter_parser *parser;
        struct adapter_result res;
        int r = adapter_parser_new(t->rt, in, c, &parser, err);

        if (r < 0)
                return r;
        adapter_parser_feed(parser, false, buf_str(&end->out), end->out.len);
        adapter_parser_feed(parser, true, buf_str(&end->err), end->err.len);
        adapter_parser_finish(parser, &exit, t->op->arena, &res);
        judge_hello(t, &res, end);
        adapter_parser_free(parser);
        return 0;
}

static const char *base_name(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

static int say_hello(struct test *t, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(err_done) struct err why = { 0 };
        json_t *config = adapter_keep(t->op->arena, hello_config(t->req->config));
        const json_t *probe = json_get_object(t->d->json, "probe");
        const json_t *seconds = json_object_get(probe, "seconds");
        int64_t limit = 1000 * (seconds ? json_integer_value(seconds) : HELLO_DEFAULT_S);
        const struct agent agent = { .id = "test",
                                     .company_id = t->record.lease.company_id,
                                     .name = "Test" };
        struct adapter_input in = { .type = t->d->type,
                                    .config = config,
                                    .agent = &agent,
                                    .run_id = t->record.lease.id,
                                    .target = t->target };
        struct adapter_command c;
        struct exec_request req;
        const char *fault;
        json_t *env;
        int r = adapter_build(t->op, t->rt, &in, true, &c, &why);

        if (r < 0) {
                note(t, "config_invalid", "error", why.msg, NULL);
                return 0;
        }
        fault = adapter_network_fault(t->op->arena, &in);
        if (fault) {
                note(t, "no_network", "error", fault, NULL);
                return 0;
        }
        if (t->program && streq(base_name(t->program), c.command))
                c.command = t->program;
        env = adapter_keep(t->op->arena, plain_env(t->req->config));
        json_object_update(env, c.env);
        req = (struct exec_request){
                .command = c.command,
                .args = c.args,
                .cwd = c.cwd,
                .own_env = env,
                .stdin_text = c.stdin_text,
                .stdin_len = c.stdin_len,
                .timeout_ms = limit,
                .acp = c.acp,
        };
        r = run_command_wait(t->op, t->rt, &t->record, &req, &end, err);
        return r < 0 ? r : parse_hello(t, &in, &c, &end, err);
}

/* ERR_* when the place could not be asked at all. */
static int check_place(struct test *t, struct err *err)
{
        const char *command =
                adapter_trimmed(t->op->arena, json_object_get(t->req->config, "command"));
        const char *own = json_get_string(t->d->json, "command");
        bool good = false;
        int r = check_cwd(t, &good, err);

        if (!command)
                command = own;
        if (r < 0 || !good)
                return r;
        note_secrets(t);
        if (!command) {
                note(t, "command_missing", "error", adapter_text(t->d, "missing", "No command"),
                     NULL);
                return 0;
        }
        r = check_command(t, command, &good, err);
        if (r < 0 || !good || !json_object_get(t->d->json, "probe"))
                return r;
        if (own && !streq(base_name(command), base_name(own))) {
                note(t, "hello_probe_skipped_custom_command", "info",
                     "The command is not the adapter's own; it was not asked to say hello.", NULL);
                return 0;
        }
        return say_hello(t, err);
}

/* -- The environment and its lease ------------------------------------------------------------- */

/* The test runs a command of the caller's choice: where it is not isolated only the board may. An
 * environment that is gone, or of another company, is reported by the test itself. */
static int choose_environment(struct test *t, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        if (r >= 0)
                r = access_manage_agents(db, t->op->actor, t->req->company_id, err);
        t->environment_id = t->req->environment_id;
        if (r >= 0 && !t->environment_id)
                r = env_default_get(db, t->req->company_id, t->op->arena, &t->environment_id, err);
        if (r < 0 || !t->environment_id)
                return r;
        r = environments_get(db, t->environment_id, t->op->arena, &t->env, err);
        if (r >= 0 && !streq(t->env.company_id, t->req->company_id))
                r = ERR_NOT_FOUND;
        if (r == ERR_NOT_FOUND) {
                t->env = (struct environment){ 0 };
                return 0;
        }
        if (r < 0)
                return r;
        t->kind = kind_of_environment(t->rt, &t->env);
        return kind_is_isolated(t->rt, &t->env) ? 0 : access_board(t->op->actor, err);
}

/* Requests are made from this machine, whatever environment is the default. */
static bool is_request(const struct test *t)
{
        return t->d->is_http &&
               (!t->req->environment_id || (t->env.id && kind_runs_on_host(t->rt, t->env.driver)));
}

/* An existing host elsewhere, which may be out of reach. */
static bool is_host_elsewhere(const struct test *t)
{
        return t->kind && t->kind->has_own_files && t->kind->is_elsewhere;
}

static int acquire_lease(struct test *t)
{
        CLEAN(err_done) struct err why = { 0 };
        struct lease_request req = { .ttl_ms = TEST_MS + RELEASE_MS, .adapter_type = t->req->type };
        int r = lease_acquire(t->op, t->rt, &t->env, &req, &t->record, &why);

        if (r >= 0)
                return 0;
        if (is_host_elsewhere(t))
                note_environment(t, "environment_target_failed", "warn",
                                 "Could not connect to environment \"%s\" to run the test.",
                                 why.msg);
        else
                note_environment(t, "environment_lease_acquire_failed", "error",
                                 "Could not acquire a lease for environment \"%s\".", why.msg);
        return r;
}

/* Reads the lease again, to see what became of it. */
static int realize_there(struct test *t, const char **ret_cwd)
{
        CLEAN(err_done) struct err why = { 0 };
        CLEAN(json_decrefp) json_t *workspace = json_object();
        json_t *answer = NULL;
        int r = lease_realize(t->op, t->rt, t->record.lease.id, workspace, &answer, &why);

        if (r >= 0)
                r = lease_load(t->op, t->rt, t->record.lease.id, &t->record, &why);
        if (r < 0)
                note_environment(t, "environment_workspace_realize_failed", "error",
                                 "Could not realize a workspace inside \"%s\".", why.msg);
        else
                *ret_cwd = arena_strtrim(t->op->arena, json_get_string(answer, "cwd"));
        return r;
}

/* The directory of the agent's configuration, else that of the lease. */
static const char *choose_cwd(struct test *t, const char *realized)
{
        const char *cwd = adapter_trimmed(t->op->arena, json_object_get(t->req->config, "cwd"));
        const char *home = getenv("HOME");
        json_t *metadata = NULL;

        if (cwd && t->kind->has_own_files)
                return cwd;
        if (realized)
                return realized;
        if (t->record.lease.metadata &&
            json_parse(t->record.lease.metadata, strlen(t->record.lease.metadata), &metadata,
                       NULL) >= 0)
                cwd = adapter_trimmed(
                        t->op->arena,
                        json_object_get(adapter_keep(t->op->arena, metadata), "remoteCwd"));
        else
                cwd = NULL;
        if (cwd)
                return cwd;
        return t->kind->runs_on_host && home && *home == '/' ? home : "/tmp";
}

static const char *describe_target(struct test *t)
{
        json_t *config = NULL;

        if (t->kind->runs_on_host)
                return arena_printf(t->op->arena, "%s environment", t->kind->label);
        if (json_parse(t->env.config, strlen(t->env.config), &config, NULL) < 0)
                return "environment";
        adapter_keep(t->op->arena, config);
        if (t->kind->address)
                return arena_printf(t->op->arena, "%s environment %s", t->kind->label,
                                    t->kind->address(t->op->arena, config));
        return arena_printf(t->op->arena, "%s environment (%s)", t->env.driver,
                            t->record.lease.provider ? t->record.lease.provider : t->env.name);
}

static bool may_work_there(const struct test *t)
{
        return t->d->runs && (t->d->is_remote || t->kind->runs_on_host);
}

static void describe_place(struct test *t, const char *cwd)
{
        json_t *config = NULL;

        t->target = (struct adapter_target){
                .kind = t->kind,
                .cwd = cwd,
                .is_root = t->kind->runs_on_host && geteuid() == 0,
        };
        if (!t->kind->is_offline ||
            json_parse(t->env.config, strlen(t->env.config), &config, NULL) < 0)
                return;
        t->target.is_offline =
                t->kind->is_offline(adapter_keep(t->op->arena, config), &t->target.allowed);
}

/* The part of the test that needs the lease. */
static int test_in_lease(struct test *t)
{
        CLEAN(err_done) struct err why = { 0 };
        const char *realized = NULL;
        int r = t->kind->has_own_files ? 0 : realize_there(t, &realized);

        if (r < 0)
                return r;
        if (!may_work_there(t)) {
                add_finding(t, "environment_target_unsupported", "warn",
                            arena_printf(t->op->arena,
                                         "Adapter \"%s\" is not allowed in \"%s\" environments.",
                                         t->d->type, t->env.name),
                            NULL);
                return ERR_UNPROCESSABLE;
        }
        describe_place(t, choose_cwd(t, realized));
        note(t, "environment_target", "info",
             arena_printf(t->op->arena, "Tried in the %s.", describe_target(t)), NULL);
        r = check_place(t, &why);
        if (r < 0)
                note_environment(
                        t, "environment_target_failed", is_host_elsewhere(t) ? "warn" : "error",
                        is_host_elsewhere(t)
                                ? "Could not connect to environment \"%s\" to run the test."
                                : "Could not resolve a sandbox execution target for \"%s\".",
                        why.msg);
        return r;
}

/* The lease is given up even if the caller is gone. */
static void test_with_lease(struct test *t)
{
        struct op shield;
        struct lease_record released;
        int r = acquire_lease(t);

        if (r < 0)
                return;
        r = test_in_lease(t);
        shield = op_shield(t->op, RELEASE_MS);
        (void)lease_release(&shield, t->rt, t->record.lease.id,
                            r < 0 ? LEASE_FAILED : LEASE_RELEASED, &released, NULL);
}

/* A test makes no requests: their effects are unknown. */
static void test_request(struct test *t)
{
        const char *url = adapter_trimmed(t->op->arena, json_object_get(t->req->config, "url"));

        if (!url)
                note(t, "url_missing", "error", adapter_text(t->d, "missing", "missing url"), NULL);
        else
                note(t, "url_configured", "info", "A URL is configured; it was not called.", url);
}

int adapter_test(struct op *op, struct runtime *rt, const struct adapter_test_request *req,
                 struct adapter_test_result *ret, struct err *err)
{
        struct op longer = *op;
        struct test t = {
                .op = &longer, .rt = rt, .req = req, .d = adapter_find(req->type), .result = ret
        };
        int r = choose_environment(&t, err);

        if (r < 0)
                return r;
        if (!t.d)
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", req->type);
        *ret = (struct adapter_test_result){ .type = t.d->type, .status = "pass" };
        longer.deadline_ms = clock_mono_ms() + TEST_MS;
        if (is_request(&t))
                test_request(&t);
        else if (!t.environment_id)
                add_finding(&t, "environment_not_found", "warn",
                            "No environment was named, and the company has no default "
                            "environment. The test did not run.",
                            "Choose one with: berth company update COMPANY --default-environment "
                            "ENV");
        else if (!t.env.id)
                add_finding(&t, "environment_not_found", "warn",
                            "Selected environment was not found. The test did not run.", NULL);
        else if (is_host_elsewhere(&t) && !may_work_there(&t))
                note_environment(&t, "environment_target_unavailable", "warn",
                                 "Could not resolve an execution target for environment \"%s\". "
                                 "The test did not run.",
                                 NULL);
        else
                test_with_lease(&t);
        ret->tested_at = clock_wall_us();
        return 0;
}

/* -- Models ------------------------------------------------------------------------------------ */

int adapter_models(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                   const char *environment_id, const json_t **ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct adapter_descriptor *d = adapter_find(type);
        struct environment env;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_company(db, op->actor, company_id, false, err);
        if (r >= 0 && environment_id) {
                r = environments_get(db, environment_id, op->arena, &env, err);
                if (r >= 0 && !streq(env.company_id, company_id))
                        r = err_set(err, ERR_NOT_FOUND, "Environment not found");
        }
        if (r < 0)
                return r;
        if (!d)
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", type);
        *ret = json_object_get(d->json, "models");
        return 0;
}
