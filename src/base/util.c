/* Allocating bookkeeping memory, with a reserve for the first allocation that fails. */
#define _GNU_SOURCE
#include "base/util.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

void memory_exhausted(void)
{
        static const char text[] = "berth: out of memory\n";

        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        abort();
}

/* The block that is held for the first allocation that fails. */
static _Atomic(void *) spare;
static atomic_bool spare_is_used;

void memory_reserve(size_t size)
{
        void *block = size ? malloc(size) : NULL;

        free(atomic_exchange(&spare, block));
        atomic_store(&spare_is_used, size > 0 && !block);
}

bool memory_is_short(void)
{
        return atomic_load(&spare_is_used);
}

/* True: the block was there, so trying again may help. */
static bool use_spare(void)
{
        void *block = atomic_exchange(&spare, NULL);

        if (!block)
                return false;
        atomic_store(&spare_is_used, true);
        free(block);
        return true;
}

void *xcalloc(size_t n, size_t size)
{
        void *p;

        do
                p = calloc(n, size);
        while (!p && use_spare());
        if (!p)
                memory_exhausted();
        return p;
}

void *xrealloc(void *p, size_t size)
{
        void *grown;

        do
                grown = realloc(p, size);
        while (!grown && use_spare());
        if (!grown)
                memory_exhausted();
        return grown;
}

void *xaligned(size_t align, size_t size)
{
        void *p;

        do
                p = aligned_alloc(align, (size + align - 1) / align * align);
        while (!p && use_spare());
        if (!p)
                memory_exhausted();
        return memset(p, 0, size);
}

char *xstrdup(const char *s)
{
        return xstrndup(s, strlen(s));
}

char *xstrndup(const char *s, size_t n)
{
        n = strnlen(s, n);
        char *copy = xcalloc(1, n + 1);
        memcpy(copy, s, n);
        return copy;
}

char **xstrv_copy(const char *const *list)
{
        size_t n = 0;
        char **copy;

        while (list && list[n])
                n++;
        copy = xcalloc(n + 1, sizeof(*copy));
        for (size_t i = 0; i < n; i++)
                copy[i] = xstrdup(list[i]);
        return copy;
}

void strv_free(char **list)
{
        for (char **s = list; s && *s; s++)
                free(*s);
        free(list);
}

void strv_wipe(char **list)
{
        for (char **s = list; s && *s; s++)
                explicit_bzero(*s, strlen(*s));
        strv_free(list);
}

char *xasprintf(const char *fmt, ...)
{
        va_list ap;
        char *s;

        va_start(ap, fmt);
        int n = vasprintf(&s, fmt, ap);
        va_end(ap);
        if (n < 0)
                memory_exhausted();
        return s;
}
