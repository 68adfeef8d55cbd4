/* `berth workspace salvaged`: changes that were saved before their place was given up. */
#include "cli/cmd_workspace.h"
#include "cli/output.h"

static const char *size_text(struct cli *c, const json_t *salvage)
{
        json_int_t bytes = json_integer_value(json_object_get(salvage, "bytes"));

        return bytes < 1 << 20 ? cli_printf(c, "%lld KiB", (long long)(bytes + 1023) / 1024)
                               : cli_printf(c, "%.1f MiB", (double)bytes / (1 << 20));
}

static const char *count_text(struct cli *c, const json_t *salvage)
{
        return cli_printf(c, "%lld written, %lld deleted",
                          (long long)json_integer_value(json_object_get(salvage, "changes")),
                          (long long)json_integer_value(json_object_get(salvage, "deletes")));
}

static int fetch(struct cli *c, json_t **ret, struct err *err)
{
        const char *company;
        int r = cli_company(c, false, &company, err);

        return r < 0 ? r
                     : cli_call_list(c,
                                     cli_printf(c, "/api/companies/%s/salvages?limit=500", company),
                                     ret, err);
}

static int find(struct cli *c, const char *given, json_t **ret, struct err *err)
{
        json_t *list;
        int r = fetch(c, &list, err);

        return r < 0 ? r : cli_pick("salvage", list, given, "id", NULL, ret, err);
}

static int run_list(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },        { "DIRECTORY", COLUMN_TEXT },
                { "CHANGES", COLUMN_TEXT }, { "SIZE", COLUMN_TEXT },
                { "WHY", COLUMN_STATE },    { "APPLIED", COLUMN_TIME },
                { "EXPIRES", COLUMN_TIME },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        size_t i;
        int r = fetch(c, &list, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item)
        {
                table_row(&t,
                          (const char *[]){ cli_text(item, "id"), cli_text(item, "localPath"),
                                            count_text(c, item), size_text(c, item),
                                            cli_text(item, "reason"), cli_text(item, "appliedAt"),
                                            cli_text(item, "expiresAt") });
        }
        table_print(&t, "nothing was salvaged");
        return 0;
}

static void print_one(struct cli *c, const json_t *salvage)
{
        out_label("Id", COLUMN_ID, cli_text(salvage, "id"));
        out_label("Directory", COLUMN_TEXT, cli_text(salvage, "localPath"));
        out_label("Lease", COLUMN_ID, cli_text(salvage, "leaseId"));
        out_label("Why", COLUMN_STATE, cli_text(salvage, "reason"));
        out_label("Changes", COLUMN_TEXT, count_text(c, salvage));
        out_label("Size", COLUMN_TEXT, size_text(c, salvage));
        out_label("Saved", COLUMN_TIME, cli_text(salvage, "createdAt"));
        out_label("Applied", COLUMN_TIME, cli_text(salvage, "appliedAt"));
        out_label("Expires", COLUMN_TIME, cli_text(salvage, "expiresAt"));
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *salvage, *diff;
        int r = find(c, a->words[0], &salvage, err);

        if (r >= 0)
                r = cli_call(c, "GET",
                             cli_printf(c, "/api/salvages/%s/diff%s", cli_text(salvage, "id"),
                                        args_flag(a, "names") ? "" : "?text=1"),
                             NULL, &diff, err);
        if (r < 0)
                return r;
        if (c->json)
                json_object_update_missing(diff, salvage);
        else
                print_one(c, salvage);
        workspace_print_diff(c, diff);
        return 0;
}

static int run_apply(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(cleanup_free) char *body = workspace_target_body(a, err);
        json_t *salvage, *report, *document = NULL;
        int r = body ? find(c, a->words[0], &salvage, err) : ERR_USAGE;

        if (r >= 0)
                r = json_parse(body, strlen(body), &document, err);
        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/salvages/%s/apply", cli_text(salvage, "id")),
                             document, &report, err);
        if (r >= 0)
                workspace_print_restored(c, report);
        return r;
}

static int run_drop(struct cli *c, const struct args *a, struct err *err)
{
        json_t *salvage;
        int r = find(c, a->words[0], &salvage, err);

        if (r >= 0)
                r = cli_call(c, "DELETE",
                             cli_printf(c, "/api/salvages/%s", cli_text(salvage, "id")), NULL,
                             &salvage, err);
        if (r >= 0 && c->json)
                out_json(salvage);
        else if (r >= 0)
                out_line("dropped %s", cli_text(salvage, "id"));
        return r;
}

static const struct cli_command list = {
        .name = "list",
        .synopsis = "",
        .summary = "List what was saved, newest first",
        .example = "berth workspace salvaged list",
        .run = run_list,
};

static const struct cli_option show_options[] = {
        { "names", 0, OPTION_FLAG, NULL, "only which files, not what in them" },
        { 0 },
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "ID [--names]",
        .summary = "Show one, and what applying it would do",
        .example = "berth workspace salvaged show 01a1deef",
        .options = show_options,
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_option apply_options[] = {
        { "to", 0, OPTION_VALUE, "DIR", "into this directory (where it was staged from)" },
        { 0 },
};

static const struct cli_command apply = {
        .name = "apply",
        .synopsis = "ID [--to DIR]",
        .summary = "Merge it, as a restore does",
        .example = "berth workspace salvaged apply 01a1deef",
        .options = apply_options,
        .run = run_apply,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command drop = {
        .name = "drop",
        .synopsis = "ID",
        .summary = "Delete one",
        .example = "berth workspace salvaged drop 01a1deef",
        .run = run_drop,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command *const subcommands[] = { &list, &show, &apply, &drop, NULL };

const struct cli_command cmd_salvaged = {
        .name = "salvaged",
        .synopsis = "",
        .summary = "Changes that were saved before their place was given up",
        .example = "berth workspace salvaged list",
        .sub = subcommands,
};
