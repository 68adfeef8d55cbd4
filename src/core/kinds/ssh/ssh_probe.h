/* Trying an ssh environment: log in, see that the workspace can be used, and say in one line what
 * is wrong when it cannot. Operation threads. */
#ifndef BERTH_CORE_SSH_PROBE_H
#define BERTH_CORE_SSH_PROBE_H

#include "codec/json.h"
#include "core/runtime.h"

/* environment_id is NULL for what nobody saved; `config` may then have a key in it. Whatever the
 * host does is a result, not an error; `hint` is one line that says what would help. */
int ssh_probe(struct op *op, struct runtime *rt, const char *company_id, const char *environment_id,
              json_t *config, bool *ret_ok, struct buf *summary, json_t *details, struct buf *hint,
              struct err *err);

#endif
