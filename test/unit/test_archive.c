#define _GNU_SOURCE
#include "sync_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "codec/tar.h"
#include "workspace/archive.h"

static int unpack(struct world *w, const struct buf *b, struct err *err)
{
        CLEAN(cleanup_fd) int fd = openat(w->root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        assert_int_equal(fd_write_all(fd, b->data, b->len, NULL), 0);
        return archive_unpack(&w->op, fd, w->remote_fd, NULL, err);
}

static void add(struct buf *b, const char *path, enum tree_kind kind, const char *text)
{
        struct tree_entry e = { .path = path, .kind = kind, .mode = 0644 };

        if (kind == TREE_DIR)
                e.mode = 0755;
        if (kind == TREE_LINK)
                e.target = text;
        if (kind == TREE_FILE)
                e.size = strlen(text);
        tar_put(b, &e);
        if (kind == TREE_FILE) {
                buf_puts(b, text);
                tar_pad(b, e.size);
        }
}

/* Make the last header a hard link. */
static void make_hard(struct buf *b)
{
        uint8_t *h = (uint8_t *)b->data + b->len - TAR_BLOCK;
        unsigned sum = 0;

        h[156] = '1';
        memset(h + 148, ' ', 8);
        for (int i = 0; i < TAR_BLOCK; i++)
                sum += h[i];
        snprintf((char *)h + 148, 8, "%06o", sum);
}

static void test_there_and_back(void **state)
{
        struct world *w = *state;
        CLEAN(cleanup_fd) int fd = openat(w->root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        struct scan_options options = { 0 };
        uint64_t files, bytes;
        char name[TREE_MAX_NAME + 1] = { 0 };
        struct scan *scan;

        memset(name, 'n', TREE_MAX_NAME);
        put_text(w->local_fd, name, "long");
        put_text(w->local_fd, "\xff\n", "odd");
        put_bytes(w->local_fd, "large", 700000, 1);
        assert_int_equal(mkdirat(w->local_fd, "dir", 0755), 0);
        put_text(w->local_fd, "dir/file", "");
        assert_int_equal(symlinkat(name, w->local_fd, "dir/link"), 0);
        assert_int_equal(fchmodat(w->local_fd, "dir", 0500, 0), 0);
        assert_int_equal(scan_open(openat(w->local_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC),
                                   &options, &scan, NULL),
                         0);
        assert_int_equal(archive_pack(&w->op, w->local_fd, scan_source(scan), fd, w->state_fd,
                                      "baseline", &files, &bytes, NULL),
                         0);
        scan_close(scan);
        assert_int_equal(files, 4);
        assert_int_equal(archive_unpack(&w->op, fd, w->remote_fd, NULL, NULL), 0);
        assert_same_trees(w);
}

/* Nothing leaves the directory, whatever an archive says. */
static void test_archives_that_reach_out(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf up = BUF_INIT;
        CLEAN(buf_done) struct buf through = BUF_INIT;
        CLEAN(buf_done) struct buf hard = BUF_INIT;
        CLEAN(buf_done) struct buf cut = BUF_INIT;
        CLEAN(buf_done) struct buf far = BUF_INIT;

        put_text(w->root_fd, "outside", "mine");
        add(&up, "../outside", TREE_FILE, "theirs");
        tar_end(&up);
        assert_int_equal(unpack(w, &up, NULL), ERR_INVALID);

        add(&through, "out", TREE_LINK, "..");
        add(&through, "out/outside", TREE_FILE, "theirs");
        tar_end(&through);
        assert_true(unpack(w, &through, NULL) < 0);

        add(&far, "abs", TREE_LINK, w->root);
        add(&far, "abs/new", TREE_DIR, NULL);
        tar_end(&far);
        assert_true(unpack(w, &far, NULL) < 0);
        assert_false(is_there(w->root_fd, "new"));

        add(&hard, "peek", TREE_LINK, "../outside");
        make_hard(&hard);
        tar_end(&hard);
        assert_int_equal(unpack(w, &hard, NULL), ERR_INVALID);

        add(&cut, "file", TREE_FILE, "content that is not all there");
        cut.len -= TAR_BLOCK;
        assert_true(unpack(w, &cut, NULL) < 0);
        assert_true(has_text(w->root_fd, "outside", "mine"));
}

static void test_hard_links_are_files(void **state)
{
        struct world *w = *state;
        CLEAN(buf_done) struct buf b = BUF_INIT;

        add(&b, "./a", TREE_FILE, "content");
        add(&b, "./b", TREE_LINK, "./a");
        make_hard(&b);
        add(&b, ".paperclip-runtime/x", TREE_FILE, "theirs");
        tar_end(&b);
        assert_int_equal(unpack(w, &b, NULL), 0);
        assert_true(has_text(w->remote_fd, "b", "content"));
        assert_false(is_there(w->remote_fd, ".paperclip-runtime"));
}

/* Links to one file make an archive that unpacks to many times its size. */
static void test_budget_of_an_archive(void **state)
{
        static const struct {
                struct budget budget;
                const char *setting; /* NULL: it is enough */
        } cases[] = {
                { { 3, 21, 0, 0 }, NULL },
                { { 3, 20, 0, 0 }, "restore_max_mb" },
                { { 2, 21, 0, 0 }, "restore_max_files" },
        };
        struct world *w = *state;
        CLEAN(buf_done) struct buf b = BUF_INIT;

        add(&b, "a", TREE_FILE, "content");
        for (int i = 0; i < 2; i++) {
                add(&b, i ? "b" : "c", TREE_LINK, "a");
                make_hard(&b);
        }
        tar_end(&b);
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                CLEAN(cleanup_fd)
                int fd = openat(w->root_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
                CLEAN(err_done) struct err err = { 0 };
                struct budget budget = cases[i].budget;
                int r;

                assert_int_equal(fd_write_all(fd, b.data, b.len, NULL), 0);
                r = archive_unpack(&w->op, fd, w->remote_fd, &budget, &err);
                if (cases[i].setting ? r != ERR_TOO_LARGE || !strstr(err.msg, cases[i].setting)
                                     : r != 0)
                        fail_msg("%zu: %d %s", i, r, err.msg);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_there_and_back, world_setup, world_teardown),
                cmocka_unit_test_setup_teardown(test_archives_that_reach_out, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_hard_links_are_files, world_setup,
                                                world_teardown),
                cmocka_unit_test_setup_teardown(test_budget_of_an_archive, world_setup,
                                                world_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
