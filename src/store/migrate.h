/* Numbered migrations, embedded in the binary. Each runs in one transaction together with the row
 * that records it. A database that knows a number we do not know was written by a newer Berth and
 * is left alone (ERR_VERSION). */
#pragma once

#include "store/db.h"

/* Inside a write transaction. */
int migrate(struct db *db, struct err *err);
