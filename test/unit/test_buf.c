#include "test.h"

#include "base/buf.h"

static void test_grows_and_stays_terminated(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        assert_string_equal(buf_str(&b), "");
        for (int i = 0; i < 1000; i++)
                buf_appendf(&b, "%d,", i % 10);
        assert_int_equal(b.len, 2000);
        assert_int_equal(strlen(buf_str(&b)), 2000);
        assert_false(buf_failed(&b));
}

static void test_the_bound_is_exact(void **state)
{
        CLEAN(buf_done) struct buf b;

        (void)state;
        buf_init(&b, 5);
        buf_append(&b, "abcde", 5);
        assert_false(buf_failed(&b));
        buf_putc(&b, 'f');
        assert_true(buf_failed(&b));
        assert_string_equal(buf_str(&b), "abcde");
}

static void test_failure_is_sticky_until_cleared(void **state)
{
        CLEAN(buf_done) struct buf b;

        (void)state;
        buf_init(&b, 3);
        buf_puts(&b, "abcd");
        buf_putc(&b, 'e'); /* would fit, but a hole must not close */
        assert_true(buf_failed(&b));
        assert_int_equal(b.len, 0);
        assert_null(buf_reserve(&b, 1));
        buf_appendf(&b, "%s", "x");
        assert_int_equal(b.len, 0);
        buf_clear(&b);
        assert_false(buf_failed(&b));
        buf_puts(&b, "abc");
        assert_string_equal(buf_str(&b), "abc");
}

static void test_zero_means_the_default_bound(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        assert_non_null(buf_reserve(&b, BUF_DEFAULT_MAX));
        assert_null(buf_reserve(&b, BUF_DEFAULT_MAX + 1));
        assert_true(buf_failed(&b));
}

static void test_a_huge_request_fails_without_wrapping(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        buf_puts(&b, "x");
        assert_null(buf_reserve(&b, SIZE_MAX));
        assert_true(buf_failed(&b));
        assert_string_equal(buf_str(&b), "x");
}

static void test_reserve_then_grew(void **state)
{
        CLEAN(buf_done) struct buf b;
        char *at;

        (void)state;
        buf_init(&b, 4);
        at = buf_reserve(&b, 4);
        assert_non_null(at);
        memset(at, 'w', 4);
        buf_grew(&b, 2);
        assert_string_equal(buf_str(&b), "ww");
}

static void test_consume(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        buf_consume(&b, 1);
        buf_puts(&b, "abcdef");
        buf_consume(&b, 0);
        buf_consume(&b, 2);
        assert_string_equal(buf_str(&b), "cdef");
        buf_consume(&b, 100);
        assert_string_equal(buf_str(&b), "");
        assert_int_equal(b.len, 0);
}

static void test_take_gives_the_bytes_away(void **state)
{
        CLEAN(buf_done) struct buf b;
        char *s;

        (void)state;
        buf_init(&b, 10);
        s = buf_take(&b);
        assert_string_equal(s, "");
        free(s);
        buf_puts(&b, "abc");
        s = buf_take(&b);
        assert_string_equal(s, "abc");
        assert_int_equal(b.len, 0);
        assert_int_equal(b.max, 10);
        free(s);
}

static void test_wipe_empties(void **state)
{
        struct buf b = BUF_INIT;

        (void)state;
        buf_wipe(&b);
        buf_puts(&b, "secret");
        buf_wipe(&b);
        assert_null(b.data);
        assert_int_equal(b.len, 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_grows_and_stays_terminated),
                cmocka_unit_test(test_the_bound_is_exact),
                cmocka_unit_test(test_failure_is_sticky_until_cleared),
                cmocka_unit_test(test_zero_means_the_default_bound),
                cmocka_unit_test(test_a_huge_request_fails_without_wrapping),
                cmocka_unit_test(test_reserve_then_grew),
                cmocka_unit_test(test_consume),
                cmocka_unit_test(test_take_gives_the_bytes_away),
                cmocka_unit_test(test_wipe_empties),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
