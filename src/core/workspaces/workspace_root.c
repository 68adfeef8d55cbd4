#define _GNU_SOURCE
#include "core/workspaces/workspace_root.h"

#include <fcntl.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/path.h"

/* Open `path`, a directory, if it lies beneath the root: asked of the kernel. */
static bool open_beneath(const char *root, size_t root_len, const char *path, int flags, int *ret)
{
        CLEAN(cleanup_free) char *name = xstrndup(root, root_len);
        CLEAN(cleanup_fd) int dir = -1;
        const char *rest = path + root_len;

        if (strncmp(path, root, root_len) != 0 || (*rest != '/' && *rest != '\0'))
                return false;
        while (*rest == '/')
                rest++;
        dir = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return dir >= 0 &&
               path_open_beneath(dir, *rest ? rest : ".", flags | O_DIRECTORY, 0, ret, NULL) >= 0;
}

/* A path that was made canonical need not begin as the root was written. */
static bool open_beneath_root(const char *root, size_t len, const char *path, int flags, int *ret)
{
        CLEAN(cleanup_free) char *name = xstrndup(root, len);
        CLEAN(cleanup_free) char *real = NULL;

        if (open_beneath(root, len, path, flags, ret))
                return true;
        real = realpath(name, NULL);
        return real && !streq(real, name) && open_beneath(real, strlen(real), path, flags, ret);
}

static bool open_beneath_any(const char *roots, const char *path, int flags, int *ret)
{
        while (*roots) {
                size_t n = strcspn(roots, ":");

                while (n > 1 && roots[n - 1] == '/')
                        n--;
                if (n > 0 && open_beneath_root(roots, n, path, flags, ret))
                        return true;
                roots += strcspn(roots, ":");
                roots += *roots == ':';
        }
        return false;
}

static bool lies_beneath_any(const char *roots, const char *path)
{
        CLEAN(cleanup_fd) int fd = -1;

        return open_beneath_any(roots, path, O_PATH, &fd);
}

static int refuse(const struct runtime *rt, const char *path, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE,
                       "Workspace path '%s' is not an existing directory beneath the allowed roots "
                       "(%s). Set BERTH_WORKSPACE_ROOTS to allow more.",
                       path, rt->settings.workspace_roots);
}

int workspace_root_check(const struct runtime *rt, const char *path, struct err *err)
{
        return lies_beneath_any(rt->settings.workspace_roots, path) ? 0 : refuse(rt, path, err);
}

int workspace_root_open(const struct runtime *rt, const char *path, struct arena *arena,
                        int *ret_fd, const char **ret_path, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        char link[64], real[4096];
        ssize_t n;

        if (!open_beneath_any(rt->settings.workspace_roots, path, O_RDONLY, &fd))
                return refuse(rt, path, err);
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, real, sizeof(real));
        if (n <= 0 || n == (ssize_t)sizeof(real) || real[0] != '/')
                return refuse(rt, path, err);
        *ret_path = arena_strndup(arena, real, (size_t)n);
        *ret_fd = take_fd(&fd);
        return 0;
}

int rootfs_check(const struct runtime *rt, const char *path, struct err *err)
{
        const char *roots = rt->settings.sandbox_rootfs_dirs;

        if (roots && lies_beneath_any(roots, path))
                return 0;
        return err_set(
                err, ERR_UNPROCESSABLE,
                "rootfs '%s' is not an existing directory beneath the allowed ones (%s). Set "
                "sandbox_rootfs_dirs to allow more.",
                path, roots ? roots : "none");
}
