/* The way home of an agent: an address inside its environment, at which it reaches the API as
 * itself and nothing else (docs/callbacks.md).
 *
 *   agent -- http://127.0.0.1:PORT -- berth-box == link == tunnel -- here -- the API's routes
 *
 * A channel belongs to a run and to the place that the run has. It is asked for by the run's id, so
 * that after a restart of the daemon the box goes on listening where it did. What comes through it
 * is first normalised, then compared with the list of routes that agents may use
 * (callback_routes.h), then stripped of all headers but a few, and only then handled, as a request
 * of the run's agent. The token is derived from the run's id and a key of this instance: nothing of
 * it is stored, and it is worth nothing once the channel is closed.
 *
 * Local runs, where the daemon has a port of its own, are given that and a run token instead
 * (run_token.h); places with plain execute get a queue of files (callback_files.h). */
#ifndef BERTH_CORE_CALLBACK_H
#define BERTH_CORE_CALLBACK_H

#include <uv.h>

#include "codec/json.h"
#include "core/lease.h"
#include "store/runs.h"

struct callback_host;
struct http_server;

/* Loop thread. `http` serves what comes through the channels, as it serves sockets. */
int callback_host_new(struct runtime *rt, uv_loop_t *loop, struct http_server *http,
                      struct callback_host **ret, struct err *err);
void callback_host_free(struct callback_host *host);

/* Variables for the agent: PAPERCLIP_API_URL, PAPERCLIP_API_KEY, PAPERCLIP_API_BRIDGE_MODE. */
struct callback_address {
        char url[64];
        char key[512];
        const char *mode; /* "tunnel_v1", "queue_v1"; NULL: straight to our port */
        uint16_t port;    /* inside; recorded in the run's callback_port; 0: straight */
};

/* Operation: open the channel of a run, or find the one that is there. `port` is the recorded one,
 * or 0. */
int callback_open(struct op *op, struct runtime *rt, const struct run *run,
                  const struct lease_record *record, struct callback_address *ret, struct err *err);
/* Any thread: no request of the run is let in any more; those under way are answered. */
void callback_close(struct runtime *rt, const char *run_id);
/* How many requests came through, for the timeline. Any thread. */
uint64_t callback_count(struct runtime *rt, const char *run_id);

#endif
