/* The binary is daemon and command line in one: the command line decides, and gets what only the
 * daemon can do as hooks, because src/cli may not include src/daemon. */
#include <stdio.h>

#include "cli/cli.h"

static int serve(const struct cli_serve_options *options)
{
        (void)options;
        fputs("berth: the daemon is not built in yet\n", stderr);
        return 1;
}

static const struct cli_hooks hooks = { .serve = serve };

int main(int argc, char **argv)
{
        return cli_main(argc, argv, &hooks);
}
