#include "plugin/confine_internal.h"
int probe_main(const struct trampoline *t)
{
        (void)t;
        return 0;
}
