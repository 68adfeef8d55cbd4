/* Requests that came through the callback channel of a run (core/callbacks/callback.h).
 *
 * The channel identifies the caller; of the request only method, path, query, body and a few
 * headers count. It is let in, or refused, at its head; its body is gathered here, so that it stays
 * small. Of the answer only a few headers leave. Between the two it is a call as any other.
 *
 * Loop thread, but channel_actor(). */
#pragma once

#include "api/api.h"

/* Of struct http_handler. */
enum http_body_mode channel_on_head(void *ctx, struct http_exchange *x);
void channel_on_body(void *ctx, struct http_exchange *x, const void *data, size_t len);

/* A request of a channel, at its head. */
void channel_begin(struct call *c);
/* Operation: the agent whose run it is. */
int channel_actor(struct call *c, struct err *err);
/* Leave out of the answer what is not for the inside; returns the status. */
int channel_answer(struct call *c, int status);
/* What an error becomes. */
int channel_status(int code, int status);
const char *channel_text(int code, const char *text);
int64_t channel_timeout_ms(void);

/* call.c: match the route and go on. */
void call_route(struct call *c);
