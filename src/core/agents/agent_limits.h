/* What nobody may set with an agent's key, whatever rights the agent has: commands that the host
 * would run for it, directories of the host that it would be given, and where its instructions come
 * from. Members that stay as they were are no change. Any thread. */
#ifndef BERTH_CORE_AGENT_LIMITS_H
#define BERTH_CORE_AGENT_LIMITS_H

#include "codec/json.h"
#include "core/access/access.h"

/* 403 naming the paths. `value` is what is to be stored beneath `path`, `before` what is there
 * (either may be NULL); they are searched at every depth. */
int agent_limits_workspace(const struct op *op, const char *path, const json_t *value,
                           const json_t *before, struct err *err);
/* 403 naming the paths, for an adapterConfig. */
int agent_limits_instructions(const struct op *op, const json_t *config, const json_t *before,
                              struct err *err);

#endif
