/* Makes the data directory private, and takes its lock. */
#include "daemon/datadir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"

#define LOCK_FILE    "berth.lock"
#define LOCK_WAIT_MS 2000

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
        if (take_lock(fd, pid, sizeof(pid)) < 0) {
                if (errno != EWOULDBLOCK)
                        return err_sys(err, ERR_IO, errno, "lock %s", path);
                return err_set(
                        err, ERR_LOCKED,
                        "another berth daemon (process %s) uses the data directory %s; stop it, "
                        "or choose another directory with --data",
                        *pid ? pid : "unknown", path);
        }
        /* For the message above, and for a command that would start a private one again: the lock
         * itself is the kernel's. */
        snprintf(pid, sizeof(pid), "%d\n%s", (int)getpid(), is_private ? "private\n" : "");
        if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, strlen(pid), 0) < 0)
                return err_sys(err, ERR_IO, errno, "write %s/%s", path, LOCK_FILE);
        shut_out_others(dir, path);
        *ret_fd = take_fd(&fd);
        return 0;
}
