/* `berth runs`: commands for runs, the work that agents did and are doing. Logs are in
 * cmd_runs_log.c. */
#include "cli/cmd_runs.h"

#include "base/clock.h"

static const char *issue_text(struct cli *c, const json_t *run)
{
        if (!*cli_text(run, "issueIdentifier"))
                return "";
        return cli_printf(c, "%s %s", cli_text(run, "issueIdentifier"),
                          cli_text(run, "issueTitle"));
}

static const char *output_text(struct cli *c UNUSED, const json_t *run)
{
        return json_is_true(json_object_get(run, "incomplete")) ? "incomplete" : "";
}

static const char *environment_text(struct cli *c, const json_t *run)
{
        const char *id = cli_text(run, "environmentId");

        return *id ? cli_named(c, "/api/environments", id) : "";
}

static const struct {
        const char *key, *title;
} steps[] = {
        { "queuedAt", "queued" },     { "startedAt", "claimed" },
        { "leasedAt", "leased" },     { "stagedAt", "workspace there" },
        { "spawnedAt", "started" },   { "firstOutputAt", "first output" },
        { "exitedAt", "exited" },     { "restoredAt", "workspace home" },
        { "finishedAt", "finished" }, { "releasedAt", "released" },
};

static void print_run_usage(const json_t *run)
{
        const json_t *usage = json_object_get(run, "usageJson");

        if (json_is_object(usage))
                out_label_json("Usage", usage);
        if (*cli_text(run, "sessionIdAfter"))
                out_label("Session", COLUMN_ID, cli_text(run, "sessionIdAfter"));
        if (*cli_text(json_object_get(run, "resultJson"), "summary")) {
                out_line("%s", "");
                text_print("", cli_text(json_object_get(run, "resultJson"), "summary"));
        }
}

static void print_run(struct cli *c, const json_t *run)
{
        fields_print(c, run,
                     FIELDS({ "Run", "id", COLUMN_ID }, { "Status", "status", COLUMN_STATE },
                            { "Agent", "agentName" },
                            { "Issue", .text = issue_text, .optional = true },
                            { "Source", "invocationSource", .optional = true },
                            { "Exit code", "exitCode", .optional = true },
                            { "Signal", "signal", .optional = true },
                            { "Error", "error", .optional = true },
                            { "Error code", "errorCode", .optional = true },
                            { "To do", "advice", .optional = true },
                            { "Retry of", "retryOfRunId", COLUMN_ID, .optional = true },
                            { "Waiting", "waiting.reason", .optional = true },
                            { "Next try", "waiting.nextTryAt", COLUMN_TIME, .optional = true },
                            { "Output", .text = output_text, .optional = true },
                            { "Environment", .kind = COLUMN_ID, .text = environment_text,
                              .optional = true },
                            { "Lease", "leaseId", COLUMN_ID, .optional = true },
                            { "Created", "createdAt", COLUMN_TIME, .optional = true },
                            { "Log bytes", "logBytes", .optional = true }));
        print_run_usage(run);

        /* What passed since the step before, and since it was queued. */
        const json_t *timeline = json_object_get(run, "timeline");
        int64_t first = 0, before = 0, at;

        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
                const char *text = json_get_string(timeline, steps[i].key);

                if (!text || !clock_parse_iso(text, &at))
                        continue;
                if (!first) {
                        out_line("%s", "");
                        out_line("%-17s %5s %7s", "Timeline:", "ms", "total");
                        first = before = at;
                }
                out_line("  %-15s %5lld %7lld", steps[i].title,
                         (long long)((at - before) / US_PER_MS),
                         (long long)((at - first) / US_PER_MS));
                before = at;
        }
}

const struct cli_kind kind_run = {
        .what = "run",
        .command = "runs",
        .path = "/api/heartbeat-runs",
        .list = "/api/companies/{company}/heartbeat-runs?limit=200",
        .is_partial = true,
        .print = print_run,
};

/* -- list ------------------------------------------------------------------------------------- */

const struct field runs_columns[] = {
        { "RUN", "id", COLUMN_ID },
        { "STATUS", "status", COLUMN_STATE },
        { "AGENT", "agentName" },
        { "ISSUE", "issueIdentifier" },
        { "CREATED", "createdAt", COLUMN_TIME },
        { "ERROR", "error" },
        { 0 },
};

static const struct cli_action list_all = {
        NULL,
        "GET",
        "/api/companies/{company}/heartbeat-runs",
        .members = MEMBERS({ "limit", "limit", MEMBER_NUMBER, .otherwise = "50" },
                           { "agentId", "agent", MEMBER_ID, .kind = &kind_agent },
                           { "issueId", "issue", MEMBER_ID, .kind = &kind_issue }),
        .columns = runs_columns,
        .none = "no runs",
};

static const struct cli_action list_live = {
        NULL,
        "GET",
        "/api/companies/{company}/live-runs",
        .members = MEMBERS({ "limit", "limit", MEMBER_NUMBER, .otherwise = "50" }),
        .columns = runs_columns,
        .none = "no runs",
};

static int cmd_runs_list(struct cli *c, const struct args *a, struct err *err)
{
        bool live = args_flag(a, "live");

        if (live && (args_value(a, "agent") || args_value(a, "issue")))
                return err_set(err, ERR_USAGE, "--live shows those of all agents and issues");
        return cli_act(c, a, live ? &list_live : &list_all, err);
}

/* -- cancel ----------------------------------------------------------------------------------- */

static int cmd_runs_cancel(struct cli *c, const struct args *a, struct err *err)
{
        json_t *run;
        int r = cli_find(c, &kind_run, a->words[0], &run, err);

        if (r < 0)
                return r;
        const char *before = cli_text(run, "finishedAt");
        r = cli_call(c, "POST", cli_printf(c, "/api/heartbeat-runs/%s/cancel", cli_text(run, "id")),
                     json_object(), &run, err);
        if (r >= 0)
                cli_answer(c, run, *before ? "%s was over: %s" : "%s is %s", cli_text(run, "id"),
                           cli_text(run, "status"));
        return r;
}

/* -- the table -------------------------------------------------------------------------------- */

const struct cli_command runs_commands[] = {
        { "list", "[--agent AGENT] [--issue ISSUE] [--live] [--limit N]", "List runs, newest first",
          "berth runs list --limit 20",
          .options = OPTIONS({ "agent", "AGENT", "only those of this agent" },
                             { "issue", "ISSUE", "only those for this issue" },
                             { "live", NULL, "only those that have not ended" },
                             { "limit", "N", "at most this many (50)", 'n' }),
          .run = cmd_runs_list },
        { "show", "RUN", "Show one run, and how long each part of it took", "berth runs show 4f2a",
          .words = 1, .act = { &kind_run } },
        { "logs", "[-f] [--raw] RUN", "Print what a run said", "berth runs logs -f 4f2a",
          .words = 1,
          .notes = "What the agent wrote to standard error, and what Berth says, goes to standard\n"
                   "error. With -f the exit status is 0 when the run succeeded and 1 when it did "
                   "not;\n"
                   "Ctrl-C ends the looking, not the run. With --json the records are\n"
                   "printed as they are stored.",
          .options = OPTIONS({ "follow", NULL, "until the run is over", 'f' },
                             { "raw", NULL, "the agent's output as it is, not as a transcript" }),
          .run = cmd_runs_logs },
        { "events", "RUN", "List what happened in a run", "berth runs events 4f2a", .words = 1,
          .act = { &kind_run, "GET", "/events?limit=1000",
                   .columns = FIELDS({ "SEQ", "seq" }, { "WHEN", "createdAt", COLUMN_TIME },
                                     { "TYPE", "eventType" }, { "LEVEL", "level", COLUMN_STATE },
                                     { "MESSAGE", "message" }),
                   .none = "no events" } },
        { "cancel", "RUN", "End a run; what it changed is brought home", "berth runs cancel 4f2a",
          .words = 1, .run = cmd_runs_cancel },
        { 0 },
};
