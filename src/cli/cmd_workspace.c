/* `berth workspace`: shows what is staged in a lease, and brings it home. */
#include "cli/cmd_workspace.h"
#include "cli/cmd_lease.h"
#include "cli/long_call.h"
#include "cli/output.h"
#include "cli/run_workspace.h"
#include "cli/signals.h"

#include <errno.h>

static int workspace_path(struct cli *c, const char *lease, const char *rest, const char **ret_id,
                          const char **ret_path, struct err *err)
{
        int r = lease_id(c, lease, ret_id, err);

        if (r >= 0)
                *ret_path = cli_printf(c, "/api/environment-leases/%s/workspace%s", *ret_id, rest);
        return r;
}

static json_int_t number(const json_t *object, const char *key)
{
        return json_integer_value(json_object_get(object, key));
}

/* Showing */

static void print_state(struct cli *c, const json_t *workspace)
{
        fields_print(c, workspace,
                     FIELDS({ "Directory", "localPath" }, { "State", "state", COLUMN_STATE },
                            { "There", "cwd" }, { "Way", "way" },
                            { "Restored", "restoredAt", COLUMN_TIME },
                            { "Note", "note", .optional = true }));
}

/* What would come home */

void workspace_print_diff(struct cli *c, const json_t *diff)
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

static int run_diff(struct cli *c, const struct args *a, struct err *err)
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

/* Moving */

static int move(struct cli *c, struct long_call *t, const char *lease, const char *rest,
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

static int run_stage(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(cleanup_free) char *path = realpath(a->words[1], NULL);
        CLEAN(cleanup_free) char *body = NULL;
        struct long_call t = { .what = "staging" };
        json_t *answer;
        int r;

        if (!path)
                return err_sys(err, ERR_USAGE, errno, "%s", a->words[1]);
        body = run_workspace_body(a, path);
        t.body = body;
        r = move(c, &t, a->words[0], "/stage", &answer, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(answer);
        else
                out_line("%s", cli_text(answer, "cwd"));
        return 0;
}

char *workspace_target_body(const struct args *a, struct err *err)
{
        const char *to = args_value(a, "to");
        CLEAN(cleanup_free) char *path = to ? realpath(to, NULL) : NULL;
        json_t *body = json_object();
        char *text;

        if (to && !path) {
                (void)err_sys(err, ERR_USAGE, errno, "--to %s", to);
                json_decref(body);
                return NULL;
        }
        if (path)
                json_object_set_new(body, "localPath", json_string(path));
        text = json_to_text(body);
        json_decref(body);
        return text;
}

void workspace_print_restored(struct cli *c, const json_t *report)
{
        long_call_report(report);
        if (c->json)
                out_json(report);
        else
                out_line("%lld added, %lld changed, %lld deleted, %zu conflicts",
                         (long long)number(report, "added"), (long long)number(report, "changed"),
                         (long long)number(report, "deleted"),
                         json_array_size(json_object_get(report, "conflicts")));
}

static int run_restore(struct cli *c, const struct args *a, struct err *err)
{
        struct long_call t = { .what = "restoring", .insist = true };
        CLEAN(cleanup_free) char *body = workspace_target_body(a, err);
        json_t *report;
        int r;

        if (!body)
                return ERR_USAGE;
        t.body = body;
        r = move(c, &t, a->words[0], "/restore", &report, err);
        if (r >= 0)
                workspace_print_restored(c, report);
        return r;
}

const struct cli_command workspace_commands[] = {
        { "show", "LEASE", "Show the workspace of a lease", "berth workspace show 01a1deef",
          .words = 1, .act = { &kind_lease, "GET", "/workspace", .print = print_state } },
        { "diff", "LEASE [--names]", "Say what a restore would bring home",
          "berth workspace diff 01a1deef", .words = 1,
          .notes = "A added, M changed, D deleted. Nothing is done.",
          .options = OPTIONS({ "names", NULL, "only which files, not what in them" }),
          .run = run_diff },
        { "stage", "LEASE DIR [OPTION]...",
          "Bring a directory into a lease; prints where it is there",
          "berth workspace stage 01a1deef . -x node_modules", .words = 2,
          .options = OPTIONS({ "exclude", "PATTERN", "leave this out, both ways", 'x', true },
                             { "isolation", "KIND", "how it is shielded: overlay, copy" }),
          .run = run_stage },
        { "restore", "LEASE [--to DIR]", "Bring home what was changed",
          "berth workspace restore 01a1deef", .words = 1,
          .notes = "Where a file was changed on both sides, yours is kept beside it.",
          .options = OPTIONS({ "to", "DIR", "into this directory (where it was staged from)" }),
          .run = run_restore },
        { "discard", "LEASE", "End a workspace; what was not brought home is not kept",
          "berth workspace discard 01a1deef", .words = 1,
          .act = { &kind_lease, "POST", "/workspace/discard", .print = print_state } },
        { "salvaged", "", "Changes that were saved before their place was given up",
          "berth workspace salvaged list", .sub = salvaged_commands },
        { 0 },
};
