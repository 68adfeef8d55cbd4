/* `berth snapshot list|show|delete`. `berth lease snapshot` makes one (cmd_lease.c). */
#include "cli/command.h"

const struct cli_kind kind_snapshot = {
        .what = "snapshot",
        .path = "/api/companies/{company}/environment-snapshots",
        .fields = FIELDS(
                { "Name", COLUMN_TEXT, "name" }, { "Id", COLUMN_ID, "id" },
                { "State", COLUMN_STATE, "state" }, { "Size", COLUMN_TEXT, .text = size_text },
                { "Stands on", COLUMN_ID, "parentId" }, { "Rootfs", COLUMN_TEXT, "rootfs" },
                { "Lease", COLUMN_ID, "leaseId" }, { "Created", COLUMN_TIME, "createdAt" }),
};

const struct cli_command snapshot_commands[] = {
        { "list", "", "List snapshots, newest first", "berth snapshot list",
          .act = { .method = "GET",
                   .path = "/api/companies/{company}/environment-snapshots?limit=500",
                   .columns = FIELDS(
                           { "NAME", COLUMN_TEXT, "name" }, { "STATE", COLUMN_STATE, "state" },
                           { "SIZE", COLUMN_TEXT, .text = size_text },
                           { "ROOTFS", COLUMN_TEXT, "rootfs" },
                           { "CREATED", COLUMN_TIME, "createdAt" }, { "ID", COLUMN_ID, "id" }),
                   .none = "no snapshots" } },
        { "show", "NAME|ID", "Show one snapshot", "berth snapshot show tools", .words = 1,
          .act = { .kind = &kind_snapshot } },
        { "delete", "NAME|ID", "Delete a snapshot that nothing stands on",
          "berth snapshot delete tools", .words = 1,
          .act = { .kind = &kind_snapshot, .method = "DELETE" } },
        { 0 },
};
