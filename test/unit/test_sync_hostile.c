/* threads: both ends of a transfer on a thread each. */
/* Either side of a transfer with somebody at the other end who does what he likes. */
#define _GNU_SOURCE
#include "sync_fixture.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "workspace/apply.h"
#include "workspace/serve.h"
#include "workspace/sync_io.h"

/* A worker that lies */

struct liar {
        struct sync_io io;
        const char *how;
        unsigned seed;
};

static int wait_for(void *ctx, int fd, short events, struct err *err)
{
        struct pollfd p = { .fd = fd, .events = events };

        (void)ctx;
        (void)err;
        return poll(&p, 1, -1) > 0 ? 1 : ERR_IO;
}

static void say(struct liar *l, struct sync_msg m)
{
        if (sync_send(&l->io, &m, NULL) < 0)
                _exit(0);
}

static void say_manifest(struct liar *l, const struct tree_entry *entries, size_t n)
{
        CLEAN(cleanup_free) struct tree_encoder *e = xcalloc(1, sizeof(*e));
        CLEAN(buf_done) struct buf b = BUF_INIT;

        tree_encode_begin(e, &b);
        for (size_t i = 0; i < n; i++)
                tree_encode(e, &entries[i]);
        tree_encode_end(e);
        say(l, (struct sync_msg){ .type = SYNC_MANIFEST, .blob = { b.data, b.len } });
        say(l, (struct sync_msg){ .type = SYNC_SCANNED });
}

static void greet(struct liar *l)
{
        say(l, (struct sync_msg){ .type = SYNC_HELLO, .number = SYNC_VERSION, .mode = 022 });
        say(l, (struct sync_msg){ .type = SYNC_READY });
}

static unsigned roll(struct liar *l, unsigned n)
{
        return (unsigned)rand_r(&l->seed) % n;
}

/* Any message, well-formed. */
static void say_anything(struct liar *l)
{
        static const char *const paths[] = { "a", "a/b", "out", "out/x", "large", "" };
        static const char bytes[SYNC_CHUNK_SIZE * 4];
        struct sync_msg m = {
                .type = (uint8_t)(1 + roll(l, SYNC_CLEAR)),
                .slot = roll(l, 4) ? roll(l, 3) : (uint32_t)rand_r(&l->seed),
                .mode = roll(l, 01000),
                .number = SYNC_VERSION,
                .size = roll(l, 2) ? roll(l, 5000000) : TREE_MAX_SIZE,
                .offset = roll(l, 3000000),
                .flags = (uint8_t)roll(l, 2),
                .text = sync_text("no"),
                .target = sync_text("/etc"),
        };

        m.path = sync_text(paths[roll(l, ARRAY_LEN(paths))]);
        if (m.path.len == 0 && m.type != SYNC_FILE && m.type != SYNC_BIG)
                m.path = sync_text("a");
        m.blob = (struct frame_bytes){ bytes, SYNC_CHUNK_SIZE * roll(l, 5) };
        if (m.type == SYNC_READY)
                m.blob.len = TREE_HASH;
        if (m.type == SYNC_DATA)
                m.blob.len = 1 + roll(l, sizeof(bytes));
        if (m.type != SYNC_FAIL)
                say(l, m);
}

/* Until the daemon has asked for the file, whatever comes is refused as unasked. */
static void wait_for_get(struct liar *l)
{
        struct sync_msg m;

        while (sync_receive(&l->io, &m, NULL) > 0)
                if (m.type == SYNC_GET)
                        return;
        _exit(0);
}

static void lie(struct liar *l)
{
        static const char big[SYNC_PIECE];
        struct tree_entry file = { .path = "a", .kind = TREE_FILE, .size = 3, .mode = 0644 };

        if (streq(l->how, "garbage")) {
                char junk[4096];

                randombytes_buf(junk, sizeof(junk));
                (void)!write(l->io.fd, junk, sizeof(junk));
                return;
        }
        if (streq(l->how, "zeros")) { /* a little that becomes a lot */
                static const char zeros[1 << 20];

                for (int i = 0; i < 64; i++) {
                        buf_append(&l->io.plain, zeros, sizeof(zeros));
                        if (sync_flush(&l->io, NULL) < 0)
                                return;
                        say(l, (struct sync_msg){ .type = SYNC_SCANNED });
                }
                return;
        }
        if (streq(l->how, "version")) {
                say(l, (struct sync_msg){ .type = SYNC_HELLO, .number = 77 });
        } else if (streq(l->how, "unasked")) {
                greet(l);
                say_manifest(l, &file, 1);
                say(l, (struct sync_msg){ .type = SYNC_FILE, .slot = 9 });
        } else if (streq(l->how, "broken manifest")) {
                greet(l);
                say(l, (struct sync_msg){ .type = SYNC_MANIFEST, .blob = { "../../x", 7 } });
                say(l, (struct sync_msg){ .type = SYNC_SCANNED });
        } else if (streq(l->how, "cut manifest")) {
                greet(l);
                say(l, (struct sync_msg){ .type = SYNC_SCANNED });
        } else if (streq(l->how, "wrong hash")) {
                greet(l);
                say_manifest(l, &file, 1);
                wait_for_get(l);
                say(l, (struct sync_msg){ .type = SYNC_FILE, .blob = { "abc", 3 } });
        } else if (streq(l->how, "wrong end")) {
                file.size = 2 << 20;
                greet(l);
                say_manifest(l, &file, 1);
                wait_for_get(l);
                for (int i = 0; i < 100; i++) {
                        say(l, (struct sync_msg){
                                       .type = SYNC_BIG, .size = 2 << 20, .flags = SYNC_WHOLE });
                        say(l, (struct sync_msg){ .type = SYNC_DATA, .blob = { "abc", 3 } });
                        say(l, (struct sync_msg){ .type = SYNC_BIG_END, .size = 3 });
                        wait_for_get(l);
                }
        } else if (streq(l->how, "endless")) {
                file.size = 2 << 20;
                greet(l);
                say_manifest(l, &file, 1);
                wait_for_get(l);
                say(l, (struct sync_msg){ .type = SYNC_BIG, .size = 2 << 20, .flags = SYNC_WHOLE });
                for (;;)
                        say(l,
                            (struct sync_msg){ .type = SYNC_DATA, .blob = { big, sizeof(big) } });
        } else {
                greet(l);
                if (roll(l, 2))
                        say_manifest(l, &file, 1);
                for (int i = 0; i < 40; i++)
                        say_anything(l);
        }
        (void)sync_flush(&l->io, NULL);
}

/* A line to one. */
static void open_liar(struct line *line, const char *how, unsigned seed)
{
        int pair[2];

        *line = (struct line){ 0 };
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        line->pid = fork();
        assert_true(line->pid >= 0);
        if (line->pid == 0) {
                struct liar *l = xcalloc(1, sizeof(*l));
                char rest[4096];

                close(pair[0]);
                l->io = (struct sync_io){ .fd = pair[1], .wait = wait_for };
                l->how = how;
                l->seed = seed;
                if (sync_io_init(&l->io, NULL) >= 0)
                        lie(l);
                (void)shutdown(pair[1], SHUT_WR);
                while (read(pair[1], rest, sizeof(rest)) > 0)
                        ;
                _exit(0);
        }
        close(pair[1]);
        line->fd = pair[0];
}

static int pull_from_liar(struct world *w, const char *how, unsigned seed, struct err *err)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/bundle", w->root);
        struct bundle_writer *into = NULL;
        uint32_t umask;
        struct line l;
        int r;

        open_liar(&l, how, seed);
        assert_int_equal(bundle_create(dir, &into, NULL), 0);
        r = sync_pull(&w->op, l.fd, w->state_fd, "baseline", "next", w->local_fd, into, &w->options,
                      &umask, NULL, err);
        bundle_close(into);
        line_close(&l);
        return r;
}

static int push_to_liar(struct world *w, const char *how, unsigned seed, struct err *err)
{
        struct line l;
        int r;

        open_liar(&l, how, seed);
        r = sync_push(&w->op, l.fd, w->local_fd, NULL, w->state_fd, "other", &w->options, NULL,
                      err);
        line_close(&l);
        return r;
}

static void assert_refused(struct world *w, const char *how, const char *why)
{
        CLEAN(err_done) struct err err = { 0 };
        int r = pull_from_liar(w, how, 1, &err);

        if (r != ERR_PROVIDER || !strstr(err.msg, why))
                fail_msg("%s: %d %s", how, r, err.msg);
}

static void test_lies_are_refused(void **state)
{
        struct world *w = *state;

        assert_pushed(w);
        assert_refused(w, "garbage", "no compressed stream");
        assert_refused(w, "zeros", "not a message");
        assert_refused(w, "version", "not asked for");
        assert_refused(w, "unasked", "not asked for");
        assert_refused(w, "broken manifest", "");
        assert_refused(w, "cut manifest", "incomplete");
        assert_refused(w, "wrong hash", "");
        assert_refused(w, "wrong end", "does not get a right");
        assert_refused(w, "endless", "belong to no file");
}

static void test_anything_at_all(void **state)
{
        struct world *w = *state;

        put_text(w->local_fd, "a", "x");
        put_bytes(w->local_fd, "large", 3 << 20, 1);
        assert_pushed(w);
        for (unsigned seed = 1; seed <= 60; seed++) {
                (void)pull_from_liar(w, "anything", seed, NULL);
                (void)push_to_liar(w, "anything", seed, NULL);
        }
        assert_true(has_text(w->local_fd, "a", "x"));
        assert_pushed(w);
        assert_same_trees(w);
}

/* A host that lies */

static int open_worker(int *ret_fd)
{
        int pair[2], pid;

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
                close(pair[0]);
                (void)sync_serve(pair[1], NULL);
                _exit(0);
        }
        close(pair[1]);
        *ret_fd = pair[0];
        return pid;
}

static void ask_anything(struct world *w, unsigned seed)
{
        struct liar l = { .io.wait = wait_for, .seed = seed };
        int pid = open_worker(&l.io.fd), status;

        assert_int_equal(sync_io_init(&l.io, NULL), 0);
        (void)sync_send(&l.io, &(struct sync_msg){ .type = SYNC_HELLO, .number = SYNC_VERSION },
                        NULL);
        (void)sync_send(&l.io,
                        &(struct sync_msg){ .type = SYNC_TREE,
                                            .text = sync_text(w->remote),
                                            .target = sync_text(w->parts) },
                        NULL);
        for (int i = 0; i < 40; i++) {
                struct sync_msg m = { .type = (uint8_t)(SYNC_SCAN + roll(&l, 17)),
                                      .slot = roll(&l, 3),
                                      .mode = 0700,
                                      .size = roll(&l, 3000000),
                                      .offset = roll(&l, 3000000),
                                      .flags = (uint8_t)roll(&l, 2),
                                      .path = sync_text(roll(&l, 2) ? "out/x" : "out"),
                                      .target = sync_text("../outside"),
                                      .blob = { "some bytes", 10 } };

                if (m.type == SYNC_CHUNKS_ARE || m.type == SYNC_READY)
                        m.blob.len = 0;
                if (sync_send(&l.io, &m, NULL) < 0)
                        break;
        }
        (void)sync_flush(&l.io, NULL);
        sync_io_done(&l.io);
        close(l.io.fd);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status));
}

/* Whatever it is told, a worker stays beneath its root. */
static void test_nothing_outside_is_touched(void **state)
{
        struct world *w = *state;
        struct stat st;

        assert_int_equal(mkdirat(w->root_fd, "outside", 0755), 0);
        put_text(w->root_fd, "outside/kept", "x");
        for (unsigned seed = 1; seed <= 40; seed++) {
                (void)unlinkat(w->remote_fd, "out", 0);
                (void)!symlinkat("../outside", w->remote_fd, "out");
                ask_anything(w, seed);
        }
        assert_true(has_text(w->root_fd, "outside/kept", "x"));
        assert_false(is_there(w->root_fd, "outside/x"));
        assert_int_equal(fstatat(w->root_fd, "outside", &st, 0), 0);
        assert_int_equal(st.st_mode & 0777, 0755);
}

static void test_links_are_not_followed(void **state)
{
        struct world *w = *state;
        struct apply a;

        assert_int_equal(mkdirat(w->root_fd, "outside", 0755), 0);
        put_text(w->root_fd, "outside/kept", "x");
        assert_int_equal(symlinkat("../outside", w->remote_fd, "out"), 0);
        assert_int_equal(symlinkat("../outside/kept", w->remote_fd, "file"), 0);
        apply_init(&a, fcntl(w->remote_fd, F_DUPFD_CLOEXEC, 3));
        assert_true(apply_file(&a, "out/x", 0644, 0, "y", 1, NULL) < 0);
        assert_true(apply_dir(&a, "out/d", 0755, NULL) < 0);
        assert_true(apply_link(&a, "out/l", "x", NULL) < 0);
        assert_true(apply_mode(&a, "out/kept", 0600, NULL) < 0);
        assert_true(apply_mode(&a, "file", 0600, NULL) < 0);
        assert_true(apply_remove(&a, "out/kept", NULL) < 0);
        assert_int_equal(apply_open(&a, "out/kept"), -1);
        assert_int_equal(apply_open(&a, "file"), -1);
        assert_int_equal(apply_file(&a, "file", 0644, 0, "y", 1, NULL), 0); /* in its place */
        assert_int_equal(apply_dir(&a, "out", 0755, NULL), 0);
        assert_int_equal(apply_file(&a, ".paperclip-runtime/x", 0644, 0, "y", 1, NULL),
                         ERR_FORBIDDEN);
        apply_done(&a);
        assert_true(has_text(w->root_fd, "outside/kept", "x"));
        assert_true(has_text(w->remote_fd, "file", "y"));
        assert_false(is_there(w->root_fd, "outside/x"));
        assert_false(is_there(w->root_fd, "outside/d"));
}

/* What was put together is something else than was said. */
static void test_a_wrong_hash_is_not_put_in_place(void **state)
{
        struct world *w = *state;
        struct liar l = { .io.wait = wait_for };
        struct sync_msg m = { 0 };
        int pid = open_worker(&l.io.fd);

        put_text(w->remote_fd, "a", "old");
        assert_int_equal(sync_io_init(&l.io, NULL), 0);
        say(&l, (struct sync_msg){ .type = SYNC_HELLO, .number = SYNC_VERSION });
        say(&l, (struct sync_msg){ .type = SYNC_TREE,
                                   .text = sync_text(w->remote),
                                   .target = sync_text(w->parts) });
        for (int flags = 0; flags <= SYNC_WHOLE; flags++) {
                say(&l, (struct sync_msg){ .type = SYNC_BIG,
                                           .path = sync_text("a"),
                                           .size = 3,
                                           .flags = (uint8_t)flags });
                if (!flags) {
                        static const char chunk[SYNC_CHUNK_SIZE] = { 0, 0, 0, 0, 0, 0, 0, 3 };

                        say(&l, (struct sync_msg){ .type = SYNC_CHUNKS_ARE,
                                                   .flags = SYNC_LAST,
                                                   .blob = { chunk, sizeof(chunk) } });
                }
                say(&l, (struct sync_msg){ .type = SYNC_DATA, .blob = { "new", 3 } });
                say(&l, (struct sync_msg){ .type = SYNC_BIG_END, .size = 3 });
                do
                        assert_int_equal(sync_receive(&l.io, &m, NULL), 1);
                while (m.type != SYNC_DONE);
                assert_int_equal(m.flags, SYNC_AGAIN);
        }
        assert_true(has_text(w->remote_fd, "a", "old"));
        sync_io_done(&l.io);
        close(l.io.fd);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_paths_that_are_none(void **state)
{
        static const char *const bad[] = { "../x", "/etc/x", "a/../../x", "a//b", "./a", "a/" };
        struct world *w = *state;

        assert_int_equal(mkdirat(w->remote_fd, "a", 0755), 0);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                struct sync_msg m = { .type = SYNC_DIR, .path = sync_text(bad[i]) }, got;
                size_t len;

                sync_msg_write(&b, &m);
                assert_int_equal(sync_msg_read(b.data, b.len, &got, &len, NULL), ERR_INVALID);
        }
        (void)w;
}

/* Somebody beside the worker who swaps directories for links all the time. */

struct swapper {
        struct world *w;
        _Atomic bool stop;
};

static void *swap(void *arg)
{
        struct swapper *s = arg;
        int fd = s->w->remote_fd;

        while (!s->stop) {
                (void)renameat(fd, "dir", fd, "moved");
                (void)!symlinkat("../outside", fd, "dir");
                (void)usleep(50);
                (void)unlinkat(fd, "dir", 0);
                (void)renameat(fd, "moved", fd, "dir");
        }
        return NULL;
}

static void test_links_that_come_and_go(void **state)
{
        struct world *w = *state;
        struct swapper s = { .w = w };
        pthread_t thread;
        char name[64];

        assert_int_equal(mkdirat(w->root_fd, "outside", 0755), 0);
        assert_int_equal(mkdirat(w->local_fd, "dir", 0755), 0);
        for (int i = 0; i < 50; i++) {
                snprintf(name, sizeof(name), "dir/f%d", i);
                put_text(w->local_fd, name, name);
        }
        assert_int_equal(pthread_create(&thread, NULL, swap, &s), 0);
        for (int i = 0; i < 20; i++) {
                (void)push(w, NULL);
                snprintf(name, sizeof(name), "dir/f%d", i);
                put_text(w->local_fd, name, "other");
        }
        s.stop = true;
        pthread_join(thread, NULL);
        for (int i = 0; i < 50; i++) {
                snprintf(name, sizeof(name), "outside/f%d", i);
                assert_false(is_there(w->root_fd, name));
        }
        assert_pushed(w);
        assert_same_trees(w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_lies_are_refused, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_anything_at_all, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_nothing_outside_is_touched, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_links_are_not_followed, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_a_wrong_hash_is_not_put_in_place, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_paths_that_are_none, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_links_that_come_and_go, world_setup,
                                                world_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
