/* `berth workspace`: shows what is staged in a lease, brings it home, and applies what was salvaged
 * before its place was given up. */
#include <errno.h>

#include "cli/command.h"
#include "cli/long_call.h"
#include "cli/output.h"
#include "cli/run_workspace.h"
#include "cli/signals.h"

static int workspace_path(struct cli *c, const char *lease, const char *rest, const char **ret_id,
                          const char **ret_path, struct err *err)
{
        int r = cli_find_id(c, &kind_lease, lease, ret_id, err);

        if (r >= 0)
                *ret_path = cli_printf(c, "/api/environment-leases/%s/workspace%s", *ret_id, rest);
        return r;
}

static long long count_of(const json_t *object, const char *key)
{
        return (long long)json_integer_value(json_object_get(object, key));
}

static void print_workspace(struct cli *c, const json_t *workspace)
{
        fields_print(c, workspace,
                     FIELDS({ "Directory", "localPath" }, { "State", "state", COLUMN_STATE },
                            { "There", "cwd" }, { "Way", "way" },
                            { "Restored", "restoredAt", COLUMN_TIME },
                            { "Note", "note", .optional = true }));
}

static void workspace_print_diff(struct cli *c, const json_t *diff)
{
        const json_t *restore = json_get_object(diff, "restore");
        json_t *item;
        size_t i;

        if (c->json) {
                out_json(diff);
                return;
        }
        json_array_foreach(json_object_get(diff, "changes"), i, item)
        {
                const char *text = json_get_string(item, "diff");
                const char *change = cli_text(item, "change");
                bool is_dir = streq(cli_text(item, "kind"), "directory");

                out_line("%s %s%s",
                         streq(change, "delete") ? "D"
                         : streq(change, "add")  ? "A"
                                                 : "M",
                         cli_text(item, "path"), is_dir ? "/" : "");
                if (text)
                        out_lines(text);
        }
        if (json_is_true(json_object_get(diff, "truncated")))
                out_note("there are more; only the first ones are shown");
        json_array_foreach(json_object_get(restore, "conflicts"), i, item)
        {
                out_note("conflict: %s was changed here too; your version would be kept as %s",
                         cli_text(item, "path"), cli_text(item, "kept"));
        }
        if (json_array_size(json_object_get(diff, "changes")) == 0)
                out_note("no changes");
}

static int cmd_workspace_diff(struct cli *c, const struct args *a, struct err *err)
{
        const char *id, *path;
        json_t *diff;
        int r = workspace_path(c, a->words[0], args_flag(a, "names") ? "/diff" : "/diff?text=1",
                               &id, &path, err);

        if (r >= 0)
                r = cli_call(c, "GET", path, NULL, &diff, err);
        if (r >= 0)
                workspace_print_diff(c, diff);
        return r;
}

static int move_workspace(struct cli *c, struct long_call *t, const char *lease, const char *rest,
                          json_t **ret, struct err *err)
{
        int signal = 0, r = signals_catch(err);

        if (r >= 0)
                r = workspace_path(c, lease, rest, &t->lease_id, &t->path, err);
        if (r >= 0)
                r = long_call_run(c, t, ret, &signal, err);
        if (r == ERR_CANCELLED)
                c->end_by_signal = signal;
        return r;
}

static int cmd_workspace_stage(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(cleanup_free) char *path = realpath(a->words[1], NULL);
        CLEAN(cleanup_free) char *body = NULL;
        struct long_call t = { .what = "staging" };
        json_t *answer;

        if (!path)
                return err_sys(err, ERR_USAGE, errno, "%s", a->words[1]);
        body = run_workspace_body(a, path);
        t.body = body;
        int r = move_workspace(c, &t, a->words[0], "/stage", &answer, err);
        if (r >= 0)
                cli_answer(c, answer, "%s", cli_text(answer, "cwd"));
        return r;
}

/* {localPath?} from --to. */
static int read_target(struct cli *c, const struct args *a, json_t **ret_body, struct err *err)
{
        const char *to = args_value(a, "to");
        CLEAN(cleanup_free) char *path = to ? realpath(to, NULL) : NULL;

        if (to && !path)
                return err_sys(err, ERR_USAGE, errno, "--to %s", to);
        *ret_body = cli_keep(c, json_pack("{s:s*}", "localPath", path));
        return 0;
}

static void workspace_print_restored(struct cli *c, const json_t *report)
{
        long_call_report(report);
        cli_answer(c, report, "%lld added, %lld changed, %lld deleted, %zu conflicts",
                   count_of(report, "added"), count_of(report, "changed"),
                   count_of(report, "deleted"),
                   json_array_size(json_object_get(report, "conflicts")));
}

static int cmd_workspace_restore(struct cli *c, const struct args *a, struct err *err)
{
        struct long_call t = { .what = "restoring", .insist = true };
        CLEAN(cleanup_free) char *text = NULL;
        json_t *body, *report;
        int r = read_target(c, a, &body, err);

        if (r < 0)
                return r;
        text = json_to_text(body);
        t.body = text;
        r = move_workspace(c, &t, a->words[0], "/restore", &report, err);
        if (r >= 0)
                workspace_print_restored(c, report);
        return r;
}

/* -- salvaged --------------------------------------------------------------------------------- */

static const char *count_text(struct cli *c, const json_t *salvage)
{
        return cli_printf(c, "%lld written, %lld deleted", count_of(salvage, "changes"),
                          count_of(salvage, "deletes"));
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

static int cmd_salvaged_show(struct cli *c, const struct args *a, struct err *err)
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

static int cmd_salvaged_apply(struct cli *c, const struct args *a, struct err *err)
{
        json_t *salvage, *report, *body;
        int r = read_target(c, a, &body, err);

        if (r >= 0)
                r = cli_find(c, &kind_salvage, a->words[0], &salvage, err);
        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/salvages/%s/apply", cli_text(salvage, "id")),
                             json_incref(body), &report, err);
        if (r >= 0)
                workspace_print_restored(c, report);
        return r;
}

static const struct cli_command salvaged_commands[] = {
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
          .options = OPTIONS({ "names", NULL, "only the names of the files" }),
          .run = cmd_salvaged_show },
        { "apply", "ID [--to DIR]", "Merge it, as a restore does",
          "berth workspace salvaged apply 01a1deef", .words = 1,
          .options = OPTIONS({ "to", "DIR", "into this directory (where it was staged from)" }),
          .run = cmd_salvaged_apply },
        { "drop", "ID", "Delete one", "berth workspace salvaged drop 01a1deef", .words = 1,
          .act = { &kind_salvage, "DELETE", .done = "dropped" } },
        { 0 },
};

/* -- the table -------------------------------------------------------------------------------- */

const struct cli_command workspace_commands[] = {
        { "show", "LEASE", "Show the workspace of a lease", "berth workspace show 01a1deef",
          .words = 1, .act = { &kind_lease, "GET", "/workspace", .print = print_workspace } },
        { "diff", "LEASE [--names]", "Show what a restore would bring home",
          "berth workspace diff 01a1deef", .words = 1,
          .notes = "A added, M changed, D deleted. Nothing is done.",
          .options = OPTIONS({ "names", NULL, "only the names of the files" }),
          .run = cmd_workspace_diff },
        { "stage", "LEASE DIR [OPTION]...",
          "Bring a directory into a lease; prints where it is there",
          "berth workspace stage 01a1deef . -x node_modules", .words = 2,
          .options = OPTIONS({ "exclude", "PATTERN", "leave this out, both ways", 'x', true },
                             { "isolation", "KIND", "how it is shielded: overlay, copy" }),
          .run = cmd_workspace_stage },
        { "restore", "LEASE [--to DIR]", "Bring home what was changed",
          "berth workspace restore 01a1deef", .words = 1,
          .notes = "Where a file was changed on both sides, yours is kept beside it.",
          .options = OPTIONS({ "to", "DIR", "into this directory (where it was staged from)" }),
          .run = cmd_workspace_restore },
        { "discard", "LEASE", "End a workspace; what was not brought home is not kept",
          "berth workspace discard 01a1deef", .words = 1,
          .act = { &kind_lease, "POST", "/workspace/discard", .print = print_workspace } },
        { "salvaged", "", "Changes that were saved before their place was given up",
          "berth workspace salvaged list", .sub = salvaged_commands },
        { 0 },
};
