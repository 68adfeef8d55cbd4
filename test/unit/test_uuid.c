#include "test.h"

#include "base/uuid.h"

static void test_new_ones_are_version_4_and_differ(void **state)
{
        struct uuid last = { "" };

        (void)state;
        for (int i = 0; i < 1000; i++) {
                struct uuid u = uuid_new(), parsed;

                assert_int_equal(strlen(u.s), UUID_LEN);
                assert_true(uuid_parse(u.s, &parsed));
                assert_string_equal(u.s, parsed.s); /* lower case already */
                assert_int_equal(u.s[14], '4');
                assert_non_null(strchr("89ab", u.s[19]));
                assert_string_not_equal(u.s, last.s);
                last = u;
        }
}

/* Providers name machines by the first eight digits of a run's id. */
static void test_runs_differ_at_once(void **state)
{
        struct uuid a = uuid_new_run(), b = uuid_new_run();

        (void)state;
        assert_int_equal(a.s[14], '4');
        assert_non_null(strchr("89ab", a.s[19]));
        assert_memory_not_equal(a.s, b.s, 8);
}

static void test_any_version_any_case(void **state)
{
        struct uuid u;

        (void)state;
        assert_true(uuid_parse("A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11", &u));
        assert_string_equal(u.s, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11");
        assert_true(uuid_is_valid("00000000-0000-0000-0000-000000000000"));
        assert_true(uuid_is_valid("ffffffff-ffff-ffff-ffff-ffffffffffff"));
}

static void test_what_is_refused(void **state)
{
        static const char *const bad[] = {
                "",
                "a0eebc99",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1",   /* one short */
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a111", /* one long */
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1g",
                "a0eebc999c0b-4ef8-bb6d-6bb9bd380a11-",
                "a0eebc99-9c0b-4ef8-bb6d_6bb9bd380a11",
                "{0eebc99-9c0b-4ef8-bb6d-6bb9bd380a1}",
                " a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11\n",
                "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380\303\2511",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_false(uuid_is_valid(bad[i]));
}

static void test_random_hex(void **state)
{
        char a[129], b[129];

        (void)state;
        random_hex(a, 0);
        assert_string_equal(a, "");
        random_hex(a, 64); /* the most it gives */
        random_hex(b, 64);
        assert_int_equal(strspn(a, "0123456789abcdef"), 128);
        assert_int_equal(strlen(a), 128);
        assert_string_not_equal(a, b);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_new_ones_are_version_4_and_differ),
                cmocka_unit_test(test_runs_differ_at_once),
                cmocka_unit_test(test_any_version_any_case),
                cmocka_unit_test(test_what_is_refused),
                cmocka_unit_test(test_random_hex),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
