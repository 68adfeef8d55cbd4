/* Decides what people see of an agent's output: its events as turns, tool calls and their results.
 */
#include "core/adapters/adapter_parse.h"

static const json_t *transcript_rules(const char *type)
{
        const struct adapter_descriptor *d = adapter_find(type);

        return d ? json_object_get(d->json, "transcript") : NULL;
}

bool adapter_has_transcript(const char *type)
{
        return json_array_size(transcript_rules(type)) > 0;
}

struct gathered {
        struct buf text;
        json_t *value; /* the last one that is set; borrowed */
};

static void gather_value(void *ctx, const json_t *value)
{
        struct gathered *g = ctx;

        if (!adapter_is_set(value))
                return;
        g->value = (json_t *)value;
        if (json_is_string(value)) {
                if (g->text.len > 0)
                        buf_putc(&g->text, '\n');
                buf_append(&g->text, json_string_value(value), json_string_length(value));
        }
}

/* The first of the paths that finds something. */
static void gather(const json_t *paths, const json_t *from, struct gathered *g)
{
        size_t i;
        json_t *path;

        if (json_is_string(paths))
                adapter_path_each(from, json_string_value(paths), gather_value, g);
        json_array_foreach((json_t *)paths, i, path)
        {
                if (!g->value || (!json_is_string(g->value) && g->text.len == 0))
                        adapter_path_each(from, json_string_value(path), gather_value, g);
        }
}

struct making {
        const json_t *rule;
        json_t *records;
        bool as_steps;
};

static void set_member(json_t *record, const char *name, const json_t *paths, const json_t *from,
                       bool as_text)
{
        struct gathered g = { 0 };

        gather(paths, from, &g);
        if (g.text.len > 0)
                json_object_set_new(record, name, json_stringn(buf_str(&g.text), g.text.len));
        else if (g.value && !as_text)
                json_object_set_new(record, name, json_deep_copy(g.value));
        buf_done(&g.text);
}

static void make_record(void *ctx, const json_t *from)
{
        static const char *const texts[] = { "text", "id", "name" };
        static const char *const counters[] = { "input", "cached", "output" };
        struct making *m = ctx;
        const json_t *failed = json_object_get(m->rule, "failed");
        const json_t *tokens = json_object_get(m->rule, "tokens");
        json_t *record = json_pack("{s:O}", "kind", json_object_get(m->rule, "kind"));

        for (size_t i = 0; i < ARRAY_LEN(texts); i++)
                set_member(record, texts[i], json_object_get(m->rule, texts[i]), from, true);
        set_member(record, "input", json_object_get(m->rule, "input"), from, false);
        if (failed)
                json_object_set_new(record, "failed", json_boolean(adapter_holds(failed, from)));
        if (tokens) {
                json_t *counted = json_object();

                for (size_t i = 0; i < ARRAY_LEN(counters); i++)
                        set_member(counted, counters[i], json_object_get(tokens, counters[i]), from,
                                   false);
                json_object_set_new(record, "tokens", counted);
        }
        if (json_object_size(record) == 1) {
                json_decref(record);
                return;
        }
        if (m->as_steps)
                json_object_set(record, "event", json_object_get(m->rule, "event"));
        json_array_append_new(m->records, record);
}

static size_t event_begin(const char *type, const char *line, size_t len)
{
        const struct adapter_descriptor *d = adapter_find(type);

        return adapter_line_begin(d ? json_get_object(d->json, "output") : NULL, line, len);
}

static void make_records(const char *type, const json_t *event, bool as_steps, json_t *records)
{
        size_t i;
        json_t *rule;

        json_array_foreach((json_t *)transcript_rules(type), i, rule)
        {
                const json_t *when = json_object_get(rule, "when");
                struct making m = { rule, records, as_steps };

                if ((as_steps && !json_object_get(rule, "event")) ||
                    !adapter_event_matches(json_object_get(rule, "match"), event) ||
                    (when && !adapter_holds(when, event)))
                        continue;
                if (json_get_string(rule, "each"))
                        adapter_path_each(event, json_get_string(rule, "each"), make_record, &m);
                else
                        make_record(&m, event);
        }
}

void adapter_transcript(const char *type, const char *line, size_t len, json_t *records)
{
        CLEAN(json_decrefp) json_t *event = NULL;
        size_t skip = event_begin(type, line, len);

        if (skip == len)
                return;
        if (line[skip] == '{' && json_parse(line + skip, len - skip, &event, NULL) >= 0)
                make_records(type, event, false, records);
        else
                json_array_append_new(
                        records, json_pack("{s:s, s:s%}", "kind", "output", "text", line, len));
}

/* -- Steps: records that are events of the run ------------------------------------------------- */

static bool may_be_step(const char *type, const char *line, size_t len)
{
        size_t i;
        json_t *rule;

        json_array_foreach((json_t *)transcript_rules(type), i, rule)
        {
                if (json_object_get(rule, "event") &&
                    adapter_event_may_match(json_object_get(rule, "match"), line, len))
                        return true;
        }
        return false;
}

bool adapter_has_steps(const char *type)
{
        size_t i;
        json_t *rule;

        json_array_foreach((json_t *)transcript_rules(type), i, rule)
        {
                if (json_object_get(rule, "event"))
                        return true;
        }
        return false;
}

void adapter_steps(const char *type, const char *line, size_t len, json_t *records)
{
        CLEAN(json_decrefp) json_t *event = NULL;
        size_t skip;

        if (!may_be_step(type, line, len))
                return;
        skip = event_begin(type, line, len);
        if (skip < len && line[skip] == '{' &&
            json_parse(line + skip, len - skip, &event, NULL) >= 0)
                make_records(type, event, true, records);
}
