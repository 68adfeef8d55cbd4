/* Memory with one owner and one end: everything of a request or an operation is taken from its
 * arena and goes when the arena goes. Nothing is freed singly.
 *
 * Bookkeeping memory: allocation aborts when the machine has none (base/util.h).
 * One thread at a time. */
#pragma once

#include <stdarg.h>

#include "base/util.h"

struct arena {
        struct arena_chunk *chunks;
};

void arena_init(struct arena *a);
void arena_done(struct arena *a);

/* Zeroed, aligned for any type. */
void *arena_alloc(struct arena *a, size_t size);
char *arena_strdup(struct arena *a, const char *s);            /* NULL gives NULL */
char *arena_strndup(struct arena *a, const char *s, size_t n); /* as xstrndup() */
/* Without white space around it; NULL when s is NULL or blank. */
char *arena_strtrim(struct arena *a, const char *s);
/* The name as a part of an address: "Ada Lovelace" gives ada-lovelace. */
char *arena_slug(struct arena *a, const char *name);
char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF(2, 3);

/* An array that grows: room for one more behind its n elements. The array itself, or a larger copy
 * when n has reached *room; start with NULL, 0 and 0. */
void *arena_more(struct arena *a, void *at, size_t n, size_t *room, size_t size);

#define arena_new(a, type) ((type *)arena_alloc((a), sizeof(type)))

/* Run fn(arg) when the arena ends, in reverse order of registration. */
void arena_defer(struct arena *a, void (*fn)(void *), void *arg);
