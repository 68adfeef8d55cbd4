#include "test.h"

#include "codec/host_pattern.h"

#define LABEL_63 "a23456789012345678901234567890123456789012345678901234567890123"

static void test_targets(void **state)
{
        static const struct {
                const char *text, *name;
                uint16_t port;
        } table[] = {
                { "example.com:443", "example.com", 443 },
                { "EXAMPLE.Com", "example.com", 80 },
                { "a-b_c.example:65535", "a-b_c.example", 65535 },
                { "xn--bcher-kva.example:1", "xn--bcher-kva.example", 1 },
                { LABEL_63 ".de", LABEL_63 ".de", 80 },
                { "localhost", "localhost", 80 },
                { "1.1.1.1:53", "1.1.1.1", 53 },
                { "[2606:4700::1]:443", "2606:4700::1", 443 },
                { "[::1]", "::1", 80 },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                CLEAN(err_done) struct err err = { 0 };
                struct host_target t;

                if (host_target_parse(table[i].text, strlen(table[i].text), 80, &t, &err) < 0)
                        fail_msg("%s: %s", table[i].text, err.msg);
                assert_string_equal(t.name, table[i].name);
                assert_int_equal(t.port, table[i].port);
        }
}

static void test_hostile_targets(void **state)
{
        static const struct {
                const char *text;
                size_t len; /* 0: to its end */
        } table[] = {
                { "", 0 },
                { ":443", 0 },
                { "example.com.", 0 },
                { "example.com.:443", 0 },
                { ".example.com", 0 },
                { "example..com", 0 },
                { ".", 0 },
                { "user@example.com", 0 },
                { "user:pw@example.com:443", 0 },
                { "example.com:443@evil.example", 0 },
                { "example.com%00.evil.example", 0 },
                { "example.com\0.evil.example", 25 },
                { "example.com\r\nHost: evil", 0 },
                { "example.com ", 0 },
                { " example.com", 0 },
                { "example.com\t", 0 },
                { "exa\x7fmple.com", 0 },
                { "b\xc3\xbc"
                  "cher.example",
                  0 },
                { "example\xe3\x80\x82"
                  "com",
                  0 }, /* an ideographic full stop */
                { "-example.com", 0 },
                { "example-.com", 0 },
                { "example.com-", 0 },
                { "a" LABEL_63 ".de", 0 },
                { "*.example.com", 0 },
                { "example.com/path", 0 },
                { "example.com?x", 0 },
                { "example.com#x", 0 },
                { "example.com\\x", 0 },
                { "example.com:0", 0 },
                { "example.com:00443", 0 },
                { "example.com:65536", 0 },
                { "example.com:99999", 0 },
                { "example.com:", 0 },
                { "example.com:+80", 0 },
                { "example.com:4 3", 0 },
                { "example.com:443:443", 0 },
                { "2130706433", 0 },
                { "0x7f000001", 0 },
                { "0x7f.0.0.1:80", 0 },
                { "0177.0.0.1", 0 },
                { "127.1", 0 },
                { "127.0.0.1.", 0 },
                { "1.1.1.1.", 0 },
                { "001.1.1.1", 0 },
                { "::1", 0 },
                { "::1:443", 0 },
                { "[::1", 0 },
                { "[::1]x", 0 },
                { "[::1]443", 0 },
                { "[example.com]", 0 },
                { "[127.0.0.1]:80", 0 },
                { "[fe80::1%25eth0]:80", 0 },
                { "[fe80::1%eth0]:80", 0 },
                { "[0:0:0:0:0:0:0:1]:80", 0 },
                { "[::ffff:7f00:1]:80", 0 },
                { "[]:80", 0 },
                { "]", 0 },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                size_t len = table[i].len ? table[i].len : strlen(table[i].text);
                CLEAN(err_done) struct err err = { 0 };
                struct host_target t;

                if (host_target_parse(table[i].text, len, 80, &t, &err) != ERR_INVALID)
                        fail_msg("'%s' was taken", table[i].text);
                assert_true(err.msg[0]);
        }
}

static void test_a_port_may_be_required(void **state)
{
        struct host_target t;

        (void)state;
        assert_int_equal(host_target_parse("example.com", 11, 0, &t, NULL), ERR_INVALID);
        assert_int_equal(host_target_parse("example.com:22", 14, 0, &t, NULL), 0);
}

static void test_length_limits(void **state)
{
        char name[300];
        struct host_target t;

        (void)state;
        for (size_t i = 0; i < sizeof(name); i++)
                name[i] = i % 50 == 49 ? '.' : 'a';
        assert_int_equal(host_target_parse(name, 253, 80, &t, NULL), 0);
        assert_int_equal(strlen(t.name), 253);
        assert_int_equal(host_target_parse(name, 254, 80, &t, NULL), ERR_INVALID);
}

static bool matches(const char *pattern, const char *target)
{
        CLEAN(err_done) struct err err = { 0 };
        struct host_pattern p;
        struct host_target t;

        if (host_pattern_parse(pattern, strlen(pattern), &p, &err) < 0)
                fail_msg("%s: %s", pattern, err.msg);
        assert_int_equal(host_target_parse(target, strlen(target), 0, &t, NULL), 0);
        return host_pattern_matches(&p, &t);
}

static void test_matching(void **state)
{
        (void)state;
        assert_true(matches("example.com", "example.com:443"));
        assert_true(matches("example.com", "EXAMPLE.COM:80"));
        assert_true(matches("Example.com", "example.com:80"));
        assert_false(matches("example.com", "example.com:8080"));
        assert_false(matches("example.com", "example.com:22"));
        assert_true(matches("example.com:8080", "example.com:8080"));
        assert_false(matches("example.com:8080", "example.com:443"));
        assert_false(matches("example.com", "www.example.com:443"));
        assert_false(matches("example.com", "example.comx:443"));
        assert_false(matches("example.com", "notexample.com:443"));
        assert_true(matches("*.example.com", "www.example.com:443"));
        assert_true(matches("*.example.com", "a.b.example.com:80"));
        assert_false(matches("*.example.com", "example.com:443"));
        assert_false(matches("*.example.com", "notexample.com:443"));
        assert_false(matches("*.example.com", "www.example.com.evil.net:443"));
        assert_true(matches("*.example.com:9000", "www.example.com:9000"));
        assert_false(matches("*.example.com:9000", "www.example.com:443"));
        assert_true(matches("1.1.1.1", "1.1.1.1:443"));
        assert_false(matches("1.1.1.1", "1.1.1.2:443"));
        assert_true(matches("[2606:4700::1]", "[2606:4700::1]:443"));
        assert_true(matches("[2606:4700::1]:53", "[2606:4700::1]:53"));
        assert_false(matches("[2606:4700::1]:53", "[2606:4700::1]:443"));
}

static void test_patterns_that_are_refused(void **state)
{
        static const char *const bad[] = {
                "",
                "*",
                "*.",
                "*.*.com",
                "*example.com",
                "www.*.com",
                "example.*",
                "*.1.1.1.1",
                "*.[::1]",
                "::1",
                "http://a.example",
                "a.example/",
                "a.example:",
                "a.example:*",
                "a.example:0",
                "a b",
                "user@a.example",
                "0x7f.1",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                struct host_pattern p;

                if (host_pattern_parse(bad[i], strlen(bad[i]), &p, NULL) != ERR_INVALID)
                        fail_msg("'%s' was taken", bad[i]);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_targets),
                cmocka_unit_test(test_hostile_targets),
                cmocka_unit_test(test_a_port_may_be_required),
                cmocka_unit_test(test_length_limits),
                cmocka_unit_test(test_matching),
                cmocka_unit_test(test_patterns_that_are_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
