/* Values that must not be said: whatever a worker was given as a secret is cut out of everything it
 * makes us log or answer. Bounded: the last REDACT_MAX values count. One thread at a time. */
#ifndef BERTH_PLUGIN_REDACT_H
#define BERTH_PLUGIN_REDACT_H

#include "base/buf.h"

#define REDACT_MAX  64
#define REDACT_MARK "[redacted]"
/* Shorter ones would cut holes into every other word. */
#define REDACT_SHORTEST 4

struct redactor {
        char *values[REDACT_MAX];
        size_t next; /* where the next value goes */
};

/* NULL-terminated; NULL is none. Values that are known already are not taken twice. */
void redactor_add(struct redactor *r, const char *const *values);
/* Wipes them. */
void redactor_done(struct redactor *r);
/* Append text without the values. */
void redactor_put(const struct redactor *r, struct buf *b, const char *text);

#endif
