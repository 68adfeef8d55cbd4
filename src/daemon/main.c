/* The binary is daemon and command line in one: the command line decides, and gets what only the
 * daemon can do as hooks, because src/cli may not include src/daemon. */
#include "cli/cli.h"
#include "conformance/conformance.h"
#include "daemon/database.h"
#include "daemon/serve.h"
#include "plugin/confine.h"
#include "rt/become.h"
#include "ssh/tied.h"

int main(int argc, char **argv)
{
        static const struct cli_hooks hooks = { .serve = serve,
                                                .conformance = conformance,
                                                .database = database };

        if (confine_is_trampoline(argv[0]))
                return confine_main(argc, argv);
        if (tied_is_trampoline(argv[0]))
                return tied_main(argc, argv);
        if (become_is_trampoline(argv[0]))
                return become_main(argc, argv);
        return cli_main(argc, argv, &hooks);
}
