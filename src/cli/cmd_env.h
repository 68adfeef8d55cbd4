/* Shared by the files of `berth env`. One thread. */
#ifndef BERTH_CLI_CMD_ENV_H
#define BERTH_CLI_CMD_ENV_H

#include "cli/command.h"

/* cmd_env_write.c */
int cmd_env_create(struct cli *c, const struct args *a, struct err *err);
int cmd_env_update(struct cli *c, const struct args *a, struct err *err);
/* cmd_env_delete.c */
int cmd_env_delete(struct cli *c, const struct args *a, struct err *err);

/* cmd_env_ssh.c */
/* Whether the words are `ssh ADDRESS` and not `ssh NAME` with a configuration beside it. */
bool env_is_address(const struct args *a, const char *driver, const json_t *config);
/* Complete the configuration (*config may be NULL) and try it; *ret_name is what the environment is
 * called. */
int env_ssh_config(struct cli *c, const struct args *a, const char *company, json_t **config,
                   const char **ret_name, struct err *err);
/* With --accept-host-key: connect once more, so that the host's key is recorded now. */
int env_ssh_record(struct cli *c, const struct args *a, const json_t *environment, struct err *err);

#endif
