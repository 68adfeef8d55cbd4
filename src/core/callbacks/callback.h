/* Callback channels: an address inside an agent's environment at which the agent reaches the API as
 * itself, and reaches nothing else (docs/callbacks.md).
 *
 *   agent -- http://127.0.0.1:PORT -- berth-box == link == tunnel -- here -- the API's routes
 *
 * A channel belongs to a run and to the place that the run has. Callers name it by the run's id, so
 * that after a restart of the daemon the box goes on listening at the same port. A request through
 * the channel must carry the channel's token, is counted, must have a path in the one accepted
 * spelling and must be on the list of routes that agents may use (callback_routes.h). It loses all
 * headers but a few, and only then is it handled, as a request of the run's agent. The token is
 * derived from the run's id and a key of this instance (run_token.h): nothing of it is stored, and
 * it is worth nothing once the channel is closed.
 *
 * In places where only plain commands can be run, files carry the requests instead of the tunnel
 * (callback_files.h). Local runs get the daemon's own port, where it has one, and a run token
 * instead. Either way the requests of a run are counted, and the first of them listed among its
 * events.
 *
 *   callback.c         channels: attached to boxes, closed
 *   callback_open.c    the operation that opens one
 *   callback_gate.c    one request: let in or refused
 *   callback_notes.c   which requests the run's events list */
#pragma once

#include <uv.h>

#include "codec/json.h"
#include "codec/jwt.h"
#include "core/places/lease_record.h"
#include "store/runs.h"

#define CALLBACK_BODY_MAX    ((size_t)256 << 10) /* of a request, and of an answer */
#define CALLBACK_IN_FLIGHT   64
#define CALLBACK_RATE        200 /* requests per second of a run */
#define CALLBACK_BURST       400 /* unused requests that it may save up */
#define CALLBACK_TIMEOUT_MS  30000
#define CALLBACK_NOTES_MAX   1000 /* requests of a run that its events list */
#define CALLBACK_TEXT_FULL   "Bridge request queue is full."
#define CALLBACK_TEXT_LARGE  "Bridge request body exceeded the configured size limit."
#define CALLBACK_TEXT_SILENT "Timed out waiting for host bridge response."

struct callback_host;
struct http_server;

/* Loop thread. `http` serves requests from the channels as it serves those from sockets. */
int callback_host_new(struct runtime *rt, uv_loop_t *loop, struct http_server *http,
                      struct callback_host **ret, struct err *err);
/* Loop thread: the daemon is about to end; threads that ask plugins are ended. */
void callback_host_stop(struct callback_host *host);
void callback_host_free(struct callback_host *host);

/* Variables for the agent: PAPERCLIP_API_URL, PAPERCLIP_API_KEY, PAPERCLIP_API_BRIDGE_MODE. */
struct callback_address {
        char url[128];
        char key[JWT_MAX + 1];
        const char *mode; /* "tunnel_v1", "queue_v1"; NULL: straight to our port */
        uint16_t port;    /* inside; recorded in the run's callback_port; 0: straight */
};

/* Operation: open the channel of a run, or find the one that is there. The port is the one that the
 * run has recorded, else any. */
int callback_open(struct op *op, struct runtime *rt, const struct run *run,
                  const struct lease_record *record, struct callback_address *ret, struct err *err);
/* Any thread: no request of the run is let in any more; those under way are answered. */
void callback_close(struct runtime *rt, const char *run_id);
/* Operation: the same, and where a gateway runs in the place, wait until it is stopped: another
 * lease may use the place next. */
void callback_settle(const struct op *op, struct runtime *rt, const char *run_id);
/* How many requests came through, for the timeline; 0 once it is closed. Any thread. */
uint64_t callback_count(struct runtime *rt, const char *run_id);

/* For the API. Loop thread. */

/* One request from its head to its answer. */
struct callback_pass;

struct callback_head {
        const char *method, *path;                /* path raw, without query */
        const char *authorization, *content_type; /* NULL: absent */
        bool is_absolute;                         /* the target was a whole URL */
};

struct callback_refusal {
        int status;
        char text[1024];
};

/* `via` is the connection's http_peer.via. NULL: the request is refused, and *ret_why says why. */
struct callback_pass *callback_enter(struct callback_host *host, const void *via,
                                     const struct callback_head *head,
                                     struct callback_refusal *ret_why);
/* Answered so. */
void callback_leave(struct callback_pass *take_pass, int status);

/* Whose it is; any thread until callback_leave(). */
struct callback_identity {
        const char *run_id, *agent_id, *company_id;
};
const struct callback_identity *callback_pass_identity(const struct callback_pass *pass);

/* A request with a run token, straight to our port, was answered. */
void callback_note(struct callback_host *host, const char *run_id, const char *method,
                   const char *path, int status, int64_t started_us);
