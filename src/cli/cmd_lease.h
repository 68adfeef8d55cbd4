/* Shared by the files of `berth lease`. One thread. */
#ifndef BERTH_CLI_CMD_LEASE_H
#define BERTH_CLI_CMD_LEASE_H

#include "cli/command.h"

/* cmd_lease_act.c */
int cmd_lease_acquire(struct cli *c, const struct args *a, struct err *err);
int cmd_lease_renew(struct cli *c, const struct args *a, struct err *err);
int cmd_lease_release(struct cli *c, const struct args *a, struct err *err);
/* cmd_lease_exec.c */
int cmd_lease_exec(struct cli *c, const struct args *a, struct err *err);
int cmd_lease_output(struct cli *c, const struct args *a, struct err *err);
int cmd_lease_signal(struct cli *c, const struct args *a, struct err *err);

/* The whole id of the lease meant, without a request when it is whole already. */
int lease_id(struct cli *c, const char *given, const char **ret_id, struct err *err);

#endif
