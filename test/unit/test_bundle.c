#define _GNU_SOURCE
#include "merge_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sodium.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"

static int setup(void **state)
{
        struct merge_world *w = xcalloc(1, sizeof(*w));

        world_init(w);
        *state = w;
        return 0;
}

static int teardown(void **state)
{
        world_done(*state);
        free(*state);
        return 0;
}

static void hash_of(const char *text, uint8_t ret[TREE_HASH])
{
        crypto_generichash(ret, TREE_HASH, (const unsigned char *)text, strlen(text), NULL, 0);
}

static int keep_text(struct bundle_writer *b, const char *text, const char *named, struct err *err)
{
        uint8_t hash[TREE_HASH];
        int fd;

        hash_of(named, hash);
        assert_int_equal(bundle_new_file(b, &fd, err), 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
        return bundle_keep(b, fd, hash, strlen(text), err);
}

static struct change file_change(const char *path, const char *text)
{
        struct change c = { .now = { .path = path, .kind = TREE_FILE, .mode = 0644 } };

        c.now.size = strlen(text);
        hash_of(text, c.now.hash);
        return c;
}

static struct change delete_change(const char *path)
{
        return (struct change){ .is_delete = true, .now = { .path = path } };
}

static unsigned count_files(struct merge_world *w)
{
        CLEAN(cleanup_fd)
        int fd = openat(w->root_fd, "bundle/files", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct tree t = { 0 };
        unsigned n;

        mock_read(&t, fd);
        n = (unsigned)t.n;
        mock_done(&t);
        return n;
}

static void test_round_trip(void **state)
{
        struct merge_world *w = *state;
        struct bundle_writer *b;
        struct bundle_size size;
        struct change_set *set;
        struct change c = file_change("a/f", "content"), got;
        char text[16] = "";
        int fd;

        c.has_was = true;
        c.was = (struct tree_entry){ .kind = TREE_LINK, .target = "somewhere" };
        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_false(bundle_has(b, c.now.hash));
        assert_int_equal(keep_text(b, "content", "content", &w->err), 0);
        assert_true(bundle_has(b, c.now.hash));
        assert_int_equal(bundle_add(b, &c, &w->err), 0);
        c = file_change("a/g", "content");
        c.was_by_time = true;
        c.staged_ns = -5;
        c.now.mtime_ns = 77;
        assert_int_equal(bundle_add(b, &c, &w->err), 0);
        c = delete_change("b\n\xff");
        assert_int_equal(bundle_add(b, &c, &w->err), 0);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);

        assert_int_equal(count_files(w), 1);
        assert_int_equal(bundle_open(w->bundle, &set, &size, &w->err), 0);
        assert_int_equal(size.changes, 3);
        assert_int_equal(size.deletes, 1);
        assert_int_equal(size.bytes, 14);
        assert_int_equal(set->next(set, &got, &w->err), 1);
        assert_string_equal(got.now.path, "a/f");
        assert_true(got.has_was && !got.was_by_time && !got.is_delete);
        assert_int_equal(got.was.kind, TREE_LINK);
        assert_string_equal(got.was.target, "somewhere");
        assert_int_equal(set->open(set, &got, &fd, &w->err), 0);
        assert_int_equal(read(fd, text, sizeof(text)), 7);
        assert_string_equal(text, "content");
        close(fd);
        assert_int_equal(set->next(set, &got, &w->err), 1);
        assert_true(got.was_by_time && !got.has_was);
        assert_int_equal(got.staged_ns, -5);
        assert_int_equal(got.now.mtime_ns, 77);
        assert_int_equal(set->next(set, &got, &w->err), 1);
        assert_true(got.is_delete);
        assert_string_equal(got.now.path, "b\n\xff");
        assert_int_equal(set->next(set, &got, &w->err), 0);
        assert_int_equal(set->next(set, &got, &w->err), 0);
        set->close(set);
        assert_int_equal(bundle_remove(&w->op, w->bundle, &w->err), 0);
        assert_int_equal(bundle_open(w->bundle, &set, NULL, &w->err), ERR_NOT_FOUND);
        assert_int_equal(bundle_remove(&w->op, w->bundle, &w->err), 0);
}

static void test_refusals(void **state)
{
        struct merge_world *w = *state;
        struct bundle_writer *b;
        struct change c = file_change("b", "x");

        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_int_equal(keep_text(b, "wrong", "x", &w->err), ERR_INVALID);
        assert_int_equal(count_files(w), 0);
        assert_int_equal(bundle_add(b, &c, &w->err), ERR_INVALID); /* no content */
        assert_int_equal(keep_text(b, "x", "x", &w->err), 0);
        assert_int_equal(bundle_add(b, &c, &w->err), 0);
        assert_int_equal(bundle_add(b, &c, &w->err), ERR_INVALID); /* twice */
        c = file_change("c", "x");
        c.now.size = 0; /* what a budget would be asked for */
        assert_int_equal(bundle_add(b, &c, &w->err), ERR_INVALID);
        c.now.size = 2;
        assert_int_equal(bundle_add(b, &c, &w->err), ERR_INVALID);
        c = delete_change("a");
        assert_int_equal(bundle_add(b, &c, &w->err), ERR_INVALID); /* out of order */
        c = delete_change("../c");
        assert_int_equal(bundle_add(b, &c, &w->err), ERR_INVALID);
        c = file_change("c", "x");
        c.now.kind = TREE_UNKNOWN;
        assert_int_equal(bundle_add(b, &c, &w->err), ERR_INVALID);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
        assert_int_equal(bundle_create(w->bundle, &b, &w->err), ERR_CONFLICT);
}

/* Unfinished: no bundle. What is there is used, unless it is torn. */
static void test_resume(void **state)
{
        struct merge_world *w = *state;
        struct change c = file_change("a", "torn"), d = file_change("b", "whole");
        struct bundle_writer *b;
        struct change_set *set;
        char name[2 * TREE_HASH + 16] = "bundle/files/";
        int fd;

        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_int_equal(keep_text(b, "torn", "torn", &w->err), 0);
        assert_int_equal(keep_text(b, "whole", "whole", &w->err), 0);
        assert_int_equal(bundle_new_file(b, &fd, &w->err), 0);
        assert_int_equal(bundle_add(b, &c, &w->err), 0);
        bundle_close(b);
        close(fd);
        assert_int_equal(count_files(w), 2);
        assert_int_equal(bundle_open(w->bundle, &set, NULL, &w->err), ERR_NOT_FOUND);

        for (size_t i = 0; i < TREE_HASH; i++)
                snprintf(name + 13 + 2 * i, 3, "%02x", c.now.hash[i]);
        assert_int_equal(file_write_at(w->root_fd, name, "", 0, 0600, NULL), 0);
        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_false(bundle_has(b, c.now.hash));
        assert_true(bundle_has(b, d.now.hash));
        assert_int_equal(bundle_add(b, &d, &w->err), 0);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
        assert_int_equal(bundle_open(w->bundle, &set, NULL, &w->err), 0);
        set->close(set);
}

static void finished_bundle(struct merge_world *w, unsigned changes)
{
        struct bundle_writer *b;

        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        for (unsigned i = 0; i < changes; i++) {
                char path[32];
                struct change c;

                snprintf(path, sizeof(path), "path-%08u", i);
                c = delete_change(path);
                assert_int_equal(bundle_add(b, &c, &w->err), 0);
        }
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
}

/* A damaged file is found before anybody acts on its first change. */
static void test_damage(void **state)
{
        struct merge_world *w = *state;
        CLEAN(buf_done) struct buf whole = BUF_INIT;
        struct change_set *set;

        finished_bundle(w, 20000);
        assert_int_equal(file_read_at(w->root_fd, "bundle/changes", 1 << 20, &whole, NULL), 0);
        for (size_t at = 0; at < whole.len; at += 1 + whole.len / 50) {
                assert_int_equal(
                        file_write_at(w->root_fd, "bundle/changes", whole.data, at, 0600, NULL), 0);
                assert_int_equal(bundle_open(w->bundle, &set, NULL, &w->err), ERR_CORRUPT);
                whole.data[at] = (char)(whole.data[at] ^ 0x55);
                assert_int_equal(file_write_at(w->root_fd, "bundle/changes", whole.data, whole.len,
                                               0600, NULL),
                                 0);
                whole.data[at] = (char)(whole.data[at] ^ 0x55);
                assert_int_equal(bundle_open(w->bundle, &set, NULL, &w->err), ERR_CORRUPT);
        }
}

static void test_missing_content(void **state)
{
        struct merge_world *w = *state;
        struct tree was = { 0 }, now = { 0 };
        struct tree_changes changes;
        struct bundle_writer *b;
        struct change_set *set;
        char files[SCRATCH_PATH_MAX + 32];

        mock_file(&now, "f", "text");
        mock_changes_init(&changes, &was, &now);
        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_int_equal(bundle_take(&w->op, b, &changes.set, NULL, &w->err), 0);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
        snprintf(files, sizeof(files), "%s/files", w->bundle);
        mock_remove_dir(files);
        assert_int_equal(mkdir(files, 0700), 0);
        assert_int_equal(bundle_open(w->bundle, &set, NULL, &w->err), 0);
        assert_int_equal(merge_apply(&w->op, w->ws, set, &w->options, &w->report, &w->err),
                         ERR_CORRUPT);
        set->close(set);
        world_read(w, &was);
        assert_int_equal(was.n, 0); /* and no temporary file */
        mock_done(&was);
        mock_done(&now);
}

static struct tree big;
static const char *change_content(struct tree_changes *t, struct change *c)
{
        (void)t;
        c->now.hash[0] ^= 1; /* as if it was written to after it was read */
        return c->now.path;
}

static void test_take_what_is_there(void **state)
{
        struct merge_world *w = *state;
        struct tree was = { 0 };
        struct tree_changes changes;
        struct bundle_writer *b;
        struct change_set *set;
        struct change c;
        uint8_t hash[TREE_HASH];

        mock_file(&big, "f", "text");
        mock_changes_init(&changes, &was, &big);
        changes.edit = change_content;
        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_int_equal(bundle_take(&w->op, b, &changes.set, NULL, &w->err), 0);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
        assert_int_equal(bundle_open(w->bundle, &set, NULL, &w->err), 0);
        assert_int_equal(set->next(set, &c, &w->err), 1);
        hash_of("text", hash);
        assert_memory_equal(c.now.hash, hash, TREE_HASH);
        set->close(set);
        mock_done(&big);
}

static int (*open_quietly)(struct change_set *, const struct change *, int *, struct err *);

static int open_or_gone(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        if (streq(c->now.path, "gone"))
                return err_set(err, ERR_NOT_FOUND, "open %s", c->now.path);
        return open_quietly(s, c, ret_fd, err);
}

/* What is removed while all is saved does not keep the rest from being saved. */
static void test_take_what_is_left(void **state)
{
        struct merge_world *w = *state;
        struct tree was = { 0 }, now = { 0 };
        struct tree_changes changes;
        struct bundle_writer *b;
        struct bundle_size size;
        struct change_set *set;
        struct change c;

        mock_file(&now, "gone", "text");
        mock_file(&now, "stays", "other");
        mock_changes_init(&changes, &was, &now);
        open_quietly = changes.set.open;
        changes.set.open = open_or_gone;
        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_int_equal(bundle_take(&w->op, b, &changes.set, NULL, &w->err), 0);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
        assert_int_equal(bundle_open(w->bundle, &set, &size, &w->err), 0);
        assert_int_equal(size.changes, 1);
        assert_int_equal(set->next(set, &c, &w->err), 1);
        assert_string_equal(c.now.path, "stays");
        set->close(set);
        mock_done(&now);
}

/* What somebody put beside it goes with it. */
static void test_remove_all(void **state)
{
        struct merge_world *w = *state;
        struct bundle_writer *b;
        CLEAN(cleanup_fd) int fd = -1;

        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
        fd = openat(w->root_fd, "bundle/beside", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        assert_int_equal(bundle_remove(&w->op, w->bundle, &w->err), 0);
        assert_int_equal(faccessat(w->root_fd, "bundle", F_OK, 0), -1);
}

/* Crashes: after each there is no bundle, or the whole one; the next try comes to its end. */

static void write_bundle(struct merge_world *w, const struct tree *now)
{
        struct tree was = { 0 };
        struct tree_changes changes;
        struct bundle_writer *b;

        mock_changes_init(&changes, &was, now);
        assert_int_equal(bundle_create(w->bundle, &b, &w->err), 0);
        assert_int_equal(bundle_take(&w->op, b, &changes.set, NULL, &w->err), 0);
        assert_int_equal(bundle_finish(b, &w->err), 0);
        bundle_close(b);
}

static bool dies_at(const char *point, struct merge_world *w, const struct tree *now)
{
        pid_t pid = fork();
        int status;

        if (pid == 0) {
                setenv("BERTH_CRASH_AT", point, 1);
                write_bundle(w, now);
                _exit(bundle_remove(&w->op, w->bundle, NULL) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status))
                assert_int_equal(WEXITSTATUS(status), 0);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

static void test_crashes(void **state)
{
        static const char *const points[] = {
                "workspace.bundle.new",           "workspace.bundle.new:3",
                "workspace.bundle.kept",          "workspace.bundle.kept:2",
                "workspace.bundle.finish.before", "workspace.bundle.finish.after",
                "workspace.bundle.remove.begun",  "workspace.bundle.remove.emptied",
        };
        struct merge_world *w = *state;
        struct bundle_size size;
        struct change_set *set;
        struct tree now = { 0 };

        mock_file(&now, "a", "one");
        mock_file(&now, "b", "two");
        mock_file(&now, "c/d", "three");
        for (size_t i = 0; i < ARRAY_LEN(points); i++) {
                int r;

                assert_true(dies_at(points[i], w, &now));
                r = bundle_open(w->bundle, &set, &size, &w->err);
                if (r == ERR_NOT_FOUND) {
                        write_bundle(w, &now);
                        r = bundle_open(w->bundle, &set, &size, &w->err);
                }
                assert_int_equal(r, 0);
                assert_int_equal(size.changes, 4);
                assert_int_equal(size.bytes, 11);
                set->close(set);
                assert_int_equal(count_files(w), 3);
                assert_int_equal(bundle_remove(&w->op, w->bundle, &w->err), 0);
        }
        assert_false(dies_at("workspace.bundle.none", w, &now));
        mock_done(&now);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_round_trip, setup, teardown),
                cmocka_unit_test_setup_teardown(test_refusals, setup, teardown),
                cmocka_unit_test_setup_teardown(test_resume, setup, teardown),
                cmocka_unit_test_setup_teardown(test_damage, setup, teardown),
                cmocka_unit_test_setup_teardown(test_missing_content, setup, teardown),
                cmocka_unit_test_setup_teardown(test_take_what_is_there, setup, teardown),
                cmocka_unit_test_setup_teardown(test_take_what_is_left, setup, teardown),
                cmocka_unit_test_setup_teardown(test_remove_all, setup, teardown),
                cmocka_unit_test_setup_teardown(test_crashes, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
