/* Trying an ssh environment: log in, see that the workspace can be used, and say in one line what
 * is wrong when it cannot. Operation threads. */
#ifndef BERTH_CORE_SSH_PROBE_H
#define BERTH_CORE_SSH_PROBE_H

#include "core/kinds/kind.h"

/* environment_id is NULL for an unsaved configuration, which may have a key in it. Any behaviour of
 * the host is a result, not an error; `hint` is one line that says what would help. */
int ssh_probe(struct op *op, struct runtime *rt, const struct probe_target *probed, json_t *config,
              struct probe_result *ret, struct err *err);

#endif
