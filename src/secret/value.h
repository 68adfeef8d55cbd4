/* A secret's value while it is in memory: its own pages, locked where the system allows it, kept
 * out of core dumps, wiped when given back. Never put one into an arena, a struct buf or an error.
 *
 * A value belongs to one thread at a time. */
#pragma once

#include "base/err.h"

#define SECRET_VALUE_MAX ((size_t)64 << 10)

struct secret_value {
        char *data; /* NUL after the last byte */
        size_t len;
};

/* Copy; the source is the caller's to wipe. ERR_TOO_LARGE past SECRET_VALUE_MAX. */
int secret_value_set(struct secret_value *value, const char *data, size_t len, struct err *err);
/* The same kind of memory, zeroed, for a text with a value in it: a request, an answer. The caller
 * bounds its size. */
int secret_value_room(struct secret_value *value, size_t len, struct err *err);
/* Room for `len` bytes, zeroed; the same limit. */
int secret_value_alloc(struct secret_value *value, size_t len, struct err *err);
/* Wipe and give back; fine on {0}. */
void secret_value_done(struct secret_value *value);
