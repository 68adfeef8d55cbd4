/* Opens `.paperclip-runtime` without following a link, and decides which paths are in it. */
#define _GNU_SOURCE
#include "workspace/runtime_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"

#define DIR_MODE    0755
#define OPEN        (O_RDONLY | O_DIRECTORY | O_CLOEXEC)
#define IGNORE_FILE ".gitignore"
#define IGNORE_ALL  "*\n" /* and itself */
#define PASS        (O_PATH | O_DIRECTORY | O_CLOEXEC)

const char *runtime_dir_in(const char *path)
{
        static const char part[] = "/" RUNTIME_DIR;

        for (const char *at = strstr(path, part); at; at = strstr(at + 1, part)) {
                char next = at[sizeof(part) - 1];

                if (next == '/' || next == '\0')
                        return at;
        }
        return NULL;
}

bool runtime_dir_is_within(const char *at)
{
        static const char part[] = "/" RUNTIME_DIR;
        size_t len = sizeof(part) - 1;

        if (strncmp(at, part, len) != 0 || (at[len] != '/' && at[len] != '\0'))
                return false;
        return strncmp(at + len, "/runs/", 6) != 0 && !streq(at + len, "/runs");
}

static int not_opened(const char *path, int errno_value, struct err *err)
{
        return err_sys(err, errno_value == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno_value, "open %s",
                       path);
}

static int open_any(const char *path, bool make, int flags, int *ret_fd, struct err *err)
{
        int r = make ? path_make_dirs(path, DIR_MODE, err) : 0;

        if (r < 0)
                return r;
        *ret_fd = open(path, flags);
        return *ret_fd < 0 ? not_opened(path, errno, err) : 0;
}

/* From a directory into the one of its own that is called `name`; `path` is the way to that one. */
static int enter_runtime_dir(int *fd, const char *name, const char *path, bool make, int flags,
                             struct err *err)
{
        struct stat st;

        if (streq(name, ".."))
                return err_set(err, ERR_FORBIDDEN, "%s leads out of its directory", path);
        if (make && mkdirat(*fd, name, DIR_MODE) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create directory %s", path);
        int next = openat(*fd, name, flags | O_NOFOLLOW);
        int errno_value = errno;
        if (next < 0 && fstatat(*fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISLNK(st.st_mode))
                return err_set(err, ERR_FORBIDDEN, "%s is a link", path);
        if (next < 0)
                return not_opened(path, errno_value, err);
        close(*fd);
        *fd = next;
        return 0;
}

/* 1: it is there by now. */
static int write_ignore(int dir_fd)
{
        CLEAN(cleanup_fd)
        int fd = openat(dir_fd, IGNORE_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);

        if (fd < 0)
                return errno == EEXIST ? 1 : -1;
        return write(fd, IGNORE_ALL, strlen(IGNORE_ALL)) < 0 ? -1 : 0;
}

/* One without content, a link, is none. */
static bool is_file(int dir_fd)
{
        struct stat st;

        return fstatat(dir_fd, IGNORE_FILE, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) &&
               st.st_size > 0;
}

static int put_ignore(int dir_fd, const char *path, struct err *err)
{
        if (is_file(dir_fd))
                return 0;
        (void)unlinkat(dir_fd, IGNORE_FILE, 0);
        int r = write_ignore(dir_fd);
        if (r == 0 || (r > 0 && is_file(dir_fd)))
                return 0;
        return err_sys(err, ERR_IO, errno, "write %s/" IGNORE_FILE, path);
}

/* `at`: the slash in `path` from where on it is done step by step. */
static int walk(int *fd, char *path, char *at, bool make, struct err *err)
{
        int r = 0;

        while (at && r >= 0) {
                char *name = at + 1, *next = strchr(name, '/');
                bool ignored = make && runtime_dir_is_within(at);

                if (next)
                        *next = '\0';
                if (*name || !next)
                        r = enter_runtime_dir(fd, *name ? name : ".", path, make,
                                              next ? PASS : OPEN, err);
                if (r >= 0 && ignored)
                        r = put_ignore(*fd, path, err);
                if (next)
                        *next = '/';
                at = next;
        }
        return r;
}

int runtime_dir_open(const char *path, bool make, int *ret_fd, struct err *err)
{
        const char *at = runtime_dir_in(path);
        CLEAN(cleanup_free) char *copy = NULL;
        CLEAN(cleanup_fd) int fd = -1;

        if (!at)
                return open_any(path, make, OPEN, ret_fd, err);
        copy = xstrdup(path);
        copy[at - path] = '\0';
        int r = open_any(*copy ? copy : "/", make, PASS, &fd, err);
        copy[at - path] = '/';
        if (r >= 0)
                r = walk(&fd, copy, copy + (at - path), make, err);
        if (r >= 0)
                *ret_fd = take_fd(&fd);
        return r;
}
