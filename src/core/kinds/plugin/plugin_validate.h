/* Configurations whose rules only a plugin knows: its worker is asked. Operation threads. */
#ifndef BERTH_CORE_PLUGIN_VALIDATE_H
#define BERTH_CORE_PLUGIN_VALIDATE_H

#include "core/kinds/kind.h"

/* Let the worker check a normalised configuration and replace it by the worker's version; members
 * of struct kind, for the two kinds. ERR_UNPROCESSABLE with the worker's first complaint and all of
 * them as details. */
int plugin_validate_provider(struct op *op, struct runtime *rt, json_t **config,
                             const json_t **ret_schema, struct err *err);
int plugin_validate_driver(struct op *op, struct runtime *rt, json_t **config,
                           const json_t **ret_schema, struct err *err);

/* Ask the worker whether the environment can be used. The secrets of an unsaved configuration are
 * taken as they stand. */
int plugin_probe_provider(struct op *op, struct runtime *rt, const struct probe_target *target,
                          json_t *config, struct probe_result *ret, struct err *err);
int plugin_probe_driver(struct op *op, struct runtime *rt, const struct probe_target *target,
                        json_t *config, struct probe_result *ret, struct err *err);

#endif
