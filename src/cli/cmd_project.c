/* `berth project`: commands for projects, which issues belong to. */
#include "cli/command.h"

const struct cli_kind kind_project = {
        .what = "project",
        .command = "project",
        .path = "/api/projects",
        .list = "/api/companies/{company}/projects",
        .name = "name",
        .other = "urlKey",
        .fields = FIELDS({ "Id", "id", COLUMN_ID }, { "Name", "name" },
                         { "Description", "description" }, { "Status", "status", COLUMN_STATE },
                         { "Created", "createdAt", COLUMN_TIME },
                         { "Environment", "executionWorkspacePolicy.environmentId", COLUMN_ID,
                           .optional = true }),
};

static int cmd_project_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *project, *place, *body = cli_keep(c, json_object());
        const char *given = args_value(a, "environment"), *path;
        int r = cli_path(c, kind_project.list, NULL, false, &path, err);

        if (r >= 0)
                r = cli_fill(c, a, MEMBERS({ "name", .word = 1 }, { "description", "description" }),
                             body, err);
        if (r >= 0 && given)
                r = cli_place(c, given, &place, err);
        if (r >= 0 && given)
                json_object_set_new(body, "executionWorkspacePolicy",
                                    json_pack("{s:b, s:s}", "enabled", 1, "environmentId",
                                              cli_text(place, "id")));
        if (r >= 0)
                r = cli_call(c, "POST", path, json_incref(body), &project, err);
        if (r >= 0)
                cli_show(c, &kind_project, project);
        return r;
}

const struct cli_command project_commands[] = {
        { "list", "", "List the projects of the company", "berth project list",
          .act = { NULL, "GET", "/api/companies/{company}/projects",
                   .columns = FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                     { "STATUS", "status", COLUMN_STATE },
                                     { "CREATED", "createdAt", COLUMN_TIME }),
                   .none = "no projects" } },
        { "create", "NAME [--description TEXT] [--environment ENV]", "Create a project",
          "berth project create Site --description 'the web site'", .words = 1,
          .notes = "--environment has an effect only while the instance setting "
                   "enableIsolatedWorkspaces is on\n(PATCH /api/instance/settings/experimental). "
                   "Otherwise issues are worked on in the environment\nof the agent.",
          .options = OPTIONS({ "description", "TEXT", "what it is" },
                             { "environment", "ENV", "where its issues are worked on" }),
          .run = cmd_project_create },
        { "show", "PROJECT", "Show one project", "berth project show Site", .words = 1,
          .act = { &kind_project } },
        { 0 },
};
