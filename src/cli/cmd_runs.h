/* Shared by the files of `berth runs`, and by commands that start a run and watch it. One
 * thread. */
#pragma once

#include "cli/command.h"

int cmd_runs_logs(struct cli *c, const struct args *a, struct err *err);
extern const struct field runs_columns[]; /* of a list of runs */

/* Print the log of a run from its beginning until the run is over, also when the daemon is
 * restarted meanwhile, and how the run ended. The exit status: 0 for a run that succeeded, else
 * 1. */
int runs_watch(struct cli *c, const char *run_id, struct err *err);
