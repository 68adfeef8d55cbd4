/* Objects of the daemon as tables and as labelled values, by tables of their members. One thread.
 */
#pragma once

#include "cli/output.h"

struct cli;

/* A column, or a labelled value. A table of them ends with a NULL title. */
struct field {
        const char *title;
        const char *key; /* member of the object; a dot leads into an object within it */
        enum column_kind kind;
        bool optional; /* of labelled values: no line when there is nothing to show */
        /* Instead of the member: what to show of the object. Lives as long as struct cli. */
        const char *(*text)(struct cli *c, const json_t *object);
};

#define FIELDS(...)                                                                                \
        (const struct field[])                                                                     \
        {                                                                                          \
                __VA_ARGS__,                                                                       \
                {                                                                                  \
                        0                                                                          \
                }                                                                                  \
        }

/* As labelled values. */
void fields_print(struct cli *c, const json_t *object, const struct field *fields);
/* As a table, without --json; `none` when the list is empty. */
void list_print(struct cli *c, const json_t *list, const struct field *columns, const char *none);

/* For a field: its member `bytes` in KiB or MiB. */
const char *size_text(struct cli *c, const json_t *object);

/* Text of several lines, each after `indent`. */
void text_print(const char *indent, const char *text);
