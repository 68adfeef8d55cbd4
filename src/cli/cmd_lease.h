/* Shared by the files of `berth lease`. One thread. */
#ifndef BERTH_CLI_CMD_LEASE_H
#define BERTH_CLI_CMD_LEASE_H

#include "cli/command.h"

extern const struct cli_command cmd_lease_acquire;
extern const struct cli_command cmd_lease_renew;
extern const struct cli_command cmd_lease_release;
extern const struct cli_command cmd_lease_pause;
extern const struct cli_command cmd_lease_resume;
extern const struct cli_command cmd_lease_destroy;
extern const struct cli_command cmd_lease_exec;
extern const struct cli_command cmd_lease_executions;
extern const struct cli_command cmd_lease_output;
extern const struct cli_command cmd_lease_signal;
extern const struct cli_command cmd_lease_snapshot;

/* The whole id of the lease meant, without a request when it is whole already. */
int lease_id(struct cli *c, const char *given, const char **ret_id, struct err *err);

/* As --json or as labelled values. Takes a lease, or a lease record that holds one. */
void lease_print(struct cli *c, const json_t *lease_or_record);

#endif
