/* `berth lease`: leases, and commands in them. Leases are acquired, renewed and released by the
 * calls of the client library, which know what may be sent twice when a connection breaks. How a
 * command is followed is in remote.h. */
#include <berth/berth.h>
#include <signal.h>
#include <stdio.h>

#include "base/uuid.h"
#include "cli/command.h"
#include "cli/duration.h"
#include "cli/output.h"
#include "cli/remote.h"
#include "cli/signals.h"

static void print_workspace(struct cli *c, const json_t *workspace)
{
        if (!workspace)
                return;
        out_label("Workspace", COLUMN_TEXT,
                  cli_printf(c, "%s (%s%s)", cli_text(workspace, "localPath"),
                             cli_text(workspace, "state"),
                             json_is_true(json_object_get(workspace, "restored")) ? ", restored"
                                                                                  : ""));
        if (*cli_text(workspace, "note"))
                out_label("", COLUMN_TEXT, cli_text(workspace, "note"));
}

/* A lease, or a lease record that holds one. */
static void print_lease(struct cli *c, const json_t *lease_or_record)
{
        const json_t *inner = json_get_object(lease_or_record, "lease");
        const json_t *lease = inner ? inner : lease_or_record;
        const json_t *environment = json_get_object(lease_or_record, "environment");

        out_label("Id", COLUMN_ID, cli_text(lease, "id"));
        out_label("Environment", COLUMN_TEXT,
                  environment ? cli_text(environment, "name") : cli_text(lease, "environmentId"));
        fields_print(c, lease,
                     FIELDS({ "Status", "status", COLUMN_STATE }, { "Policy", "leasePolicy" },
                            { "Provider", "provider" }, { "Provider id", "providerLeaseId" },
                            { "Run", "heartbeatRunId", COLUMN_ID },
                            { "Acquired", "acquiredAt", COLUMN_TIME },
                            { "Expires", "expiresAt", COLUMN_TIME },
                            { "Released", "releasedAt", COLUMN_TIME }));
        print_workspace(c, json_get_object(json_get_object(lease, "metadata"), "stagedWorkspace"));
        fields_print(c, lease,
                     FIELDS({ "Clean-up", "cleanupStatus", COLUMN_STATE, .optional = true },
                            { "Failure", "failureReason", .optional = true }));
}

/* There is no list of all leases, so each environment is asked; only done for a shortened id. */
static int find_lease(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        json_t *all, *environments, *environment;
        size_t i;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/environment-leases/%s", given), NULL,
                                ret, err);
        int r = cli_environments(c, &environments, err);
        if (r < 0)
                return r;
        all = cli_keep(c, json_array());
        json_array_foreach(environments, i, environment)
        {
                const char *path =
                        cli_printf(c, "/api/environments/%s/leases", cli_text(environment, "id"));
                json_t *leases;

                r = cli_call_list(c, path, &leases, err);
                if (r < 0)
                        return r;
                json_array_extend(all, leases);
        }
        return cli_pick(&kind_lease, all, given, ret, err);
}

const struct cli_kind kind_lease = {
        .what = "lease",
        .command = "lease",
        .path = "/api/environment-leases",
        .print = print_lease,
        .find = find_lease,
};

/* What a driver answers is shown as it is: each decides that for itself. */
static void print_driver_answer(struct cli *c, const json_t *answer)
{
        if (json_get_object(answer, "lease"))
                print_lease(c, answer);
        else
                out_json(answer);
}

/* -- list ------------------------------------------------------------------------------------- */

static int collect_leases(struct cli *c, const struct args *a, const json_t *environment,
                          json_t *all, json_t *rows, struct err *err)
{
        const char *wanted = args_value(a, "status");
        json_t *leases, *lease;
        size_t i;
        int r = cli_call_list(
                c, cli_printf(c, "/api/environments/%s/leases", cli_text(environment, "id")),
                &leases, err);
        if (r < 0)
                return r;
        json_array_foreach(leases, i, lease)
        {
                const char *status = cli_text(lease, "status");
                const char *cleanup = cli_text(lease, "cleanupStatus");

                /* Without --status and --all: leases that are still there, or ended without
                 * having been cleaned up. */
                if (wanted ? !streq(status, wanted)
                           : !args_flag(a, "all") && !streq(status, "active") &&
                                     !streq(status, "retained") && !streq(cleanup, "failed") &&
                                     !streq(cleanup, "pending"))
                        continue;
                json_array_append(all, lease);
                json_array_append_new(
                        rows, json_pack("{s:O, s:O}", "lease", lease, "environment", environment));
        }
        return 0;
}

static int cmd_lease_list(struct cli *c, const struct args *a, struct err *err)
{
        json_t *all = cli_keep(c, json_array()), *rows = cli_keep(c, json_array());
        json_t *environments, *environment;
        int r;

        if (a->n_words > 0) {
                r = cli_find(c, &kind_environment, a->words[0], &environment, err);
                if (r >= 0)
                        r = collect_leases(c, a, environment, all, rows, err);
        } else {
                r = cli_environments(c, &environments, err);
                for (size_t i = 0; r >= 0 && i < json_array_size(environments); i++)
                        r = collect_leases(c, a, json_array_get(environments, i), all, rows, err);
        }
        if (r < 0)
                return r;
        if (c->json)
                out_json(all);
        else
                list_print(c, rows,
                           FIELDS({ "ID", "lease.id", COLUMN_ID },
                                  { "ENVIRONMENT", "environment.name" },
                                  { "STATUS", "lease.status", COLUMN_STATE },
                                  { "CLEAN-UP", "lease.cleanupStatus", COLUMN_STATE },
                                  { "PROVIDER", "lease.provider" },
                                  { "RUN", "lease.heartbeatRunId", COLUMN_ID },
                                  { "ACQUIRED", "lease.acquiredAt", COLUMN_TIME },
                                  { "EXPIRES", "lease.expiresAt", COLUMN_TIME }),
                           args_flag(a, "all") || args_value(a, "status")
                                   ? "no leases"
                                   : "no leases in use (--all shows those that ended)");
        return 0;
}

/* -- executions ------------------------------------------------------------------------------- */

/* "0", "SIGKILL", "0 (timed out)"; "" while it runs. */
static const char *exit_text(struct cli *c, const json_t *e)
{
        const json_t *code = json_object_get(e, "exitCode");
        const char *how = cli_text(e, "signal");
        const char *late = json_is_true(json_object_get(e, "timedOut")) ? " (timed out)" : "";

        if (json_is_integer(code))
                how = cli_printf(c, "%d", (int)json_integer_value(code));
        return cli_printf(c, "%s%s", how, late);
}

static const char *command_text(struct cli *c, const json_t *e)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *arg;
        size_t i;

        buf_puts(&b, cli_text(e, "command"));
        json_array_foreach(json_object_get(e, "args"), i, arg)
                buf_appendf(&b, " %s", json_string_value(arg) ? json_string_value(arg) : "");
        return cli_printf(c, "%s", buf_str(&b));
}

/* -- acquire, renew and release --------------------------------------------------------------- */

static int show_lease_record(struct cli *c, struct berth_lease *lease, struct err *err)
{
        json_t *record;
        int r = json_parse(lease->json, strlen(lease->json), &record, err);

        if (r < 0)
                return r;
        cli_show(c, &kind_lease, cli_keep(c, record));
        return 0;
}

static int cmd_lease_acquire(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(berth_lease_done) struct berth_lease lease = { 0 };
        struct berth_acquire_options o = {
                .run_id = args_value(a, "run"),
                .idempotency_key = args_value(a, "key"),
        };
        struct berth_error error;
        const char *company;
        json_t *environment;
        struct berth *api;
        int r = 0;

        if (o.run_id && !uuid_is_valid(o.run_id))
                return err_set(err, ERR_USAGE, "--run: '%s' is not a UUID", o.run_id);
        if (args_value(a, "ttl"))
                r = duration_parse("--ttl", args_value(a, "ttl"), &o.ttl_ms, err);
        if (r >= 0 && !uuid_is_valid(a->words[0])) /* Local comes with the first company */
                r = cli_company(c, true, &company, err);
        if (r >= 0)
                r = cli_place(c, a->words[0], &environment, err);
        if (r >= 0)
                r = cli_connect(c, &api, err);
        if (r < 0)
                return r;
        if (berth_acquire(api, cli_text(environment, "id"), &o, &lease, &error) < 0)
                return cli_api_error(&error, err);
        return show_lease_record(c, &lease, err);
}

static const struct field fork_columns[] = {
        { "ID", "lease.id", COLUMN_ID },
        { "ENVIRONMENT", "environment.name" },
        { "STATUS", "lease.status", COLUMN_STATE },
        { "FILES", "lease.metadata.fork.filesBy" },
        { "EXPIRES", "lease.expiresAt", COLUMN_TIME },
        { 0 },
};

/* Of a living lease, or, with --snapshot, of one in an environment. */
int cmd_fork(struct cli *c, const struct args *a, struct err *err)
{
        static const struct cli_member members[] = {
                { "count", "count", MEMBER_NUMBER },
                { "idempotencyKey", "key" },
                { 0 },
        };
        const char *snapshot = args_value(a, "snapshot"), *path, *company, *id;
        json_t *body = cli_keep(c, json_object()), *answer;
        int64_t ttl_ms = 0;
        int r = cli_fill(c, a, members, body, err);

        if (r >= 0 && args_value(a, "ttl"))
                r = duration_parse("--ttl", args_value(a, "ttl"), &ttl_ms, err);
        if (r >= 0)
                r = cli_find_id(c, snapshot ? &kind_environment : &kind_lease, a->words[0], &id,
                                err);
        if (r >= 0 && snapshot)
                r = cli_company(c, false, &company, err);
        if (r < 0)
                return r;
        if (args_value(a, "count")) /* digits, as cli_fill() has found */
                json_object_set_new(body, "count",
                                    json_integer(strtoll(args_value(a, "count"), NULL, 10)));
        if (ttl_ms)
                json_object_set_new(body, "ttlMs", json_integer(ttl_ms));
        path = cli_printf(c, "/api/environment-leases/%s/fork", id);
        if (snapshot) {
                json_object_set_new(body, "environmentId", json_string(id));
                path = cli_printf(c, "/api/companies/%s/environment-snapshots/%s/fork", company,
                                  snapshot);
        }
        r = cli_call(c, "POST", path, json_incref(body), &answer, err);
        if (r >= 0 && c->json)
                out_json(answer);
        else if (r >= 0)
                list_print(c, answer, fork_columns, "no forks");
        return r;
}

static int cmd_lease_renew(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(berth_lease_done) struct berth_lease lease = { 0 };
        const char *ttl = args_value(a, "ttl");
        struct berth_error error;
        struct berth *api;
        const char *id;
        int64_t ttl_ms;

        if (!ttl)
                return err_set(err, ERR_USAGE, "say for how long: --ttl 30m");
        int r = duration_parse("--ttl", ttl, &ttl_ms, err);
        if (r >= 0)
                r = cli_find_id(c, &kind_lease, a->words[0], &id, err);
        if (r >= 0)
                r = cli_connect(c, &api, err);
        if (r < 0)
                return r;
        if (berth_renew(api, id, ttl_ms, &lease, &error) < 0)
                return cli_api_error(&error, err);
        return show_lease_record(c, &lease, err);
}

static int cmd_lease_release(struct cli *c, const struct args *a, struct err *err)
{
        static const char *const statuses[] = { "released", "expired", "failed", NULL };
        CLEAN(berth_lease_done) struct berth_lease lease = { 0 };
        const char *status = args_value(a, "status");
        struct berth_error error;
        struct berth *api;
        const char *id;
        int r = 0;

        if (status)
                r = cli_one_of("--status", status, statuses, err);
        if (r >= 0)
                r = cli_find_id(c, &kind_lease, a->words[0], &id, err);
        if (r >= 0)
                r = cli_connect(c, &api, err);
        if (r < 0)
                return r;
        if (berth_release(api, id, status, &lease, &error) < 0)
                return cli_api_error(&error, err);
        return show_lease_record(c, &lease, err);
}

/* -- exec ------------------------------------------------------------------------------------- */

static int exec_and_follow(struct cli *c, struct remote *m, bool detach, struct err *err)
{
        int r = remote_start(m, err), status = r < 0 ? remote_refusal_status(err) : 0;

        if (status) {
                out_error(err->msg);
                return status;
        }
        if (r < 0)
                return r;
        if (detach) {
                puts(m->id);
                return 0;
        }
        r = remote_follow(m, err);
        if (r < 0 && !m->has_end)
                remote_say_how_to_look(m);
        if (r < 0)
                return r;
        remote_explain(m);
        if (m->gave_up)
                remote_say_how_to_look(m);
        if (m->signal == SIGINT && m->interrupted && !m->gave_up)
                c->end_by_signal = SIGINT;
        return remote_status(m);
}

static int cmd_lease_exec(struct cli *c, const struct args *a, struct err *err)
{
        struct remote_spec spec;
        struct remote m;
        bool detach = args_flag(a, "detach");
        int r = remote_options(c, a, 1, "env", &spec, err);

        if (r >= 0 && detach && (args_flag(a, "tty") || args_flag(a, "interactive")))
                r = err_set(err, ERR_USAGE,
                            "--detach does not go with -t or -i: there is no input to forward");
        if (detach)
                spec.forward_stdin = false;
        if (r >= 0)
                r = cli_find_id(c, &kind_lease, a->words[0], &spec.lease_id, err);
        if (r >= 0)
                r = remote_agent(c, a, &spec, err);
        if (r >= 0 && !detach)
                r = signals_catch(err);
        if (r < 0)
                return r;
        r = remote_init(&m, c, &spec, err);
        if (r >= 0)
                r = exec_and_follow(c, &m, detach, err);
        remote_done(&m);
        return r;
}

/* -- output ----------------------------------------------------------------------------------- */

/* The execution meant by words[1] in the lease meant by words[0]: its whole id. */
static int find_execution(struct cli *c, const struct args *a, const char **ret_lease,
                          const char **ret_id, struct err *err)
{
        json_t *executions, *e, *named = cli_keep(c, json_array());
        size_t i;
        int r = cli_find_id(c, &kind_lease, a->words[0], ret_lease, err);

        if (r < 0)
                return r;
        *ret_id = a->words[1];
        if (uuid_is_valid(*ret_id))
                return 0;
        r = cli_call_list(
                c, cli_printf(c, "/api/environment-leases/%s/executions?limit=500", *ret_lease),
                &executions, err);
        if (r < 0)
                return r;
        json_array_foreach(executions, i, e)
                json_array_append_new(named, json_pack("{s:s}", "id", cli_text(e, "execId")));
        r = cli_pick(&(const struct cli_kind){ .what = "execution" }, named, a->words[1], &e, err);
        if (r >= 0)
                *ret_id = cli_text(e, "id");
        return r;
}

/* Without -f: up to what there is now. */
static int set_limit(struct cli *c, struct remote *m, int stream, bool follow, struct err *err)
{
        json_t *e;
        int r = cli_call(
                c, "GET",
                cli_printf(c, "/api/environment-leases/%s/executions/%s", m->spec.lease_id, m->id),
                NULL, &e, err);

        if (r < 0)
                return r;
        m->stop_at = UINT64_MAX;
        if (!follow)
                m->stop_at = (uint64_t)json_integer_value(
                        json_object_get(e, stream == 0 ? "stdoutBytes" : "stderrBytes"));
        return 0;
}

static int cmd_lease_output(struct cli *c, const struct args *a, struct err *err)
{
        struct remote_spec spec = { .watch_only = true };
        int stream = args_flag(a, "stderr") ? 1 : 0;
        const char *id;
        struct remote m;
        int r = find_execution(c, a, &spec.lease_id, &id, err);

        if (r < 0)
                return r;
        r = remote_init(&m, c, &spec, err);
        if (r >= 0) {
                (void)snprintf(m.id, sizeof(m.id), "%s", id);
                /* To standard output, whichever it is; the other one is not even asked for. */
                m.out[stream].fd = STDOUT_FILENO;
                m.out[stream].plain = out_is_terminal() && !args_flag(a, "raw");
                m.out[1 - stream].fd = -1;
                m.out[1 - stream].at = INT64_MAX;
                m.watched = stream;
                r = set_limit(c, &m, stream, args_flag(a, "follow"), err);
        }
        if (r >= 0)
                r = remote_follow(&m, err);
        if (r >= 0 && m.write_failed)
                r = 1;
        remote_done(&m);
        return r;
}

/* -- signal ----------------------------------------------------------------------------------- */

static int cmd_lease_signal(struct cli *c, const struct args *a, struct err *err)
{
        int number = signals_number(a->words[2]);
        const char *lease, *id;
        json_t *answer;

        if (!number)
                return err_set(err, ERR_USAGE, "'%s' is no signal; say TERM, SIGTERM or 15",
                               a->words[2]);
        int r = find_execution(c, a, &lease, &id, err);
        if (r < 0)
                return r;
        r = cli_call(c, "POST",
                     cli_printf(c, "/api/environment-leases/%s/executions/%s/signal", lease, id),
                     json_pack("{s:s}", "signal", signals_name(number)), &answer, err);
        if (r >= 0 && c->json)
                out_json(answer);
        return r;
}

/* -- the table -------------------------------------------------------------------------------- */

#define SOME_LEASE     "$(berth lease list --json | jq -r '.[0].id')"
#define SOME_EXECUTION "$(berth lease executions " SOME_LEASE " --json | jq -r '.[0].execId')"

const struct cli_command lease_commands[] = {
        { "list", "[ENV] [--status STATUS] [--all]", "List leases", "berth lease list --all",
          .max_words = 1, .notes = "Shows what is in use, retained, or still to be cleaned up.",
          .options =
                  OPTIONS({ "status", "STATUS", "active, released, expired, failed or retained" },
                          { "all", NULL, "also those that ended", 'a' }),
          .run = cmd_lease_list },
        { "show", "LEASE", "Show one lease", "berth lease show " SOME_LEASE, .words = 1,
          .act = { &kind_lease } },
        { "acquire", "ENV [--ttl TIME] [--run UUID] [--key TEXT]",
          "Acquire a lease on an environment", "berth lease acquire Local --ttl 30m", .words = 1,
          .options = OPTIONS(
                  { "ttl", "TIME", "end it by itself after this time (30s, 5m, 2h, 1d)" },
                  { "run", "UUID", "the run that holds it" },
                  { "key", "TEXT", "idempotency key: the same again gives the same lease" }),
          .run = cmd_lease_acquire },
        { "renew", "LEASE --ttl TIME", "Extend a lease",
          "berth lease renew " SOME_LEASE " --ttl 30m", .words = 1,
          .options = OPTIONS({ "ttl", "TIME", "from now on (30s, 5m, 2h, 1d)" }),
          .run = cmd_lease_renew },
        { "release", "LEASE [--status STATUS]", "Release a lease",
          "berth lease release " SOME_LEASE, .words = 1,
          .notes = "A lease that has ended already stays as it is.",
          .options = OPTIONS({ "status", "STATUS", "released (default), expired or failed" }),
          .run = cmd_lease_release },
        { "pause", "LEASE", "Pause all processes in a sandbox", "berth lease pause " SOME_LEASE,
          .words = 1,
          .notes = "The time of the lease goes on. `berth lease resume` continues the sandbox.",
          .act = { &kind_lease, "POST", "/pause", .print = print_driver_answer } },
        { "resume", "LEASE", "Ask the driver to resume a lease", "berth lease resume " SOME_LEASE,
          .words = 1, .act = { &kind_lease, "POST", "/resume", .print = print_driver_answer } },
        { "destroy", "LEASE", "End a lease and its place, kept work included",
          "berth lease destroy " SOME_LEASE, .words = 1,
          .act = { &kind_lease, "POST", "/destroy" } },
        { "snapshot", "LEASE NAME", "Keep what a sandbox wrote, for others to start from",
          "berth lease snapshot " SOME_LEASE " tools", .words = 2,
          .notes = "Needs storage=disk. /workspace and /tmp are not part of it.",
          .act = { &kind_lease, "POST", "/snapshot", .members = MEMBERS({ "name", .word = 2 }),
                   .answer = &kind_snapshot } },
        { "exec",
          "LEASE [-t] [-i] [--cwd DIR] [--env K=V]... [--agent AGENT] [--timeout TIME] "
          "[--detach] -- COMMAND [ARG]...",
          "Run a command in a lease, with live output",
          "berth lease exec " SOME_LEASE " -- sh -c 'echo hello; exit 3'", .words = 2,
          .max_words = SIZE_MAX, .takes_command = true,
          .notes =
                  "Exits with the command's status, or 128+N when signal N ended it; 1 instead of 0 "
                  "when output\n"
                  "is missing. Input that is not typed is forwarded. Ctrl-C goes to the command; "
                  "twice kills\n"
                  "it; a third time leaves it.",
          .options = OPTIONS(
                  { "tty", NULL, "on a terminal", 't' },
                  { "interactive", NULL, "forward input also when it is typed", 'i' },
                  { "cwd", "DIR", "working directory (the workspace, else home)" },
                  { "env", "K=V", "a variable; K alone takes the value it has here", 'e', true },
                  { "agent", "NAME|ID", "for this agent: with its variables" },
                  { "timeout", "TIME", "end it after this time (30s, 5m, 2h, 1d)" },
                  { "detach", NULL, "print the execution's id and leave it running", 'd' }),
          .run = cmd_lease_exec },
        { "executions", "LEASE", "List what ran and runs in a lease",
          "berth lease executions " SOME_LEASE, .words = 1,
          .act = { &kind_lease, "GET", "/executions?limit=500",
                   .columns = FIELDS(
                           { "ID", "execId", COLUMN_ID }, { "STATUS", "status", COLUMN_STATE },
                           { "EXIT", .text = exit_text }, { "STDOUT", "stdoutBytes" },
                           { "STDERR", "stderrBytes" }, { "STARTED", "startedAt", COLUMN_TIME },
                           { "COMMAND", .text = command_text }),
                   .none = "nothing was run in this lease" } },
        { "output", "LEASE EXECUTION [--stderr] [-f] [--raw]", "Print what a command has written",
          "berth lease output " SOME_LEASE " " SOME_EXECUTION, .words = 2,
          .notes = "On a terminal, control characters are left out of the output.",
          .options = OPTIONS({ "stderr", NULL, "standard error instead of standard output" },
                             { "follow", NULL, "wait for more until the command has ended", 'f' },
                             { "raw", NULL, "control characters too when it goes to a terminal" }),
          .run = cmd_lease_output },
        { "signal", "LEASE EXECUTION SIGNAL", "Send a signal to a command",
          "berth lease signal " SOME_LEASE " " SOME_EXECUTION " TERM", .words = 3,
          .notes = "KILL ends everything that it started, the others go to its process group.",
          .run = cmd_lease_signal },
        { 0 },
};
