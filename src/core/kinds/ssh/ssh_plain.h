/* Commands on a host that cannot run a box: one ssh each, and what holds for boxes does not. Their
 * input is given at the beginning, they do not survive the connection, and a signal or a time limit
 * kills their tree by a second login, found by the variables it carries.
 *
 * A thread each; callbacks come from it. */
#ifndef BERTH_CORE_SSH_PLAIN_H
#define BERTH_CORE_SSH_PLAIN_H

#include "core/exec/exec.h"

typedef void (*ssh_plain_output_fn)(void *ctx, bool is_stderr, const char *data, size_t len);
/* As a plugin's: 0 with {exitCode, signal, timedOut}, or an error. */
typedef void (*ssh_plain_done_fn)(void *ctx, int code, const json_t *result, const struct err *err);

/* Operation. After success `done` is called, once. *ret_call names it. */
int ssh_plain_begin(struct runtime *rt, const struct execution *row, const struct exec_request *req,
                    ssh_plain_output_fn output, ssh_plain_done_fn done, void *ctx,
                    int64_t *ret_call, struct err *err);
/* Any thread: kill it. */
void ssh_plain_abandon(struct runtime *rt, int64_t call);
/* Operation: nothing of a place runs any more. */
int ssh_plain_end_place(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err);
/* The daemon ends: kill them all, and wait for their threads. */
void ssh_plain_stop(struct ssh_hosts *hosts);

#endif
