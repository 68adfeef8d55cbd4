#define _GNU_SOURCE
#include "plugin/redact.h"

static bool knows(const struct redactor *r, const char *value)
{
        for (size_t i = 0; i < REDACT_MAX; i++)
                if (r->values[i] && streq(r->values[i], value))
                        return true;
        return false;
}

static void forget(char **value)
{
        if (*value)
                explicit_bzero(*value, strlen(*value));
        free(*value);
        *value = NULL;
}

void redactor_add(struct redactor *r, const char *const *values)
{
        for (; values && *values; values++) {
                if (strlen(*values) < REDACT_SHORTEST || knows(r, *values))
                        continue;
                forget(&r->values[r->next]);
                r->values[r->next] = xstrdup(*values);
                r->next = (r->next + 1) % REDACT_MAX;
        }
}

void redactor_done(struct redactor *r)
{
        for (size_t i = 0; i < REDACT_MAX; i++)
                forget(&r->values[i]);
}

/* The longest value at s: one may begin with another. */
static size_t value_at(const struct redactor *r, const char *s)
{
        size_t longest = 0;

        for (size_t i = 0; i < REDACT_MAX; i++)
                if (r->values[i] && str_starts(s, r->values[i]))
                        longest = MAX(longest, strlen(r->values[i]));
        return longest;
}

void redactor_put(const struct redactor *r, struct buf *b, const char *text)
{
        const char *done = text;

        while (*text) {
                size_t n = value_at(r, text);

                if (n == 0) {
                        text++;
                        continue;
                }
                buf_append(b, done, (size_t)(text - done));
                buf_puts(b, REDACT_MARK);
                text += n;
                done = text;
        }
        buf_append(b, done, (size_t)(text - done));
}
