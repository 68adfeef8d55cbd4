/* bench-load: keep a daemon busy over N keep-alive connections, and say how fast it answered.
 *
 *   bench-load [OPTION...] get PATH          one GET after the other on each connection
 *   bench-load [OPTION...] cycle ENV_ID      acquire a lease, release it, and so on
 *   bench-load [OPTION...] exec LEASE_ID     run `true` in the lease, and so on
 *   bench-load [OPTION...] echo LEASE_ID     the same with a command that prints a word
 *   bench-load [OPTION...] run ENV_ID        acquire a lease, run `true` in it, release it
 *
 *   --address HOST:PORT   numeric IPv4 (default 127.0.0.1:3100)
 *   --connections N       default 1
 *   --seconds S           how long to measure (default 2)
 *   --warmup S            how long to run before (default 0.5)
 *   --count N             stop after so many as well (default: no limit)
 *
 * One thread and one epoll. A connection has one request under way; the next goes out when the
 * answer is complete, so the latency is what a caller sees. At the end every cycle under way is
 * finished: no lease stays behind. Answers need a Content-Length. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stats.h"

enum {
        MAX_CONNECTIONS = 1024,
        IN_SIZE = 256 * 1024,
        OUT_SIZE = 1024,
        ID_LEN = 36,
        MAX_ERRORS = 1000, /* a daemon that fails everything is not worth a busy loop */
        DRAIN_S = 10,
};

enum step { STEP_IDLE, STEP_GET, STEP_ACQUIRE, STEP_EXECUTE, STEP_ECHO, STEP_RELEASE };
enum mode { MODE_GET, MODE_CYCLE, MODE_EXEC, MODE_RUN, MODE_ECHO };

/* What each step but GET posts. The first step of a mode is about the target of the command line,
 * the others about the lease that was acquired. */
static const struct {
        const char *collection, *action, *body;
} posts[] = {
        [STEP_ACQUIRE] = { "environments", "leases", "{}" },
        [STEP_EXECUTE] = { "environment-leases", "execute", "{\"command\":\"/bin/true\"}" },
        [STEP_ECHO] = { "environment-leases", "execute",
                        "{\"command\":\"/bin/echo\",\"args\":[\"hello\"]}" },
        [STEP_RELEASE] = { "environment-leases", "release", "{}" },
};
static const enum step first_step[] = { STEP_GET, STEP_ACQUIRE, STEP_EXECUTE, STEP_ACQUIRE,
                                        STEP_ECHO };

struct connection {
        int fd;
        enum step step;
        int64_t began_ns; /* of the request, or of the cycle */
        size_t in_len;
        char lease[ID_LEN + 1];
        char *in;
};

struct load {
        struct sockaddr_in address;
        unsigned n_connections;
        enum mode mode;
        const char *target; /* path, environment or lease */
        int epoll;
        bool stopping;
        bool complained;
        struct stats stats;
        struct connection *connections;
};

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static void connection_open(struct load *load, struct connection *c)
{
        struct epoll_event event = { .events = EPOLLIN, .data.ptr = c };
        int on = 1;

        c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (c->fd < 0 ||
            connect(c->fd, (struct sockaddr *)&load->address, sizeof(load->address)) < 0)
                die("bench-load: connect");
        (void)setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
        c->in_len = 0;
        c->step = STEP_IDLE;
        if (epoll_ctl(load->epoll, EPOLL_CTL_ADD, c->fd, &event) < 0)
                die("bench-load: epoll_ctl");
}

/* Requests are far smaller than a socket's buffer, so a plain write goes out whole. */
static void send_request(struct load *load, struct connection *c, enum step step)
{
        char out[OUT_SIZE];
        int n;

        if (step == first_step[load->mode])
                c->began_ns = stats_now_ns();
        if (step == STEP_GET)
                n = snprintf(out, sizeof(out), "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n",
                             load->target);
        else
                n = snprintf(out, sizeof(out),
                             "POST /api/%s/%s/%s HTTP/1.1\r\nHost: localhost\r\n"
                             "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                             posts[step].collection,
                             step == first_step[load->mode] ? load->target : c->lease,
                             posts[step].action, strlen(posts[step].body), posts[step].body);
        if (n >= OUT_SIZE) {
                (void)fprintf(stderr, "bench-load: the target is too long\n");
                exit(2);
        }
        c->step = step;
        c->in_len = 0;
        if (send(c->fd, out, (size_t)n, MSG_NOSIGNAL) != n)
                load->stats.errors++; /* the closed connection shows up as readable */
}

static void next_operation(struct load *load, struct connection *c)
{
        if (load->stopping)
                c->step = STEP_IDLE;
        else
                send_request(load, c, first_step[load->mode]);
}

static void failed(struct load *load, struct connection *c, const char *why, const char *text)
{
        load->stats.errors++;
        if (!load->complained)
                (void)fprintf(stderr, "bench-load: %s: %.400s\n", why, text);
        load->complained = true;
        if (load->stats.errors > MAX_ERRORS)
                load->stopping = true;
        next_operation(load, c);
}

/* The id in {"environment":...,"lease":{"id":"..."...}...}. */
static bool find_lease_id(const char *body, char *ret)
{
        const char *p = strstr(body, "\"lease\":{");

        p = p ? strstr(p, "\"id\":\"") : NULL;
        if (!p || strlen(p + 6) < ID_LEN)
                return false;
        memcpy(ret, p + 6, ID_LEN);
        ret[ID_LEN] = '\0';
        return true;
}

static void answered(struct load *load, struct connection *c, int status, const char *body)
{
        if (status < 200 || status > 299) {
                failed(load, c, "refused", c->in);
        } else if (c->step == STEP_ACQUIRE) {
                if (find_lease_id(body, c->lease))
                        send_request(load, c, load->mode == MODE_RUN ? STEP_EXECUTE : STEP_RELEASE);
                else
                        failed(load, c, "no lease id in", body);
        } else if (c->step == STEP_EXECUTE && load->mode == MODE_RUN) {
                send_request(load, c, STEP_RELEASE);
        } else {
                stats_add(&load->stats, stats_now_ns() - c->began_ns);
                next_operation(load, c);
        }
}

/* Length of the whole answer, 0 while it is not known yet, -1 when it cannot be. */
static long answer_length(const struct connection *c, const char **ret_body)
{
        const char *end = strstr(c->in, "\r\n\r\n");
        const char *field;

        if (!end)
                return 0;
        *ret_body = end + 4;
        field = strcasestr(c->in, "\r\ncontent-length:");
        if (!field || field > end)
                return -1;
        return end + 4 - c->in + strtol(field + strlen("\r\ncontent-length:"), NULL, 10);
}

static void readable(struct load *load, struct connection *c)
{
        const char *body = NULL;
        ssize_t n = recv(c->fd, c->in + c->in_len, IN_SIZE - 1 - c->in_len, MSG_DONTWAIT);
        long length;

        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n <= 0) {
                (void)close(c->fd);
                connection_open(load, c);
                failed(load, c, "connection lost", "");
                return;
        }
        c->in_len += (size_t)n;
        c->in[c->in_len] = '\0';
        length = answer_length(c, &body);
        if (length < 0 || length >= IN_SIZE) {
                (void)fprintf(stderr, "bench-load: cannot read the answer: %.400s\n", c->in);
                exit(1);
        }
        if (length > 0 && c->in_len >= (size_t)length)
                answered(load, c, atoi(c->in + strlen("HTTP/1.1 ")), body);
}

static bool all_idle(const struct load *load)
{
        for (unsigned i = 0; i < load->n_connections; i++)
                if (load->connections[i].step != STEP_IDLE)
                        return false;
        return true;
}

static void run(struct load *load, double warmup, double seconds, size_t count)
{
        int64_t start = stats_now_ns();
        int64_t measure_from = start + (int64_t)(warmup * 1e9);
        int64_t measure_to = measure_from + (int64_t)(seconds * 1e9);
        bool measuring = false, ended = false;

        for (unsigned i = 0; i < load->n_connections; i++)
                next_operation(load, &load->connections[i]);
        for (;;) {
                struct epoll_event events[64];
                int n = epoll_wait(load->epoll, events, 64, 100);
                int64_t now;

                for (int i = 0; i < n; i++)
                        readable(load, events[i].data.ptr);

                now = stats_now_ns();
                if (!measuring && now >= measure_from) {
                        uint64_t errors = load->stats.errors;

                        stats_begin(&load->stats);
                        load->stats.errors = errors; /* those of the warm-up count */
                        measuring = true;
                }
                if (!ended && measuring &&
                    (load->stopping || now >= measure_to || load->stats.n >= count)) {
                        stats_end(&load->stats);
                        ended = load->stopping = true;
                        measure_to = now;
                }
                if (ended && (all_idle(load) || now > measure_to + DRAIN_S * 1000000000LL))
                        return;
        }
}

static void parse_address(const char *text, struct sockaddr_in *ret)
{
        const char *colon = strrchr(text, ':');
        char host[64];

        *ret = (struct sockaddr_in){ .sin_family = AF_INET };
        if (colon && (size_t)(colon - text) < sizeof(host)) {
                memcpy(host, text, (size_t)(colon - text));
                host[colon - text] = '\0';
                ret->sin_port = htons((uint16_t)strtoul(colon + 1, NULL, 10));
                if (inet_pton(AF_INET, host, &ret->sin_addr) == 1)
                        return;
        }
        (void)fprintf(stderr, "bench-load: not a numeric address: %s\n", text);
        exit(2);
}

static enum mode mode_named(const char *name)
{
        static const char *const names[] = { "get", "cycle", "exec", "run", "echo" };

        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
                if (strcmp(name, names[i]) == 0)
                        return (enum mode)i;
        (void)fprintf(stderr, "bench-load: there is no mode '%s'\n", name);
        exit(2);
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "address", required_argument, NULL, 'a' },
                { "connections", required_argument, NULL, 'c' },
                { "seconds", required_argument, NULL, 's' },
                { "warmup", required_argument, NULL, 'w' },
                { "count", required_argument, NULL, 'n' },
                { 0 },
        };
        struct load load = { .n_connections = 1 };
        double warmup = 0.5, seconds = 2;
        size_t count = SIZE_MAX;
        int opt;

        parse_address("127.0.0.1:3100", &load.address);
        while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
                switch (opt) {
                case 'a':
                        parse_address(optarg, &load.address);
                        break;
                case 'c':
                        load.n_connections = (unsigned)strtoul(optarg, NULL, 10);
                        break;
                case 's':
                        seconds = strtod(optarg, NULL);
                        break;
                case 'w':
                        warmup = strtod(optarg, NULL);
                        break;
                case 'n':
                        count = strtoul(optarg, NULL, 10);
                        break;
                default:
                        return 2;
                }
        }
        if (argc - optind != 2 || load.n_connections < 1 || load.n_connections > MAX_CONNECTIONS) {
                (void)fprintf(stderr, "usage: bench-load [OPTION...] get PATH | cycle ENV_ID | "
                                      "exec LEASE_ID | echo LEASE_ID | run ENV_ID\n");
                return 2;
        }
        load.mode = mode_named(argv[optind]);
        load.target = argv[optind + 1];

        load.epoll = epoll_create1(EPOLL_CLOEXEC);
        load.connections = calloc(load.n_connections, sizeof(*load.connections));
        if (load.epoll < 0 || !load.connections)
                die("bench-load");
        for (unsigned i = 0; i < load.n_connections; i++) {
                load.connections[i].in = malloc(IN_SIZE);
                if (!load.connections[i].in)
                        die("bench-load");
                connection_open(&load, &load.connections[i]);
        }
        run(&load, warmup, seconds, count);
        stats_print(&load.stats, argv[optind], load.n_connections);

        for (unsigned i = 0; i < load.n_connections; i++) {
                (void)close(load.connections[i].fd);
                free(load.connections[i].in);
        }
        free(load.connections);
        (void)close(load.epoll);
        stats_done(&load.stats);
        return 0;
}
