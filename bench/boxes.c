/* bench-boxes: how long a box takes that runs `true` and is gone, without Berth.
 *
 *   bench-boxes [--seconds S] [--connections N] bare
 *             the floor: clone3 with all namespaces, a root from nothing (tmpfs, the host's /usr
 *             read-only, /proc, /dev, /tmp), pivot_root, exec, wait. No filter, no supervisor, no
 *             record of it
 *   bench-boxes [--seconds S] [--connections N] command PROGRAM ARG...
 *             the same with somebody else's program; in an argument, @ becomes a number that no
 * other run has
 *
 * N of them are under way at any time. The output is the line of stats.h. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/mount.h>
#include <linux/sched.h>
#include <net/if.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stats.h"

enum { MAX_BOXES = 1024, MAX_ARGS = 64, ARG_SIZE = 256 };

static const double warmup = 0.2;

struct box {
        pid_t pid;
        int64_t began_ns;
};

static void die(const char *what)
{
        perror(what);
        exit(1);
}

static void must(long result, const char *what)
{
        if (result < 0) {
                perror(what);
                _exit(1);
        }
}

static void bind_read_only(const char *from, const char *to)
{
        struct mount_attr attr = { .attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID |
                                               MOUNT_ATTR_NODEV };

        must(mkdir(to, 0755), to);
        must(mount(from, to, NULL, MS_BIND | MS_REC, NULL), to);
        must(syscall(SYS_mount_setattr, AT_FDCWD, to, AT_RECURSIVE, &attr, sizeof(attr)), to);
}

/* As the host has it: a link into /usr, or a directory of its own. */
static void top_directory(const char *from, const char *to)
{
        char target[256];
        ssize_t n = readlink(from, target, sizeof(target) - 1);

        if (n > 0) {
                target[n] = '\0';
                must(symlink(target, to), to);
        } else if (access(from, F_OK) == 0) {
                bind_read_only(from, to);
        }
}

static void make_dev(void)
{
        static const char *const nodes[] = { "null", "zero", "full", "random", "urandom", "tty" };
        char from[64], to[64];

        must(mkdir("dev", 0755), "dev");
        must(mount("dev", "dev", "tmpfs", MS_NOSUID | MS_NOEXEC, "mode=755,size=64k"), "dev");
        for (size_t i = 0; i < sizeof(nodes) / sizeof(nodes[0]); i++) {
                int fd;

                (void)snprintf(from, sizeof(from), "/dev/%s", nodes[i]);
                (void)snprintf(to, sizeof(to), "dev/%s", nodes[i]);
                fd = open(to, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
                must(fd, to);
                (void)close(fd);
                must(mount(from, to, NULL, MS_BIND, NULL), to);
        }
        must(mkdir("dev/pts", 0755), "dev/pts");
        must(mount("devpts", "dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,mode=620"),
             "dev/pts");
}

static void make_root(void)
{
        must(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), "private");
        must(mount("root", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755"), "root");
        must(chdir("/tmp"), "root");
        bind_read_only("/usr", "usr");
        top_directory("/bin", "bin");
        top_directory("/sbin", "sbin");
        top_directory("/lib", "lib");
        top_directory("/lib64", "lib64");
        bind_read_only("/opt", "opt");
        must(mkdir("proc", 0555), "proc");
        must(mount("proc", "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
        make_dev();
        must(mkdir("tmp", 01777), "tmp");
        must(mount("tmp", "tmp", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777"), "tmp");
        must(mkdir("home", 0755), "home");
        must(syscall(SYS_pivot_root, ".", "."), "pivot_root");
        must(umount2(".", MNT_DETACH), "old root");
        must(chdir("/"), "/");
}

static void loopback_up(void)
{
        struct ifreq request = { .ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING };
        int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        must(ioctl(fd, SIOCSIFFLAGS, &request), "lo");
        (void)close(fd);
}

static void write_text(const char *path, const char *text)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0 || write(fd, text, strlen(text)) < 0)
                die(path);
        (void)close(fd);
}

/* Ids as Berth gives them: never the host's 0. */
static void map_ids(pid_t pid)
{
        static const char map[] = "0 1000000 65536";
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/%d/uid_map", pid);
        write_text(path, map);
        (void)snprintf(path, sizeof(path), "/proc/%d/gid_map", pid);
        write_text(path, map);
}

static pid_t start_bare(void)
{
        static char program[] = "/bin/true";
        static char *const argv[] = { program, NULL }, *const environment[] = { NULL };
        struct clone_args args = { .flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID |
                                            CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |
                                            CLONE_NEWCGROUP,
                                   .exit_signal = SIGCHLD };
        int go[2];
        pid_t pid;
        char c;

        if (pipe2(go, O_CLOEXEC) < 0)
                die("bench-boxes: pipe");
        pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        if (pid < 0)
                die("bench-boxes: clone3");
        if (pid == 0) {
                must(read(go[0], &c, 1) == 1 ? 0 : -1, "go");
                must(setresgid(0, 0, 0), "setresgid"); /* unmapped ids make no files */
                must(setresuid(0, 0, 0), "setresuid");
                make_root();
                loopback_up();
                must(setresgid(1000, 1000, 1000), "setresgid");
                must(setresuid(1000, 1000, 1000), "setresuid");
                (void)execve(argv[0], argv, environment);
                _exit(127);
        }
        map_ids(pid);
        if (write(go[1], "x", 1) != 1)
                die("bench-boxes: go");
        (void)close(go[0]);
        (void)close(go[1]);
        return pid;
}

/* argv has a program at least. */
static pid_t start_command(char *const *argv)
{
        static unsigned long number;
        static char room[MAX_ARGS][ARG_SIZE];
        static char *with[MAX_ARGS + 1];
        posix_spawn_file_actions_t actions;
        pid_t pid;
        int n = 1;

        number++;
        with[0] = argv[0];
        for (; n < MAX_ARGS && argv[n]; n++) {
                char *at = strchr(argv[n], '@');

                with[n] = argv[n];
                if (at) {
                        (void)snprintf(room[n], ARG_SIZE, "%.*s%d-%lu%s", (int)(at - argv[n]),
                                       argv[n], (int)getpid(), number, at + 1);
                        with[n] = room[n];
                }
        }
        with[n] = NULL;
        (void)posix_spawn_file_actions_init(&actions);
        (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        (void)posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
        errno = posix_spawnp(&pid, with[0], &actions, NULL, with, environ);
        if (errno != 0)
                die(with[0]);
        (void)posix_spawn_file_actions_destroy(&actions);
        return pid;
}

static void start(struct box *box, char *const *argv)
{
        box->began_ns = stats_now_ns();
        box->pid = argv ? start_command(argv) : start_bare();
}

/* The one that ended; NULL when none is left. */
static struct box *wait_for_one(struct box *boxes, unsigned n, int *ret_status)
{
        pid_t pid = wait(ret_status);

        if (pid < 0)
                return NULL;
        for (unsigned i = 0; i < n; i++)
                if (boxes[i].pid == pid)
                        return &boxes[i];
        return NULL;
}

static void run(char *const *argv, unsigned n, double seconds, struct stats *s)
{
        static struct box boxes[MAX_BOXES];
        int64_t from = stats_now_ns() + (int64_t)(warmup * 1e9),
                to = from + (int64_t)(seconds * 1e9);
        bool measuring = false, ending = false;
        unsigned running = n;
        int status;

        for (unsigned i = 0; i < n; i++)
                start(&boxes[i], argv);
        while (running > 0) {
                struct box *box = wait_for_one(boxes, n, &status);
                int64_t now = stats_now_ns();

                if (!box)
                        continue;
                if (!measuring && now >= from) {
                        stats_begin(s);
                        measuring = true;
                }
                if (status != 0)
                        die("bench-boxes: a box failed");
                if (!ending && measuring)
                        stats_add(s, now - box->began_ns);
                if (!ending && now >= to) {
                        stats_end(s);
                        ending = true;
                }
                if (ending)
                        running--;
                else
                        start(box, argv);
        }
}

static int usage(void)
{
        (void)fprintf(stderr, "usage: bench-boxes [--seconds S] [--connections N] "
                              "bare | command PROGRAM ARG...\n");
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
        int opt;

        while ((opt = getopt_long(argc, argv, "+", options, NULL)) != -1) {
                if (opt == 'c')
                        connections = (unsigned)strtoul(optarg, NULL, 10);
                else if (opt == 's')
                        seconds = strtod(optarg, NULL);
                else
                        return usage();
        }
        if (optind >= argc || connections < 1 || connections > MAX_BOXES)
                return usage();
        if (strcmp(argv[optind], "bare") == 0 && optind + 1 == argc)
                run(NULL, connections, seconds, &stats);
        else if (strcmp(argv[optind], "command") == 0 && optind + 1 < argc)
                run(argv + optind + 1, connections, seconds, &stats);
        else
                return usage();
        stats_print(&stats, argv[optind], connections);
        stats_done(&stats);
        return 0;
}
