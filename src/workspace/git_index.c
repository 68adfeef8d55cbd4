#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "workspace/content.h"
#include "workspace/git_internal.h"

/* The host's index. git works on a copy in the scratch directory; the result takes the place of the
 * host's under the lock that git programs use, if that is still the one that was copied. So no path
 * in the host's repository is followed, and the lock is held for a moment only. */

static const char empty_tree[] = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

#define TEMPORARY "index.berth-tmp"

static bool same_file(const struct stat *a, const struct stat *b)
{
        return a->st_ino == b->st_ino && a->st_size == b->st_size &&
               a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int copy(struct git_import *g, int from, int to, struct err *err)
{
        struct stat st;

        if (fstat(from, &st) < 0)
                return err_sys(err, ERR_IO, errno, "look at the index");
        return content_copy(g->op, from, to, (uint64_t)st.st_size, NULL, err);
}

/* 1 with what was copied, 0 when it is nothing that can be. No index is an empty one (st_ino 0). */
static int copy_out(struct git_import *g, int dir, struct stat *ret, struct err *err)
{
        CLEAN(cleanup_fd)
        int from = openat(dir, "index", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        CLEAN(cleanup_fd) int to = -1;
        int r;

        *ret = (struct stat){ 0 };
        (void)unlinkat(g->scratch_fd, "index", 0);
        if (from < 0)
                return errno == ENOENT;
        if (fstat(from, ret) < 0 || !S_ISREG(ret->st_mode))
                return 0;
        to = openat(g->scratch_fd, "index", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (to < 0)
                return err_sys(err, ERR_IO, errno, "create %s/index", g->scratch);
        r = copy(g, from, to, err);
        return r < 0 ? r : 1;
}

/* A lock that we died with is another name of the file that was to become the index. */
static void drop_own_lock(int dir)
{
        struct stat lock, temporary;

        if (fstatat(dir, "index.lock", &lock, AT_SYMLINK_NOFOLLOW) == 0 &&
            fstatat(dir, TEMPORARY, &temporary, AT_SYMLINK_NOFOLLOW) == 0 &&
            lock.st_dev == temporary.st_dev && lock.st_ino == temporary.st_ino)
                (void)unlinkat(dir, "index.lock", 0);
}

static int write_beside(struct git_import *g, int dir, const struct stat *old, struct err *err)
{
        CLEAN(cleanup_fd) int from = openat(g->scratch_fd, "index", O_RDONLY | O_CLOEXEC);
        CLEAN(cleanup_fd) int to = -1;
        struct stat owner;
        int r;

        drop_own_lock(dir);
        (void)unlinkat(dir, TEMPORARY, 0);
        to = openat(dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (from < 0 || to < 0 || fstat(dir, &owner) < 0)
                return err_sys(err, ERR_IO, errno, "create %s/" TEMPORARY, g->host);
        if (geteuid() == 0 && fchown(to, owner.st_uid, owner.st_gid) < 0)
                return err_sys(err, ERR_IO, errno, "change the owner of the index");
        r = copy(g, from, to, err);
        if (r >= 0 && (fchmod(to, old->st_ino ? old->st_mode & 0666 : 0644) < 0 || fsync(to) < 0))
                r = err_sys(err, ERR_IO, errno, "sync the index");
        return r;
}

/* 1, or 0 when somebody else is at it or has been. */
static int put_back(struct git_import *g, int dir, const struct stat *old, struct err *err)
{
        struct stat now = { 0 };
        int r = write_beside(g, dir, old, err);

        FAULT("workspace.git.index.before");
        if (r >= 0 && linkat(dir, TEMPORARY, dir, "index.lock", 0) == 0) {
                FAULT("workspace.git.index.locked");
                if ((fstatat(dir, "index", &now, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOENT) &&
                    same_file(&now, old) && renameat(dir, "index.lock", dir, "index") == 0)
                        r = 1;
                else
                        (void)unlinkat(dir, "index.lock", 0);
        }
        (void)unlinkat(dir, TEMPORARY, 0);
        FAULT("workspace.git.index.after");
        return r;
}

/* The index as it was, with what changed between the two commits: what somebody staged stays, or
 * git refuses. Working files are not looked at, so no filter runs. */
static int change(struct git_import *g, const char *old, const char *new, struct err *err)
{
        const char *const args[] = { "read-tree", "-i", "-m", *old ? old : empty_tree, new, NULL };
        const char *said;
        int status;
        int r = git_run(
                g,
                &(struct git_run){ .args = args,
                                   .index = arena_printf(g->op->arena, "%s/index", g->scratch) },
                NULL, &status, &said, err);

        return r < 0 ? r : status == 0;
}

int git_move_index(struct git_import *g, const char *old, const char *new, bool *ret_stale,
                   struct err *err)
{
        CLEAN(cleanup_fd)
        int dir = open(g->host, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        struct stat copied;
        int r;

        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open %s", g->host);
        r = copy_out(g, dir, &copied, err);
        if (r > 0)
                r = change(g, old, new, err);
        if (r > 0)
                r = put_back(g, dir, &copied, err);
        *ret_stale = r == 0;
        return r < 0 ? r : 0;
}
