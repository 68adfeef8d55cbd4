/* The SQLite back end of store.h. */
#pragma once

#include "store/store.h"

int sqlite_store_open(const char *path, struct store **ret, struct err *err);
