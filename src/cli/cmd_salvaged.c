/* `berth workspace salvaged`: changes that were saved before their place was given up. */
#include "cli/cmd_workspace.h"
#include "cli/output.h"

static const char *count_text(struct cli *c, const json_t *salvage)
{
        return cli_printf(c, "%lld written, %lld deleted",
                          (long long)json_integer_value(json_object_get(salvage, "changes")),
                          (long long)json_integer_value(json_object_get(salvage, "deletes")));
}

static const struct cli_kind kind_salvage = {
        .what = "salvage",
        .command = "workspace salvaged",
        .path = "/api/salvages",
        .list = "/api/companies/{company}/salvages?limit=500",
        .name = "id",
        .fields = FIELDS({ "Id", "id", COLUMN_ID }, { "Directory", "localPath" },
                         { "Lease", "leaseId", COLUMN_ID }, { "Why", "reason", COLUMN_STATE },
                         { "Changes", .text = count_text }, { "Size", .text = size_text },
                         { "Saved", "createdAt", COLUMN_TIME },
                         { "Applied", "appliedAt", COLUMN_TIME },
                         { "Expires", "expiresAt", COLUMN_TIME }),
};

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *salvage, *diff;
        int r = cli_find(c, &kind_salvage, a->words[0], &salvage, err);

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
                cli_show(c, &kind_salvage, salvage);
        workspace_print_diff(c, diff);
        return 0;
}

static int run_apply(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(cleanup_free) char *body = workspace_target_body(a, err);
        json_t *salvage, *report, *document = NULL;
        int r = body ? cli_find(c, &kind_salvage, a->words[0], &salvage, err) : ERR_USAGE;

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

const struct cli_command salvaged_commands[] = {
        { "list", "", "List what was saved, newest first", "berth workspace salvaged list",
          .act = { NULL, "GET", "/api/companies/{company}/salvages?limit=500",
                   .columns =
                           FIELDS({ "ID", "id", COLUMN_ID }, { "DIRECTORY", "localPath" },
                                  { "CHANGES", .text = count_text }, { "SIZE", .text = size_text },
                                  { "WHY", "reason", COLUMN_STATE },
                                  { "APPLIED", "appliedAt", COLUMN_TIME },
                                  { "EXPIRES", "expiresAt", COLUMN_TIME }),
                   .none = "nothing was salvaged" } },
        { "show", "ID [--names]", "Show one, and what applying it would do",
          "berth workspace salvaged show 01a1deef", .words = 1,
          .options = OPTIONS({ "names", NULL, "only which files, not what in them" }),
          .run = run_show },
        { "apply", "ID [--to DIR]", "Merge it, as a restore does",
          "berth workspace salvaged apply 01a1deef", .words = 1,
          .options = OPTIONS({ "to", "DIR", "into this directory (where it was staged from)" }),
          .run = run_apply },
        { "drop", "ID", "Delete one", "berth workspace salvaged drop 01a1deef", .words = 1,
          .act = { &kind_salvage, "DELETE", .done = "dropped" } },
        { 0 },
};
