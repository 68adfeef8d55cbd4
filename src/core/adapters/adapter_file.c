/* Decides which files may be read as an agent's instructions. */
#define _GNU_SOURCE
/* An agent may have written the file: a file brought home from a sandbox is read here, by the
 * daemon, and told to that sandbox again. So no link leads out of the directory of the work, or of
 * the file's own directory where it lies elsewhere, and only regular files are read: a pipe would
 * make the daemon wait. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/utf8.h"
#include "core/adapters/adapter_internal.h"
#include "core/roots/own_files.h"
#include "core/roots/workspace_root.h"

/* The length of the directory beneath which `path` has to stay. */
static size_t root_len(const char *path, const char *workspace)
{
        size_t n = workspace ? strlen(workspace) : 0;

        while (n > 1 && workspace[n - 1] == '/')
                n--;
        if (n > 1 && strncmp(path, workspace, n) == 0 && path[n] == '/')
                return n;
        return (size_t)(strrchr(path, '/') - path);
}

/* Where companies have owners of their own, an agent's instructions come from a directory of its
 * company: the directory that was checked is the one that is read from. */
static int open_root(const struct adapter_input *in, const char *root, int *ret_fd, struct err *err)
{
        struct arena arena;
        const char *real;
        int r;

        if (!in->rt || in->rt->settings.mode == MODE_LOCAL_TRUSTED) {
                *ret_fd = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
                return *ret_fd < 0 ? err_sys(err, ERR_IO, errno, "open %s", root) : 0;
        }
        arena_init(&arena);
        r = workspace_root_open(in->rt, &(struct workspace_asker){ in->agent->company_id, false },
                                root, &arena, ret_fd, &real, err);
        arena_done(&arena);
        return r;
}

static int open_file(const struct adapter_input *in, const char *path, const char *workspace,
                     int *ret_fd, struct err *err)
{
        size_t n = root_len(path, workspace);
        CLEAN(cleanup_free) char *root = n ? xstrndup(path, n) : xstrdup("/");
        CLEAN(cleanup_fd) int dir = -1;
        int r = open_root(in, root, &dir, err);

        if (r < 0)
                return r;
        path += n;
        path += strspn(path, "/");
        return path_open_beneath(dir, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, ret_fd, err);
}

static int read_text(int fd, size_t max, struct buf *ret, struct err *err)
{
        for (;;) {
                char *at = buf_reserve(ret, 8192);
                ssize_t n = at ? read(fd, at, 8192) : -1;

                if (n < 0)
                        return err_set(err, ERR_IO, "cannot be read");
                if (n == 0)
                        break;
                buf_grew(ret, (size_t)n);
                if (ret->len > max)
                        return err_set(err, ERR_TOO_LARGE, "has more than %zu bytes", max);
        }
        if (!utf8_is_valid(buf_str(ret), ret->len) || memchr(buf_str(ret), '\0', ret->len))
                return err_set(err, ERR_INVALID, "is no text");
        return 0;
}

int adapter_read_file(const struct adapter_input *in, const char *path, const char *workspace,
                      size_t max, struct buf *ret, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;
        int r;

        if (*path != '/')
                return err_set(err, ERR_INVALID, "is no absolute path");
        r = open_file(in, path, workspace, &fd, err);
        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return err_set(err, ERR_INVALID, "is no file");
        r = in->rt ? own_files_check_file(in->rt, fd, path, err) : 0; /* not the daemon's own */
        if (r < 0)
                return r;
        return read_text(fd, max, ret, err);
}
