/* `berth issue create|update|checkout|release`. */
#include "cli/cmd_issue.h"

/* -- What create and update share ------------------------------------------------------------- */

/* The id that a reference stands for. */
static int issue_id(struct cli *c, const char *given, const char **ret, struct err *err)
{
        json_t *issue;
        int r = cli_call(c, "GET", issue_path(c, given, ""), NULL, &issue, err);

        if (r < 0)
                return err_wrap(err, r, "%s", given);
        *ret = cli_text(issue, "id");
        return 0;
}

static int set_agent(struct cli *c, const char *given, json_t *body, struct err *err)
{
        json_t *agent;
        int r = given ? cli_agent(c, given, &agent, err) : 0;

        return r < 0 || !given ? r : body_set(body, "assigneeAgentId", cli_text(agent, "id"), err);
}

static int set_project(struct cli *c, const char *given, json_t *body, struct err *err)
{
        json_t *project;
        int r = given ? cli_project(c, given, &project, err) : 0;

        return r < 0 || !given ? r : body_set(body, "projectId", cli_text(project, "id"), err);
}

static int set_environment(struct cli *c, const char *given, json_t *body, struct err *err)
{
        json_t *environment;
        int r = given ? cli_place(c, given, &environment, err) : 0;

        if (r >= 0 && given)
                json_object_set_new(
                        body, "executionWorkspaceSettings",
                        json_pack("{s:s}", "environmentId", cli_text(environment, "id")));
        return r;
}

static int set_issues(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        const char *given = args_value(a, "parent"), *id;
        json_t *blockers = cli_keep(c, json_array());
        int r = given ? issue_id(c, given, &id, err) : 0;

        if (r >= 0 && given)
                r = body_set(body, "parentId", id, err);
        for (size_t i = 0; r >= 0 && (given = args_item(a, "blocked-by", i)); i++) {
                r = issue_id(c, given, &id, err);
                if (r >= 0)
                        json_array_append_new(blockers, json_string(id));
        }
        if (r >= 0 && json_array_size(blockers) > 0)
                json_object_set(body, "blockedByIssueIds", blockers);
        return r;
}

static int fill(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        static const char *const texts[] = { "description", "status", "priority" };
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(texts); i++)
                r = body_set(body, texts[i], args_value(a, texts[i]), err);
        if (r >= 0)
                r = set_agent(c, args_value(a, "assignee"), body, err);
        if (r >= 0)
                r = set_project(c, args_value(a, "project"), body, err);
        if (r >= 0)
                r = set_environment(c, args_value(a, "environment"), body, err);
        return r < 0 ? r : set_issues(c, a, body, err);
}

/* Send it, and print the issue that comes back. */
static int send(struct cli *c, const char *method, const char *path, json_t *take_body,
                struct err *err)
{
        json_t *issue;
        int r = cli_call(c, method, path, take_body, &issue, err);

        if (r >= 0)
                issue_print(c, issue);
        return r < 0 ? r : 0;
}

/* -- create and update ------------------------------------------------------------------------ */

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object());
        const char *path;
        int r = issues_path(c, &path, err);

        if (r >= 0)
                r = body_set(body, "title", a->words[0], err);
        if (r >= 0)
                r = fill(c, a, body, err);
        return r < 0 ? r : send(c, "POST", path, json_incref(body), err);
}

static int run_update(struct cli *c, const struct args *a, struct err *err)
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
                r = fill(c, a, body, err);
        if (r >= 0 && json_object_size(body) == 0)
                return err_set(err, ERR_USAGE,
                               "say what to change; see: berth issue update --help");
        return r < 0 ? r : send(c, "PATCH", issue_path(c, a->words[0], ""), json_incref(body), err);
}

/* -- checkout and release --------------------------------------------------------------------- */

static int run_checkout(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *expected = json_array(), *body;
        const char *given = args_value(a, "agent"), *status;
        int r;

        for (size_t i = 0; (status = args_item(a, "expected", i)); i++)
                json_array_append_new(expected, json_string(status));
        for (size_t i = 0; i < 3 && !args_item(a, "expected", 0); i++)
                json_array_append_new(
                        expected, json_string((const char *[]){ "todo", "backlog", "blocked" }[i]));
        body = cli_keep(c, json_pack("{s:o}", "expectedStatuses", expected));
        r = given ? cli_agent(c, given, &agent, err)
                  : cli_call(c, "GET", "/api/agents/me", NULL, &agent, err);
        if (r == ERR_UNAUTHORIZED && !given)
                return err_set(err, ERR_USAGE, "say for whom: --agent AGENT");
        if (r >= 0)
                r = body_set(body, "agentId", cli_text(agent, "id"), err);
        return r < 0 ? r
                     : send(c, "POST", issue_path(c, a->words[0], "/checkout"), json_incref(body),
                            err);
}

static int run_release(struct cli *c, const struct args *a, struct err *err)
{
        json_t *answer;
        int r;

        if (!args_flag(a, "force"))
                return send(c, "POST", issue_path(c, a->words[0], "/release"), json_object(), err);
        r = cli_call(c, "POST", issue_path(c, a->words[0], "/admin/force-release"), json_object(),
                     &answer, err);
        if (r >= 0)
                issue_print(c, c->json ? answer : json_object_get(answer, "issue"));
        return r < 0 ? r : 0;
}

/* -- tables ----------------------------------------------------------------------------------- */

#define SHARED_OPTIONS                                                                             \
        { "description", 0, OPTION_VALUE, "TEXT", "what is to be done" },                          \
                { "status", 0, OPTION_VALUE, "STATUS",                                             \
                  "backlog, todo, in_progress, in_review, done, blocked or cancelled" },           \
                { "priority", 0, OPTION_VALUE, "PRIORITY", "critical, high, medium or low" },      \
                { "assignee", 0, OPTION_VALUE, "AGENT", "the agent that is to do it" },            \
                { "project", 0, OPTION_VALUE, "PROJECT", "what it belongs to" },                   \
                { "parent", 0, OPTION_VALUE, "ISSUE", "the issue it is a part of" },               \
                { "blocked-by", 0, OPTION_LIST, "ISSUE", "what has to be done before" },           \
        {                                                                                          \
                "environment", 0, OPTION_VALUE, "ENV", "where it is worked on"                     \
        }

static const struct cli_option create_options[] = {
        SHARED_OPTIONS,
        { 0 },
};

static const struct cli_option update_options[] = {
        { "title", 0, OPTION_VALUE, "TEXT", "a new title" },
        SHARED_OPTIONS,
        { "unassign", 0, OPTION_FLAG, NULL, "nobody is to do it" },
        { "comment", 0, OPTION_VALUE, "TEXT", "say why" },
        { 0 },
};

static const struct cli_option checkout_options[] = {
        { "agent", 0, OPTION_VALUE, "AGENT",
          "for this agent (default: the one whose key is used)" },
        { "expected", 0, OPTION_LIST, "STATUS", "only from this status (todo, backlog, blocked)" },
        { 0 },
};

static const struct cli_option release_options[] = {
        { "force", 0, OPTION_FLAG, NULL, "whoever has it, and only the lock" },
        { 0 },
};

const struct cli_command cmd_issue_create = {
        .name = "create",
        .synopsis = "TITLE [OPTION]...",
        .summary = "Make an issue",
        .example = "berth issue create 'Mend the login' --priority high",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_issue_update = {
        .name = "update",
        .synopsis = "ISSUE [OPTION]...",
        .summary = "Change an issue",
        .example = "berth issue update ACM-1 --status done --comment 'works now'",
        .options = update_options,
        .run = run_update,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_issue_checkout = {
        .name = "checkout",
        .synopsis = "ISSUE [--agent AGENT] [--expected STATUS]...",
        .summary = "Take an issue, so that nobody else works on it",
        .notes = "An agent needs the id of its run in BERTH_RUN_ID or PAPERCLIP_RUN_ID. When the\n"
                 "issue is somebody else's already, this fails; do not try again.",
        .example = "berth issue checkout ACM-1 --agent Ada",
        .options = checkout_options,
        .run = run_checkout,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_issue_release = {
        .name = "release",
        .synopsis = "ISSUE [--force]",
        .summary = "Give an issue back, to be done by whoever takes it next",
        .example = "berth issue release ACM-1",
        .options = release_options,
        .run = run_release,
        .min_words = 1,
        .max_words = 1,
};
