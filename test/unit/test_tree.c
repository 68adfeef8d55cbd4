#include "test.h"

#include "codec/tree.h"

static struct tree_entry file_entry(const char *path)
{
        struct tree_entry e = {
                .path = path, .kind = TREE_FILE, .mode = 0644, .size = 300, .mtime_ns = -5
        };

        memset(e.hash, 0xab, TREE_HASH);
        return e;
}

static struct tree_entry dir_entry(const char *path)
{
        return (struct tree_entry){ .path = path, .kind = TREE_DIR, .mode = 0755 };
}

static struct tree_entry link_entry(const char *path, const char *target)
{
        return (struct tree_entry){ .path = path, .kind = TREE_LINK, .target = target };
}

static void test_order(void **state)
{
        /* Each is before the next: a slash is less than any byte, bytes are unsigned. */
        const char *const in_order[] = { "",      "\x01", "a",     "a/b", "a/b/c", "a/c",
                                         "a\x01", "a-",   "a.txt", "b",   "\xff" };

        for (size_t i = 0; i < ARRAY_LEN(in_order); i++)
                for (size_t j = 0; j < ARRAY_LEN(in_order); j++) {
                        int order = tree_compare(in_order[i], in_order[j]);

                        assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
                }
        assert_true(tree_beneath("a/b/c", "a"));
        assert_true(tree_beneath("a/b/c", "a/b"));
        assert_false(tree_beneath("a", "a"));
        assert_false(tree_beneath("ab/c", "a"));
}

static void test_equality(void **state)
{
        struct tree_entry a = file_entry("x"), b = file_entry("y");

        assert_true(tree_same(&a, &b)); /* the path and mtime do not count */
        b.mtime_ns = 77;
        assert_true(tree_same(&a, &b));
        b.mode = 0600;
        assert_false(tree_same(&a, &b));
        assert_true(tree_same_content(&a, &b));
        b = a;
        b.size++;
        assert_false(tree_same_content(&a, &b));
        b = a;
        b.hash[31] ^= 1;
        assert_false(tree_same_content(&a, &b));
        b = dir_entry("x");
        assert_false(tree_same(&a, &b));
        a = dir_entry("x");
        a.mode = 0700;
        assert_true(tree_same(&a, &b)); /* section 2.7: directories always match */
        a = link_entry("x", "t");
        b = link_entry("x", "u");
        assert_false(tree_same(&a, &b));
        b.target = "t";
        assert_true(tree_same(&a, &b));
        a.kind = b.kind = TREE_UNKNOWN;
        assert_false(tree_same(&a, &b));
}

static char *repeat(const char *part, size_t n)
{
        struct buf b = BUF_INIT;

        for (size_t i = 0; i < n; i++)
                buf_puts(&b, part);
        return buf_take(&b);
}

/* Each limit at it and one past it. */
static void test_paths(void **state)
{
        const char *const good[] = {
                "a", ".a", "..a", "a..", "...", "a/b", "new\nline", "\xff\xfe"
        };
        const char *const bad[] = { "",   "/",    "/a",  "a/",  "a//b", ".",
                                    "..", "a/..", "a/.", "./a", "../a", "a/../b" };
        char *name = repeat("n", TREE_MAX_NAME + 1);
        char *deep = repeat("a/", TREE_MAX_DEPTH + 1);
        char *wide = repeat("n", TREE_MAX_NAME);
        CLEAN(buf_done) struct buf b = BUF_INIT;

        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                assert_true(tree_path_ok(good[i]));
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_false(tree_path_ok(bad[i]));
        assert_false(tree_path_ok(name));
        assert_true(tree_path_ok(name + 1));
        deep[2 * (TREE_MAX_DEPTH + 1) - 1] = '\0';
        assert_false(tree_path_ok(deep));
        assert_true(tree_path_ok(deep + 2));
        for (int i = 0; i < 16; i++)
                buf_appendf(&b, "%s%s", i ? "/" : "", wide);
        assert_int_equal(b.len, TREE_MAX_PATH);
        assert_true(tree_path_ok(b.data));
        buf_consume(&b, 1);
        buf_puts(&b, "/x");
        assert_false(tree_path_ok(b.data));
        free(name);
        free(deep);
        free(wide);
}

static void encode_all(struct buf *out, const struct tree_entry *entries, size_t n)
{
        struct tree_encoder e;

        tree_encode_begin(&e, out);
        for (size_t i = 0; i < n; i++)
                tree_encode(&e, &entries[i]);
        tree_encode_end(&e);
        assert_false(buf_failed(out));
}

/* How many entries come out when it is fed in pieces of `step`; below 0 when it is refused. */
static int decode_all(const struct buf *in, size_t step, const struct tree_entry *expected)
{
        struct tree_decoder d;
        struct tree_entry e;
        int n = 0, r = 0;

        tree_decode_init(&d);
        for (size_t at = 0; at < in->len && r >= 0; at += step) {
                tree_decode_feed(&d, in->data + at, MIN(step, in->len - at));
                while ((r = tree_decode_next(&d, &e, NULL)) > 0) {
                        if (expected) {
                                assert_string_equal(e.path, expected[n].path);
                                assert_int_equal(e.kind, expected[n].kind);
                                assert_int_equal(e.mode, expected[n].mode);
                                assert_int_equal(e.size, expected[n].size);
                                assert_int_equal(e.mtime_ns, expected[n].mtime_ns);
                                assert_memory_equal(e.hash, expected[n].hash, TREE_HASH);
                                if (e.target || expected[n].target)
                                        assert_string_equal(e.target, expected[n].target);
                        }
                        n++;
                }
        }
        if (r >= 0 && !d.done)
                r = -1000; /* it ends too early */
        tree_decode_done(&d);
        return r < 0 ? r : n;
}

static void test_round_trip(void **state)
{
        struct tree_entry entries[] = {
                dir_entry("a"),
                file_entry("a/one"),
                file_entry("a/onetwo"),
                dir_entry("a/sub"),
                link_entry("a/sub/l", "../../outside"),
                { .path = "a/sub/secret", .kind = TREE_UNKNOWN },
                file_entry("a-"),
                file_entry("new\nline\xff"),
        };
        CLEAN(buf_done) struct buf b = BUF_INIT;

        entries[1].size = TREE_MAX_SIZE;
        entries[2].mtime_ns = INT64_MIN;
        entries[6].mtime_ns = INT64_MAX;
        entries[7].size = 0;
        encode_all(&b, entries, ARRAY_LEN(entries));
        assert_int_equal(decode_all(&b, 1, entries), ARRAY_LEN(entries));
        assert_int_equal(decode_all(&b, 7, entries), ARRAY_LEN(entries));
        assert_int_equal(decode_all(&b, b.len, entries), ARRAY_LEN(entries));

        for (size_t cut = 0; cut < b.len; cut++) {
                struct buf part = { .data = b.data, .len = cut };

                assert_true(decode_all(&part, 64, NULL) < 0 || cut == 0);
        }
        buf_putc(&b, 'x'); /* nothing may follow the end */
        assert_int_equal(decode_all(&b, b.len, NULL), ERR_INVALID);
}

static void test_empty(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        encode_all(&b, NULL, 0);
        assert_int_equal(decode_all(&b, 3, NULL), 0);
}

static int decode_two(struct tree_entry a, struct tree_entry b)
{
        const struct tree_entry both[] = { a, b };
        CLEAN(buf_done) struct buf bytes = BUF_INIT;

        encode_all(&bytes, both, 2);
        return decode_all(&bytes, bytes.len, NULL);
}

/* The encoder writes what it is told; the decoder takes none of it. */
static void test_refusals(void **state)
{
        struct tree_entry e;

        assert_int_equal(decode_two(dir_entry("a"), file_entry("a/x")), 2);
        assert_int_equal(decode_two(file_entry("b"), file_entry("a")), ERR_INVALID);
        assert_int_equal(decode_two(file_entry("a"), file_entry("a")), ERR_INVALID);
        assert_int_equal(decode_two(file_entry("a"), file_entry("a/x")), ERR_INVALID);
        assert_int_equal(decode_two(link_entry("a", "/etc"), file_entry("a/x")), ERR_INVALID);
        e = (struct tree_entry){ .path = "a", .kind = TREE_UNKNOWN };
        assert_int_equal(decode_two(e, file_entry("a/x")), ERR_INVALID);
        assert_int_equal(decode_two(dir_entry("a"), file_entry("b/x")), ERR_INVALID);
        assert_int_equal(decode_two(dir_entry("a"), file_entry("ab/x")), ERR_INVALID);
        assert_int_equal(decode_two(dir_entry("a"), file_entry("../x")), ERR_INVALID);
        assert_int_equal(decode_two(dir_entry("a"), file_entry("a//x")), ERR_INVALID);
        assert_int_equal(decode_two(dir_entry("a"), link_entry("b", "")), ERR_INVALID);
        e = file_entry("b");
        e.size = TREE_MAX_SIZE + 1;
        assert_int_equal(decode_two(dir_entry("a"), e), ERR_INVALID);
}

static int decode_bytes(const char *bytes, size_t len)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        buf_append(&b, bytes, len);
        return decode_all(&b, len, NULL);
}

#define HEAD "BTREE\0\0\1"

static void test_malformed(void **state)
{
        static const char odd_mode[] = HEAD "\1\0\1a\2\0\0\1";
        static const char plain[] = HEAD "\1\0\1a\1\355\0\1";
        static const char count[] = HEAD "\1\0\1a\1\355\0\2";
        static const char kind[] = HEAD "\7\0\1a\1\355\0\1";
        static const char longer[] = HEAD "\1\200\0\1a\1\355\0\1";
        static const char shared[] = HEAD "\1\1\1a\1\355\0\1";
        static const char less_shared[] = HEAD "\1\0\2ab\1\355\1\0\2ac\1\355\0\2";
        static const char nul[] = HEAD "\1\0\2a\0\1\355\0\1";
        static const char header[] = "BTREE\0\0\2\0\0";

        assert_int_equal(decode_bytes(plain, sizeof(plain) - 1), 1);
        assert_int_equal(decode_bytes(odd_mode, sizeof(odd_mode) - 1), ERR_INVALID);
        assert_int_equal(decode_bytes(count, sizeof(count) - 1), ERR_INVALID);
        assert_int_equal(decode_bytes(kind, sizeof(kind) - 1), ERR_INVALID);
        assert_int_equal(decode_bytes(longer, sizeof(longer) - 1), ERR_INVALID);
        assert_int_equal(decode_bytes(shared, sizeof(shared) - 1), ERR_INVALID);
        assert_int_equal(decode_bytes(less_shared, sizeof(less_shared) - 1), ERR_INVALID);
        assert_int_equal(decode_bytes(nul, sizeof(nul) - 1), ERR_INVALID);
        assert_int_equal(decode_bytes(header, sizeof(header) - 1), ERR_INVALID);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_order),     cmocka_unit_test(test_equality),
                cmocka_unit_test(test_paths),     cmocka_unit_test(test_round_trip),
                cmocka_unit_test(test_empty),     cmocka_unit_test(test_refusals),
                cmocka_unit_test(test_malformed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
