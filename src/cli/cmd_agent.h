/* Shared by the files of `berth agent`. One thread. */
#ifndef BERTH_CLI_CMD_AGENT_H
#define BERTH_CLI_CMD_AGENT_H

#include "cli/command.h"

/* cmd_agent_write.c */
int cmd_agent_create(struct cli *c, const struct args *a, struct err *err);
int cmd_agent_update(struct cli *c, const struct args *a, struct err *err);
/* cmd_agent_wake.c */
int cmd_agent_wake(struct cli *c, const struct args *a, struct err *err);
/* Set in `body` what --every, --cron and --no-timer say; the rest of the runtimeConfig is that of
 * `agent` (NULL: a new one). */
int agent_timer(struct cli *c, const struct args *a, const json_t *agent, json_t *body,
                struct err *err);

#endif
