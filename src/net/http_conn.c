/* One connection.
 *
 * Bytes come in through the server's one read buffer and are taken from there directly; only what
 * cannot be taken yet (half a head, requests behind the one that is being handled) is kept, in
 * `in`. So an idle connection owns nothing but its struct.
 *
 * Every callback ends in http_conn_advance(), which does all that can be done now: start the
 * requests that have arrived, send, close; and then settle(), which derives from the state, and
 * from nothing else, what to watch for and until when. No other place arms a poll handle or a
 * deadline.
 *
 * What a handler may do to us in the middle of a callback: answer (c->x becomes NULL and the phase
 * changes), or close the server (the phase becomes CLOSED; the memory stays until the loop comes
 * round). Hence the phase is looked at again after each call of a handler. */
#include <errno.h>

#include "net/http_internal.h"

static void on_stream_closed(void *arg)
{
        struct http_conn *c = arg;
        struct http_server *s = c->server;

        free(c);
        http_server_handle_closed(s);
}

/* Take the exchange from the connection; the handler, if it knows of it, is told and finishes it.
 */
static void abandon_exchange(struct http_conn *c)
{
        const struct http_server_config *config = &c->server->config;
        struct http_exchange *x = take_ptr(&c->x);

        if (!x)
                return;
        http_exchange_uncount(c->server, x);
        x->conn = NULL;
        if (!x->handed_out)
                http_exchange_free(x);
        else if (config->handler->on_abort)
                config->handler->on_abort(config->ctx, x);
}

static void drop_tail(struct http_conn *c)
{
        c->server->answers -= c->tail.len;
        buf_done(&c->tail);
}

void http_conn_close(struct http_conn *c)
{
        if (c->phase == CONN_CLOSED)
                return;
        c->phase = CONN_CLOSED;
        http_server_forget(c);
        stream_close(c->stream, on_stream_closed, c);
        buf_done(&c->in);
        buf_done(&c->out);
        drop_tail(c);
        c->out_sent = c->tail_sent = 0;
        abandon_exchange(c);
}

/* Answer what no handler will, and close. When an answer has begun there is nothing left to say. */
static void refuse_request(struct http_conn *c, int status, const char *text)
{
        if (c->x && c->x->answering) {
                http_conn_close(c);
                return;
        }
        http_answer_refusal(c, status, text, c->x && c->x->is_head);
        c->phase = CONN_CLOSING;
        abandon_exchange(c);
}

static void hand_out(struct http_conn *c)
{
        const struct http_server_config *config = &c->server->config;

        c->x->handed_out = true;
        config->handler->on_request(config->ctx, c->x);
}

/* The head is complete: decide how to take the body. `followed` says that bytes of it are here. */
static void begin_request(struct http_conn *c, const struct http1_request *req, bool followed)
{
        const struct http_server_config *config = &c->server->config;
        struct http_exchange *x = c->x;

        if (x->body_done) {
                c->phase = CONN_ANSWER;
                hand_out(c);
                return;
        }
        c->phase = CONN_BODY;
        if (config->handler->on_head)
                x->body_streamed = config->handler->on_head(config->ctx, x) == HTTP_BODY_STREAM;
        if (c->phase != CONN_BODY)
                return;
        if (!x->body_streamed && x->framing == HTTP1_BODY_LENGTH &&
            x->body_left > config->max_body) {
                refuse_request(c, 413, "Request body too large");
                return;
        }
        if (x->body_streamed)
                hand_out(c);
        if (c->phase == CONN_BODY && c->x == x && !x->answering && req->expects_continue &&
            !followed)
                http_answer_continue(c);
}

static size_t take_head(struct http_conn *c, const char *bytes, size_t len)
{
        const char *reserved = c->server->config.reserved_path;
        struct http1_refusal why;
        struct http1_request req;

        switch (http1_request_parse(bytes, len, c->server->config.max_head, &c->head_seen, &req,
                                    &why)) {
        case HTTP1_MORE:
                return 0;
        case HTTP1_REFUSED:
                refuse_request(c, why.status, why.text);
                return len;
        case HTTP1_DONE:
                break;
        }
        c->head_seen = 0;
        http_deadline_clear(c); /* the next head has its own */
        if (c->reserved_only && !http1_slice_is(req.path, reserved)) {
                refuse_request(c, 503, "Too many connections");
                return len;
        }
        c->x = http_exchange_new(c, &req, bytes);
        c->x->keep_alive &= !c->reserved_only;
        begin_request(c, &req, len > req.head.len);
        return req.head.len;
}

/* Every client may send a body of the greatest size before it is identified: together they must not
 * fill the memory. Small bodies do not count, so that the ordinary calls go on while a client tries
 * that. */
static bool count_body(struct http_server *s, struct http_exchange *x, size_t len)
{
        size_t after = x->body.len + len;

        if (after <= SMALL_BODY)
                return true;
        if (after - x->body_counted > s->config.max_bodies - s->bodies)
                return false;
        s->bodies += after - x->body_counted;
        x->body_counted = after;
        return true;
}

void http_exchange_uncount(struct http_server *s, struct http_exchange *x)
{
        s->bodies -= x->body_counted;
        x->body_counted = 0;
}

static void body_bytes(struct http_conn *c, const char *bytes, size_t len)
{
        const struct http_server_config *config = &c->server->config;
        struct http_exchange *x = c->x;

        c->progress = true;
        if (x->body_streamed) {
                config->handler->on_body(config->ctx, x, bytes, len);
                return;
        }
        if (len > config->max_body - x->body.len) {
                refuse_request(c, 413, "Request body too large");
                return;
        }
        if (!count_body(c->server, x, len)) {
                refuse_request(c, 503, "Too many large requests at once");
                return;
        }
        x->body.max = config->max_body;
        buf_append(&x->body, bytes, len);
        if (x->body.failed)
                refuse_request(c, 503, "Out of memory");
}

/* The exchange of a connection in CONN_BODY or CONN_ANSWER: phase and exchange change together. */
static struct http_exchange *current_exchange(const struct http_conn *c)
{
        if (!c->x)
                abort();
        return c->x;
}

static void body_complete(struct http_conn *c)
{
        const struct http_server_config *config = &c->server->config;
        struct http_exchange *x = current_exchange(c);

        x->body_done = true;
        c->phase = CONN_ANSWER;
        if (x->body_streamed)
                config->handler->on_body(config->ctx, x, "", 0);
        else
                hand_out(c);
}

static size_t take_body(struct http_conn *c, const char *bytes, size_t len)
{
        struct http_exchange *x = current_exchange(c);
        struct http1_slice data;
        struct http1_refusal why;
        size_t used;

        if (x->framing != HTTP1_BODY_CHUNKED) {
                used = (size_t)MIN((uint64_t)len, x->body_left);
                x->body_left -= used;
                body_bytes(c, bytes, used);
                if (c->phase == CONN_BODY && x->body_left == 0)
                        body_complete(c);
                return used;
        }
        switch (http1_chunked_feed(&x->chunked, bytes, len, &used, &data, &why)) {
        case HTTP1_REFUSED:
                refuse_request(c, why.status, why.text);
                return len;
        case HTTP1_DONE:
                body_complete(c);
                return used;
        case HTTP1_MORE:
                break;
        }
        if (data.len)
                body_bytes(c, data.p, data.len);
        return used;
}

/* Whether the connection has left HTTP (http_upgrade()). */
static bool is_upgraded(const struct http_conn *c)
{
        return c->phase == CONN_ANSWER && current_exchange(c)->on_bytes;
}

/* Whether bytes that have arrived can be worked on now. */
static bool can_take(const struct http_conn *c)
{
        switch (c->phase) {
        case CONN_HEAD: /* a client that does not read its answers gets no more of them */
                return http_conn_pending(c) < PIPELINE_PENDING && c->tail.len == 0;
        case CONN_BODY:
                return !current_exchange(c)->body_paused;
        case CONN_ANSWER:
                return is_upgraded(c) && !current_exchange(c)->body_paused;
        default:
                return true;
        }
}

/* Returns how many of the bytes were taken. */
static size_t take_bytes(struct http_conn *c, const char *bytes, size_t len)
{
        size_t at = 0;

        while (at < len && can_take(c)) {
                size_t n;

                if (c->phase == CONN_HEAD)
                        n = take_head(c, bytes + at, len - at);
                else if (c->phase == CONN_BODY)
                        n = take_body(c, bytes + at, len - at);
                else if (c->phase == CONN_ANSWER) {
                        n = len - at;
                        c->progress = true;
                        current_exchange(c)->on_bytes(current_exchange(c), bytes + at, n);
                } else {
                        return len;
                }
                if (n == 0)
                        break;
                at += n;
        }
        return c->phase == CONN_CLOSED ? len : at;
}

/* Work on what was kept and on what has just come behind it. Returns whether anything was taken. */
static bool take_input(struct http_conn *c, const char *bytes, size_t len)
{
        size_t used;

        if (c->in.len == 0) {
                used = take_bytes(c, bytes, len);
                if (used < len)
                        buf_append(&c->in, bytes + used, len - used);
        } else {
                buf_append(&c->in, bytes, len);
                used = take_bytes(c, c->in.data, c->in.len);
                buf_consume(&c->in, used);
        }
        if (c->in.failed)
                c->broken = true;
        if (c->in.len == 0)
                buf_done(&c->in);
        return used > 0;
}

/* How much to read: of bodies what comes, of requests to be kept no more than one head's worth. */
static size_t read_room(const struct http_conn *c)
{
        size_t max_head = c->server->config.max_head;

        if (c->phase != CONN_HEAD && c->phase != CONN_ANSWER)
                return READ_SIZE;
        return c->in.len < max_head ? MIN(max_head - c->in.len, READ_SIZE) : 0;
}

static void read_input(struct http_conn *c)
{
        struct http_server *s = c->server;
        size_t want = read_room(c);

        if (want == 0)
                return;
        ssize_t n = stream_read(c->stream, s->scratch, want);
        if (n == -EAGAIN)
                return;
        if (n > 0) {
                (void)take_input(c, s->scratch, (size_t)n);
                return;
        }
        /* The client has ended its side. Requests that came completely are still answered. */
        c->eof = c->eof || n == 0;
        if (n < 0 || c->phase == CONN_BODY || c->phase == CONN_LINGER || is_upgraded(c))
                http_conn_close(c);
}

static void note_sent(struct http_conn *c, size_t n)
{
        size_t from_out = MIN(n, c->out.len - c->out_sent);

        c->progress = true;
        c->sent_since_drained = true;
        c->out_sent += from_out;
        c->tail_sent += n - from_out;
        if (http_conn_pending(c) == 0) {
                buf_clear(&c->out);
                drop_tail(c);
                c->out_sent = c->tail_sent = 0;
        } else if (c->out_sent > c->out.len / 2) { /* moves each byte once at most, on average */
                buf_consume(&c->out, c->out_sent);
                c->out_sent = 0;
        }
}

/* Send what can be sent. Returns false when the client is gone. */
static bool flush_conn(struct http_conn *c)
{
        if (c->out.failed || c->broken)
                return false;
        while (http_conn_pending(c) > 0) {
                struct iovec iov[2] = {
                        { c->out.data + c->out_sent, c->out.len - c->out_sent },
                        { c->tail.data + c->tail_sent, c->tail.len - c->tail_sent },
                };
                ssize_t n = stream_writev(c->stream, iov, c->tail.len ? 2 : 1);

                if (n < 0)
                        return n == -EAGAIN;
                note_sent(c, (size_t)n);
        }
        return true;
}

/* The states that have nothing left to wait for. */
static void close_if_over(struct http_conn *c)
{
        bool sent = http_conn_pending(c) == 0;

        if (c->phase == CONN_CLOSING && sent) {
                stream_end(c->stream);
                if (c->eof)
                        http_conn_close(c);
                else
                        c->phase = CONN_LINGER;
        } else if ((c->phase == CONN_HEAD && sent && c->eof) ||
                   (c->phase == CONN_HEAD && c->in.len == 0 && sent && c->server->draining)) {
                stream_end(c->stream); /* not every carrier takes closing for an end */
                http_conn_close(c);
        }
}

static enum http_deadline next_deadline(const struct http_conn *c)
{
        if (c->phase == CONN_LINGER)
                return DEADLINE_LINGER;
        /* One that reads earlier answers slowly has no more time for this. */
        if (http_conn_is_carried(c) && c->phase == CONN_BODY && !current_exchange(c)->body_paused)
                return DEADLINE_BODY;
        if (http_conn_pending(c) > 0)
                return DEADLINE_WRITE;
        switch (c->phase) {
        case CONN_HEAD:
                if (c->in.len > 0)
                        return DEADLINE_HEAD;
                return http_conn_is_carried(c) ? DEADLINE_CARRIED_IDLE : DEADLINE_IDLE;
        case CONN_BODY:
                return current_exchange(c)->body_paused ? DEADLINE_NONE : DEADLINE_BODY;
        case CONN_ANSWER:
                if (c->eof && !c->probed && !current_exchange(c)->answering &&
                    !current_exchange(c)->is_old && !c->peer.is_unix)
                        return DEADLINE_PROBE;
                return DEADLINE_NONE;
        default:
                return DEADLINE_NONE;
        }
}

/* Derive from the state what to wait for. */
static void settle_conn(struct http_conn *c)
{
        enum http_deadline kind = next_deadline(c);
        bool extends = kind == DEADLINE_WRITE || kind == DEADLINE_IDLE ||
                       kind == DEADLINE_CARRIED_IDLE ||
                       (kind == DEADLINE_BODY && !http_conn_is_carried(c));
        bool reads = !c->eof && !(c->phase == CONN_BODY && current_exchange(c)->body_paused) &&
                     read_room(c) > 0;

        if (c->out.data && http_conn_pending(c) == 0)
                buf_done(&c->out);
        stream_watch(c->stream, (reads ? STREAM_READABLE : 0) |
                                        (http_conn_pending(c) > 0 ? STREAM_WRITABLE : 0));
        if (kind == DEADLINE_NONE)
                http_deadline_clear(c);
        else if (kind != c->deadline_kind || (extends && c->progress))
                http_deadline_set(c, kind);
        c->progress = false;
}

void http_conn_advance(struct http_conn *c)
{
        if (c->phase == CONN_CLOSED)
                return;
        c->running = true;
        do {
                if (!flush_conn(c)) {
                        http_conn_close(c);
                        break;
                }
        } while (c->in.len > 0 && can_take(c) && take_input(c, "", 0));
        if (c->phase != CONN_CLOSED && c->sent_since_drained && http_conn_pending(c) == 0) {
                c->sent_since_drained = false;
                if (c->x && c->x->answering && c->x->on_drained)
                        c->x->on_drained(c->x);
        }
        if (c->phase != CONN_CLOSED)
                close_if_over(c);
        c->running = false;
        if (c->phase != CONN_CLOSED)
                settle_conn(c);
}

static void on_ready(void *ctx, int events)
{
        struct http_conn *c = ctx;

        if (events & STREAM_BROKEN) {
                http_conn_close(c);
                return;
        }
        c->running = true;
        if (events & STREAM_READABLE)
                read_input(c);
        http_conn_advance(c);
}

void http_conn_expired(struct http_conn *c, enum http_deadline kind)
{
        switch (kind) {
        case DEADLINE_HEAD:
        case DEADLINE_BODY:
                refuse_request(c, 408, "Request timed out");
                break;
        case DEADLINE_PROBE:
                c->probed = true;
                http_answer_continue(c);
                break;
        default:
                http_conn_close(c);
                break;
        }
        http_conn_advance(c);
}

static struct http_conn *new_conn(struct http_server *s, const struct http_peer *peer)
{
        struct http_conn *c = xcalloc(1, sizeof(*c));

        c->server = s;
        c->peer = *peer;
        c->deadline_kind = DEADLINE_NONE;
        c->out.max = HTTP_STREAM_MAX_PENDING;
        link_init(&c->kin);
        link_init(&c->due);
        link_init(&c->deadline);
        return c;
}

static void start_conn(struct http_conn *c, struct byte_stream *stream,
                       enum http_admission admission)
{
        struct http_server *s = c->server;

        c->stream = stream;
        stream_on_ready(stream, on_ready, c);
        link_append(&s->conns, &c->all);
        if (http_conn_is_carried(c)) {
                link_append(&s->carried, &c->kin);
                s->n_carried++;
        } else {
                http_client_join(c);
        }
        s->n_conns++;
        s->n_handles++;
        c->reserved_only = admission == HTTP_ADMIT_RESERVED;
        if (admission == HTTP_ADMIT_REFUSED)
                refuse_request(c, 503, "Too many connections");
        http_conn_advance(c);
}

void http_conn_open(struct http_server *s, int take_fd, const struct http_peer *peer,
                    enum http_admission admission)
{
        struct http_conn *c = new_conn(s, peer);

        if (socket_stream_init(&c->socket, s->config.loop, take_fd) < 0)
                free(c);
        else
                start_conn(c, &c->socket.stream, admission);
}

void http_conn_open_stream(struct http_server *s, struct byte_stream *take_stream,
                           const struct http_peer *peer, enum http_admission admission)
{
        start_conn(new_conn(s, peer), take_stream, admission);
}
