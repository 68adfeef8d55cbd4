/* Reads the file of a run's log: its records, its summary, and pages of it. */
#define _GNU_SOURCE
#include "core/runs/run_log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "codec/json.h"

#define DIR_NAME  "run-logs"
#define READ_SIZE 65536

char *run_log_path(const struct runtime *rt, const char *log_ref)
{
        return xasprintf("%s/" DIR_NAME "/%s", rt->data_dir, log_ref);
}

/* Append a piece of the file to buf; 0 at its end. */
static int read_piece(int fd, struct buf *buf, int64_t at, size_t len, struct err *err)
{
        char *room = buf_reserve(buf, len);
        ssize_t n = room ? pread(fd, room, len, (off_t)at) : -1;

        if (n < 0)
                return err_sys(err, ERR_IO, room ? errno : ENOMEM, "read a run's log");
        buf_grew(buf, (size_t)n);
        return n > 0;
}

/* The first record that begins at or after the offset. */
static int align_to_record(int fd, int64_t *offset, struct err *err)
{
        CLEAN(buf_done) struct buf block = BUF_INIT;
        const char *nl = NULL;
        int r = 1;

        if (*offset <= 0) {
                *offset = 0;
                return 0;
        }
        while (r > 0 && !nl && block.len <= RUN_LOG_RECORD_MAX) {
                r = read_piece(fd, &block, *offset - 1 + (int64_t)block.len, 4096, err);
                nl = block.data ? memchr(block.data, '\n', block.len) : NULL;
        }
        if (nl)
                *offset += nl - block.data;
        return r < 0 ? r : 0;
}

/* Scanning */

static void note_output(struct run_log_summary *s, const json_t *head, bool is_stderr)
{
        const char *name = json_get_string(head, "source");
        const char *ts = json_get_string(head, "ts");
        json_t *end = json_object_get(head, "end");
        json_int_t image = json_integer_value(json_object_get(head, "image"));
        int64_t at;

        if (ts && clock_parse_iso(ts, &at)) {
                s->state.last_at = at;
                if (!s->state.first_at)
                        s->state.first_at = at;
        }
        s->state.stream = is_stderr ? "stderr" : "stdout";
        snprintf(s->source.name, sizeof(s->source.name), "%s", name ? name : "?");
        for (size_t i = 0; i < 2; i++) {
                s->source.end[i] = json_integer_value(json_array_get(end, i));
                s->source.image[i] = (struct image_data){ .inside = (image >> i) & 1 };
        }
}

/* One line without its end. False: it is not a record of ours. */
static bool note_record(struct run_log_summary *s, const char *line, size_t len)
{
        static const char before_chunk[] = ",\"chunk\":\"";
        const char *chunk =
                memmem(line, MIN(len, RUN_LOG_HEAD_MAX), before_chunk, sizeof(before_chunk) - 1);
        char head[RUN_LOG_HEAD_MAX + 1];
        const char *stream, *mark;
        json_t *v;
        size_t n;

        if (!chunk || line[len - 1] != '}' || line[len - 2] != '"')
                return false;
        n = (size_t)(chunk - line);
        memcpy(head, line, n);
        head[n++] = '}';
        if (json_parse(head, n, &v, NULL) < 0)
                return false;
        stream = json_get_string(v, "stream");
        mark = json_get_string(v, "mark");
        if (stream && !streq(stream, "system"))
                note_output(s, v, streq(stream, "stderr"));
        s->state.records = json_integer_value(json_object_get(v, "seq"));
        s->is_full = s->is_full || (mark && streq(mark, "limit"));
        s->is_counted = s->is_counted || (mark && streq(mark, "left_out"));
        s->is_incomplete = s->is_incomplete || (mark && streq(mark, "incomplete"));
        json_decref(v);
        return stream != NULL;
}

/* Called for each record, once it is part of the summary; true: that is enough. */
typedef bool (*record_fn)(const struct run_log_summary *s, void *ctx);

/* Read the records from `at` on, until `enough` says so, or a line is not a record of ours. */
static int walk_records(int fd, int64_t at, struct run_log_summary *s, record_fn enough, void *ctx,
                        struct err *err)
{
        CLEAN(buf_done) struct buf block = BUF_INIT;
        const char *nl;
        int r;

        s->state.bytes = at;
        while ((r = read_piece(fd, &block, at, READ_SIZE, err)) > 0) {
                const char *p = block.data, *end = block.data + block.len;

                at = s->state.bytes + (int64_t)block.len;
                while (p < end && (nl = memchr(p, '\n', (size_t)(end - p)))) {
                        if (!note_record(s, p, (size_t)(nl - p)))
                                return 0;
                        s->state.bytes += nl + 1 - p;
                        p = nl + 1;
                        if (enough && enough(s, ctx))
                                return 0;
                }
                buf_consume(&block, (size_t)(p - block.data));
                if (block.len > RUN_LOG_RECORD_MAX)
                        return 0;
        }
        return r;
}

static bool has_output(const struct run_log_summary *s, void *ctx)
{
        return s->state.first_at != 0;
}

int run_log_scan(int fd, struct run_log_summary *ret, struct err *err)
{
        struct run_log_summary first = { 0 };
        int64_t from, span = READ_SIZE;
        struct stat st;
        int r;

        if (fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "read a run's log");
        /* Go back until there is a record of output: it says how far both streams are covered. */
        do {
                *ret = (struct run_log_summary){ 0 };
                from = MAX(st.st_size - span, 0);
                span *= 8;
                r = align_to_record(fd, &from, err);
                if (r >= 0)
                        r = walk_records(fd, from, ret, NULL, NULL, err);
        } while (r >= 0 && from > 0 && !ret->source.name[0]);
        if (r < 0 || from == 0 || !ret->source.name[0])
                return r;
        r = walk_records(fd, 0, &first, has_output, NULL, err);
        ret->state.first_at = first.state.first_at;
        return r;
}

static bool keep_source(const struct run_log_summary *s, void *ctx)
{
        struct run_log_source *wanted = ctx;

        if (streq(s->source.name, wanted->name))
                *wanted = s->source;
        return false;
}

int run_log_turn_to(int fd, struct run_log_summary *s, const char *execution_id, struct err *err)
{
        struct run_log_summary seen = { 0 };
        struct run_log_source wanted = { 0 };
        int r = 0;

        if (strncmp(s->source.name, execution_id, RUN_LOG_SOURCE_LEN) == 0)
                return 0;
        memcpy(wanted.name, execution_id, strnlen(execution_id, RUN_LOG_SOURCE_LEN));
        if (s->source.name[0])
                r = walk_records(fd, 0, &seen, keep_source, &wanted, err);
        if (r >= 0)
                s->source = wanted;
        return r;
}

/* Reading */

static int open_log(struct runtime *rt, const char *log_ref, int *ret, struct err *err)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/" DIR_NAME, rt->data_dir);
        CLEAN(cleanup_fd) int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        int r = ERR_NOT_FOUND;

        if (dirfd < 0 && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "open %s", dir);
        if (log_ref && dirfd >= 0)
                r = path_open_plain(dirfd, log_ref, O_RDONLY, 0, ret, err);
        return r == 0 || r == ERR_IO ? r : err_set(err, ERR_NOT_FOUND, "Run log not found");
}

int run_log_read(struct runtime *rt, const char *log_ref, int64_t offset, int64_t limit,
                 struct buf *ret, int64_t *ret_next, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        size_t start = ret->len, len;
        const char *nl = NULL;
        int r = open_log(rt, log_ref, &fd, err);

        if (r >= 0)
                r = align_to_record(fd, &offset, err);
        if (r >= 0)
                r = read_piece(fd, ret, offset, (size_t)MAX(limit, 1), err);
        if (r < 0)
                return r;
        len = ret->len - start;
        nl = len ? memrchr(ret->data + start, '\n', len) : NULL;
        /* One record that is longer than the requested length. */
        while (r > 0 && !nl && len <= RUN_LOG_RECORD_MAX) {
                r = read_piece(fd, ret, offset + (int64_t)len, 65536, err);
                if (r < 0)
                        return r;
                nl = memchr(ret->data + start + len, '\n', ret->len - start - len);
                len = ret->len - start;
        }
        ret->len = nl ? (size_t)(nl + 1 - ret->data) : start;
        ret->data[ret->len] = '\0';
        *ret_next = offset + (int64_t)(ret->len - start);
        return 0;
}
