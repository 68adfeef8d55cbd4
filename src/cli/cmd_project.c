/* `berth project`: what issues belong to. */
#include "cli/listing.h"

static const struct field columns[] = {
        { "ID", COLUMN_ID, "id" },
        { "NAME", COLUMN_TEXT, "name" },
        { "STATUS", COLUMN_STATE, "status" },
        { "CREATED", COLUMN_TIME, "createdAt" },
};

static int projects_path(struct cli *c, const char **ret, struct err *err)
{
        const char *company;
        int r = cli_company(c, false, &company, err);

        if (r >= 0)
                *ret = cli_printf(c, "/api/companies/%s/projects", company);
        return r;
}

static void print_project(struct cli *c, const json_t *project)
{
        static const struct field fields[] = {
                { "Id", COLUMN_ID, "id" },
                { "Name", COLUMN_TEXT, "name" },
                { "Description", COLUMN_TEXT, "description" },
                { "Status", COLUMN_STATE, "status" },
                { "Created", COLUMN_TIME, "createdAt" },
        };
        const json_t *policy = json_get_object(project, "executionWorkspacePolicy");

        object_print(c, project, fields, ARRAY_LEN(fields));
        if (!c->json && policy)
                out_label("Environment", COLUMN_ID, cli_text(policy, "environmentId"));
}

static int run_list(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        const char *path;
        int r = projects_path(c, &path, err);

        return r < 0 ? r : list_print(c, path, columns, ARRAY_LEN(columns), "no projects", err);
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *project;
        int r = cli_project(c, a->words[0], &project, err);

        if (r >= 0)
                print_project(c, project);
        return r < 0 ? r : 0;
}

static int fill(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        const char *given = args_value(a, "environment");
        json_t *environment;
        int r = body_set(body, "name", a->words[0], err);

        if (r >= 0)
                r = body_set(body, "description", args_value(a, "description"), err);
        if (r < 0 || !given)
                return r;
        r = cli_place(c, given, &environment, err);
        if (r >= 0)
                json_object_set_new(body, "executionWorkspacePolicy",
                                    json_pack("{s:b, s:s}", "enabled", 1, "environmentId",
                                              cli_text(environment, "id")));
        return r;
}

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *project, *body = cli_keep(c, json_object());
        const char *path;
        int r = projects_path(c, &path, err);

        if (r >= 0)
                r = fill(c, a, body, err);
        if (r >= 0)
                r = cli_call(c, "POST", path, json_incref(body), &project, err);
        if (r >= 0)
                print_project(c, project);
        return r < 0 ? r : 0;
}

static const struct cli_option create_options[] = {
        { "description", 0, OPTION_VALUE, "TEXT", "what it is" },
        { "environment", 0, OPTION_VALUE, "ENV", "where its issues are worked on" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "",
        .summary = "List the projects of the company",
        .example = "berth project list",
        .run = run_list,
};

static const struct cli_command create = {
        .name = "create",
        .synopsis = "NAME [--description TEXT] [--environment ENV]",
        .summary = "Make a project",
        .example = "berth project create Site --description 'the web site'",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "PROJECT",
        .summary = "Show one project",
        .example = "berth project show Site",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_project = {
        .name = "project",
        .synopsis = "",
        .summary = "List, make and show projects",
        .example = "berth project list",
        .sub = (const struct cli_command *const[]){ &list, &create, &show, NULL },
};
