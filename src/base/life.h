/* What a look at the world says about a thing: it is there, it is not, or the look failed.
 *
 * Nothing is ended, removed or written off on LIFE_UNKNOWN. A daemon without a free descriptor
 * cannot open the lock of a sandbox that works, and a disk with a bad block cannot say what is on
 * it: neither is a proof that something is gone. docs/decisions/0014-cannot-tell.md lists every
 * look. */
#pragma once

#include <errno.h>

enum life { LIFE_NO, LIFE_YES, LIFE_UNKNOWN };

/* A look by name or by process id failed with this errno. Only those that say "there is none" prove
 * absence: no such name, no directory that could have it, no such process. */
static inline enum life life_by_errno(int errno_value)
{
        return errno_value == ENOENT || errno_value == ENOTDIR || errno_value == ESRCH
                       ? LIFE_NO
                       : LIFE_UNKNOWN;
}
