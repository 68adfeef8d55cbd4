/* Memory of an arena: blocks that are filled one after the other and freed together. */
#include "base/arena.h"

#include <ctype.h>
#include <stdalign.h>
#include <stdio.h>

#define CHUNK_SIZE ((size_t)4096)

struct arena_defer_entry {
        struct arena_defer_entry *next;
        void (*fn)(void *);
        void *arg;
};

/* The newest chunk is first and the only one with room worth using. Deferred calls hang off the
 * chunk that was newest when they were registered, so walking chunks in order runs them in reverse.
 */
struct arena_chunk {
        struct arena_chunk *next;
        struct arena_defer_entry *defers;
        size_t used, size;
        alignas(max_align_t) char data[];
};

void arena_init(struct arena *a)
{
        a->chunks = NULL;
}

void arena_done(struct arena *a)
{
        struct arena_chunk *c, *next;

        for (c = a->chunks; c; c = c->next)
                for (struct arena_defer_entry *d = c->defers; d; d = d->next)
                        d->fn(d->arg);
        for (c = a->chunks; c; c = next) {
                next = c->next;
                free(c);
        }
        a->chunks = NULL;
}

void *arena_alloc(struct arena *a, size_t size)
{
        struct arena_chunk *c = a->chunks;

        if (size > SIZE_MAX / 2)
                abort();
        size = (size + alignof(max_align_t) - 1) & ~(alignof(max_align_t) - 1);
        if (!c || c->size - c->used < size) {
                size_t room = MAX(size, CHUNK_SIZE - sizeof(*c));

                c = xcalloc(1, sizeof(*c) + room);
                c->size = room;
                c->next = a->chunks;
                a->chunks = c;
        }
        void *p = c->data + c->used;
        c->used += size;
        return p;
}

void *arena_more(struct arena *a, void *at, size_t n, size_t *room, size_t size)
{
        size_t larger = *room ? 2 * *room : 8;

        if (n < *room)
                return at;
        if (larger > SIZE_MAX / 2 / size)
                abort();
        void *copy = arena_alloc(a, larger * size);
        if (n > 0)
                memcpy(copy, at, n * size);
        *room = larger;
        return copy;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
        n = strnlen(s, n);
        char *copy = arena_alloc(a, n + 1);
        memcpy(copy, s, n);
        return copy;
}

char *arena_strdup(struct arena *a, const char *s)
{
        return s ? arena_strndup(a, s, strlen(s)) : NULL;
}

char *arena_strtrim(struct arena *a, const char *s)
{
        if (!s)
                return NULL;
        while (isspace((unsigned char)*s))
                s++;
        size_t n = strlen(s);
        while (n > 0 && isspace((unsigned char)s[n - 1]))
                n--;
        return n > 0 ? arena_strndup(a, s, n) : NULL;
}

char *arena_slug(struct arena *a, const char *name)
{
        char *out = arena_alloc(a, strlen(name) + 1);
        size_t n = 0;

        for (; *name; name++) {
                if (isalnum((unsigned char)*name))
                        out[n++] = (char)tolower((unsigned char)*name);
                else if (n > 0 && out[n - 1] != '-')
                        out[n++] = '-';
        }
        while (n > 0 && out[n - 1] == '-')
                n--;
        out[n] = '\0';
        return out;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        int n = vsnprintf(NULL, 0, fmt, ap);
        va_end(ap);
        if (n < 0)
                abort();
        char *s = arena_alloc(a, (size_t)n + 1);
        va_start(ap, fmt);
        (void)vsnprintf(s, (size_t)n + 1, fmt, ap);
        va_end(ap);
        return s;
}

void arena_defer(struct arena *a, void (*fn)(void *), void *arg)
{
        struct arena_defer_entry *d = arena_new(a, struct arena_defer_entry);

        d->fn = fn;
        d->arg = arg;
        d->next = a->chunks->defers;
        a->chunks->defers = d;
}
