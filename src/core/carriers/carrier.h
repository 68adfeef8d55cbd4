/* Connections to the boxes of places that are elsewhere: one process per connection (ssh, or a
 * command of a provider), whose other end is the relay to the boxes there (box/mux.h).
 *
 *     DOWN ──► LOGIN ──► UP          the relay answers
 *      ▲         │  └──► PLAIN       no box can run there; believed for a minute
 *      └─────────┴────── lost, or given up
 *
 * An operation that needs a connection that is down opens it, and operations that come meanwhile
 * wait for the result. A connection that is lost while places use it is opened again by itself,
 * with growing pauses; one that no place uses is closed after a minute. Keys and other secrets are
 * resolved each time it is opened and never kept.
 *
 * A kind of places that is reached so names its struct carrier_type (kind.h, `carrier`): which
 * places share a connection, and which process opens it. Everything else is here.
 *
 * Any thread, except where said. */
#pragma once

#include <uv.h>

#include "core/exec/box_route.h"
#include "core/kinds/kind.h"
#include "core/secrets/secret.h"
#include "ssh/call.h"

struct carriers;

struct carrier_type {
        const char *what; /* the other end, in texts: "ssh host" */
        const char *lane; /* of the lanes in which a lost connection is opened again */
        /* The connection is one place's, and ends with it. */
        bool is_of_place;
        /* Which connection a place uses: places with the same answer share one. On the heap.
         * ERR_CORRUPT when the place does not say it. */
        int (*key)(const struct place *place, char **ret, struct err *err);
        /* Operation: start the process and bring the box (ssh_call_stream() or the like); `place`
         * is the one for which the connection was made first. */
        int (*open)(struct op *op, struct runtime *rt, const struct place *place,
                    const struct secret_context *context, struct ssh_call *ret, struct err *err);
};

int carriers_new(struct runtime *rt, uv_loop_t *loop, const char *data_dir, const char *box_program,
                 struct carriers **ret);
/* Loop thread, when no operation runs any more: let go of all of them. */
void carriers_close(struct carriers *cs);
void carriers_free(struct carriers *cs);
/* Operation: with the hashes of the boxes that can be brought. */
const struct ssh_setup *carriers_setup(struct carriers *cs);

/* Operation: make sure that the box of the place can be reached, by a connection that is kept for
 * it from now on, and what was said there. *ret is the caller's. */
int carrier_reach(struct op *op, struct runtime *rt, const struct place *place,
                  const struct secret_context *context, struct ssh_hello *ret, struct err *err);
/* The place needs the connection no more. */
void carrier_leave(struct runtime *rt, const struct place *place);
/* Operation: the place is about to be paused or removed: its process ends, and none is started
 * until carrier_reach() is called for it. For connections of one place. */
int carrier_shut(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
/* The place was removed at its provider, so nothing of its box is left: from now on its route says
 * so without asking. The last few hundred are remembered, which is longer than the hub of commands
 * takes to ask (exec.h). */
void carrier_place_gone(struct runtime *rt, const struct place *place);

/* Operation: list the boxes that are where a place would be. Takes a seat in the lane of its
 * environment. */
int carrier_list(struct op *op, struct runtime *rt, const struct place *place,
                 const char *description, kind_found_fn fn, void *ctx, struct err *err);

/* How these boxes are reached. */
extern const struct box_route carrier_route;
