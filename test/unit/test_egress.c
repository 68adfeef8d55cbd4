#include "test.h"

#include "core/egress.h"

static json_t *parse(const char *text)
{
        json_t *v;

        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        return v;
}

static void test_which_lists_are_fine(void **state)
{
        static const struct {
                const char *hosts, *complaint;
        } table[] = {
                { "[]", NULL },
                { "[\"example.com\",\"*.example.com:8443\",\"1.1.1.1\",\"[2606:4700::1]:53\"]",
                  NULL },
                { "\"example.com\"", "is no list" },
                { "{}", "is no list" },
                { "[\"a.example\",7]", "[1] is no string" },
                { "[\"https://a.example/\"]", "[0] is no host such as" },
                { "[\"a.example\",\"b.example\",\"*\"]", "[2] is no host such as" },
                { "[\"a.example.\"]", "ends in a dot" },
                { "[\"0x7f.1\"]", "unusual spelling" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                CLEAN(err_done) struct err err = { 0 };
                json_t *hosts = parse(table[i].hosts);
                int r = egress_check_hosts(hosts, &err);

                json_decref(hosts);
                assert_int_equal(r, table[i].complaint ? ERR_UNPROCESSABLE : 0);
                if (table[i].complaint && !strstr(err.msg, table[i].complaint))
                        fail_msg("%s: %s", table[i].hosts, err.msg);
        }
        assert_int_equal(egress_check_hosts(NULL, NULL), 0);
}

static void test_how_many_there_may_be(void **state)
{
        json_t *hosts = json_array();

        (void)state;
        for (int i = 0; i < EGRESS_MAX_HOSTS; i++)
                (void)json_array_append_new(hosts, json_string("a.example"));
        assert_int_equal(egress_check_hosts(hosts, NULL), 0);
        (void)json_array_append_new(hosts, json_string("a.example"));
        assert_int_equal(egress_check_hosts(hosts, NULL), ERR_UNPROCESSABLE);
        json_decref(hosts);
}

static void test_policies(void **state)
{
        struct egress_policy *policy;

        (void)state;
        assert_int_equal(egress_policy_read("{}", &policy, NULL), 0);
        assert_null(policy);
        assert_int_equal(egress_policy_read("{\"network\":\"none\"}", &policy, NULL), 0);
        assert_null(policy);
        assert_int_equal(egress_policy_read("{\"network\":\"allowlist\"}", &policy, NULL), 0);
        assert_non_null(policy);
        egress_policy_free(policy);
        assert_true(egress_policy_read("{\"network\":\"allowlist\",\"allowedHosts\":[\"a b\"]}",
                                       &policy, NULL) < 0);
        assert_null(policy);
        assert_true(egress_policy_read("{", &policy, NULL) < 0);
        assert_null(policy);
}

static void test_variables(void **state)
{
        json_t *with = parse("{\"network\":\"allowlist\"}"),
               *without = parse("{\"network\":\"none\"}");
        const char *const *list = egress_env(with);
        bool lower = false, not_local = false;

        (void)state;
        for (; *list; list++) {
                lower = lower || streq(*list, "https_proxy=http://127.0.0.1:3128");
                not_local = not_local || streq(*list, "NO_PROXY=localhost,127.0.0.1,::1");
        }
        assert_true(lower && not_local);
        assert_null(egress_env(without)[0]);
        json_decref(with);
        json_decref(without);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_which_lists_are_fine),
                cmocka_unit_test(test_how_many_there_may_be),
                cmocka_unit_test(test_policies),
                cmocka_unit_test(test_variables),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
