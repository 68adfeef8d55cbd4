/* `berth db`: the database as a file. Backing it up and checking it go on beside a daemon;
 * restoring needs the data directory for itself. */
#pragma once

#include "cli/cli.h"

/* Prints how it went. Returns the exit status: 0 done, 1 failed or something was found. */
int database(const struct cli_database_options *options);
