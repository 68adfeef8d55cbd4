/* Prints JSON objects as tables and labelled values, by tables of their members. */
#include "cli/listing.h"

#include <stdio.h>

#include "cli/command.h"

#define FIELDS_MAX 16

static const json_t *find_member(const json_t *object, const char *key)
{
        const char *dot = key ? strchr(key, '.') : NULL;
        char outer[32];

        if (!dot)
                return key ? json_object_get(object, key) : NULL;
        snprintf(outer, sizeof(outer), "%.*s", (int)(dot - key), key);
        return find_member(json_object_get(object, outer), dot + 1);
}

static const char *field_text(struct cli *c, const json_t *object, const struct field *field)
{
        CLEAN(cleanup_free) char *text = NULL;

        if (field->text)
                return field->text(c, object);
        const json_t *value = find_member(object, field->key);
        if (json_is_string(value))
                return json_string_value(value);
        text = out_scalar(value);
        return cli_printf(c, "%s", text);
}

void list_print(struct cli *c, const json_t *list, const struct field *columns, const char *none)
{
        struct column titles[FIELDS_MAX];
        const char *cells[FIELDS_MAX];
        CLEAN(table_done) struct table t;
        json_t *item;
        size_t n = 0, i;

        for (; columns[n].title; n++)
                titles[n] = (struct column){ columns[n].title, columns[n].kind };
        table_init(&t, titles, n);
        json_array_foreach(list, i, item)
        {
                for (size_t k = 0; k < n; k++)
                        cells[k] = field_text(c, item, &columns[k]);
                table_row(&t, cells);
        }
        table_print(&t, none);
}

void fields_print(struct cli *c, const json_t *object, const struct field *fields)
{
        for (const struct field *f = fields; f->title; f++) {
                const json_t *value = find_member(object, f->key);
                const char *text = f->kind == COLUMN_JSON ? "" : field_text(c, object, f);

                if (f->kind == COLUMN_JSON && (!f->optional || (value && !json_is_null(value))))
                        out_label_json(f->title, value);
                else if (f->kind != COLUMN_JSON && (*text || !f->optional))
                        out_label(f->title, f->kind, text);
        }
}

const char *size_text(struct cli *c, const json_t *object)
{
        json_int_t bytes = json_integer_value(json_object_get(object, "bytes"));

        if (bytes < 1 << 20)
                return cli_printf(c, "%lld KiB", (long long)(bytes + 1023) / 1024);
        return cli_printf(c, "%.1f MiB", (double)bytes / (1 << 20));
}

void text_print(const char *indent, const char *text)
{
        while (*text) {
                size_t n = strcspn(text, "\n");

                out_line("%s%.*s", indent, (int)n, text);
                text += n + (text[n] == '\n');
        }
}
