/* `berth snapshot list|show|delete`. `berth lease snapshot` makes one (cmd_lease.c). */
#include "cli/command.h"

const struct cli_kind kind_snapshot = {
        .what = "snapshot",
        .path = "/api/companies/{company}/environment-snapshots",
        .fields =
                FIELDS({ "Name", "name" }, { "Id", "id", COLUMN_ID },
                       { "State", "state", COLUMN_STATE }, { "Size", .text = size_text },
                       { "Stands on", "parentId", COLUMN_ID }, { "Rootfs", "rootfs" },
                       { "Lease", "leaseId", COLUMN_ID }, { "Created", "createdAt", COLUMN_TIME }),
};

const struct cli_command snapshot_commands[] = {
        { "list", "", "List snapshots, newest first", "berth snapshot list",
          .act = { NULL, "GET", "/api/companies/{company}/environment-snapshots?limit=500",
                   .columns = FIELDS({ "NAME", "name" }, { "STATE", "state", COLUMN_STATE },
                                     { "SIZE", .text = size_text }, { "ROOTFS", "rootfs" },
                                     { "CREATED", "createdAt", COLUMN_TIME },
                                     { "ID", "id", COLUMN_ID }),
                   .none = "no snapshots" } },
        { "show", "NAME|ID", "Show one snapshot", "berth snapshot show tools", .words = 1,
          .act = { &kind_snapshot } },
        { "delete", "NAME|ID", "Delete a snapshot that nothing stands on",
          "berth snapshot delete tools", .words = 1, .act = { &kind_snapshot, "DELETE" } },
        { 0 },
};
