/* The PostgreSQL back end of store.h. */
#pragma once

#include "store/store.h"

int pg_store_open(const char *url, struct store **ret, struct err *err);
