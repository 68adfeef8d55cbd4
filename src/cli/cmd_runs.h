/* Shared by the files of `berth runs`, and for whoever starts a run and watches it. One thread. */
#ifndef BERTH_CLI_CMD_RUNS_H
#define BERTH_CLI_CMD_RUNS_H

#include "cli/command.h"

extern const struct cli_command cmd_runs_logs;

/* By id, or by a part of the id of one of the newest. */
int cli_run(struct cli *c, const char *given, json_t **ret, struct err *err);
/* A table of runs; GET `path` answers a list of them. */
int runs_print_list(struct cli *c, const char *path, struct err *err);

/* Print it from its beginning until the run is over, also when the daemon is restarted meanwhile.
 * *ret_status is the run's status at the end; the arena's. */
int runs_follow_log(struct cli *c, const char *run_id, const char **ret_status, struct err *err);
/* On standard error: how it ended, and why, then `more` (may be ""). */
void runs_say_end(struct cli *c, const char *run_id, const char *status, const char *more);
/* 0 for a run that succeeded, else 1. */
int runs_exit_status(const char *run_status);

#endif
