/* What a disk has after a power cut: only what was synced.
 *
 * For a directory ROOT that has a directory ROOT.disk beside it, fsync(), fdatasync() and syncfs()
 * are written down in ROOT.disk instead of being done: what the file held at that moment, or the
 * names in the directory, as ROOT.disk/<step>, and a line in ROOT.disk/steps. test/it/powercut.py
 * puts together what a disk that lost everything else has after any of the steps.
 *
 *   f <key> <path>     a file; its bytes
 *   d <key> <path>     a directory; an entry is `kind key mode uid gid name target`, with tabs, and
 *                      ends with NUL. kind: f, d or l
 *
 * The key is the inode with the time when it was made: an inode number is used again. The path
 * begins at ROOT, and is only for people but for `.`, which is ROOT itself.
 *
 * Preloaded into a daemon; a part of a box, which is static. A process that cannot reach ROOT.disk,
 * as in a sandbox, syncs nothing: what it does is lost. A file that our process has locked must not
 * be opened a second time, because closing that would end the lock: the bytes come from the
 * descriptor that is synced. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

struct disk {
        char root[PATH_MAX];
        char dir[PATH_MAX + 8];
        int steps; /* with a lock on it */
        long step; /* the next */
};

static int key_of(int dir, const char *name, char ret[64], struct statx *st)
{
        if (statx(dir, name, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME,
                  st) < 0)
                return -1;
        snprintf(ret, 64, "%llu.%lld.%u", (unsigned long long)st->stx_ino,
                 (long long)st->stx_btime.tv_sec, st->stx_btime.tv_nsec);
        return 0;
}

/* The root above the path, if there is one. */
static int find_root(const char *path, struct disk *d)
{
        snprintf(d->root, sizeof(d->root), "%s", path);
        for (;;) {
                char *slash = strrchr(d->root, '/');

                snprintf(d->dir, sizeof(d->dir), "%s.disk", d->root);
                if (access(d->dir, W_OK) == 0)
                        return 0;
                if (!slash || slash == d->root)
                        return -1;
                *slash = '\0';
        }
}

static int disk_open(struct disk *d)
{
        char path[PATH_MAX + 32], block[4096];
        ssize_t n;

        snprintf(path, sizeof(path), "%s/steps", d->dir);
        d->steps = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (d->steps < 0 || flock(d->steps, LOCK_EX) < 0)
                return -1;
        d->step = 0;
        while ((n = read(d->steps, block, sizeof(block))) > 0)
                for (ssize_t i = 0; i < n; i++)
                        d->step += block[i] == '\n';
        return 0;
}

static int blob_open(const struct disk *d)
{
        char path[PATH_MAX + 32];

        snprintf(path, sizeof(path), "%s/%ld", d->dir, d->step);
        return open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
}

static int put_all(int fd, const char *data, size_t len)
{
        while (len > 0) {
                ssize_t n = write(fd, data, len);

                if (n <= 0)
                        return -1;
                data += n;
                len -= (size_t)n;
        }
        return 0;
}

static int copy_file(int from, int to)
{
        static char block[1 << 16]; /* under the lock */
        off_t at = 0;
        ssize_t n;

        while ((n = pread(from, block, sizeof(block), at)) > 0) {
                if (put_all(to, block, (size_t)n) < 0)
                        return -1;
                at += n;
        }
        return n < 0 ? -1 : 0;
}

static int copy_names(int from, int to)
{
        int fd = openat(from, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        const struct dirent *entry;
        int r = 0;

        if (!dir)
                return -1;
        while (r == 0 && (entry = readdir(dir))) {
                char key[64], line[PATH_MAX + 512], target[PATH_MAX] = "";
                struct statx st;
                int n;

                if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
                    key_of(fd, entry->d_name, key, &st) < 0)
                        continue;
                if (S_ISLNK(st.stx_mode) &&
                    readlinkat(fd, entry->d_name, target, sizeof(target) - 1) < 0)
                        continue;
                if (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode) && !S_ISLNK(st.stx_mode))
                        continue;
                n = snprintf(line, sizeof(line), "%c\t%s\t%o\t%u\t%u\t%s\t%s",
                             S_ISDIR(st.stx_mode)   ? 'd'
                             : S_ISLNK(st.stx_mode) ? 'l'
                                                    : 'f',
                             key, st.stx_mode & 07777U, st.stx_uid, st.stx_gid, entry->d_name,
                             target);
                if (n > 0 && (size_t)n < sizeof(line))
                        r = put_all(to, line, (size_t)n + 1);
        }
        closedir(dir);
        return r;
}

/* One file or directory. */
static void write_down(struct disk *d, int fd, const char *path)
{
        const char *rest = path + strlen(d->root);
        char key[64], line[PATH_MAX + 128];
        struct statx st;
        int to, r;

        if (key_of(fd, "", key, &st) < 0 || (!S_ISREG(st.stx_mode) && !S_ISDIR(st.stx_mode)))
                return;
        to = blob_open(d);
        if (to < 0)
                return;
        r = S_ISDIR(st.stx_mode) ? copy_names(fd, to) : copy_file(fd, to);
        close(to);
        if (r < 0)
                return;
        snprintf(line, sizeof(line), "%c %s %s\n", S_ISDIR(st.stx_mode) ? 'd' : 'f', key,
                 *rest ? rest + 1 : ".");
        if (put_all(d->steps, line, strlen(line)) == 0)
                d->step++;
}

static struct disk *walked; /* under the lock */

static int walk_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
        int fd;

        (void)st;
        (void)ftw;
        if ((flag != FTW_F && flag != FTW_D && flag != FTW_DP) || strstr(path, "/berth.db"))
                return 0; /* the database is the one file that is locked */
        fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (fd >= 0) {
                write_down(walked, fd, path);
                close(fd);
        }
        return 0;
}

static void note_sync(int fd, int is_whole)
{
        char link[64], path[PATH_MAX];
        int saved = errno, again = -1;
        struct disk d;
        ssize_t n;

        snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, path, sizeof(path) - 1);
        if (n <= 0)
                goto out;
        path[n] = '\0';
        if (find_root(path, &d) < 0)
                goto out;
        pthread_mutex_lock(&lock);
        if (disk_open(&d) == 0) {
                if (is_whole) {
                        walked = &d;
                        (void)nftw(d.root, walk_one, 16, FTW_PHYS | FTW_DEPTH | FTW_MOUNT);
                        walked = NULL;
                } else {
                        /* One that was opened for writing only. */
                        if ((fcntl(fd, F_GETFL) & O_ACCMODE) == O_WRONLY)
                                again = open(link, O_RDONLY | O_CLOEXEC);
                        write_down(&d, again >= 0 ? again : fd, path);
                }
        }
        if (again >= 0)
                close(again);
        if (d.steps >= 0)
                close(d.steps);
        pthread_mutex_unlock(&lock);
out:
        errno = saved;
}

int fsync(int fd)
{
        note_sync(fd, 0);
        return 0;
}

int fdatasync(int fildes)
{
        note_sync(fildes, 0);
        return 0;
}

int syncfs(int fd)
{
        note_sync(fd, 1);
        return 0;
}
