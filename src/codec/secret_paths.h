/* Which members of a configuration are secret, by its JSON schema: those whose `format` is
 * "secret-ref", as dot paths. Branches of allOf, anyOf and oneOf are followed; items, $ref and the
 * rest are not, so a key that holds a dot is ambiguous, as it is for everybody else who reads such
 * schemas. Pure; any thread. */
#ifndef BERTH_CODEC_SECRET_PATHS_H
#define BERTH_CODEC_SECRET_PATHS_H

#include "codec/json.h"

/* An array of distinct strings, in the order found; empty for what is no schema. New reference. */
json_t *secret_paths(const json_t *schema);

/* The value at a path, NULL when there is none. Borrowed. */
json_t *secret_path_get(const json_t *config, const char *path);
/* Set the value at a path inside `config`, making the objects on the way; NULL deletes the leaf. */
void secret_path_set(json_t *config, const char *path, json_t *take_value);
/* Delete the value at a path, and each object above it that became empty. */
void secret_path_prune(json_t *config, const char *path);

#endif
