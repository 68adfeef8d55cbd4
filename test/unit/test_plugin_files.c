/* What a worker with a user of its own has of files, without the worker. */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "plugin/files.h"
#include "plugin/tree.h"

#define FIRST 0x7fff0000

static struct {
        struct op op;
        struct arena arena;
        char dir[64];
        struct confine_policy policy;
} t;

static const char *in_dir(const char *name)
{
        return arena_printf(&t.arena, "%s/%s", t.dir, name);
}

static void write_file(const char *name, const char *text, mode_t mode)
{
        FILE *file = fopen(in_dir(name), "we");

        assert_non_null(file);
        assert_true(fputs(text, file) >= 0);
        assert_int_equal(fclose(file), 0);
        assert_int_equal(chmod(in_dir(name), mode), 0);
}

static struct stat look(const char *name)
{
        struct stat st;

        assert_int_equal(lstat(in_dir(name), &st), 0);
        return st;
}

static int setup(void **state)
{
        memset(&t, 0, sizeof(t));
        arena_init(&t.arena);
        t.op = (struct op){ .arena = &t.arena, .deadline_ms = OP_NO_DEADLINE };
        snprintf(t.dir, sizeof(t.dir), "/tmp/berth-files-XXXXXX");
        assert_non_null(mkdtemp(t.dir));
        assert_int_equal(mkdir(in_dir("tree"), 0755), 0);
        assert_int_equal(mkdir(in_dir("tree/deep"), 0755), 0);
        assert_int_equal(mkdir(in_dir("copies"), 0700), 0);
        write_file("tree/open", "o", 0644);
        write_file("tree/deep/program", "p", 0755);
        t.policy = (struct confine_policy){ .confine = true,
                                            .uid_first = FIRST,
                                            .uid_count = 3,
                                            .view = VIEW_FAILS, /* no program is started here */
                                            .private_dir = in_dir("private") };
        pthread_mutex_init(&t.policy.lock, NULL);
        return 0;
}

static int teardown(void **state)
{
        (void)tree_remove(&t.op, t.dir, NULL);
        arena_done(&t.arena);
        return 0;
}

static void test_open_or_not(void **state)
{
        const char *const without[] = { in_dir("tree/deep"), NULL };

        assert_int_equal(tree_is_open(&t.op, in_dir("tree"), NULL, NULL), 1);
        write_file("tree/deep/key", "k", 0600);
        assert_int_equal(tree_is_open(&t.op, in_dir("tree"), NULL, NULL), 0);
        assert_int_equal(tree_is_open(&t.op, in_dir("tree"), without, NULL), 1);
        assert_int_equal(tree_is_open(&t.op, in_dir("tree/deep/key"), NULL, NULL), 0);
        assert_int_equal(tree_is_open(&t.op, in_dir("none"), NULL, NULL), ERR_NOT_FOUND);
        assert_int_equal(tree_open_up(&t.op, in_dir("tree"), NULL), 0);
        assert_int_equal(tree_is_open(&t.op, in_dir("tree"), NULL, NULL), 1);
        assert_int_equal(look("tree/deep/key").st_mode & 07777, 0644);
        assert_int_equal(look("tree/deep/program").st_mode & 07777, 0755);
}

static void test_a_link_is_not_followed(void **state)
{
        write_file("outside", "x", 0600);
        assert_int_equal(symlink(in_dir("outside"), in_dir("tree/link")), 0);
        assert_int_equal(tree_is_open(&t.op, in_dir("tree"), NULL, NULL), 1);
        assert_int_equal(tree_open_up(&t.op, in_dir("tree"), NULL), 0);
        assert_int_equal(look("outside").st_mode & 07777, 0600);
        assert_int_equal(
                tree_copy_for(&t.op, in_dir("tree"), NULL, in_dir("copies"), geteuid(), NULL), 0);
        assert_true(S_ISLNK(look("copies/tree/link").st_mode));
}

static void test_copy(void **state)
{
        const char *const without[] = { in_dir("tree/deep"), NULL };

        write_file("tree/key", "k", 0640);
        assert_int_equal(mkfifo(in_dir("tree/pipe"), 0666), 0);
        assert_int_equal(
                tree_copy_for(&t.op, in_dir("tree"), without, in_dir("copies"), geteuid(), NULL),
                0);
        assert_int_equal(look("copies/tree/key").st_mode & 07777, 0400);
        assert_int_equal(look("copies/tree").st_mode & 07777, 0500);
        assert_int_equal(access(in_dir("copies/tree/pipe"), F_OK), -1);
        assert_true(S_ISDIR(look("copies/tree/deep").st_mode));
        assert_int_equal(access(in_dir("copies/tree/deep/program"), F_OK), -1);
        assert_int_equal(chmod(in_dir("copies/tree"), 0700), 0);
}

/* At the limit and one past it; nothing of it is written. */
static void test_a_large_copy(void **state)
{
        write_file("large", "", 0600);
        assert_int_equal(truncate(in_dir("large"), TREE_COPY_MAX_BYTES + 1), 0);
        assert_int_equal(
                tree_copy_for(&t.op, in_dir("large"), NULL, in_dir("copies"), geteuid(), NULL),
                ERR_TOO_LARGE);
        assert_true(access(in_dir("copies/large"), F_OK) < 0 || look("copies/large").st_size == 0);
}

static void need_root(void)
{
        if (geteuid() != 0)
                skip();
}

static void test_users(void **state)
{
        uid_t one, two, three, four, again;
        CLEAN(err_done) struct err err = { 0 };

        need_root();
        assert_int_equal(files_own_dir(&t.op, &t.policy, in_dir("private/1"), "1", &one, NULL), 0);
        assert_int_equal(files_own_dir(&t.op, &t.policy, in_dir("private/2"), "2", &two, NULL), 0);
        assert_int_equal(files_own_dir(&t.op, &t.policy, in_dir("private/3"), "3", &three, NULL),
                         0);
        assert_in_range(one, FIRST, FIRST + 2);
        assert_in_range(two, FIRST, FIRST + 2);
        assert_in_range(three, FIRST, FIRST + 2);
        assert_true(one != two && two != three && one != three);
        assert_int_equal(look("private/2/tmp").st_uid, two);
        assert_int_equal(files_own_dir(&t.op, &t.policy, in_dir("private/1"), "1", &again, NULL),
                         0);
        assert_int_equal(again, one);
        assert_int_equal(files_own_dir(&t.op, &t.policy, in_dir("private/4"), "4", &four, &err),
                         ERR_UNPROCESSABLE);
        assert_non_null(strstr(err.msg, "plugin_uid_count"));
}

/* The directory is its worker's: what it put where `tmp` should be is not followed. */
static void test_a_link_for_tmp(void **state)
{
        uid_t uid;

        need_root();
        assert_int_equal(files_own_dir(&t.op, &t.policy, in_dir("private/1"), "1", &uid, NULL), 0);
        assert_int_equal(rmdir(in_dir("private/1/tmp")), 0);
        assert_int_equal(symlink(in_dir("tree"), in_dir("private/1/tmp")), 0);
        assert_int_equal(files_own_dir(&t.op, &t.policy, in_dir("private/1"), "1", &uid, NULL),
                         ERR_IO);
        assert_int_equal(look("tree").st_uid, 0);
}

static void test_giving(void **state)
{
        need_root();
        assert_int_equal(link(in_dir("tree/open"), in_dir("elsewhere")), 0);
        assert_int_equal(symlink("/etc/passwd", in_dir("tree/link")), 0);
        assert_int_equal(tree_give(&t.op, in_dir("tree"), FIRST, NULL), 0);
        assert_int_equal(look("tree/deep/program").st_uid, FIRST);
        assert_int_equal(look("tree/link").st_uid, FIRST);
        assert_int_equal(look("elsewhere").st_uid, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_open_or_not), TEST(test_a_link_is_not_followed),
                TEST(test_copy),        TEST(test_a_large_copy),
                TEST(test_users),       TEST(test_a_link_for_tmp),
                TEST(test_giving),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
