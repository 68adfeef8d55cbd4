/* The daemon's state for ssh environments: where private directories and recorded host keys are,
 * the boxes that can be brought to a host, and the connections to hosts (ssh_conn.h). One per
 * runtime. Any thread, except where said. */
#pragma once

#include <uv.h>

#include "core/exec/box_route.h"
#include "core/kinds/kind.h"
#include "core/secrets/secret.h"
#include "ssh/call.h"
#include "store/places.h"

struct ssh_hosts;

int ssh_hosts_new(struct runtime *rt, uv_loop_t *loop, const char *data_dir,
                  const char *box_program, struct ssh_hosts **ret, struct err *err);
/* Loop thread, when no operation runs any more: let go of all hosts. */
void ssh_hosts_close(struct ssh_hosts *hosts);
void ssh_hosts_free(struct ssh_hosts *hosts);

/* Operation: with the hashes of the boxes. */
const struct ssh_setup *ssh_hosts_setup(struct ssh_hosts *hosts);
/* The file of the host keys that were recorded for an environment; NULL for none. Heap. */
char *ssh_hosts_record(const struct ssh_hosts *hosts, const char *environment_id);
/* An environment is gone: forget its host key. */
void ssh_hosts_forget(const struct ssh_hosts *hosts, const char *environment_id);

/* Operation: make sure that the host can be used, by a connection that is kept for the place, and
 * what it said. *ret is the caller's. */
int ssh_hosts_reach(struct op *op, struct runtime *rt, const struct place *place,
                    const struct secret_context *context, struct ssh_hello *ret, struct err *err);
/* Any thread: the place needs the host no more. */
void ssh_hosts_leave(struct runtime *rt, const struct place *place);

/* Operation: list what is on the host that a place would be on. Takes a seat in the lane of its
 * environment. */
int ssh_hosts_list(struct op *op, struct runtime *rt, const struct place *place, kind_found_fn fn,
                   void *ctx, struct err *err);

/* How boxes on ssh hosts are reached. */
extern const struct box_route ssh_route;
