#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"

/* scratch/in is the directory we chose; scratch/secret is what nobody may reach through it. */
struct scratch {
        char root[SCRATCH_PATH_MAX];
        int root_fd;
        int in;
};

static void write_file(int dirfd, const char *name)
{
        assert_int_equal(file_write_at(dirfd, name, "x", 1, 0600, NULL), 0);
}

static void make_link(struct scratch *s, const char *target, const char *name)
{
        assert_int_equal(symlinkat(target, s->in, name), 0);
}

static int setup(void **state)
{
        struct scratch *s = xcalloc(1, sizeof(*s));

        make_scratch(s->root);
        s->root_fd = open(s->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        write_file(s->root_fd, "secret");
        mkdirat(s->root_fd, "in", 0700);
        s->in = openat(s->root_fd, "in", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        mkdirat(s->in, "sub", 0700);
        write_file(s->in, "sub/file");
        *state = s;
        return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
        (void)st;
        (void)type;
        (void)where;
        return remove(path);
}

static int teardown(void **state)
{
        struct scratch *s = *state;
        int r = nftw(s->root, remove_entry, 8, FTW_DEPTH | FTW_PHYS);

        close(s->in);
        close(s->root_fd);
        free(s);
        return r;
}

static int open_it(struct scratch *s, const char *path, int flags, mode_t mode)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(cleanup_fd) int fd = -1;
        int r = path_open_beneath(s->in, path, flags, mode, &fd, &e);

        if (r == 0) {
                assert_true(fd >= 0);
                assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        } else {
                assert_int_equal(fd, -1);
                assert_string_not_equal(e.msg, "");
        }
        return r;
}

static void test_what_is_beneath_opens(void **state)
{
        struct scratch *s = *state;

        assert_int_equal(open_it(s, "sub/file", O_RDONLY, 0), 0);
        assert_int_equal(open_it(s, "sub/../sub/./file", O_RDONLY, 0), 0); /* never leaves */
        assert_int_equal(open_it(s, "sub", O_RDONLY | O_DIRECTORY, 0755), 0);
        assert_int_equal(open_it(s, "sub/new", O_WRONLY | O_CREAT | O_EXCL, 0600), 0);
        assert_int_equal(open_it(s, "sub", O_TMPFILE | O_WRONLY, 0600), 0);
        make_link(s, "sub/file", "inward");
        assert_int_equal(open_it(s, "inward", O_RDONLY, 0), 0);
}

static void test_dot_dot_is_refused(void **state)
{
        struct scratch *s = *state;

        assert_int_equal(open_it(s, "..", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "../secret", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "sub/../../secret", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "../in/sub/file", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "../created", O_WRONLY | O_CREAT, 0600), ERR_FORBIDDEN);
        assert_int_equal(faccessat(s->root_fd, "created", F_OK, 0), -1);
}

static void test_absolute_is_refused(void **state)
{
        struct scratch *s = *state;
        char inside[SCRATCH_PATH_MAX + 32];

        assert_int_equal(open_it(s, "/etc/passwd", O_RDONLY, 0), ERR_FORBIDDEN);
        snprintf(inside, sizeof(inside), "%s/in/sub/file", s->root);
        assert_int_equal(open_it(s, inside, O_RDONLY, 0), ERR_FORBIDDEN);
}

static void test_links_that_lead_out_are_refused(void **state)
{
        struct scratch *s = *state;
        char magic[64];

        make_link(s, "../secret", "out");
        make_link(s, "/etc/passwd", "absolute");
        make_link(s, "..", "up");
        make_link(s, "loop", "loop");
        snprintf(magic, sizeof(magic), "/proc/self/fd/%d", s->root_fd);
        make_link(s, magic, "magic");
        assert_int_equal(open_it(s, "out", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "absolute", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "up/secret", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "loop", O_RDONLY, 0), ERR_FORBIDDEN);
        assert_int_equal(open_it(s, "magic/secret", O_RDONLY, 0), ERR_FORBIDDEN);
}

static void test_what_is_missing(void **state)
{
        struct scratch *s = *state;

        assert_int_equal(open_it(s, "nothing", O_RDONLY, 0), ERR_NOT_FOUND);
        assert_int_equal(open_it(s, "", O_RDONLY, 0), ERR_NOT_FOUND);
        assert_int_equal(open_it(s, "sub/file/below", O_RDONLY, 0), ERR_IO);
}

static int open_plain(struct scratch *s, const char *path)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(cleanup_fd) int fd = -1;

        return path_open_plain(s->in, path, O_RDONLY, 0, &fd, &e);
}

static void test_plain_follows_nothing(void **state)
{
        struct scratch *s = *state;

        make_link(s, "sub", "inward");
        make_link(s, "..", "up");
        assert_int_equal(open_plain(s, "sub/file"), 0);
        assert_int_equal(open_plain(s, "."), 0);
        assert_int_equal(open_plain(s, "inward"), ERR_FORBIDDEN);
        assert_int_equal(open_plain(s, "inward/file"), ERR_FORBIDDEN);
        assert_int_equal(open_plain(s, "up/secret"), ERR_FORBIDDEN);
        assert_int_equal(open_plain(s, "sub/file/below"), ERR_NOT_FOUND);
        assert_int_equal(open_plain(s, "../secret"), ERR_FORBIDDEN);
        assert_int_equal(open_plain(s, "sub/../../secret"), ERR_FORBIDDEN);
        assert_int_equal(open_plain(s, "/etc/passwd"), ERR_FORBIDDEN);
        assert_int_equal(open_plain(s, "nothing"), ERR_NOT_FOUND);
}

static void test_make_dirs(void **state)
{
        struct scratch *s = *state;
        CLEAN(err_done) struct err e = { 0 };
        char path[SCRATCH_PATH_MAX + 32];
        struct stat st;

        snprintf(path, sizeof(path), "%s/a/b//c/", s->root);
        assert_int_equal(path_make_dirs(path, 0700, &e), 0);
        assert_int_equal(fstatat(s->root_fd, "a/b/c", &st, 0), 0);
        assert_true(S_ISDIR(st.st_mode));
        assert_int_equal(st.st_mode & 0777, 0700);
        assert_int_equal(path_make_dirs(path, 0755, &e), 0); /* left alone */
        assert_int_equal(fstatat(s->root_fd, "a/b/c", &st, 0), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
}

static void test_make_dirs_refuses(void **state)
{
        struct scratch *s = *state;
        CLEAN(err_done) struct err e = { 0 };
        char path[5000];

        snprintf(path, sizeof(path), "%s/secret", s->root);
        assert_int_equal(path_make_dirs(path, 0700, &e), ERR_IO);
        assert_non_null(strstr(e.msg, "not a directory"));
        snprintf(path, sizeof(path), "%s/secret/x", s->root);
        assert_int_equal(path_make_dirs(path, 0700, &e), ERR_IO);
        assert_int_equal(path_make_dirs("", 0700, &e), ERR_INVALID);

        memset(path, '/', sizeof(path));
        path[4095] = '\0'; /* the longest: the root directory, many times */
        assert_int_equal(path_make_dirs(path, 0700, &e), 0);
        path[4095] = '/';
        path[4096] = '\0';
        assert_int_equal(path_make_dirs(path, 0700, &e), ERR_INVALID);
}

static int open_named(struct scratch *s, const char *name)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/in/%s", s->root, name);
        CLEAN(cleanup_fd) int fd = -1;

        return path_open_named(path, &fd, NULL);
}

/* What the operator wrote down leads where root's links and ours lead, and where another user's
 * link leads only if that is his. */
static void test_named(void **state)
{
        struct scratch *s = *state;
        CLEAN(cleanup_free) char *absolute = xasprintf("%s//in/./sub/", s->root);
        CLEAN(cleanup_fd) int fd = -1;

        make_link(s, "sub", "ours");
        make_link(s, "../in/ours", "twice");
        make_link(s, absolute, "absolute");
        make_link(s, "loop", "loop");
        assert_int_equal(open_named(s, "sub"), 0);
        assert_int_equal(open_named(s, "ours"), 0);
        assert_int_equal(open_named(s, "twice/"), 0);
        assert_int_equal(open_named(s, "absolute"), 0);
        assert_int_equal(path_open_named("/", &fd, NULL), 0);
        assert_true(open_named(s, "loop") < 0);
        assert_true(open_named(s, "sub/file") < 0);
        assert_int_equal(open_named(s, "sub/none"), ERR_NOT_FOUND);
        assert_true(path_open_named("in", &fd, NULL) < 0);
        if (geteuid() != 0)
                return;
        assert_int_equal(fchownat(s->in, "ours", 65534, 65534, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(open_named(s, "ours"), ERR_FORBIDDEN);
        assert_int_equal(open_named(s, "twice"), ERR_FORBIDDEN);
        assert_int_equal(open_named(s, "absolute"), 0);
        assert_int_equal(fchownat(s->in, "sub", 65534, 65534, 0), 0);
        assert_int_equal(open_named(s, "ours"), 0);
        assert_int_equal(fchownat(s->in, "twice", 65533, 65533, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(open_named(s, "twice"), ERR_FORBIDDEN);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_what_is_beneath_opens, setup, teardown),
                cmocka_unit_test_setup_teardown(test_dot_dot_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_absolute_is_refused, setup, teardown),
                cmocka_unit_test_setup_teardown(test_links_that_lead_out_are_refused, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(test_what_is_missing, setup, teardown),
                cmocka_unit_test_setup_teardown(test_plain_follows_nothing, setup, teardown),
                cmocka_unit_test_setup_teardown(test_named, setup, teardown),
                cmocka_unit_test_setup_teardown(test_make_dirs, setup, teardown),
                cmocka_unit_test_setup_teardown(test_make_dirs_refuses, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
