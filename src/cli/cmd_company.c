/* `berth company`: the tenants of a daemon. */
#include "cli/listing.h"

static int run_list(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },
                { "NAME", COLUMN_TEXT },
                { "STATUS", COLUMN_STATE },
                { "CREATED", COLUMN_TIME },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = cli_call_list(c, "/api/companies", &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "id"), cli_text(item, "name"),
                                      cli_text(item, "status"), cli_text(item, "createdAt") });
        table_print(&t, "no companies");
        return 0;
}

/* Where its agents work that have no environment of their own. */
static void print_default(struct cli *c, const json_t *company)
{
        const char *id = cli_text(company, "defaultEnvironmentId");
        json_t *environment = NULL;

        if (!*id)
                out_label("Default environment", COLUMN_TEXT,
                          "none: agents without an environment do not run");
        else if (cli_call(c, "GET", cli_printf(c, "/api/environments/%s", id), NULL, &environment,
                          NULL) < 0)
                out_label("Default environment", COLUMN_ID, id);
        else
                out_label("Default environment", COLUMN_TEXT,
                          cli_printf(c, "%s (%s)", cli_text(environment, "name"),
                                     cli_text(environment, "isolation")));
}

static void print_company(struct cli *c, const json_t *company)
{
        if (c->json) {
                out_json(company);
                return;
        }
        out_label("Id", COLUMN_ID, cli_text(company, "id"));
        out_label("Name", COLUMN_TEXT, cli_text(company, "name"));
        out_label("Description", COLUMN_TEXT, cli_text(company, "description"));
        out_label("Status", COLUMN_STATE, cli_text(company, "status"));
        out_label("Issue prefix", COLUMN_TEXT, cli_text(company, "issuePrefix"));
        print_default(c, company);
        out_label("Created", COLUMN_TIME, cli_text(company, "createdAt"));
}

static int run_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *company;
        int r = cli_call(c, "POST", "/api/companies",
                         json_pack("{s:s, s:s*, s:s*}", "name", a->words[0], "description",
                                   args_value(a, "description"), "defaultEnvironment",
                                   args_value(a, "default-environment")),
                         &company, err);

        if (r < 0)
                return r;
        print_company(c, company);
        return 0;
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *company;
        int r = cli_company_find(c, a->words[0], &company, err);

        if (r < 0)
                return r;
        print_company(c, company);
        return 0;
}

/* `none` leaves it without one. */
static int set_default(struct cli *c, const char *given, json_t *body, struct err *err)
{
        json_t *environment;
        int r = 0;

        if (!given)
                return 0;
        if (streq(given, "none"))
                return json_object_set_new(body, "defaultEnvironmentId", json_null());
        r = cli_place(c, given, &environment, err);
        return r < 0 ? r : body_set(body, "defaultEnvironmentId", cli_text(environment, "id"), err);
}

static int run_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *company, *body = cli_keep(c, json_object());
        int r = cli_company_find(c, a->words[0], &company, err);

        if (r < 0)
                return r;
        c->company = cli_text(company, "id");
        r = body_set(body, "name", args_value(a, "name"), err);
        if (r >= 0)
                r = body_set(body, "description", args_value(a, "description"), err);
        if (r >= 0)
                r = set_default(c, args_value(a, "default-environment"), body, err);
        if (r >= 0 && json_object_size(body) == 0)
                r = err_set(err, ERR_USAGE,
                            "nothing to change: give --name, --description or "
                            "--default-environment");
        if (r >= 0)
                r = cli_call(c, "PATCH", cli_printf(c, "/api/companies/%s", c->company),
                             json_incref(body), &company, err);
        if (r < 0)
                return r;
        print_company(c, company);
        return 0;
}

static int run_delete(struct cli *c, const struct args *a, struct err *err)
{
        json_t *company, *answer;
        int r = cli_company_find(c, a->words[0], &company, err);

        if (r < 0)
                return r;
        if (!args_flag(a, "yes")) {
                r = cli_confirm(cli_printf(c, "Delete company '%s' with everything in it?",
                                           cli_text(company, "name")),
                                err);
                if (r < 0)
                        return r;
        }
        r = cli_call(c, "DELETE", cli_printf(c, "/api/companies/%s", cli_text(company, "id")), NULL,
                     &answer, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(answer);
        else
                out_line("deleted %s", cli_text(company, "name"));
        return 0;
}

static const struct cli_option create_options[] = {
        { "description", 0, OPTION_VALUE, "TEXT", "what it is for" },
        { "default-environment", 0, OPTION_VALUE, "KIND",
          "sandbox, none, or local: this machine, not isolated" },
        { 0 },
};

static const struct cli_option update_options[] = {
        { "name", 0, OPTION_VALUE, "NAME", "a new name" },
        { "description", 0, OPTION_VALUE, "TEXT", "a new description" },
        { "default-environment", 0, OPTION_VALUE, "ENV",
          "where agents work that have none; Local is this machine, not isolated; or none" },
        { 0 },
};

static const struct cli_option delete_options[] = {
        { "yes", 'y', OPTION_FLAG, NULL, "do not ask" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "",
        .summary = "List the companies you may see",
        .example = "berth company list",
        .run = run_list,
};

static const struct cli_command create = {
        .name = "create",
        .synopsis = "NAME [--description TEXT] [--default-environment KIND]",
        .summary = "Make a company",
        .notes =
                "Its agents work in a sandbox of their own, where this machine can make one, unless "
                "they or\n--default-environment say otherwise.",
        .example = "berth company create Acme",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "ID|NAME",
        .summary = "Show one company",
        .example = "berth company show Acme",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command update = {
        .name = "update",
        .synopsis = "ID|NAME [--name NAME] [--description TEXT] [--default-environment ENV|none]",
        .summary = "Change a company, and where its agents work",
        .notes = "Agents, issues and projects without an environment use the default one. Without "
                 "one they\ndo not run.",
        .example = "berth company update Acme --default-environment Sandbox",
        .options = update_options,
        .run = run_update,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command delete = {
        .name = "delete",
        .synopsis = "ID|NAME [--yes]",
        .summary = "Delete a company with everything in it",
        .example = "berth company delete Acme --yes",
        .options = delete_options,
        .run = run_delete,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_company = {
        .name = "company",
        .synopsis = "",
        .summary = "List, make, change and delete companies",
        .example = "berth company create Acme",
        .sub = (const struct cli_command *const[]){ &list, &create, &show, &update, &delete, NULL },
};
