#define _GNU_SOURCE
#include "sync_fixture.h"

#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <pthread.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "workspace/serve.h"

static int open_dir(struct world *w, const char *name)
{
        int fd;

        (void)mkdirat(w->root_fd, name, 0755);
        fd = openat(w->root_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(fd >= 0);
        return fd;
}

int world_setup(void **state)
{
        struct world *w = xcalloc(1, sizeof(*w));

        assert_true(sodium_init() >= 0);
        make_scratch(w->root);
        w->root_fd = open(w->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        w->local_fd = open_dir(w, "local");
        w->remote_fd = open_dir(w, "remote");
        w->state_fd = open_dir(w, "state");
        snprintf(w->remote, sizeof(w->remote), "%s/remote", w->root);
        snprintf(w->parts, sizeof(w->parts), "%s/parts", w->root);
        snprintf(w->hashes, sizeof(w->hashes), "%s/hashes", w->root);
        arena_init(&w->arena);
        w->op = (struct op){ .arena = &w->arena, .deadline_ms = OP_NO_DEADLINE };
        w->options = (struct sync_options){ .remote_dir = w->remote, .remote_cache = w->parts };
        *state = w;
        return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
        (void)st;
        (void)where;
        if (type == FTW_D || type == FTW_DNR)
                (void)chmod(path, 0700);
        return 0;
}

static int really_remove(const char *path, const struct stat *st, int type, struct FTW *where)
{
        (void)st;
        (void)type;
        (void)where;
        return remove(path);
}

int world_teardown(void **state)
{
        struct world *w = *state;
        int r;

        close(w->local_fd);
        close(w->remote_fd);
        close(w->state_fd);
        close(w->root_fd);
        arena_done(&w->arena);
        (void)nftw(w->root, remove_entry, 16, FTW_PHYS);
        r = nftw(w->root, really_remove, 16, FTW_DEPTH | FTW_PHYS);
        free(w);
        return r;
}

/* Files */

static void put_content(int dir_fd, const char *path, const void *content, size_t len)
{
        CLEAN(cleanup_fd)
        int fd = openat(dir_fd, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, content, len, NULL), 0);
}

/* Bytes that no compressor makes shorter. */
void put_bytes(int dir_fd, const char *path, size_t len, unsigned seed)
{
        CLEAN(cleanup_free) unsigned char *content = xcalloc(1, len + 1);
        unsigned char key[randombytes_SEEDBYTES] = { 0 };

        memcpy(key, &seed, sizeof(seed));
        randombytes_buf_deterministic(content, len, key);
        put_content(dir_fd, path, content, len);
}

void put_text(int dir_fd, const char *path, const char *text)
{
        put_content(dir_fd, path, text, strlen(text));
}

void patch_byte(int dir_fd, const char *path, off_t at)
{
        CLEAN(cleanup_fd) int fd = openat(dir_fd, path, O_RDWR | O_CLOEXEC);
        char c;

        assert_int_equal(pread(fd, &c, 1, at), 1);
        c = (char)(c ^ 1);
        assert_int_equal(pwrite(fd, &c, 1, at), 1);
}

bool has_text(int dir_fd, const char *path, const char *text)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        return file_read_at(dir_fd, path, 1 << 20, &b, NULL) >= 0 && streq(buf_str(&b), text);
}

bool is_there(int dir_fd, const char *path)
{
        struct stat st;

        return fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The line */

struct relay {
        pthread_t thread;
        int a, b; /* towards us, towards the worker */
        uint64_t left[2];
};

/* One piece from one side to the other; false when it is over. */
static bool carry(int from, int to, uint64_t *left)
{
        char piece[4096];
        ssize_t n = recv(from, piece, (size_t)MIN(sizeof(piece), *left), MSG_DONTWAIT);

        if (n < 0)
                return true;
        for (ssize_t sent = 0; sent < n;) {
                ssize_t m = send(to, piece + sent, (size_t)(n - sent), MSG_NOSIGNAL);

                if (m < 0)
                        return false;
                sent += m;
        }
        *left -= (uint64_t)n;
        return n > 0 && *left > 0;
}

static void *run_relay(void *arg)
{
        struct relay *r = arg;
        struct pollfd p[2] = { { r->a, POLLIN, 0 }, { r->b, POLLIN, 0 } };

        for (;;) {
                if (poll(p, 2, -1) < 0)
                        continue;
                if (p[0].revents && !carry(r->a, r->b, &r->left[0]))
                        break;
                if (p[1].revents && !carry(r->b, r->a, &r->left[1]))
                        break;
        }
        shutdown(r->a, SHUT_RDWR);
        shutdown(r->b, SHUT_RDWR);
        return NULL;
}

static int relayed(struct world *w, struct line *l, int worker_fd)
{
        struct relay *r = xcalloc(1, sizeof(*r));
        int pair[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        r->a = pair[1];
        r->b = worker_fd;
        r->left[0] = r->left[1] = UINT64_MAX;
        r->left[w->cut_direction] = w->cut_after;
        assert_int_equal(pthread_create(&r->thread, NULL, run_relay, r), 0);
        l->relay = r;
        return pair[0];
}

void line_open(struct world *w, struct line *l)
{
        int pair[2];

        *l = (struct line){ 0 };
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        l->pid = fork();
        assert_true(l->pid >= 0);
        if (l->pid == 0) {
                close(pair[0]);
                (void)umask(022);
                _exit(sync_serve(pair[1], NULL) < 0);
        }
        close(pair[1]);
        l->fd = w->cut_after ? relayed(w, l, pair[0]) : pair[0];
}

void line_close(struct line *l)
{
        struct relay *r = l->relay;

        close(l->fd);
        if (r) {
                assert_int_equal(pthread_join(r->thread, NULL), 0);
                close(r->a);
                close(r->b);
                free(r);
        }
        assert_int_equal(waitpid(l->pid, NULL, 0), l->pid);
}

int push(struct world *w, struct err *err)
{
        struct line l;
        int r;

        line_open(w, &l);
        r = sync_push(&w->op, l.fd, w->local_fd, w->hashes, w->state_fd, "baseline", &w->options,
                      &w->moved, err);
        line_close(&l);
        return r;
}

void assert_pushed(struct world *w)
{
        CLEAN(err_done) struct err err = { 0 };

        if (push(w, &err) < 0)
                fail_msg("%s", err.msg);
}

/* Comparing */

static struct scan *scan_of(struct world *w, int dir_fd)
{
        struct scan_options options = { .excludes = w->options.excludes };
        struct scan *s;

        assert_int_equal(scan_open(openat(dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                   &options, &s, NULL),
                         0);
        return s;
}

static int differs(void *ctx, const struct tree_entry *was, const struct tree_entry *now,
                   struct err *err)
{
        (void)ctx;
        (void)err;
        fail_msg("%s is %s", was ? was->path : now->path,
                 !was   ? "too many"
                 : !now ? "missing"
                        : "different");
        return 0;
}

void assert_same_trees(struct world *w)
{
        struct scan *a = scan_of(w, w->local_fd), *b = scan_of(w, w->remote_fd);
        struct manifest_file *m;

        assert_int_equal(tree_diff(scan_source(a), scan_source(b), differs, NULL, NULL), 0);
        scan_close(a);
        scan_close(b);
        /* And the baseline says so. */
        a = scan_of(w, w->local_fd);
        assert_int_equal(manifest_open(w->state_fd, "baseline", &m, NULL), 0);
        assert_int_equal(tree_diff(scan_source(a), manifest_source(m), differs, NULL, NULL), 0);
        manifest_close(m);
        scan_close(a);
}
