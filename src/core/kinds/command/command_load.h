/* The kinds that descriptors make: those that come with the program, and an operator's own. */
#pragma once

#include "core/kinds/kind.h"

struct command_kinds;

/* The built-in kinds, and one for each descriptor: those of the program, then the *.json of `dir`
 * (NULL: none), of which one with the name of an earlier one takes its place. A file that cannot be
 * used is left out, and `complain` says why. Lives until command_kinds_free(). */
struct command_kinds *command_kinds_load(const char *dir,
                                         void (*complain)(void *ctx, const char *text), void *ctx);
const struct kind *const *command_kinds_list(const struct command_kinds *all);
void command_kinds_free(struct command_kinds *all);

/* Why files were left out: the first, second …; NULL at the end. `all` may be NULL. */
const char *command_kinds_refused(const struct command_kinds *all, size_t i);

/* Run one step of a place's kind by itself, to check its descriptor: `create` of a place that is
 * there, `list`, `renew`, or `destroy` of one that is gone. *ret is kept by the arena: {placeId,
 * ref} of create, {found} of list, how often it names the place. */
int command_try(struct op *op, struct runtime *rt, const char *place_id, const char *step,
                json_t **ret, struct err *err);

/* The descriptor of a kind, and the file that it is from (NULL: the program); NULL for a kind that
 * none made. */
const json_t *command_kind_descriptor(const struct kind *kind, const char **ret_path);
