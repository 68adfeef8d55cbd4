/* Names and addresses as a client of the proxy writes them. What is taken has one spelling: reading
 * it back from what was understood gives the same; it is no address in disguise; and a resolver
 * that takes it for an address (getaddrinfo with AI_NUMERICHOST, the most generous one there is)
 * agrees on which. An address that the kernel would route to this machine is never public. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <sys/socket.h>

#include "codec/host_pattern.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

static void check_resolver(const struct host_target *t)
{
        struct addrinfo hints = { .ai_flags = AI_NUMERICHOST, .ai_socktype = SOCK_STREAM }, *found;

        if (getaddrinfo(t->name, NULL, &hints, &found) != 0) {
                check(!t->is_addr, "an address is one to the resolver");
                return;
        }
        check(t->is_addr, "no name is an address to the resolver");
        if (found->ai_family == AF_INET)
                check(memcmp(&((struct sockaddr_in *)(void *)found->ai_addr)->sin_addr,
                             t->addr.bytes, 4) == 0,
                      "the same IPv4 address");
        else
                check(memcmp(&((struct sockaddr_in6 *)(void *)found->ai_addr)->sin6_addr,
                             t->addr.bytes, 16) == 0,
                      "the same IPv6 address");
        freeaddrinfo(found);
}

static void check_target(const char *text, size_t len)
{
        struct host_target t, again;
        struct host_pattern p;
        char back[HOST_NAME_SIZE + 16];
        int n;

        if (host_target_parse(text, len, 80, &t, NULL) < 0)
                return;
        check(t.port > 0 && strlen(t.name) < HOST_NAME_SIZE, "bounded");
        for (const char *c = t.name; *c; c++)
                check(*c > ' ' && *c < 0x7f && *c != '@' && *c != '%', "only what names have");
        n = snprintf(back, sizeof(back), t.is_addr && t.addr.is_v6 ? "[%s]:%u" : "%s:%u", t.name,
                     t.port);
        check(host_target_parse(back, (size_t)n, 0, &again, NULL) == 0 &&
                      streq(again.name, t.name) && again.port == t.port &&
                      again.is_addr == t.is_addr,
              "what was understood reads back the same");
        check(host_pattern_parse(back, (size_t)n, &p, NULL) == 0 && host_pattern_matches(&p, &t),
              "a target is a pattern of itself");
        check_resolver(&t);
}

static void check_address(const uint8_t *data, size_t size)
{
        struct net_addr a = { .is_v6 = size >= 16 }, again;
        char text[NET_ADDR_TEXT];
        struct in6_addr v6;

        if (size < 4)
                return;
        memcpy(a.bytes, data, a.is_v6 ? 16 : 4);
        net_addr_format(&a, text);
        check(net_addr_parse(text, strlen(text), &again) && net_addr_equal(&a, &again),
              "an address reads back");
        check(net_addr_is_numeric(text, strlen(text)), "an address looks like one");
        if (net_addr_special(&a))
                return;
        check(a.is_v6 || (a.bytes[0] != 10 && a.bytes[0] != 127 && a.bytes[0] != 0), "public");
        memcpy(&v6, a.bytes, 16);
        if (a.is_v6)
                check(!IN6_IS_ADDR_LOOPBACK(&v6) && !IN6_IS_ADDR_LINKLOCAL(&v6) &&
                              !IN6_IS_ADDR_MULTICAST(&v6) && !IN6_IS_ADDR_V4MAPPED(&v6) &&
                              !IN6_IS_ADDR_UNSPECIFIED(&v6) && !IN6_IS_ADDR_SITELOCAL(&v6),
                      "public");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct host_pattern p;

        check_target((const char *)data, size);
        check_address(data, size);
        (void)host_pattern_parse((const char *)data, size, &p, NULL);
        return 0;
}
