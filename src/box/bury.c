/* Boxes on this machine, by what they leave in their directory: reaching one, telling whether it
 * lives, ending it. Part of both programs: the daemon looks after its own boxes, and a relay
 * (box_relay.c) after those of its host. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/launch.h"
#include "box/launch_spawn.h"

#define BURY_TIMEOUT_MS 10000
#define MARKER          "BERTH_EXEC="

/* Reaching */

int box_connect(const char *dir, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CLEAN(cleanup_fd) int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        if (fd < 0)
                return err_sys(err, ERR_BUSY, errno, "socket");
        if (at < 0)
                return err_sys(err, ERR_NOT_FOUND, errno, "open %s", dir);
        /* The directory's path may be too long for a socket address; a descriptor's is not. */
        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/box.sock", at);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return err_sys(err,
                               errno == ENOENT || errno == ECONNREFUSED ? ERR_NOT_FOUND : ERR_BUSY,
                               errno, "reach the supervisor");
        *ret_fd = take_fd(&fd);
        return 0;
}

bool box_is_alive(const char *dir)
{
        CLEAN(cleanup_fd) int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        CLEAN(cleanup_fd) int fd = at < 0 ? -1 : openat(at, "box.lock", O_RDONLY | O_CLOEXEC);

        return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}

/* Burying */

static int peer_pid(const char *dir, pid_t *ret)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct ucred cred;
        socklen_t len = sizeof(cred);

        if (box_connect(dir, &fd, NULL) < 0 ||
            getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
                return -1;
        *ret = cred.pid;
        return 0;
}

/* The process that the `pid` file names, if it is still that one; -1 when it is gone. */
static int open_noted(const char *dir)
{
        CLEAN(cleanup_free) char *note = xasprintf("%s/pid", dir);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_fd) int fd = -1;
        unsigned long long start;
        char path[32];
        int pid;

        if (file_read_at(AT_FDCWD, note, 256, &text, NULL) < 0 ||
            sscanf(buf_str(&text), "%d %*s %llu", &pid, &start) != 2 || pid <= 1 || start == 0)
                return -1;
        fd = (int)syscall(SYS_pidfd_open, pid, 0);
        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        if (fd < 0 || launch_start_time(path) != start)
                return -1;
        return take_fd(&fd);
}

unsigned long long launch_start_time(const char *stat_path)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        unsigned long long start = 0;
        const char *at;

        if (file_read_at(AT_FDCWD, stat_path, 4096, &text, NULL) < 0)
                return 0;
        at = strrchr(buf_str(&text), ')');
        if (!at || sscanf(at + 1,
                          " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                          "%*d %*d %llu",
                          &start) != 1)
                return 0;
        return start;
}

/* The box itself. Its end is more than its lock: PID 1 of a sandbox lets go of that before the last
 * of its processes has died, and is itself dead only after it. */
static int kill_noted(struct op *op, const char *dir, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open_noted(dir);
        int r;

        if (fd < 0)
                return 0;
        (void)syscall(SYS_pidfd_send_signal, fd, SIGKILL, NULL, 0);
        r = op_wait_fd(op, fd, POLLIN, BURY_TIMEOUT_MS, err);
        if (r == 0)
                return err_set(err, ERR_TIMEOUT, "the supervisor in %s does not die", dir);
        return r;
}

/* Kill the box itself and wait until its lock is free. */
static int kill_box(struct op *op, const char *dir, struct err *err)
{
        int64_t until = clock_mono_ms() + BURY_TIMEOUT_MS;
        int r;

        while (box_is_alive(dir)) {
                pid_t pid;

                r = kill_noted(op, dir, err);
                if (r < 0)
                        return r;
                if (peer_pid(dir, &pid) == 0 && pid > 1)
                        (void)kill(pid, SIGKILL);
                if (clock_mono_ms() > until)
                        return err_set(err, ERR_TIMEOUT, "the supervisor in %s does not die", dir);
                r = box_is_alive(dir) ? op_wait_fd(op, -1, 0, 5, err) : 0;
                if (r < 0)
                        return r;
        }
        return kill_noted(op, dir, err);
}

/* Version 1 has no such file: one by one. */
static void kill_members(const char *path)
{
        CLEAN(cleanup_free) char *name = xasprintf("%s/cgroup.procs", path);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const char *at;
        char *end;

        if (file_read_at(AT_FDCWD, name, (size_t)1 << 20, &text, NULL) < 0)
                return;
        for (at = buf_str(&text);; at = end) {
                long pid = strtol(at, &end, 10);

                if (end == at)
                        return;
                if (pid > 1)
                        (void)kill((pid_t)pid, SIGKILL);
        }
}

/* Kill everything in a cgroup of the box and in those inside it, and remove them. */
static void kill_cgroups_beneath(const char *path, int depth, bool inside)
{
        char child[4096];
        struct dirent *entry;
        DIR *dir;

        if (inside) {
                snprintf(child, sizeof(child), "%s/cgroup.kill", path);
                {
                        CLEAN(cleanup_fd) int fd = open(child, O_WRONLY | O_CLOEXEC);

                        if (fd < 0 || write(fd, "1", 1) != 1)
                                kill_members(path);
                }
        }
        dir = depth > 0 ? opendir(path) : NULL;
        while (dir && (entry = readdir(dir))) {
                if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
                        continue;
                snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
                kill_cgroups_beneath(child, depth - 1, true);
        }
        if (dir)
                closedir(dir);
        if (inside)
                (void)rmdir(path);
}

/* Our own cgroup2 directory, where boxes make theirs. */
static bool own_cgroup(char *out, size_t size)
{
        static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const char *line;

        if (file_read_at(AT_FDCWD, "/proc/self/cgroup", 65536, &text, NULL) < 0)
                return false;
        line = strstr(buf_str(&text), "0::/");
        if (!line)
                return false;
        line += 3;
        for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
                int n = (int)strcspn(line, "\n");

                snprintf(out, size, "%s/cgroup.procs", mounts[i]);
                if (access(out, F_OK) < 0)
                        continue;
                snprintf(out, size, "%s%.*s", mounts[i], n == 1 ? 0 : n, line);
                return true;
        }
        return false;
}

static void kill_cgroup(const char *path)
{
        /* Twice: what was killed the first time leaves empty directories to remove. */
        for (int i = 0; i < 50 && access(path, F_OK) == 0; i++) {
                kill_cgroups_beneath(path, 4, true);
                if (access(path, F_OK) == 0)
                        (void)poll(NULL, 0, 2);
        }
}

/* Where the box made its cgroups: its own word, one path in a line, else where it would make one
 * now.
 */
static void kill_box_cgroups(const char *dir, const char *id)
{
        CLEAN(cleanup_free) char *note = xasprintf("%s/cgroup", dir);
        CLEAN(cleanup_free) char *name = xasprintf("/berth-%s", id);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_free) char *here = NULL;
        char own[4096], *save = NULL;

        if (file_read_at(AT_FDCWD, note, (size_t)64 << 10, &text, NULL) >= 0 && text.len > 0) {
                for (char *line = strtok_r(text.data, "\n", &save); line;
                     line = strtok_r(NULL, "\n", &save))
                        if (line[0] == '/' && strstr(line, name))
                                kill_cgroup(line);
                return;
        }
        if (!own_cgroup(own, sizeof(own)))
                return;
        here = xasprintf("%s%s", own, name);
        kill_cgroup(here);
}

static bool carries_marker(const char *environ_text, size_t len, const char *const *ids)
{
        for (const char *at = environ_text; at && at < environ_text + len;) {
                size_t n = strnlen(at, (size_t)(environ_text + len - at));

                if (n > strlen(MARKER) && str_starts(at, MARKER))
                        for (const char *const *id = ids; *id; id++)
                                if (strncmp(at + strlen(MARKER), *id, UUID_LEN) == 0)
                                        return true;
                at += n + 1;
        }
        return false;
}

/* One pass over all processes; how many were killed. */
static int kill_marked(const char *const *ids)
{
        struct dirent *entry;
        DIR *proc = opendir("/proc");
        int killed = 0;

        while (proc && (entry = readdir(proc))) {
                CLEAN(buf_done) struct buf env = { .max = (size_t)4 << 20 };
                char path[300];
                pid_t pid = (pid_t)atoi(entry->d_name);

                if (pid <= 1)
                        continue;
                snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
                if (file_read_at(AT_FDCWD, path, (size_t)4 << 20, &env, NULL) < 0 ||
                    !carries_marker(buf_str(&env), env.len, ids))
                        continue;
                if (kill(pid, SIGKILL) == 0)
                        killed++;
        }
        if (proc)
                closedir(proc);
        return killed;
}

static void remove_tree(int dirfd, const char *name)
{
        int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *entry;

        if (!dir) {
                if (fd >= 0)
                        close(fd);
                (void)unlinkat(dirfd, name, 0);
                return;
        }
        while ((entry = readdir(dir)))
                if (!streq(entry->d_name, ".") && !streq(entry->d_name, ".."))
                        remove_tree(fd, entry->d_name);
        closedir(dir);
        (void)unlinkat(dirfd, name, AT_REMOVEDIR);
}

int box_bury(struct op *op, const char *dir, const char *id, const char *const *exec_ids,
             struct err *err)
{
        int r = kill_box(op, dir, err);

        if (r < 0)
                return r;
        kill_box_cgroups(dir, id);
        /* A fork may slip through one pass; two empty ones in a row it cannot. */
        for (int i = 0, empty = 0; *exec_ids && i < 100 && empty < 2; i++)
                empty = kill_marked(exec_ids) > 0 ? 0 : empty + 1;
        remove_tree(AT_FDCWD, dir);
        return 0;
}
