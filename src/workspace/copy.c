/* Copies a tree, entry by entry. */
#define _GNU_SOURCE
#include "workspace/copy.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "workspace/content.h"
#include "workspace/owner.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct copying {
        struct op *op;
        const struct copy_options *options;
        struct copy_result *result;
        char path[TREE_MAX_PATH + 1];
        int depth;
};

/* After an open that failed. */
static bool is_not_his(const struct copying *c)
{
        return c->options->owner && errno == EACCES;
}

static int copy_leaf(struct copying *c, int from, int to, const char *name, const struct stat *st,
                     struct err *err)
{
        CLEAN(cleanup_fd) int in = -1;
        CLEAN(cleanup_fd) int out = -1;

        in = owner_openat(c->options->owner, from, name,
                          O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (in < 0 && is_not_his(c))
                return 0;
        if (in < 0)
                return err_sys(err, ERR_IO, errno, "read %s", c->path);
        out = openat(to, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (out < 0)
                return err_sys(err, ERR_IO, errno, "copy %s", c->path);
        int r = content_copy(c->op, in, out, (uint64_t)st->st_size, NULL, err);
        if (r < 0 && r != ERR_CONFLICT) /* it became shorter: the copy is as long as it is now */
                return err_wrap(err, r, "copy %s", c->path);
        if (fchown(out, c->options->uid, c->options->gid) < 0 ||
            fchmod(out, st->st_mode & 0777) < 0)
                return err_sys(err, ERR_IO, errno, "copy %s", c->path);
        c->result->files++;
        c->result->bytes += (uint64_t)st->st_size;
        return 0;
}

static int copy_link(struct copying *c, int from, int to, const char *name, struct err *err)
{
        char target[TREE_MAX_TARGET + 1];
        ssize_t n = readlinkat(from, name, target, sizeof(target));

        if (n < 0 || (size_t)n >= sizeof(target))
                return err_set(err, ERR_IO, "read the link %s", c->path);
        target[n] = '\0';
        if (symlinkat(target, to, name) < 0 ||
            fchownat(to, name, c->options->uid, c->options->gid, AT_SYMLINK_NOFOLLOW) < 0)
                return err_sys(err, ERR_IO, errno, "copy the link %s", c->path);
        return 0;
}

static int copy_beneath(struct copying *c, int take_from, int to, struct err *err);

static int copy_dir(struct copying *c, int from, int to, const char *name, const struct stat *st,
                    struct err *err)
{
        int in = owner_openat(c->options->owner, from, name, OPEN_DIR);
        CLEAN(cleanup_fd) int out = -1;

        if (in < 0 && is_not_his(c))
                return 0;
        if (in < 0)
                return err_sys(err, ERR_IO, errno, "read %s", c->path);
        if (mkdirat(to, name, 0700) < 0 || (out = openat(to, name, OPEN_DIR)) < 0) {
                close(in);
                return err_sys(err, ERR_IO, errno, "copy %s", c->path);
        }
        int r = copy_beneath(c, in, out, err);
        if (r >= 0 && (fchown(out, c->options->uid, c->options->gid) < 0 ||
                       fchmod(out, st->st_mode & 0777) < 0))
                r = err_sys(err, ERR_IO, errno, "copy %s", c->path);
        return r;
}

/* A mount in a workspace is not part of it, as in a scan and in an overlay. */
static bool is_mount_point(int dir, const char *name)
{
        struct statx st;

        return statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_TYPE, &st) == 0 &&
               (st.stx_attributes & st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT);
}

static int copy_one(struct copying *c, int from, int to, const char *name, struct err *err)
{
        struct stat st;

        if (fstatat(from, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "read %s", c->path);
        if (excludes_never(c->options->excludes, tree_id_of(&st)) || is_mount_point(from, name))
                return 0;
        if (S_ISDIR(st.st_mode))
                return copy_dir(c, from, to, name, &st, err);
        if (S_ISLNK(st.st_mode))
                return copy_link(c, from, to, name, err);
        return S_ISREG(st.st_mode) ? copy_leaf(c, from, to, name, &st, err) : 0;
}

static int copy_beneath(struct copying *c, int take_from, int to, struct err *err)
{
        DIR *dir = fdopendir(take_from);
        size_t at = strlen(c->path);
        struct dirent *entry;
        int r = op_check(c->op, err);

        if (!dir) {
                close(take_from);
                return err_sys(err, ERR_IO, errno, "read %s", c->path);
        }
        if (++c->depth > TREE_MAX_DEPTH)
                r = err_set(err, ERR_TOO_LARGE, "%s lies too deep", c->path);
        while (r >= 0 && (entry = readdir(dir))) {
                const char *name = entry->d_name;

                if (streq(name, ".") || streq(name, ".."))
                        continue;
                if (at + 1 + strlen(name) > TREE_MAX_PATH) {
                        r = err_set(err, ERR_TOO_LARGE, "%s/%s: the path is too long", c->path,
                                    name);
                        break;
                }
                snprintf(c->path + at, sizeof(c->path) - at, "%s%s", at ? "/" : "", name);
                if (!excludes_match(c->options->excludes, c->path))
                        r = copy_one(c, dirfd(dir), to, name, err);
                c->path[at] = '\0';
        }
        c->depth--;
        closedir(dir);
        return r;
}

int tree_copy(struct op *op, int from_fd, int to_fd, const struct copy_options *options,
              struct copy_result *ret, struct err *err)
{
        struct copying c = { .op = op, .options = options, .result = ret };
        int from = openat(from_fd, ".", OPEN_DIR);
        struct stat st;

        if (from < 0 || fstat(from_fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "read the tree");
        int r = copy_beneath(&c, from, to_fd, err);
        if (r >= 0 &&
            (fchown(to_fd, options->uid, options->gid) < 0 || fchmod(to_fd, st.st_mode & 0777) < 0))
                r = err_sys(err, ERR_IO, errno, "copy the tree");
        return r;
}
