/* `berth snapshot list|show|delete`, and `berth lease snapshot`. */
#include "cli/cmd_lease.h"
#include "cli/output.h"

static const char *size_text(struct cli *c, const json_t *snapshot)
{
        json_int_t bytes = json_integer_value(json_object_get(snapshot, "bytes"));

        if (bytes < 1 << 20)
                return cli_printf(c, "%lld KiB", (long long)(bytes + 1023) / 1024);
        return cli_printf(c, "%.1f MiB", (double)bytes / (1 << 20));
}

static void print_one(struct cli *c, const json_t *snapshot)
{
        if (c->json) {
                out_json(snapshot);
                return;
        }
        out_label("Name", COLUMN_TEXT, cli_text(snapshot, "name"));
        out_label("Id", COLUMN_ID, cli_text(snapshot, "id"));
        out_label("State", COLUMN_STATE, cli_text(snapshot, "state"));
        out_label("Size", COLUMN_TEXT, size_text(c, snapshot));
        out_label("Stands on", COLUMN_ID, cli_text(snapshot, "parentId"));
        out_label("Rootfs", COLUMN_TEXT, cli_text(snapshot, "rootfs"));
        out_label("Lease", COLUMN_ID, cli_text(snapshot, "leaseId"));
        out_label("Created", COLUMN_TIME, cli_text(snapshot, "createdAt"));
}

static int snapshots_path(struct cli *c, const char *name, const char **ret, struct err *err)
{
        const char *company;
        int r = cli_company(c, false, &company, err);

        if (r >= 0)
                *ret = cli_printf(c, "/api/companies/%s/environment-snapshots%s%s", company,
                                  name ? "/" : "", name ? cli_escape(c, name) : "");
        return r;
}

static int run_list(struct cli *c, const struct args *a UNUSED, struct err *err)
{
        static const struct column columns[] = {
                { "NAME", COLUMN_TEXT },   { "STATE", COLUMN_STATE },  { "SIZE", COLUMN_TEXT },
                { "ROOTFS", COLUMN_TEXT }, { "CREATED", COLUMN_TIME }, { "ID", COLUMN_ID },
        };
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        const char *path;
        size_t i;
        int r = snapshots_path(c, NULL, &path, err);

        table_init(&t, columns, ARRAY_LEN(columns));
        if (r >= 0)
                r = cli_call_list(c, cli_printf(c, "%s?limit=500", path), &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "name"), cli_text(item, "state"),
                                      size_text(c, item), cli_text(item, "rootfs"),
                                      cli_text(item, "createdAt"), cli_text(item, "id") });
        table_print(&t, "no snapshots");
        return 0;
}

static int call_one(struct cli *c, const struct args *a, const char *method, struct err *err)
{
        json_t *snapshot;
        const char *path;
        int r = snapshots_path(c, a->words[0], &path, err);

        if (r >= 0)
                r = cli_call(c, method, path, NULL, &snapshot, err);
        if (r >= 0)
                print_one(c, snapshot);
        return r;
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        return call_one(c, a, "GET", err);
}

static int run_delete(struct cli *c, const struct args *a, struct err *err)
{
        return call_one(c, a, "DELETE", err);
}

static int run_make(struct cli *c, const struct args *a, struct err *err)
{
        json_t *snapshot;
        const char *id;
        int r = lease_id(c, a->words[0], &id, err);

        if (r >= 0)
                r = cli_call(c, "POST", cli_printf(c, "/api/environment-leases/%s/snapshot", id),
                             json_pack("{s:s}", "name", a->words[1]), &snapshot, err);
        if (r >= 0)
                print_one(c, snapshot);
        return r;
}

const struct cli_command cmd_lease_snapshot = {
        .name = "snapshot",
        .synopsis = "LEASE NAME",
        .summary = "Keep what a sandbox wrote, for others to start from",
        .notes = "Needs storage=disk. /workspace and /tmp are not part of it.",
        .example = "berth lease snapshot $(berth lease list --json | jq -r '.[0].id') tools",
        .run = run_make,
        .min_words = 2,
        .max_words = 2,
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "",
        .summary = "List snapshots, newest first",
        .example = "berth snapshot list",
        .run = run_list,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "NAME|ID",
        .summary = "Show one snapshot",
        .example = "berth snapshot show tools",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command delete_one = {
        .name = "delete",
        .synopsis = "NAME|ID",
        .summary = "Delete a snapshot that nothing stands on",
        .example = "berth snapshot delete tools",
        .run = run_delete,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_snapshot = {
        .name = "snapshot",
        .synopsis = "",
        .summary = "List, show and delete snapshots of sandboxes",
        .notes =
                "`berth lease snapshot` makes one, `-o snapshot=NAME` of an environment starts from "
                "it.",
        .example = "berth snapshot list",
        .sub = (const struct cli_command *const[]){ &list, &show, &delete_one, NULL },
};
