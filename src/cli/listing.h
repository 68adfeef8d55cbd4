/* Objects of the daemon as tables and as labelled values, by the names of their members. With
 * --json they are printed as they came. One thread. */
#ifndef BERTH_CLI_LISTING_H
#define BERTH_CLI_LISTING_H

#include "cli/command.h"
#include "cli/output.h"

struct field {
        const char *title;
        enum column_kind kind;
        const char *key; /* member of the object */
};

#define FIELDS_MAX 16

/* GET `path`, which answers a list, and print it; `none` when it is empty. */
int list_print(struct cli *c, const char *path, const struct field *fields, size_t n_fields,
               const char *none, struct err *err);
void object_print(struct cli *c, const json_t *object, const struct field *fields, size_t n_fields);
/* What of these there is; nothing with --json. */
void object_print_more(struct cli *c, const json_t *object, const struct field *fields,
                       size_t n_fields);

/* Text of several lines, each after `indent`. */
void text_print(const char *indent, const char *text);

/* Set a member that an option gave; nothing for NULL. ERR_USAGE when it is no UTF-8. */
int body_set(json_t *body, const char *key, const char *value, struct err *err);

#endif
