#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <sodium.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "workspace/scan.h"

#define FUTURE_NS ((int64_t)4000000000 * 1000000000) /* every change is old */

/* scratch/tree is walked; scratch/cache is beside it. */
struct world {
        char root[SCRATCH_PATH_MAX], cache[SCRATCH_PATH_MAX + 16];
        int root_fd, tree;
};

static int setup(void **state)
{
        struct world *w = xcalloc(1, sizeof(*w));

        make_scratch(w->root);
        snprintf(w->cache, sizeof(w->cache), "%s/cache", w->root);
        w->root_fd = open(w->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(mkdirat(w->root_fd, "tree", 0755), 0);
        w->tree = openat(w->root_fd, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        *state = w;
        return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
        (void)st;
        (void)where;
        if (type == FTW_DNR)
                chmod(path, 0700);
        return remove(path);
}

static int teardown(void **state)
{
        struct world *w = *state;
        int r;

        close(w->tree);
        close(w->root_fd);
        r = nftw(w->root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        free(w);
        return r;
}

static void put(struct world *w, const char *path, const char *text)
{
        CLEAN(cleanup_fd)
        int fd = openat(w->tree, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
}

static void make_dir(struct world *w, const char *path)
{
        assert_int_equal(mkdirat(w->tree, path, 0755), 0);
}

static struct scan *open_scan(struct world *w, const struct scan_options *options)
{
        struct scan *s = NULL;
        int fd = openat(w->tree, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        assert_int_equal(scan_open(fd, options, &s, NULL), 0);
        return s;
}

static void text_of(const struct tree_entry *e, struct buf *out)
{
        static const char kinds[] = "?dfl!";

        buf_appendf(out, "%c %s", kinds[e->kind], e->path);
        if (e->kind == TREE_FILE)
                buf_appendf(out, " %o %llu", e->mode, (unsigned long long)e->size);
        if (e->kind == TREE_LINK)
                buf_appendf(out, " -> %s", e->target);
        buf_putc(out, '\n');
}

/* The whole scan as text, one line for each entry. */
static char *listing_of(struct scan *s)
{
        struct buf out = BUF_INIT;
        struct tree_entry e;
        char last[TREE_MAX_PATH + 1] = "";
        int r;

        while ((r = tree_next(scan_source(s), &e, NULL)) > 0) {
                assert_true(tree_path_ok(e.path));
                assert_true(tree_compare(last, e.path) < 0);
                memcpy(last, e.path, strlen(e.path) + 1);
                text_of(&e, &out);
        }
        assert_int_equal(r, 0);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 0);
        return buf_take(&out);
}

static void assert_listing(struct world *w, const struct excludes *x, const char *expected)
{
        for (unsigned threads = 1; threads <= 4; threads += 3) {
                const struct scan_options options = { .excludes = x, .threads = threads };
                struct scan *s = open_scan(w, &options);
                char *found = listing_of(s);

                assert_string_equal(found, expected);
                free(found);
                scan_close(s);
        }
}

static void test_order_and_kinds(void **state)
{
        struct world *w = *state;

        make_dir(w, "a");
        make_dir(w, "a/empty");
        put(w, "a/x", "hello");
        put(w, "a-b", "");
        put(w, "a.c", "1");
        assert_int_equal(fchmodat(w->tree, "a.c", 06755, 0), 0); /* set-id bits do not travel */
        assert_int_equal(symlinkat("/etc/passwd", w->tree, "l"), 0);
        assert_int_equal(symlinkat("loop", w->tree, "loop"), 0);
        assert_int_equal(symlinkat(".", w->tree, "a/self"), 0);
        assert_int_equal(symlinkat("nowhere", w->tree, "dangling"), 0);
        assert_listing(w, NULL,
                       "d a\nd a/empty\nl a/self -> .\nf a/x 644 5\nf a-b 644 0\nf a.c 755 1\n"
                       "l dangling -> nowhere\nl l -> /etc/passwd\nl loop -> loop\n");
}

static void test_empty_tree(void **state)
{
        assert_listing(*state, NULL, "");
}

static void test_hash_is_of_the_content(void **state)
{
        struct world *w = *state;
        uint8_t expected[TREE_HASH];
        struct tree_entry e;
        char target[TREE_MAX_TARGET + 1];
        struct scan *s;

        put(w, "x", "hello");
        put(w, "y", "");
        s = open_scan(w, NULL);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 1);
        crypto_generichash(expected, TREE_HASH, (const uint8_t *)"hello", 5, NULL, 0);
        assert_memory_equal(e.hash, expected, TREE_HASH);
        assert_int_equal(scan_one(w->tree, "x", true, &e, target, NULL), 1);
        assert_memory_equal(e.hash, expected, TREE_HASH);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 1);
        crypto_generichash(expected, TREE_HASH, NULL, 0, NULL, 0);
        assert_memory_equal(e.hash, expected, TREE_HASH);
        assert_int_equal(scan_bytes_read(s), 5);
        scan_close(s);
}

/* Names with newlines and bytes that are no UTF-8, names that differ by case, the longest ones. */
static void test_odd_names(void **state)
{
        struct world *w = *state;
        char longest[TREE_MAX_NAME + 1];
        CLEAN(buf_done) struct buf expected = BUF_INIT;

        memset(longest, 'n', TREE_MAX_NAME);
        longest[TREE_MAX_NAME] = '\0';
        put(w, "line\nbreak", "");
        put(w, "\xff\xfe", "");
        put(w, "README", "");
        put(w, "readme", "");
        put(w, "Readme", "");
        put(w, longest, "");
        put(w, "-rf", "");
        buf_appendf(&expected,
                    "f -rf 644 0\nf README 644 0\nf Readme 644 0\nf line\nbreak 644 0\n"
                    "f %s 644 0\nf readme 644 0\nf \xff\xfe 644 0\n",
                    longest);
        assert_listing(w, NULL, expected.data);
}

/* FIFOs and sockets are never opened: the first would wait for a writer. */
static void test_special_files(void **state)
{
        struct world *w = *state;
        struct sockaddr_un at = { .sun_family = AF_UNIX };
        struct scan *s;
        char *found;
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_int_equal(mkfifoat(w->tree, "fifo", 0644), 0);
        snprintf(at.sun_path, sizeof(at.sun_path), "/proc/self/fd/%d/sock", w->tree);
        assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
        close(fd);
        put(w, "plain", "x");
        s = open_scan(w, NULL);
        found = listing_of(s);
        assert_string_equal(found, "f plain 644 1\n");
        assert_int_equal(scan_skipped(s)->special, 2);
        assert_int_equal(scan_skipped(s)->unreadable, 0);
        free(found);
        scan_close(s);
}

/* Work in a child, perhaps as somebody whom modes stop; a status of 77 skips the test. */
static void in_child(void (*fn)(struct world *), struct world *w, bool as_nobody)
{
        int status;
        pid_t pid;

        assert_int_equal(chmod(w->root, 0755), 0);
        pid = fork();
        if (pid == 0) {
                if (as_nobody && geteuid() == 0 &&
                    (setresgid(65534, 65534, 65534) < 0 || setresuid(65534, 65534, 65534) < 0))
                        _exit(99);
                fn(w);
                _exit(0);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                skip();
        assert_int_equal(status, 0);
}

/* In a child a failed assertion has nobody to tell; the status has to. */
#define MUST(condition)                                                                            \
        do {                                                                                       \
                if (!(condition)) {                                                                \
                        fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);            \
                        abort();                                                                   \
                }                                                                                  \
        } while (0)

static void scan_unreadable(struct world *w)
{
        struct scan *s = open_scan(w, NULL);
        char *found = listing_of(s);
        char target[TREE_MAX_TARGET + 1];
        struct tree_entry e;

        MUST(streq(found, "! closed\n! file\nd listed\n! listed/x\nf open 644 1\n"));
        MUST(scan_skipped(s)->unreadable == 3);
        MUST(streq(scan_skipped(s)->first_unreadable, "closed"));
        MUST(scan_one(w->tree, "file", true, &e, target, NULL) == 1 && e.kind == TREE_UNKNOWN);
        MUST(scan_one(w->tree, "file", false, &e, target, NULL) == 1 && e.kind == TREE_FILE);
        MUST(scan_one(w->tree, "closed/x", false, &e, target, NULL) == ERR_IO ||
             e.kind == TREE_UNKNOWN);
        free(found);
        scan_close(s);
}

/* What cannot be read is there all the same: it must never look deleted, or empty. */
static void test_unreadable(void **state)
{
        struct world *w = *state;

        make_dir(w, "closed");
        put(w, "closed/x", "1");
        make_dir(w, "listed");
        put(w, "listed/x", "1");
        put(w, "file", "1");
        put(w, "open", "1");
        assert_int_equal(fchmodat(w->tree, "closed", 0, 0), 0);
        assert_int_equal(fchmodat(w->tree, "listed", 0444, 0), 0);
        assert_int_equal(fchmodat(w->tree, "file", 0, 0), 0);
        in_child(scan_unreadable, w, true);
        assert_int_equal(fchmodat(w->tree, "closed", 0755, 0), 0);
        assert_int_equal(fchmodat(w->tree, "listed", 0755, 0), 0);
}

static void scan_with_mount(struct world *w)
{
        char at[SCRATCH_PATH_MAX + 16];
        struct scan *s;
        char *found;

        snprintf(at, sizeof(at), "%s/tree/mnt", w->root);
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("none", at, "tmpfs", 0, NULL) < 0)
                _exit(77);
        snprintf(at, sizeof(at), "%s/tree", w->root);
        w->tree = open(at, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* in the new namespace */
        close(openat(w->tree, "mnt/inside", O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
        s = open_scan(w, NULL);
        found = listing_of(s);
        MUST(streq(found, "d dir\n! mnt\n"));
        MUST(scan_skipped(s)->unreadable == 1);
        free(found);
        scan_close(s);
}

/* What is mounted in a workspace is no part of it. */
static void test_mount_point(void **state)
{
        struct world *w = *state;

        make_dir(w, "dir");
        make_dir(w, "mnt");
        in_child(scan_with_mount, w, false); /* without the right to mount it skips */
}

static void test_sparse_file(void **state)
{
        struct world *w = *state;
        struct scan *s;
        char *found;

        put(w, "sparse", "");
        {
                CLEAN(cleanup_fd) int fd = openat(w->tree, "sparse", O_WRONLY | O_CLOEXEC);

                assert_int_equal(ftruncate(fd, 64 << 20), 0);
        }
        s = open_scan(w, NULL);
        found = listing_of(s);
        assert_string_equal(found, "f sparse 644 67108864\n");
        assert_int_equal(scan_bytes_read(s), 64 << 20);
        free(found);
        scan_close(s);
}

/* Deeper than a manifest can say: left out and counted, and the rest is there. */
static void test_too_deep(void **state)
{
        struct world *w = *state;
        struct scan *s;
        char *found;
        size_t lines = 0;
        int at = dup(w->tree);

        for (int i = 0; i < TREE_MAX_DEPTH + 3; i++) {
                int next;

                assert_int_equal(mkdirat(at, "d", 0755), 0);
                next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                close(at);
                at = next;
        }
        close(at);
        s = open_scan(w, NULL);
        found = listing_of(s);
        for (const char *c = found; *c; c++)
                lines += *c == '\n';
        assert_int_equal(lines, TREE_MAX_DEPTH);
        assert_int_equal(scan_skipped(s)->too_long, 1);
        free(found);
        scan_close(s);
}

/* More files in one folder than the window holds. */
static void test_many_files(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf expected = BUF_INIT;

        make_dir(w, "many");
        for (int i = 0; i < 10000; i++) {
                char path[32], text[16];

                snprintf(path, sizeof(path), "many/%05d", i);
                snprintf(text, sizeof(text), "%05d", i);
                put(w, path, i % 7 ? text : "");
        }
        buf_puts(&expected, "d many\n");
        for (int i = 0; i < 10000; i++)
                buf_appendf(&expected, "f many/%05d 644 %d\n", i, i % 7 ? 5 : 0);
        assert_listing(w, NULL, expected.data);
}

static void test_limits(void **state)
{
        struct world *w = *state;
        struct scan_options options = { .max_entries = 2 };
        struct scan *s;
        struct tree_entry e;
        char *found;

        make_dir(w, "d");
        put(w, "d/x", "1");
        s = open_scan(w, &options);
        found = listing_of(s);
        assert_string_equal(found, "d d\nf d/x 644 1\n");
        free(found);
        scan_close(s);
        options.max_entries = 1;
        s = open_scan(w, &options);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 1);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), ERR_TOO_LARGE);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), ERR_TOO_LARGE);
        scan_close(s);
}

static int refuse(void *ctx, struct err *err)
{
        int *calls = ctx;

        return ++*calls > 1 ? err_set(err, ERR_CANCELLED, "enough") : 0;
}

static void test_cancel(void **state)
{
        struct world *w = *state;

        put(w, "big", "");
        {
                CLEAN(cleanup_fd) int fd = openat(w->tree, "big", O_WRONLY | O_CLOEXEC);

                assert_int_equal(ftruncate(fd, (off_t)1 << 40), 0); /* would take half an hour */
        }
        for (unsigned threads = 1; threads <= 2; threads++) {
                int calls = 0;
                const struct scan_options options = { .threads = threads,
                                                      .check = refuse,
                                                      .ctx = &calls };
                struct scan *s = open_scan(w, &options);
                struct tree_entry e;

                assert_int_equal(tree_next(scan_source(s), &e, NULL), ERR_CANCELLED);
                scan_close(s);
        }
}

/* A scan that is given up in the middle leaves no thread, descriptor or memory behind. */
static void test_given_up(void **state)
{
        struct world *w = *state;
        const struct scan_options options = { .threads = 4, .cache_path = w->cache };
        struct tree_entry e;
        struct scan *s;

        for (int i = 0; i < 500; i++) {
                char path[16];

                snprintf(path, sizeof(path), "%d", i);
                put(w, path, "content");
        }
        s = open_scan(w, &options);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 1);
        scan_close(s);
        assert_int_equal(faccessat(w->root_fd, "cache", F_OK, 0), -1);
        assert_int_equal(faccessat(w->root_fd, "cache.new", F_OK, 0), -1);
}

/* A file that grows whenever it is looked at is taken as it is, once. */
struct grower {
        int fd;
        int checks;
};

static int grow(void *ctx, struct err *err)
{
        struct grower *g = ctx;

        g->checks++;
        return fd_write_all(g->fd, "more", 4, err);
}

static void test_changes_while_read(void **state)
{
        struct world *w = *state;
        struct grower g = { .fd = -1 };
        const struct scan_options options = {
                .threads = 1, .check = grow, .ctx = &g, .cache_path = w->cache, .now_ns = FUTURE_NS
        };
        struct tree_entry e;
        struct scan *s;
        uint64_t size;

        put(w, "log", "first");
        g.fd = openat(w->tree, "log", O_WRONLY | O_APPEND | O_CLOEXEC);
        s = open_scan(w, &options);
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 1);
        assert_true(e.size > 5 && e.size < 100);
        size = e.size;
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 0);
        scan_close(s);
        assert_true(g.checks >= 3);
        /* It is not remembered: the next time it is read. */
        close(g.fd);
        s = open_scan(w, &(struct scan_options){ .cache_path = w->cache });
        assert_int_equal(tree_next(scan_source(s), &e, NULL), 1);
        assert_true(scan_bytes_read(s) >= size);
        scan_close(s);
}

static int unlink_b(void *ctx, struct err *err)
{
        const struct world *w = ctx;

        (void)unlinkat(w->tree, "b", 0);
        return 0;
}

/* Between the look and the reading: it is not there, no more and no less. */
static void test_vanishes(void **state)
{
        struct world *w = *state;
        const struct scan_options options = { .threads = 1, .check = unlink_b, .ctx = w };
        struct scan *s;
        char *found;

        put(w, "a", "1");
        put(w, "b", "1");
        put(w, "c", "1");
        s = open_scan(w, &options);
        found = listing_of(s);
        assert_string_equal(found, "f a 644 1\nf c 644 1\n");
        assert_int_equal(scan_skipped(s)->unreadable, 0);
        free(found);
        scan_close(s);
}

static void scan_without_descriptors(struct world *w)
{
        struct scan *s = open_scan(w, NULL);
        struct rlimit none = { .rlim_cur = 0, .rlim_max = 0 };
        struct tree_entry e;

        MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
        MUST(tree_next(scan_source(s), &e, NULL) == ERR_IO);
        scan_close(s);
}

/* That we lack something says nothing of the tree. */
static void test_out_of_descriptors(void **state)
{
        struct world *w = *state;

        make_dir(w, "d");
        in_child(scan_without_descriptors, w, false);
        assert_int_equal(unlinkat(w->tree, "d", AT_REMOVEDIR), 0);
        put(w, "file", "1");
        in_child(scan_without_descriptors, w, false);
}

/* The cache */

static uint64_t bytes_read(struct world *w, int64_t now_ns)
{
        const struct scan_options options = { .cache_path = w->cache, .now_ns = now_ns };
        struct scan *s = open_scan(w, &options);
        uint64_t bytes;

        free(listing_of(s));
        bytes = scan_bytes_read(s);
        scan_close(s);
        return bytes;
}

static void test_cache(void **state)
{
        struct world *w = *state;
        struct timespec times[2] = { { .tv_nsec = UTIME_OMIT } };
        struct stat st;

        make_dir(w, "d");
        put(w, "d/a", "12345");
        put(w, "d/b", "123");
        put(w, "e", "1");
        assert_int_equal(bytes_read(w, FUTURE_NS), 9);
        assert_int_equal(bytes_read(w, FUTURE_NS), 0);
        assert_int_equal(bytes_read(w, FUTURE_NS), 0); /* what was known stays known */

        /* Other content of the same length, with the time set back: ctime tells. */
        assert_int_equal(fstatat(w->tree, "d/a", &st, 0), 0);
        do {
                put(w, "d/a", "54321");
                times[1] = st.st_mtim;
                assert_int_equal(utimensat(w->tree, "d/a", times, 0), 0);
                struct stat now;

                assert_int_equal(fstatat(w->tree, "d/a", &now, 0), 0);
                assert_int_equal(now.st_mtim.tv_nsec, st.st_mtim.tv_nsec);
                if (now.st_ctim.tv_nsec != st.st_ctim.tv_nsec)
                        break; /* the clock of the file system has moved on */
        } while (true);
        assert_int_equal(bytes_read(w, FUTURE_NS), 5);

        /* Added, deleted, moved. */
        put(w, "c", "12");
        assert_int_equal(unlinkat(w->tree, "d/b", 0), 0);
        assert_int_equal(renameat(w->tree, "e", w->tree, "d/e"), 0);
        assert_int_equal(bytes_read(w, FUTURE_NS), 3);
        assert_int_equal(bytes_read(w, FUTURE_NS), 0);
}

static void test_cache_gives_the_right_hash(void **state)
{
        struct world *w = *state;
        const struct scan_options options = { .cache_path = w->cache, .now_ns = FUTURE_NS };

        put(w, "x", "hello");
        for (int i = 0; i < 2; i++) {
                struct scan *s = open_scan(w, &options);
                uint8_t expected[TREE_HASH];
                struct tree_entry e;

                assert_int_equal(tree_next(scan_source(s), &e, NULL), 1);
                crypto_generichash(expected, TREE_HASH, (const uint8_t *)"hello", 5, NULL, 0);
                assert_memory_equal(e.hash, expected, TREE_HASH);
                assert_int_equal(tree_next(scan_source(s), &e, NULL), 0);
                assert_int_equal(scan_bytes_read(s), i ? 0 : 5);
                scan_close(s);
        }
}

/* What has just changed may change again without a sign. */
static void test_fresh_files_are_not_remembered(void **state)
{
        struct world *w = *state;
        struct stat st;
        int64_t changed;

        put(w, "x", "hello");
        assert_int_equal(fstatat(w->tree, "x", &st, 0), 0);
        changed = (int64_t)st.st_ctim.tv_sec * 1000000000 + st.st_ctim.tv_nsec;
        assert_int_equal(bytes_read(w, changed + 1999999999), 5);
        assert_int_equal(bytes_read(w, changed + 2000000000), 5);
        assert_int_equal(bytes_read(w, changed + 2000000000), 0);
}

static void test_broken_cache(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf good = BUF_INIT;

        for (int i = 0; i < 20; i++) {
                char path[16];

                snprintf(path, sizeof(path), "%d", i);
                put(w, path, "content");
        }
        assert_int_equal(bytes_read(w, FUTURE_NS), 140);
        assert_int_equal(file_read_at(w->root_fd, "cache", 1 << 20, &good, NULL), 0);
        for (size_t at = 0; at < good.len; at += 7) {
                char saved = good.data[at];

                good.data[at] = (char)(saved ^ 0x40);
                assert_int_equal(
                        file_write_at(w->root_fd, "cache", good.data, good.len, 0600, NULL), 0);
                assert_int_equal(bytes_read(w, FUTURE_NS), 140);
                good.data[at] = saved;
        }
        assert_int_equal(file_write_at(w->root_fd, "cache", good.data, good.len / 2, 0600, NULL),
                         0);
        assert_int_equal(bytes_read(w, FUTURE_NS), 140);
        assert_int_equal(bytes_read(w, FUTURE_NS), 0);
}

/* Two scans with one cache: one saves, neither spoils the other's. */
static void test_cache_of_two(void **state)
{
        struct world *w = *state;
        const struct scan_options options = { .cache_path = w->cache, .now_ns = FUTURE_NS };
        struct scan *a, *b;

        put(w, "x", "hello");
        a = open_scan(w, &options);
        b = open_scan(w, &options);
        free(listing_of(a));
        free(listing_of(b));
        scan_close(b);
        assert_int_equal(faccessat(w->root_fd, "cache", F_OK, 0), -1);
        scan_close(a);
        assert_int_equal(bytes_read(w, FUTURE_NS), 0);
}

/* Exclude rules */

static bool excluded(const char *pattern, const char *path)
{
        const char *const patterns[] = { "zzz", pattern, NULL };
        const struct excludes x = { .patterns = patterns };

        return excludes_match(&x, path);
}

static void test_excludes(void **state)
{
        /* section 2.7: the path itself and what is beneath it, from the root */
        assert_true(excluded("a/b", "a/b"));
        assert_true(excluded("a/b", "a/b/c"));
        assert_false(excluded("a/b", "a/bc"));
        assert_false(excluded("a/b", "x/a/b"));
        assert_false(excluded("a/b", "a"));
        /* what is beneath, not the directory */
        assert_true(excluded("base/*", "base/x"));
        assert_true(excluded("base/*", "base/x/y"));
        assert_false(excluded("base/*", "base"));
        assert_false(excluded("base/*", "basement/x"));
        assert_false(excluded("base/*", "a/base/x"));
        assert_true(excluded("a/base/*", "a/base/x"));
        /* a part of that name at any depth */
        for (int i = 0; i < 2; i++) {
                const char *pattern = i ? "*/name/*" : "*/name";

                assert_true(excluded(pattern, "name"));
                assert_true(excluded(pattern, "a/name"));
                assert_true(excluded(pattern, "a/b/name/c"));
                assert_false(excluded(pattern, "a/names"));
                assert_false(excluded(pattern, "a/aname"));
                assert_false(excluded(pattern, "nam"));
        }
        /* asterisks elsewhere are bytes like others */
        assert_true(excluded("*.o", "*.o"));
        assert_false(excluded("*.o", "x.o"));
        assert_true(excluded("*/a/b", "*/a/b"));
        assert_false(excluded("*/a/b", "x/a/b"));
        /* ways to write the same */
        assert_true(excluded("./a/", "a"));
        assert_true(excluded("/a", "a/b"));
        assert_false(excluded("", "a"));
        assert_false(excluded("/", "a"));
        assert_false(excluded("./", "a"));
}

static void test_excludes_always(void **state)
{
        const struct excludes none = { 0 };

        assert_true(excludes_match(&none, ".paperclip-runtime"));
        assert_true(excludes_match(NULL, ".paperclip-runtime/claude/x"));
        assert_false(excludes_match(NULL, "a/.paperclip-runtime"));
        assert_true(excludes_match(NULL, "._x"));
        assert_true(excludes_match(NULL, "a/._x/b"));
        assert_false(excludes_match(NULL, "a_._x"));
}

static void test_excluded_is_not_read(void **state)
{
        const char *const patterns[] = { "*/node_modules", "dist/*", NULL };
        struct world *w = *state;

        make_dir(w, "node_modules");
        put(w, "node_modules/x", "1");
        make_dir(w, "a");
        make_dir(w, "a/node_modules");
        make_dir(w, "dist");
        put(w, "dist/x", "1");
        put(w, "._junk", "1");
        make_dir(w, ".paperclip-runtime");
        assert_listing(w, &(struct excludes){ .patterns = patterns }, "d a\nd dist\n");
}

/* Manifests and differences */

static void save(struct world *w, const char *name)
{
        struct scan *s = open_scan(w, NULL);
        uint64_t count = 0, bytes = 0;

        assert_int_equal(manifest_write(w->root_fd, name, scan_source(s), &count, &bytes, NULL), 0);
        assert_int_equal(count, scan_count(s));
        assert_int_equal(bytes, scan_bytes_read(s));
        scan_close(s);
}

static int note(void *ctx, const struct tree_entry *was, const struct tree_entry *now,
                struct err *err)
{
        struct buf *out = ctx;

        buf_puts(out, was ? "-" : " ");
        buf_puts(out, now ? "+ " : "  ");
        if (now)
                text_of(now, out);
        else if (was)
                text_of(was, out);
        return 0;
}

static void assert_diff(struct world *w, const char *was, const char *now, const char *expected)
{
        struct manifest_file *a = NULL, *b = NULL;
        CLEAN(buf_done) struct buf out = BUF_INIT;

        assert_int_equal(manifest_open(w->root_fd, was, &a, NULL), 0);
        assert_int_equal(manifest_open(w->root_fd, now, &b, NULL), 0);
        assert_int_equal(tree_diff(manifest_source(a), manifest_source(b), note, &out, NULL), 0);
        assert_string_equal(buf_str(&out), expected);
        manifest_close(a);
        manifest_close(b);
}

static void test_diff(void **state)
{
        struct world *w = *state;

        make_dir(w, "d");
        put(w, "d/same", "1");
        put(w, "d/changed", "1");
        put(w, "d/mode", "1");
        put(w, "gone", "1");
        put(w, "was-file", "1");
        assert_int_equal(symlinkat("a", w->tree, "link"), 0);
        save(w, "one");
        assert_diff(w, "one", "one", "");
        put(w, "d/changed", "22");
        put(w, "d/new", "1");
        assert_int_equal(fchmodat(w->tree, "d/mode", 0755, 0), 0);
        assert_int_equal(unlinkat(w->tree, "gone", 0), 0);
        assert_int_equal(unlinkat(w->tree, "link", 0), 0);
        assert_int_equal(symlinkat("b", w->tree, "link"), 0);
        assert_int_equal(unlinkat(w->tree, "was-file", 0), 0);
        make_dir(w, "was-file");
        put(w, "was-file/x", "1");
        save(w, "two");
        assert_diff(w, "one", "two",
                    "-+ f d/changed 644 2\n-+ f d/mode 755 1\n + f d/new 644 1\n-  f gone 644 1\n"
                    "-+ l link -> b\n-+ d was-file\n + f was-file/x 644 1\n");
        assert_diff(w, "two", "one",
                    "-+ f d/changed 644 1\n-+ f d/mode 644 1\n-  f d/new 644 1\n + f gone 644 1\n"
                    "-+ l link -> a\n-+ f was-file 644 1\n-  f was-file/x 644 1\n");
}

/* Entries from an array. */
struct listed {
        struct tree_source source;
        const struct tree_entry *at;
};

static int listed_next(struct tree_source *s, struct tree_entry *ret, struct err *err)
{
        struct listed *l = container_of(s, struct listed, source);

        *ret = *l->at;
        return l->at->path ? (l->at++, 1) : 0;
}

static void assert_diff_of(const struct tree_entry *was, const struct tree_entry *now,
                           const char *expected)
{
        struct listed a = { { listed_next }, was }, b = { { listed_next }, now };
        CLEAN(buf_done) struct buf out = BUF_INIT;

        assert_int_equal(tree_diff(&a.source, &b.source, note, &out, NULL), 0);
        assert_string_equal(buf_str(&out), expected);
}

/* What became unreadable was not deleted; what was unreadable and is there now is new. */
static void test_diff_of_unknown(void **state)
{
        const struct tree_entry known[] = {
                { .path = "a", .kind = TREE_FILE },   { .path = "d", .kind = TREE_DIR },
                { .path = "d/x", .kind = TREE_FILE }, { .path = "d/x.y", .kind = TREE_FILE },
                { .path = "d-", .kind = TREE_FILE },  { 0 }
        };
        const struct tree_entry unknown[] = { { .path = "a", .kind = TREE_UNKNOWN },
                                              { .path = "c", .kind = TREE_UNKNOWN },
                                              { .path = "d", .kind = TREE_UNKNOWN },
                                              { 0 } };
        const struct tree_entry nothing[] = { { 0 } };

        assert_diff_of(known, unknown, "-  f d- 0 0\n");
        assert_diff_of(unknown, known,
                       " + f a 0 0\n + d d\n + f d/x 0 0\n + f d/x.y 0 0\n + f d- 0 0\n");
        assert_diff_of(unknown, unknown, "");
        assert_diff_of(unknown, nothing, "");
        assert_diff_of(nothing, unknown, "");
}

static void test_damaged_manifest(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf good = BUF_INIT;
        struct manifest_file *m = NULL;

        make_dir(w, "d");
        put(w, "d/x", "some content");
        put(w, "y", "more of it");
        save(w, "good");
        assert_int_equal(file_read_at(w->root_fd, "good", 1 << 20, &good, NULL), 0);
        for (size_t cut = 0; cut <= good.len; cut++) {
                struct tree_entry e;
                int r;

                assert_int_equal(file_write_at(w->root_fd, "cut", good.data, cut, 0600, NULL), 0);
                assert_int_equal(manifest_open(w->root_fd, "cut", &m, NULL), 0);
                while ((r = tree_next(manifest_source(m), &e, NULL)) > 0)
                        ;
                assert_int_equal(r, cut == good.len ? 0 : ERR_CORRUPT);
                manifest_close(m);
        }
        assert_int_equal(manifest_open(w->root_fd, "none", &m, NULL), ERR_NOT_FOUND);
}

/* One path */

static int look(struct world *w, const char *path, struct tree_entry *ret)
{
        static char target[TREE_MAX_TARGET + 1];

        return scan_one(w->tree, path, true, ret, target, NULL);
}

static void test_one(void **state)
{
        struct world *w = *state;
        struct tree_entry e;

        make_dir(w, "d");
        put(w, "d/x", "hello");
        assert_int_equal(symlinkat("d", w->tree, "to-d"), 0);
        assert_int_equal(mkfifoat(w->tree, "fifo", 0644), 0);
        assert_int_equal(look(w, "d", &e), 1);
        assert_int_equal(e.kind, TREE_DIR);
        assert_int_equal(look(w, "d/x", &e), 1);
        assert_int_equal(e.kind, TREE_FILE);
        assert_int_equal(e.size, 5);
        assert_int_equal(look(w, "to-d", &e), 1);
        assert_int_equal(e.kind, TREE_LINK);
        assert_string_equal(e.target, "d");
        assert_int_equal(look(w, "fifo", &e), 1);
        assert_int_equal(e.kind, TREE_UNKNOWN);
        assert_int_equal(look(w, "none", &e), 0);
        assert_int_equal(look(w, "none/x", &e), 0);
        assert_int_equal(look(w, "d/x/y", &e), 0);
        assert_int_equal(look(w, "to-d/x", &e), 0); /* links are not followed */
        assert_int_equal(look(w, "../cache", &e), ERR_INVALID);
        assert_int_equal(look(w, "/etc", &e), ERR_INVALID);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_order_and_kinds),
                TEST(test_empty_tree),
                TEST(test_hash_is_of_the_content),
                TEST(test_odd_names),
                TEST(test_special_files),
                TEST(test_unreadable),
                TEST(test_mount_point),
                TEST(test_sparse_file),
                TEST(test_too_deep),
                TEST(test_many_files),
                TEST(test_limits),
                TEST(test_cancel),
                TEST(test_given_up),
                TEST(test_changes_while_read),
                TEST(test_vanishes),
                TEST(test_out_of_descriptors),
                TEST(test_cache),
                TEST(test_cache_gives_the_right_hash),
                TEST(test_fresh_files_are_not_remembered),
                TEST(test_broken_cache),
                TEST(test_cache_of_two),
                cmocka_unit_test(test_excludes),
                cmocka_unit_test(test_excludes_always),
                TEST(test_excluded_is_not_read),
                TEST(test_diff),
                cmocka_unit_test(test_diff_of_unknown),
                TEST(test_damaged_manifest),
                TEST(test_one),
        };

        if (sodium_init() < 0)
                return 1;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
