/* `berth serve`: start, run until told to stop, stop in order. */
#ifndef BERTH_DAEMON_SERVE_H
#define BERTH_DAEMON_SERVE_H

#include "cli/cli.h"

/* Returns the exit status of the process. */
int serve(const struct cli_serve_options *options);

#endif
