/* bench-floor: what this machine can do at best, so that a figure of ours can be read as a ratio.
 *
 *   bench-floor [--seconds S] fdatasync DIR   overwrite 4 KiB of a file and fdatasync it
 *   bench-floor [--seconds S] sqlite DIR      one insert and commit, WAL and synchronous=FULL
 *   bench-floor [--seconds S] [--connections N] echo
 *                                             a message to a second process over loopback and back:
 * the price of the kernel's part of a request, nothing parsed
 *   bench-floor [--seconds S] spawn           posix_spawn /bin/true and wait for it
 *   bench-floor pipe BYTES                    read so much from `head` through a plain pipe; one
 * operation, so that perSecond times BYTES is the speed
 *
 * The output is the line of stats.h. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <spawn.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats.h"

enum {
        BLOCK = 4096,
        FILE_BLOCKS = 1024,
        REQUEST = 100,
        ANSWER = 500,
        MAX_CONNECTIONS = 1024,
};

static const double warmup = 0.2;

static void die(const char *what)
{
        perror(what);
        exit(1);
}

/* Counts the operations of one thread: true while there is time left; resets itself after the
 * warm-up. */
struct timer {
        int64_t measure_from;
        int64_t measure_to;
        bool measuring;
};

static void timer_start(struct timer *t, double seconds)
{
        int64_t now = stats_now_ns();

        *t = (struct timer){ .measure_from = now + (int64_t)(warmup * 1e9) };
        t->measure_to = t->measure_from + (int64_t)(seconds * 1e9);
}

static bool timer_goes_on(struct timer *t, struct stats *s)
{
        int64_t now = stats_now_ns();

        if (!t->measuring && now >= t->measure_from) {
                stats_begin(s);
                t->measuring = true;
        }
        if (now < t->measure_to)
                return true;
        stats_end(s);
        return false;
}

static void floor_fdatasync(const char *dir, double seconds, struct stats *s)
{
        static char block[BLOCK];
        char path[4096];
        struct timer timer;
        int fd;

        (void)snprintf(path, sizeof(path), "%s/floor.bin", dir);
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd < 0)
                die(path);
        /* Written once, so that what is measured does not allocate. */
        for (int i = 0; i < FILE_BLOCKS; i++)
                if (write(fd, block, sizeof(block)) != BLOCK)
                        die("bench-floor: write");
        if (fsync(fd) < 0)
                die("bench-floor: fsync");

        timer_start(&timer, seconds);
        for (int i = 0; timer_goes_on(&timer, s); i++) {
                int64_t began = stats_now_ns();

                memset(block, i, sizeof(block));
                if (pwrite(fd, block, sizeof(block), (off_t)(i % FILE_BLOCKS) * BLOCK) != BLOCK ||
                    fdatasync(fd) < 0)
                        die("bench-floor: fdatasync");
                stats_add(s, stats_now_ns() - began);
        }
        (void)close(fd);
        (void)unlink(path);
}

static void sql(sqlite3 *db, const char *text)
{
        if (sqlite3_exec(db, text, NULL, NULL, NULL) != SQLITE_OK) {
                (void)fprintf(stderr, "bench-floor: %s: %s\n", text, sqlite3_errmsg(db));
                exit(1);
        }
}

static void floor_sqlite(const char *dir, double seconds, struct stats *s)
{
        char path[4096], row[300];
        sqlite3_stmt *insert;
        struct timer timer;
        sqlite3 *db;

        (void)snprintf(path, sizeof(path), "%s/floor.db", dir);
        if (sqlite3_open(path, &db) != SQLITE_OK)
                die(path);
        sql(db, "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL;"
                "CREATE TABLE t (id INTEGER PRIMARY KEY, data TEXT NOT NULL)");
        if (sqlite3_prepare_v2(db, "INSERT INTO t (data) VALUES (?)", -1, &insert, NULL) !=
            SQLITE_OK)
                die("bench-floor: prepare");
        memset(row, 'x', sizeof(row));

        timer_start(&timer, seconds);
        while (timer_goes_on(&timer, s)) {
                int64_t began = stats_now_ns();

                (void)sqlite3_bind_text(insert, 1, row, sizeof(row), SQLITE_STATIC);
                if (sqlite3_step(insert) != SQLITE_DONE || sqlite3_reset(insert) != SQLITE_OK)
                        die("bench-floor: insert");
                stats_add(s, stats_now_ns() - began);
        }
        (void)sqlite3_finalize(insert);
        (void)sqlite3_close(db);
        for (const char *const *suffix = (const char *const[]){ "", "-wal", "-shm", NULL }; *suffix;
             suffix++) {
                (void)snprintf(path, sizeof(path), "%s/floor.db%s", dir, *suffix);
                (void)unlink(path);
        }
}

static void watch(int epoll, int fd)
{
        struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };

        if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0)
                die("bench-floor: epoll_ctl");
}

/* Messages are small and one per connection is under way: they arrive in one piece. */
static void echo_serve(int listener, unsigned n)
{
        static const char answer[ANSWER];
        int epoll = epoll_create1(EPOLL_CLOEXEC);
        char buf[BLOCK];

        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (unsigned i = 0; i < n; i++) {
                int on = 1, fd = accept(listener, NULL, NULL);

                (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                watch(epoll, fd);
        }
        for (;;) {
                struct epoll_event events[64];
                int k = epoll_wait(epoll, events, 64, -1);

                for (int i = 0; i < k; i++)
                        if (recv(events[i].data.fd, buf, sizeof(buf), 0) <= 0 ||
                            send(events[i].data.fd, answer, sizeof(answer), MSG_NOSIGNAL) < 0)
                                _exit(0);
        }
}

static void echo_drive(int epoll, const int *fds, unsigned n, double seconds, struct stats *s)
{
        static const char request[REQUEST];
        static int64_t began[4 * MAX_CONNECTIONS]; /* by descriptor */
        char buf[BLOCK];
        struct timer timer;

        timer_start(&timer, seconds);
        for (unsigned i = 0; i < n; i++) {
                began[fds[i]] = stats_now_ns();
                (void)send(fds[i], request, sizeof(request), MSG_NOSIGNAL);
        }
        while (timer_goes_on(&timer, s)) {
                struct epoll_event events[64];
                int k = epoll_wait(epoll, events, 64, 100);

                for (int i = 0; i < k; i++) {
                        int fd = events[i].data.fd;

                        if (recv(fd, buf, sizeof(buf), 0) <= 0)
                                die("bench-floor: recv");
                        stats_add(s, stats_now_ns() - began[fd]);
                        began[fd] = stats_now_ns();
                        (void)send(fd, request, sizeof(request), MSG_NOSIGNAL);
                }
        }
}

static void floor_echo(unsigned n, double seconds, struct stats *s)
{
        struct sockaddr_in address = { .sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t size = sizeof(address);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        int epoll = epoll_create1(EPOLL_CLOEXEC);
        int fds[MAX_CONNECTIONS];
        pid_t server;

        if (bind(listener, (struct sockaddr *)&address, size) < 0 || listen(listener, (int)n) < 0 ||
            getsockname(listener, (struct sockaddr *)&address, &size) < 0)
                die("bench-floor: listen");
        server = fork();
        if (server < 0)
                die("bench-floor: fork");
        if (server == 0)
                echo_serve(listener, n);
        for (unsigned i = 0; i < n; i++) {
                int on = 1;

                fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                if (connect(fds[i], (struct sockaddr *)&address, size) < 0)
                        die("bench-floor: connect");
                (void)setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
                watch(epoll, fds[i]);
        }
        echo_drive(epoll, fds, n, seconds, s);

        (void)kill(server, SIGKILL);
        (void)waitpid(server, NULL, 0);
        for (unsigned i = 0; i < n; i++)
                (void)close(fds[i]);
        (void)close(listener);
        (void)close(epoll);
}

static pid_t spawn(const char *const *argv, int out)
{
        static char *const environment[] = { NULL };
        posix_spawn_file_actions_t actions;
        pid_t pid;

        (void)posix_spawn_file_actions_init(&actions);
        if (out >= 0)
                (void)posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
        errno = posix_spawn(&pid, argv[0], &actions, NULL, (char *const *)argv, environment);
        if (errno != 0)
                die(argv[0]);
        (void)posix_spawn_file_actions_destroy(&actions);
        return pid;
}

static void floor_spawn(double seconds, struct stats *s)
{
        static const char *const argv[] = { "/bin/true", NULL };
        struct timer timer;

        timer_start(&timer, seconds);
        while (timer_goes_on(&timer, s)) {
                int64_t began = stats_now_ns();
                int status;

                if (waitpid(spawn(argv, -1), &status, 0) < 0 || status != 0)
                        die("bench-floor: /bin/true");
                stats_add(s, stats_now_ns() - began);
        }
}

static void floor_pipe(const char *bytes, struct stats *s)
{
        static char buffer[65536];
        const char *const argv[] = { "/usr/bin/head", "-c", bytes, "/dev/zero", NULL };
        long long left = strtoll(bytes, NULL, 10);
        int64_t began;
        int fds[2];
        ssize_t n;

        if (pipe2(fds, O_CLOEXEC) < 0)
                die("bench-floor: pipe");
        stats_begin(s);
        began = stats_now_ns();
        (void)spawn(argv, fds[1]);
        (void)close(fds[1]);
        while ((n = read(fds[0], buffer, sizeof(buffer))) > 0)
                left -= n;
        (void)wait(NULL);
        if (left != 0)
                die("bench-floor: head");
        stats_add(s, stats_now_ns() - began);
        stats_end(s);
        (void)close(fds[0]);
}

static int usage(void)
{
        (void)fprintf(stderr, "usage: bench-floor [--seconds S] [--connections N] "
                              "fdatasync DIR | sqlite DIR | echo | spawn | pipe BYTES\n");
        return 2;
}

int main(int argc, char **argv)
{
        static const struct option options[] = {
                { "connections", required_argument, NULL, 'c' },
                { "seconds", required_argument, NULL, 's' },
                { 0 },
        };
        struct stats stats = { 0 };
        unsigned connections = 1;
        double seconds = 1;
        const char *mode;
        int opt;

        while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
                if (opt == 'c')
                        connections = (unsigned)strtoul(optarg, NULL, 10);
                else if (opt == 's')
                        seconds = strtod(optarg, NULL);
                else
                        return usage();
        }
        mode = optind < argc ? argv[optind] : "";
        if (connections < 1 || connections > MAX_CONNECTIONS)
                return usage();
        if (strcmp(mode, "fdatasync") == 0 && optind + 2 == argc)
                floor_fdatasync(argv[optind + 1], seconds, &stats);
        else if (strcmp(mode, "sqlite") == 0 && optind + 2 == argc)
                floor_sqlite(argv[optind + 1], seconds, &stats);
        else if (strcmp(mode, "echo") == 0 && optind + 1 == argc)
                floor_echo(connections, seconds, &stats);
        else if (strcmp(mode, "spawn") == 0 && optind + 1 == argc)
                floor_spawn(seconds, &stats);
        else if (strcmp(mode, "pipe") == 0 && optind + 2 == argc)
                floor_pipe(argv[optind + 1], &stats);
        else
                return usage();
        stats_print(&stats, mode, connections);
        stats_done(&stats);
        return 0;
}
