/* `berth issue`: what there is to do. Changing them is in cmd_issue_write.c, what is said about
 * them in cmd_issue_records.c. */
#include "cli/cmd_issue.h"
#include "cli/cmd_runs.h"

const char *issue_path(struct cli *c, const char *given, const char *rest)
{
        return cli_printf(c, "/api/issues/%s%s", cli_escape(c, given), rest);
}

int issues_path(struct cli *c, const char **ret, struct err *err)
{
        const char *company;
        int r = cli_company(c, false, &company, err);

        if (r >= 0)
                *ret = cli_printf(c, "/api/companies/%s/issues", company);
        return r;
}

static void print_related(struct cli *c, const char *label, const json_t *issues)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        json_t *item;
        size_t i;

        json_array_foreach((json_t *)issues, i, item)
                buf_appendf(&b, "%s%s (%s)", i ? ", " : "", cli_text(item, "identifier"),
                            cli_text(item, "status"));
        if (b.len > 0)
                out_label(label, COLUMN_TEXT, cli_printf(c, "%s", buf_str(&b)));
}

void issue_print(struct cli *c, const json_t *issue)
{
        static const struct field fields[] = {
                { "Identifier", COLUMN_ID, "identifier" }, { "Id", COLUMN_ID, "id" },
                { "Title", COLUMN_TEXT, "title" },         { "Status", COLUMN_STATE, "status" },
                { "Priority", COLUMN_TEXT, "priority" },
        };
        static const struct field more[] = {
                { "User", COLUMN_TEXT, "assigneeUserId" },
                { "Run", COLUMN_ID, "checkoutRunId" },
                { "Created", COLUMN_TIME, "createdAt" },
                { "Updated", COLUMN_TIME, "updatedAt" },
        };

        object_print(c, issue, fields, ARRAY_LEN(fields));
        if (c->json)
                return;
        if (*cli_text(issue, "assigneeAgentId"))
                out_label("Agent", COLUMN_ID,
                          cli_named(c, "/api/agents", cli_text(issue, "assigneeAgentId")));
        object_print_more(c, issue, more, ARRAY_LEN(more));
        print_related(c, "Beneath", json_object_get(issue, "ancestors"));
        print_related(c, "Blocked by", json_object_get(issue, "blockedBy"));
        print_related(c, "Blocks", json_object_get(issue, "blocks"));
        if (*cli_text(issue, "description"))
                out_line("%s", "");
        text_print("", cli_text(issue, "description"));
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *issue;
        int r = cli_call(c, "GET", issue_path(c, a->words[0], ""), NULL, &issue, err);

        if (r >= 0)
                issue_print(c, issue);
        return r < 0 ? r : 0;
}

/* -- list ------------------------------------------------------------------------------------- */

static int add_filters(struct cli *c, const struct args *a, struct buf *b, struct err *err)
{
        const char *status = args_value(a, "status"), *agent = args_value(a, "assignee");
        const char *project = args_value(a, "project"), *match = args_value(a, "match");
        json_t *found;
        int r = 0;

        if (status)
                buf_appendf(b, "&status=%s", cli_escape(c, status));
        if (match)
                buf_appendf(b, "&q=%s", cli_escape(c, match));
        if (agent) {
                r = cli_agent(c, agent, &found, err);
                if (r >= 0)
                        buf_appendf(b, "&assigneeAgentId=%s", cli_text(found, "id"));
        }
        if (r >= 0 && project) {
                r = cli_project(c, project, &found, err);
                if (r >= 0)
                        buf_appendf(b, "&projectId=%s", cli_text(found, "id"));
        }
        return r;
}

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct field columns[] = {
                { "ISSUE", COLUMN_ID, "identifier" },    { "STATUS", COLUMN_STATE, "status" },
                { "PRIORITY", COLUMN_TEXT, "priority" }, { "UPDATED", COLUMN_TIME, "updatedAt" },
                { "TITLE", COLUMN_TEXT, "title" },
        };
        CLEAN(buf_done) struct buf query = BUF_INIT;
        const char *path;
        int r = issues_path(c, &path, err);

        if (r >= 0)
                r = add_filters(c, a, &query, err);
        return r < 0 ? r
                     : list_print(c, cli_printf(c, "%s?limit=1000%s", path, buf_str(&query)),
                                  columns, ARRAY_LEN(columns), "no issues", err);
}

static const struct cli_option list_options[] = {
        { "status", 0, OPTION_VALUE, "STATUS", "only these; several with commas between them" },
        { "assignee", 0, OPTION_VALUE, "AGENT", "only those of this agent" },
        { "project", 0, OPTION_VALUE, "PROJECT", "only those of this project" },
        { "match", 0, OPTION_VALUE, "TEXT", "only those with this in identifier, title or text" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "[--status STATUS] [--assignee AGENT] [--project PROJECT] [--match TEXT]",
        .summary = "List issues, most urgent first",
        .example = "berth issue list --status todo,in_progress",
        .options = list_options,
        .run = run_list,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "ISSUE",
        .summary = "Show one issue",
        .example = "berth issue show ACM-1",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static int run_runs(struct cli *c, const struct args *a, struct err *err)
{
        return runs_print_list(c, issue_path(c, a->words[0], "/runs"), err);
}

static const struct cli_command runs = {
        .name = "runs",
        .synopsis = "ISSUE",
        .summary = "List the runs for an issue, newest first",
        .example = "berth issue runs ACM-1",
        .run = run_runs,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_issue = {
        .name = "issue",
        .synopsis = "",
        .summary = "List, make, change and take issues",
        .notes = "ISSUE is an identifier, as ACM-1, or an id.",
        .example = "berth issue list",
        .sub = (const struct cli_command *const[]){ &list, &cmd_issue_create, &show,
                                                    &cmd_issue_update, &cmd_issue_checkout,
                                                    &cmd_issue_release, &cmd_issue_comment,
                                                    &cmd_issue_comments, &cmd_issue_document, &runs,
                                                    NULL },
};
