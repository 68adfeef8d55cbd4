/* The file worker: asked, it answers, one message after the other. It never reads while it writes:
 * the daemon's side always reads (sync_io.h). */
#define _GNU_SOURCE
#include "workspace/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "workspace/apply.h"
#include "workspace/runtime_dir.h"
#include "workspace/scan.h"
#include "workspace/sync_file.h"

#define GOODBYE_MS 10000 /* for the other side to have read why we end */
#define ALIVE_MS   5000  /* between two signs of life while we work */

struct incoming {
        struct sync_in in;
        char *path; /* NULL: free */
        uint32_t mode;
        int64_t mtime_ns;
};

struct serve {
        struct sync_io io;
        bool greeted, has_tree, says_alive;
        int64_t said_ms; /* when it was last said; 0: never */
        struct apply apply;
        int parts_fd;
        char *cache_path; /* of hashes; NULL: none */
        struct excludes excludes;
        char **patterns;
        size_t n_patterns;
        struct incoming incoming[SYNC_SLOTS];
        struct sync_out outgoing[SYNC_MAX_GETS];
        char root[TREE_MAX_PATH + 1];
        char path[TREE_MAX_PATH + 1], target[TREE_MAX_TARGET + 1];
};

static int wait_for(void *ctx, int fd, short events, struct err *err)
{
        struct pollfd p = { .fd = fd, .events = events };

        for (;;) {
                if (poll(&p, 1, -1) > 0)
                        return 1;
                if (errno != EINTR)
                        return err_sys(err, ERR_IO, errno, "poll");
        }
}

/* The daemon gives up a worker that is silent, and reading a large file takes its time. */
static int say_alive(void *ctx, struct err *err)
{
        struct serve *s = ctx;
        int64_t now = clock_mono_ms();

        if (!s->says_alive || (s->said_ms && now - s->said_ms < ALIVE_MS))
                return 0;
        s->said_ms = now;
        int r = sync_send(&s->io, &(struct sync_msg){ .type = SYNC_ALIVE }, err);
        if (r >= 0)
                r = sync_flush(&s->io, err);
        return MIN(r, 0);
}

static int not_now(struct err *err)
{
        return err_set(err, ERR_INVALID, "a message that is not allowed now");
}

/* The reader has checked the lengths. */
static const char *text_of(struct frame_bytes s, char *buf)
{
        memcpy(buf, s.p, s.len);
        buf[s.len] = '\0';
        return buf;
}

static const char *path_of(struct serve *s, const struct sync_msg *m)
{
        return text_of(m->path, s->path);
}

/* Beginning */

static int on_hello(struct serve *s, const struct sync_msg *m, struct err *err)
{
        struct sync_msg answer = { .type = SYNC_HELLO, .number = SYNC_VERSION };
        mode_t mask = umask(0); /* modes are as they are said */

        if (s->greeted)
                return not_now(err);
        if (m->number != SYNC_VERSION)
                return err_set(err, ERR_VERSION, "version %u of file transfer is not known",
                               m->number);
        s->greeted = true;
        s->says_alive = m->mode & SYNC_WISH_ALIVE;
        answer.mode = (uint32_t)mask & 0777;
        return sync_send(&s->io, &answer, err);
}

static int take_excludes(struct serve *s, struct frame_bytes blob, struct err *err)
{
        struct frame_bytes text;
        int r;

        s->patterns = xcalloc(SYNC_MAX_EXCLUDE + 1, sizeof(*s->patterns));
        while ((r = sync_text_next(&blob, &text, err)) > 0) {
                if (s->n_patterns == SYNC_MAX_EXCLUDE)
                        return err_set(err, ERR_TOO_LARGE, "more than %d paths to leave out",
                                       SYNC_MAX_EXCLUDE);
                s->patterns[s->n_patterns++] = xstrndup(text.p, text.len);
        }
        s->excludes.patterns = (const char *const *)s->patterns;
        return r;
}

static int on_tree(struct serve *s, const struct sync_msg *m, struct err *err)
{
        CLEAN(buf_done) struct buf parts = BUF_INIT;
        int root = -1, r;

        if (!s->greeted || s->has_tree || m->text.len == 0 || m->text.len > TREE_MAX_PATH ||
            m->text.p[0] != '/')
                return not_now(err);
        r = runtime_dir_open(text_of(m->text, s->root), m->flags & SYNC_MAKE_ROOT, &root, err);
        if (r < 0)
                return r;
        apply_init(&s->apply, root);
        s->has_tree = true;
        if (m->target.len > 0) {
                r = runtime_dir_open(text_of(m->target, s->target), true, &s->parts_fd, err);
                if (r < 0)
                        return r;
                s->cache_path = xasprintf("%s/hashes", s->target);
                sync_parts_list(s->parts_fd, &parts);
        }
        r = take_excludes(s, m->blob, err);
        if (r < 0)
                return r;
        return sync_send(
                &s->io,
                &(struct sync_msg){ .type = SYNC_READY, .blob = { buf_str(&parts), parts.len } },
                err);
}

/* The tree as it is */

static int send_manifest(struct serve *s, struct buf *b, size_t at_least, struct err *err)
{
        size_t done = 0;
        int r = 0;

        while (b->len - done > at_least && r >= 0) {
                size_t n = MIN(b->len - done, SYNC_PIECE);

                r = sync_send(
                        &s->io,
                        &(struct sync_msg){ .type = SYNC_MANIFEST, .blob = { b->data + done, n } },
                        err);
                done += n;
        }
        buf_consume(b, done);
        return r;
}

static int send_entries(struct serve *s, struct scan *scan, struct err *err)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        CLEAN(cleanup_free) struct tree_encoder *e = xcalloc(1, sizeof(*e));
        struct tree_entry entry;
        int r;

        tree_encode_begin(e, &b);
        while ((r = tree_next(scan_source(scan), &entry, err)) > 0) {
                tree_encode(e, &entry);
                if (b.len >= SYNC_PIECE)
                        r = send_manifest(s, &b, SYNC_PIECE, err);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        tree_encode_end(e);
        return send_manifest(s, &b, 0, err);
}

static int on_scan(struct serve *s, struct err *err)
{
        struct scan_options options = {
                .excludes = &s->excludes, .cache_path = s->cache_path, .check = say_alive, .ctx = s
        };
        struct scan *scan = NULL;
        int fd = openat(s->apply.root_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = fd < 0 ? err_sys(err, ERR_IO, errno, "open the workspace")
                       : scan_open(fd, &options, &scan, err);

        if (r < 0)
                return r;
        r = send_entries(s, scan, err);
        if (r >= 0)
                r = sync_send(&s->io, &(struct sync_msg){ .type = SYNC_SCANNED }, err);
        scan_close(scan);
        return r;
}

/* Files that come */

/* NULL when the slot is not what the message needs. */
static struct incoming *slot_of(struct serve *s, const struct sync_msg *m, bool used)
{
        if (m->slot >= SYNC_SLOTS || (s->incoming[m->slot].path != NULL) != used)
                return NULL;
        return &s->incoming[m->slot];
}

static void incoming_done(struct incoming *i, bool remove)
{
        sync_in_done(&i->in, remove);
        free(take_ptr(&i->path));
}

static bool has_twin(const struct serve *s, const struct sync_msg *big)
{
        struct sync_in probe = { .fd = -1 };

        sync_in_name(&probe, big, false);
        for (int i = 0; i < SYNC_SLOTS; i++)
                if (s->incoming[i].path && streq(s->incoming[i].in.name, probe.name))
                        return true;
        return false;
}

static int on_big(struct serve *s, const struct sync_msg *m, struct err *err)
{
        struct incoming *i = slot_of(s, m, false);

        if (!i || m->path.len == 0 || s->parts_fd < 0)
                return not_now(err);
        int r = sync_in_begin(&i->in, s->parts_fd, m, has_twin(s, m), err);
        if (r < 0)
                return r;
        i->path = xstrdup(path_of(s, m));
        i->mode = m->mode;
        i->mtime_ns = m->mtime_ns;
        return 0;
}

static int on_chunks(struct serve *s, const struct sync_msg *m, struct err *err)
{
        CLEAN(buf_done) struct buf bitmap = BUF_INIT;
        CLEAN(cleanup_fd) int old = -1;
        struct incoming *i = slot_of(s, m, true);
        int r = i ? sync_in_chunks(&i->in, m, err) : not_now(err);

        if (!i || r <= 0)
                return r;
        old = apply_open(&s->apply, i->path);
        r = sync_in_want(&s->io, &i->in, old, &bitmap, err);
        if (r < 0)
                return r;
        return sync_send(&s->io,
                         &(struct sync_msg){ .type = SYNC_WANT,
                                             .slot = m->slot,
                                             .blob = { buf_str(&bitmap), bitmap.len } },
                         err);
}

static int on_data(struct serve *s, const struct sync_msg *m, struct err *err)
{
        struct incoming *i = slot_of(s, m, true);

        return i ? sync_in_data(&i->in, m, err) : not_now(err);
}

static int on_big_end(struct serve *s, const struct sync_msg *m, struct err *err)
{
        struct sync_msg answer = { .type = SYNC_DONE, .slot = m->slot };
        struct incoming *i = slot_of(s, m, true);
        int r = i ? sync_in_end(&s->io, &i->in, m, err) : not_now(err);

        if (!i || r < 0)
                return r;
        if (r == 0)
                answer.flags = SYNC_AGAIN;
        else
                r = apply_move(&s->apply, i->path, i->mode, i->mtime_ns, s->parts_fd, i->in.name,
                               i->in.fd, err);
        if (r < 0)
                return r;
        incoming_done(i, answer.flags == SYNC_AGAIN);
        return sync_send(&s->io, &answer, err);
}

/* Files that are asked for */

static int send_large(struct serve *s, const struct sync_msg *m, int take_fd_,
                      const struct tree_entry *entry, struct err *err)
{
        struct sync_out *o = &s->outgoing[m->slot];
        struct sync_sent sent;

        *o = (struct sync_out){ .fd = take_fd_, .slot = m->slot };
        if (m->flags & SYNC_HAVE_SOME)
                return sync_out_offer(&s->io, o, entry, err);
        int r = sync_out_whole(&s->io, m->slot, o->fd, entry, &sent, err);
        sync_out_done(o);
        return r;
}

/* No file is there any more. Whatever else keeps it from being opened is no reason to delete it. */
static bool is_gone(int errno_value)
{
        return errno_value == ENOENT || errno_value == ENOTDIR || errno_value == ELOOP ||
               errno_value == ENXIO;
}

static int on_get(struct serve *s, const struct sync_msg *m, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct tree_entry entry = { .path = "", .kind = TREE_FILE };
        struct sync_sent sent;
        struct stat st;

        if (m->slot >= SYNC_MAX_GETS || s->outgoing[m->slot].fd >= 0)
                return not_now(err);
        fd = apply_open(&s->apply, path_of(s, m));
        if (fd < 0 && !is_gone(errno))
                return err_sys(err, ERR_IO, errno, "open %s", s->path);
        if (fd >= 0 && (fstat(fd, &st) < 0 || (uint64_t)st.st_size > TREE_MAX_SIZE))
                return err_set(err, ERR_TOO_LARGE, "%s became too large", s->path);
        if (fd < 0)
                return sync_send(&s->io, &(struct sync_msg){ .type = SYNC_GONE, .slot = m->slot },
                                 err);
        entry.mode = st.st_mode & 0777;
        entry.size = (uint64_t)st.st_size;
        entry.mtime_ns = st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec;
        if (entry.size <= SYNC_SMALL)
                return sync_out_small(&s->io, m->slot, fd, &entry, &sent, err);
        return send_large(s, m, take_fd(&fd), &entry, err);
}

static int on_want(struct serve *s, const struct sync_msg *m, struct err *err)
{
        struct sync_out *o = &s->outgoing[MIN(m->slot, (uint32_t)SYNC_MAX_GETS - 1)];

        if (m->slot >= SYNC_MAX_GETS || o->fd < 0)
                return not_now(err);
        int r = sync_out_wanted(&s->io, o, m->blob, err);
        sync_out_done(o);
        return r;
}

/* All of it */

static int on_finish(struct serve *s, struct err *err)
{
        int r = apply_finish(&s->apply, err);

        for (int i = 0; i < SYNC_SLOTS; i++)
                if (s->incoming[i].path)
                        return not_now(err);
        if (r < 0)
                return r;
        if (s->parts_fd >= 0)
                sync_parts_remove(s->parts_fd);
        return sync_send(&s->io, &(struct sync_msg){ .type = SYNC_FINISHED }, err);
}

static int on_clear(struct serve *s, struct err *err)
{
        int r = apply_clear(&s->apply, err);

        if (r < 0)
                return r;
        if (rmdir(s->root) < 0 && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "remove %s", s->root);
        return sync_send(&s->io, &(struct sync_msg){ .type = SYNC_FINISHED }, err);
}

static int change(struct serve *s, const struct sync_msg *m, struct err *err)
{
        const char *path = path_of(s, m);

        switch (m->type) {
        case SYNC_DIR:
                return apply_dir(&s->apply, path, m->mode, err);
        case SYNC_LINK:
                return apply_link(&s->apply, path, text_of(m->target, s->target), err);
        case SYNC_MODE:
                return apply_mode(&s->apply, path, m->mode, err);
        case SYNC_REMOVE:
                return apply_remove(&s->apply, path, err);
        default:
                if (!*path)
                        return not_now(err);
                return apply_file(&s->apply, path, m->mode, m->mtime_ns, m->blob.p, m->blob.len,
                                  err);
        }
}

static int handle(struct serve *s, const struct sync_msg *m, struct err *err)
{
        if (m->type == SYNC_HELLO)
                return on_hello(s, m, err);
        if (m->type == SYNC_TREE)
                return on_tree(s, m, err);
        if (!s->has_tree)
                return not_now(err);
        switch (m->type) {
        case SYNC_SCAN:
                return on_scan(s, err);
        case SYNC_DIR:
        case SYNC_LINK:
        case SYNC_MODE:
        case SYNC_REMOVE:
        case SYNC_FILE:
                return change(s, m, err);
        case SYNC_BIG:
                return on_big(s, m, err);
        case SYNC_CHUNKS_ARE:
                return on_chunks(s, m, err);
        case SYNC_DATA:
                return on_data(s, m, err);
        case SYNC_BIG_END:
                return on_big_end(s, m, err);
        case SYNC_GET:
                return on_get(s, m, err);
        case SYNC_WANT:
                return on_want(s, m, err);
        case SYNC_FINISH:
                return on_finish(s, err);
        case SYNC_CLEAR:
                return on_clear(s, err);
        default:
                return not_now(err);
        }
}

static void serve_init(struct serve *s, int fd)
{
        s->io.fd = fd;
        s->io.wait = wait_for;
        s->io.check = say_alive;
        s->io.ctx = s;
        s->parts_fd = s->apply.root_fd = s->apply.dir_fd = -1;
        for (int i = 0; i < SYNC_SLOTS; i++)
                s->incoming[i].in.fd = -1;
        for (int i = 0; i < SYNC_MAX_GETS; i++)
                s->outgoing[i].fd = -1;
}

static void serve_done(struct serve *s)
{
        for (int i = 0; i < SYNC_SLOTS; i++)
                incoming_done(&s->incoming[i], false);
        for (int i = 0; i < SYNC_MAX_GETS; i++)
                sync_out_done(&s->outgoing[i]);
        for (size_t i = 0; i < s->n_patterns; i++)
                free(s->patterns[i]);
        free(s->patterns);
        free(s->cache_path);
        apply_done(&s->apply);
        if (s->parts_fd >= 0)
                close(s->parts_fd);
        sync_io_done(&s->io);
        free(s);
}

/* Say why, and see that it is read before the descriptor goes. */
static void say_why(struct serve *s, const char *why)
{
        char rest[4096];

        if (sync_send(&s->io, &(struct sync_msg){ .type = SYNC_FAIL, .text = sync_text(why) },
                      NULL) < 0 ||
            sync_flush(&s->io, NULL) < 0)
                return;
        (void)shutdown(s->io.fd, SHUT_WR);
        for (;;) {
                struct pollfd p = { .fd = s->io.fd, .events = POLLIN };

                if (poll(&p, 1, GOODBYE_MS) <= 0 || read(s->io.fd, rest, sizeof(rest)) <= 0)
                        return;
        }
}

int sync_serve(int fd, struct err *err)
{
        CLEAN(err_done) struct err own = { 0 };
        struct serve *s = xcalloc(1, sizeof(*s));
        struct sync_msg m;

        err = err ? err : &own;
        serve_init(s, fd);
        int r = sync_io_init(&s->io, err);
        while (r >= 0) {
                r = sync_receive(&s->io, &m, err);
                if (r <= 0)
                        break;
                r = handle(s, &m, err);
        }
        if (r < 0 && s->io.enc)
                say_why(s, err->msg);
        serve_done(s);
        return r;
}
