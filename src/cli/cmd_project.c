/* `berth project`: commands for projects, which issues belong to, and for where their work is. */
#include "cli/command.h"
#include "cli/output.h"

static void print_project(struct cli *c, const json_t *project)
{
        const char *name;
        json_t *item;
        size_t i;

        fields_print(c, project,
                     FIELDS({ "Id", "id", COLUMN_ID }, { "Name", "name" },
                            { "Description", "description" }, { "Status", "status", COLUMN_STATE },
                            { "Created", "createdAt", COLUMN_TIME },
                            { "Paused", "pausedAt", COLUMN_TIME, .optional = true },
                            { "Environment", "executionWorkspacePolicy.environmentId", COLUMN_ID,
                              .optional = true },
                            { "Mode", "executionWorkspacePolicy.defaultMode", .optional = true }));
        json_array_foreach(json_object_get(project, "workspaces"), i, item)
        {
                const char *cwd = cli_text(item, "cwd");

                out_label("Workspace", COLUMN_TEXT,
                          cli_printf(c, "%s: %s", cli_text(item, "name"),
                                     *cwd ? cwd : cli_text(item, "repoUrl")));
        }
        json_object_foreach(json_get_object(project, "env"), name, item)
                out_label(name, COLUMN_TEXT, cli_variable_text(c, item));
}

const struct cli_kind kind_project = {
        .what = "project",
        .command = "project",
        .path = "/api/projects",
        .list = "/api/companies/{company}/projects",
        .name = "name",
        .other = "urlKey",
        .print = print_project,
};

/* -- Projects --------------------------------------------------------------------------------- */

/* What --environment and --mode say, over the policy that it has. */
static int set_policy(struct cli *c, const struct args *a, const json_t *project, json_t *body,
                      struct err *err)
{
        const char *given = args_value(a, "environment"), *mode = args_value(a, "mode");
        const json_t *had = json_get_object(project, "executionWorkspacePolicy");
        json_t *place, *policy = cli_keep(c, had ? json_copy((json_t *)had) : json_object());
        int r = given ? cli_place(c, given, &place, err) : 0;

        if (r < 0 || (!given && !mode))
                return r;
        json_object_set_new(policy, "enabled", json_true());
        if (given)
                json_object_set_new(policy, "environmentId", json_string(cli_text(place, "id")));
        r = body_set(policy, "defaultMode", mode, err);
        json_object_set(body, "executionWorkspacePolicy", policy);
        return r;
}

static const struct cli_member workspace_members[] = {
        { "cwd", "directory" },      { "repoUrl", "repo" },           { "repoRef", "ref" },
        { "setupCommand", "setup" }, { "cleanupCommand", "cleanup" }, { 0 },
};

static int cmd_project_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object()), *env = cli_keep(c, json_object());
        json_t *workspace = cli_keep(c, json_object());
        const char *path;
        int r = cli_path(c, kind_project.list, NULL, false, &path, err);

        if (r >= 0)
                r = cli_check_new(c, a, &kind_project, a->words[0], err);
        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "name", .word = 1 }, { "description", "description" },
                                     { "status", "status" }),
                             body, err);
        if (r >= 0)
                r = set_policy(c, a, NULL, body, err);
        if (r >= 0)
                r = cli_set_variables(c, a, env, err);
        if (r >= 0)
                r = cli_fill(c, a, workspace_members, workspace, err);
        if (r < 0)
                return r;
        if (json_object_size(env) > 0)
                json_object_set(body, "env", env);
        if (json_object_size(workspace) > 0)
                json_object_set(body, "workspace", workspace);
        return cli_send(c, "POST", path, json_incref(body), &kind_project, err);
}

static int cmd_project_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *project, *env = NULL, *body = cli_keep(c, json_object());
        int r = cli_find(c, &kind_project, a->words[0], &project, err);

        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "name", "name" }, { "description", "description" },
                                     { "status", "status" }),
                             body, err);
        if (r >= 0)
                r = set_policy(c, a, project, body, err);
        if (r >= 0)
                r = cli_changed_env(c, a, json_get_object(project, "env"), &env, err);
        if (r < 0)
                return r;
        if (env)
                json_object_set(body, "env", env);
        if (json_object_size(body) == 0)
                return err_set(err, ERR_USAGE,
                               "say what to change; see: berth project update --help");
        return cli_send(c, "PATCH", cli_printf(c, "/api/projects/%s", cli_text(project, "id")),
                        json_incref(body), &kind_project, err);
}

static int cmd_project_delete(struct cli *c, const struct args *a, struct err *err)
{
        json_t *project, *answer;
        int r = cli_find(c, &kind_project, a->words[0], &project, err);

        if (r >= 0 && !args_flag(a, "yes"))
                r = cli_confirm(cli_printf(c, "Delete project '%s'? Its issues stay.",
                                           cli_text(project, "name")),
                                err);
        if (r >= 0)
                r = cli_call(c, "DELETE",
                             cli_printf(c, "/api/projects/%s", cli_text(project, "id")), NULL,
                             &answer, err);
        if (r >= 0)
                cli_answer(c, answer, "deleted %s", cli_text(project, "name"));
        return r;
}

/* -- Their workspaces ------------------------------------------------------------------------- */

static const struct cli_kind kind_project_workspace = {
        .what = "workspace",
        .fields = FIELDS({ "Id", "id", COLUMN_ID }, { "Name", "name" }, { "Primary", "isPrimary" },
                         { "Directory", "cwd", .optional = true },
                         { "Repository", "repoUrl", .optional = true },
                         { "Ref", "repoRef", .optional = true },
                         { "Set up", "setupCommand", .optional = true },
                         { "Clean up", "cleanupCommand", .optional = true }),
};

/* The second word names one of the project's, by name or id. *ret_path: of the one, or, without a
 * second word, of all. */
static int find_workspace(struct cli *c, const struct args *a, const char **ret_path,
                          const char **ret_name, struct err *err)
{
        const char *given = a->n_words > 1 ? a->words[1] : NULL, *found = NULL;
        json_t *project, *item;
        size_t i;
        int r = cli_find(c, &kind_project, a->words[0], &project, err);

        if (r < 0)
                return r;
        *ret_path = cli_printf(c, "/api/projects/%s/workspaces", cli_text(project, "id"));
        if (!given)
                return 0;
        json_array_foreach(json_object_get(project, "workspaces"), i, item)
        {
                if (!streq(given, cli_text(item, "id")) && !streq(given, cli_text(item, "name")))
                        continue;
                if (found)
                        return err_set(err, ERR_CONFLICT,
                                       "there are several workspaces '%s'; use the id", given);
                found = cli_text(item, "id");
                *ret_name = cli_text(item, "name");
        }
        if (!found)
                return err_set(err, ERR_NOT_FOUND,
                               "there is no workspace '%s'; 'berth project workspace list %s' "
                               "shows those there are",
                               given, a->words[0]);
        *ret_path = cli_printf(c, "%s/%s", *ret_path, found);
        return 0;
}

static int cmd_project_workspace_put(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object());
        const char *path, *name;
        int r = find_workspace(c, a, &path, &name, err);

        if (r >= 0)
                r = cli_fill(c, a, workspace_members, body, err);
        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "name", "name" }, { "isPrimary", "primary", MEMBER_TRUE }),
                             body, err);
        return r < 0 ? r
                     : cli_send(c, a->n_words > 1 ? "PATCH" : "POST", path, json_incref(body),
                                &kind_project_workspace, err);
}

static int cmd_project_workspace_remove(struct cli *c, const struct args *a, struct err *err)
{
        const char *path, *name = "";
        json_t *answer;
        int r = find_workspace(c, a, &path, &name, err);

        if (r >= 0)
                r = cli_call(c, "DELETE", path, NULL, &answer, err);
        if (r >= 0)
                cli_answer(c, answer, "removed %s", name);
        return r;
}

#define WORKSPACE_OPTIONS                                                                          \
        OPTION("directory", "DIR", "where it is on the daemon's machine"),                         \
                OPTION("repo", "URL", "where it comes from; told to the agents"),                  \
                OPTION("ref", "REF", "the branch or commit to begin with"),                        \
                OPTION("setup", "COMMAND", "makes it ready, in the place of a run"),               \
                OPTION("cleanup", "COMMAND", "run after each run, in its place")

static const struct cli_command project_workspace_commands[] = {
        { "list", "PROJECT", "List the workspaces of a project",
          "berth project workspace list Site", .words = 1,
          .act = { &kind_project, "GET", "/workspaces",
                   .columns = FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                     { "PRIMARY", "isPrimary" }, { "DIRECTORY", "cwd" },
                                     { "REPOSITORY", "repoUrl" }, { "REF", "repoRef" }),
                   .none = "no workspaces" } },
        { "add", "PROJECT [OPTION]...", "Add a workspace to a project",
          "berth project workspace add Site --directory /srv/site", .words = 1,
          .notes = "The first one is the primary one.",
          .options = OPTIONS({ "name", "NAME", "what it is called (after its directory)" },
                             { "primary", NULL, "work is done here" }, WORKSPACE_OPTIONS),
          .run = cmd_project_workspace_put },
        { "update", "PROJECT WORKSPACE [OPTION]...", "Change a workspace of a project",
          "berth project workspace update Site site --ref main", .words = 2,
          .options = OPTIONS({ "name", "NAME", "a new name" },
                             { "primary", NULL, "work is done here" }, WORKSPACE_OPTIONS),
          .run = cmd_project_workspace_put },
        { "remove", "PROJECT WORKSPACE", "Remove a workspace from a project; its files stay",
          "berth project workspace remove Site site", .words = 2,
          .run = cmd_project_workspace_remove },
        { 0 },
};

/* -- the table -------------------------------------------------------------------------------- */

#define PROJECT_NOTES                                                                              \
        "--environment and --mode have an effect only while the instance setting\n"                \
        "enableIsolatedWorkspaces is on (PATCH /api/instance/settings/experimental). Otherwise\n"  \
        "issues are worked on in the environment and the directory of the agent."

#define PROJECT_OPTIONS                                                                            \
        OPTION("description", "TEXT", "what it is"),                                               \
                OPTION("status", "STATUS",                                                         \
                       "backlog, planned, in_progress, completed or cancelled"),                   \
                OPTION("environment", "ENV", "where its issues are worked on"),                    \
                OPTION("mode", "MODE",                                                             \
                       "shared_workspace, isolated_workspace, operator_branch or "                 \
                       "adapter_default"),                                                         \
                OPTION("env", "K=V", "a variable of its runs", 'e', true),                         \
                OPTION("secret-env", "K=SECRET[@VERSION]", "a variable from a secret",             \
                       .is_list = true)

const struct cli_command project_commands[] = {
        { "list", "", "List the projects of the company", "berth project list",
          .act = { NULL, "GET", "/api/companies/{company}/projects",
                   .columns = FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                     { "STATUS", "status", COLUMN_STATE },
                                     { "CREATED", "createdAt", COLUMN_TIME }),
                   .none = "no projects" } },
        { "create", "NAME [OPTION]...", "Create a project",
          "berth project create Site --directory /srv/site --env LANG=C.UTF-8", .words = 1,
          .notes = PROJECT_NOTES,
          .options = OPTIONS(PROJECT_OPTIONS, WORKSPACE_OPTIONS, ALLOW_DUPLICATE),
          .run = cmd_project_create },
        { "show", "PROJECT", "Show a project, its workspaces and its variables",
          "berth project show Site", .words = 1, .act = { &kind_project } },
        { "update", "PROJECT [OPTION]...", "Change a project and its variables",
          "berth project update Site --status in_progress --secret-env TOKEN=deploy", .words = 1,
          .notes = PROJECT_NOTES,
          .options = OPTIONS({ "name", "NAME", "a new name" }, PROJECT_OPTIONS,
                             { "unset", "K", "remove a variable", .is_list = true }),
          .run = cmd_project_update },
        { "delete", "PROJECT [--yes]", "Delete a project; its issues stay",
          "berth project delete Site --yes", .words = 1,
          .options = OPTIONS({ "yes", NULL, "do not ask", 'y' }), .run = cmd_project_delete },
        { "workspace", "", "Where the work of a project is", "berth project workspace list Site",
          .sub = project_workspace_commands },
        { 0 },
};
