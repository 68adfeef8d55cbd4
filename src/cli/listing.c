#include "cli/listing.h"

static const char *field_text(struct cli *c, const json_t *object, const char *key)
{
        const json_t *value = json_object_get(object, key);
        CLEAN(cleanup_free) char *text = NULL;

        if (json_is_string(value))
                return json_string_value(value);
        text = out_scalar(value);
        return cli_printf(c, "%s", text);
}

int list_print(struct cli *c, const char *path, const struct field *fields, size_t n_fields,
               const char *none, struct err *err)
{
        struct column columns[FIELDS_MAX];
        const char *cells[FIELDS_MAX];
        CLEAN(table_done) struct table t;
        json_t *list, *item;
        size_t i;
        int r = cli_call_list(c, path, &list, err);

        for (size_t k = 0; k < n_fields; k++)
                columns[k] = (struct column){ fields[k].title, fields[k].kind };
        table_init(&t, columns, n_fields);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item)
        {
                for (size_t k = 0; k < n_fields; k++)
                        cells[k] = field_text(c, item, fields[k].key);
                table_row(&t, cells);
        }
        table_print(&t, none);
        return 0;
}

void object_print(struct cli *c, const json_t *object, const struct field *fields, size_t n_fields)
{
        if (c->json) {
                out_json(object);
                return;
        }
        for (size_t k = 0; k < n_fields; k++)
                out_label(fields[k].title, fields[k].kind, field_text(c, object, fields[k].key));
}

void object_print_more(struct cli *c, const json_t *object, const struct field *fields,
                       size_t n_fields)
{
        for (size_t k = 0; !c->json && k < n_fields; k++) {
                const char *text = field_text(c, object, fields[k].key);

                if (*text)
                        out_label(fields[k].title, fields[k].kind, text);
        }
}

void text_print(const char *indent, const char *text)
{
        while (*text) {
                size_t n = strcspn(text, "\n");

                out_line("%s%.*s", indent, (int)n, text);
                text += n + (text[n] == '\n');
        }
}

int body_set(json_t *body, const char *key, const char *value, struct err *err)
{
        if (value && json_object_set_new(body, key, json_string(value)) < 0)
                return err_set(err, ERR_USAGE, "the value for %s is not UTF-8 text", key);
        return 0;
}
