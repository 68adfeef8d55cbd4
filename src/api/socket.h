/* Asking for a WebSocket: routes with ROUTE_SOCKET.
 *
 * A request for one is looked at before it is run (socket_check()); a caller who may not have it is
 * answered 403 `forbidden` as plain text, and a WebSocket that no route offers gets no answer at
 * all (http-api 4.1). The handler checks rights and makes a feed of it (feed.h, FEED_SOCKET). Loop
 * thread. */
#pragma once

#include "api/api.h"

/* Whether the request asks for a WebSocket. */
bool socket_wanted(const struct http_exchange *x);
/* Before the call of a ROUTE_SOCKET is run: key, version, origin, and the token of the query. */
int socket_check(struct call *c, struct err *err);
/* The answer to a caller who may not have it. */
void socket_write_forbidden(struct call *c);
