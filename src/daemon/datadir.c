/* Makes the data directory private, and takes its lock. */
#define _GNU_SOURCE
#include "daemon/datadir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"

#define LOCK_FILE     "berth.lock"
#define LOCK_WAIT_MS  2000
#define TAKE_OVER_MS  45000 /* a daemon that is told to end does so in STOP_MAX_S */
#define TAKE_PAUSE_MS 2

static int open_dir(const char *path, int *ret_fd, struct err *err)
{
        *ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return *ret_fd < 0 ? err_sys(err, ERR_IO, errno, "open data directory %s", path) : 0;
}

/* What a daemon makes in its directory, beside files called `berth.…`, and what an operator puts
 * there for it. */
static const char *const own_entries[] = {
        "adapters",  "agents",     "boxes",   "builtin-skills", "companies",
        "images",    "node-id",    "output",  "plugins",        "rootfs",
        "run-logs",  "run-assets", "salvage", "sandboxes",      "secrets",
        "snapshots", "skills",     "ssh",     "workspaces",     "workspace-locks",
};

static bool is_own_entry(const char *name)
{
        if (streq(name, ".") || streq(name, "..") || str_starts(name, "berth."))
                return true;
        for (size_t i = 0; i < ARRAY_LEN(own_entries); i++)
                if (streq(name, own_entries[i]))
                        return true;
        return false;
}

/* Whether the directory holds nothing but our own files: `--data /var/lib` does not make that our
 * own. */
static bool is_ours_alone(int dir)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *e;
        bool ours = d != NULL;

        if (!d)
                cleanup_fd(&fd);
        while (ours && (e = readdir(d)) != NULL)
                ours = is_own_entry(e->d_name);
        if (d)
                closedir(d);
        return ours;
}

/* The files in it are private to the daemon's user by their own modes; that others can list and
 * pass the directory is one mistake away from more. */
static void shut_out_others(int dir, const char *path)
{
        struct stat st;

        if (fstat(dir, &st) < 0 || (st.st_mode & 077) == 0)
                return;
        if (st.st_uid == geteuid() && !(st.st_mode & S_ISVTX) && is_ours_alone(dir) &&
            fchmod(dir, st.st_mode & 0700) == 0)
                log_info("the data directory was open to other users; it is not any more",
                         LOG_S("directory", path));
        else
                log_warn("the data directory is open to other users; give the daemon one of its "
                         "own, and chmod 700 it",
                         LOG_S("directory", path));
}

static void read_holder(int fd, char *ret, size_t size)
{
        ssize_t n = pread(fd, ret, size - 1, 0);

        ret[n > 0 ? n : 0] = '\0';
        ret[strcspn(ret, "\n")] = '\0';
}

/* A daemon that was killed while it made a process leaves the lock with the child, until that has
 * become another program: a moment later it is free. A daemon that lives is not waited for. */
static int take_lock(int fd, char *ret_holder, size_t size)
{
        for (int waited = 0;; waited += 5) {
                if (flock(fd, LOCK_EX | LOCK_NB) == 0)
                        return 0;
                if (errno != EWOULDBLOCK)
                        return -1;
                read_holder(fd, ret_holder, size);
                if (waited >= LOCK_WAIT_MS ||
                    (atoi(ret_holder) > 0 && kill((pid_t)atoi(ret_holder), 0) == 0)) {
                        errno = EWOULDBLOCK;
                        return -1;
                }
                (void)poll(NULL, 0, 5);
        }
}

/* The process that the lock file names as a private daemon; 0: none. */
static pid_t private_holder(int lock)
{
        char text[64];
        ssize_t n = pread(lock, text, sizeof(text) - 1, 0);

        text[n > 0 ? n : 0] = '\0';
        return strstr(text, "\nprivate\n") && atoi(text) > 0 ? (pid_t)atoi(text) : 0;
}

/* The words of its command line tell a private daemon from whoever has its number now. */
static bool serves_privately(pid_t pid)
{
        CLEAN(buf_done) struct buf words = BUF_INIT;
        char path[64];

        (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
        if (file_read_at(AT_FDCWD, path, 65536, &words, NULL) < 0)
                return false;
        return memmem(words.data, words.len, "\0serve\0--private\0", 17) != NULL;
}

/* Tell it to end. The process is held before the lock is looked at again: what still has the lock
 * and is named in it then cannot have become another process since. Returns whether it was told. */
static bool end_private(int lock, pid_t pid)
{
        CLEAN(cleanup_fd) int process = (int)syscall(SYS_pidfd_open, pid, 0);

        if (process < 0)
                return false;
        if (flock(lock, LOCK_EX | LOCK_NB) == 0) {
                (void)flock(lock, LOCK_UN);
                return false;
        }
        return private_holder(lock) == pid && serves_privately(pid) &&
               syscall(SYS_pidfd_send_signal, process, SIGTERM, NULL, 0) == 0;
}

/* A private daemon makes room for one that is started on purpose. A command that it leaves behind
 * may start the next one before we have the lock: that one makes room as well. */
static bool take_over(int lock)
{
        int64_t until = clock_mono_ms() + TAKE_OVER_MS;
        pid_t told = 0;

        while (clock_mono_ms() < until) {
                pid_t pid = private_holder(lock);

                if (flock(lock, LOCK_EX | LOCK_NB) == 0)
                        return true;
                if (pid == 0)
                        return false;
                if (pid != told && end_private(lock, pid)) {
                        log_info("the private daemon of this directory ends for this one",
                                 LOG_I("process", pid));
                        told = pid; /* twice would end it at once */
                }
                (void)poll(NULL, 0, TAKE_PAUSE_MS);
        }
        return false;
}

int datadir_lock(const char *path, bool is_private, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int dir = -1;
        CLEAN(cleanup_fd) int fd = -1;
        char pid[32] = "";
        int r = open_dir(path, &dir, err);

        if (r < 0)
                return r;
        fd = openat(dir, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s/%s", path, LOCK_FILE);
        bool has = take_lock(fd, pid, sizeof(pid)) == 0;
        if (!has && errno != EWOULDBLOCK)
                return err_sys(err, ERR_IO, errno, "lock %s", path);
        if (!has && (is_private || !take_over(fd)))
                return err_set(
                        err, ERR_LOCKED,
                        "another berth daemon (process %s) uses the data directory %s; stop it, "
                        "or choose another directory with --data",
                        *pid ? pid : "unknown", path);
        /* For the message above, and for a command that would start a private one again: the lock
         * itself is the kernel's. */
        snprintf(pid, sizeof(pid), "%d\n%s", (int)getpid(), is_private ? "private\n" : "");
        if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, strlen(pid), 0) < 0)
                return err_sys(err, ERR_IO, errno, "write %s/%s", path, LOCK_FILE);
        shut_out_others(dir, path);
        *ret_fd = take_fd(&fd);
        return 0;
}
