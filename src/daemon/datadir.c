#include "daemon/datadir.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>

#include "base/fd.h"

#define LOCK_FILE    "berth.lock"
#define LOCK_WAIT_MS 2000

static int open_dir(const char *path, int *ret_fd, struct err *err)
{
        *ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return *ret_fd < 0 ? err_sys(err, ERR_IO, errno, "open data directory %s", path) : 0;
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
        /* For the message above, and for whoever would start a private one again: the lock itself
         * is the kernel's. */
        snprintf(pid, sizeof(pid), "%d\n%s", (int)getpid(), is_private ? "private\n" : "");
        if (ftruncate(fd, 0) < 0 || pwrite(fd, pid, strlen(pid), 0) < 0)
                return err_sys(err, ERR_IO, errno, "write %s/%s", path, LOCK_FILE);
        *ret_fd = take_fd(&fd);
        return 0;
}
