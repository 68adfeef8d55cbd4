/* Floods, each up to a bound that its argument gives: past the box's limit, far below the
 * machine's. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

enum { CHUNK = 1 << 20 };

/* A tree, not a row: each child forks too, until nobody can. Everybody is one process group, and
 * the pipe's end tells when all are gone. Counted by bytes in a pipe. */
static void fork_bomb(char **args)
{
        long most = strtol(args[0], NULL, 10), made = 0;
        int gate[2];
        pid_t *pids = calloc((size_t)most, sizeof(*pids));

        if (!pids)
                broken("no memory");
        if (pipe2(gate, O_CLOEXEC) < 0)
                broken("pipe: %s", strerrorname_np(errno));
        for (; made < most; made++) {
                pids[made] = fork();
                if (pids[made] == 0) {
                        char c;

                        (void)close(gate[1]);
                        _exit(read(gate[0], &c, 1) < 0 ? 1 : 0);
                }
                if (pids[made] < 0)
                        break;
        }
        (void)close(gate[1]);
        for (long i = 0; i < made; i++) {
                (void)kill(pids[i], SIGKILL);
                (void)waitpid(pids[i], NULL, 0);
        }
        free(pids);
        if (made == most)
                escaped("%ld processes", made);
        refused("after %ld processes", made);
}

struct flood {
        size_t chunks;
        const char *dir;
};

static int fill_memory(void *ctx)
{
        const struct flood *f = ctx;

        for (size_t i = 0; i < f->chunks; i++) {
                char *p = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1,
                               0);

                if (p == MAP_FAILED)
                        return 2;
                memset(p, 1, CHUNK);
        }
        return 1;
}

/* The limit has to be the box's, not one process's: many that take a little each. */
static int fill_memory_together(void *ctx)
{
        const struct flood *f = ctx;
        enum { MANY = 16 };
        struct flood part = { .chunks = f->chunks / MANY };
        int ready[2], done = 0;
        pid_t pids[MANY];
        char c;

        if (pipe2(ready, O_CLOEXEC) < 0)
                return 3;
        for (int i = 0; i < MANY; i++) {
                pids[i] = fork();
                if (pids[i] == 0) {
                        if (fill_memory(&part) == 1 && write(ready[1], "x", 1) < 0)
                                _exit(1);
                        (void)close(ready[1]);
                        (void)pause();
                        _exit(0);
                }
        }
        (void)close(ready[1]);
        while (done < MANY && read(ready[0], &c, 1) == 1)
                done++;
        /* Whoever was killed for another's sake has let go of its share. */
        if (waitpid(-1, NULL, WNOHANG) != 0)
                done = 0;
        for (int i = 0; i < MANY; i++)
                if (pids[i] > 0)
                        (void)kill(pids[i], SIGKILL);
        while (wait(NULL) > 0)
                ;
        return done == MANY ? 1 : 2;
}

/* Memory that belongs to no process. */
static int fill_memfd(void *ctx)
{
        static char block[CHUNK];
        const struct flood *f = ctx;
        int fd = memfd_create("flood", MFD_CLOEXEC);

        memset(block, 1, sizeof(block));
        for (size_t i = 0; i < f->chunks; i++)
                if (write(fd, block, sizeof(block)) != CHUNK)
                        return 2;
        return 1;
}

static int fill_shared(void *ctx)
{
        const struct flood *f = ctx;
        int result = 1;

        for (size_t i = 0; i < f->chunks / 8; i++) {
                int id = shmget(IPC_PRIVATE, 8 * CHUNK, IPC_CREAT | 0600);
                char *p = id < 0 ? NULL : shmat(id, NULL, 0);

                if (!p || (intptr_t)p == -1) {
                        result = 2;
                        break;
                }
                (void)shmctl(id, IPC_RMID, NULL);
                memset(p, 1, 8 * CHUNK);
        }
        return result;
}

static void memory(char **args)
{
        static const struct {
                const char *name;
                int (*fill)(void *ctx);
        } ways[] = { { "anonymous", fill_memory },
                     { "together", fill_memory_together },
                     { "memfd", fill_memfd },
                     { "shared", fill_shared } };
        struct flood flood = { .chunks = strtoul(args[1], NULL, 10) };

        for (size_t i = 0; i < sizeof(ways) / sizeof(ways[0]); i++) {
                int status, sig;

                if (strcmp(ways[i].name, args[0]) != 0)
                        continue;
                status = in_child(ways[i].fill, &flood, &sig);
                if (status == 1)
                        escaped("%zu MiB, %s", flood.chunks, ways[i].name);
                if (status == 3)
                        broken("could not try");
                refused("%s: %s", ways[i].name, sig ? "killed" : "no more");
        }
}

static void disk(char **args)
{
        static char block[CHUNK];
        long most = strtol(args[0], NULL, 10), written;
        char path[PATH_MAX];
        int error = 0, fd;

        for (args++; *args; args++) {
                (void)snprintf(path, sizeof(path), "%s/flood", *args);
                fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
                if (fd < 0) {
                        refused("%s: %s", path, strerrorname_np(errno));
                        continue;
                }
                for (written = 0; written < most; written++) {
                        ssize_t n = write(fd, block, sizeof(block));

                        if (n >= 0 && n < CHUNK) /* the next one says why */
                                n = write(fd, block, sizeof(block));
                        if (n < 0) {
                                error = errno;
                                break;
                        }
                }
                (void)close(fd);
                (void)unlink(path);
                if (written == most)
                        escaped("%ld MiB in %s", written, *args);
                refused("%s: %s after %ld MiB", *args, strerrorname_np(error), written);
        }
}

static void inodes(char **args)
{
        long most = strtol(args[0], NULL, 10), made;
        char path[PATH_MAX];
        int error = 0, fd;

        for (args++; *args; args++) {
                for (made = 0; made < most; made++) {
                        (void)snprintf(path, sizeof(path), "%s/flood-%ld", *args, made);
                        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                        if (fd < 0) {
                                error = errno;
                                break;
                        }
                        (void)close(fd);
                }
                for (long i = 0; i < made; i++) {
                        (void)snprintf(path, sizeof(path), "%s/flood-%ld", *args, i);
                        (void)unlink(path);
                }
                if (made == most)
                        escaped("%ld files in %s", made, *args);
                refused("%s: %s after %ld files", *args, strerrorname_np(error), made);
        }
}

static void open_files(char **args)
{
        long most = strtol(args[0], NULL, 10);
        struct rlimit more = { (rlim_t)most + 64, (rlim_t)most + 64 };

        (void)setrlimit(RLIMIT_NOFILE, &more);
        for (long i = 0; i < most; i++)
                if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) {
                        refused("%s after %ld files", strerrorname_np(errno), i);
                        return;
                }
        escaped("%ld open files", most);
}

/* Locked memory, priorities, real time: shares of the machine that have no business in a box. */
static void shares(char **args)
{
        struct sched_param first = { .sched_priority = 1 };
        struct rlimit all = { RLIM_INFINITY, RLIM_INFINITY };
        int fd;

        must_fail(sched_setscheduler(0, SCHED_FIFO, &first), "SCHED_FIFO");
        must_fail(setpriority(PRIO_PROCESS, 0, -10), "nice -10");
        must_fail(setrlimit(RLIMIT_RTPRIO, &all), "RLIMIT_RTPRIO");
        must_fail(setrlimit(RLIMIT_MEMLOCK, &all), "RLIMIT_MEMLOCK");
        fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
        must_fail(fd < 0 ? -1 : write(fd, "-1000", 5), "oom_score_adj");
}

const struct escape_case flood_cases[] = {
        { "fork-bomb", "MOST", 1, fork_bomb },
        { "memory", "anonymous|together|memfd|shared MIB", 2, memory },
        { "disk", "MIB DIR...", 2, disk },
        { "inodes", "MOST DIR...", 2, inodes },
        { "open-files", "MOST", 1, open_files },
        { "shares", "", 0, shares },
        { 0 },
};
