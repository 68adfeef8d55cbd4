/* The SQLite back end of store.h. */
#ifndef BERTH_STORE_SQLITE_STORE_H
#define BERTH_STORE_SQLITE_STORE_H

#include "store/store.h"

int sqlite_store_open(const char *path, struct store **ret, struct err *err);

#endif
