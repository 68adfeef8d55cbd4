/* Opens a transfer, reads the other side's manifest, and corrects it. */
#define _GNU_SOURCE
#include "workspace/sync_session.h"

#include <errno.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/fd.h"

#define MANIFEST_MAX ((uint64_t)2 << 30)
#define MAX_PARTS    ((size_t)4096 * TREE_HASH)
#define ALIVE_TIMES  10 /* as long as it may be silent, it may say ALIVE and nothing else */

static int wait_for(void *ctx, int fd, short events, struct err *err)
{
        struct sync_session *s = ctx;
        int64_t limit_ms = s->options->silence_ms > 0 ? s->options->silence_ms : -1;
        int64_t began = clock_mono_ms();

        if (s->io.sent_bytes != s->sent)
                s->waited_ms = 0;
        s->sent = s->io.sent_bytes;
        if (limit_ms > 0 && s->waited_ms > ALIVE_TIMES * limit_ms)
                return err_set(err, ERR_PROVIDER,
                               "The file worker has said that it is alive and nothing else for "
                               "%lld s, so the transfer was given up.",
                               (long long)(ALIVE_TIMES * limit_ms / 1000));
        int r = op_wait_fd(s->op, fd, events, limit_ms, err);
        s->waited_ms += clock_mono_ms() - began; /* only waiting: our own work may take longer */
        if (r == 0)
                return err_set(err, ERR_PROVIDER,
                               "The file worker has been silent for %lld s, so the transfer was "
                               "given up.",
                               (long long)(limit_ms / 1000));
        return r;
}

static int check_session(void *ctx, struct err *err)
{
        struct sync_session *s = ctx;

        return op_check(s->op, err);
}

int sync_result(int r, struct err *err)
{
        return r == ERR_INVALID ? err_wrap(err, ERR_PROVIDER, "The file worker") : MIN(r, 0);
}

/* Bytes that are no manifest are not kept: a few bytes on the wire may be gigabytes of nonsense. */
static int check_piece(struct sync_session *s, struct frame_bytes piece, struct err *err)
{
        struct tree_entry entry;
        int r;

        tree_decode_feed(&s->manifest_check, piece.p, piece.len);
        do
                r = tree_decode_next(&s->manifest_check, &entry, err);
        while (r > 0);
        return r;
}

static int on_manifest(struct sync_session *s, const struct sync_msg *m, struct err *err)
{
        if (s->manifest_fd < 0) /* no scan was asked for */
                return sync_slot_move(PEER_QUIET, m, err);
        s->manifest_len += m->blob.len;
        if (s->manifest_len > MANIFEST_MAX)
                return err_set(err, ERR_TOO_LARGE, "The file worker's tree is too large.");
        int r = check_piece(s, m->blob, err);
        return r < 0 ? r : fd_write_all(s->manifest_fd, m->blob.p, m->blob.len, err);
}

/* When each may come is in codec/peer_state.c. */
static int on_message(void *ctx, const struct sync_msg *m, struct err *err)
{
        struct sync_session *s = ctx;

        if (peer_move(&s->phase, m->type, &s->asked, err) < 0)
                return ERR_PROVIDER;
        if (m->type != SYNC_ALIVE)
                s->waited_ms = 0;
        switch (m->type) {
        case SYNC_HELLO:
                if (m->number != SYNC_VERSION)
                        return err_set(err, ERR_PROVIDER, "The file worker speaks version %u.",
                                       m->number);
                s->umask = m->mode;
                return 0;
        case SYNC_ALIVE:
                return 0;
        case SYNC_READY:
                if (m->blob.len > MAX_PARTS)
                        return err_set(err, ERR_PROVIDER,
                                       "The file worker names too many parts of files.");
                buf_append(&s->parts, m->blob.p, m->blob.len);
                return 0;
        case SYNC_MANIFEST:
                return on_manifest(s, m, err);
        case SYNC_SCANNED:
                s->scanned = true;
                return 0;
        case SYNC_FINISHED:
                s->finished = true;
                return 0;
        case SYNC_FAIL:
                return err_set(err, ERR_PROVIDER, "The file worker failed: %.*s",
                               (int)MIN(m->text.len, (size_t)500), m->text.p);
        default:
                return s->on_file(s->ctx, m, err);
        }
}

/* Preserved paths are left out like excluded ones. */
static void join_excludes(struct sync_session *s)
{
        const char *const *lists[] = { s->options->excludes ? s->options->excludes->patterns : NULL,
                                       s->options->preserve };
        const char **all;
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_LEN(lists); i++)
                for (size_t k = 0; lists[i] && lists[i][k]; k++)
                        n++;
        all = arena_alloc(s->op->arena, (n + 1) * sizeof(*all));
        s->excludes.patterns = all;
        s->excludes.never = s->options->excludes ? s->options->excludes->never : NULL;
        for (size_t i = 0; i < ARRAY_LEN(lists); i++)
                for (size_t k = 0; lists[i] && lists[i][k]; k++)
                        *all++ = lists[i][k];
}

static int send_tree(struct sync_session *s, bool make_root, struct err *err)
{
        CLEAN(buf_done) struct buf list = BUF_INIT;
        const struct sync_options *o = s->options;

        for (size_t i = 0; s->excludes.patterns[i]; i++)
                if (s->excludes.patterns[i][0])
                        sync_text_add(&list, s->excludes.patterns[i]);
        if (list.len > SYNC_SMALL)
                return err_set(err, ERR_UNPROCESSABLE, "Too many paths to exclude.");
        return sync_send(
                &s->io,
                &(struct sync_msg){ .type = SYNC_TREE,
                                    .flags = make_root ? SYNC_MAKE_ROOT : 0,
                                    .text = sync_text(o->remote_dir),
                                    .target = sync_text(o->remote_cache ? o->remote_cache : ""),
                                    .blob = { buf_str(&list), list.len } },
                err);
}

/* Only greet and name the tree. */
static int sync_session_greet(struct sync_session *s, struct op *op, int fd,
                              const struct sync_options *options, bool make_root, struct err *err)
{
        s->op = op;
        s->phase = WORKER_GREETING;
        s->manifest_fd = -1;
        tree_decode_init(&s->manifest_check);
        s->options = options;
        s->io = (struct sync_io){ .fd = fd,
                                  .wait = wait_for,
                                  .check = check_session,
                                  .ctx = s,
                                  .on_message = on_message,
                                  .message_ctx = s };
        join_excludes(s);
        int r = sync_io_init(&s->io, err);
        if (r >= 0)
                r = sync_send(&s->io,
                              &(struct sync_msg){ .type = SYNC_HELLO,
                                                  .number = SYNC_VERSION,
                                                  .mode = SYNC_WISH_ALIVE },
                              err);
        return r < 0 ? r : send_tree(s, make_root, err);
}

int sync_session_open(struct sync_session *s, struct op *op, int fd,
                      const struct sync_options *options, bool make_root, int spool_dir,
                      struct err *err)
{
        int r = sync_session_greet(s, op, fd, options, make_root, err);

        if (r < 0)
                return r;
        s->manifest_fd = openat(spool_dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        if (s->manifest_fd < 0)
                return err_sys(err, ERR_IO, errno, "create a temporary file");
        r = sync_send(&s->io, &(struct sync_msg){ .type = SYNC_SCAN }, err);
        return r < 0 ? r : sync_flush(&s->io, err);
}

/* Nothing is asked for, and nothing offered. */
static int no_file(void *ctx, const struct sync_msg *m, struct err *err)
{
        return sync_slot_move(PEER_QUIET, m, err);
}

int sync_clear(struct op *op, int fd, const struct sync_options *options, struct err *err)
{
        const struct sync_options bare = { .remote_dir = options->remote_dir,
                                           .silence_ms = options->silence_ms };
        struct sync_session s = { .on_file = no_file };
        int r = sync_session_greet(&s, op, fd, &bare, true, err);

        if (r >= 0)
                r = sync_session_ask_end(&s, SYNC_CLEAR, err);
        if (r >= 0)
                r = sync_session_wait(&s, &s.finished, err);
        sync_session_done(&s);
        return sync_result(r, err);
}

void sync_session_done(struct sync_session *s)
{
        if (!s->op)
                return;
        if (s->manifest_fd >= 0)
                close(s->manifest_fd);
        tree_decode_done(&s->manifest_check);
        buf_done(&s->parts);
        sync_io_done(&s->io);
}

int sync_session_ask_end(struct sync_session *s, uint8_t type, struct err *err)
{
        s->asked++;
        return sync_send(&s->io, &(struct sync_msg){ .type = type }, err);
}

int sync_slot_move(enum peer_phase phase, const struct sync_msg *m, struct err *err)
{
        return peer_move(&phase, m->type, NULL, err) < 0 ? ERR_PROVIDER : 0;
}

int sync_session_wait(struct sync_session *s, const bool *flag, struct err *err)
{
        int r = 0;

        while (!*flag && r >= 0)
                r = sync_step(&s->io, err);
        return r < 0 ? r : 0;
}

bool sync_session_has_part(const struct sync_session *s, const uint8_t hash[TREE_HASH])
{
        for (size_t i = 0; i + TREE_HASH <= s->parts.len; i += TREE_HASH)
                if (memcmp(s->parts.data + i, hash, TREE_HASH) == 0)
                        return true;
        return false;
}

void sync_session_tell(struct sync_session *s)
{
        s->progress.sent_bytes = s->pulls ? s->io.got_bytes : s->io.sent_bytes;
        if (s->options->progress)
                s->options->progress(s->options->ctx, &s->progress);
}

/* The manifest */

static int manifest_next(struct tree_source *source, struct tree_entry *ret, struct err *err)
{
        struct sync_manifest *m = container_of(source, struct sync_manifest, source);

        for (;;) {
                char piece[16384];
                ssize_t n;
                int r = tree_decode_next(&m->decoder, ret, err);

                if (r != 0 || m->decoder.done)
                        return r;
                n = pread(m->fd, piece, sizeof(piece), (off_t)m->at);
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read a manifest");
                if (n == 0)
                        return err_set(err, ERR_PROVIDER, "The file worker's tree is incomplete.");
                m->at += (uint64_t)n;
                tree_decode_feed(&m->decoder, piece, (size_t)n);
        }
}

void sync_manifest_init(struct sync_manifest *m, const struct sync_session *s)
{
        m->source.next = manifest_next;
        m->fd = s->manifest_fd;
        m->at = 0;
        tree_decode_init(&m->decoder);
}

void sync_manifest_done(struct sync_manifest *m)
{
        tree_decode_done(&m->decoder);
}

/* Corrections */

void sync_fixes_done(struct sync_fixes *f)
{
        for (size_t i = 0; i < f->n; i++)
                free(f->at[i]);
        free(f->at);
        *f = (struct sync_fixes){ 0 };
}

void sync_fixes_add(struct sync_fixes *f, const char *path, const struct tree_entry *now)
{
        size_t len = strlen(path) + 1;
        struct sync_fix *x = xcalloc(1, sizeof(*x) + len);

        memcpy(x->path, path, len);
        x->gone = now == NULL;
        if (now)
                x->now = *now;
        x->now.path = x->path;
        x->number = f->n;
        if (f->n == f->cap) {
                f->cap = f->cap ? 2 * f->cap : 64;
                f->at = xrealloc(f->at, f->cap * sizeof(struct sync_fix *));
        }
        f->at[f->n++] = x;
}

static int by_path_latest_first(const void *a, const void *b)
{
        const struct sync_fix *x = *(struct sync_fix *const *)a, *y = *(struct sync_fix *const *)b;
        int order = tree_compare(x->path, y->path);

        return order ? order : x->number < y->number ? 1 : -1;
}

struct fixed {
        struct tree_source source;
        struct tree_source *from;
        const struct sync_fixes *fixes;
        size_t at;
};

static int fixed_next(struct tree_source *source, struct tree_entry *ret, struct err *err)
{
        struct fixed *f = container_of(source, struct fixed, source);

        for (;;) {
                int order = 1, r = tree_next(f->from, ret, err);
                const struct sync_fix *x = NULL;

                if (r <= 0)
                        return r;
                for (; f->at < f->fixes->n; f->at++) {
                        x = f->fixes->at[f->at];
                        order = tree_compare(x->path, ret->path);
                        if (order >= 0)
                                break;
                }
                if (f->at == f->fixes->n || order != 0)
                        return r;
                if (x->gone)
                        continue;
                *ret = x->now;
                return r;
        }
}

int sync_fixes_write(struct sync_fixes *f, int dir_fd, const char *name, struct err *err)
{
        struct fixed fixed = { .source.next = fixed_next, .fixes = f };
        struct manifest_file *old;
        uint64_t count, bytes;

        if (f->n == 0)
                return 0;
        qsort(f->at, f->n, sizeof(struct sync_fix *), by_path_latest_first);
        int r = manifest_open(dir_fd, name, &old, err);
        if (r < 0)
                return r;
        fixed.from = manifest_source(old);
        r = manifest_write(dir_fd, name, &fixed.source, &count, &bytes, err);
        manifest_close(old);
        return r;
}
