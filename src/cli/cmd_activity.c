/* `berth activity`: the audit trail of a company, newest first. */
#include "cli/command.h"

static const char *actor_text(struct cli *c, const json_t *entry)
{
        return cli_printf(c, "%s:%s", cli_text(entry, "actorType"), cli_text(entry, "actorId"));
}

const struct cli_command activity_commands[] = {
        { "list", "[--limit N]", "List what happened, newest first",
          "berth activity list --limit 20",
          .options = OPTIONS({ "limit", "N", "at most this many (100, at most 500)", 'n' }),
          .act = { NULL, "GET", "/api/companies/{company}/activity",
                   .members = MEMBERS({ "limit", "limit", MEMBER_NUMBER }),
                   .columns = FIELDS({ "WHEN", "createdAt", COLUMN_TIME },
                                     { "ACTOR", .text = actor_text }, { "ACTION", "action" },
                                     { "ENTITY", "entityType" }, { "ID", "entityId", COLUMN_ID }),
                   .none = "no activity" } },
        { 0 },
};
