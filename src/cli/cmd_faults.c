/* `berth faults`, in the test build only: the names of all crash points (base/fault.h). */
#include "base/fault.h"

#ifdef BERTH_FAULTS

#include "cli/command.h"
#include "cli/output.h"

static void print_name(const char *name, void *arg UNUSED)
{
        out_line("%s", name);
}

int cmd_faults(struct cli *c UNUSED, const struct args *a UNUSED, struct err *err UNUSED)
{
        fault_each(print_name, NULL);
        return 0;
}

#endif
