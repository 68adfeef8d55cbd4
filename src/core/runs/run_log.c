/* Decides what goes into a run's log: records of output, limits, and marks. */
#include "core/runs/run_log.h"
#include "core/exec/exec_output.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/utf8.h"
#include "core/exec/exec.h"
#include "core/live/live.h"
#include "core/runs/run_log_file.h"

#define READ_SIZE    ((size_t)256 << 10)
#define PUMP_MAX     ((size_t)4 << 20)
#define EXCERPT_MAX  4096
#define LIVE_MAX     8192 /* of a chunk in a live event: its end */
#define IMAGE_NOTICE "[image left out]"

struct run_log {
        struct runtime *rt;
        int fd;
        char *ref;
        struct uuid run_id;
        char company_id[UUID_LEN + 1], agent_id[UUID_LEN + 1];
        struct run_log_summary sum;
        struct buf out; /* records that are to be written */
};

/* Records */

struct record {
        const char *stream, *mark;
        const struct run_log_source *source; /* as it is with this record; NULL: ours */
        const char *chunk;
        size_t len;
};

static void put_record(struct run_log *log, const struct record *r, const char *ts)
{
        int image = r->source ? r->source->image[0].inside | r->source->image[1].inside << 1 : 0;
        struct jw w;

        jw_init(&w, &log->out);
        jw_object(&w);
        jw_kstring(&w, "ts", ts);
        jw_kstring(&w, "stream", r->stream);
        jw_kint(&w, "seq", log->sum.state.records + 1);
        if (r->source) {
                jw_kstring(&w, "source", r->source->name);
                jw_key(&w, "end");
                jw_array(&w);
                jw_int(&w, r->source->end[0]);
                jw_int(&w, r->source->end[1]);
                jw_array_end(&w);
                if (image)
                        jw_kint(&w, "image", image);
        }
        if (r->mark)
                jw_kstring(&w, "mark", r->mark);
        jw_key(&w, "chunk");
        jw_string_n(&w, r->chunk, r->len);
        jw_object_end(&w);
        buf_putc(&log->out, '\n');
}

/* The end of a chunk, from the beginning of a character on. */
static json_t *live_chunk(const struct record *r)
{
        size_t skip = r->len > LIVE_MAX ? r->len - LIVE_MAX : 0;

        while (skip < r->len && skip > 0 && ((unsigned char)r->chunk[skip] & 0xc0) == 0x80)
                skip++;
        return json_stringn(r->chunk + skip, r->len - skip);
}

static void log_publish(struct run_log *log, const struct record *r, const char *ts)
{
        json_t *payload;

        if (!log->rt->live)
                return;
        payload = json_object();
        json_object_set_new(payload, "runId", json_string(log->run_id.s));
        json_object_set_new(payload, "agentId", json_string(log->agent_id));
        json_object_set_new(payload, "ts", json_string(ts));
        json_object_set_new(payload, "stream", json_string(r->stream));
        json_object_set_new(payload, "chunk", live_chunk(r));
        json_object_set_new(payload, "truncated", json_boolean(r->len > LIVE_MAX));
        live_publish(log->rt->live, log->company_id, "heartbeat.run.log", payload);
}

/* Write a record, then announce it. 1 when it did not fit under `max`: nothing was done. */
static int log_append(struct run_log *log, const struct record *r, int64_t max, struct err *err)
{
        struct run_log_state *state = &log->sum.state;
        int64_t now = clock_now_us();
        char ts[ISO_TIME_LEN + 1];
        int result;

        clock_iso(now, ts);
        buf_clear(&log->out);
        put_record(log, r, ts);
        if (buf_failed(&log->out))
                return err_set(err, ERR_TOO_LARGE, "a record of a run's log is too large");
        if (state->bytes + (int64_t)log->out.len > max)
                return 1;
        FAULT("runlog.append.before");
        result = fd_write_all(log->fd, log->out.data, log->out.len, err);
        if (result < 0) {
                /* Half a record must not stay before the next. */
                (void)!ftruncate(log->fd, (off_t)state->bytes);
                return err_wrap(err, result, "write a run's log");
        }
        FAULT("runlog.append.after");
        state->bytes += (int64_t)log->out.len;
        state->records++;
        if (r->source) {
                state->last_at = now;
                state->stream = r->stream;
                if (!state->first_at)
                        state->first_at = now;
        }
        log_publish(log, r, ts);
        return 0;
}

static int append_own(struct run_log *log, const char *mark, const char *text, struct err *err)
{
        struct record r = { .stream = "system", .mark = mark, .chunk = text };

        r.len = strnlen(text, RUN_LOG_CHUNK_MAX);
        return log_append(log, &r, INT64_MAX, err);
}

int run_log_system(struct run_log *log, const char *text, struct err *err)
{
        return append_own(log, NULL, text, err);
}

/* Output */

static int64_t limit_of(const struct run_log *log)
{
        int64_t max = log->rt->settings.run_log_max_bytes;

        return max > 0 ? max : INT64_MAX;
}

static int note_limit(struct run_log *log, struct err *err)
{
        CLEAN(cleanup_free)
        char *text = xasprintf("[berth] log limit of %lld bytes reached; output from here on is "
                               "only counted\n",
                               (long long)limit_of(log));
        int r = append_own(log, "limit", text, err);

        if (r >= 0)
                log->sum.is_full = true;
        return r;
}

/* A piece of output becoming the chunk of a record. */
struct chunk {
        struct buf text;
        size_t used; /* bytes of the output that the chunk covers */
        struct image_data image;
};

/* Take one character, valid or not. */
static void put_character(struct chunk *c, const char *p, size_t len, bool valid)
{
        bool was_inside = c->image.inside;

        c->used += len;
        if (!valid || *p == '\0' || len > 1) {
                (void)image_data_skips(&c->image, '\0');
                if (valid && *p)
                        buf_append(&c->text, p, len);
                else
                        buf_puts(&c->text, UTF8_REPLACEMENT);
                return;
        }
        if (image_data_skips(&c->image, *p))
                return;
        buf_putc(&c->text, *p);
        if (!was_inside && c->image.inside)
                buf_puts(&c->text, IMAGE_NOTICE);
}

/* Fill the chunk from the bytes; a full chunk ends at the end of a line if there is one in its
 * second half. */
static void chunk_fill(struct chunk *c, const char *bytes, size_t len, bool at_end)
{
        struct chunk line = { 0 };

        if (!at_end)
                len -= utf8_unfinished(bytes, len);
        while (c->used < len &&
               c->text.len + sizeof(IMAGE_NOTICE) + sizeof(UTF8_REPLACEMENT) < RUN_LOG_CHUNK_MAX) {
                const char *p = bytes + c->used;
                size_t n;
                bool valid = utf8_next(p, len - c->used, &n, NULL);

                put_character(c, p, n, valid);
                if (*p == '\n' && c->text.len > RUN_LOG_CHUNK_MAX / 2)
                        line = *c;
        }
        if (c->used < len && line.used) {
                c->used = line.used;
                c->image = line.image;
                c->text.len = line.text.len;
        }
}

/* The records of one block of output. `at_end`: nothing follows it. Returns how much was taken. */
static ssize_t append_block(struct run_log *log, int stream, const char *bytes, size_t len,
                            bool at_end, struct err *err)
{
        CLEAN(buf_done) struct buf memory = BUF_INIT;
        size_t done = 0;

        while (done < len && !log->sum.is_full) {
                struct run_log_source after = log->sum.source;
                struct chunk c = { .text = memory, .image = after.image[stream] };
                struct record r = { .stream = stream ? "stderr" : "stdout", .source = &after };
                int result = 0;

                buf_clear(&c.text);
                chunk_fill(&c, bytes + done, len - done, at_end);
                memory = c.text;
                if (c.used == 0)
                        break;
                r.chunk = buf_str(&c.text);
                r.len = c.text.len;
                after.end[stream] += (int64_t)c.used;
                after.image[stream] = c.image;
                if (r.len > 0)
                        result = log_append(log, &r, limit_of(log), err);
                if (result > 0)
                        result = note_limit(log, err);
                if (result < 0)
                        return result;
                if (log->sum.is_full)
                        break;
                log->sum.source = after;
                done += c.used;
        }
        return (ssize_t)done;
}

/* One stream; *ret_more when there is more than we took. */
static int pump_stream(struct run_log *log, const char *execution_id, int stream, bool final,
                       bool *ret_more, struct err *err)
{
        struct run_log_source *source = &log->sum.source;
        CLEAN(cleanup_free) char *block = NULL;
        CLEAN(cleanup_fd) int fd = -1;
        size_t sum = 0;
        int r = exec_open_output(log->rt, execution_id, stream, &fd, err);

        if (r < 0) {
                if (r == ERR_NOT_FOUND) /* nothing was written yet, or it is long gone */
                        err_clear(err);
                return r == ERR_NOT_FOUND ? 0 : r;
        }
        block = xcalloc(1, READ_SIZE);
        while (!log->sum.is_full) {
                ssize_t n;

                source->end[stream] = (int64_t)exec_output_from(fd, (uint64_t)source->end[stream]);
                n = pread(fd, block, READ_SIZE, (off_t)source->end[stream]);
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read a run's output");
                if (n == 0)
                        return 0;
                n = append_block(log, stream, block, (size_t)n, final && (size_t)n < READ_SIZE,
                                 err);
                if (n < 0)
                        return (int)n;
                if (n == 0)
                        return 0;
                sum += (size_t)n;
                if (sum >= PUMP_MAX) {
                        *ret_more = true;
                        return 0;
                }
        }
        return 0;
}

static int count_left(struct run_log *log, const char *execution_id, int stream, int64_t *ret,
                      struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st = { 0 };
        int r = exec_open_output(log->rt, execution_id, stream, &fd, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = 0;
        } else if (r >= 0 && fstat(fd, &st) < 0) {
                r = err_sys(err, ERR_IO, errno, "look at a run's output");
        }
        *ret = MAX((int64_t)st.st_size - log->sum.source.end[stream], 0);
        return r;
}

/* All output is in the log, or counted. */
static int log_finish(struct run_log *log, const char *execution_id, struct err *err)
{
        int64_t left[2] = { 0 };
        int r = 0;

        if (log->sum.is_full && !log->sum.is_counted) {
                CLEAN(cleanup_free) char *text = NULL;

                for (int stream = 0; r >= 0 && stream < 2; stream++)
                        r = count_left(log, execution_id, stream, &left[stream], err);
                text = xasprintf("[berth] %lld bytes of stdout and %lld bytes of stderr were "
                                 "left out\n",
                                 (long long)left[0], (long long)left[1]);
                if (r >= 0)
                        r = append_own(log, "left_out", text, err);
                if (r >= 0)
                        log->sum.is_counted = true;
        }
        if (r >= 0 && fdatasync(log->fd) < 0)
                r = err_sys(err, ERR_IO, errno, "write a run's log");
        return r;
}

int run_log_pump(struct run_log *log, const char *execution_id, bool final, struct err *err)
{
        bool more = false;
        int r = run_log_turn_to(log->fd, &log->sum, execution_id, err);

        for (int stream = 0; r >= 0 && stream < 2; stream++)
                r = pump_stream(log, execution_id, stream, final, &more, err);
        if (r >= 0 && final && !more)
                r = log_finish(log, execution_id, err);
        return r < 0 ? r : more;
}

int run_log_incomplete(struct run_log *log, const char *reason, struct err *err)
{
        CLEAN(cleanup_free)
        char *text = xasprintf("[berth] output is missing here: %s\n", reason);
        int r;

        if (log->sum.is_incomplete)
                return 0;
        r = append_own(log, "incomplete", text, err);
        if (r >= 0 && fdatasync(log->fd) < 0)
                r = err_sys(err, ERR_IO, errno, "write a run's log");
        log->sum.is_incomplete = r >= 0;
        return r;
}

/* Summing up */

void run_log_state(const struct run_log *log, struct run_log_state *ret)
{
        *ret = log->sum.state;
}

int run_log_digest(struct run_log *log, char ret_hex[65], int64_t *ret_bytes, struct err *err)
{
        CLEAN(cleanup_free) unsigned char *block = xcalloc(1, READ_SIZE);
        unsigned char digest[crypto_hash_sha256_BYTES];
        crypto_hash_sha256_state sha;
        int64_t at = 0;
        ssize_t n;

        crypto_hash_sha256_init(&sha);
        while ((n = pread(log->fd, block, READ_SIZE, (off_t)at)) > 0) {
                crypto_hash_sha256_update(&sha, block, (unsigned long long)n);
                at += n;
        }
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read a run's log");
        crypto_hash_sha256_final(&sha, digest);
        sodium_bin2hex(ret_hex, 65, digest, sizeof(digest));
        *ret_bytes = at;
        return 0;
}

static int log_excerpt(struct runtime *rt, const char *execution_id, int stream, char **ret,
                       struct err *err)
{
        CLEAN(buf_done) struct buf memory = BUF_INIT;
        CLEAN(cleanup_fd) int fd = -1;
        struct chunk c = { 0 };
        char bytes[EXCERPT_MAX];
        ssize_t n;
        int r = exec_open_output(rt, execution_id, stream, &fd, err);

        *ret = NULL;
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        n = r < 0 ? 0 : pread(fd, bytes, sizeof(bytes), (off_t)exec_output_from(fd, 0));
        if (n < 0)
                r = err_sys(err, ERR_IO, errno, "read a run's output");
        if (r < 0)
                return r;
        chunk_fill(&c, bytes, (size_t)n, (size_t)n < sizeof(bytes));
        memory = c.text;
        *ret = xstrdup(buf_str(&memory));
        return 0;
}

int run_log_excerpts(struct runtime *rt, const char *execution_id, char **ret_out, char **ret_err,
                     struct err *err)
{
        int r = log_excerpt(rt, execution_id, 0, ret_out, err);

        *ret_err = NULL;
        if (r >= 0)
                r = log_excerpt(rt, execution_id, 1, ret_err, err);
        if (r < 0) {
                free(*ret_out);
                *ret_out = NULL;
        }
        return r;
}

/* Life */

static int open_file(struct run_log *log, struct err *err)
{
        CLEAN(cleanup_free) char *path = run_log_path(log->rt, log->ref);
        CLEAN(cleanup_free) char *dir = xstrndup(path, (size_t)(strrchr(path, '/') - path));
        const int flags = O_RDWR | O_APPEND | O_CLOEXEC | O_NOFOLLOW;
        int r;

        log->fd = open(path, flags);
        if (log->fd < 0 && errno == ENOENT) {
                r = path_make_durable_dirs(dir, 0700, err);
                if (r < 0)
                        return r;
                log->fd = open(path, flags | O_CREAT, 0600);
                r = log->fd < 0 ? 0 : file_sync(AT_FDCWD, dir, err);
                if (r < 0)
                        return r;
        }
        if (log->fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", path);
        r = run_log_scan(log->fd, &log->sum, err);
        if (r >= 0 && ftruncate(log->fd, (off_t)log->sum.state.bytes) < 0)
                r = err_sys(err, ERR_IO, errno, "cut %s", path);
        return r;
}

int run_log_open(struct runtime *rt, const struct run *run, struct run_log **ret, struct err *err)
{
        struct run_log *log;
        int r;

        if (!uuid_is_valid(run->id) || !uuid_is_valid(run->company_id) ||
            !uuid_is_valid(run->agent_id))
                return err_set(err, ERR_INTERNAL, "the log of a run without ids");
        log = xcalloc(1, sizeof(*log));
        log->rt = rt;
        log->fd = -1;
        log->ref = xasprintf("%s/%s/%s.ndjson", run->company_id, run->agent_id, run->id);
        memcpy(log->run_id.s, run->id, UUID_LEN + 1);
        memcpy(log->company_id, run->company_id, UUID_LEN + 1);
        memcpy(log->agent_id, run->agent_id, UUID_LEN + 1);
        r = open_file(log, err);
        if (r < 0)
                run_log_close(log);
        else
                *ret = log;
        return r;
}

void run_log_close(struct run_log *log)
{
        if (!log)
                return;
        cleanup_fd(&log->fd);
        buf_done(&log->out);
        free(log->ref);
        free(log);
}

const char *run_log_ref(const struct run_log *log)
{
        return log->ref;
}
