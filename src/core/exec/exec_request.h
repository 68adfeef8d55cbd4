/* Checks the body of an execute request and builds the environment of the command. Shared by the
 * drivers that can run commands. Pure; any thread. */
#ifndef BERTH_CORE_EXEC_REQUEST_H
#define BERTH_CORE_EXEC_REQUEST_H

#include "core/exec/exec.h"

/* Everything but the environment and a default directory. *ret_env is what the caller set, borrowed
 * from the request; may be NULL. Texts are in the operation's arena. */
int exec_request_parse(struct op *op, json_t *request, struct exec_request *ret,
                       const json_t **ret_env, struct err *err);
/* The complete environment, an object of strings. ERR_TOO_LARGE when it is more than the kernel and
 * the box protocol carry. */
int exec_request_set_env(struct op *op, const json_t *variables, struct exec_request *req,
                         struct err *err);
/* The same check, for variables that come later. */
int exec_request_check_size(const struct exec_request *req, struct err *err);
/* Set the string members of an object that may be NULL. */
void exec_variables_update(json_t *variables, const json_t *members);

#endif
