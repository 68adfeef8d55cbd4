/* The events of a company: as server-sent events, and over a WebSocket (docs/events.md).
 *
 * A feed is a reader of the ring (core/live/live.h) that writes no further than a little ahead of
 * what its client has taken. While the client is behind, the events wait in the ring, not here.
 * With every sign of life the caller's right to hear this is looked at again: a key that was
 * revoked ends its feeds. */
#include <errno.h>
#include <stdio.h>

#include "api/recheck.h"
#include "api/run_call.h"
#include "api/socket.h"
#include "codec/sse.h"
#include "core/live/live.h"

#define AHEAD_MAX   ((size_t)256 * 1024)
#define MESSAGE_MAX 4096 /* of a client; they are skipped */

struct feed {
        struct live_reader reader;
        struct call *c; /* NULL once it is over */
        struct live *live;
        int64_t last_id;
        bool is_socket;
        struct socket socket;
        uv_timer_t beat;
        struct recheck right;
};

/* Ending */

static void timer_closed(uv_handle_t *handle)
{
        struct feed *f = container_of((uv_timer_t *)handle, struct feed, beat);

        if (f->is_socket)
                socket_done(&f->socket);
        recheck_release(&f->right);
        free(f);
}

/* The connection is over. A check that still runs frees the rest when it is done. */
static void let_go(struct feed *f)
{
        live_reader_remove(&f->reader);
        f->c = NULL;
        if (!f->right.running)
                uv_close((uv_handle_t *)&f->beat, timer_closed);
}

static void end_stream(struct feed *f)
{
        http_set_data(f->c->x, NULL);
        http_stream_end(f->c->x);
        call_free(f->c);
        let_go(f);
}

static void end_feed(struct feed *f, enum websocket_status status, const char *text)
{
        if (!f->c)
                return;
        if (f->is_socket)
                socket_end(&f->socket, status, text);
        else
                end_stream(f);
}

static void socket_closed(struct socket *s)
{
        let_go(container_of(s, struct feed, socket));
}

static void stream_gone(struct call *c)
{
        end_stream(c->data);
}

static void stopped(struct live_reader *reader)
{
        end_feed(container_of(reader, struct feed, reader), WEBSOCKET_GOING_AWAY,
                 "the daemon stops");
}

/* Events */

static void send_event(struct feed *f, const struct live_event *e)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char id[24];

        if (f->is_socket) {
                socket_send(&f->socket, e->text, e->len);
                return;
        }
        snprintf(id, sizeof(id), "%lld", (long long)e->id);
        sse_put(&text, id, e->type, e->text, e->len);
        http_stream_write(f->c->x, text.data, text.len);
}

static void pump(struct feed *f)
{
        while (f->c && http_stream_pending(f->c->x) < AHEAD_MAX) {
                CLEAN(live_event_done)
                struct live_event *e = live_reader_take(f->live, &f->reader);

                if (!e)
                        return;
                send_event(f, e);
        }
}

static void ready(struct live_reader *reader)
{
        pump(container_of(reader, struct feed, reader));
}

static void socket_drained(struct socket *s)
{
        pump(container_of(s, struct feed, socket));
}

static void stream_drained(struct http_exchange *x)
{
        struct call *c = http_data(x);

        if (c)
                pump(c->data);
}

/* Signs of life */

static void checked(struct recheck *right)
{
        struct feed *f = container_of(right, struct feed, right);

        if (!f->c)
                uv_close((uv_handle_t *)&f->beat, timer_closed);
        else if (right->refused)
                end_feed(f, WEBSOCKET_POLICY, "forbidden");
}

static void beat(uv_timer_t *timer)
{
        struct feed *f = container_of(timer, struct feed, beat);
        CLEAN(buf_done) struct buf comment = BUF_INIT;

        if (!f->c)
                return;
        if (!f->is_socket) {
                sse_put_comment(&comment, "still here");
                http_stream_write(f->c->x, comment.data, comment.len);
        } else if (!socket_ping(&f->socket)) {
                return;
        }
        recheck_start(&f->right);
}

/* Beginning */

/* Where it starts: who is cut off before the first event can come back with this number. */
static void send_start(struct feed *f)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        buf_puts(&text, "retry: 1500\n");
        if (f->last_id == LIVE_NOW)
                buf_appendf(&text, "id: %lld\n", (long long)(f->reader.at - 1));
        buf_putc(&text, '\n');
        http_stream_write(f->c->x, text.data, text.len);
}

static void begin_stream(struct feed *f)
{
        static const struct http_field fields[] = {
                { "Content-Type", "text/event-stream; charset=utf-8" },
                { "Cache-Control", "no-cache, no-store" },
                { "X-Content-Type-Options", "nosniff" },
        };
        struct call *c = f->c;

        c->on_gone = stream_gone;
        http_stream_begin(c->x, 200, fields, ARRAY_LEN(fields));
        http_stream_on_drained(c->x, stream_drained);
        send_start(f);
}

static void begin(struct call *c)
{
        struct feed *f = c->data;
        uint64_t ms = (uint64_t)c->rt->settings.live_ping_ms;

        f->reader.ready = ready;
        f->reader.stopped = stopped;
        live_reader_add(f->live, &f->reader, c->params[0], f->last_id);
        uv_timer_init(c->api->loop, &f->beat);
        if (f->is_socket) {
                f->socket.closed = socket_closed;
                f->socket.drained = socket_drained;
                socket_begin(&f->socket, c, MESSAGE_MAX);
        } else {
                begin_stream(f);
                ms = MAX(ms / 2, 1);
        }
        uv_timer_start(&f->beat, beat, ms, ms);
        /* Who left meanwhile is not told of again. HEAD has its answer. */
        if (live_is_stopped(f->live) || http_is_gone(c->x) || streq(http_method(c->x), "HEAD"))
                stopped(&f->reader);
        else
                pump(f);
}

/* The number after which to go on: of the header, which browsers send by themselves, or the query.
 */
static int read_last_id(struct call *c, int64_t *ret, struct err *err)
{
        const char *text = c->last_event_id;
        char *end;

        if (!text || !*text)
                text = call_query(c, "lastEventId");
        *ret = LIVE_NOW;
        if (!text)
                return 0;
        errno = 0;
        *ret = strtoll(text, &end, 10);
        if (errno || *end || *text < '0' || *text > '9')
                return err_set(err, ERR_INVALID, "Last-Event-ID must be the id of an event");
        return 0;
}

static int prepare(struct call *c, bool is_socket, struct err *err)
{
        const char *company_id;
        struct feed *f;
        int64_t last_id;
        int r = call_uuid(c, 0, "Company not found", &company_id, err);

        if (r >= 0)
                r = read_last_id(c, &last_id, err);
        if (r >= 0)
                r = recheck_company(c->op, c->rt, &c->actor, company_id, false, err);
        if (r < 0)
                return r;
        f = xcalloc(1, sizeof(*f));
        f->c = c;
        f->live = c->rt->live;
        f->last_id = last_id;
        f->is_socket = is_socket;
        recheck_init(&f->right, c, company_id, false, checked);
        c->data = f;
        c->on_loop = begin;
        return 0;
}

static int get_events(struct call *c, struct err *err)
{
        return prepare(c, false, err);
}

static int get_socket(struct call *c, struct err *err)
{
        return prepare(c, true, err);
}

const struct route routes_live[] = {
        { "GET", "/api/companies/:companyId/events", get_events, 0 },
        { "GET", "/api/companies/:companyId/events/ws", get_socket, ROUTE_SOCKET },
        { "GET", "/api/heartbeat-runs/:id/stream", run_log_stream, 0 },
        { NULL, NULL, NULL, 0 },
};
