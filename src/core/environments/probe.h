/* Probes: whether an environment can be used, and if not, why. A failed probe is a result, not an
 * error. Operation threads. */
#pragma once

#include "core/environments/environment.h"
#include "core/kinds/kind.h"

/* Probe a saved environment; writes the audit entry. */
int probe_saved(struct op *op, struct runtime *rt, const char *id, struct probe_result *ret,
                struct err *err);
/* Probe a configuration that is not saved; nothing is stored but the audit entry. */
int probe_unsaved(struct op *op, struct runtime *rt, const char *company_id, const char *driver,
                  json_t *config, struct probe_result *ret, struct err *err);
/* For CLEAN(); also after a failure. *ret was {0} before. */
void probe_result_done(struct probe_result *res);
