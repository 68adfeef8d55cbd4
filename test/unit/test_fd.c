#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"

static int open_scratch(char path[SCRATCH_PATH_MAX])
{
        make_scratch(path);
        return open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void test_write_then_read(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        char dir[SCRATCH_PATH_MAX];
        CLEAN(cleanup_fd) int fd = open_scratch(dir);
        struct stat st;

        (void)state;
        assert_int_equal(file_write_at(fd, "f", "old", 3, 0600, &e), 0);
        assert_int_equal(file_write_at(fd, "f", "newer", 5, 0600, &e), 0);
        assert_int_equal(file_read_at(fd, "f", 5, &b, &e), 0);
        assert_string_equal(buf_str(&b), "newer");
        assert_int_equal(fstatat(fd, "f", &st, 0), 0);
        assert_int_equal(st.st_mode & 0777, 0600);

        assert_int_equal(mkdirat(fd, "sub", 0700), 0);
        assert_int_equal(file_write_at(fd, "sub/g", "", 0, 0600, &e), 0);
        buf_clear(&b);
        assert_int_equal(file_read_at(fd, "sub/g", 0, &b, &e), 0);
        assert_int_equal(b.len, 0);

        unlinkat(fd, "sub/g", 0);
        unlinkat(fd, "sub", AT_REMOVEDIR);
        unlinkat(fd, "f", 0);
        assert_int_equal(rmdir(dir), 0); /* no temporary file is left */
}

static void test_absolute_paths_need_no_directory(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        char dir[SCRATCH_PATH_MAX], path[SCRATCH_PATH_MAX + 8];
        CLEAN(cleanup_fd) int fd = open_scratch(dir);

        (void)state;
        snprintf(path, sizeof(path), "%s/f", dir);
        assert_int_equal(file_write_at(AT_FDCWD, path, "x", 1, 0600, &e), 0);
        assert_int_equal(file_read_at(AT_FDCWD, path, 10, &b, &e), 0);
        assert_string_equal(buf_str(&b), "x");
        unlinkat(fd, "f", 0);
        assert_int_equal(rmdir(dir), 0);
}

static void test_read_limits(void **state)
{
        enum { SIZE = 20000 };
        static char data[SIZE];
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        CLEAN(buf_done) struct buf exact, small;
        char dir[SCRATCH_PATH_MAX];
        CLEAN(cleanup_fd) int fd = open_scratch(dir);

        (void)state;
        memset(data, 'd', SIZE);
        assert_int_equal(file_write_at(fd, "f", data, SIZE, 0600, &e), 0);
        assert_int_equal(file_read_at(fd, "f", SIZE, &b, &e), 0);
        assert_int_equal(b.len, SIZE);
        buf_clear(&b);
        assert_int_equal(file_read_at(fd, "f", SIZE - 1, &b, &e), ERR_TOO_LARGE);
        assert_string_equal(e.msg, "f is larger than 19999 bytes");

        /* The buffer's own bound counts as well. */
        buf_init(&exact, SIZE);
        assert_int_equal(file_read_at(fd, "f", SIZE * 2, &exact, &e), 0);
        assert_int_equal(exact.len, SIZE);
        buf_init(&small, SIZE - 1);
        assert_int_equal(file_read_at(fd, "f", SIZE * 2, &small, &e), ERR_TOO_LARGE);
        unlinkat(fd, "f", 0);
        rmdir(dir);
}

static void test_what_is_missing(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        char dir[SCRATCH_PATH_MAX];
        CLEAN(cleanup_fd) int fd = open_scratch(dir);

        (void)state;
        assert_int_equal(file_read_at(fd, "nothing", 10, &b, &e), ERR_NOT_FOUND);
        assert_int_equal(file_read_at(fd, ".", 10, &b, &e), ERR_IO);
        assert_int_equal(file_write_at(fd, "nothing/f", "x", 1, 0600, &e), ERR_IO);
        assert_int_equal(rmdir(dir), 0);
}

static void test_a_failed_write_leaves_the_old_file(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        char dir[SCRATCH_PATH_MAX];
        CLEAN(cleanup_fd) int fd = open_scratch(dir);

        (void)state;
        /* A directory stands where the file should go: rename refuses, the temporary file goes. */
        assert_int_equal(mkdirat(fd, "f", 0700), 0);
        assert_int_equal(file_write_at(fd, "f", "x", 1, 0600, &e), ERR_IO);
        assert_int_equal(unlinkat(fd, "f", AT_REMOVEDIR), 0);
        assert_int_equal(rmdir(dir), 0);
}

static void test_path_length_limit(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        static char path[5000];

        (void)state;
        memset(path, 'a', sizeof(path) - 1);
        path[4074] = '\0'; /* with the suffix the last that fits: only the kernel objects */
        assert_int_equal(file_write_at(AT_FDCWD, path, "x", 1, 0600, &e), ERR_IO);
        path[4074] = 'a';
        path[4075] = '\0';
        assert_int_equal(file_write_at(AT_FDCWD, path, "x", 1, 0600, &e), ERR_INVALID);
}

static void test_write_all_and_cleanup(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        int pipes[2], none = -1;
        char got[4] = "";

        (void)state;
        assert_int_equal(pipe(pipes), 0);
        assert_int_equal(fd_write_all(pipes[1], "abc", 3, &e), 0);
        assert_int_equal(read(pipes[0], got, 3), 3);
        assert_string_equal(got, "abc");
        assert_int_equal(fd_write_all(pipes[0], "abc", 3, &e), ERR_IO);
        errno = ERANGE;
        cleanup_fd(&pipes[0]);
        cleanup_fd(&pipes[1]);
        cleanup_fd(&none);
        assert_int_equal(errno, ERANGE);
        assert_int_equal(fcntl(pipes[0], F_GETFD), -1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_write_then_read),
                cmocka_unit_test(test_absolute_paths_need_no_directory),
                cmocka_unit_test(test_read_limits),
                cmocka_unit_test(test_what_is_missing),
                cmocka_unit_test(test_a_failed_write_leaves_the_old_file),
                cmocka_unit_test(test_path_length_limit),
                cmocka_unit_test(test_write_all_and_cleanup),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
