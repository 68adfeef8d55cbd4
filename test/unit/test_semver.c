#include "test.h"

#include "plugin/semver.h"

static void test_what_is_a_version(void **state)
{
        static const char *const good[] = {
                "0.0.0",        "1.2.3",         "2026.512.0",
                "1.0.0-beta.1", "1.0.0+build.5", "1.0.0-a-b.0.x+1.2",
                "1.0.0--",      "01.2.3",        "999999999999999999999999.0.0"
        };
        static const char *const bad[] = { "",       "1",       "1.2",      "1.2.3.4", "v1.2.3",
                                           "1.2.x",  "1.2.3-",  "1.2.3-a.", "1.2.3+",  " 1.2.3",
                                           "1.2.3 ", "1.2.3-ä", "1..3",     "1.2.3-+1" };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                if (!semver_is_valid(good[i]))
                        fail_msg("%s", good[i]);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (semver_is_valid(bad[i]))
                        fail_msg("%s", bad[i]);
}

/* Each is less than all that follow. */
static void test_order(void **state)
{
        static const char *const order[] = {
                "0.9.9",           "1.0.0-0",          "1.0.0-2",
                "1.0.0-10",        "1.0.0-alpha",      "1.0.0-alpha.1",
                "1.0.0-alpha.1.0", "1.0.0-alpha.beta", "1.0.0-beta.2",
                "1.0.0-beta.11",   "1.0.0-rc.1",       "1.0.0",
                "1.0.1",           "1.10.0",           "2.0.0",
                "2026.512.0",      "2026.916.1",       "99999999999999999999.0.0",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(order); i++) {
                for (size_t j = 0; j < ARRAY_LEN(order); j++) {
                        int r = semver_compare(order[i], order[j]);

                        if ((r > 0) - (r < 0) != (i > j) - (i < j))
                                fail_msg("%s and %s: %d", order[i], order[j], r);
                }
        }
        assert_int_equal(semver_compare("1.0.0+a", "1.0.0+b"), 0);
        assert_int_equal(semver_compare("1.0.0-x+a", "1.0.0-x"), 0);
        assert_int_equal(semver_compare("01.0.0", "1.0.0"), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_what_is_a_version),
                cmocka_unit_test(test_order),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
