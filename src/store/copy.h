/* Copying every row of one database into another one, whatever back ends they have. */
#pragma once

#include "store/db.h"

struct copy_count {
        int64_t tables, rows;
};

/* Inside store_write() of the target, whose tables are there and empty, beside a read of the
 * source, which has the same version. Each table is compared afterwards, as it is in the
 * transaction: a difference is an error, and the target stays as it was. Text that is no UTF-8
 * arrives with U+FFFD in its place. ERR_CONFLICT: the target is not empty. The arena outlives both
 * connections, which keep statements by their address. */
int copy_rows(struct db *from, struct db *to, struct arena *arena, struct copy_count *ret,
              struct err *err);
