#include "test.h"

#include "codec/net_addr.h"

static void test_public_and_special(void **state)
{
        static const struct {
                const char *text, *what;
        } table[] = {
                { "1.1.1.1", NULL },
                { "9.255.255.255", NULL },
                { "11.0.0.0", NULL },
                { "100.63.255.255", NULL },
                { "100.128.0.0", NULL },
                { "126.255.255.255", NULL },
                { "128.0.0.0", NULL },
                { "169.253.255.255", NULL },
                { "169.255.0.0", NULL },
                { "172.15.255.255", NULL },
                { "172.32.0.0", NULL },
                { "192.167.255.255", NULL },
                { "192.169.0.0", NULL },
                { "198.17.255.255", NULL },
                { "198.20.0.0", NULL },
                { "223.255.255.255", NULL },
                { "2606:4700:4700::1111", NULL },
                { "2001:200::1", NULL },
                { "2a00:1450:4001::1", NULL },
                { "64:ff9b::101:101", NULL },
                { "2002:101:101::1", NULL },
                { "0.0.0.0", "unspecified" },
                { "0.1.2.3", "unspecified" },
                { "10.0.0.0", "private" },
                { "10.255.255.255", "private" },
                { "100.64.0.0", "carrier-grade NAT" },
                { "100.127.255.255", "carrier-grade NAT" },
                { "127.0.0.1", "loopback" },
                { "127.255.255.255", "loopback" },
                { "169.254.169.254", "link-local" },
                { "172.16.0.0", "private" },
                { "172.31.255.255", "private" },
                { "192.0.0.8", "reserved" },
                { "192.0.2.1", "documentation" },
                { "192.88.99.1", "reserved" },
                { "192.168.0.0", "private" },
                { "192.168.255.255", "private" },
                { "198.18.0.0", "benchmarking" },
                { "198.19.255.255", "benchmarking" },
                { "198.51.100.7", "documentation" },
                { "203.0.113.7", "documentation" },
                { "224.0.0.1", "multicast" },
                { "239.255.255.255", "multicast" },
                { "240.0.0.1", "reserved" },
                { "255.255.255.255", "reserved" },
                { "::", "unspecified" },
                { "::1", "loopback" },
                { "::ffff:127.0.0.1", "loopback" },
                { "::ffff:10.1.2.3", "private" },
                { "::ffff:8.8.8.8", "IPv4-mapped" },
                { "::10.1.2.3", "private" },
                { "::8.8.8.8", "IPv4-compatible" },
                { "::ffff:0:a01:203", "private" },
                { "::ffff:0:808:808", "IPv4-translated" },
                { "64:ff9b::a00:1", "private" },
                { "64:ff9b::7f00:1", "loopback" },
                { "64:ff9b::a9fe:a9fe", "link-local" },
                { "64:ff9b:1::808:808", "local NAT64" },
                { "2002:a00:1::1", "private" },
                { "2002:7f00:1::", "loopback" },
                { "2002:a9fe:a9fe::1", "link-local" },
                { "2001::1", "reserved" },
                { "2001:0:4136:e378:8000:63bf:3fff:fdd2", "reserved" },
                { "2001:2::1", "reserved" },
                { "2001:20::1", "reserved" },
                { "2001:db8::1", "documentation" },
                { "3fff::1", "documentation" },
                { "100::1", "discard" },
                { "fc00::1", "unique local" },
                { "fd12:3456::1", "unique local" },
                { "fe80::1", "link-local" },
                { "febf::1", "link-local" },
                { "fec0::1", "site-local" },
                { "ff02::1", "multicast" },
                { "4000::1", "reserved" },
                { "200::1", "reserved" },
                { "2600:1f00::5efe:a00:1", "private" },
                { "2600:1f00::200:5efe:c0a8:101", "private" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                const char *what;
                struct net_addr a;

                if (!net_addr_parse(table[i].text, strlen(table[i].text), &a))
                        fail_msg("%s was not taken", table[i].text);
                what = net_addr_special(&a);
                if (table[i].what) {
                        if (!what)
                                fail_msg("%s is not %s", table[i].text, table[i].what);
                        else
                                assert_string_equal(what, table[i].what);
                } else if (what) {
                        fail_msg("%s is %s", table[i].text, what);
                }
        }
}

static void test_only_one_spelling_is_an_address(void **state)
{
        static const char *const others[] = {
                "",
                "1",
                "2130706433",
                "0x7f000001",
                "017700000001",
                "127.1",
                "127.0.1",
                "0177.0.0.1",
                "127.0.0.01",
                "0x7f.1",
                "127.0.0.1.",
                "127.0.0.0x1",
                "4294967296",
                "256.1.1.1",
                "::0001",
                "0:0:0:0:0:0:0:1",
                "::FFFF:1.2.3.4",
                "FE80::1",
                "fe80::1%eth0",
                "fe80::1%25eth0",
                "[::1]",
                "::ffff:7f00:1",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(others); i++) {
                struct net_addr a;

                if (net_addr_parse(others[i], strlen(others[i]), &a))
                        fail_msg("'%s' was taken", others[i]);
                if (*others[i] && !net_addr_is_numeric(others[i], strlen(others[i])))
                        fail_msg("'%s' passes for a name", others[i]);
        }
        assert_false(net_addr_parse("127.0.0.1\0x", 11, &(struct net_addr){ 0 }));
}

static void test_names_are_not_numeric(void **state)
{
        static const char *const names[] = {
                "example.com", "1.2.3.4.example.com", "0x7f.de", "1e100.net", "a1", "3com",
                "0xg",         "dead.beef",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (net_addr_is_numeric(names[i], strlen(names[i])))
                        fail_msg("'%s' was taken for an address", names[i]);
}

static void test_same_address(void **state)
{
        struct net_addr a, b;

        (void)state;
        assert_true(net_addr_parse("1.2.3.4", 7, &a));
        assert_true(net_addr_parse("1.2.3.4", 7, &b));
        assert_true(net_addr_equal(&a, &b));
        b.bytes[3]++;
        assert_false(net_addr_equal(&a, &b));
        b.bytes[3]--;
        b.is_v6 = true;
        assert_false(net_addr_equal(&a, &b));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_public_and_special),
                cmocka_unit_test(test_only_one_spelling_is_an_address),
                cmocka_unit_test(test_names_are_not_numeric),
                cmocka_unit_test(test_same_address),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
