#define _GNU_SOURCE
#include "core/workspace_root.h"

#include <fcntl.h>

#include "base/fd.h"
#include "base/path.h"

/* Whether `path` lies beneath the root, asked of the kernel. */
static bool lies_beneath(const char *root, size_t root_len, const char *path)
{
        CLEAN(cleanup_free) char *name = xstrndup(root, root_len);
        CLEAN(cleanup_fd) int dir = -1;
        CLEAN(cleanup_fd) int fd = -1;
        const char *rest = path + root_len;

        if (strncmp(path, root, root_len) != 0 || (*rest != '/' && *rest != '\0'))
                return false;
        while (*rest == '/')
                rest++;
        dir = open(name, O_PATH | O_DIRECTORY | O_CLOEXEC);
        return dir >= 0 &&
               path_open_beneath(dir, *rest ? rest : ".", O_PATH | O_DIRECTORY, 0, &fd, NULL) >= 0;
}

static bool lies_beneath_any(const char *roots, const char *path)
{
        while (*roots) {
                size_t n = strcspn(roots, ":");

                while (n > 1 && roots[n - 1] == '/')
                        n--;
                if (n > 0 && lies_beneath(roots, n, path))
                        return true;
                roots += strcspn(roots, ":");
                roots += *roots == ':';
        }
        return false;
}

int workspace_root_check(const struct runtime *rt, const char *path, struct err *err)
{
        if (lies_beneath_any(rt->settings.workspace_roots, path))
                return 0;
        return err_set(err, ERR_UNPROCESSABLE,
                       "Workspace path '%s' is not an existing directory beneath the allowed roots "
                       "(%s). Set BERTH_WORKSPACE_ROOTS to allow more.",
                       path, rt->settings.workspace_roots);
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
