/* One connection through the proxy.
 *
 * Every callback ends in settle(), which derives from the state what to watch for. A call that may
 * close the connection is followed by a look at the phase; the memory stays until the loop has
 * closed the timer. */
#include <errno.h>

#include "net/proxy_internal.h"

/* Moving bytes */

enum moved { MOVED, BLOCKED, BROKEN };

static enum moved write_out(struct proxy_flow *f, struct byte_stream *to)
{
        while (flow_pending(f) > 0) {
                ssize_t n = stream_write(to, f->out.data + f->out_sent, flow_pending(f));

                if (n == -EAGAIN)
                        return BLOCKED;
                if (n < 0)
                        return BROKEN;
                f->out_sent += (size_t)n;
        }
        buf_clear(&f->out);
        f->out_sent = 0;
        return MOVED;
}

static enum moved read_into(struct buf *b, struct proxy_flow *f, struct byte_stream *from,
                            size_t want)
{
        char *at = buf_reserve(b, want);
        ssize_t n = at ? stream_read(from, at, want) : -ENOMEM;

        if (n == -EAGAIN)
                return BLOCKED;
        if (n < 0)
                return BROKEN;
        if (n == 0)
                f->eof = true;
        buf_grew(b, (size_t)n);
        return MOVED;
}

/* Bytes that were read go to `out`, parsed or as they are. */
static bool transform_bytes(struct proxy_conn *c, struct proxy_flow *f)
{
        if (!c->is_connect)
                return f == &c->up ? proxy_move_request(c) : proxy_move_response(c);
        if (f->in.len > 0) {
                buf_append(&f->out, f->in.data, f->in.len);
                buf_clear(&f->in);
        }
        f->done = f->eof;
        return !buf_failed(&f->out);
}

/* Move what can be moved in one direction, within a turn's share. */
static enum moved pump_bytes(struct proxy_conn *c, struct proxy_flow *f, struct byte_stream *from,
                             struct byte_stream *to)
{
        for (int i = 0; !f->ended; i++) {
                enum moved m;

                if (!transform_bytes(c, f))
                        return BROKEN;
                if (flow_pending(f) > 0) {
                        m = write_out(f, to);
                        if (m == BROKEN)
                                return BROKEN;
                        c->last_byte = uv_now(c->proxy->config.loop);
                        if (f == &c->down)
                                c->answered = true;
                        if (m == BLOCKED)
                                return MOVED;
                }
                if (f->done) {
                        f->ended = true;
                        buf_done(&f->in);
                        buf_done(&f->out);
                        /* A request that was sent whole is not followed by an end: some servers
                         * take that for a client that left. */
                        if (f == &c->down || c->is_connect)
                                stream_end(to);
                        break;
                }
                if (i == PROXY_ROUNDS)
                        break;
                m = read_into(&f->in, f, from, PROXY_CHUNK);
                if (m != MOVED)
                        return m == BLOCKED ? MOVED : BROKEN;
        }
        return MOVED;
}

/* Phases */

static void begin_request(struct proxy_conn *c, const struct http1_proxy_request *req)
{
        CLEAN(err_done) struct err err = { 0 };
        struct http1_slice host = req->authority;

        atomic_fetch_add(&c->proxy->config.counters->requests, 1);
        c->is_connect = req->is_connect;
        c->is_head = !req->is_connect && req->req.method == HTTP1_HEAD;
        c->is_old = req->req.head.minor == 0;
        if (host_target_parse(host.p, host.len, req->is_connect ? 0 : 80, &c->target, &err) < 0) {
                proxy_refuse(c, 400, "The host of the request is not valid: %s.", err.msg);
                return;
        }
        if (!req->is_connect)
                proxy_write_request(c, req);
        buf_consume(&c->up.in, req->req.head.len);
        c->head_seen = 0; /* the answer's head is next */
        proxy_reach(c);
}

static void read_head(struct proxy_conn *c)
{
        struct http1_proxy_request req;
        struct http1_refusal why;
        size_t room = PROXY_MAX_HEAD - MIN(c->up.in.len, PROXY_MAX_HEAD);
        enum moved m = read_into(&c->up.in, &c->up, c->client, MAX(room, 1));

        if (m == BLOCKED)
                return;
        if (m == BROKEN || c->up.eof) {
                proxy_conn_close(c);
                return;
        }
        switch (http1_proxy_parse(c->up.in.data, c->up.in.len, PROXY_MAX_HEAD, &c->head_seen, &req,
                                  &why)) {
        case HTTP1_MORE:
                return;
        case HTTP1_REFUSED:
                proxy_refuse(c, why.status, "%s.", why.text);
                return;
        case HTTP1_DONE:
                begin_request(c, &req);
        }
}

/* Say what is left to say, end our side, and drop what comes until the client ends its own. */
static void linger_on(struct proxy_conn *c)
{
        char drop[4096];
        ssize_t n;

        if (!c->down.ended) {
                enum moved m = write_out(&c->down, c->client);

                if (m == BROKEN)
                        proxy_conn_close(c);
                if (m != MOVED)
                        return;
                stream_end(c->client);
                c->down.ended = true;
        }
        for (int i = 0; i < PROXY_ROUNDS; i++) {
                n = stream_read(c->client, drop, sizeof(drop));
                if (n == -EAGAIN)
                        return;
                if (n <= 0) {
                        proxy_conn_close(c);
                        return;
                }
        }
}

static void proxy_conn_settle(struct proxy_conn *c);

void proxy_conn_linger(struct proxy_conn *c)
{
        proxy_drop_upstream(c);
        if (c->lookup)
                lookup_abandon(take_ptr(&c->lookup));
        c->phase = PROXY_LINGER;
        proxy_deadline(c, PROXY_LINGER_MS);
        linger_on(c);
        proxy_conn_settle(c);
}

static void relay_both(struct proxy_conn *c)
{
        struct byte_stream *upstream = &c->upstream->stream;

        if (pump_bytes(c, &c->up, c->client, upstream) == BROKEN ||
            pump_bytes(c, &c->down, upstream, c->client) == BROKEN) {
                /* It cannot go on: say why, if nothing was said yet. */
                if (c->answered || c->is_connect)
                        proxy_conn_close(c);
                else if (c->malformed)
                        proxy_refuse(c, 400,
                                     "The body of the request is malformed, or was cut short.");
                else
                        proxy_fail(c, 502,
                                   "\"%s\" broke the connection off, or its answer is not HTTP.",
                                   c->target.name);
                return;
        }
        if (!c->down.ended)
                return;
        if (!c->is_connect)
                proxy_conn_linger(c); /* the answer is whole; whatever else was asked is not */
        else if (c->up.ended)
                proxy_conn_close(c);
}

/* Derive from the state what to wait for. */
static void proxy_conn_settle(struct proxy_conn *c)
{
        int client = 0, upstream = 0;

        if (c->phase == PROXY_CLOSED)
                return;
        if (flow_pending(&c->down) > 0)
                client |= STREAM_WRITABLE;
        if (c->phase == PROXY_HEAD || c->phase == PROXY_LINGER)
                client |= STREAM_READABLE;
        if (c->phase == PROXY_RELAY) {
                if (flow_pending(&c->up) > 0)
                        upstream |= STREAM_WRITABLE;
                else if (!c->up.done && !c->up.eof)
                        client |= STREAM_READABLE;
                if (flow_pending(&c->down) == 0 && !c->down.done && !c->down.eof)
                        upstream |= STREAM_READABLE;
                stream_watch(&c->upstream->stream, upstream);
        }
        stream_watch(c->client, client);
}

static void proxy_conn_advance(struct proxy_conn *c)
{
        switch (c->phase) {
        case PROXY_HEAD:
                read_head(c);
                break;
        case PROXY_RELAY:
                relay_both(c);
                break;
        case PROXY_LINGER:
                linger_on(c);
                break;
        default:
                break;
        }
        proxy_conn_settle(c);
}

static void on_client(void *ctx, int events)
{
        struct proxy_conn *c = ctx;

        if (events & STREAM_BROKEN)
                proxy_conn_close(c);
        else
                proxy_conn_advance(c);
}

static void on_relaying_upstream(void *ctx, int events)
{
        struct proxy_conn *c = ctx;

        if ((events & STREAM_BROKEN) && !(events & STREAM_READABLE) &&
            (c->answered || c->is_connect))
                proxy_conn_close(c);
        else
                proxy_conn_advance(c);
}

void proxy_conn_connected(struct proxy_conn *c)
{
        c->phase = PROXY_RELAY;
        c->last_byte = uv_now(c->proxy->config.loop);
        c->up.in.max = c->up.out.max = c->down.in.max = c->down.out.max = 4 * (size_t)PROXY_CHUNK;
        proxy_deadline(c, c->proxy->config.idle_timeout_ms);
        stream_on_ready(&c->upstream->stream, on_relaying_upstream, c);
        if (c->is_connect)
                buf_puts(&c->down.out, "HTTP/1.1 200 Connection established\r\n\r\n");
        proxy_conn_advance(c);
}

void proxy_conn_start(struct proxy_conn *c)
{
        c->up.in.max = c->down.out.max = 4 * (size_t)PROXY_CHUNK;
        stream_on_ready(c->client, on_client, c);
        proxy_deadline(c, c->proxy->config.head_timeout_ms);
        proxy_conn_settle(c);
}

void proxy_conn_expired(struct proxy_conn *c)
{
        unsigned limit = c->proxy->config.idle_timeout_ms;
        uint64_t quiet = uv_now(c->proxy->config.loop) - c->last_byte;

        switch (c->phase) {
        case PROXY_HEAD:
                proxy_refuse(c, 408, "The request did not come in time.");
                break;
        case PROXY_RESOLVE:
                proxy_fail(c, 504, "The host \"%s\" could not be resolved in time.",
                           c->target.name);
                break;
        case PROXY_CONNECT:
                proxy_fail(c, 504, "Could not connect to \"%s\" (port %u) in time.", c->target.name,
                           c->target.port);
                break;
        case PROXY_RELAY:
                if (quiet < limit)
                        proxy_deadline(c, (unsigned)(limit - quiet));
                else if (c->is_connect)
                        proxy_conn_close(c);
                else
                        proxy_fail(c, 504, "\"%s\" did not answer in time.", c->target.name);
                break;
        default:
                proxy_conn_close(c);
        }
}
