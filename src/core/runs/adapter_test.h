/* Testing an adapter where its agent would work, and listing its models. Operation threads. */
#ifndef BERTH_CORE_ADAPTER_TEST_H
#define BERTH_CORE_ADAPTER_TEST_H

#include "codec/json.h"
#include "core/runtime.h"
#include "rt/op.h"

/* {adapterType, status, checks, testedAt} of an agent's configuration in an environment. */
int adapter_test(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                 json_t *body, struct buf *ret_json, struct err *err);
/* [{id, label}]: the models that a descriptor knows. environment_id may be NULL. */
int adapter_models(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                   const char *environment_id, struct buf *ret_json, struct err *err);

#endif
