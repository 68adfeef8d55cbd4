#define _GNU_SOURCE
#include "box/box_sandbox.h"

int check_main(struct sandbox *s)
{
        (void)s;
        return 0;
}
