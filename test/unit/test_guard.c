#include "test.h"

#include "api/guard.h"

static const struct settings private = {
        .listen_host = "192.0.2.7",
        .allowed_hostnames = "one.example, two.example,three.example",
        .public_url = "https://berth.example/base/",
};

static void test_hosts(void **state)
{
        static const char *const good[] = {
                "localhost",        "localhost:3100", "LOCALHOST:1",   "127.0.0.1",
                "127.0.0.1:3100",   "127.1.2.3",      "[::1]",         "[::1]:3100",
                "a.localhost",      "a.localhost:80", "192.0.2.7",     "192.0.2.7:3100",
                "one.example",      "two.example:1",  "Three.Example", "berth.example",
                "BERTH.example:80",
        };
        static const char *const bad[] = {
                "",
                "example",
                "evil.example",
                "one.example.evil",
                "xone.example",
                "one",
                "one.example,",
                "localhost.evil.example",
                "evillocalhost",
                ".localhost.evil",
                "127.0.0.1.evil.example",
                "128.0.0.1",
                "[::2]",
                "::1", /* without brackets the colon begins the port */
                "192.0.2.70",
                "berth.example.evil",
                "berth.example/base",
                "https",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                if (!guard_host_allowed(&private, good[i]))
                        fail_msg("refused: %s", good[i]);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (guard_host_allowed(&private, bad[i]))
                        fail_msg("allowed: %s", bad[i]);
}

/* A name longer than any host: cut, it must not look like one that is allowed. */
static void test_long_hosts(void **state)
{
        struct settings s = { .exposure = EXPOSURE_PRIVATE };
        char name[512], listed[256];

        (void)state;
        memset(listed, 'a', sizeof(listed) - 1);
        listed[sizeof(listed) - 1] = '\0';
        memset(name, 'a', sizeof(name) - 1);
        name[sizeof(name) - 1] = '\0';
        s.allowed_hostnames = listed;
        assert_false(guard_host_allowed(&s, name));
        assert_true(guard_host_allowed(&s, listed));
}

static void test_public_takes_any_name(void **state)
{
        struct settings s = { .exposure = EXPOSURE_PUBLIC };

        (void)state;
        assert_true(guard_host_allowed(&s, "any.example"));
}

static void test_nothing_listed(void **state)
{
        struct settings s = { .exposure = EXPOSURE_PRIVATE };

        (void)state;
        assert_true(guard_host_allowed(&s, "localhost"));
        assert_false(guard_host_allowed(&s, "one.example"));
        s.allowed_hostnames = " ,, ";
        s.public_url = "no-scheme.example";
        assert_false(guard_host_allowed(&s, "no-scheme.example"));
        s.listen_host = "";
        assert_false(guard_host_allowed(&s, ""));
        assert_false(guard_host_allowed(&s, ":3100"));
}

static void test_origins(void **state)
{
        static const struct {
                const char *origin, *host;
                bool allowed;
        } cases[] = {
                { "http://localhost:3100", "localhost:3100", true },
                { "https://localhost:3100", "localhost:3100", true },
                { "HTTP://LOCALHOST:3100", "localhost:3100", true },
                { "http://localhost:3101", "localhost:3100", false },
                { "http://localhost", "localhost:3100", false },
                { "http://localhost:3100.evil.example", "localhost:3100", false },
                { "http://evil.example", "localhost:3100", false },
                { "null", "localhost:3100", false },
                { "", "localhost:3100", false },
                { "ftp://localhost:3100", "localhost:3100", false },
                { "http://", "localhost:3100", false },
                { "https://berth.example/base", "localhost:3100", true },
                { "https://berth.example", "localhost:3100", false },
                { "https://berth.example/base.evil", "localhost:3100", false },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++)
                if (guard_origin_allowed(&private, cases[i].origin, cases[i].host) !=
                    cases[i].allowed)
                        fail_msg("%s for %s", cases[i].origin, cases[i].host);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_hosts),
                cmocka_unit_test(test_long_hosts),
                cmocka_unit_test(test_public_takes_any_name),
                cmocka_unit_test(test_nothing_listed),
                cmocka_unit_test(test_origins),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
