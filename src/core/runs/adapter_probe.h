/* Testing an agent's configuration where the agent would work: whether the directory and the
 * command exist, and whether the command answers (remote-execution 5.6, 6.3). Findings are checks,
 * not errors. Operation threads. */
#ifndef BERTH_CORE_ADAPTER_PROBE_H
#define BERTH_CORE_ADAPTER_PROBE_H

#include "core/adapters/adapter_internal.h"
#include "core/leases/lease.h"

struct adapter_probe {
        struct op *op;
        struct runtime *rt;
        const struct adapter_descriptor *d;
        json_t *config;
        const struct lease_record *record;
        const struct kind *kind; /* of the target */
        const char *cwd;
        json_t *checks; /* array to append to */
};

/* {code, level, message, detail?}. The code gets the adapter's key in front unless it is one of the
 * environment's codes. detail may be NULL. */
void adapter_check(json_t *checks, const char *key, const char *code, const char *level,
                   const char *message, const char *detail);

/* ERR_* when the place could not be asked at all. */
int adapter_probe(struct adapter_probe *p, struct err *err);

#endif
