/* `berth activity`: the audit trail of a company, newest first. */
#include "cli/command.h"
#include "cli/output.h"

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "WHEN", COLUMN_TIME },   { "ACTOR", COLUMN_TEXT }, { "ACTION", COLUMN_TEXT },
                { "ENTITY", COLUMN_TEXT }, { "ID", COLUMN_ID },
        };
        const char *limit = args_value(a, "limit");
        CLEAN(table_done) struct table t;
        const char *company;
        json_t *list, *item;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        if (limit && (*limit == '\0' || strspn(limit, "0123456789") != strlen(limit)))
                return err_set(err, ERR_USAGE, "--limit: '%s' is not a number", limit);
        r = cli_company(c, false, &company, err);
        if (r >= 0)
                r = cli_call_list(c,
                                  cli_printf(c, "/api/companies/%s/activity%s%s", company,
                                             limit ? "?limit=" : "", limit ? limit : ""),
                                  &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "createdAt"),
                                      cli_printf(c, "%s:%s", cli_text(item, "actorType"),
                                                 cli_text(item, "actorId")),
                                      cli_text(item, "action"), cli_text(item, "entityType"),
                                      cli_text(item, "entityId") });
        table_print(&t, "no activity");
        return 0;
}

static const struct cli_option list_options[] = {
        { "limit", 'n', OPTION_VALUE, "N", "at most this many (100, at most 500)" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "[--limit N]",
        .summary = "List what happened, newest first",
        .example = "berth activity list --limit 20",
        .options = list_options,
        .run = run_list,
};

const struct cli_command cmd_activity = {
        .name = "activity",
        .synopsis = "",
        .summary = "Show who did what",
        .example = "berth activity list --limit 20",
        .sub = (const struct cli_command *const[]){ &list, NULL },
};
