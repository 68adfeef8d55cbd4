/* Numbered migrations, embedded in the binary. Each runs in one transaction together with the row
 * that records it. A database that knows a number we do not know was written by a newer Berth and
 * is left alone (ERR_VERSION). */
#pragma once

#include "store/db.h"

/* ERR_VERSION when it is newer than ours, or 0. The database has the table of versions. */
int migrate_check(struct db *db, struct err *err);
/* The same, and ERR_VERSION also when it is older. */
int migrate_check_same(struct db *db, struct err *err);
/* Inside a write transaction. */
int migrate(struct db *db, struct err *err);
