/* Shared by the files of `berth env`. One thread. */
#ifndef BERTH_CLI_CMD_ENV_H
#define BERTH_CLI_CMD_ENV_H

#include "cli/command.h"

extern const struct cli_command cmd_env_create;
extern const struct cli_command cmd_env_update;
extern const struct cli_command cmd_env_delete;

/* As --json or as labelled values. */
void env_print(struct cli *c, const json_t *environment);

#endif
