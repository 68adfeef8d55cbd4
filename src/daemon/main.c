/* The binary is daemon and command line in one: the command line decides, and gets what only the
 * daemon can do as hooks, because src/cli may not include src/daemon. */
#include "cli/cli.h"
#include "daemon/serve.h"

int main(int argc, char **argv)
{
        static const struct cli_hooks hooks = { .serve = serve };

        return cli_main(argc, argv, &hooks);
}
