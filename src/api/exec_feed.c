/* Watching output: as server-sent events, or as the raw bytes. */
#include "api/exec_feed.h"

#include <sodium.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/utf8.h"
#include "core/exec/exec_output.h"

#define PART_MAX     ((size_t)32 * 1024)
#define RAW_PART_MAX ((size_t)256 * 1024)

/* What terminals use too */

int exec_feed_may(struct feed *f, struct op *op, struct err *err)
{
        struct exec_feed *e = container_of(f, struct exec_feed, feed);
        struct lease_record record;

        return lease_check_use(op, f->api->rt, e->lease_id, LEASE_USE, &record, err);
}

static int exec_feed_load_row(struct exec_feed *e, struct op *op)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena arena;
        struct execution row;
        int r = store_read_begin(op, e->feed.api->rt->store, &db, NULL);

        arena_init(&arena);
        if (r >= 0)
                r = executions_get(db, e->id, &arena, &row, NULL);
        if (r >= 0) {
                e->end.status = streq(row.status, EXEC_EXITED) ? EXEC_EXITED
                                : streq(row.status, EXEC_LOST) ? EXEC_LOST
                                                               : EXEC_FAILED;
                e->end.code = row.exit_code;
                e->end.signal = row.signal;
                e->end.timed_out = row.timed_out;
                e->end.incomplete = row.is_incomplete;
                snprintf(e->end.reason, sizeof(e->end.reason), "%s", row.reason ? row.reason : "");
                e->len[0] = (uint64_t)row.stdout_len;
                e->len[1] = (uint64_t)row.stderr_len;
        }
        arena_done(&arena);
        return r;
}

/* Of an execution whose row is gone nothing more can be said. A row that cannot be read is tried
 * again. */
void exec_feed_load(struct feed *f, struct op *op)
{
        struct exec_feed *e = container_of(f, struct exec_feed, feed);

        e->end.status = EXEC_LOST;
        e->end.code = -1;
        int r = exec_feed_load_row(e, op);
        e->loaded = r >= 0 || r == ERR_NOT_FOUND;
        e->load_failed = !e->loaded;
}

void exec_feed_tick(struct feed *f)
{
        container_of(f, struct exec_feed, feed)->load_failed = false;
}

void exec_feed_watch(struct exec_feed *e,
                     void (*changed)(struct exec_watch *watch, const struct exec_view *view))
{
        struct exec_hub *hub = e->feed.api->rt->hub;
        struct exec_view view;

        e->watch.changed = changed;
        e->watching = exec_watch_add(hub, e->id, &e->watch);
        if (e->watching && exec_snapshot(hub, e->id, &view))
                exec_feed_grow(e, &view);
}

void exec_feed_grow(struct exec_feed *e, const struct exec_view *view)
{
        e->len[0] = view->stdout_len;
        e->len[1] = view->stderr_len;
        if (view->ended)
                e->watching = false; /* the list of watches goes with the execution */
}

void exec_feed_unwatch(struct exec_feed *e)
{
        if (e->watching)
                exec_watch_remove(e->feed.api->rt->hub, e->id, &e->watch);
        e->watching = false;
}

enum feed_step exec_feed_read(struct exec_feed *e, int stream, bool text, char *out, size_t max,
                              size_t *ret_len)
{
        struct exec_file **file = &e->file[stream];

        if (!e->watching && !e->loaded) /* the row says how much there is */
                return e->load_failed ? FEED_FAILED : FEED_LOAD;
        if (e->at[stream] >= e->len[stream])
                return FEED_WAIT;
        int r = *file ? 0 : exec_file_get(e->feed.api->rt, e->id, stream == 1, file, NULL);
        if (r < 0) /* a file that is gone has nothing */
                return r == ERR_NOT_FOUND ? FEED_WAIT : FEED_FAILED;
        int fd = exec_file_fd(*file);
        uint64_t from = MIN(exec_output_from(fd, e->at[stream]), e->len[stream]);
        e->dropped[stream] += from - e->at[stream];
        e->at[stream] = from;
        ssize_t n = pread(fd, out, (size_t)MIN((uint64_t)max, e->len[stream] - from), (off_t)from);
        if (n < 0)
                return FEED_FAILED;
        if (text && (!e->loaded || from + (uint64_t)n < e->len[stream]))
                n -= (ssize_t)utf8_unfinished(out, (size_t)n);
        *ret_len = (size_t)n;
        return n > 0 ? FEED_MORE : FEED_WAIT;
}

void exec_feed_done(struct exec_feed *e)
{
        exec_file_put(e->feed.api->rt, e->file[0]);
        exec_file_put(e->feed.api->rt, e->file[1]);
}

/* Events and bytes */

/* Where the client goes on: as Last-Event-ID. */
static void exec_put_event(struct exec_feed *e, const char *type, const struct buf *data)
{
        char id[64];

        snprintf(id, sizeof(id), "%llu.%llu", (unsigned long long)e->at[0],
                 (unsigned long long)e->at[1]);
        feed_put(&e->feed, id, type, buf_str(data), data->len);
}

static void exec_put_exit(struct exec_feed *e)
{
        CLEAN(buf_done) struct buf data = BUF_INIT;
        struct jw w;

        jw_init(&w, &data);
        jw_object(&w);
        if (e->end.code >= 0)
                jw_kint(&w, "exitCode", e->end.code);
        else
                jw_knull(&w, "exitCode");
        jw_kstring(&w, "signal", signal_name((int)e->end.signal));
        jw_kbool(&w, "timedOut", e->end.timed_out);
        jw_kstring(&w, "status", e->end.status);
        if (e->end.incomplete)
                jw_kbool(&w, "incomplete", true);
        if (e->end.reason[0])
                jw_kstring(&w, "reason", e->end.reason);
        jw_object_end(&w);
        exec_put_event(e, "exit", &data);
}

static void exec_put_output(struct exec_feed *e, int stream, const char *part, size_t n)
{
        CLEAN(buf_done) struct buf data = BUF_INIT;
        /* NUL is valid in UTF-8, but six bytes in JSON, and many readers refuse it. */
        bool text = utf8_is_valid(part, n) && !memchr(part, '\0', n);
        struct jw w;

        jw_init(&w, &data);
        jw_object(&w);
        jw_kint(&w, "offset", (int64_t)e->at[stream]);
        if (e->dropped[stream] > 0)
                jw_kint(&w, "dropped", (int64_t)e->dropped[stream]);
        e->dropped[stream] = 0;
        jw_key(&w, "data");
        if (text) {
                jw_string_n(&w, part, n);
        } else {
                size_t size = sodium_base64_ENCODED_LEN(n, sodium_base64_VARIANT_ORIGINAL);
                CLEAN(cleanup_free) char *encoded = xcalloc(1, size);

                sodium_bin2base64(encoded, size, (const unsigned char *)part, n,
                                  sodium_base64_VARIANT_ORIGINAL);
                jw_string(&w, encoded);
        }
        jw_kstring(&w, "encoding", text ? "utf8" : "base64");
        jw_object_end(&w);
        e->at[stream] += n;
        exec_put_event(e, stream == 0 ? "stdout" : "stderr", &data);
}

static void exec_feed_changed(struct exec_watch *watch, const struct exec_view *view)
{
        struct exec_feed *e = container_of(watch, struct exec_feed, watch);

        exec_feed_grow(e, view);
        feed_pump(&e->feed);
}

static void exec_feed_begin(struct feed *f)
{
        exec_feed_watch(container_of(f, struct exec_feed, feed), exec_feed_changed);
}

static enum feed_step exec_events_next(struct feed *f)
{
        static char part[PART_MAX]; /* the loop thread's */
        struct exec_feed *e = container_of(f, struct exec_feed, feed);
        enum feed_step all = FEED_WAIT;

        for (int i = 0; i < 2; i++) {
                size_t n;
                enum feed_step step = exec_feed_read(e, i, true, part, sizeof(part), &n);

                if (step == FEED_MORE)
                        exec_put_output(e, i, part, n);
                all = MAX(all, step);
        }
        if (all != FEED_WAIT || !e->loaded)
                return all;
        exec_put_exit(e);
        return FEED_DONE;
}

static enum feed_step exec_bytes_next(struct feed *f)
{
        static char part[RAW_PART_MAX]; /* the loop thread's */
        struct exec_feed *e = container_of(f, struct exec_feed, feed);
        int stream = e->only_stderr;
        size_t n;
        enum feed_step step = exec_feed_read(e, stream, false, part, sizeof(part), &n);

        if (step == FEED_MORE) {
                feed_put(f, NULL, NULL, part, n);
                e->at[stream] += n;
        }
        return step == FEED_WAIT && (e->loaded || !e->keep) ? FEED_DONE : step;
}

static void exec_feed_closed(struct feed *f, enum feed_end why UNUSED)
{
        exec_feed_unwatch(container_of(f, struct exec_feed, feed));
}

static void exec_feed_free(struct feed *f)
{
        struct exec_feed *e = container_of(f, struct exec_feed, feed);

        exec_feed_done(e);
        free(e);
}

static const struct feed_kind exec_events = {
        .may = exec_feed_may,
        .begin = exec_feed_begin,
        .next = exec_events_next,
        .load = exec_feed_load,
        .tick = exec_feed_tick,
        .closed = exec_feed_closed,
        .free = exec_feed_free,
};

static const struct feed_kind exec_bytes = {
        .content_type = "application/octet-stream",
        .may = exec_feed_may,
        .begin = exec_feed_begin,
        .next = exec_bytes_next,
        .load = exec_feed_load,
        .tick = exec_feed_tick,
        .closed = exec_feed_closed,
        .free = exec_feed_free,
};

/* Handlers */

void exec_feed_open(struct exec_feed *e, struct call *c, const char *id,
                    const struct feed_kind *kind, enum feed_frame frame, const char *company_id)
{
        memcpy(e->lease_id, c->params[0], UUID_LEN + 1);
        memcpy(e->id, id, UUID_LEN + 1);
        feed_open(&e->feed, c, kind, frame, company_id, LIVE_NOW);
}

int exec_stream_events(struct call *c, struct err *err)
{
        struct execution row;
        unsigned long long out = 0, errors = 0;
        struct exec_feed *e;
        char rest;
        int r = call_execution(c, &row, err);

        if (r < 0)
                return r;
        if (c->last_event_id && *c->last_event_id &&
            sscanf(c->last_event_id, "%llu.%llu%c", &out, &errors, &rest) != 2)
                return err_set(err, ERR_INVALID,
                               "Last-Event-ID must be an id of this stream: <stdout>.<stderr>");
        e = xcalloc(1, sizeof(*e));
        e->at[0] = out;
        e->at[1] = errors;
        exec_feed_open(e, c, row.id, &exec_events, FEED_EVENTS, row.company_id);
        return 0;
}

int exec_stream_output(struct call *c, struct err *err)
{
        const char *stream = call_query(c, "stream");
        struct execution row;
        struct exec_feed *e;
        int64_t offset;
        int r = call_execution(c, &row, err);

        if (r >= 0)
                r = call_query_int(c, "offset", 0, 0, INT64_MAX, &offset, err);
        if (r >= 0 && stream && !streq(stream, "stdout") && !streq(stream, "stderr"))
                r = err_set(err, ERR_INVALID, "stream must be stdout or stderr");
        if (r < 0)
                return r;
        e = xcalloc(1, sizeof(*e));
        e->only_stderr = stream && streq(stream, "stderr");
        e->keep = call_query_flag(c, "follow");
        e->at[e->only_stderr] = (uint64_t)offset;
        exec_feed_open(e, c, row.id, &exec_bytes, FEED_BYTES, row.company_id);
        return 0;
}
