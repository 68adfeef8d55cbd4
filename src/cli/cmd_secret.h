/* Shared by the files of `berth secret` and `berth vault`. One thread. */
#ifndef BERTH_CLI_CMD_SECRET_H
#define BERTH_CLI_CMD_SECRET_H

#include "cli/command.h"

extern const struct cli_command cmd_secret_create;
extern const struct cli_command cmd_secret_link;
extern const struct cli_command cmd_secret_rotate;
extern const struct cli_command cmd_secret_update;
extern const struct cli_command cmd_secret_enable;
extern const struct cli_command cmd_secret_disable;
extern const struct cli_command cmd_secret_delete;
extern const struct cli_command cmd_secret_rekey;
extern const struct cli_command cmd_secret_import;

/* By name, key, id, or a part of the id. */
int secret_find(struct cli *c, const char *given, json_t **ret, struct err *err);
int vault_find(struct cli *c, const char *given, json_t **ret, struct err *err);
/* As --json or as labelled values. */
void secret_print(struct cli *c, const json_t *secret);

#endif
