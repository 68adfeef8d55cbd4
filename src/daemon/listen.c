/* Opens the daemon's sockets, and says where it listens. */
#include "daemon/listen.h"

#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>

#define SOCKET_NAME "berth.sock"

/* The usual limit of 1024 descriptors is less than the server would take, and a daemon that spends
 * them all on connections cannot open a database or a pipe any more: so raise it as far as is of
 * use, and leave a part to places and operations. */
struct listen_capacity listen_capacity(void)
{
        const rlim_t most = 65536,
                     kept = 64; /* kept is never spent: rt/reserve.h and the server's */
        struct rlimit limit = { 1024, 1024 };

        if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < most) {
                rlim_t before = limit.rlim_cur;

                limit.rlim_cur = MIN(limit.rlim_max, most);
                if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
                        limit.rlim_cur = before;
        }
        rlim_t room = limit.rlim_cur > 2 * kept ? limit.rlim_cur - kept : limit.rlim_cur / 2;
        return (struct listen_capacity){
                .connections = (unsigned)MAX(MIN(room / 2, (rlim_t)4096), (rlim_t)1),
                .carried = (unsigned)MAX(MIN(room / 4, (rlim_t)4096), (rlim_t)1),
        };
}

/* Where a command on this machine reaches us: an address of all interfaces is also loopback's. */
static const char *own_url(const char *host, unsigned port, struct arena *arena)
{
        if (streq(host, "0.0.0.0"))
                host = "127.0.0.1";
        else if (streq(host, "::"))
                host = "::1";
        return arena_printf(arena, strchr(host, ':') ? "http://[%s]:%u" : "http://%s:%u", host,
                            port);
}

int listen_open(const struct config *config, struct http_server *http, struct arena *arena,
                unsigned *ret_port, const char **ret_url, struct err *err)
{
        char *path = arena_printf(arena, "%s/" SOCKET_NAME, config->data_dir);
        struct sockaddr_storage address;
        socklen_t len = sizeof(address);
        int fd, r;

        *ret_port = 0;
        *ret_url = NULL;
        r = http_listen_unix(path, 0600, &fd, err);
        if (r == ERR_INVALID)
                r = err_wrap(err, r, "choose a shorter data directory with --data");
        if (r >= 0)
                r = http_server_listen(http, fd, err);
        if (r < 0 || config->is_private)
                return r;
        r = http_listen_tcp(config->listen, &fd, err);
        if (r < 0)
                return r;
        if (getsockname(fd, (struct sockaddr *)&address, &len) < 0)
                len = 0;
        /* The port is at the same place for both families. */
        *ret_port = ntohs(((struct sockaddr_in *)&address)->sin_port);
        *ret_url = own_url(config->settings.listen_host, *ret_port, arena);
        return http_server_listen(http, fd, err);
}

void listen_announce(const struct config *config, unsigned port)
{
        const char *host = config->settings.listen_host;
        bool v6 = strchr(host, ':') != NULL;

        if (config->is_private)
                printf("listening on unix:%s/" SOCKET_NAME "\n", config->data_dir);
        else
                printf("listening on http://%s%s%s:%u\n", v6 ? "[" : "", host, v6 ? "]" : "", port);
        fflush(stdout);
}
