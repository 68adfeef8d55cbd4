/* Probes: whether an environment can be used, and if not, why. A failed probe is a result, not an
 * error. Operation threads. */
#ifndef BERTH_CORE_PROBE_H
#define BERTH_CORE_PROBE_H

#include "core/environments/environment.h"

/* Probe a saved environment; writes the audit entry; *ret_json is {ok, driver, summary, details}.
 */
int probe_saved(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                struct err *err);
/* Probe a configuration that is not saved; nothing is stored but the audit entry. */
int probe_unsaved(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                  struct buf *ret_json, struct err *err);

#endif
