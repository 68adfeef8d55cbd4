/* Which addresses of the operator's own network may be reached. */
#include "codec/private_hosts.h"

#include <stdio.h>

#include "codec/host_pattern.h"

int private_hosts_parse(const char *text, struct private_hosts *ret, struct err *err)
{
        struct private_hosts list = { 0 };

        for (const char *at = text; *at; at += *at == ',') {
                CLEAN(err_done) struct err why = { 0 };
                struct host_target target;
                size_t len;

                at += strspn(at, " \t");
                len = strcspn(at, ",");
                while (len > 0 && (at[len - 1] == ' ' || at[len - 1] == '\t'))
                        len--;
                if (list.n == PRIVATE_HOSTS_MAX)
                        return err_set(err, ERR_INVALID, "more than %d entries", PRIVATE_HOSTS_MAX);
                if (host_target_parse(at, len, 0, &target, &why) < 0)
                        return err_set(err, ERR_INVALID, "'%.*s': %s", (int)len, at, why.msg);
                if (!target.is_addr)
                        return err_set(err, ERR_INVALID,
                                       "'%.*s' is a name; write the address that it has", (int)len,
                                       at);
                list.at[list.n++] = (struct private_host){ target.addr, target.port };
                at += strcspn(at, ",");
        }
        *ret = list;
        return 0;
}

const char *private_hosts_refusal(const struct private_hosts *list, const struct net_addr *addr,
                                  uint16_t port)
{
        for (size_t i = 0; list && i < list->n; i++)
                if (list->at[i].port == port && net_addr_equal(&list->at[i].addr, addr))
                        return NULL;
        return net_addr_special(addr);
}

void private_host_format(const struct net_addr *addr, uint16_t port, char ret[PRIVATE_HOST_TEXT])
{
        char text[NET_ADDR_TEXT];

        net_addr_format(addr, text);
        (void)snprintf(ret, PRIVATE_HOST_TEXT, addr->is_v6 ? "[%s]:%u" : "%s:%u", text, port);
}
