#include "test.h"

#include "core/exec/egress.h"

static int read_hosts(const char *hosts, struct err *err)
{
        CLEAN(cleanup_free)
        char *config = xasprintf("{\"network\":\"allowlist\",\"allowedHosts\":%s}", hosts);
        struct egress_policy *policy;
        int r = egress_policy_read(config, &policy, err);

        assert_int_equal(policy != NULL, r >= 0);
        egress_policy_free(policy);
        return r;
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
                int r = read_hosts(table[i].hosts, &err);

                assert_int_equal(r, table[i].complaint ? ERR_UNPROCESSABLE : 0);
                if (table[i].complaint && !strstr(err.msg, table[i].complaint))
                        fail_msg("%s: %s", table[i].hosts, err.msg);
        }
}

static void test_how_many_there_may_be(void **state)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        (void)state;
        buf_puts(&b, "[\"a.example\"");
        for (int i = 1; i < EGRESS_MAX_HOSTS; i++)
                buf_puts(&b, ",\"a.example\"");
        buf_puts(&b, "]");
        assert_int_equal(read_hosts(buf_str(&b), NULL), 0);
        b.len--;
        buf_puts(&b, ",\"a.example\"]");
        assert_int_equal(read_hosts(buf_str(&b), NULL), ERR_UNPROCESSABLE);
}

static json_t *parse(const char *text)
{
        json_t *v;

        assert_int_equal(json_parse(text, strlen(text), &v, NULL), 0);
        return v;
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
