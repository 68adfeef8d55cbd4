/* Watching output: as server-sent events, or as the raw bytes.
 *
 * Both read the execution's output files from an offset up to what is known to be there, write no
 * faster than the client reads, and wait on the loop for more. A thousand idle ones cost their
 * connection and this struct: all who follow an execution share its open files. After the end of
 * the execution is recorded, its row gives the last word. */
#include <errno.h>
#include <sodium.h>
#include <stdio.h>

#include "api/exec_call.h"
#include "base/fd.h"
#include "base/utf8.h"
#include "codec/sse.h"
#include "core/exec/exec_output.h"

#define PART_MAX     ((size_t)32 * 1024)
#define RAW_PART_MAX ((size_t)256 * 1024)
#define AHEAD_MAX    ((size_t)512 * 1024)
#define HEARTBEAT_MS 15000
#define AGAIN_MS     250 /* after a file could not be opened or read */
#define FAILURES_MAX 120

struct follow {
        struct exec_watch watch;
        struct call *c;
        char id[UUID_LEN + 1];
        bool raw, keep; /* keep: wait for more until the end */
        bool only_stderr;
        struct exec_file *file[2];
        unsigned failures; /* to open or read a file, in a row */
        uint64_t at[2], len[2];
        uint64_t dropped[2]; /* right before `at`: gone by a limit, and to be told */
        bool watching, ended, closed, loading;
        struct pool_job job; /* reads the row once it has ended */
        struct {
                const char *status;
                int64_t code, signal;
                bool timed_out, incomplete;
                char reason[512];
        } end;
        uv_timer_t heartbeat;
};

static void pump(struct follow *f);

/* Ending */

static void timer_closed(uv_handle_t *handle)
{
        struct follow *f = container_of((uv_timer_t *)handle, struct follow, heartbeat);

        free(f);
}

/* Everything but the stream itself. A job that still runs frees the rest when it is done. */
static void let_go(struct follow *f)
{
        if (f->watching)
                exec_watch_remove(f->c->rt->hub, f->id, &f->watch);
        f->watching = false;
        f->closed = true;
        if (f->loading)
                return;
        exec_file_put(f->c->rt, f->file[0]);
        exec_file_put(f->c->rt, f->file[1]);
        call_free(f->c);
        uv_close((uv_handle_t *)&f->heartbeat, timer_closed);
}

static void end_stream(struct follow *f)
{
        struct http_exchange *x = f->c->x;

        http_set_data(x, NULL);
        http_stream_end(x);
        let_go(f);
}

static void break_stream(struct follow *f)
{
        struct http_exchange *x = f->c->x;

        http_set_data(x, NULL);
        http_drop(x);
        let_go(f);
}

static void gone(struct call *c)
{
        end_stream(c->data);
}

/* The last word */

static int load_row(struct db *db, void *arg, struct err *err)
{
        struct follow *f = arg;
        struct arena arena;
        struct execution row;
        int r;

        arena_init(&arena);
        r = executions_get(db, f->id, &arena, &row, err);
        if (r >= 0) {
                f->end.status = streq(row.status, EXEC_EXITED) ? EXEC_EXITED
                                : streq(row.status, EXEC_LOST) ? EXEC_LOST
                                                               : EXEC_FAILED;
                f->end.code = row.exit_code;
                f->end.signal = row.signal;
                f->end.timed_out = row.timed_out;
                f->end.incomplete = row.is_incomplete;
                snprintf(f->end.reason, sizeof(f->end.reason), "%s", row.reason ? row.reason : "");
                f->len[0] = (uint64_t)row.stdout_len;
                f->len[1] = (uint64_t)row.stderr_len;
        }
        arena_done(&arena);
        return r;
}

static void job_run(struct pool_job *job, struct op *op)
{
        struct follow *f = container_of(job, struct follow, job);

        (void)store_read(op, f->c->rt->store, load_row, f, NULL);
}

static void job_done(struct pool_job *job)
{
        struct follow *f = container_of(job, struct follow, job);

        f->loading = false;
        f->ended = true;
        if (f->closed)
                let_go(f);
        else
                pump(f);
}

static void load_end(struct follow *f)
{
        f->job = (struct pool_job){ .run = job_run, .done = job_done, .urgent = true };
        f->loading = true;
        if (pool_submit(f->c->api->pool, &f->job, NULL) < 0) {
                f->loading = false;
                end_stream(f); /* stopping: the client comes back to the next instance */
        }
}

static void put_exit_event(struct follow *f)
{
        CLEAN(buf_done) struct buf data = BUF_INIT;
        CLEAN(buf_done) struct buf event = BUF_INIT;
        char id[64];
        struct jw w;

        jw_init(&w, &data);
        jw_object(&w);
        if (f->end.code >= 0)
                jw_kint(&w, "exitCode", f->end.code);
        else
                jw_knull(&w, "exitCode");
        jw_kstring(&w, "signal", signal_name((int)f->end.signal));
        jw_kbool(&w, "timedOut", f->end.timed_out);
        jw_kstring(&w, "status", f->end.status);
        if (f->end.incomplete)
                jw_kbool(&w, "incomplete", true);
        if (f->end.reason[0])
                jw_kstring(&w, "reason", f->end.reason);
        jw_object_end(&w);
        snprintf(id, sizeof(id), "%llu.%llu", (unsigned long long)f->at[0],
                 (unsigned long long)f->at[1]);
        sse_put(&event, id, "exit", buf_str(&data), data.len);
        http_stream_write(f->c->x, event.data, event.len);
}

/* Bytes */

/* Read a part; 0 when nothing can be had now. A file that is gone has nothing; one that cannot be
 * read is tried again. */
static size_t read_part(struct follow *f, int stream, char *out, size_t max)
{
        struct exec_file **file = &f->file[stream];
        uint64_t from;
        size_t want;
        ssize_t n;
        int fd, r;

        r = *file ? 0 : exec_file_get(f->c->rt, f->id, stream == 1, file, NULL);
        if (r < 0) {
                f->failures += r != ERR_NOT_FOUND;
                return 0;
        }
        fd = exec_file_fd(*file);
        from = MIN(exec_output_from(fd, f->at[stream]), f->len[stream]);
        f->dropped[stream] += from - f->at[stream];
        f->at[stream] = from;
        want = (size_t)MIN((uint64_t)max, f->len[stream] - f->at[stream]);
        n = pread(fd, out, want, (off_t)f->at[stream]);
        f->failures = n < 0 ? f->failures + 1 : 0;
        return n > 0 ? (size_t)n : 0;
}

static void put_output_event(struct follow *f, int stream, const char *part, size_t n)
{
        CLEAN(buf_done) struct buf data = BUF_INIT;
        CLEAN(buf_done) struct buf event = BUF_INIT;
        /* NUL is valid in UTF-8, but six bytes in JSON, and many readers refuse it. */
        bool text = utf8_is_valid(part, n) && !memchr(part, '\0', n);
        uint64_t offset = f->at[stream];
        char id[64];
        struct jw w;

        jw_init(&w, &data);
        jw_object(&w);
        jw_kint(&w, "offset", (int64_t)offset);
        if (f->dropped[stream] > 0)
                jw_kint(&w, "dropped", (int64_t)f->dropped[stream]);
        f->dropped[stream] = 0;
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
        f->at[stream] += n;
        snprintf(id, sizeof(id), "%llu.%llu", (unsigned long long)f->at[0],
                 (unsigned long long)f->at[1]);
        sse_put(&event, id, stream == 0 ? "stdout" : "stderr", buf_str(&data), data.len);
        http_stream_write(f->c->x, event.data, event.len);
}

/* One part of one stream; false when it has nothing (more) to say now. */
static bool send_part(struct follow *f, int stream)
{
        static char part[RAW_PART_MAX]; /* the loop thread's */
        size_t n;

        if (f->at[stream] >= f->len[stream])
                return false;
        n = read_part(f, stream, part, f->raw ? RAW_PART_MAX : PART_MAX);
        if (n == 0)
                return false;
        if (f->raw) {
                f->at[stream] += n;
                http_stream_write(f->c->x, part, n);
                return true;
        }
        /* A character cut in two waits for its rest, unless there will be none. */
        if (f->at[stream] + n < f->len[stream] || !f->ended) {
                size_t cut = utf8_unfinished(part, n);

                if (cut == n)
                        return false;
                n -= cut;
        }
        put_output_event(f, stream, part, n);
        return true;
}

static void beat(uv_timer_t *timer);

static void pump(struct follow *f)
{
        unsigned failures = f->failures;
        bool more = true;

        if (f->loading)
                return; /* how much there is comes with the row */
        while (more && http_stream_pending(f->c->x) < AHEAD_MAX) {
                more = false;
                for (int i = 0; i < 2; i++)
                        if (!f->raw || f->only_stderr == (i == 1))
                                more = send_part(f, i) || more;
        }
        if (more)
                return; /* the client is behind; on_drained comes back */
        if (f->failures > failures && f->failures < FAILURES_MAX) {
                uv_timer_start(&f->heartbeat, beat, AGAIN_MS, HEARTBEAT_MS);
                return;
        }
        if (f->failures >= FAILURES_MAX) { /* what is missing must not look like the end */
                break_stream(f);
                return;
        }
        if (f->ended && !f->raw)
                put_exit_event(f);
        if (f->ended || !f->keep)
                end_stream(f);
}

static void drained(struct http_exchange *x)
{
        struct call *c = http_data(x);

        if (c)
                pump(c->data);
}

/* Beginning */

static void changed(struct exec_watch *watch, const struct exec_view *view)
{
        struct follow *f = container_of(watch, struct follow, watch);

        f->len[0] = view->stdout_len;
        f->len[1] = view->stderr_len;
        if (view->ended) {
                f->watching = false;
                load_end(f);
                return;
        }
        pump(f);
}

static void beat(uv_timer_t *timer)
{
        struct follow *f = container_of(timer, struct follow, heartbeat);
        CLEAN(buf_done) struct buf comment = BUF_INIT;

        if (!f->raw) {
                sse_put_comment(&comment, "still here");
                http_stream_write(f->c->x, comment.data, comment.len);
        }
        if (f->failures > 0)
                pump(f);
}

static void begin(struct call *c)
{
        static const struct http_field sse_fields[] = {
                { "Content-Type", "text/event-stream; charset=utf-8" },
                { "Cache-Control", "no-cache, no-store" },
                { "X-Content-Type-Options", "nosniff" },
        };
        static const struct http_field raw_fields[] = {
                { "Content-Type", "application/octet-stream" },
                { "Cache-Control", "no-cache, no-store" },
                { "X-Content-Type-Options", "nosniff" },
        };
        struct follow *f = c->data;
        struct exec_view view;

        uv_timer_init(c->api->loop, &f->heartbeat);
        c->on_gone = gone;
        http_stream_begin(c->x, 200, f->raw ? raw_fields : sse_fields, 3);
        http_stream_on_drained(c->x, drained);
        if (!f->raw)
                uv_timer_start(&f->heartbeat, beat, HEARTBEAT_MS, HEARTBEAT_MS);
        f->watching = exec_watch_add(c->rt->hub, f->id, &f->watch);
        if (!f->watching) {
                load_end(f);
                return;
        }
        if (exec_snapshot(c->rt->hub, f->id, &view)) {
                f->len[0] = view.stdout_len;
                f->len[1] = view.stderr_len;
        }
        pump(f);
}

static struct follow *new_follow(struct call *c, const struct execution *row)
{
        struct follow *f = xcalloc(1, sizeof(*f));

        f->c = c;
        f->watch.changed = changed;
        memcpy(f->id, row->id, UUID_LEN + 1);
        c->data = f;
        c->on_loop = begin;
        return f;
}

int exec_stream_events(struct call *c, struct err *err)
{
        struct execution row;
        unsigned long long out = 0, errors = 0;
        struct follow *f;
        char rest;
        int r = call_execution(c, &row, err);

        if (r < 0)
                return r;
        if (c->last_event_id && *c->last_event_id &&
            sscanf(c->last_event_id, "%llu.%llu%c", &out, &errors, &rest) != 2)
                return err_set(err, ERR_INVALID,
                               "Last-Event-ID must be an id of this stream: <stdout>.<stderr>");
        f = new_follow(c, &row);
        f->keep = true;
        f->at[0] = out;
        f->at[1] = errors;
        return 0;
}

int exec_stream_output(struct call *c, struct err *err)
{
        const char *stream = call_query(c, "stream");
        struct execution row;
        struct follow *f;
        int64_t offset;
        int r = call_execution(c, &row, err);

        if (r >= 0)
                r = call_query_int(c, "offset", 0, 0, INT64_MAX, &offset, err);
        if (r >= 0 && stream && !streq(stream, "stdout") && !streq(stream, "stderr"))
                r = err_set(err, ERR_INVALID, "stream must be stdout or stderr");
        if (r < 0)
                return r;
        f = new_follow(c, &row);
        f->raw = true;
        f->only_stderr = stream && streq(stream, "stderr");
        f->keep = call_query_flag(c, "follow");
        f->at[f->only_stderr] = (uint64_t)offset;
        return 0;
}
