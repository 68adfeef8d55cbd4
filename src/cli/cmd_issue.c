/* `berth issue`: commands for issues, the work there is to do, and their documents. */
#include <fcntl.h>

#include "base/fd.h"
#include "cli/cmd_runs.h"
#include "cli/command.h"

static const char *issue_path(struct cli *c, const char *given, const char *rest)
{
        return cli_printf(c, "/api/issues/%s%s", cli_escape(c, given), rest);
}

static const char *agent_text(struct cli *c, const json_t *issue)
{
        const char *id = cli_text(issue, "assigneeAgentId");

        return *id ? cli_named(c, "/api/agents", id) : "";
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

static void print_issue(struct cli *c, const json_t *issue)
{
        fields_print(c, issue,
                     FIELDS({ "Identifier", "identifier", COLUMN_ID }, { "Id", "id", COLUMN_ID },
                            { "Title", "title" }, { "Status", "status", COLUMN_STATE },
                            { "Priority", "priority" },
                            { "Agent", .kind = COLUMN_ID, .text = agent_text, .optional = true },
                            { "User", "assigneeUserId", .optional = true },
                            { "Run", "checkoutRunId", COLUMN_ID, .optional = true },
                            { "Created", "createdAt", COLUMN_TIME, .optional = true },
                            { "Updated", "updatedAt", COLUMN_TIME, .optional = true }));
        print_related(c, "Beneath", json_object_get(issue, "ancestors"));
        print_related(c, "Blocked by", json_object_get(issue, "blockedBy"));
        print_related(c, "Blocks", json_object_get(issue, "blocks"));
        if (*cli_text(issue, "description"))
                out_line("%s", "");
        text_print("", cli_text(issue, "description"));
}

const struct cli_kind kind_issue = {
        .what = "issue",
        .path = "/api/issues",
        .print = print_issue,
};

/* -- Comments --------------------------------------------------------------------------------- */

static void print_comment(struct cli *c, const json_t *comment)
{
        const char *author = cli_text(comment, "authorAgentId");

        out_line("%s %s", cli_text(comment, "createdAt"),
                 *author ? cli_printf(c, "agent %s", cli_named(c, "/api/agents", author))
                         : cli_printf(c, "user %s", cli_text(comment, "authorUserId")));
        text_print("  ", cli_text(comment, "body"));
}

static void print_comments(struct cli *c, const json_t *list)
{
        json_t *item;
        size_t i;

        json_array_foreach((json_t *)list, i, item) print_comment(c, item);
        if (json_array_size(list) == 0)
                out_line("no comments");
}

/* -- What create and update share ------------------------------------------------------------- */

static int fill_issue(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        const char *given = args_value(a, "environment");
        json_t *found, *blockers = cli_keep(c, json_array());
        int r = cli_fill(c, a,
                         MEMBERS({ "description", "description" }, { "status", "status" },
                                 { "priority", "priority" },
                                 { "assigneeAgentId", "assignee", MEMBER_ID, .kind = &kind_agent },
                                 { "projectId", "project", MEMBER_ID, .kind = &kind_project },
                                 { "parentId", "parent", MEMBER_ID, .kind = &kind_issue }),
                         body, err);

        if (r >= 0 && given)
                r = cli_place(c, given, &found, err);
        if (r >= 0 && given)
                json_object_set_new(body, "executionWorkspaceSettings",
                                    json_pack("{s:s}", "environmentId", cli_text(found, "id")));
        for (size_t i = 0; r >= 0 && (given = args_item(a, "blocked-by", i)); i++) {
                r = cli_find(c, &kind_issue, given, &found, err);
                if (r < 0)
                        return err_wrap(err, r, "%s", given);
                json_array_append(blockers, json_object_get(found, "id"));
        }
        if (r >= 0 && json_array_size(blockers) > 0)
                json_object_set(body, "blockedByIssueIds", blockers);
        return r;
}

/* -- create and update ------------------------------------------------------------------------ */

/* The run that the issue began: it was recorded together with the issue. */
static int follow_issue(struct cli *c, const json_t *issue, struct err *err)
{
        json_t *runs;
        const char *id;
        int r = cli_call(c, "GET", issue_path(c, cli_text(issue, "id"), "/runs"), NULL, &runs, err);

        if (r < 0)
                return r;
        id = cli_text(json_array_get(runs, 0), "id");
        if (!*id)
                return err_set(err, ERR_CONFLICT, "%s woke no agent",
                               cli_text(issue, "identifier"));
        return runs_watch(c, id, err);
}

static int cmd_issue_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object()), *issue;
        const char *path;
        int r;

        if (args_flag(a, "follow") && !args_value(a, "assignee"))
                return err_set(err, ERR_USAGE, "--follow: say who is to do it, --assignee AGENT");
        r = cli_path(c, "/api/companies/{company}/issues", NULL, false, &path, err);
        if (r >= 0)
                r = body_set(body, "title", a->words[0], err);
        if (r >= 0)
                r = fill_issue(c, a, body, err);
        if (r >= 0)
                r = cli_call(c, "POST", path, json_incref(body), &issue, err);
        if (r < 0)
                return r;
        cli_show(c, &kind_issue, issue);
        return args_flag(a, "follow") ? follow_issue(c, issue, err) : 0;
}

static int cmd_issue_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object());
        int r = body_set(body, "title", args_value(a, "title"), err);

        if (r >= 0)
                r = body_set(body, "comment", args_value(a, "comment"), err);
        if (r >= 0 && args_flag(a, "unassign")) {
                json_object_set_new(body, "assigneeAgentId", json_null());
                json_object_set_new(body, "assigneeUserId", json_null());
        }
        if (r >= 0)
                r = fill_issue(c, a, body, err);
        if (r >= 0 && json_object_size(body) == 0)
                return err_set(err, ERR_USAGE,
                               "say what to change; see: berth issue update --help");
        return r < 0 ? r
                     : cli_send(c, "PATCH", issue_path(c, a->words[0], ""), json_incref(body),
                                &kind_issue, err);
}

/* -- checkout and release --------------------------------------------------------------------- */

static int cmd_issue_checkout(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *expected = json_array(), *body;
        const char *given = args_value(a, "agent"), *status;

        for (size_t i = 0; (status = args_item(a, "expected", i)); i++)
                json_array_append_new(expected, json_string(status));
        for (size_t i = 0; i < 3 && !args_item(a, "expected", 0); i++)
                json_array_append_new(
                        expected, json_string((const char *[]){ "todo", "backlog", "blocked" }[i]));
        body = cli_keep(c, json_pack("{s:o}", "expectedStatuses", expected));
        int r = given ? cli_find(c, &kind_agent, given, &agent, err)
                      : cli_call(c, "GET", "/api/agents/me", NULL, &agent, err);
        if (r == ERR_UNAUTHORIZED && !given)
                return err_set(err, ERR_USAGE, "say for whom: --agent AGENT");
        if (r >= 0)
                r = body_set(body, "agentId", cli_text(agent, "id"), err);
        return r < 0 ? r
                     : cli_send(c, "POST", issue_path(c, a->words[0], "/checkout"),
                                json_incref(body), &kind_issue, err);
}

static int cmd_issue_release(struct cli *c, const struct args *a, struct err *err)
{
        json_t *answer;

        if (!args_flag(a, "force"))
                return cli_send(c, "POST", issue_path(c, a->words[0], "/release"), json_object(),
                                &kind_issue, err);
        int r = cli_call(c, "POST", issue_path(c, a->words[0], "/admin/force-release"),
                         json_object(), &answer, err);
        if (r >= 0)
                cli_show(c, &kind_issue, c->json ? answer : json_object_get(answer, "issue"));
        return r < 0 ? r : 0;
}

/* -- documents -------------------------------------------------------------------------------- */

#define DOCUMENT_MAX ((size_t)4 << 20)

static int put_document(struct cli *c, const struct args *a, const char *path, struct err *err)
{
        json_t *body = cli_keep(c, json_pack("{s:s}", "format", "markdown")), *document;
        const char *file = args_value(a, "file");
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int r = file_read_at(AT_FDCWD, streq(file, "-") ? "/dev/stdin" : file, DOCUMENT_MAX, &text,
                             err);

        if (r < 0)
                return r;
        if (json_object_set_new(body, "body", json_stringn(buf_str(&text), text.len)) < 0)
                return err_set(err, ERR_USAGE, "%s is not UTF-8 text", file);
        r = cli_fill(c, a, MEMBERS({ "title", "title" }, { "baseRevisionId", "base" }), body, err);
        if (r >= 0)
                r = cli_call(c, "PUT", path, json_incref(body), &document, err);
        if (r >= 0)
                cli_answer(c, document, "revision %lld, %s",
                           (long long)json_integer_value(
                                   json_object_get(document, "latestRevisionNumber")),
                           cli_text(document, "latestRevisionId"));
        return r;
}

static const struct cli_action list_documents = {
        &kind_issue,
        "GET",
        "/documents",
        .columns = FIELDS({ "KEY", "key" }, { "REVISION", "latestRevisionNumber" },
                          { "UPDATED", "updatedAt", COLUMN_TIME }, { "TITLE", "title" }),
        .none = "no documents",
};

static int cmd_issue_document(struct cli *c, const struct args *a, struct err *err)
{
        json_t *document;

        if (a->n_words < 2)
                return cli_act(c, a, &list_documents, err);
        const char *path = cli_printf(c, "%s/%s", issue_path(c, a->words[0], "/documents"),
                                      cli_escape(c, a->words[1]));
        if (args_value(a, "file"))
                return put_document(c, a, path, err);
        int r = cli_call(c, "GET", path, NULL, &document, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(document);
        else
                text_print("", cli_text(document, "body"));
        return 0;
}

/* -- the table -------------------------------------------------------------------------------- */

#define ENVIRONMENT_NOTE                                                                            \
        "--environment has an effect only while the instance setting enableIsolatedWorkspaces is\n" \
        "on; otherwise the issue is worked on in the environment of the agent."

#define SHARED_OPTIONS                                                                             \
        OPTION("description", "TEXT", "what is to be done"),                                       \
                OPTION("status", "STATUS",                                                         \
                       "backlog, todo, in_progress, in_review, done, blocked or cancelled"),       \
                OPTION("priority", "PRIORITY", "critical, high, medium or low"),                   \
                OPTION("assignee", "AGENT", "the agent that is to do it"),                         \
                OPTION("project", "PROJECT", "the project that it belongs to"),                    \
                OPTION("parent", "ISSUE", "the issue it is a part of"),                            \
                OPTION("blocked-by", "ISSUE", "an issue that has to be done before",               \
                       .is_list = true),                                                           \
                OPTION("environment", "ENV", "where it is worked on")

const struct cli_command issue_commands[] = {
        { "list", "[--status STATUS] [--assignee AGENT] [--project PROJECT] [--match TEXT]",
          "List issues, most urgent first", "berth issue list --status todo,in_progress",
          .options =
                  OPTIONS({ "status", "STATUS", "only these; several with commas between them" },
                          { "assignee", "AGENT", "only those of this agent" },
                          { "project", "PROJECT", "only those of this project" },
                          { "match", "TEXT", "only those with this in identifier, title or text" }),
          .act = { NULL, "GET", "/api/companies/{company}/issues?limit=1000",
                   .members = MEMBERS(
                           { "status", "status" }, { "q", "match" },
                           { "assigneeAgentId", "assignee", MEMBER_ID, .kind = &kind_agent },
                           { "projectId", "project", MEMBER_ID, .kind = &kind_project }),
                   .columns =
                           FIELDS({ "ISSUE", "identifier", COLUMN_ID },
                                  { "STATUS", "status", COLUMN_STATE }, { "PRIORITY", "priority" },
                                  { "UPDATED", "updatedAt", COLUMN_TIME }, { "TITLE", "title" }),
                   .none = "no issues" } },
        { "create", "TITLE [OPTION]...", "Create an issue",
          "berth issue create 'Mend the login' --priority high", .words = 1,
          .notes =
                  "With --follow the exit status is 0 when the run succeeded and 1 when it did not.\n" ENVIRONMENT_NOTE,
          .options = OPTIONS(SHARED_OPTIONS,
                             { "follow", NULL, "print what the agent does until it is done", 'f' }),
          .run = cmd_issue_create },
        { "show", "ISSUE", "Show one issue", "berth issue show ACM-1", .words = 1,
          .act = { &kind_issue } },
        { "update", "ISSUE [OPTION]...", "Change an issue",
          "berth issue update ACM-1 --status done --comment 'works now'", .words = 1,
          .notes = ENVIRONMENT_NOTE,
          .options = OPTIONS({ "title", "TEXT", "a new title" }, SHARED_OPTIONS,
                             { "unassign", NULL, "remove the assignee" },
                             { "comment", "TEXT", "add this comment" }),
          .run = cmd_issue_update },
        { "checkout", "ISSUE [--agent AGENT] [--expected STATUS]...",
          "Check out an issue, so that no other agent works on it",
          "berth issue checkout ACM-1 --agent Ada", .words = 1,
          .notes = "An agent needs the id of its run in BERTH_RUN_ID or PAPERCLIP_RUN_ID. When\n"
                   "another agent has the issue already, this fails; do not try again.",
          .options = OPTIONS(
                  { "agent", "AGENT", "for this agent (default: the one whose key is used)" },
                  { "expected", "STATUS", "only from this status (todo, backlog, blocked)",
                    .is_list = true }),
          .run = cmd_issue_checkout },
        { "release", "ISSUE [--force]", "Release an issue, so that another agent can take it",
          "berth issue release ACM-1", .words = 1,
          .options = OPTIONS({ "force", NULL,
                               "also when another agent has it; ends the lock and nothing else" }),
          .run = cmd_issue_release },
        { "comment", "ISSUE TEXT [--reopen]", "Comment on an issue",
          "berth issue comment ACM-1 'see the log'", .words = 2,
          .options = OPTIONS({ "reopen", NULL, "to do again, when it was done or cancelled" }),
          .act = { &kind_issue, "POST", "/comments",
                   .members = MEMBERS({ "body", .word = 2 }, { "reopen", "reopen", MEMBER_TRUE }),
                   .print = print_comment } },
        { "comments", "ISSUE", "Show the comments of an issue, oldest first",
          "berth issue comments ACM-1", .words = 1,
          .act = { &kind_issue, "GET", "/comments?order=asc", .print = print_comments } },
        { "document", "ISSUE [KEY] [--file FILE [--title TEXT] [--base REVISION]]",
          "List the documents of an issue, print one, or write one",
          "berth issue document ACM-1 plan", .words = 1, .max_words = 2,
          .notes = "A KEY is made of a-z, 0-9, - and _. Older revisions are kept.",
          .options = OPTIONS({ "file", "FILE", "write what is in this file (- is standard input)" },
                             { "title", "TEXT", "with --file: its title" },
                             { "base", "REVISION", "with --file: only if this is the newest" }),
          .run = cmd_issue_document },
        { "runs", "ISSUE", "List the runs for an issue, newest first", "berth issue runs ACM-1",
          .words = 1,
          .act = { &kind_issue, "GET", "/runs", .columns = runs_columns, .none = "no runs" } },
        { 0 },
};
