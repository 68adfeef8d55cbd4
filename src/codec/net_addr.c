/* The ranges are those of the IANA special-purpose registries (RFC 6890 and later) that are not
 * globally reachable, and multicast. For IPv6 only 2000::/3 was ever given out for the public
 * internet, so everything else is special without naming it. */
#include "codec/net_addr.h"

#include <arpa/inet.h>

struct range {
        uint8_t prefix[16];
        unsigned bits;
        const char *what;
};

static const struct range ranges_v4[] = {
        { { 0 }, 8, "unspecified" },
        { { 10 }, 8, "private" },
        { { 100, 64 }, 10, "carrier-grade NAT" },
        { { 127 }, 8, "loopback" },
        { { 169, 254 }, 16, "link-local" },
        { { 172, 16 }, 12, "private" },
        { { 192, 0, 0 }, 24, "reserved" },
        { { 192, 0, 2 }, 24, "documentation" },
        { { 192, 31, 196 }, 24, "reserved" },
        { { 192, 52, 193 }, 24, "reserved" },
        { { 192, 88, 99 }, 24, "reserved" },
        { { 192, 168 }, 16, "private" },
        { { 192, 175, 48 }, 24, "reserved" },
        { { 198, 18 }, 15, "benchmarking" },
        { { 198, 51, 100 }, 24, "documentation" },
        { { 203, 0, 113 }, 24, "documentation" },
        { { 224 }, 4, "multicast" },
        { { 240 }, 4, "reserved" },
};

static const struct range ranges_v6[] = {
        { { 0 }, 128, "unspecified" },
        { { [15] = 1 }, 128, "loopback" },
        { { 0x01 }, 64, "discard" },
        { { 0xfc }, 7, "unique local" },
        { { 0xfe, 0x80 }, 10, "link-local" },
        { { 0xfe, 0xc0 }, 10, "site-local" },
        { { 0xff }, 8, "multicast" },
        { { 0x20, 0x01, 0x0d, 0xb8 }, 32, "documentation" },
        { { 0x20, 0x01, 0x00 }, 23, "reserved" }, /* Teredo, benchmarking, ORCHID and others */
        { { 0x3f, 0xff }, 20, "documentation" },
        { { 0x5f }, 16, "segment routing" },
};

/* Addresses that carry an IPv4 address: where it begins. */
static const struct carrier {
        uint8_t prefix[12];
        unsigned bits, at;
        const char *what; /* the form itself is refused; NULL: only what it carries counts */
} carriers[] = {
        { { [10] = 0xff, [11] = 0xff }, 96, 12, "IPv4-mapped" },
        { { 0 }, 96, 12, "IPv4-compatible" },
        { { [8] = 0xff, [9] = 0xff }, 96, 12, "IPv4-translated" },
        { { 0x00, 0x64, 0xff, 0x9b }, 96, 12, NULL },
        { { 0x00, 0x64, 0xff, 0x9b, 0x00, 0x01 }, 48, 12, "local NAT64" },
        { { 0x20, 0x02 }, 16, 2, NULL },
};

static bool has_prefix(const uint8_t *bytes, const uint8_t *prefix, unsigned bits)
{
        unsigned whole = bits / 8, rest = bits % 8;

        if (memcmp(bytes, prefix, whole) != 0)
                return false;
        return rest == 0 || (bytes[whole] ^ prefix[whole]) >> (8 - rest) == 0;
}

static const char *find(const uint8_t *bytes, const struct range *ranges, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (has_prefix(bytes, ranges[i].prefix, ranges[i].bits))
                        return ranges[i].what;
        return NULL;
}

static const char *special_v4(const uint8_t *bytes)
{
        return find(bytes, ranges_v4, ARRAY_LEN(ranges_v4));
}

static const char *special_carried(const uint8_t *bytes, bool *ret_carries)
{
        for (size_t i = 0; i < ARRAY_LEN(carriers); i++) {
                const struct carrier *c = &carriers[i];
                const char *what;

                if (!has_prefix(bytes, c->prefix, c->bits))
                        continue;
                *ret_carries = true;
                what = special_v4(bytes + c->at);
                return what ? what : c->what;
        }
        *ret_carries = false;
        return NULL;
}

/* ISATAP puts the IPv4 address of an interface behind a mark in any prefix. */
static const char *special_isatap(const uint8_t *bytes)
{
        static const uint8_t mark[] = { 0x00, 0x00, 0x5e, 0xfe };

        if ((bytes[8] & 0xfd) != 0 || memcmp(bytes + 9, mark + 1, 3) != 0)
                return NULL;
        return special_v4(bytes + 12);
}

static const char *special_v6(const uint8_t *bytes)
{
        const char *what = find(bytes, ranges_v6, ARRAY_LEN(ranges_v6));
        bool carries;

        if (what)
                return what;
        what = special_carried(bytes, &carries);
        if (what || carries)
                return what;
        return bytes[0] >> 5 != 1 ? "reserved" : special_isatap(bytes);
}

const char *net_addr_special(const struct net_addr *a)
{
        return a->is_v6 ? special_v6(a->bytes) : special_v4(a->bytes);
}

bool net_addr_parse(const char *text, size_t len, struct net_addr *ret)
{
        char copy[NET_ADDR_TEXT], again[NET_ADDR_TEXT];

        *ret = (struct net_addr){ 0 };
        if (len == 0 || len >= sizeof(copy) || memchr(text, '\0', len))
                return false;
        memcpy(copy, text, len);
        copy[len] = '\0';
        ret->is_v6 = strchr(copy, ':') != NULL;
        if (inet_pton(ret->is_v6 ? AF_INET6 : AF_INET, copy, ret->bytes) != 1)
                return false;
        net_addr_format(ret, again);
        return streq(copy, again);
}

/* A number as inet_aton() takes it: decimal, 0-octal, 0x-hexadecimal; its digits need not be good
 * ones, for some parsers are more generous than others. */
static bool part_is_number(const char *p, size_t len)
{
        size_t i = 0;

        if (len == 0)
                return false;
        if (len >= 2 && p[0] == '0' && (p[1] | 0x20) == 'x') {
                for (i = 2; i < len && hex_digit(p[i]) >= 0; i++)
                        ;
                return i == len;
        }
        while (i < len && p[i] >= '0' && p[i] <= '9')
                i++;
        return i == len;
}

bool net_addr_is_numeric(const char *text, size_t len)
{
        size_t last;

        if (memchr(text, ':', len))
                return true;
        if (len > 0 && text[len - 1] == '.')
                len--;
        for (last = len; last > 0 && text[last - 1] != '.'; last--)
                ;
        /* No top-level domain is a number, so the last part decides. */
        return part_is_number(text + last, len - last);
}

void net_addr_format(const struct net_addr *a, char ret[NET_ADDR_TEXT])
{
        if (!inet_ntop(a->is_v6 ? AF_INET6 : AF_INET, a->bytes, ret, NET_ADDR_TEXT))
                ret[0] = '\0';
}

bool net_addr_equal(const struct net_addr *a, const struct net_addr *b)
{
        return a->is_v6 == b->is_v6 && memcmp(a->bytes, b->bytes, a->is_v6 ? 16 : 4) == 0;
}
