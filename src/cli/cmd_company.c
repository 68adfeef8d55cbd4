/* `berth company`: the tenants of a daemon. */
#include "cli/command.h"

/* Where its agents work that have no environment of their own. */
static const char *default_text(struct cli *c, const json_t *company)
{
        const char *id = cli_text(company, "defaultEnvironmentId");
        json_t *environment = NULL;

        if (!*id)
                return "none: agents without an environment do not run";
        if (cli_call(c, "GET", cli_printf(c, "/api/environments/%s", id), NULL, &environment,
                     NULL) < 0)
                return id;
        return cli_printf(c, "%s (%s)", cli_text(environment, "name"),
                          cli_text(environment, "isolation"));
}

const struct cli_kind kind_company = {
        .what = "company",
        .command = "company",
        .path = "/api/companies",
        .list = "/api/companies",
        .name = "name",
        .other = "issuePrefix",
        .fields = FIELDS({ "Id", "id", COLUMN_ID }, { "Name", "name" },
                         { "Description", "description" }, { "Status", "status", COLUMN_STATE },
                         { "Issue prefix", "issuePrefix" },
                         { "Default environment", .text = default_text },
                         { "Created", "createdAt", COLUMN_TIME }),
};

static int cmd_company_update(struct cli *c, const struct args *a, struct err *err)
{
        const char *given = args_value(a, "default-environment"); /* `none`: without one */
        json_t *company, *body = cli_keep(c, json_object());
        int r = cli_find(c, &kind_company, a->words[0], &company, err);

        if (r < 0)
                return r;
        c->company = cli_text(company, "id");
        r = cli_fill(c, a, MEMBERS({ "name", "name" }, { "description", "description" }), body,
                     err);
        if (r >= 0 && given && streq(given, "none"))
                json_object_set_new(body, "defaultEnvironmentId", json_null());
        else if (r >= 0 && given)
                r = cli_fill(
                        c, a,
                        MEMBERS({ "defaultEnvironmentId", "default-environment", MEMBER_PLACE }),
                        body, err);
        if (r >= 0 && json_object_size(body) == 0)
                r = err_set(err, ERR_USAGE,
                            "nothing to change: give --name, --description or "
                            "--default-environment");
        if (r < 0)
                return r;
        return cli_send(c, "PATCH", cli_printf(c, "/api/companies/%s", c->company),
                        json_incref(body), &kind_company, err);
}

static int cmd_company_delete(struct cli *c, const struct args *a, struct err *err)
{
        json_t *company, *answer;
        int r = cli_find(c, &kind_company, a->words[0], &company, err);

        if (r >= 0 && !args_flag(a, "yes"))
                r = cli_confirm(cli_printf(c, "Delete company '%s' with everything in it?",
                                           cli_text(company, "name")),
                                err);
        if (r >= 0)
                r = cli_call(c, "DELETE",
                             cli_printf(c,
                                        args_flag(a, "with-history")
                                                ? "/api/companies/%1$s?confirm=%1$s"
                                                : "/api/companies/%s",
                                        cli_text(company, "id")),
                             NULL, &answer, err);
        if (r >= 0)
                cli_answer(c, answer, "deleted %s", cli_text(company, "name"));
        return r;
}

const struct cli_command company_commands[] = {
        { "list", "", "List the companies you may see", "berth company list",
          .act = { NULL, "GET", "/api/companies",
                   .columns = FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                     { "STATUS", "status", COLUMN_STATE },
                                     { "CREATED", "createdAt", COLUMN_TIME }),
                   .none = "no companies" } },
        { "create", "NAME [--description TEXT] [--default-environment KIND] [--allow-duplicate]",
          "Create a company", "berth company create Acme", .words = 1,
          .notes = "Its agents work in a sandbox of their own, where this machine can make one, "
                   "unless they or\n--default-environment say otherwise.",
          .options = OPTIONS({ "description", "TEXT", "what it is for" },
                             { "default-environment", "KIND",
                               "sandbox, none, or local: this machine, not isolated" },
                             ALLOW_DUPLICATE),
          .act = { NULL, "POST", "/api/companies",
                   .members = MEMBERS({ "name", .word = 1 }, { "description", "description" },
                                      { "defaultEnvironment", "default-environment" }),
                   .is_new = true, .answer = &kind_company } },
        { "show", "ID|NAME", "Show one company", "berth company show Acme", .words = 1,
          .act = { &kind_company } },
        { "update", "ID|NAME [--name NAME] [--description TEXT] [--default-environment ENV|none]",
          "Change a company, and where its agents work",
          "berth company update Acme --default-environment Sandbox", .words = 1,
          .notes = "Agents, issues and projects without an environment use the default one. "
                   "Without one they\ndo not run.",
          .options = OPTIONS(
                  { "name", "NAME", "a new name" }, { "description", "TEXT", "a new description" },
                  { "default-environment", "ENV",
                    "where agents work that have none; Local is this machine, not isolated; or none" }),
          .run = cmd_company_update },
        { "delete", "ID|NAME [--with-history] [--yes]", "Delete a company with everything in it",
          "berth company delete Acme --with-history --yes", .words = 1,
          .notes = "Without --with-history it is refused while there are agents, runs or secrets. "
                   "Entries of\nthe audit trail stay.",
          .options = OPTIONS({ "with-history", NULL,
                               "its agents, runs, logs, secrets and places too; instance admins" },
                             { "yes", NULL, "do not ask", 'y' }),
          .run = cmd_company_delete },
        { 0 },
};
