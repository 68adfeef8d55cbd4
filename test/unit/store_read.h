/* A read transaction for one function, as tests want it. */
#pragma once

#include "store/store.h"

static inline int store_read(const struct op *op, struct store *s, store_fn fn, void *arg,
                             struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, s, &db, err);

        return r < 0 ? r : fn(db, arg, err);
}
