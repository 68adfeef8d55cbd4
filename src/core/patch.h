/* Bodies that change a row: a member in the body replaces the row's value, null included; a member
 * that is not in the body leaves the row's value. Texts are copied into the arena. Any thread. */
#ifndef BERTH_CORE_PATCH_H
#define BERTH_CORE_PATCH_H

#include "codec/check.h"

/* Whether the member was given. */
bool patch_text(struct check *c, struct arena *arena, const char *key, const char **row);
bool patch_uuid(struct check *c, struct arena *arena, const char *key, const char **row);
/* One of the words; null is not allowed. */
bool patch_word(struct check *c, struct arena *arena, const char *key, const char *const *words,
                const char **row);
/* Which of the members were given, in the order of the list; NULL-terminated. The arena's. */
json_t *patch_names(struct arena *arena, const json_t *body, const char *const *members);

#endif
