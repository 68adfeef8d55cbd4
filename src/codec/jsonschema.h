/* Does a document fit a JSON schema? The part of the language that settings of plugins use:
 *
 *   type enum const, properties required additionalProperties minProperties maxProperties,
 *   items minItems maxItems uniqueItems, minimum maximum exclusiveMinimum exclusiveMaximum
 *   multipleOf, minLength maxLength format, allOf anyOf oneOf not, $ref to #/… of the same schema
 *
 * Other keywords are not looked at, `pattern` among them: its expressions are a language of their
 * own, and the plugin checks them itself. Formats: date-time, email, uri, uuid; any other (and
 * secret-ref) accepts everything. All that is wrong is reported, in the words of ajv.
 *
 * Schema and document are both foreign: the work is bounded, and a schema that asks for too much of
 * it is an error of its own. Pure; any thread. */
#pragma once

#include "codec/json.h"

#define JSONSCHEMA_MAX_STEPS  100000
#define JSONSCHEMA_MAX_ERRORS 100

/* Append {"field": "/path", "message": "must be …"} for each thing that is wrong to `errors`.
 * Returns how many, or ERR_TOO_LARGE when the schema is too much work. */
int jsonschema_check(const json_t *schema, const json_t *value, json_t *errors, struct err *err);
