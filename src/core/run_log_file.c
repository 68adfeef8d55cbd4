#define _GNU_SOURCE
#include "core/run_log_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "codec/json.h"

#define DIR_NAME "run-logs"

char *run_log_path(const struct runtime *rt, const char *log_ref)
{
        return xasprintf("%s/" DIR_NAME "/%s", rt->data_dir, log_ref);
}

/* Scanning */

struct run_log_source *run_log_source(struct run_log_summary *s, const char *execution_id)
{
        struct run_log_source *source;

        for (size_t i = 0; i < s->n_sources; i++)
                if (strncmp(s->sources[i].name, execution_id, RUN_LOG_SOURCE_LEN) == 0)
                        return &s->sources[i];
        if (s->n_sources == RUN_LOG_SOURCES_MAX)
                memmove(s->sources, s->sources + 1, sizeof(*s->sources) * --s->n_sources);
        source = &s->sources[s->n_sources++];
        *source = (struct run_log_source){ 0 };
        memcpy(source->name, execution_id, strnlen(execution_id, RUN_LOG_SOURCE_LEN));
        return source;
}

static void note_output(struct run_log_summary *s, const json_t *head, int stream)
{
        const char *name = json_get_string(head, "source");
        const char *ts = json_get_string(head, "ts");
        struct run_log_source *source;
        int64_t at;

        if (ts && clock_parse_iso(ts, &at)) {
                s->state.last_at = at;
                if (!s->state.first_at)
                        s->state.first_at = at;
        }
        s->state.stream = stream ? "stderr" : "stdout";
        if (!name || strlen(name) != RUN_LOG_SOURCE_LEN)
                return;
        source = run_log_source(s, name);
        source->end[stream] = json_integer_value(json_object_get(head, "end"));
        source->image[stream] =
                (struct image_data){ .inside = json_is_true(json_object_get(head, "image")) };
}

/* One line without its end. False: no record of ours. */
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
        if (stream && (streq(stream, "stdout") || streq(stream, "stderr")))
                note_output(s, v, streq(stream, "stderr"));
        s->is_full = s->is_full || (mark && streq(mark, "limit"));
        s->is_counted = s->is_counted || (mark && streq(mark, "left_out"));
        json_decref(v);
        return stream != NULL;
}

/* The whole records in `block`; false when one is none of ours: there the log ends. */
static bool note_block(struct run_log_summary *s, struct buf *block)
{
        const char *at = block->data, *end = block->data + block->len, *nl;

        while (at < end && (nl = memchr(at, '\n', (size_t)(end - at)))) {
                if (!note_record(s, at, (size_t)(nl - at)))
                        return false;
                s->state.records++;
                s->state.bytes += nl + 1 - at;
                at = nl + 1;
        }
        buf_consume(block, (size_t)(at - block->data));
        return block->len < RUN_LOG_RECORD_MAX;
}

int run_log_scan(int fd, struct run_log_summary *ret, struct err *err)
{
        CLEAN(buf_done) struct buf block = BUF_INIT;
        off_t at = 0;

        *ret = (struct run_log_summary){ 0 };
        for (;;) {
                char *room = buf_reserve(&block, RUN_LOG_RECORD_MAX);
                ssize_t n = room ? pread(fd, room, RUN_LOG_RECORD_MAX, at) : -1;

                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read a run's log");
                if (n == 0)
                        return 0;
                buf_grew(&block, (size_t)n);
                at += n;
                if (!note_block(ret, &block))
                        return 0;
        }
}

/* Reading */

static int open_log(struct runtime *rt, const char *log_ref, int *ret, struct err *err)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/" DIR_NAME, rt->data_dir);
        CLEAN(cleanup_fd) int dirfd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

        if (!log_ref || dirfd < 0 || path_open_plain(dirfd, log_ref, O_RDONLY, 0, ret, NULL) < 0)
                return err_set(err, ERR_NOT_FOUND, "Run log not found");
        return 0;
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
static int align(int fd, int64_t *offset, struct err *err)
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

int run_log_read(struct runtime *rt, const char *log_ref, int64_t offset, int64_t limit,
                 struct buf *ret, int64_t *ret_next, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        size_t start = ret->len, len;
        const char *nl = NULL;
        int r = open_log(rt, log_ref, &fd, err);

        if (r >= 0)
                r = align(fd, &offset, err);
        if (r >= 0)
                r = read_piece(fd, ret, offset, (size_t)MAX(limit, 1), err);
        if (r < 0)
                return r;
        len = ret->len - start;
        nl = len ? memrchr(ret->data + start, '\n', len) : NULL;
        /* One record that is longer than what was asked for. */
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
