/* Makes system calls of a program fail, for tests (LD_PRELOAD; test/it/failcalls.py is the other
 * side).
 *
 * The file that FAIL_CALLS names is a page of rules, one in a line, which the test changes while
 * the program runs:
 *
 *     open,stat 24 /sandboxes/
 *
 * Each call in the list fails with that errno when its path contains the text. A path that is
 * relative to a descriptor is completed, so that rules are about places and not about how a program
 * gets there. Only calls that go through libc's symbols are seen: a static program is not. */
#define _GNU_SOURCE
/* Both names of each call are ours: the one with 64 is what large files are opened with. */
#undef _FILE_OFFSET_BITS
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#define RULES_SIZE 4096

static const char *rules;

__attribute__((constructor)) static void failcalls_load(void)
{
        const char *path = getenv("FAIL_CALLS");
        long fd = path ? syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
        void *page =
                fd >= 0 ? mmap(NULL, RULES_SIZE, PROT_READ, MAP_SHARED, (int)fd, 0) : MAP_FAILED;

        if (page != MAP_FAILED)
                rules = page;
        if (fd >= 0)
                syscall(SYS_close, fd);
}

static void whole_path(int dirfd, const char *path, char *ret, size_t size)
{
        char link[64], dir[PATH_MAX] = "";
        long n = 0;

        if (*path != '/' && dirfd != AT_FDCWD) {
                snprintf(link, sizeof(link), "/proc/self/fd/%d", dirfd);
                n = syscall(SYS_readlinkat, AT_FDCWD, link, dir, sizeof(dir) - 1);
        }
        dir[n > 0 ? n : 0] = '\0';
        snprintf(ret, size, "%s%s%s", dir, *dir && *path ? "/" : "", path);
}

/* Whether the call fails; errno is set then. */
static int is_refused(const char *call, int dirfd, const char *path)
{
        char copy[RULES_SIZE], whole[2 * PATH_MAX], *save = NULL;
        int saved = errno;

        if (!rules || !*rules || !path)
                return 0;
        memcpy(copy, rules, sizeof(copy));
        copy[sizeof(copy) - 1] = '\0';
        whole_path(dirfd, path, whole, sizeof(whole));
        for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
                char calls[256], text[1024], *one, *rest = calls;
                int number;

                if (sscanf(line, "%255s %d %1023s", calls, &number, text) != 3 ||
                    !strstr(whole, text))
                        continue;
                while ((one = strsep(&rest, ",")))
                        if (strcmp(one, call) == 0) {
                                errno = number;
                                return 1;
                        }
        }
        errno = saved;
        return 0;
}

#define REAL(name, type) ((type)dlsym(RTLD_NEXT, name))

#define OPEN(name)                                                                                 \
        int name(const char *path, int flags, ...)                                                 \
        {                                                                                          \
                mode_t mode;                                                                       \
                va_list ap;                                                                        \
                                                                                                   \
                va_start(ap, flags);                                                               \
                mode = va_arg(ap, mode_t);                                                         \
                va_end(ap);                                                                        \
                return is_refused("open", AT_FDCWD, path)                                          \
                               ? -1                                                                \
                               : REAL(#name, int (*)(const char *, int, ...))(path, flags, mode);  \
        }

#define OPENAT(name)                                                                               \
        int name(int dirfd, const char *path, int flags, ...)                                      \
        {                                                                                          \
                mode_t mode;                                                                       \
                va_list ap;                                                                        \
                                                                                                   \
                va_start(ap, flags);                                                               \
                mode = va_arg(ap, mode_t);                                                         \
                va_end(ap);                                                                        \
                return is_refused("open", dirfd, path)                                             \
                               ? -1                                                                \
                               : REAL(#name, int (*)(int, const char *, int, ...))(dirfd, path,    \
                                                                                   flags, mode);   \
        }

#define STAT(name, type)                                                                           \
        int name(const char *path, struct type *st)                                                \
        {                                                                                          \
                return is_refused("stat", AT_FDCWD, path)                                          \
                               ? -1                                                                \
                               : REAL(#name, int (*)(const char *, struct type *))(path, st);      \
        }

#define FSTATAT(name, type)                                                                        \
        int name(int dirfd, const char *path, struct type *st, int flags)                          \
        {                                                                                          \
                return is_refused("stat", dirfd, path)                                             \
                               ? -1                                                                \
                               : REAL(#name, int (*)(int, const char *, struct type *, int))(      \
                                         dirfd, path, st, flags);                                  \
        }

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wnonnull-compare"

OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)
STAT(stat, stat)
STAT(stat64, stat64)
STAT(lstat, stat)
STAT(lstat64, stat64)
FSTATAT(fstatat, stat)
FSTATAT(fstatat64, stat64)

/* What _FORTIFY_SOURCE makes of an open() whose flags it does not see. */
int __open64_2(const char *path, int flags)
{
        return open64(path, flags, 0);
}

int __openat64_2(int dirfd, const char *path, int flags)
{
        return openat64(dirfd, path, flags, 0);
}

int statx(int dirfd, const char *path, int flags, unsigned mask, struct statx *st)
{
        return is_refused("stat", dirfd, path)
                       ? -1
                       : REAL("statx", int (*)(int, const char *, int, unsigned, struct statx *))(
                                 dirfd, path, flags, mask, st);
}

int access(const char *path, int mode)
{
        return is_refused("access", AT_FDCWD, path)
                       ? -1
                       : REAL("access", int (*)(const char *, int))(path, mode);
}

int faccessat(int dirfd, const char *path, int mode, int flags)
{
        return is_refused("access", dirfd, path)
                       ? -1
                       : REAL("faccessat", int (*)(int, const char *, int, int))(dirfd, path, mode,
                                                                                 flags);
}

DIR *opendir(const char *path)
{
        return is_refused("open", AT_FDCWD, path) ? NULL
                                                  : REAL("opendir", DIR * (*)(const char *))(path);
}

int flock(int fd, int operation)
{
        return is_refused("flock", fd, "") ? -1 : REAL("flock", int (*)(int, int))(fd, operation);
}

int connect(int fd, const struct sockaddr *address, socklen_t len)
{
        const struct sockaddr_un *local = (const struct sockaddr_un *)address;

        return address && address->sa_family == AF_UNIX &&
                               is_refused("connect", AT_FDCWD, local->sun_path)
                       ? -1
                       : REAL("connect",
                              int (*)(int, const struct sockaddr *, socklen_t))(fd, address, len);
}
