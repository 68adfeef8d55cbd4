/* The variables of an agent, and of the project that it works for, for a command that is run for
 * it.
 *
 *     exec_agent_find()      with the request: which agent, and what its variables are
 *     exec_agent_resolve()   when the execution is recorded and before anything is started
 *     exec_variables_done()  once they are in the message for the box, which is wiped when it is
 *                            sent
 *
 * Variables that the request sets itself win, then the agent's, then the project's; one that does
 * not count is not resolved. All of them win over those of the environment. Values stay in pages of
 * their own throughout (secret/value.h); exec_request.redact names them, so that the code that
 * spools the output replaces them.
 *
 * Operation threads. */
#pragma once

#include "core/exec/exec.h"
#include "core/secrets/secret.h"

struct exec_variables {
        struct secret_value *texts; /* NAME=value */
        size_t n_texts;
        const char **env;    /* complete, as in exec_request: those of the request and ours */
        const char **redact; /* as in exec_request */
};

/* ERR_NOT_FOUND or ERR_UNPROCESSABLE when the request's agent is not of the lease's company,
 * ERR_CONFLICT when it may not work. Sets req->agent_config and req->project_env. Does nothing
 * without an agent. */
int exec_agent_find(struct op *op, struct runtime *rt, const struct lease_record *record,
                    struct exec_request *req, struct err *err);
/* All of them, or an error that names the variable and the secret. */
int exec_agent_resolve(struct op *op, struct runtime *rt, const struct lease_record *record,
                       const struct exec_request *req, struct exec_variables *ret, struct err *err);
void exec_variables_done(struct exec_variables *v);
