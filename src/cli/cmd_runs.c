/* `berth runs`: what agents did, and are doing. Logs are in cmd_runs_log.c. */
#include "cli/cmd_runs.h"

#include "base/clock.h"
#include "base/uuid.h"
#include "cli/listing.h"

#define NEWEST 200

static const char *run_path(struct cli *c, const json_t *run, const char *rest)
{
        return cli_printf(c, "/api/heartbeat-runs/%s%s", cli_text(run, "id"), rest);
}

int cli_run(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        const char *company;
        json_t *list, *found;
        int r;

        if (uuid_is_valid(given))
                return cli_call(c, "GET", cli_printf(c, "/api/heartbeat-runs/%s", given), NULL, ret,
                                err);
        r = cli_company(c, false, &company, err);
        if (r >= 0)
                r = cli_call_list(
                        c,
                        cli_printf(c, "/api/companies/%s/heartbeat-runs?limit=%d", company, NEWEST),
                        &list, err);
        if (r >= 0)
                r = cli_pick("run", list, given, NULL, NULL, &found, err);
        return r < 0 ? r : cli_call(c, "GET", run_path(c, found, ""), NULL, ret, err);
}

/* -- list ------------------------------------------------------------------------------------- */

int runs_print_list(struct cli *c, const char *path, struct err *err)
{
        static const struct field columns[] = {
                { "RUN", COLUMN_ID, "id" },
                { "STATUS", COLUMN_STATE, "status" },
                { "AGENT", COLUMN_TEXT, "agentName" },
                { "ISSUE", COLUMN_TEXT, "issueIdentifier" },
                { "CREATED", COLUMN_TIME, "createdAt" },
                { "ERROR", COLUMN_TEXT, "error" },
        };

        return list_print(c, path, columns, ARRAY_LEN(columns), "no runs", err);
}

/* How many of a list; ERR_USAGE when `given` (may be NULL) is no number. `query` gets
 * "<joint>limit=N". */
static int runs_limit(struct cli *c, const char *given, const char *joint, const char **ret_query,
                      struct err *err)
{
        *ret_query = "";
        if (!given)
                return 0;
        if (*given == '\0' || strspn(given, "0123456789") != strlen(given))
                return err_set(err, ERR_USAGE, "--limit: '%s' is not a number", given);
        *ret_query = cli_printf(c, "%slimit=%s", joint, given);
        return 0;
}

static int add_filters(struct cli *c, const struct args *a, struct buf *b, struct err *err)
{
        const char *agent = args_value(a, "agent"), *issue = args_value(a, "issue"), *limit;
        json_t *found;
        int r = runs_limit(c, args_value(a, "limit"), "?", &limit, err);

        if (r < 0)
                return r;
        buf_puts(b, *limit ? limit : "?limit=50");
        if (agent) {
                r = cli_agent(c, agent, &found, err);
                if (r >= 0)
                        buf_appendf(b, "&agentId=%s", cli_text(found, "id"));
        }
        if (r >= 0 && issue) {
                r = cli_call(c, "GET", cli_printf(c, "/api/issues/%s", cli_escape(c, issue)), NULL,
                             &found, err);
                if (r >= 0)
                        buf_appendf(b, "&issueId=%s", cli_text(found, "id"));
        }
        return r;
}

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(buf_done) struct buf query = BUF_INIT;
        const char *company;
        int r = cli_company(c, false, &company, err);

        if (r >= 0 && args_flag(a, "live") && (args_value(a, "agent") || args_value(a, "issue")))
                return err_set(err, ERR_USAGE, "--live shows those of all agents and issues");
        if (r >= 0)
                r = add_filters(c, a, &query, err);
        return r < 0 ? r
                     : runs_print_list(
                               c,
                               cli_printf(c, "/api/companies/%s/%s%s", company,
                                          args_flag(a, "live") ? "live-runs" : "heartbeat-runs",
                                          buf_str(&query)),
                               err);
}

/* -- show ------------------------------------------------------------------------------------- */

static const struct {
        const char *key, *title;
} steps[] = {
        { "queuedAt", "queued" },     { "startedAt", "claimed" },
        { "leasedAt", "leased" },     { "stagedAt", "workspace there" },
        { "spawnedAt", "started" },   { "firstOutputAt", "first output" },
        { "exitedAt", "exited" },     { "restoredAt", "workspace home" },
        { "finishedAt", "finished" }, { "releasedAt", "released" },
};

/* What passed since the step before, and since it was queued. */
static void print_timeline(const json_t *run)
{
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

static void print_usage(const json_t *run)
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

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        static const struct field fields[] = {
                { "Run", COLUMN_ID, "id" },
                { "Status", COLUMN_STATE, "status" },
                { "Agent", COLUMN_TEXT, "agentName" },
        };
        static const struct field end[] = {
                { "Source", COLUMN_TEXT, "invocationSource" },
                { "Exit code", COLUMN_TEXT, "exitCode" },
                { "Signal", COLUMN_TEXT, "signal" },
                { "Error", COLUMN_TEXT, "error" },
                { "Error code", COLUMN_TEXT, "errorCode" },
                { "Retry of", COLUMN_ID, "retryOfRunId" },
        };
        static const struct field rest[] = {
                { "Lease", COLUMN_ID, "leaseId" },
                { "Created", COLUMN_TIME, "createdAt" },
                { "Log bytes", COLUMN_TEXT, "logBytes" },
        };
        json_t *run;
        int r = cli_run(c, a->words[0], &run, err);

        if (r < 0)
                return r;
        object_print(c, run, fields, ARRAY_LEN(fields));
        if (c->json)
                return 0;
        if (*cli_text(run, "issueIdentifier"))
                out_label("Issue", COLUMN_TEXT,
                          cli_printf(c, "%s %s", cli_text(run, "issueIdentifier"),
                                     cli_text(run, "issueTitle")));
        object_print_more(c, run, end, ARRAY_LEN(end));
        if (json_is_object(json_object_get(run, "waiting"))) {
                out_label("Waiting", COLUMN_TEXT,
                          cli_text(json_object_get(run, "waiting"), "reason"));
                out_label("Next try", COLUMN_TIME,
                          cli_text(json_object_get(run, "waiting"), "nextTryAt"));
        }
        if (json_is_true(json_object_get(run, "incomplete")))
                out_label("Output", COLUMN_TEXT, "incomplete");
        if (*cli_text(run, "environmentId"))
                out_label("Environment", COLUMN_ID,
                          cli_named(c, "/api/environments", cli_text(run, "environmentId")));
        object_print_more(c, run, rest, ARRAY_LEN(rest));
        print_usage(run);
        print_timeline(run);
        return 0;
}

/* -- cancel and events ------------------------------------------------------------------------ */

static int run_cancel(struct cli *c, const struct args *a, struct err *err)
{
        json_t *run;
        const char *before;
        int r = cli_run(c, a->words[0], &run, err);

        if (r < 0)
                return r;
        before = cli_text(run, "finishedAt");
        r = cli_call(c, "POST", run_path(c, run, "/cancel"), json_object(), &run, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(run);
        else if (*before)
                out_line("%s was over: %s", cli_text(run, "id"), cli_text(run, "status"));
        else
                out_line("%s is %s", cli_text(run, "id"), cli_text(run, "status"));
        return 0;
}

static int run_events(struct cli *c, const struct args *a, struct err *err)
{
        static const struct field columns[] = {
                { "SEQ", COLUMN_TEXT, "seq" },         { "WHEN", COLUMN_TIME, "createdAt" },
                { "TYPE", COLUMN_TEXT, "eventType" },  { "LEVEL", COLUMN_STATE, "level" },
                { "MESSAGE", COLUMN_TEXT, "message" },
        };
        json_t *run;
        int r = cli_run(c, a->words[0], &run, err);

        return r < 0 ? r
                     : list_print(c, run_path(c, run, "/events?limit=1000"), columns,
                                  ARRAY_LEN(columns), "no events", err);
}

/* -- tables ----------------------------------------------------------------------------------- */

static const struct cli_option list_options[] = {
        { "agent", 0, OPTION_VALUE, "AGENT", "only those of this agent" },
        { "issue", 0, OPTION_VALUE, "ISSUE", "only those for this issue" },
        { "live", 0, OPTION_FLAG, NULL, "only those that have not ended" },
        { "limit", 'n', OPTION_VALUE, "N", "at most this many (50)" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "[--agent AGENT] [--issue ISSUE] [--live] [--limit N]",
        .summary = "List runs, newest first",
        .example = "berth runs list --limit 20",
        .options = list_options,
        .run = run_list,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "RUN",
        .summary = "Show one run, and how long each part of it took",
        .example = "berth runs show 4f2a",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command cancel = {
        .name = "cancel",
        .synopsis = "RUN",
        .summary = "End a run; what it changed is brought home",
        .example = "berth runs cancel 4f2a",
        .run = run_cancel,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command events = {
        .name = "events",
        .synopsis = "RUN",
        .summary = "List what happened in a run",
        .example = "berth runs events 4f2a",
        .run = run_events,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_runs = {
        .name = "runs",
        .synopsis = "",
        .summary = "Show, follow and end the runs of agents",
        .notes =
                "RUN is an id, or a part of one. `berth agent wake` starts one; `berth run` is for\n"
                "single commands.",
        .example = "berth runs list",
        .sub = (const struct cli_command *const[]){ &list, &show, &cmd_runs_logs, &events, &cancel,
                                                    NULL },
};
