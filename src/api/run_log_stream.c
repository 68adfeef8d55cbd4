/* Following the log of a run (docs/events.md): record by record as server-sent events, or as the
 * lines of the file, until the run is over and its log is whole.
 *
 * The records are read from the file, where they are before anybody is told of them; the live
 * events of the run only say when to look again. So nothing is lost to a client that is slow or
 * comes back: it is an offset in a file. */
#include <errno.h>
#include <stdio.h>

#include "api/recheck.h"
#include "api/run_call.h"
#include "codec/sse.h"
#include "core/live/live.h"
#include "core/runs/run_log.h"
#include "core/runs/run_view.h"

#define PAGE_MAX  ((int64_t)256 * 1024)
#define AHEAD_MAX ((size_t)512 * 1024)
#define BEAT_MAX  15000 /* clients take a longer silence for an outage */
#define LOOK_MS   1000  /* while a run that has ended is being put in order */

struct tail {
        struct live_reader reader;
        struct call *c; /* NULL once it is over */
        struct live *live;
        char run_id[UUID_LEN + 1];
        bool is_sse;
        int64_t at;
        uv_timer_t beat;
        struct recheck right;

        struct pool_job job; /* reads on */
        bool reading, again; /* and something came meanwhile */
        struct api *api;
        struct buf page;
        int64_t next;
        bool is_whole, is_terminal;
        bool failed; /* to read */
        bool spoke;
        char status[24];
        int64_t exit_code;
};

static void read_on(struct tail *t);

/* Ending */

static void timer_closed(uv_handle_t *handle)
{
        struct tail *t = container_of((uv_timer_t *)handle, struct tail, beat);

        recheck_release(&t->right);
        buf_done(&t->page);
        free(t);
}

static void free_if_over(struct tail *t)
{
        if (!t->c && !t->reading && !t->right.running)
                uv_close((uv_handle_t *)&t->beat, timer_closed);
}

static void end(struct tail *t)
{
        struct call *c = take_ptr(&t->c);

        if (!c)
                return;
        http_set_data(c->x, NULL);
        http_stream_end(c->x);
        call_free(c);
        live_reader_remove(&t->reader);
        uv_timer_stop(&t->beat);
        free_if_over(t);
}

static void gone(struct call *c)
{
        end(c->data);
}

static void stopped(struct live_reader *reader)
{
        end(container_of(reader, struct tail, reader));
}

static void checked(struct recheck *right)
{
        struct tail *t = container_of(right, struct tail, right);

        if (t->c && right->refused)
                end(t);
        else
                free_if_over(t);
}

/* Reading, on a pool thread */

static int load(struct db *db, void *arg, struct err *err)
{
        struct tail *t = arg;
        struct arena arena;
        struct run run;
        int64_t at = t->at;
        int r;

        arena_init(&arena);
        r = runs_get(db, t->run_id, &arena, &run, err);
        if (r >= 0) {
                /* The row first: what it calls whole is whole when it is read after that. */
                t->is_terminal = run_is_terminal(&run);
                t->is_whole = run_log_is_whole(&run);
                snprintf(t->status, sizeof(t->status), "%s", run.status);
                t->exit_code = run.exit_code;
                t->next = at;
                r = run_log_read(t->api->rt, run.log_ref, at, PAGE_MAX, &t->page, &t->next, err);
                if (r == ERR_NOT_FOUND)
                        r = 0; /* there is none yet, or none at all */
        }
        arena_done(&arena);
        return r;
}

static void job_run(struct pool_job *job, struct op *op)
{
        struct tail *t = container_of(job, struct tail, job);

        t->failed = store_read(op, t->api->rt->store, load, t, NULL) < 0;
}

/* Writing */

static void send_records(struct tail *t)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const char *p = t->page.data, *nl;
        char id[24];

        if (!t->is_sse) {
                http_stream_write(t->c->x, t->page.data, t->page.len);
                return;
        }
        t->at = t->next - (int64_t)t->page.len;
        for (; *p; p = nl + 1) {
                nl = strchr(p, '\n');
                t->at += nl + 1 - p;
                snprintf(id, sizeof(id), "%lld", (long long)t->at);
                sse_put(&out, id, "log", p, (size_t)(nl - p));
        }
        http_stream_write(t->c->x, out.data, out.len);
}

static void send_end(struct tail *t)
{
        CLEAN(buf_done) struct buf data = BUF_INIT, event = BUF_INIT;
        char id[24];
        struct jw w;

        if (!t->is_sse)
                return;
        jw_init(&w, &data);
        jw_object(&w);
        jw_kstring(&w, "runId", t->run_id);
        jw_kstring(&w, "status", t->status);
        if (t->exit_code >= 0)
                jw_kint(&w, "exitCode", t->exit_code);
        else
                jw_knull(&w, "exitCode");
        jw_object_end(&w);
        snprintf(id, sizeof(id), "%lld", (long long)t->at);
        sse_put(&event, id, "end", data.data, data.len);
        http_stream_write(t->c->x, event.data, event.len);
}

static void send_comment(struct tail *t)
{
        CLEAN(buf_done) struct buf comment = BUF_INIT;

        if (!t->is_sse)
                return;
        sse_put_comment(&comment, "still here");
        http_stream_write(t->c->x, comment.data, comment.len);
}

static void beat(uv_timer_t *timer)
{
        struct tail *t = container_of(timer, struct tail, beat);

        send_comment(t);
        recheck_start(&t->right);
        read_on(t);
}

static void job_done(struct pool_job *job)
{
        struct tail *t = container_of(job, struct tail, job);
        bool more = t->page.len > 0;

        t->reading = false;
        if (!t->c) {
                free_if_over(t);
                return;
        }
        if (t->failed) {
                end(t); /* who comes back hears it if the run is gone, and goes on if it is not */
                return;
        }
        if (more)
                send_records(t);
        else if (!t->spoke)
                send_comment(t); /* a client that came back knows that it is heard */
        t->spoke = true;
        t->at = t->next;
        buf_clear(&t->page);
        if (!more && t->is_whole) {
                send_end(t);
                end(t);
                return;
        }
        if (t->is_terminal && uv_timer_get_repeat(&t->beat) != LOOK_MS)
                uv_timer_start(&t->beat, beat, LOOK_MS, LOOK_MS);
        if (more || t->again)
                read_on(t);
}

/* One read at a time, and none while the client is behind: on_drained comes back. */
static void read_on(struct tail *t)
{
        t->again = true;
        if (!t->c || t->reading || http_stream_pending(t->c->x) > AHEAD_MAX)
                return;
        t->again = false;
        t->job = (struct pool_job){ .run = job_run, .done = job_done, .urgent = true };
        t->reading = pool_submit(t->api->pool, &t->job, NULL) >= 0;
        if (!t->reading)
                end(t); /* stopping: the client comes back to the next instance */
}

static void drained(struct http_exchange *x)
{
        struct call *c = http_data(x);

        if (c && ((struct tail *)c->data)->again)
                read_on(c->data);
}

/* Events of this run, and those that the reader itself gets, say that there may be more. */
static void ready(struct live_reader *reader)
{
        struct tail *t = container_of(reader, struct tail, reader);
        struct live_event *e;
        bool concerned = false;

        while ((e = live_reader_take(t->live, reader))) {
                concerned = concerned || streq(e->type, "missed") ||
                            (str_starts(e->type, "heartbeat.run.") && strstr(e->text, t->run_id));
                live_event_done(&e);
        }
        if (concerned)
                read_on(t);
}

/* Beginning */

static void begin(struct call *c)
{
        struct tail *t = c->data;
        const struct http_field fields[] = {
                { "Content-Type", t->is_sse ? "text/event-stream; charset=utf-8"
                                            : "application/x-ndjson; charset=utf-8" },
                { "Cache-Control", "no-cache, no-store" },
                { "X-Content-Type-Options", "nosniff" },
        };
        uint64_t ms = (uint64_t)MIN(MAX(c->rt->settings.live_ping_ms / 2, 1), BEAT_MAX);

        c->on_gone = gone;
        uv_timer_init(c->api->loop, &t->beat);
        t->reader.ready = ready;
        t->reader.stopped = stopped;
        live_reader_add(t->live, &t->reader, t->right.company_id, LIVE_NOW);
        http_stream_begin(c->x, 200, fields, ARRAY_LEN(fields));
        http_stream_on_drained(c->x, drained);
        uv_timer_start(&t->beat, beat, ms, ms);
        if (live_is_stopped(t->live) || http_is_gone(c->x) || streq(http_method(c->x), "HEAD"))
                end(t);
        else
                read_on(t);
}

/* Where to go on: after the record whose id the browser remembers, or at an offset. */
static int read_offset(struct call *c, int64_t *ret, struct err *err)
{
        char *rest;

        if (!c->last_event_id || !*c->last_event_id)
                return call_query_int(c, "offset", 0, 0, INT64_MAX, ret, err);
        errno = 0;
        *ret = strtoll(c->last_event_id, &rest, 10);
        if (errno || *rest || *ret < 0)
                return err_set(err, ERR_INVALID, "Last-Event-ID must be an id of this stream");
        return 0;
}

static int follow(struct call *c, bool is_sse, struct err *err)
{
        struct run_view view;
        struct tail *t;
        const char *id;
        int64_t at;
        int r = call_uuid(c, 0, "Heartbeat run not found", &id, err);

        if (r >= 0)
                r = read_offset(c, &at, err);
        if (r >= 0)
                r = run_view_get(c->op, c->rt, id, &view, err);
        if (r < 0)
                return r;
        t = xcalloc(1, sizeof(*t));
        t->c = c;
        t->api = c->api;
        t->live = c->rt->live;
        t->at = at;
        t->is_sse = is_sse;
        snprintf(t->run_id, sizeof(t->run_id), "%s", id);
        recheck_init(&t->right, c, view.run.company_id, false, checked);
        c->data = t;
        c->on_loop = begin;
        return 0;
}

int run_log_follow(struct call *c, struct err *err)
{
        const char *accept = http_header(c->x, "accept");

        return follow(c, accept && strstr(accept, "text/event-stream"), err);
}

int run_log_stream(struct call *c, struct err *err)
{
        return follow(c, true, err);
}
