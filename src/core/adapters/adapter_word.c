/* The last word of an agent: the event after which there is nothing more to wait for, although the
 * program may live on. Each line is searched for it while the program runs, so most lines must cost
 * next to nothing. */
#define _GNU_SOURCE
#include "core/adapters/adapter_parse.h"

#define LINGER_DEFAULT_S 5
#define LINGER_MAX_S     86400

static const json_t *output_of(const char *type)
{
        const struct adapter_descriptor *d = adapter_find(type);

        return d ? json_get_object(d->json, "output") : NULL;
}

static bool is_last(const json_t *rule)
{
        return json_is_true(json_object_get(rule, "end"));
}

static bool has_word(const char *line, size_t len, const char *word, size_t n)
{
        const char *end = line + len, *at = line;

        while ((at = memmem(at, (size_t)(end - at), word, n))) {
                if (at > line && at[-1] == '"' && at + n < end && at[n] == '"')
                        return true;
                at++;
        }
        return false;
}

bool adapter_event_may_match(const json_t *match, const char *line, size_t len)
{
        const char *path;
        json_t *wanted;

        json_object_foreach((json_t *)match, path, wanted)
        {
                if (json_is_string(wanted) &&
                    !has_word(line, len, json_string_value(wanted), json_string_length(wanted)))
                        return false;
        }
        return true;
}

static bool may_be(const json_t *output, const char *line, size_t len)
{
        size_t i;
        json_t *rule;

        json_array_foreach(json_object_get(output, "events"), i, rule)
        {
                if (is_last(rule) &&
                    adapter_event_may_match(json_object_get(rule, "match"), line, len))
                        return true;
        }
        return false;
}

bool adapter_has_last_word(const char *type)
{
        size_t i;
        json_t *rule;

        json_array_foreach(json_object_get(output_of(type), "events"), i, rule)
        {
                if (is_last(rule))
                        return true;
        }
        return false;
}

int64_t adapter_last_word(const char *type, const char *line, size_t len)
{
        const json_t *output = output_of(type);
        CLEAN(json_decrefp) json_t *event = NULL;
        size_t skip, i;
        json_t *rule;

        if (!may_be(output, line, len))
                return 0;
        skip = adapter_line_begin(output, line, len);
        if (skip == len || line[skip] != '{' ||
            json_parse(line + skip, len - skip, &event, NULL) < 0)
                return 0;
        json_array_foreach(json_object_get(output, "events"), i, rule)
        {
                const json_t *when = json_object_get(rule, "when");

                if (is_last(rule) && adapter_event_matches(json_object_get(rule, "match"), event) &&
                    (!when || adapter_holds(when, event)))
                        return MAX(json_integer_value(json_object_get(rule, "times")), 1);
        }
        return 0;
}

int64_t adapter_linger_ms(const char *type)
{
        const json_t *s = json_object_get(output_of(type), "lingerSec");

        return 1000 * (s ? MIN(json_integer_value(s), LINGER_MAX_S) : LINGER_DEFAULT_S);
}
