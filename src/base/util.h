/* Small things every file needs: scoped clean-up, moving ownership out of a scope, and the
 * allocators of bookkeeping memory.
 *
 * CLEAN(fn) on a local runs fn(&local) when the scope ends; every fn used with it accepts the
 * empty value (NULL, -1). take_ptr() and take_fd() empty the local, so that what it owned moves to
 * the caller.
 *
 * Memory: allocations whose size a foreign party chooses go through bounded buffers (buf.h), which
 * return errors. Everything else is bookkeeping; if that fails the process aborts, which is safe
 * because a crash is safe at every point (docs/decisions/0003-crash-only.md).
 *
 * Any thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h> /* MIN, MAX */
#include <unistd.h>

#define CLEAN(fn)         __attribute__((cleanup(fn)))
#define PRINTF(fmt, args) __attribute__((format(printf, fmt, args), nonnull(fmt)))
#define NORETURN          __attribute__((noreturn))
#define RETURNS_NONNULL   __attribute__((returns_nonnull))
#define UNUSED            __attribute__((unused))

#define ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

/* Empty *p and return what it held. */
#define take_ptr(p)                                                                                \
        __extension__({                                                                            \
                typeof(*(p)) held_ = *(p);                                                         \
                *(p) = NULL;                                                                       \
                held_;                                                                             \
        })

static inline int take_fd(int *fd)
{
        int held = *fd;

        *fd = -1;
        return held;
}

static inline void cleanup_free(void *p)
{
        free(*(void **)p);
}

static inline bool streq(const char *a, const char *b)
{
        return strcmp(a, b) == 0;
}

static inline bool str_starts(const char *s, const char *prefix)
{
        return strncmp(s, prefix, strlen(prefix)) == 0;
}

/* Value of a hexadecimal digit, or -1. */
static inline int hex_digit(char c)
{
        if (c >= '0' && c <= '9')
                return c - '0';
        if (c >= 'a' && c <= 'f')
                return c - 'a' + 10;
        if (c >= 'A' && c <= 'F')
                return c - 'A' + 10;
        return -1;
}

/* The block that the first failed allocation of the process gets, so that work under way can end:
 * hold one of that size, 0 for none. */
void memory_reserve(size_t size);
/* Whether the reserved block is in use. */
bool memory_is_short(void);

/* Says "out of memory" and aborts; see the note on memory above. */
NORETURN void memory_exhausted(void);
/* Allocate or abort in that way. */
RETURNS_NONNULL void *xcalloc(size_t n, size_t size);
RETURNS_NONNULL void *xrealloc(void *p, size_t size);
RETURNS_NONNULL void *xaligned(size_t align, size_t size); /* of a power of two */
RETURNS_NONNULL char *xstrdup(const char *s);
RETURNS_NONNULL char *xstrndup(const char *s,
                               size_t n); /* at most n bytes, less when s ends before */
/* A NULL-terminated list with copies of its strings (NULL: an empty one); and freeing it, when that
 * matters wiped before. */
RETURNS_NONNULL char **xstrv_copy(const char *const *list);
void strv_free(char **list);
void strv_wipe(char **list);
RETURNS_NONNULL char *xasprintf(const char *fmt, ...) PRINTF(1, 2);
