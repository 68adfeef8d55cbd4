/* Which directory a worker owns, and which files it may read. */
#define _GNU_SOURCE
#include "plugin/files.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/hash.h"
#include "base/path.h"
#include "plugin/tree.h"

/* Users */

static bool is_in_range(const struct confine_policy *policy, int64_t uid)
{
        return uid >= policy->uid_first && uid < policy->uid_first + policy->uid_count;
}

/* Where the search begins. */
static int64_t place_in_range(const struct confine_policy *policy, const char *id)
{
        return (int64_t)(hash_text(id) % (uint64_t)policy->uid_count);
}

struct search {
        const struct confine_policy *policy;
        uid_t uid;
        bool taken;
};

static int look_at_owner(void *ctx, const char *name)
{
        struct search *s = ctx;
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", s->policy->private_dir, name);
        struct stat st;

        if (lstat(path, &st) == 0 ? st.st_uid == s->uid : errno != ENOENT)
                s->taken = true;
        return 0;
}

static int find_free(const struct confine_policy *policy, const char *id, uid_t *ret,
                     struct err *err)
{
        int64_t place = place_in_range(policy, id);

        for (int64_t i = 0; i < policy->uid_count; i++) {
                struct search s = { policy,
                                    (uid_t)(policy->uid_first + (place + i) % policy->uid_count),
                                    false };
                int r = policy->private_dir ? tree_each(policy->private_dir, look_at_owner, &s, err)
                                            : 0;

                if (r < 0 && r != ERR_NOT_FOUND)
                        return r;
                err_clear(err);
                if (!s.taken) {
                        *ret = s.uid;
                        return 0;
                }
        }
        return err_set(err, ERR_UNPROCESSABLE,
                       "all %lld users for plugin workers are taken; set plugin_uid_count to more",
                       (long long)policy->uid_count);
}

/* The directory itself is given away first, so that the next search sees it. */
static int choose_user(const struct op *op, struct confine_policy *policy, const char *dir, int fd,
                       const char *id, uid_t *ret, struct err *err)
{
        struct stat st;
        int r = 0;

        pthread_mutex_lock(&policy->lock);
        if (fstat(fd, &st) < 0)
                r = err_sys(err, ERR_IO, errno, "look at %s", dir);
        else if (is_in_range(policy, st.st_uid))
                *ret = st.st_uid;
        else
                r = find_free(policy, id, ret, err);
        if (r >= 0 && st.st_uid != *ret && fchown(fd, *ret, *ret) < 0)
                r = err_sys(err, ERR_IO, errno, "give %s to its worker", dir);
        pthread_mutex_unlock(&policy->lock);
        if (r >= 0 && st.st_uid != *ret)
                r = tree_give(op, dir, *ret, err);
        return r;
}

/* Without users of their own workers leave files of root there: the next owner of the directory
 * gets those, too. */
static int take_back(const struct confine_policy *policy, const char *dir, int fd, struct err *err)
{
        struct stat st;

        if (geteuid() == 0 && fstat(fd, &st) == 0 && is_in_range(policy, st.st_uid) &&
            fchown(fd, 0, 0) < 0)
                return err_sys(err, ERR_IO, errno, "take %s back", dir);
        return 0;
}

int files_own_dir(const struct op *op, struct confine_policy *policy, const char *dir,
                  const char *id, uid_t *ret, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        CLEAN(cleanup_fd) int tmp = -1;
        int r = path_make_dirs(dir, 0700, err);

        *ret = 0;
        if (r < 0)
                return r;
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", dir);
        if (policy && policy->refusal)
                return err_set(err, ERR_UNPROCESSABLE, "%s", policy->refusal);
        if (policy)
                r = confine_try_view(op, policy, err);
        if (r < 0)
                return r;
        if (policy && confine_has_users(policy))
                r = choose_user(op, policy, dir, fd, id, ret, err);
        else if (policy)
                r = take_back(policy, dir, fd, err);
        if (r < 0)
                return r;
        /* The directory is the worker's: what it put there under this name is not followed. */
        if (mkdirat(fd, "tmp", 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "make %s/tmp", dir);
        tmp = openat(fd, "tmp", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (tmp < 0 || (*ret && fchown(tmp, *ret, *ret) < 0))
                return err_sys(err, ERR_IO, errno, "prepare %s/tmp", dir);
        return 0;
}

/* Reading */

static int copy_path(const struct op *op, const struct confine_policy *policy, uid_t uid,
                     const char *path, const char *into, struct arena *arena, const char **ret,
                     struct err *err)
{
        const char *slash = strrchr(path, '/');
        int r = path_make_dirs(into, 0700, err);

        if (r >= 0)
                r = tree_copy_for(op, path, policy->never_shown, into, uid, err);
        if (r == ERR_TOO_LARGE)
                return err_wrap(err, r,
                                "the worker's user cannot read it, and a copy would be too large; "
                                "let others read it (chmod -R a+rX), or name less");
        *ret = arena_printf(arena, "%s/%s", into, slash ? slash + 1 : path);
        return r;
}

/* Whether one of the first n is a directory above it, or the same. */
static bool is_covered(const struct confine_path *list, size_t n, const char *path)
{
        for (size_t i = 0; i < n; i++) {
                size_t len = strlen(list[i].path);

                if (strncmp(list[i].path, path, len) == 0 && (path[len] == '/' || !path[len]))
                        return true;
        }
        return false;
}

int files_for_reading(const struct op *op, struct confine_policy *policy, uid_t uid,
                      const char *const *paths, const char *copies, struct arena *arena,
                      const struct confine_path **ret, struct err *err)
{
        struct confine_path *list;
        char real[PATH_MAX];
        size_t all = 0, n = 0;
        int r = 0;

        while (paths && paths[all])
                all++;
        list = arena_alloc(arena, (all + 1) * sizeof(*list));
        for (size_t i = 0; i < all; i++)
                if (!is_covered(list, n, paths[i]))
                        list[n++].path = paths[i];
        *ret = list;
        if (uid == 0 || !confine_has_view(policy))
                return 0;
        r = tree_remove(op, copies, err);
        for (size_t i = 0; r >= 0 && i < n; i++) {
                if (!realpath(list[i].path, real))
                        continue; /* not there: not shown */
                r = tree_is_open(op, real, policy->never_shown, err);
                if (r == 0)
                        r = copy_path(op, policy, uid, arena_strdup(arena, real),
                                      arena_printf(arena, "%s/%zu", copies, i), arena,
                                      &list[i].copy, err);
        }
        return r < 0 ? r : 0;
}
