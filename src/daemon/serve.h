/* `berth serve`: start, run until told to stop, stop in order. */
#pragma once

#include "cli/cli.h"

/* Returns the exit status of the process. */
int serve(const struct cli_serve_options *options);
