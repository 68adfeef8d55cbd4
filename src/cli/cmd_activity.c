/* `berth activity`: the audit trail of a company, newest first. */
#include "cli/command.h"

static const char *actor_text(struct cli *c, const json_t *entry)
{
        return cli_printf(c, "%s:%s", cli_text(entry, "actorType"), cli_text(entry, "actorId"));
}

const struct cli_command activity_commands[] = {
        { "list", "[--limit N]", "List what happened, newest first",
          "berth activity list --limit 20",
          .options = OPTIONS(
                  { "limit", 'n', OPTION_VALUE, "N", "at most this many (100, at most 500)" }),
          .act = { .method = "GET",
                   .path = "/api/companies/{company}/activity",
                   .members = MEMBERS({ "limit", "limit", MEMBER_NUMBER }),
                   .columns = FIELDS({ "WHEN", COLUMN_TIME, "createdAt" },
                                     { "ACTOR", COLUMN_TEXT, .text = actor_text },
                                     { "ACTION", COLUMN_TEXT, "action" },
                                     { "ENTITY", COLUMN_TEXT, "entityType" },
                                     { "ID", COLUMN_ID, "entityId" }),
                   .none = "no activity" } },
        { 0 },
};
