/* Descriptors that came along, and the programs behind them. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "escape.h"

static void leaked(char **args)
{
        char path[64], target[PATH_MAX];
        struct stat st;

        for (int fd = 0; fd < 65536; fd++) {
                ssize_t n;

                if (fstat(fd, &st) < 0)
                        continue;
                (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                n = readlink(path, target, sizeof(target) - 1);
                target[n > 0 ? n : 0] = '\0';
                if (fd > 2)
                        escaped("descriptor %d: %s", fd, target);
                if (S_ISDIR(st.st_mode) || S_ISSOCK(st.st_mode) || S_ISBLK(st.st_mode) ||
                    S_ISREG(st.st_mode))
                        escaped("descriptor %d is %s", fd, target);
                refused("descriptor %d is %s", fd, target);
        }
        if (getenv("BERTH_DATA") || getenv("BERTH_LISTEN"))
                escaped("the daemon's environment came along");
}

/* Through a descriptor's link one can open it anew, with other rights. */
static void reopen(char **args)
{
        char path[64];

        for (int fd = 0; fd < 3; fd++) {
                struct stat st;

                (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
                        refused("descriptor %d is no file", fd);
                        continue;
                }
                must_fail(open(path, O_WRONLY | O_CLOEXEC), path);
        }
}

/* A copy in memory that nobody can write to any more is as good as a refusal. */
static bool is_sealed(const char *path)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        int seals = fcntl(fd, F_GET_SEALS);

        (void)close(fd);
        return seals >= 0 && (seals & F_SEAL_WRITE) && (seals & F_SEAL_SEAL);
}

/* The supervisor's program is shared with the host: whoever writes to it runs there. Opening it is
 * refused, also by the link of a process that has ended (CVE-2019-5736). */
static void must_not_open(const char *path)
{
        int fd = open(path, O_WRONLY | O_CLOEXEC);

        /* Busy is what only those hear who may write: it ends with the process. */
        if (fd < 0 && errno == ETXTBSY && !is_sealed(path))
                escaped("%s may be written to once it does not run", path);
        must_fail(fd, path);
}

static void overwrite_exe(char **args)
{
        char path[PATH_MAX];
        int fd;

        for (; *args; args++) {
                (void)snprintf(path, sizeof(path), "/proc/%s/exe", *args);
                must_not_open(path);
                must_fail(truncate(path, 0), "truncate");
                fd = open(path, O_PATH | O_CLOEXEC);
                if (fd < 0)
                        continue;
                (void)snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                must_not_open(path);
        }
}

/* `catch-exe NAME`: wait for a process of that name, keep a handle of its program, and
 * write to it as soon as nobody runs it. The test runs the supervisor's own program meanwhile. */
static void catch_exe(char **args)
{
        char path[PATH_MAX], link[64], target[PATH_MAX];
        unsigned tries = 0, caught = 0;

        for (int i = 0; i < 2000 && caught < 50; i++) {
                DIR *proc = opendir("/proc");
                struct dirent *entry;

                while (proc && (entry = readdir(proc))) {
                        ssize_t n;
                        int fd;

                        if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name))
                                continue;
                        (void)snprintf(path, sizeof(path), "/proc/%s/exe", entry->d_name);
                        tries++;
                        n = readlink(path, target, sizeof(target) - 1);
                        if (n <= 0)
                                continue;
                        target[n] = '\0';
                        if (!strstr(target, args[0]))
                                continue;
                        fd = open(path, O_PATH | O_CLOEXEC);
                        if (fd < 0)
                                continue;
                        caught++;
                        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
                        for (int j = 0; j < 100 && !is_sealed(link); j++) {
                                must_not_open(link);
                                (void)usleep(100);
                        }
                        (void)close(fd);
                }
                if (proc)
                        (void)closedir(proc);
                (void)usleep(1000);
        }
        refused("%u looks, %u handles, none could be written to", tries, caught);
}

const struct escape_case descriptor_cases[] = {
        { "descriptors", "", 0, leaked },
        { "reopen", "", 0, reopen },
        { "exe", "PID...", 1, overwrite_exe },
        { "catch-exe", "NAME", 1, catch_exe },
        { 0 },
};
