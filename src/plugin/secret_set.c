/* Remembers values of secrets, and cuts them out of texts. */
#define _GNU_SOURCE
#include "plugin/secret_set.h"

static bool knows(const struct secret_set *s, const char *value)
{
        for (size_t i = 0; i < SECRET_SET_MAX; i++)
                if (s->values[i] && streq(s->values[i], value))
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

static void rebuild(struct secret_set *s)
{
        const char *list[SECRET_SET_MAX];
        size_t n = 0;

        for (size_t i = 0; i < SECRET_SET_MAX; i++)
                if (s->values[i])
                        list[n++] = s->values[i];
        redactor_free(s->redactor);
        s->redactor = redactor_new(list, n, &s->too_much);
}

void secret_set_add(struct secret_set *s, const char *const *values)
{
        bool changed = false;

        for (; values && *values; values++) {
                if (strlen(*values) < REDACT_MIN || knows(s, *values))
                        continue;
                forget(&s->values[s->next]);
                s->values[s->next] = xstrdup(*values);
                s->next = (s->next + 1) % SECRET_SET_MAX;
                changed = true;
        }
        if (changed)
                rebuild(s);
}

void secret_set_done(struct secret_set *s)
{
        for (size_t i = 0; i < SECRET_SET_MAX; i++)
                forget(&s->values[i]);
        redactor_free(s->redactor);
        s->redactor = NULL;
}

void secret_set_put(const struct secret_set *s, struct buf *b, const char *text, size_t len)
{
        if (s->too_much)
                buf_puts(b, REDACTED); /* then nothing may be said */
        else if (s->redactor)
                redact_text(s->redactor, text, len, b);
        else
                buf_append(b, text, len);
}
