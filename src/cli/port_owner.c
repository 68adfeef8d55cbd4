/* Decides which user owns the default port of the daemon. While no daemon has the port, any user of
 * this machine may take it, and would get whatever is sent there, keys and values of secrets
 * first. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <unistd.h>

#include "cli/command.h"

#define LISTENING 0x0a /* as TCP_LISTEN of the kernel */

struct search {
        unsigned port;
        bool found, is_exact; /* a listener on the very address is the one that answers */
        uid_t uid;
};

/* Whether a connection to 127.0.0.1 would come to it. */
static bool takes_loopback(const struct in6_addr *a, bool *ret_exact)
{
        in_addr_t v4;

        memcpy(&v4, &a->s6_addr[12], sizeof(v4));
        *ret_exact = IN6_IS_ADDR_V4MAPPED(a) && v4 == htonl(INADDR_LOOPBACK);
        return *ret_exact || IN6_IS_ADDR_UNSPECIFIED(a) ||
               (IN6_IS_ADDR_V4MAPPED(a) && v4 == INADDR_ANY);
}

/* A line of /proc/net/tcp or tcp6: an address is words of the machine's own byte order. */
static void look_at(struct search *s, const char *line)
{
        uint32_t words[4] = { 0, 0, htonl(0xffff) };
        unsigned port, state, uid;
        struct in6_addr address;
        char text[33];
        bool exact;

        if (sscanf(line, " %*d: %32[0-9A-F]:%x %*[0-9A-F]:%*x %x %*s %*s %*s %u", text, &port,
                   &state, &uid) != 4 ||
            state != LISTENING || port != s->port)
                return;
        if (strlen(text) == 8
                    ? sscanf(text, "%8x", &words[3]) != 1
                    : sscanf(text, "%8x%8x%8x%8x", &words[0], &words[1], &words[2], &words[3]) != 4)
                return;
        memcpy(&address, words, sizeof(address));
        if (!takes_loopback(&address, &exact) || (s->is_exact && !exact))
                return;
        *s = (struct search){ .port = s->port, .found = true, .is_exact = exact, .uid = uid };
}

static void look_through(struct search *s, const char *path)
{
        FILE *file = fopen(path, "re");
        char line[512];

        while (file && fgets(line, sizeof(line), file))
                look_at(s, line);
        if (file)
                (void)fclose(file);
}

int cli_check_port(unsigned port, struct err *err)
{
        struct search s = { .port = port };

        look_through(&s, "/proc/net/tcp");
        look_through(&s, "/proc/net/tcp6");
        if (!s.found || s.uid == 0 || s.uid == geteuid())
                return s.found;
        return err_set(err, ERR_FORBIDDEN,
                       "port %u of this machine is user %u's, who is neither you nor root; if that "
                       "is your daemon, say so with --api-url http://127.0.0.1:%u or BERTH_API_URL",
                       port, (unsigned)s.uid, port);
}
