/* Boxes on this machine, by what they leave in their directory: reaching one, telling whether it
 * lives, ending it. Part of both programs: the daemon looks after its own boxes, and a relay
 * (berth-box/relay.c) after those of its host. */
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
#define CGROUP_DEPTH    32 /* as deep as a box looks (berth-box/cgroup.c) */
#define MARKER          "BERTH_EXEC="

/* Reaching */

int box_connect(const char *dir, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CLEAN(cleanup_fd) int at = -1;
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        if (fd < 0)
                return err_sys(err, ERR_BUSY, errno, "socket");
        at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (at < 0)
                return err_sys(err, life_by_errno(errno) == LIFE_NO ? ERR_NOT_FOUND : ERR_BUSY,
                               errno, "open %s", dir);
        /* The directory's path may be too long for a socket address; a descriptor's is not. */
        snprintf(address.sun_path, sizeof(address.sun_path), "/proc/self/fd/%d/box.sock", at);
        if (connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return err_sys(err,
                               errno == ENOENT || errno == ECONNREFUSED ? ERR_NOT_FOUND : ERR_BUSY,
                               errno, "reach the supervisor");
        *ret_fd = take_fd(&fd);
        return 0;
}

enum life box_is_alive(const char *dir)
{
        CLEAN(cleanup_fd) int at = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        CLEAN(cleanup_fd) int fd = at < 0 ? -1 : openat(at, "box.lock", O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return life_by_errno(errno);
        if (flock(fd, LOCK_SH | LOCK_NB) == 0)
                return LIFE_NO;
        return errno == EWOULDBLOCK ? LIFE_YES : LIFE_UNKNOWN;
}

int box_check_alive(const char *dir, struct err *err)
{
        enum life life = box_is_alive(dir);

        if (life == LIFE_UNKNOWN)
                return err_sys(err, ERR_BUSY, errno, "cannot tell whether a supervisor lives in %s",
                               dir);
        return life == LIFE_YES;
}

/* The lock */

#define LOCK_TRIES    100
#define LOCK_PATIENCE 60 /* tries that find the lock held, 5 ms apart */

int box_lock_take_at(int dir_fd, const char *dir, int *ret_fd, struct err *err)
{
        for (int tries = 0; tries < LOCK_TRIES; tries++) {
                CLEAN(cleanup_fd)
                int fd =
                        openat(dir_fd, "box.lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
                struct stat held, there;

                if (fd < 0)
                        return err_sys(err, ERR_IO, errno, "open box.lock in %s", dir);
                if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                        /* A process that checks whether the box lives holds the lock for an
                         * instant; a child of a box that was killed holds it until its exec. */
                        if (tries >= LOCK_PATIENCE)
                                return err_set(err, ERR_LOCKED, "another box runs in %s", dir);
                        (void)poll(NULL, 0, 5);
                        continue;
                }
                /* A box that stops removes the file while it holds the lock: a lock on a file that
                 * is no longer there is worth nothing. */
                if (fstat(fd, &held) == 0 &&
                    fstatat(dir_fd, "box.lock", &there, AT_SYMLINK_NOFOLLOW) == 0 &&
                    held.st_ino == there.st_ino && held.st_dev == there.st_dev) {
                        *ret_fd = take_fd(&fd);
                        return 0;
                }
        }
        return err_set(err, ERR_LOCKED, "cannot lock %s", dir);
}

int box_lock_take(const char *dir, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int dir_fd = -1;

        if (mkdir(dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s", dir);
        dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (dir_fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", dir);
        return box_lock_take_at(dir_fd, dir, ret_fd, err);
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

/* Whether the process with this id is still the one that was started then, in clock ticks since
 * boot. errno says what went wrong with LIFE_UNKNOWN. */
static enum life launch_process_life(pid_t pid, unsigned long long start)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        unsigned long long now = 0;
        char path[32];

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        if (file_read_at(AT_FDCWD, path, 4096, &text, NULL) < 0)
                return life_by_errno(errno);
        const char *at = strrchr(buf_str(&text), ')');
        if (!at || sscanf(at + 1,
                          " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                          "%*d %*d %llu",
                          &now) != 1) {
                errno = EPROTO;
                return LIFE_UNKNOWN;
        }
        return now == start ? LIFE_YES : LIFE_NO;
}

int launch_noted_process(const char *dir, pid_t *ret_pid, struct err *err)
{
        CLEAN(cleanup_free) char *note = xasprintf("%s/pid", dir);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        unsigned long long start;
        int pid, r;

        r = file_read_at(AT_FDCWD, note, 256, &text, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        if (sscanf(buf_str(&text), "%d %*s %llu", &pid, &start) != 2 || pid <= 1 || start == 0)
                return 0;
        switch (launch_process_life(pid, start)) {
        case LIFE_NO:
                return 0;
        case LIFE_YES:
                *ret_pid = pid;
                return 1;
        default:
                return err_sys(err, ERR_BUSY, errno, "cannot tell whether process %d lives", pid);
        }
}

/* A descriptor of the process that the `pid` file names; -1 when it is gone. The descriptor comes
 * before the look at what it is, so that it stays true. */
static int open_noted(const char *dir, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        pid_t pid, again;
        int r = launch_noted_process(dir, &pid, err);

        *ret_fd = -1;
        if (r <= 0)
                return r;
        fd = (int)syscall(SYS_pidfd_open, pid, 0);
        /* A kernel without them: the box's socket names it as well. */
        if (fd < 0 && (errno == ESRCH || errno == ENOSYS || errno == EPERM))
                return 0;
        if (fd < 0)
                return err_sys(err, ERR_BUSY, errno, "open process %d", (int)pid);
        r = launch_noted_process(dir, &again, err);
        if (r > 0 && again == pid)
                *ret_fd = take_fd(&fd);
        return MIN(r, 0);
}

/* The box itself. Its end is more than its lock: PID 1 of a sandbox lets go of that before the last
 * of its processes has died, and is itself dead only after it. */
static int kill_noted(struct op *op, const char *dir, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        int r = open_noted(dir, &fd, err);

        if (r < 0 || fd < 0)
                return r;
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

        while ((r = box_check_alive(dir, err)) > 0) {
                pid_t pid;

                r = kill_noted(op, dir, err);
                if (r < 0)
                        return r;
                if (peer_pid(dir, &pid) == 0 && pid > 1)
                        (void)kill(pid, SIGKILL);
                if (clock_mono_ms() > until)
                        return err_set(err, ERR_TIMEOUT, "the supervisor in %s does not die", dir);
                r = box_is_alive(dir) == LIFE_YES ? op_wait_fd(op, -1, 0, 5, err) : 0;
                if (r < 0)
                        return r;
        }
        return r < 0 ? r : kill_noted(op, dir, err);
}

/* A cgroup that is removed while its files are open answers with this. */
static bool is_gone(int errno_value)
{
        return errno_value == ENODEV || life_by_errno(errno_value) == LIFE_NO;
}

/* Version 1 has no cgroup.kill: one by one. */
static int kill_members(const char *path, struct err *err)
{
        CLEAN(cleanup_free) char *name = xasprintf("%s/cgroup.procs", path);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const char *at;
        char *end;

        if (file_read_at(AT_FDCWD, name, (size_t)1 << 20, &text, NULL) < 0)
                return is_gone(errno) ? 0 : err_sys(err, ERR_BUSY, errno, "read %s", name);
        for (at = buf_str(&text);; at = end) {
                long pid = strtol(at, &end, 10);

                if (end == at)
                        return 0;
                if (pid > 1)
                        (void)kill((pid_t)pid, SIGKILL);
        }
}

/* Kill everything in a cgroup of the box and in those inside it, and remove them. */
static int kill_cgroups_beneath(const char *path, int depth, struct err *err)
{
        char child[4096];
        struct dirent *entry;
        int r = 0;

        snprintf(child, sizeof(child), "%s/cgroup.kill", path);
        {
                CLEAN(cleanup_fd) int fd = open(child, O_WRONLY | O_CLOEXEC);

                if (fd < 0 || write(fd, "1", 1) != 1)
                        r = kill_members(path, err);
        }
        DIR *dir = r >= 0 && depth > 0 ? opendir(path) : NULL;
        if (r >= 0 && depth > 0 && !dir && !is_gone(errno))
                r = err_sys(err, ERR_BUSY, errno, "read %s", path);
        while (dir && r >= 0 && (entry = readdir(dir))) {
                if (entry->d_type != DT_DIR || entry->d_name[0] == '.')
                        continue;
                snprintf(child, sizeof(child), "%s/%s", path, entry->d_name);
                r = kill_cgroups_beneath(child, depth - 1, err);
        }
        if (dir)
                closedir(dir);
        (void)rmdir(path);
        return r;
}

/* Our own cgroup2 directory, where boxes make theirs. 1, 0 when we have none, or an error. */
static int own_cgroup(char *out, size_t size, struct err *err)
{
        static const char *const mounts[] = { "/sys/fs/cgroup", "/sys/fs/cgroup/unified" };
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int r = file_read_at(AT_FDCWD, "/proc/self/cgroup", 65536, &text, err);

        if (r == ERR_NOT_FOUND)
                err_clear(err);
        if (r < 0)
                return r == ERR_NOT_FOUND ? 0 : r;
        const char *line = strstr(buf_str(&text), "0::/");
        if (!line)
                return 0;
        line += 3;
        for (size_t i = 0; i < ARRAY_LEN(mounts); i++) {
                int n = (int)strcspn(line, "\n");

                snprintf(out, size, "%s/cgroup.procs", mounts[i]);
                switch (file_life_at(AT_FDCWD, out)) {
                case LIFE_NO:
                        continue;
                case LIFE_UNKNOWN:
                        return err_sys(err, ERR_BUSY, errno, "look at %s", out);
                default:
                        snprintf(out, size, "%s%.*s", mounts[i], n == 1 ? 0 : n, line);
                        return 1;
                }
        }
        return 0;
}

/* Again and again: a cgroup can be removed only when what was killed in it has died, which takes
 * its time on a busy machine. Without the cgroup's note nothing would find it later, so giving up
 * is an error. */
static int kill_cgroup(struct op *op, const char *path, struct err *err)
{
        int64_t until = clock_mono_ms() + BURY_TIMEOUT_MS;

        for (;;) {
                int r = 0;

                switch (file_life_at(AT_FDCWD, path)) {
                case LIFE_NO:
                        return 0;
                case LIFE_UNKNOWN:
                        return err_sys(err, ERR_BUSY, errno, "look at %s", path);
                default:
                        r = kill_cgroups_beneath(path, CGROUP_DEPTH, err);
                }
                if (r >= 0 && file_life_at(AT_FDCWD, path) == LIFE_NO)
                        return 0;
                if (r >= 0 && clock_mono_ms() > until)
                        return err_set(err, ERR_TIMEOUT, "what ran in %s does not die", path);
                if (r >= 0)
                        r = op_wait_fd(op, -1, 0, 2, err);
                if (r < 0)
                        return r;
        }
}

/* Where the box made its cgroups: its own word, one path in a line, else where it would make one
 * now.
 */
static int kill_box_cgroups(struct op *op, const char *dir, const char *id, struct err *err)
{
        CLEAN(cleanup_free) char *note = xasprintf("%s/cgroup", dir);
        CLEAN(cleanup_free) char *name = xasprintf("/berth-%s", id);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_free) char *here = NULL;
        char own[4096], *save = NULL;
        int r = file_read_at(AT_FDCWD, note, (size_t)64 << 10, &text, err);

        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (r >= 0 && text.len > 0) {
                for (char *line = strtok_r(text.data, "\n", &save); line && r >= 0;
                     line = strtok_r(NULL, "\n", &save))
                        if (line[0] == '/' && strstr(line, name))
                                r = kill_cgroup(op, line, err);
                return r;
        }
        err_clear(err);
        r = own_cgroup(own, sizeof(own), err);
        if (r <= 0)
                return r;
        here = xasprintf("%s%s", own, name);
        return kill_cgroup(op, here, err);
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

/* One pass over all processes: how many were killed. Those of other users cannot be read, and are
 * not ours. */
static int kill_marked(const char *const *ids, struct err *err)
{
        struct dirent *entry;
        DIR *proc = opendir("/proc");
        int killed = 0, r = 0;

        if (!proc)
                return life_by_errno(errno) == LIFE_NO
                               ? 0
                               : err_sys(err, ERR_BUSY, errno, "look for what ran");
        while (r >= 0 && (entry = readdir(proc))) {
                CLEAN(buf_done) struct buf env = { .max = (size_t)4 << 20 };
                char path[300];
                pid_t pid = (pid_t)atoi(entry->d_name);

                if (pid <= 1)
                        continue;
                snprintf(path, sizeof(path), "/proc/%d/environ", (int)pid);
                r = file_read_at(AT_FDCWD, path, (size_t)4 << 20, &env, NULL);
                if (r == ERR_IO && errno != EACCES && errno != EPERM && !is_gone(errno))
                        r = err_sys(err, ERR_BUSY, errno, "look for what ran");
                else
                        r = 0;
                if (r >= 0 && carries_marker(buf_str(&env), env.len, ids) &&
                    kill(pid, SIGKILL) == 0)
                        killed++;
        }
        closedir(proc);
        return r < 0 ? r : killed;
}

/* 0, or the errno of the first thing that could not be removed. */
static int remove_tree(int dirfd, const char *name)
{
        int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *entry;
        int failed = 0;

        if (!dir) {
                failed = errno;
                if (fd >= 0)
                        close(fd);
                if (failed == ENOTDIR || failed == ELOOP)
                        failed = unlinkat(dirfd, name, 0) < 0 ? errno : 0;
                return failed == ENOENT ? 0 : failed;
        }
        while ((entry = readdir(dir)))
                if (!streq(entry->d_name, ".") && !streq(entry->d_name, "..")) {
                        int one = remove_tree(fd, entry->d_name);

                        failed = failed ? failed : one;
                }
        closedir(dir);
        if (unlinkat(dirfd, name, AT_REMOVEDIR) < 0 && errno != ENOENT && !failed)
                failed = errno;
        return failed;
}

int box_bury(struct op *op, const char *dir, const char *id, const char *const *exec_ids,
             struct err *err)
{
        int failed, r = kill_box(op, dir, err);

        if (r >= 0)
                r = kill_box_cgroups(op, dir, id, err);
        /* A fork may slip through one pass; two empty ones in a row it cannot. */
        for (int passes = 0, empty = 0; r >= 0 && *exec_ids && empty < 2; passes++) {
                r = kill_marked(exec_ids, err);
                empty = r > 0 ? 0 : empty + 1;
                if (r > 0 && passes == 100)
                        r = err_set(err, ERR_TIMEOUT, "what ran in %s does not die", dir);
        }
        if (r < 0)
                return r;
        failed = remove_tree(AT_FDCWD, dir);
        if (failed)
                return err_sys(err, ERR_IO, failed, "remove %s", dir);
        return file_sync_removal(dir, err);
}
