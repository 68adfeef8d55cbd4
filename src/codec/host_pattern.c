/* Which texts are host names or patterns, and which names a pattern matches. */
#include "codec/host_pattern.h"

static int bad_host(struct err *err, const char *why)
{
        return err_set(err, ERR_INVALID, "%s", why);
}

static bool is_label_byte(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
}

static char lower_byte(char c)
{
        return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

/* Why a byte that is none of a label's cannot stand in a name. */
static const char *why_not(char c)
{
        if ((signed char)c < 0)
                return "the name is not ASCII; write it in its xn-- form";
        if (c == '@')
                return "a user name has no place in it";
        if (c == '%')
                return "there are no escapes or zones in a host name";
        if (c == '*')
                return "a '*' stands only in front of a whole name: write each host, "
                       "example.com, or *.example.com for all names below it";
        return "the name has a byte that host names do not have";
}

/* Copy a name in lower case and check each label. */
static int read_name(const char *text, size_t len, char ret[HOST_NAME_SIZE], struct err *err)
{
        size_t label = 0;

        if (len == 0)
                return bad_host(err, "there is no name");
        if (len >= HOST_NAME_SIZE)
                return bad_host(err, "the name is longer than 253 bytes");
        for (size_t i = 0; i <= len; i++) {
                char c = i < len ? lower_byte(text[i]) : '.';

                if (c != '.' && !is_label_byte(c))
                        return bad_host(err, why_not(c));
                if (c == '.' && label == 0)
                        return bad_host(err, i == len ? "the name ends in a dot"
                                                      : "the name has an empty part");
                if (c == '-' && (label == 0 || i + 1 == len || text[i + 1] == '.'))
                        return bad_host(err, "a part of the name begins or ends with '-'");
                label = c == '.' ? 0 : label + 1;
                if (label > 63)
                        return bad_host(err, "a part of the name is longer than 63 bytes");
                ret[i] = i < len ? c : '\0';
        }
        return 0;
}

static int read_host(const char *text, size_t len, struct host_target *ret, struct err *err)
{
        if (!net_addr_is_numeric(text, len))
                return read_name(text, len, ret->name, err);
        if (!net_addr_parse(text, len, &ret->addr))
                return bad_host(err, "it is an address in an unusual spelling");
        ret->is_addr = true;
        net_addr_format(&ret->addr, ret->name);
        return 0;
}

static int read_port(const char *text, size_t len, uint16_t *ret, struct err *err)
{
        unsigned port = 0;

        if (len == 0 || len > 5 || text[0] == '0')
                return bad_host(err, "the port is no number from 1 to 65535");
        for (size_t i = 0; i < len; i++) {
                if (text[i] < '0' || text[i] > '9')
                        return bad_host(err, "the port is no number from 1 to 65535");
                port = port * 10 + (unsigned)(text[i] - '0');
        }
        if (port > UINT16_MAX)
                return bad_host(err, "the port is no number from 1 to 65535");
        *ret = (uint16_t)port;
        return 0;
}

/* Split host and ":port"; an address of IPv6 stands in brackets. */
static int split_port(const char *text, size_t len, const char **ret_host, size_t *ret_len,
                      const char **ret_port, size_t *ret_port_len, struct err *err)
{
        const char *end = text + len, *colon;

        *ret_host = text;
        if (len > 0 && text[0] == '[') {
                const char *close = memchr(text, ']', len);

                if (!close)
                        return bad_host(err, "the bracket is not closed");
                *ret_host = text + 1;
                *ret_len = (size_t)(close - text) - 1;
                if (!memchr(*ret_host, ':', *ret_len))
                        return bad_host(err, "only IPv6 addresses stand in brackets");
                colon = close + 1 < end ? close + 1 : NULL;
                if (colon && *colon != ':')
                        return bad_host(err, "there is something behind the bracket");
        } else {
                colon = memchr(text, ':', len);
                *ret_len = colon ? (size_t)(colon - text) : len;
        }
        *ret_port = colon ? colon + 1 : NULL;
        *ret_port_len = colon ? (size_t)(end - colon) - 1 : 0;
        return 0;
}

int host_target_parse(const char *text, size_t len, uint16_t port, struct host_target *ret,
                      struct err *err)
{
        const char *host = NULL, *port_text = NULL;
        size_t host_len = 0, port_len = 0;
        int r = split_port(text, len, &host, &host_len, &port_text, &port_len, err);

        *ret = (struct host_target){ .port = port };
        if (r >= 0)
                r = read_host(host, host_len, ret, err);
        if (r >= 0 && port_text)
                r = read_port(port_text, port_len, &ret->port, err);
        if (r >= 0 && ret->port == 0)
                r = bad_host(err, "the port is missing");
        return r;
}

int host_pattern_parse(const char *text, size_t len, struct host_pattern *ret, struct err *err)
{
        bool any_below = len >= 2 && text[0] == '*' && text[1] == '.';
        struct host_target t;
        bool has_port;

        if (any_below) {
                text += 2;
                len -= 2;
        }
        has_port =
                len > 0 && (text[0] == '[' ? text[len - 1] != ']' : memchr(text, ':', len) != NULL);
        int r = host_target_parse(text, len, 80, &t, err);
        if (r < 0)
                return r;
        if (any_below && t.is_addr)
                return bad_host(err, "there is nothing below an address");
        *ret = (struct host_pattern){ .any_below = any_below, .port = has_port ? t.port : 0 };
        memcpy(ret->name, t.name, sizeof(ret->name));
        return 0;
}

bool host_pattern_matches(const struct host_pattern *p, const struct host_target *t)
{
        size_t have = strlen(t->name), want = strlen(p->name);

        if (p->port ? t->port != p->port : t->port != 80 && t->port != 443)
                return false;
        if (!p->any_below)
                return streq(p->name, t->name);
        return !t->is_addr && have > want + 1 && t->name[have - want - 1] == '.' &&
               streq(t->name + have - want, p->name);
}
