#include "test.h"

#include "base/buf.h"
#include "codec/git_index.h"

/* An index as git writes it, entry by entry. */
struct made {
        struct buf b;
        unsigned version, count;
        char last[5000];
};

static void put_u32(struct buf *b, uint32_t v)
{
        const uint8_t bytes[] = { (uint8_t)(v >> 24), (uint8_t)(v >> 16), (uint8_t)(v >> 8),
                                  (uint8_t)v };

        buf_append(b, bytes, sizeof(bytes));
}

static void begin(struct made *m, unsigned version)
{
        *m = (struct made){ .b = BUF_INIT, .version = version };
        buf_puts(&m->b, "DIRC");
        put_u32(&m->b, version);
        put_u32(&m->b, 0);
}

static void put_entry(struct made *m, const char *path, unsigned len_in_flags)
{
        const size_t start = m->b.len;
        const unsigned flags = len_in_flags | (m->version == 3 ? 0x4000 : 0);
        size_t common = 0, dropped;

        for (int i = 0; i < 60; i++)
                buf_putc(&m->b, 'x');
        buf_putc(&m->b, (char)(flags >> 8));
        buf_putc(&m->b, (char)flags);
        if (m->version == 3)
                buf_append(&m->b, "\0\0", 2);
        if (m->version == 4) {
                while (path[common] && path[common] == m->last[common])
                        common++;
                dropped = strlen(m->last) - common;
                if (dropped >= 0x80)
                        buf_putc(&m->b, (char)(0x80 | ((dropped >> 7) - 1)));
                buf_putc(&m->b, (char)(dropped & 0x7f));
        }
        buf_append(&m->b, path + common, strlen(path + common) + 1);
        assert_false(buf_failed(&m->b));
        while (m->version < 4 && (m->b.len - start) % 8 != 0)
                buf_append(&m->b, "", 1);
        memcpy(m->last, path, strlen(path) + 1);
        m->b.data[11] = (char)++m->count;
}

static void put_path(struct made *m, const char *path)
{
        put_entry(m, path, strlen(path) < 0xfff ? (unsigned)strlen(path) : 0xfff);
}

static void put_extension(struct made *m, const char *name, uint32_t claimed, size_t len)
{
        buf_puts(&m->b, name);
        put_u32(&m->b, claimed);
        while (len-- > 0)
                buf_putc(&m->b, 'e');
}

/* With its checksum; at its end. The bytes lie where a sanitizer sees what is read beyond them. */
static bool ends_ok(struct made *m)
{
        CLEAN(cleanup_free) uint8_t *bytes = NULL;
        bool ok;

        buf_puts(&m->b, "ssssssssssssssssssss");
        bytes = xcalloc(1, m->b.len);
        memcpy(bytes, m->b.data, m->b.len);
        ok = git_index_ok(bytes, m->b.len);
        for (size_t cut = 1; cut < m->b.len; cut++)
                (void)git_index_ok(bytes + cut, m->b.len - cut); /* at any length */
        buf_done(&m->b);
        return ok;
}

static void test_paths(void **state)
{
        static const char *const good[] = {
                "a", "a/b", ".gitignore", "a/.github/x", "...", "a.git"
        };
        static const char *const bad[] = { ".git",       ".git/hooks/x", "a/.git/config",
                                           "../x",       "a/../../x",    "/etc/x",
                                           "a//b",       "./a",          "a/.",
                                           "",           "a/",           ".GIT/x",
                                           "git~1/hooks" };
        struct made m;

        for (unsigned version = 2; version <= 4; version++) {
                begin(&m, version);
                for (size_t i = 0; i < ARRAY_LEN(good); i++)
                        put_path(&m, good[i]);
                put_extension(&m, "TREE", 5, 5);
                put_extension(&m, "UNTR", 0, 0);
                assert_true(ends_ok(&m));
                for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                        begin(&m, version);
                        put_path(&m, "a");
                        put_path(&m, bad[i]);
                        if (ends_ok(&m))
                                fail_msg("version %u: '%s' is taken", version, bad[i]);
                }
        }
}

/* In version 4 a path is made of the one before. */
static void test_paths_of_parts(void **state)
{
        struct made m;

        begin(&m, 4);
        put_path(&m, ".gis/hooks");
        memcpy(m.last, ".gis", 5);
        put_path(&m, ".git/hooks");
        assert_false(ends_ok(&m));
        begin(&m, 4); /* more is dropped than there is */
        put_path(&m, "a");
        memcpy(m.last, "longer", 7);
        put_path(&m, "b");
        assert_false(ends_ok(&m));
}

static void test_lengths(void **state)
{
        char path[5000];
        struct made m;

        memset(path, 'p', sizeof(path));
        for (unsigned version = 2; version <= 4; version++) {
                path[4095] = '\0';
                begin(&m, version);
                put_path(&m, "a");
                put_path(&m, path);
                put_path(&m, "q");
                assert_true(ends_ok(&m));
                path[4095] = 'p';
                path[4096] = '\0';
                begin(&m, version);
                put_path(&m, path);
                assert_false(ends_ok(&m));
                path[4096] = 'p';
                begin(&m, version); /* git would read on behind the end of the path */
                put_entry(&m, "a", 9);
                assert_false(ends_ok(&m));
        }
}

static void test_what_is_not_read(void **state)
{
        static const char *const others[] = { "link", "EOIE", "IEOT", "sdir", "tree", "zzzz" };
        struct made m;

        for (size_t i = 0; i < ARRAY_LEN(others); i++) {
                begin(&m, 2);
                put_extension(&m, others[i], 0, 0);
                assert_false(ends_ok(&m));
        }
        begin(&m, 2);
        put_extension(&m, "TREE", 0xffffffff, 3);
        assert_false(ends_ok(&m));
        begin(&m, 2);
        put_path(&m, "a");
        m.b.data[8] = (char)0xff; /* more entries than there are */
        assert_false(ends_ok(&m));
        begin(&m, 5);
        assert_false(ends_ok(&m));
        begin(&m, 2);
        assert_true(ends_ok(&m));
        assert_false(git_index_ok((const uint8_t *)"DIRC", 4));
        assert_false(git_index_ok((const uint8_t *)"", 0));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_paths),
                cmocka_unit_test(test_paths_of_parts),
                cmocka_unit_test(test_lengths),
                cmocka_unit_test(test_what_is_not_read),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
