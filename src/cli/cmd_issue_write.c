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

/* The members that are neither a text nor an id of their own. */
static int set_others(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        const char *given = args_value(a, "environment"), *id = NULL;
        json_t *environment, *blockers = cli_keep(c, json_array());
        int r = given ? cli_place(c, given, &environment, err) : 0;

        if (r >= 0 && given)
                json_object_set_new(
                        body, "executionWorkspaceSettings",
                        json_pack("{s:s}", "environmentId", cli_text(environment, "id")));
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
        int r = cli_fill(c, a,
                         MEMBERS({ "description", "description" }, { "status", "status" },
                                 { "priority", "priority" },
                                 { "assigneeAgentId", "assignee", MEMBER_ID, .kind = &kind_agent },
                                 { "projectId", "project", MEMBER_ID, .kind = &kind_project },
                                 { "parentId", "parent", MEMBER_ID, .kind = &kind_issue }),
                         body, err);

        return r < 0 ? r : set_others(c, a, body, err);
}

/* Send it, and print the issue that comes back. */
static int send(struct cli *c, const char *method, const char *path, json_t *take_body,
                struct err *err)
{
        json_t *issue;
        int r = cli_call(c, method, path, take_body, &issue, err);

        if (r >= 0)
                cli_show(c, &kind_issue, issue);
        return r < 0 ? r : 0;
}

/* -- create and update ------------------------------------------------------------------------ */

int cmd_issue_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object());
        const char *path;
        int r = cli_path(c, "/api/companies/{company}/issues", NULL, false, &path, err);

        if (r >= 0)
                r = body_set(body, "title", a->words[0], err);
        if (r >= 0)
                r = fill(c, a, body, err);
        return r < 0 ? r : send(c, "POST", path, json_incref(body), err);
}

int cmd_issue_update(struct cli *c, const struct args *a, struct err *err)
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

int cmd_issue_checkout(struct cli *c, const struct args *a, struct err *err)
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
        r = given ? cli_find(c, &kind_agent, given, &agent, err)
                  : cli_call(c, "GET", "/api/agents/me", NULL, &agent, err);
        if (r == ERR_UNAUTHORIZED && !given)
                return err_set(err, ERR_USAGE, "say for whom: --agent AGENT");
        if (r >= 0)
                r = body_set(body, "agentId", cli_text(agent, "id"), err);
        return r < 0 ? r
                     : send(c, "POST", issue_path(c, a->words[0], "/checkout"), json_incref(body),
                            err);
}

int cmd_issue_release(struct cli *c, const struct args *a, struct err *err)
{
        json_t *answer;
        int r;

        if (!args_flag(a, "force"))
                return send(c, "POST", issue_path(c, a->words[0], "/release"), json_object(), err);
        r = cli_call(c, "POST", issue_path(c, a->words[0], "/admin/force-release"), json_object(),
                     &answer, err);
        if (r >= 0)
                cli_show(c, &kind_issue, c->json ? answer : json_object_get(answer, "issue"));
        return r < 0 ? r : 0;
}
