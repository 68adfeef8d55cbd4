/* Values that must not be said: whatever a worker was given as a secret is cut out of everything it
 * makes us log or answer. Bounded: the last SECRET_SET_MAX values count. One thread at a time. */
#pragma once

#include "codec/redact.h"

#define SECRET_SET_MAX 64

struct secret_set {
        char *values[SECRET_SET_MAX];
        size_t next; /* where the next value goes */
        struct redactor *redactor;
        bool too_much; /* for one redactor */
};

/* NULL-terminated; NULL is none. Values that are known already are not taken twice. */
void secret_set_add(struct secret_set *s, const char *const *values);
/* Wipes them. */
void secret_set_done(struct secret_set *s);
/* Append text without the values. */
void secret_set_put(const struct secret_set *s, struct buf *b, const char *text, size_t len);
