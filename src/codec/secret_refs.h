/* Which members of a configuration are references to secrets, by the JSON Schema that describes it:
 * properties with "format": "secret-ref", at any depth and in every branch of allOf, anyOf and
 * oneOf. Paths are names joined by dots. Items of arrays and $ref are not followed.
 *
 * Pure functions; any thread. */
#pragma once

#include "codec/json.h"

#define SECRET_REFS_MAX 256

/* An array of paths, each once, in the order found, at most SECRET_REFS_MAX; empty when the schema
 * is no object. A new reference. */
json_t *secret_ref_paths(const json_t *schema);

/* Whether a value is {type: "secret_ref", ...}; and what it refers to: *ret_version 0 is the
 * latest. secret_ref_read() says false when the rest of it cannot be read. */
bool secret_ref_is(const json_t *value);
bool secret_ref_read(const json_t *value, const char **ret_id, int64_t *ret_version);

/* The member at the path, borrowed; NULL as soon as a part of it is no object. */
json_t *json_path_get(const json_t *doc, const char *path);
/* Set it in place (take_value), making objects on the way; NULL removes the last member only. */
void json_path_set(json_t *doc, const char *path, json_t *take_value);
/* Remove it, and each object above it that became empty by that. */
void json_path_prune(json_t *doc, const char *path);
