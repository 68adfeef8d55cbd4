#define _GNU_SOURCE
#include "base/util.h"

#include <stdarg.h>
#include <stdio.h>

void memory_exhausted(void)
{
        static const char text[] = "berth: out of memory\n";

        (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        abort();
}

void *xcalloc(size_t n, size_t size)
{
        void *p = calloc(n, size);

        if (!p)
                memory_exhausted();
        return p;
}

void *xrealloc(void *p, size_t size)
{
        p = realloc(p, size);
        if (!p)
                memory_exhausted();
        return p;
}

void *xaligned(size_t align, size_t size)
{
        void *p = aligned_alloc(align, (size + align - 1) / align * align);

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
        char *copy;

        n = strnlen(s, n);
        copy = xcalloc(1, n + 1);
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
        int n;

        va_start(ap, fmt);
        n = vasprintf(&s, fmt, ap);
        va_end(ap);
        if (n < 0)
                memory_exhausted();
        return s;
}
