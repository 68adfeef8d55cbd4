/* `berth faults`, in the test build only: the names of all crash points (base/fault.h). */
#include "base/fault.h"

#ifdef BERTH_FAULTS

#include "cli/command.h"
#include "cli/output.h"

static void print_name(const char *name, void *arg UNUSED)
{
        out_line("%s", name);
}

static int run_faults(struct cli *c UNUSED, const struct args *a UNUSED, struct err *err UNUSED)
{
        fault_each(print_name, NULL);
        return 0;
}

const struct cli_command cmd_faults = {
        .name = "faults",
        .synopsis = "",
        .summary = "List the crash points of this test build",
        .example = "berth faults",
        .run = run_faults,
};

#endif
