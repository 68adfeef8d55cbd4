/* Configurations whose rules only a plugin knows: its worker is asked. Operation threads. */
#ifndef BERTH_CORE_PLUGIN_VALIDATE_H
#define BERTH_CORE_PLUGIN_VALIDATE_H

#include "codec/json.h"
#include "core/runtime.h"

/* Let the worker check a normalised configuration and put what it made of it in its place; nothing
 * to do for drivers and providers that are built in. *ret_schema (may be NULL) is set for those
 * whose schema says what is secret; the arena keeps it. ERR_UNPROCESSABLE with the worker's first
 * complaint and all of them as details. */
int plugin_validate_config(struct op *op, struct runtime *rt, const char *driver, json_t **config,
                           const json_t **ret_schema, struct err *err);

/* Ask the worker whether the environment can be used. environment_id is NULL for a configuration
 * that nobody saved: its secrets are taken as they stand. A provider that fails is a result. */
int plugin_probe(struct op *op, struct runtime *rt, const char *driver, const char *company_id,
                 const char *environment_id, const json_t *config, bool *ret_ok,
                 struct buf *ret_summary, json_t *details, struct err *err);

#endif
