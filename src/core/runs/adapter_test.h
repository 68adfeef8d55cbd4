/* Testing an agent's configuration where the agent would work, in a lease of its own that is given
 * up afterwards: whether the directory and the command exist, and whether the command answers
 * (environment-runtime 5.6, remote-execution 5.6, 6.3). Findings are no errors. Operation
 * threads; results live in the operation's arena. */
#pragma once

#include "codec/json.h"
#include "core/runtime.h"
#include "rt/op.h"

struct adapter_test_request {
        const char *company_id, *type;
        const char *environment_id; /* NULL: the company's default one */
        json_t *config;             /* adapterConfig */
};

struct adapter_finding {
        const char *code;  /* with the adapter's key in front, unless it is about the environment */
        const char *level; /* info, warn, error */
        const char *message, *detail; /* detail may be NULL */
};

struct adapter_test_result {
        const char *type, *status; /* pass, warn, fail: the worst level */
        struct adapter_finding *findings;
        size_t n, room;
        int64_t tested_at;
};

int adapter_test(struct op *op, struct runtime *rt, const struct adapter_test_request *req,
                 struct adapter_test_result *ret, struct err *err);
/* The models that a descriptor knows, [{id, label}]; borrowed, NULL: none. environment_id may be
 * NULL. */
int adapter_models(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                   const char *environment_id, const json_t **ret, struct err *err);
