/* Which directories of the host may be a workspace, when the machine does not tell: nothing that
 * cannot be looked at is refused for good, and nothing of ours is taken for somebody else's. */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/roots/own_files.h"
#include "core/roots/workspace_root.h"

struct scene {
        char root[64], work[96], data[96];
        const char *own[2];
        struct runtime rt;
        struct workspace_asker nobody;
        struct rlimit before;
};

static int scene_make(void **state)
{
        struct scene *s = xcalloc(1, sizeof(*s));

        (void)snprintf(s->root, sizeof(s->root), "/tmp/root-XXXXXX");
        assert_non_null(mkdtemp(s->root));
        (void)snprintf(s->work, sizeof(s->work), "%s/work", s->root);
        (void)snprintf(s->data, sizeof(s->data), "%s/data", s->root);
        assert_int_equal(mkdir(s->work, 0700), 0);
        assert_int_equal(mkdir(s->data, 0700), 0);
        s->own[0] = s->data;
        s->rt.settings.workspace_roots = s->root;
        s->rt.settings.own_paths = s->own;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &s->before), 0);
        *state = s;
        return 0;
}

static int scene_drop(void **state)
{
        struct scene *s = *state;

        (void)setrlimit(RLIMIT_NOFILE, &s->before);
        (void)rmdir(s->work);
        (void)rmdir(s->data);
        (void)rmdir(s->root);
        free(s);
        return 0;
}

/* So many descriptors are left. */
static void leave(const struct scene *s, int n)
{
        CLEAN(cleanup_fd) int next = open("/dev/null", O_RDONLY | O_CLOEXEC);
        struct rlimit few = { (rlim_t)(next + n), s->before.rlim_max };

        assert_true(next >= 0);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
}

static void test_there(void **state)
{
        struct scene *s = *state;
        struct err err = { 0 };

        assert_int_equal(workspace_root_check(&s->rt, &s->nobody, s->work, &err), 0);
        assert_int_equal(workspace_root_check(&s->rt, &s->nobody, s->data, &err),
                         ERR_UNPROCESSABLE);
        assert_false(err.is_transient);
        err_done(&err);
        assert_int_equal(workspace_root_check(&s->rt, &s->nobody, "/usr", &err), ERR_UNPROCESSABLE);
        assert_false(err.is_transient);
        err_done(&err);
}

/* The daemon's own user may name what lies beneath no root, by its real path, and nothing of ours.
 */
static void test_of_the_daemons_user(void **state)
{
        struct scene *s = *state;
        struct workspace_asker user = { .is_daemon_user = true };
        char link[128];

        (void)snprintf(link, sizeof(link), "%s/link", s->root);
        assert_int_equal(symlink("work", link), 0);
        s->rt.settings.workspace_roots = "/nonexistent";
        const struct {
                const struct workspace_asker *asker;
                const char *path;
                int code;
        } cases[] = {
                { &user, s->work, 0 },
                { &user, s->data, ERR_UNPROCESSABLE },
                { &user, s->root, ERR_UNPROCESSABLE }, /* ours are in it */
                { &user, link, ERR_UNPROCESSABLE },
                { &user, "/nonexistent", ERR_UNPROCESSABLE },
                { &s->nobody, s->work, ERR_UNPROCESSABLE },
        };
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                struct err err = { 0 };

                assert_int_equal(workspace_root_check(&s->rt, cases[i].asker, cases[i].path, &err),
                                 cases[i].code);
                assert_false(err.is_transient);
                err_done(&err);
        }
        assert_int_equal(unlink(link), 0);
}

/* With any number of descriptors left, it is taken, or may be later. */
static void test_without_descriptors(void **state)
{
        struct scene *s = *state;
        int r = -1;

        for (int n = 0; n < 12; n++) {
                struct err err = { 0 };

                leave(s, n);
                r = workspace_root_check(&s->rt, &s->nobody, s->work, &err);
                (void)setrlimit(RLIMIT_NOFILE, &s->before);
                if (r < 0 && !err.is_transient)
                        fail_msg("with %d descriptors: %s", n, err.msg);
                err_done(&err);
        }
        assert_int_equal(r, 0);
}

/* What is ours is never taken for a workspace because nobody could look. */
static void test_own_files_without_descriptors(void **state)
{
        struct scene *s = *state;
        CLEAN(cleanup_fd) int fd = open(s->data, O_PATH | O_DIRECTORY | O_CLOEXEC);

        for (int n = 0; n < 12; n++) {
                struct err err = { 0 };
                int r;

                leave(s, n);
                r = own_files_check(&s->rt, fd, s->data, &err);
                (void)setrlimit(RLIMIT_NOFILE, &s->before);
                if (r >= 0)
                        fail_msg("with %d descriptors the data directory is a workspace", n);
                err_done(&err);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_there, scene_make, scene_drop),
                cmocka_unit_test_setup_teardown(test_of_the_daemons_user, scene_make, scene_drop),
                cmocka_unit_test_setup_teardown(test_without_descriptors, scene_make, scene_drop),
                cmocka_unit_test_setup_teardown(test_own_files_without_descriptors, scene_make,
                                                scene_drop),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
