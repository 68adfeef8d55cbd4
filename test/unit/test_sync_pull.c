#define _GNU_SOURCE
#include "sync_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"

#define MB ((size_t)1 << 20)

static int pull(struct world *w, struct err *err)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/bundle", w->root);
        struct bundle_writer *into = NULL;
        uint32_t umask = 0;
        struct line l;
        int r;

        line_open(w, &l);
        (void)unlinkat(w->root_fd, "bundle/changes", 0);
        r = bundle_create(dir, &into, err);
        if (r >= 0)
                r = sync_pull(&w->op, l.fd, w->state_fd, "baseline", "next", w->local_fd, into,
                              &w->options, &umask, &w->moved, err);
        if (r >= 0) {
                assert_int_equal(umask, 022);
                r = bundle_finish(into, err);
        }
        if (into)
                bundle_close(into);
        line_close(&l);
        return r;
}

static void assert_pulled(struct world *w)
{
        CLEAN(err_done) struct err err = { 0 };

        if (pull(w, &err) < 0)
                fail_msg("%s", err.msg);
}

static void content_of(struct change_set *set, const struct change *c, struct buf *out)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        int fd = -1;
        char piece[64];
        ssize_t n;

        assert_int_equal(set->open(set, c, &fd, NULL), 0);
        n = read(fd, piece, sizeof(piece));
        assert_true(n >= 0);
        buf_appendf(out, " %.*s", (int)n, piece);
        close(fd);
}

/* The bundle as text, one line for each change. */
static char *changes_of(struct world *w)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/bundle", w->root);
        struct change_set *set = NULL;
        struct buf out = BUF_INIT;
        struct bundle_size size;
        struct change c;
        int r;

        assert_int_equal(bundle_open(dir, &set, &size, NULL), 0);
        while ((r = set->next(set, &c, NULL)) > 0) {
                buf_appendf(&out, "%s%s %s", c.is_delete ? "-" : "+", c.has_was ? "" : "!",
                            c.now.path);
                if (!c.is_delete && c.now.kind == TREE_FILE && c.now.size < 64)
                        content_of(set, &c, &out);
                if (!c.is_delete && c.now.kind == TREE_LINK)
                        buf_appendf(&out, " -> %s", c.now.target);
                buf_putc(&out, '\n');
        }
        assert_int_equal(r, 0);
        set->close(set);
        return out.data ? buf_take(&out) : xstrdup("");
}

static void assert_changes(struct world *w, const char *expected)
{
        CLEAN(cleanup_free) char *found = changes_of(w);

        assert_string_equal(found, expected);
}

/* What was collected is merged: what was seen is the baseline. */
static void settle(struct world *w)
{
        assert_int_equal(renameat(w->state_fd, "next", w->state_fd, "baseline"), 0);
}

/* remote-execution 8.4, 8.5 */
static void test_what_was_changed_comes_back(void **state)
{
        struct world *w = *state;
        int l = w->local_fd, r = w->remote_fd;

        put_text(l, "changed", "old");
        put_text(l, "deleted", "x");
        put_text(l, "kept", "x");
        put_text(l, "mode", "x");
        put_text(l, "sub.file", "x");
        assert_int_equal(mkdirat(l, "dir", 0755), 0);
        put_text(l, "dir/in", "x");
        assert_pushed(w);
        assert_pulled(w);
        assert_changes(w, "");

        put_text(r, "changed", "new");
        assert_int_equal(unlinkat(r, "deleted", 0), 0);
        assert_int_equal(fchmodat(r, "mode", 0755, 0), 0);
        assert_int_equal(unlinkat(r, "dir/in", 0), 0);
        assert_int_equal(unlinkat(r, "dir", AT_REMOVEDIR), 0);
        put_text(r, "dir", "a file now");
        assert_int_equal(mkdirat(r, "added", 0755), 0);
        put_text(r, "added/file", "1");
        assert_int_equal(symlinkat("../kept", r, "added/link"), 0);
        assert_int_equal(mkfifoat(r, "fifo", 0644), 0);
        assert_int_equal(mkdirat(r, ".paperclip-runtime", 0755), 0);
        put_text(r, ".paperclip-runtime/theirs", "x");
        assert_pulled(w);
        assert_changes(w, "+! added\n+! added/file 1\n+! added/link -> ../kept\n+ changed new\n"
                          "- deleted\n+ dir a file now\n- dir/in\n+ mode x\n");
        settle(w);
        put_text(r, "added/file", "2");
        assert_pulled(w);
        assert_changes(w, "+ added/file 2\n");
        assert_true(has_text(l, "changed", "old")); /* nothing is merged here */
}

static void test_chunks_that_are_here_are_not_sent(void **state)
{
        struct world *w = *state;

        put_bytes(w->local_fd, "large", 10 * MB, 1);
        assert_pushed(w);
        patch_byte(w->remote_fd, "large", (off_t)(4 * MB));
        assert_pulled(w);
        assert_true(w->moved.sent_bytes < MB);
        assert_changes(w, "+ large\n");
        /* Nothing is here: all of it comes. */
        put_bytes(w->remote_fd, "other", 5 * MB, 2);
        assert_pulled(w);
        assert_true(w->moved.sent_bytes > 5 * MB);
        /* The bundle has it: nothing comes. */
        assert_pulled(w);
        assert_true(w->moved.sent_bytes < 1000);
        assert_changes(w, "+ large\n+! other\n");
}

static void test_many_changes(void **state)
{
        struct world *w = *state;
        CLEAN(cleanup_free) char *found = NULL;
        char name[64];
        size_t lines = 0;

        assert_pushed(w);
        for (int i = 0; i < 400; i++) { /* more than are asked for at a time */
                snprintf(name, sizeof(name), "f%04d", i);
                put_text(w->remote_fd, name, name);
        }
        for (int i = 0; i < 20; i++) {
                snprintf(name, sizeof(name), "f%04d-large", i * 10);
                put_bytes(w->remote_fd, name, MB + 1, (unsigned)i % 3);
        }
        assert_pulled(w);
        found = changes_of(w);
        for (const char *p = found; *p; p++)
                lines += *p == '\n';
        assert_int_equal(lines, 420);
        assert_non_null(strstr(found, "+! f0377 f0377\n"));
}

static void test_cuts_anywhere(void **state)
{
        struct world *w = *state;
        unsigned seed = 99;

        put_bytes(w->local_fd, "old", 4 * MB, 1);
        assert_pushed(w);
        patch_byte(w->remote_fd, "old", 100);
        put_bytes(w->remote_fd, "new", 3 * MB, 2);
        put_text(w->remote_fd, "small", "x");
        for (int i = 0; i < 15; i++) {
                CLEAN(err_done) struct err err = { 0 };
                int r;

                w->cut_direction = i % 4 != 0;
                w->cut_after = 1 + (uint64_t)rand_r(&seed) % (w->cut_direction ? 2 * MB : 2000);
                r = pull(w, &err);
                if (r < 0)
                        assert_int_equal(r, ERR_UNCERTAIN);
        }
        w->cut_after = 0;
        assert_pulled(w);
        assert_changes(w, "+! new\n+ old\n+! small x\n");
}

static void test_what_arrived_is_not_sent_again(void **state)
{
        struct world *w = *state;

        assert_pushed(w);
        put_bytes(w->remote_fd, "large", 8 * MB, 1);
        w->cut_direction = 1;
        w->cut_after = 6 * MB;
        assert_int_equal(pull(w, NULL), ERR_UNCERTAIN);
        w->cut_after = 0;
        assert_pulled(w);
        assert_true(w->moved.sent_bytes < 3 * MB);
        assert_changes(w, "+! large\n");
}

static void test_the_directory_is_gone(void **state)
{
        struct world *w = *state;
        CLEAN(err_done) struct err err = { 0 };

        assert_pushed(w);
        assert_int_equal(unlinkat(w->root_fd, "remote", AT_REMOVEDIR), 0);
        assert_int_equal(pull(w, &err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "/remote"));
        assert_int_equal(mkdirat(w->root_fd, "remote", 0755), 0);
}

static void test_clearing(void **state)
{
        struct world *w = *state;
        struct line l;

        assert_int_equal(mkdirat(w->local_fd, "dir", 0755), 0);
        put_text(w->local_fd, "dir/file", "x");
        assert_int_equal(fchmodat(w->local_fd, "dir", 0500, 0), 0);
        assert_int_equal(symlinkat(w->root, w->local_fd, "link"), 0);
        assert_pushed(w);
        for (int i = 0; i < 2; i++) { /* also when it is not there */
                line_open(w, &l);
                assert_int_equal(sync_clear(&w->op, l.fd, &w->options, NULL), 0);
                line_close(&l);
                assert_false(is_there(w->root_fd, "remote"));
        }
        assert_true(is_there(w->local_fd, "dir/file"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_what_was_changed_comes_back, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_chunks_that_are_here_are_not_sent, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_many_changes, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_cuts_anywhere, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_what_arrived_is_not_sent_again, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_the_directory_is_gone, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_clearing, world_setup, world_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
