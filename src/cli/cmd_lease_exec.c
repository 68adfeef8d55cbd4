/* `berth lease exec|executions|output|signal`: commands in a lease. How they are followed is in
 * remote.h. */
#include <signal.h>
#include <stdio.h>

#include "base/uuid.h"
#include "cli/cmd_lease.h"
#include "cli/output.h"
#include "cli/remote.h"
#include "cli/signals.h"

#define SOME_LEASE     "$(berth lease list --json | jq -r '.[0].id')"
#define SOME_EXECUTION "$(berth lease executions " SOME_LEASE " --json | jq -r '.[0].execId')"

/* -- exec ------------------------------------------------------------------------------------- */

/* After remote_follow(): say what a status alone does not, and how to exit. */
static int finish(struct cli *c, struct remote *m)
{
        remote_explain(m);
        if (m->gave_up)
                remote_say_how_to_look(m);
        if (m->signal == SIGINT && m->interrupted && !m->gave_up)
                c->end_by_signal = SIGINT;
        return remote_status(m);
}

static int start_and_follow(struct cli *c, struct remote *m, bool detach, struct err *err)
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
        return r < 0 ? r : finish(c, m);
}

static int run_exec(struct cli *c, const struct args *a, struct err *err)
{
        struct remote_spec spec;
        struct remote m;
        bool detach = args_flag(a, "detach");
        int r = remote_options(c, a, 1, "env", &spec, err);

        if (r >= 0 && detach && (args_flag(a, "tty") || args_flag(a, "interactive")))
                r = err_set(err, ERR_USAGE, "--detach leaves nobody to type: not with -t or -i");
        if (detach)
                spec.forward_stdin = false;
        if (r >= 0)
                r = lease_id(c, a->words[0], &spec.lease_id, err);
        if (r >= 0)
                r = remote_agent(c, a, &spec, err);
        if (r >= 0 && !detach)
                r = signals_catch(err);
        if (r < 0)
                return r;
        r = remote_init(&m, c, &spec, err);
        if (r >= 0)
                r = start_and_follow(c, &m, detach, err);
        remote_done(&m);
        return r;
}

/* -- executions ------------------------------------------------------------------------------- */

static int get_executions(struct cli *c, const char *lease, json_t **ret, struct err *err)
{
        return cli_call_list(
                c, cli_printf(c, "/api/environment-leases/%s/executions?limit=500", lease), ret,
                err);
}

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

static int run_executions(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },        { "STATUS", COLUMN_STATE }, { "EXIT", COLUMN_TEXT },
                { "STDOUT", COLUMN_TEXT },  { "STDERR", COLUMN_TEXT },  { "STARTED", COLUMN_TIME },
                { "COMMAND", COLUMN_TEXT },
        };
        CLEAN(table_done) struct table t;
        json_t *executions, *e;
        const char *lease;
        size_t i;
        int r = lease_id(c, a->words[0], &lease, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r >= 0)
                r = get_executions(c, lease, &executions, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(executions);
                return 0;
        }
        json_array_foreach(executions, i, e)
        {
                json_int_t out = json_integer_value(json_object_get(e, "stdoutBytes"));
                json_int_t errors = json_integer_value(json_object_get(e, "stderrBytes"));

                table_row(&t,
                          (const char *[]){ cli_text(e, "execId"), cli_text(e, "status"),
                                            exit_text(c, e), cli_printf(c, "%lld", (long long)out),
                                            cli_printf(c, "%lld", (long long)errors),
                                            cli_text(e, "startedAt"), command_text(c, e) });
        }
        table_print(&t, "nothing was run in this lease");
        return 0;
}

/* The execution meant by words[1] in the lease meant by words[0]: its whole id. */
static int find_execution(struct cli *c, const struct args *a, const char **ret_lease,
                          const char **ret_id, struct err *err)
{
        json_t *executions, *e, *named = cli_keep(c, json_array());
        size_t i;
        int r = lease_id(c, a->words[0], ret_lease, err);

        if (r < 0)
                return r;
        *ret_id = a->words[1];
        if (uuid_is_valid(*ret_id))
                return 0;
        r = get_executions(c, *ret_lease, &executions, err);
        if (r < 0)
                return r;
        json_array_foreach(executions, i, e)
                json_array_append_new(named, json_pack("{s:s}", "id", cli_text(e, "execId")));
        r = cli_pick("execution", named, a->words[1], NULL, NULL, &e, err);
        if (r >= 0)
                *ret_id = cli_text(e, "id");
        return r;
}

/* -- output ----------------------------------------------------------------------------------- */

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

static int run_output(struct cli *c, const struct args *a, struct err *err)
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

static int run_signal(struct cli *c, const struct args *a, struct err *err)
{
        int number = signals_number(a->words[2]);
        const char *lease, *id;
        json_t *answer;
        int r;

        if (!number)
                return err_set(err, ERR_USAGE, "'%s' is no signal; say TERM, SIGTERM or 15",
                               a->words[2]);
        r = find_execution(c, a, &lease, &id, err);
        if (r < 0)
                return r;
        r = cli_call(c, "POST",
                     cli_printf(c, "/api/environment-leases/%s/executions/%s/signal", lease, id),
                     json_pack("{s:s}", "signal", signals_name(number)), &answer, err);
        if (r >= 0 && c->json)
                out_json(answer);
        return r;
}

/* -- The table -------------------------------------------------------------------------------- */

static const struct cli_option exec_options[] = {
        { "tty", 't', OPTION_FLAG, NULL, "on a terminal" },
        { "interactive", 'i', OPTION_FLAG, NULL, "forward input also when it is typed" },
        { "cwd", 0, OPTION_VALUE, "DIR", "working directory (the workspace, else home)" },
        { "env", 'e', OPTION_LIST, "K=V", "a variable; K alone takes the value it has here" },
        { "agent", 0, OPTION_VALUE, "NAME|ID", "for this agent: with its variables" },
        { "timeout", 0, OPTION_VALUE, "TIME", "end it after this time (30s, 5m, 2h, 1d)" },
        { "detach", 'd', OPTION_FLAG, NULL, "print the execution's id and leave it running" },
        { 0 },
};

const struct cli_command cmd_lease_exec = {
        .name = "exec",
        .synopsis = "LEASE [-t] [-i] [--cwd DIR] [--env K=V]... [--agent AGENT] [--timeout TIME] "
                    "[--detach] -- COMMAND [ARG]...",
        .summary = "Run a command in a lease, with live output",
        .notes = "Exits with the command's status, or 128+N when signal N ended it; 1 instead of 0 "
                 "when output\n"
                 "is missing. Input that is not typed is forwarded. Ctrl-C goes to the command; "
                 "twice kills\n"
                 "it; a third time leaves it.",
        .example = "berth lease exec " SOME_LEASE " -- sh -c 'echo hello; exit 3'",
        .options = exec_options,
        .run = run_exec,
        .min_words = 2,
        .max_words = SIZE_MAX,
        .takes_command = true,
};

const struct cli_command cmd_lease_executions = {
        .name = "executions",
        .synopsis = "LEASE",
        .summary = "List what ran and runs in a lease",
        .example = "berth lease executions " SOME_LEASE,
        .run = run_executions,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_option output_options[] = {
        { "stderr", 0, OPTION_FLAG, NULL, "standard error instead of standard output" },
        { "follow", 'f', OPTION_FLAG, NULL, "wait for more until the command has ended" },
        { "raw", 0, OPTION_FLAG, NULL, "control characters too when it goes to a terminal" },
        { 0 },
};

const struct cli_command cmd_lease_output = {
        .name = "output",
        .synopsis = "LEASE EXECUTION [--stderr] [-f] [--raw]",
        .summary = "Print what a command has written",
        .notes = "On a terminal what would steer it is left out: the command may be somebody "
                 "else's.",
        .example = "berth lease output " SOME_LEASE " " SOME_EXECUTION,
        .options = output_options,
        .run = run_output,
        .min_words = 2,
        .max_words = 2,
};

const struct cli_command cmd_lease_signal = {
        .name = "signal",
        .synopsis = "LEASE EXECUTION SIGNAL",
        .summary = "Send a signal to a command",
        .notes = "KILL ends everything that it started, the others go to its process group.",
        .example = "berth lease signal " SOME_LEASE " " SOME_EXECUTION " TERM",
        .run = run_signal,
        .min_words = 3,
        .max_words = 3,
};
