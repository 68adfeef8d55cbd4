/* An HTTP/1.1 server on a libuv loop.
 *
 * Every request byte passes the strict parser of codec/http1.h; an ambiguous request is refused and
 * the connection closed, so no two parties can ever disagree about where a request ends
 * (docs/decisions/0002-own-http-server.md).
 *
 * A request becomes an exchange. The handler is called once with the complete request (head and
 * body, the body at most `max_body`), or, for requests that it wants to take as a stream, at the
 * head. It answers at once or later, from the loop thread, exactly once. An exchange lives until it
 * is answered in full; when the client goes away before, on_abort is called and the handler still
 * has to finish it (the bytes are dropped). Requests on one connection are handled one after the
 * other, in order. A client that only closes its sending side still gets its answer.
 *
 * No call into the server calls a handler before it returns: what it causes (sending, on_drained,
 * on_abort, the next request) happens later, from the loop. Only http_server_close() aborts at
 * once.
 *
 * Memory per idle connection is under 1 KB. All limits have a deadline: head, body, idle, and a
 * client that does not read its answer.
 *
 * Loop thread only. */
#pragma once

#include <sys/types.h>
#include <uv.h>

#include "base/buf.h"
#include "base/err.h"
#include "rt/byte_stream.h"

#define HTTP_STREAM_MAX_PENDING ((size_t)64 << 20)

struct http_server;
struct http_exchange;

/* `uid` is the kernel's word for which user of this machine it is; (uid_t)-1: not known. */
struct http_peer {
        bool is_unix; /* came through a Unix socket */
        uid_t uid;
        char address[64]; /* numeric address without port, or "unix" */
        /* The client that its limits are counted for: the address, of IPv6 the first half; of a
         * connection on this machine the uid, also where a uid gives no rights. */
        char client[80];
        void *via; /* what carries the connection, where it is no socket; only its owner uses it */
};

struct http_field {
        const char *name;
        const char *value;
};

enum http_body_mode {
        HTTP_BODY_BUFFER, /* collect it, then call on_request */
        HTTP_BODY_STREAM, /* call on_request now, then on_body for each part */
};

struct http_handler {
        /* Optional: how to take the body of this request. Default: buffer. It only looks: the
         * answer comes from on_request, and an exchange that breaks off before is freed without a
         * word. */
        enum http_body_mode (*on_head)(void *ctx, struct http_exchange *x);
        void (*on_request)(void *ctx, struct http_exchange *x);
        /* Streamed bodies: a part, then once with len 0 at the end. Not limited by max_body. Not
         * called again once the exchange is answered; the connection then closes if the body was
         * not at its end. */
        void (*on_body)(void *ctx, struct http_exchange *x, const void *data, size_t len);
        /* The client went away before the answer was complete. The exchange may be finished right
         * here or any time later. */
        void (*on_abort)(void *ctx, struct http_exchange *x);
        /* A request refused by the server itself before any handler saw it: write the error body.
         * Default: {"error": text}. */
        void (*on_refused)(void *ctx, int status, const char *text, struct buf *body);
};

struct http_server_config {
        uv_loop_t *loop;
        const struct http_handler *handler;
        void *ctx;
        size_t max_head;    /* default 16 KiB; past it 431 */
        size_t max_body;    /* default 10 MiB; past it 413 */
        size_t max_bodies;  /* of all large bodies in memory together, default 256 MiB; 503 */
        size_t max_answers; /* of all large answers that wait to be read, default 256 MiB; past it
                               the clients that have not read for longest are closed */
        unsigned max_connections; /* default 4096; the next takes the place of the one that is idle
                                     longest, or is answered 503 and closed */
        /* Of these one client (http_peer.client) may have; defaults: all. Past max_per_client the
         * one of its own that is idle longest makes room, or the next is answered 503; past
         * max_unfinished, of requests that have begun and are not complete, the oldest of its own
         * is closed. When all connections are taken and none is idle, an unfinished request of a
         * client that has more connections than the new one gives way. */
        unsigned max_per_client, max_unfinished;
        /* A path that is still answered to a client with few connections when all are taken. */
        const char *reserved_path;
        bool find_owner;           /* tell the uid behind TCP connections: http_peer.uid */
        unsigned max_carried;      /* default 4096; the same for http_server_serve(), whose
                                      connections do not count above */
        unsigned max_per_carrier;  /* default 96: of these with one `via` */
        unsigned head_timeout_ms;  /* default 10000; 408 */
        unsigned body_timeout_ms;  /* default 30000 without a byte, on carried connections for all
                                      of it; 408 */
        unsigned idle_timeout_ms;  /* default 185000; closed */
        unsigned write_timeout_ms; /* default 30000 without progress; closed */
};

int http_server_new(const struct http_server_config *config, struct http_server **ret,
                    struct err *err);
/* Take over a listening socket (any number). Closed with the server. */
int http_server_listen(struct http_server *s, int take_fd, struct err *err);
/* Serve a connection that something else carries, such as a box's tunnel; peer->via, never NULL,
 * says what. When there are too many, of all or of that one, the one that is idle longest makes
 * room, or this one is answered 503 and closed. Clients of these connections are not trusted to
 * send quickly: a request has to arrive in time however steadily its bytes come. */
void http_server_serve(struct http_server *s, struct byte_stream *take_stream,
                       const struct http_peer *peer);
/* The same over a connected socket. */
void http_server_serve_fd(struct http_server *s, int take_fd, const struct http_peer *peer);
/* Stop accepting; idle connections close at once, busy ones after their answer. */
void http_server_drain(struct http_server *s);
/* Number of connections that are open. */
unsigned http_server_connections(const struct http_server *s);
/* Close everything. The loop must still run once for handles to close; `done` is then called. */
void http_server_close(struct http_server *s, void (*done)(void *), void *arg);

/* Make a listening TCP socket for "ADDR:PORT" ("[::1]:3100" for IPv6), port 0 for a free one, or a
 * Unix socket with the given mode. A stale Unix socket that no process answers on is replaced. */
int http_listen_tcp(const char *address, int *ret_fd, struct err *err);
int http_listen_unix(const char *path, mode_t mode, int *ret_fd, struct err *err);

/* The request. Strings live as long as the exchange. */
const char *http_method(const struct http_exchange *x);
const char *http_path(
        const struct http_exchange *x); /* raw, still percent-encoded, without query */
/* The target was a whole URL, whose authority was that of Host. */
bool http_is_absolute(const struct http_exchange *x);
const char *http_query(const struct http_exchange *x); /* raw, without '?'; "" when there is none */
/* Value of a header by its name in any case; NULL when absent. Duplicates were refused where they
 * matter and are otherwise joined with ", ". */
const char *http_header(const struct http_exchange *x, const char *name);
const char *http_body(const struct http_exchange *x, size_t *ret_len);
bool http_has_body(const struct http_exchange *x);     /* a body was announced, even an empty one */
bool http_body_follows(const struct http_exchange *x); /* on_body will be called */
const struct http_peer *http_peer(const struct http_exchange *x);
/* The client that limits of this request are counted for: its peer's `client`. When the peer is the
 * reverse proxy (its address, or its `client`; NULL: there is none), the last hop that it names in
 * X-Forwarded-For, in the same form; any client may have written the hops before that. */
void http_request_client(const struct http_exchange *x, const char *reverse_proxy, char *ret,
                         size_t size);
/* What `client` says of a user of this machine who connects over loopback; false: it is the same
 * for others. */
bool http_client_of_user(uid_t uid, char *ret, size_t size);

/* Streamed bodies: take no more of it from the client until resumed. Parts that were read already
 * are kept back as well; the part that on_body is being given is the last. */
void http_body_pause(struct http_exchange *x);
void http_body_resume(struct http_exchange *x);

/* Whether the client has gone already, and on_abort has been called. */
bool http_is_gone(const struct http_exchange *x);

void http_set_data(struct http_exchange *x, void *data);
void *http_data(const struct http_exchange *x);

/* Answer in one go. Content-Length, Date, Connection and Keep-Alive are added; HEAD, 204 and 304
 * drop the body. Of the server's own headers only "Connection: close" may be among the fields, and
 * closes. A field that could not be sent as it is (control bytes) is left out and logged. The bytes
 * of *take_body, which may be NULL, are taken. Frees the exchange. */
void http_respond(struct http_exchange *x, int status, const struct http_field *fields,
                  size_t n_fields, struct buf *take_body);

/* Answer as a stream (chunked; to an HTTP/1.0 client until close). on_drained, if set, is called
 * whenever everything written so far, the head included, has left for the kernel; it may write on
 * or end. A writer that does not wait for it and gets HTTP_STREAM_MAX_PENDING ahead loses the
 * connection. http_stream_end() frees the exchange. */
void http_stream_begin(struct http_exchange *x, int status, const struct http_field *fields,
                       size_t n_fields);
void http_stream_write(struct http_exchange *x, const void *data, size_t len);
size_t http_stream_pending(const struct http_exchange *x);
void http_stream_on_drained(struct http_exchange *x, void (*fn)(struct http_exchange *x));
void http_stream_end(struct http_exchange *x);

/* Answer 101: the connection is the handler's from here on, in a protocol of its own. `fields` say
 * which; Connection is added. http_stream_write() and the other stream functions send bytes as they
 * are. The client's bytes are given to on_bytes, part by part, and held back between
 * http_body_pause() and http_body_resume(). A client that ends its side has gone: on_abort. Only
 * for requests without a body. */
void http_upgrade(struct http_exchange *x, const struct http_field *fields, size_t n_fields,
                  void (*on_bytes)(struct http_exchange *x, const char *data, size_t len));
/* Close the connection without an answer. Frees the exchange. */
void http_drop(struct http_exchange *x);
