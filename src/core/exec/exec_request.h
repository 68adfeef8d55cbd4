/* How a request becomes the command that its place gets. There are two kinds of callers:
 *
 *     the API         exec_admit(), reads the body, prepare_exec() of the kind, exec_start()
 *     the daemon      fills a request of its own, exec_prepare(), exec_start()
 *
 * Operation threads; the functions for kinds are pure. */
#pragma once

#include "core/exec/exec.h"
#include "core/kinds/kind.h"

#define EXEC_TIMEOUT_MAX (INT64_C(366) * 86400000)
#define EXEC_ARGS_MAX    4096
#define EXEC_CWD_MAX     4096
#define EXEC_KEY_MAX     255

/* Before the request is read in detail: whether commands can run in places of the kind, and this
 * one in this place, by its variables and its terminal alone. Sets is_single. */
int exec_admit(struct op *op, struct runtime *rt, const struct kind *kind,
               const struct lease_record *record, struct exec_request *req, struct err *err);
/* The same for a request of the daemon's own; then check it as a body is checked, and complete it
 * for its place. It lives as long as the operation. */
int exec_prepare(struct op *op, struct runtime *rt, const struct kind *kind,
                 const struct lease_record *record, struct exec_request *req, struct err *err);
bool exec_is_variable_name(const char *s);

/* -- For kinds, which complete requests -- */

/* Set the complete environment, an object of strings. ERR_TOO_LARGE when it is more than the kernel
 * and the box protocol carry. */
int exec_request_set_env(struct op *op, const json_t *variables, struct exec_request *req,
                         struct err *err);
/* The same check, for variables that come later. */
int exec_request_check_size(const struct exec_request *req, struct err *err);
/* Set the string members of an object that may be NULL. */
void exec_variables_update(json_t *variables, const json_t *members);
/* For a place elsewhere: without the variables that only identify this machine's user, such as a
 * HOME with the value that the daemon itself has. A new reference. */
json_t *exec_variables_sanitize(const json_t *env);
