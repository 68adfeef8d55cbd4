/* threads: both ends of a transfer on a thread each. */
#define _GNU_SOURCE
#include "sync_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#define MB ((size_t)1 << 20)

static mode_t mode_of(int dir_fd, const char *path)
{
        struct stat st;

        assert_int_equal(fstatat(dir_fd, path, &st, AT_SYMLINK_NOFOLLOW), 0);
        return st.st_mode & 07777;
}

static void make_dir(int dir_fd, const char *path)
{
        assert_int_equal(mkdirat(dir_fd, path, 0755), 0);
}

/* Everything that is odd and can be staged. */
static void make_odd_tree(struct world *w)
{
        char name[TREE_MAX_NAME + 1];
        int d = w->local_fd;

        memset(name, 'n', TREE_MAX_NAME);
        name[TREE_MAX_NAME] = '\0';
        put_text(d, "README", "hello");
        put_text(d, "empty", "");
        put_text(d, "new\nline", "1");
        put_text(d, "\xff\xfe invalid", "2");
        put_text(d, "Case", "upper");
        put_text(d, "case", "lower");
        put_text(d, name, "long");
        put_text(d, "-rf", "3");
        make_dir(d, "sub");
        make_dir(d, "sub/deeper");
        make_dir(d, "sub/empty");
        put_text(d, "sub/deeper/file", "deep");
        put_text(d, "sub.file", "sorts between");
        put_bytes(d, "sub/exactly", MB, 1);
        put_bytes(d, "sub/large", MB + 1, 2);
        put_bytes(d, "larger", 3 * MB, 3);
        put_bytes(d, "twin", 3 * MB, 3);
        assert_int_equal(symlinkat("loop", d, "loop"), 0);
        assert_int_equal(symlinkat("/etc/passwd", d, "sub/out"), 0);
        assert_int_equal(symlinkat("sub", d, "link-to-dir"), 0);
        put_text(d, "script", "#!/bin/sh\n");
        assert_int_equal(fchmodat(d, "script", 0755, 0), 0);
        put_text(d, "secret", "4");
        assert_int_equal(fchmodat(d, "secret", 0600, 0), 0);
        put_text(d, "read-only", "5");
        assert_int_equal(fchmodat(d, "read-only", 0444, 0), 0);
        make_dir(d, "closed");
        put_text(d, "closed/file", "6");
        assert_int_equal(fchmodat(d, "closed", 0555, 0), 0);
}

/* remote-execution 8.2 */
static void test_a_tree_arrives_as_it_is(void **state)
{
        struct world *w = *state;
        struct stat a, b;

        make_odd_tree(w);
        assert_pushed(w);
        assert_same_trees(w);
        assert_true(has_text(w->remote_fd, "README", "hello"));
        assert_int_equal(mode_of(w->remote_fd, "closed"), 0555);
        assert_int_equal(mode_of(w->remote_fd, "secret"), 0600);
        assert_int_equal(fstatat(w->local_fd, "README", &a, 0), 0);
        assert_int_equal(fstatat(w->remote_fd, "README", &b, 0), 0);
        assert_memory_equal(&a.st_mtim, &b.st_mtim, sizeof(a.st_mtim));
}

static void test_the_second_time_almost_nothing_is_sent(void **state)
{
        struct world *w = *state;

        make_odd_tree(w);
        assert_pushed(w);
        assert_true(w->moved.sent_bytes > 5 * MB);
        assert_pushed(w);
        assert_true(w->moved.sent_bytes < 200);
        assert_int_equal(w->moved.files, 0);
        assert_same_trees(w);
}

static void test_one_byte_of_a_large_file_is_one_chunk(void **state)
{
        struct world *w = *state;

        put_bytes(w->local_fd, "large", 12 * MB, 1);
        assert_pushed(w);
        patch_byte(w->local_fd, "large", (off_t)(5 * MB + 7));
        assert_pushed(w);
        assert_same_trees(w);
        assert_true(w->moved.sent_bytes < MB);
        assert_int_equal(w->moved.files, 1);
}

/* What comes after an insertion is found again, though it moved. */
static void test_an_insertion_is_a_chunk_too(void **state)
{
        struct world *w = *state;
        CLEAN(cleanup_free) char *content = xcalloc(1, 8 * MB);
        int fd;

        put_bytes(w->remote_fd, "large", 8 * MB, 1);
        fd = openat(w->remote_fd, "large", O_RDONLY | O_CLOEXEC);
        assert_int_equal(read(fd, content, 8 * MB), 8 * MB);
        close(fd);
        fd = openat(w->local_fd, "large", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(write(fd, content, 3 * MB), 3 * MB);
        assert_int_equal(write(fd, "inserted", 8), 8);
        assert_int_equal(write(fd, content + 3 * MB, 5 * MB), 5 * MB);
        close(fd);
        assert_pushed(w);
        assert_same_trees(w);
        assert_true(w->moved.sent_bytes < MB);
}

static void test_what_is_not_here_goes_there(void **state)
{
        struct world *w = *state;
        int d = w->remote_fd;

        put_text(w->local_fd, "file", "was a directory");
        make_dir(w->local_fd, "dir");
        put_text(w->local_fd, "dir/in", "was a file");
        assert_int_equal(symlinkat("target", w->local_fd, "link"), 0);
        put_text(w->local_fd, "plain", "was a link");

        make_dir(d, "file");
        make_dir(d, "file/with");
        put_text(d, "file/with/content", "x");
        put_text(d, "dir", "x");
        make_dir(d, "link");
        put_text(d, "link/in", "x");
        assert_int_equal(symlinkat("/etc/passwd", d, "plain"), 0);
        make_dir(d, "stale");
        make_dir(d, "stale/deep");
        put_text(d, "stale/deep/file", "x");
        put_text(d, "stale.txt", "x");
        make_dir(d, "locked");
        put_text(d, "locked/file", "x");
        assert_int_equal(fchmodat(d, "locked", 0555, 0), 0);
        assert_int_equal(mkfifoat(d, "fifo", 0600), 0);
        assert_pushed(w);
        assert_same_trees(w);
        assert_false(is_there(d, "stale"));
        assert_false(is_there(d, "locked"));
}

static void test_modes_alone(void **state)
{
        struct world *w = *state;

        put_bytes(w->local_fd, "large", 2 * MB, 1);
        put_text(w->local_fd, "file", "x");
        make_dir(w->local_fd, "dir");
        put_text(w->local_fd, "dir/file", "x");
        assert_pushed(w);
        assert_int_equal(fchmodat(w->local_fd, "large", 0755, 0), 0);
        assert_int_equal(fchmodat(w->local_fd, "file", 0600, 0), 0);
        assert_int_equal(fchmodat(w->local_fd, "dir", 0500, 0), 0);
        assert_pushed(w);
        assert_int_equal(w->moved.files, 0);
        assert_same_trees(w);
        assert_int_equal(mode_of(w->remote_fd, "dir"), 0500);
        /* And something new in what may not be written to. */
        assert_int_equal(fchmodat(w->local_fd, "dir", 0700, 0), 0);
        put_text(w->local_fd, "dir/new", "x");
        assert_int_equal(fchmodat(w->local_fd, "dir", 0500, 0), 0);
        assert_pushed(w);
        assert_same_trees(w);
        assert_int_equal(mode_of(w->remote_fd, "dir"), 0500);
}

/* remote-execution 8.1, 8.10 */
static void test_what_is_left_out(void **state)
{
        static const char *const patterns[] = { "*/node_modules", "build", ".claude", NULL };
        static const char *const preserve[] = { ".agent", NULL };
        struct excludes excludes = { patterns };
        struct world *w = *state;
        int l = w->local_fd, r = w->remote_fd;

        w->options.excludes = &excludes;
        w->options.preserve = preserve;
        make_dir(l, ".paperclip-runtime");
        put_text(l, ".paperclip-runtime/state.json", "local");
        make_dir(l, ".claude");
        put_text(l, ".claude/settings.json", "local");
        put_text(l, "._junk", "x");
        make_dir(l, "sub");
        make_dir(l, "sub/node_modules");
        put_text(l, "sub/node_modules/x", "local");
        put_text(l, "README", "x");

        make_dir(r, ".paperclip-runtime");
        put_text(r, ".paperclip-runtime/run", "remote");
        make_dir(r, ".agent");
        put_text(r, ".agent/state", "remote");
        make_dir(r, "build");
        put_text(r, "build/out", "remote");
        make_dir(r, "gone");
        put_text(r, "gone/file", "x");
        make_dir(r, "gone/node_modules");
        put_text(r, "gone/node_modules/x", "remote");
        assert_pushed(w);
        assert_true(has_text(r, "README", "x"));
        assert_false(is_there(r, ".paperclip-runtime/state.json"));
        assert_false(is_there(r, ".claude"));
        assert_false(is_there(r, "._junk"));
        assert_false(is_there(r, "sub/node_modules"));
        assert_true(has_text(r, ".paperclip-runtime/run", "remote"));
        assert_true(has_text(r, ".agent/state", "remote"));
        assert_true(has_text(r, "build/out", "remote"));
        assert_false(is_there(r, "gone/file"));
        assert_true(has_text(r, "gone/node_modules/x", "remote"));
}

/* A new nested directory is made. */
static void test_the_directory_is_made(void **state)
{
        struct world *w = *state;
        char deep[SCRATCH_PATH_MAX + 64];

        snprintf(deep, sizeof(deep), "%s/nested/er", w->remote);
        w->options.remote_dir = deep;
        put_text(w->local_fd, "file", "x");
        assert_pushed(w);
        assert_true(has_text(w->remote_fd, "nested/er/file", "x"));
}

static void test_many_files(void **state)
{
        struct world *w = *state;
        char name[64];

        for (int d = 0; d < 20; d++) {
                snprintf(name, sizeof(name), "d%d", d);
                make_dir(w->local_fd, name);
                for (int f = 0; f < 200; f++) {
                        snprintf(name, sizeof(name), "d%d/f%d", d, f);
                        put_text(w->local_fd, name, name);
                }
        }
        for (int f = 0; f < 20; f++) { /* more than there are slots */
                snprintf(name, sizeof(name), "large%d", f);
                put_bytes(w->local_fd, name, MB + 10, (unsigned)f);
        }
        assert_pushed(w);
        assert_same_trees(w);
        assert_int_equal(w->moved.files, 4020);
        for (int f = 0; f < 20; f++) {
                snprintf(name, sizeof(name), "large%d", f);
                patch_byte(w->local_fd, name, f * 1000);
        }
        assert_pushed(w);
        assert_same_trees(w);
        assert_true(w->moved.sent_bytes < 15 * MB);
}

/* What arrived before the line was cut is not sent again. */
static void test_a_cut_line(void **state)
{
        struct world *w = *state;
        uint64_t total, again;

        put_bytes(w->local_fd, "a", 6 * MB, 1);
        put_bytes(w->local_fd, "b", 100000, 2);
        put_bytes(w->local_fd, "c", 2 * MB, 3);
        w->cut_after = 5 * MB;
        assert_true(push(w, NULL) < 0);
        w->cut_after = 0;
        assert_pushed(w);
        assert_same_trees(w);
        again = w->moved.sent_bytes;
        total = 8 * MB + 100000;
        assert_true(again < total - 4 * MB);
        /* And the parts are gone. */
        assert_false(is_there(w->root_fd, "parts/part"));
}

static void test_cuts_anywhere(void **state)
{
        struct world *w = *state;
        unsigned seed = 12345;

        make_odd_tree(w);
        put_bytes(w->remote_fd, "larger", 3 * MB, 3);
        patch_byte(w->remote_fd, "larger", (off_t)MB);
        for (int i = 0; i < 25; i++) {
                CLEAN(err_done) struct err err = { 0 };
                int r;

                w->cut_direction = i % 3 == 0;
                w->cut_after = 1 + (uint64_t)rand_r(&seed) % (w->cut_direction ? 3000 : 3 * MB);
                r = push(w, &err);
                if (r >= 0)
                        assert_same_trees(w);
                else
                        assert_int_equal(r, ERR_UNCERTAIN);
        }
        w->cut_after = 0;
        assert_pushed(w);
        assert_same_trees(w);
}

static void test_cancelled(void **state)
{
        struct world *w = *state;
        struct op_cancel cancel;

        assert_int_equal(op_cancel_init(&cancel, NULL), 0);
        w->op.cancel = &cancel;
        op_cancel_set(&cancel);
        put_text(w->local_fd, "file", "x");
        assert_int_equal(push(w, NULL), ERR_CANCELLED);
        w->op.cancel = NULL;
        op_cancel_done(&cancel);
}

static void test_why_it_failed(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct world *w = *state;

        w->options.remote_dir = "/proc/none/of/this";
        put_text(w->local_fd, "file", "x");
        assert_int_equal(push(w, &err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "/proc/none"));
}

/* Below `.paperclip-runtime` no link is followed: it may lead to anything. */
static void test_a_link_in_the_way(void **state)
{
        static const char *const places[] = { ".paperclip-runtime/x/asset",
                                              ".paperclip-runtime/x" };
        struct world *w = *state;
        char there[SCRATCH_PATH_MAX + 64], said[SCRATCH_PATH_MAX + 64];

        make_dir(w->remote_fd, "mine");
        put_text(w->remote_fd, "mine/file", "x");
        make_dir(w->remote_fd, ".paperclip-runtime");
        assert_int_equal(symlinkat("../mine", w->remote_fd, ".paperclip-runtime/x"), 0);
        put_text(w->local_fd, "other", "x");
        snprintf(said, sizeof(said), "%s/.paperclip-runtime/x is a link", w->remote);
        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
                CLEAN(err_done) struct err err = { 0 };

                snprintf(there, sizeof(there), "%s/%s", w->remote, places[i]);
                w->options.remote_dir = there;
                assert_int_equal(push(w, &err), ERR_PROVIDER);
                assert_non_null(strstr(err.msg, said));
                assert_true(has_text(w->remote_fd, "mine/file", "x"));
                assert_false(is_there(w->remote_fd, "mine/other"));
                assert_false(is_there(w->remote_fd, "mine/asset"));
        }
}

static void test_beside_the_work(void **state)
{
        struct world *w = *state;
        char there[SCRATCH_PATH_MAX + 64];

        snprintf(there, sizeof(there), "%s/new/.paperclip-runtime//x/asset", w->remote);
        w->options.remote_dir = there;
        put_text(w->local_fd, "file", "x");
        assert_pushed(w);
        assert_true(has_text(w->remote_fd, "new/.paperclip-runtime/x/asset/file", "x"));
        assert_true(has_text(w->remote_fd, "new/.paperclip-runtime/.gitignore", "*\n"));
        snprintf(there, sizeof(there), "%s/host/.paperclip-runtime/runs/1/workspace", w->remote);
        assert_pushed(w); /* what has the work in it must not hide it */
        assert_false(is_there(w->remote_fd, "host/.paperclip-runtime/.gitignore"));
}

/* Not what somebody else wrote there, but what cannot be one. */
static void test_beside_the_work_again(void **state)
{
        struct world *w = *state;
        char there[SCRATCH_PATH_MAX + 64];
        int r = w->remote_fd;

        make_dir(r, ".paperclip-runtime");
        put_text(r, "mine", "");
        assert_int_equal(symlinkat("../mine", r, ".paperclip-runtime/.gitignore"), 0);
        snprintf(there, sizeof(there), "%s/.paperclip-runtime/asset", w->remote);
        w->options.remote_dir = there;
        assert_pushed(w);
        assert_true(has_text(r, "mine", ""));
        assert_true(has_text(r, ".paperclip-runtime/.gitignore", "*\n"));
        put_text(r, ".paperclip-runtime/.gitignore", "/x\n");
        assert_pushed(w);
        assert_true(has_text(r, ".paperclip-runtime/.gitignore", "/x\n"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_a_tree_arrives_as_it_is, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_the_second_time_almost_nothing_is_sent,
                                                world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_one_byte_of_a_large_file_is_one_chunk,
                                                world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_an_insertion_is_a_chunk_too, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_what_is_not_here_goes_there, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_modes_alone, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_what_is_left_out, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_the_directory_is_made, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_many_files, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_a_cut_line, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_cuts_anywhere, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_cancelled, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_why_it_failed, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_a_link_in_the_way, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_beside_the_work, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_beside_the_work_again, world_setup,
                                                world_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
