/* Between the files of the module. */
#pragma once

#include "core/kinds/command/command_descriptor.h"
#include "core/kinds/kind.h"

extern const char *const command_word_names[WORD_N];
extern const char *const command_failures[]; /* in the order of their enum; NULL-terminated */

/* The next `${name}` of a text; `$${` is the text `${`. */
struct command_place_holder {
        const char *begin, *end; /* of all of it */
        const char *name;
        size_t len;
};
bool command_next_holder(const char *text, struct command_place_holder *ret);
bool command_option_is_secret(const json_t *option);

/* A kind and the descriptor that it was made from. Immutable. */
struct command_kind {
        struct kind kind;
        json_t *descriptor;
        json_t *schema; /* of its configuration */
        char *path;     /* the file; NULL: it came with the program */
};

static inline const struct command_kind *command_kind_of(const struct kind *kind)
{
        return container_of(kind, const struct command_kind, kind);
}

/* command_config.c: members of struct kind. */
int command_normalize(const struct kind *kind, json_t *config, enum config_form form, json_t **ret,
                      struct err *err);
json_t *command_schema(const struct kind *kind);
int command_may_save(const struct op *op, const struct runtime *rt, const json_t *config,
                     struct err *err);
int command_validate(struct op *op, struct runtime *rt, json_t **config, const json_t **ret_schema,
                     struct err *err);
/* Without the members that a place's record adds (`$there`). A new reference. */
json_t *command_config_of(const json_t *recorded);
