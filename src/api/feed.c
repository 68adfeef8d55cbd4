/* When a feed reads on, sends, pings its client, checks its rights again, and ends. */
#include "api/feed.h"

#include <errno.h>
#include <stdio.h>

#include "codec/sse.h"
#include "core/access/auth.h"

#define BEAT_MAX_MS    15000 /* clients take a longer silence for an outage */
#define AGAIN_MS       250   /* after what is to be sent could not be read */
#define FAILING_MAX_MS 30000
#define PONG_AHEAD_MAX (2 * FEED_AHEAD) /* a client that does not read gets no more answers */

static void feed_flush(struct feed *f);

/* Ending */

static const struct {
        enum websocket_status status;
        const char *text;
} closes[] = {
        [FEED_END_DONE] = { WEBSOCKET_NORMAL, NULL },
        [FEED_END_GONE] = { WEBSOCKET_GOING_AWAY, NULL },
        [FEED_END_SILENT] = { WEBSOCKET_GOING_AWAY, "no answer to the last ping" },
        [FEED_END_REFUSED] = { WEBSOCKET_POLICY, "forbidden" },
        [FEED_END_STOPPED] = { WEBSOCKET_GOING_AWAY, "the daemon stops" },
        [FEED_END_CUT] = { WEBSOCKET_FAILED, NULL },
        [FEED_END_CONFUSED] = { WEBSOCKET_POLICY, NULL },
};

static void feed_timer_closed(uv_handle_t *handle)
{
        struct feed *f = container_of((uv_timer_t *)handle, struct feed, timer);

        websocket_decoder_done(&f->in);
        if (f->authorization)
                explicit_bzero(f->authorization, strlen(f->authorization));
        free(f->authorization);
        f->kind->free(f);
}

static void feed_free_if_over(struct feed *f)
{
        if (f->c || f->loading || f->checking || f->holds > 0 ||
            uv_is_closing((uv_handle_t *)&f->timer))
                return;
        live_reader_remove(&f->reader);
        uv_close((uv_handle_t *)&f->timer, feed_timer_closed);
}

static void feed_close(struct feed *f, enum feed_end why, enum websocket_status status,
                       const char *text)
{
        struct call *c = f->c;

        if (!c)
                return;
        if (f->frame == FEED_SOCKET)
                websocket_put_close(&f->out, status, text);
        feed_flush(f);
        f->c = NULL;
        http_set_data(c->x, NULL);
        if (f->frame == FEED_BYTES && why != FEED_END_DONE)
                http_drop(c->x);
        else
                http_stream_end(c->x);
        call_free(c);
        uv_timer_stop(&f->timer);
        if (f->kind->closed)
                f->kind->closed(f, why);
        feed_free_if_over(f);
}

void feed_end(struct feed *f, enum feed_end why)
{
        const char *text = why == FEED_END_CONFUSED ? f->kind->no_message : closes[why].text;

        feed_close(f, why, closes[why].status, text);
}

void feed_hold(struct feed *f)
{
        f->holds++;
}

void feed_release(struct feed *f)
{
        f->holds--;
        feed_free_if_over(f);
}

/* Writing */

static void feed_flush(struct feed *f)
{
        if (f->c && f->out.len > 0)
                http_stream_write(f->c->x, f->out.data, f->out.len);
        buf_done(&f->out);
}

void feed_put(struct feed *f, const char *id, const char *type, const char *data, size_t len)
{
        switch (f->frame) {
        case FEED_EVENTS:
                sse_put(&f->out, id, type, data, len);
                break;
        case FEED_SOCKET:
                websocket_put(&f->out, WEBSOCKET_TEXT, data, len);
                break;
        case FEED_BYTES:
                http_stream_write(f->c->x, data, len);
                break;
        }
}

void feed_put_comment(struct feed *f)
{
        if (f->frame == FEED_EVENTS)
                sse_put_comment(&f->out, "still here");
}

/* The next bytes */

static void feed_load(struct feed *f);
static void feed_tick(uv_timer_t *timer);

static void feed_arm(struct feed *f)
{
        uint64_t now = uv_now(f->api->loop);
        uint64_t due = f->again_at ? MIN(f->again_at, f->beat_at) : f->beat_at;

        if (f->c)
                uv_timer_start(&f->timer, feed_tick, due > now ? due - now : 0, 0);
}

void feed_pump_in(struct feed *f, uint64_t ms)
{
        f->again_at = uv_now(f->api->loop) + ms;
        feed_arm(f);
}

static void feed_failed(struct feed *f)
{
        uint64_t now = uv_now(f->api->loop);

        if (!f->failing_since)
                f->failing_since = now;
        if (now - f->failing_since > FAILING_MAX_MS)
                feed_end(f, FEED_END_CUT);
        else
                feed_pump_in(f, AGAIN_MS);
}

void feed_pump(struct feed *f)
{
        feed_flush(f);
        while (f->c && !f->loading && http_stream_pending(f->c->x) < FEED_AHEAD) {
                enum feed_step step = f->kind->next(f);

                feed_flush(f);
                if (step == FEED_FAILED) {
                        feed_failed(f);
                        return;
                }
                f->failing_since = 0;
                if (step == FEED_WAIT)
                        return;
                if (step == FEED_LOAD)
                        feed_load(f);
                else if (step == FEED_DONE || step == FEED_LOST)
                        feed_end(f, step == FEED_DONE ? FEED_END_DONE : FEED_END_CUT);
        }
}

static void feed_load_run(struct pool_job *job, struct op *op)
{
        struct feed *f = container_of(job, struct feed, load_job);

        f->kind->load(f, op);
}

static void feed_load_done(struct pool_job *job)
{
        struct feed *f = container_of(job, struct feed, load_job);

        f->loading = false;
        feed_pump(f);
        feed_free_if_over(f);
}

static void feed_load(struct feed *f)
{
        f->load_job =
                (struct pool_job){ .run = feed_load_run, .done = feed_load_done, .urgent = true };
        f->loading = pool_submit(f->api->pool, &f->load_job, NULL) >= 0;
        if (!f->loading)
                feed_end(f, FEED_END_STOPPED);
}

/* Which clients may stay */

static void feed_check_run(struct pool_job *job, struct op *op)
{
        struct feed *f = container_of(job, struct feed, check_job);
        struct actor actor = { 0 };
        int r = auth_actor(op, f->api->rt, f->authorization, f->is_operator, &actor, NULL);

        op->actor = &actor;
        if (r >= 0)
                r = f->kind->may(f, op, NULL);
        op->actor = NULL;
        f->refused = r == ERR_UNAUTHORIZED || r == ERR_FORBIDDEN || r == ERR_NOT_FOUND;
}

static void feed_check_done(struct pool_job *job)
{
        struct feed *f = container_of(job, struct feed, check_job);

        f->checking = false;
        if (f->refused)
                feed_end(f, FEED_END_REFUSED);
        feed_free_if_over(f);
}

/* A queue that is full takes no check; the next beat tries again. */
static void feed_check(struct feed *f)
{
        if (f->checking)
                return;
        f->check_job = (struct pool_job){ .run = feed_check_run, .done = feed_check_done };
        f->checking = pool_submit(f->api->pool, &f->check_job, NULL) >= 0;
}

static void feed_beat(struct feed *f)
{
        feed_put_comment(f);
        if (f->frame == FEED_SOCKET) {
                if (f->pinged) {
                        feed_end(f, FEED_END_SILENT);
                        return;
                }
                f->pinged = true;
                websocket_put(&f->out, WEBSOCKET_PING, "", 0);
        }
        feed_flush(f);
        feed_check(f);
}

static void feed_tick(uv_timer_t *timer)
{
        struct feed *f = container_of(timer, struct feed, timer);
        uint64_t now = uv_now(f->api->loop);

        if (now >= f->beat_at) {
                f->beat_at = now + f->beat_ms;
                feed_beat(f);
        }
        if (now >= f->again_at)
                f->again_at = 0;
        if (f->c && f->kind->tick)
                f->kind->tick(f);
        feed_pump(f);
        feed_arm(f);
}

/* What comes from outside */

static void feed_drained(struct http_exchange *x)
{
        struct call *c = http_data(x);

        if (c)
                feed_pump(c->data);
}

static void feed_gone(struct call *c)
{
        feed_end(c->data, FEED_END_GONE);
}

static void feed_woken(struct live_reader *reader)
{
        struct feed *f = container_of(reader, struct feed, reader);

        if (f->c)
                f->kind->woken(f);
}

static void feed_stopped(struct live_reader *reader)
{
        struct feed *f = container_of(reader, struct feed, reader);

        if (f->c)
                feed_end(f, FEED_END_STOPPED);
        else if (f->kind->stopped)
                f->kind->stopped(f);
}

static int feed_message(void *ctx, enum websocket_kind kind, const char *data, size_t len)
{
        struct feed *f = ctx;

        switch (kind) {
        case WEBSOCKET_PING:
                if (http_stream_pending(f->c->x) < PONG_AHEAD_MAX)
                        websocket_put(&f->out, WEBSOCKET_PONG, data, len);
                feed_flush(f);
                break;
        case WEBSOCKET_PONG:
                f->pinged = false;
                break;
        case WEBSOCKET_CLOSE:
                feed_close(f, FEED_END_GONE, WEBSOCKET_NORMAL, NULL);
                break;
        default:
                if (f->kind->message && !f->kind->message(f, data, len))
                        feed_end(f, FEED_END_CONFUSED);
                break;
        }
        return f->c ? 0 : -1;
}

static void feed_bytes(struct http_exchange *x, const char *data, size_t len)
{
        struct call *c = http_data(x);
        struct feed *f = c ? c->data : NULL;
        int r = f ? websocket_feed(&f->in, data, len) : 0;

        if (r > 0)
                feed_close(f, FEED_END_CONFUSED, (enum websocket_status)r, NULL);
}

/* Beginning */

static void feed_begin_socket(struct feed *f)
{
        char accept[WEBSOCKET_ACCEPT_LEN + 1] = "";
        struct http_field fields[] = { { "Upgrade", "websocket" },
                                       { "Sec-WebSocket-Accept", accept } };

        websocket_decoder_init(&f->in, f->kind->max_message, feed_message, f);
        (void)websocket_accept(http_header(f->c->x, "sec-websocket-key"), accept);
        http_upgrade(f->c->x, fields, ARRAY_LEN(fields), feed_bytes);
}

static void feed_begin_answer(struct feed *f)
{
        const struct http_field fields[] = {
                { "Content-Type", f->frame == FEED_EVENTS ? "text/event-stream; charset=utf-8"
                                                          : f->kind->content_type },
                { "Cache-Control", "no-cache, no-store" },
                { "X-Content-Type-Options", "nosniff" },
        };

        http_stream_begin(f->c->x, 200, fields, ARRAY_LEN(fields));
}

static void feed_begin(struct call *c)
{
        struct feed *f = c->data;
        uint64_t ping_ms = (uint64_t)c->rt->settings.live_ping_ms;

        uv_timer_init(c->api->loop, &f->timer);
        f->reader.ready = f->kind->woken ? feed_woken : NULL;
        f->reader.stopped = feed_stopped;
        live_reader_add(c->rt->live, &f->reader, f->company_id, f->last_id);
        c->on_gone = feed_gone;
        if (f->frame == FEED_SOCKET)
                feed_begin_socket(f);
        else
                feed_begin_answer(f);
        http_stream_on_drained(c->x, feed_drained);
        f->beat_ms = f->frame == FEED_SOCKET ? ping_ms : MIN(MAX(ping_ms / 2, 1), BEAT_MAX_MS);
        f->beat_at = uv_now(c->api->loop) + f->beat_ms;
        if (f->kind->begin)
                f->kind->begin(f);
        /* A client that left before this is not reported again. HEAD has its answer. */
        if (live_is_stopped(c->rt->live))
                feed_end(f, FEED_END_STOPPED);
        else if (http_is_gone(c->x))
                feed_end(f, FEED_END_GONE);
        else if (streq(http_method(c->x), "HEAD"))
                feed_end(f, FEED_END_DONE);
        feed_arm(f);
        feed_pump(f);
}

void feed_open(struct feed *f, struct call *c, const struct feed_kind *kind, enum feed_frame frame,
               const char *company_id, int64_t last_id)
{
        f->kind = kind;
        f->frame = frame;
        f->api = c->api;
        f->c = c;
        f->last_id = last_id;
        f->is_operator = c->is_operator;
        f->authorization = c->authorization ? xstrdup(c->authorization) : NULL;
        snprintf(f->company_id, sizeof(f->company_id), "%s", company_id);
        c->data = f;
        c->on_loop = feed_begin;
}

bool feed_position(const char *text, int64_t *ret)
{
        char *end;

        errno = 0;
        *ret = strtoll(text, &end, 10);
        return !errno && !*end && *text >= '0' && *text <= '9';
}
