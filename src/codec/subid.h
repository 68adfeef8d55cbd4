/* Lines of /etc/subuid and /etc/subgid: user:first:count. Pure; any thread. */
#pragma once

#include <sys/types.h>

#include "base/util.h"

struct id_range {
        int64_t first, count;
};

/* The largest range that the text gives to a user, by name (may be NULL) or number. False when it
 * gives none. */
bool subid_largest(const char *text, size_t len, const char *name, uid_t uid, struct id_range *ret);
/* The ids that are in both; count 0 when there are none. */
struct id_range id_range_common(struct id_range a, struct id_range b);
