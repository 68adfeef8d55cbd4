/* libberth: talk to a Berth daemon from C.
 *
 *     struct berth_error error;
 *     struct berth *b;
 *     struct berth_lease lease;
 *
 *     if (berth_open(&(struct berth_options){ .url = "http://127.0.0.1:3100" }, &b, &error) < 0 ||
 *         berth_acquire(b, environment_id, NULL, &lease, &error) < 0)
 *             errx(1, "%s", error.text);
 *     ...
 *     berth_release(b, lease.id, NULL, NULL, &error);
 *     berth_lease_done(&lease);
 *     berth_close(b);
 *
 * Calls block, at most for the time limits in the options. A handle keeps one connection alive
 * between calls and opens it anew when the daemon closed it meanwhile. berth_open() itself touches
 * nothing: the first call connects.
 *
 * Results: 0 is good, below 0 is one of enum berth_code, and then *error (which may be NULL) says
 * why. Out-parameters are written on success only. Strings given are borrowed for the call, those
 * of berth_open() are copied; what a result struct holds is freed by its _done().
 *
 * Threads: one handle belongs to one thread at a time; any number of handles may be open. The
 * library starts no threads, installs no signal handlers and never raises SIGPIPE. */
#ifndef BERTH_BERTH_H
#define BERTH_BERTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum berth_code {
        BERTH_OK = 0,
        BERTH_UNREACHABLE = -1, /* no daemon answers at the address; nothing was done */
        BERTH_TIMEOUT = -2,     /* the time limit passed; the daemon may still do it */
        BERTH_LOST = -3,        /* the connection broke after the request; it may have been done */
        BERTH_PROTOCOL = -4,    /* what answers there does not speak this API */
        BERTH_REFUSED = -5,     /* the daemon said no: see http_status */
        BERTH_INVALID = -6,     /* an argument makes no sense */
};

struct berth_error {
        int code;           /* enum berth_code */
        int http_status;    /* of BERTH_REFUSED, else 0 */
        char text[1024];    /* for people; UTF-8, no secret in it */
        char details[4096]; /* of BERTH_REFUSED: JSON, for example the fields that are wrong; ""
                             * when there are none or they do not fit */
};

struct berth;

/* Zero means the default everywhere. Either url or socket_path; with both, the socket. */
struct berth_options {
        const char *url;             /* http://host[:port] or unix:/path; default port 3100 */
        const char *socket_path;     /* the daemon's Unix socket */
        const char *api_key;         /* bearer token; wiped from memory by berth_close() */
        const char *run_id;          /* sent as X-Paperclip-Run-Id */
        unsigned connect_timeout_ms; /* default 5000 */
        unsigned timeout_ms;         /* of one request, default 10 minutes */
};

int berth_open(const struct berth_options *options, struct berth **ret, struct berth_error *error);
/* NULL is fine. */
void berth_close(struct berth *b);

/* Where the handle connects to, for messages; borrowed. */
const char *berth_address(const struct berth *b);

/* -- Leases ----------------------------------------------------------------------------------- */

struct berth_lease {
        char id[40];
        char status[16];     /* active, released, expired, failed or retained */
        char expires_at[32]; /* ISO 8601, "" when the lease does not expire */
        char *json;          /* the whole lease record as the daemon sent it; owned */
};

void berth_lease_done(struct berth_lease *lease);

struct berth_acquire_options {
        const char *run_id; /* the run that holds the lease; may be one Berth does not know */
        const char *idempotency_key; /* the same key again gives the same lease */
        int64_t ttl_ms;              /* 0: the daemon's default */
};

/* options may be NULL. Without an idempotency key one is made up, so a connection that breaks in
 * the middle is tried once more without the danger of a second lease. */
int berth_acquire(struct berth *b, const char *environment_id,
                  const struct berth_acquire_options *options, struct berth_lease *ret,
                  struct berth_error *error);
int berth_renew(struct berth *b, const char *lease_id, int64_t ttl_ms, struct berth_lease *ret,
                struct berth_error *error);
/* status: NULL for released, or released, expired, failed. ret may be NULL. Releasing a lease that
 * has ended changes nothing and succeeds, so this too is tried again when the connection breaks. */
int berth_release(struct berth *b, const char *lease_id, const char *status,
                  struct berth_lease *ret, struct berth_error *error);

/* -- Everything else -------------------------------------------------------------------------- */

struct berth_response {
        int status; /* HTTP status */
        char *body; /* NUL-terminated, "" when there was none; owned */
        size_t len;
};

void berth_response_done(struct berth_response *response);

/* Send one request and wait for its answer. path begins with /api; json is a JSON text or NULL. Any
 * answer is a success here, also one with status 404; berth_refusal() turns such a one into an
 * error. GET and HEAD are tried a second time when a connection kept alive turns out to be dead. */
int berth_request(struct berth *b, const char *method, const char *path, const char *json,
                  struct berth_response *ret, struct berth_error *error);

/* 0 for a status below 400; else BERTH_REFUSED with the daemon's text in *error. */
int berth_refusal(const struct berth_response *response, struct berth_error *error);

/* -- Event streams ---------------------------------------------------------------------------- */

struct berth_event {
        const char *id;    /* the last id the stream named, "" when none: resume after it */
        const char *event; /* "message" when the stream does not say */
        const char *data;  /* NUL-terminated */
        size_t data_len;
};

/* Return 0 to go on; anything else ends berth_stream(), which returns it. */
typedef int berth_event_fn(void *arg, const struct berth_event *event);

/* Read a text/event-stream until it ends (0), the callback wants to stop, or it fails. It has a
 * connection of its own, so the callback may use the handle. last_event_id may be NULL.
 * idle_timeout_ms: how long the stream may be silent, 0 for ever. */
int berth_stream(struct berth *b, const char *path, const char *last_event_id,
                 unsigned idle_timeout_ms, berth_event_fn *on_event, void *arg,
                 struct berth_error *error);

#ifdef __cplusplus
}
#endif

#endif
