/* Routes that are WebSockets (ROUTE_SOCKET).
 *
 * A request for one is looked at before it is run (socket_check()); who may not have it is answered
 * 403 `forbidden` as plain text, and a WebSocket that no route offers gets no answer at all
 * (http-api 4.1). The handler checks rights on its operation thread and sets on_loop; there it
 * calls socket_begin().
 *
 * The socket is embedded in what uses it, which keeps the memory until the loop comes round after
 * `closed`; the call is freed by then. Loop thread. */
#ifndef BERTH_API_SOCKET_H
#define BERTH_API_SOCKET_H

#include "api/api.h"
#include "codec/websocket.h"

struct socket {
        struct call *c; /* NULL once it is over */
        struct http_exchange *x;
        struct websocket_decoder in;
        bool pinged; /* and no answer yet */
        /* A text or binary message; NULL: none are expected, and they are skipped. */
        void (*message)(struct socket *s, const char *data, size_t len);
        void (*drained)(struct socket *s); /* may be NULL */
        /* It is over, by whomever; once. socket_end() calls it too. */
        void (*closed)(struct socket *s);
};

/* Whether the request asks for a WebSocket. */
bool socket_wanted(const struct http_exchange *x);
/* Before the call of a ROUTE_SOCKET is run: key, version, origin, and the token of the query. */
int socket_check(struct call *c, struct err *err);
/* The answer to who may not have it. */
void socket_write_forbidden(struct call *c);

/* Fill in the functions first. Messages of the client are at most max_message bytes. */
void socket_begin(struct socket *s, struct call *c, size_t max_message);
void socket_send(struct socket *s, const char *text, size_t len);
size_t socket_pending(const struct socket *s);
/* Proof of life. False: the last one was not answered; the socket is over. */
bool socket_ping(struct socket *s);
void socket_end(struct socket *s, enum websocket_status status, const char *text);
/* When the memory goes. */
void socket_done(struct socket *s);

#endif
