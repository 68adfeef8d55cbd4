#include "test.h"

#include "codec/private_hosts.h"

static void test_refusals(void **state)
{
        static const struct {
                const char *addr;
                uint16_t port;
                bool is_allowed;
        } table[] = {
                { "8.8.8.8", 53, true },          { "10.0.0.5", 8000, true },
                { "10.0.0.5", 8001, false },      { "10.0.0.6", 8000, false },
                { "fd00::1", 8080, true },        { "fd00::2", 8080, false },
                { "127.0.0.1", 11434, true },     { "::ffff:127.0.0.1", 11434, false },
                { "169.254.169.254", 80, false },
        };
        struct private_hosts list;

        (void)state;
        assert_int_equal(
                private_hosts_parse("10.0.0.5:8000, [fd00::1]:8080 ,127.0.0.1:11434", &list, NULL),
                0);
        assert_int_equal(list.n, 3);
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct net_addr addr;
                bool allowed;

                assert_true(net_addr_parse(table[i].addr, strlen(table[i].addr), &addr));
                allowed = !private_hosts_refusal(&list, &addr, table[i].port);
                if (allowed != table[i].is_allowed)
                        fail_msg("%s port %u", table[i].addr, table[i].port);
                assert_int_equal(!private_hosts_refusal(NULL, &addr, table[i].port),
                                 i == 0); /* without a list only the public one */
        }
}

static void test_bad_lists(void **state)
{
        static const char *const table[] = { "10.0.0.5",       "localhost:80", "10.0.0.5:0",
                                             "10.0.0.5:65536", "fd00::1:80",   "10.0.0.5:80,,",
                                             "10.0.0.0/8:80",  "*:80" };
        struct private_hosts list = { .n = 7 };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                CLEAN(err_done) struct err err = { 0 };

                if (private_hosts_parse(table[i], &list, &err) != ERR_INVALID)
                        fail_msg("taken: %s", table[i]);
                assert_non_null(err.msg);
        }
        assert_int_equal(list.n, 7);
        assert_int_equal(private_hosts_parse("", &list, NULL), 0);
        assert_int_equal(list.n, 0);
}

static void test_format(void **state)
{
        static const char *const table[] = { "10.0.0.5:8000", "[fd00::1]:1" };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct private_hosts list;
                char text[PRIVATE_HOST_TEXT];

                assert_int_equal(private_hosts_parse(table[i], &list, NULL), 0);
                private_host_format(&list.at[0].addr, list.at[0].port, text);
                assert_string_equal(text, table[i]);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_refusals),
                cmocka_unit_test(test_bad_lists),
                cmocka_unit_test(test_format),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
