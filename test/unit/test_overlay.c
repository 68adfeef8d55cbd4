/* The upper layer of an overlay as a change set. Layers are made by hand here; that a kernel makes
 * them so is for the black-box tests. */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <time.h>

#include "base/fd.h"
#include "workspace/overlay.h"

struct world {
        char root[SCRATCH_PATH_MAX];
        int root_fd, upper, lower;
        int64_t staged_ns;
        const char *const *excludes;
};

static int setup(void **state)
{
        struct world *w = xcalloc(1, sizeof(*w));

        make_scratch(w->root);
        w->root_fd = open(w->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        mkdirat(w->root_fd, "upper", 0755);
        mkdirat(w->root_fd, "lower", 0755);
        w->upper = openat(w->root_fd, "upper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        w->lower = openat(w->root_fd, "lower", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        w->staged_ns = INT64_MAX;
        *state = w;
        return 0;
}

static int teardown(void **state)
{
        struct world *w = *state;
        CLEAN(cleanup_free) char *command = xasprintf("rm -rf '%s'", w->root);

        close(w->upper);
        close(w->lower);
        close(w->root_fd);
        free(w);
        return system(command); /* NOLINT: of our own making */
}

static void put(int dir, const char *path, const char *text)
{
        CLEAN(cleanup_fd)
        int fd = openat(dir, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
}

static int truncate_at(int dir, const char *path, off_t size)
{
        CLEAN(cleanup_fd) int fd = openat(dir, path, O_WRONLY | O_CLOEXEC);

        return ftruncate(fd, size);
}

static void make(int dir, const char *path)
{
        assert_int_equal(mkdirat(dir, path, 0755), 0);
}

static void whiteout(struct world *w, const char *path)
{
        assert_int_equal(mknodat(w->upper, path, S_IFCHR, makedev(0, 0)), 0);
}

static void opaque(struct world *w, const char *path)
{
        CLEAN(cleanup_free) char *full = xasprintf("%s/upper/%s", w->root, path);

        assert_int_equal(setxattr(full, "user.overlay.opaque", "y", 1, 0), 0);
}

static struct change_set *open_set(struct world *w, struct manifest_file *applied)
{
        struct excludes x = { .patterns = w->excludes };
        struct overlay_layers layers = {
                .upper_fd = w->upper,
                .lower_fd = w->lower,
                .staged_ns = w->staged_ns,
                .applied = applied ? manifest_source(applied) : NULL,
                .excludes = &x,
                .manifest_dir = w->root_fd,
                .manifest_name = "next",
        };
        struct change_set *set = NULL;
        struct err err = { 0 };

        if (overlay_open(&layers, &set, &err) < 0)
                fail_msg("%s", err.msg);
        return set;
}

/* "+path" put, "-path" deleted, "/" behind directories, "@target" behind links; in order. */
static void list_changes(struct world *w, struct manifest_file *applied, struct buf *out)
{
        struct change_set *set = open_set(w, applied);
        struct change c;

        while (set->next(set, &c, NULL) > 0) {
                buf_appendf(out, "%s%c%s", out->len ? " " : "", c.is_delete ? '-' : '+',
                            c.now.path);
                if (!c.is_delete && c.now.kind == TREE_DIR)
                        buf_puts(out, "/");
                if (!c.is_delete && c.now.kind == TREE_LINK)
                        buf_appendf(out, "@%s", c.now.target);
                if (c.has_was)
                        buf_puts(out, "(was)");
        }
        set->close(set);
}

static void assert_changes(struct world *w, const char *expected)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;

        list_changes(w, NULL, &out);
        assert_string_equal(buf_str(&out), expected);
}

static void test_nothing_written_is_no_change(void **state)
{
        struct world *w = *state;

        put(w->lower, "a", "1");
        assert_changes(w, "");
}

static void test_added_changed_deleted(void **state)
{
        struct world *w = *state;

        put(w->lower, "changed", "old");
        put(w->lower, "gone", "x");
        put(w->lower, "stays", "x");
        put(w->upper, "changed", "new");
        put(w->upper, "added", "x");
        whiteout(w, "gone");
        whiteout(w, "never-was");
        assert_int_equal(symlinkat("stays", w->upper, "link"), 0);
        assert_changes(w, "+added +changed -gone +link@stays");
}

static void test_copied_up_without_a_change(void **state)
{
        struct world *w = *state;

        put(w->lower, "a", "same");
        put(w->upper, "a", "same");
        assert_changes(w, "");
        assert_int_equal(fchmodat(w->upper, "a", 0700, 0), 0);
        assert_changes(w, "+a");
}

/* Siblings in the order of their bytes, a directory before what is in it. */
static void test_order_is_that_of_trees(void **state)
{
        struct world *w = *state;

        make(w->upper, "a");
        put(w->upper, "a/z", "1");
        put(w->upper, "a.txt", "1");
        put(w->upper, "a-b", "1");
        assert_changes(w, "+a/ +a/z +a-b +a.txt");
}

static void test_directories_of_both(void **state)
{
        struct world *w = *state;

        make(w->lower, "d");
        put(w->lower, "d/old", "1");
        make(w->upper, "d");
        put(w->upper, "d/new", "1");
        assert_changes(w, "+d/new");
}

static void test_opaque_replaces_what_is_beneath(void **state)
{
        struct world *w = *state;

        make(w->lower, "d");
        put(w->lower, "d/both", "1");
        put(w->lower, "d/old", "1");
        make(w->lower, "d/sub");
        put(w->lower, "d/sub/deep", "1");
        make(w->upper, "d");
        put(w->upper, "d/both", "2");
        opaque(w, "d");
        assert_changes(w, "+d/both -d/old -d/sub -d/sub/deep");
}

static void test_a_directory_that_is_gone(void **state)
{
        struct world *w = *state;

        make(w->lower, "d");
        put(w->lower, "d/a", "1");
        make(w->lower, "d/e");
        put(w->lower, "d/e/b", "1");
        whiteout(w, "d");
        assert_changes(w, "-d -d/a -d/e -d/e/b");
}

static void test_kinds_that_change(void **state)
{
        struct world *w = *state;

        make(w->lower, "d");
        put(w->lower, "d/a", "1");
        put(w->lower, "f", "1");
        put(w->upper, "d", "now a file");
        make(w->upper, "f");
        put(w->upper, "f/x", "1");
        assert_changes(w, "+d -d/a +f/ +f/x");
}

static void test_what_does_not_travel(void **state)
{
        struct world *w = *state;
        static const char *const patterns[] = { "secret", "*/node_modules", NULL };

        w->excludes = patterns;
        assert_int_equal(mkfifoat(w->upper, "fifo", 0600), 0);
        make(w->upper, ".paperclip-runtime");
        put(w->upper, ".paperclip-runtime/state", "1");
        put(w->upper, "secret", "1");
        make(w->upper, "a");
        make(w->upper, "a/node_modules");
        put(w->upper, "a/node_modules/x", "1");
        put(w->upper, "._mac", "1");
        assert_changes(w, "+a/");
}

/* A copy of ours is the baseline itself. */
static void test_a_copy_tells_what_was(void **state)
{
        struct world *w = *state;

        w->staged_ns = 0;
        put(w->lower, "a", "1");
        put(w->lower, "b", "1");
        put(w->upper, "a", "2");
        put(w->upper, "c", "2");
        whiteout(w, "b");
        assert_changes(w, "+a(was) -b(was) +c");
}

static void test_what_was_taken_over_is_no_change(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf out = BUF_INIT;
        struct manifest_file *applied = NULL;

        put(w->upper, "a", "1");
        put(w->upper, "b", "1");
        assert_changes(w, "+a +b");
        assert_int_equal(renameat(w->root_fd, "next", w->root_fd, "applied"), 0);
        put(w->upper, "b", "2");
        put(w->upper, "c", "1");
        assert_int_equal(manifest_open(w->root_fd, "applied", &applied, NULL), 0);
        list_changes(w, applied, &out);
        manifest_close(applied);
        assert_string_equal(buf_str(&out), "+b(was) +c");
}

static void test_content_follows_no_link(void **state)
{
        struct world *w = *state;
        struct change_set *set;
        struct change c;
        char text[8] = "";
        int fd;

        put(w->root_fd, "outside", "secret");
        make(w->upper, "d");
        put(w->upper, "d/a", "1");
        set = open_set(w, NULL);
        assert_int_equal(set->next(set, &c, NULL), 1);
        assert_int_equal(set->next(set, &c, NULL), 1);
        assert_string_equal(c.now.path, "d/a");
        assert_int_equal(set->open(set, &c, &fd, NULL), 0);
        assert_int_equal(read(fd, text, sizeof(text)), 1);
        close(fd);
        /* Swapped under us. */
        assert_int_equal(unlinkat(w->upper, "d/a", 0), 0);
        assert_int_equal(symlinkat("../../outside", w->upper, "d/a"), 0);
        assert_true(set->open(set, &c, &fd, NULL) < 0);
        assert_int_equal(unlinkat(w->upper, "d/a", 0), 0);
        assert_int_equal(mkfifoat(w->upper, "d/a", 0600), 0);
        assert_int_equal(set->open(set, &c, &fd, NULL), ERR_CONFLICT);
        set->close(set);
}

/* What lies too deep is left out; the rest is not lost with it. */
static void test_nesting_is_bounded(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf out = BUF_INIT;
        int at = dup(w->upper);
        size_t n = 0;

        for (int i = 0; i < TREE_MAX_DEPTH + 2; i++) {
                int next;

                make(at, "d");
                next = openat(at, "d", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                close(at);
                at = next;
        }
        close(at);
        put(w->upper, "e", "1");
        list_changes(w, NULL, &out);
        for (const char *p = buf_str(&out); *p; p++)
                n += *p == '+';
        assert_int_equal(n, TREE_MAX_DEPTH + 1);
        assert_string_equal(buf_str(&out) + out.len - 3, " +e");
}

/* Hiding */

static bool is_whiteout(struct world *w, const char *path)
{
        struct stat st;

        return fstatat(w->upper, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISCHR(st.st_mode) &&
               st.st_rdev == makedev(0, 0);
}

static void test_excluded_paths_are_hidden(void **state)
{
        struct world *w = *state;
        static const char *const patterns[] = { "./secret/", "d/inner", "nothing", NULL };
        struct excludes x = { .patterns = patterns };

        make(w->lower, "secret");
        make(w->lower, "d");
        put(w->lower, "d/inner", "1");
        make(w->lower, ".paperclip-runtime");
        assert_int_equal(overlay_hide(w->upper, w->lower, &x, NULL), 0);
        assert_true(is_whiteout(w, "secret"));
        assert_true(is_whiteout(w, "d/inner"));
        assert_true(is_whiteout(w, ".paperclip-runtime"));
        assert_int_equal(faccessat(w->upper, "nothing", F_OK, AT_SYMLINK_NOFOLLOW), -1);
        w->excludes = patterns;
        assert_changes(w, "");
}

static void test_names_at_any_depth_are_hidden(void **state)
{
        struct world *w = *state;
        static const char *const patterns[] = { "*/node_modules", NULL };
        struct excludes x = { .patterns = patterns };

        make(w->lower, "a");
        make(w->lower, "a/node_modules");
        make(w->lower, "a/b");
        make(w->lower, "a/b/node_modules");
        assert_int_equal(overlay_hide(w->upper, w->lower, &x, NULL), 0);
        assert_true(is_whiteout(w, "a/node_modules"));
        assert_true(is_whiteout(w, "a/b/node_modules"));
        assert_int_equal(overlay_hide(w->upper, w->lower, &x, NULL), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

/* A hole costs a sandbox nothing, and us as long as we read it: it is not read beyond the budget.
 */
static void test_holes_are_taken_from_a_budget(void **state)
{
        struct world *w = *state;
        struct budget budget = { .max_files = 1, .max_bytes = (uint64_t)1 << 20 };
        struct overlay_layers layers = { .upper_fd = w->upper,
                                         .lower_fd = w->lower,
                                         .staged_ns = w->staged_ns,
                                         .manifest_dir = w->root_fd,
                                         .manifest_name = "manifest",
                                         .budget = &budget };
        CLEAN(err_done) struct err err = { 0 };
        struct change_set *set;

        put(w->upper, "a", "");
        assert_int_equal(truncate_at(w->upper, "a", 1 << 20), 0);
        assert_int_equal(overlay_open(&layers, &set, &err), 0);
        set->close(set);
        put(w->upper, "b", "");
        assert_int_equal(truncate_at(w->upper, "b", (off_t)15 << 40), 0);
        budget.bytes = 0;
        assert_int_equal(overlay_open(&layers, &set, &err), ERR_TOO_LARGE);
        assert_non_null(strstr(err.msg, "restore_max_mb"));
        assert_non_null(strstr(err.msg, " b:"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_nothing_written_is_no_change),
                TEST(test_added_changed_deleted),
                TEST(test_copied_up_without_a_change),
                TEST(test_order_is_that_of_trees),
                TEST(test_directories_of_both),
                TEST(test_opaque_replaces_what_is_beneath),
                TEST(test_a_directory_that_is_gone),
                TEST(test_kinds_that_change),
                TEST(test_what_does_not_travel),
                TEST(test_a_copy_tells_what_was),
                TEST(test_what_was_taken_over_is_no_change),
                TEST(test_content_follows_no_link),
                TEST(test_nesting_is_bounded),
                TEST(test_excluded_paths_are_hidden),
                TEST(test_names_at_any_depth_are_hidden),
                TEST(test_holes_are_taken_from_a_budget),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
