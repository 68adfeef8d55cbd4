/* The host's files: by name, by walking, by handle, through links into other processes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "escape.h"

enum { MAX_DEPTH = 24, MAX_ENTRIES = 400000 };

static void open_path(char **args)
{
        for (; *args; args++) {
                int fd = open(*args, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

                /* A socket cannot be opened, but naming it is the first step. */
                if (fd < 0 && errno == ENXIO)
                        escaped("%s can be seen", *args);
                must_fail(fd, *args);
        }
}

/* Directories that may exist in a box as long as nothing of the host is in them. */
static void find_empty(char **args)
{
        for (; *args; args++) {
                DIR *dir = opendir(*args);
                struct dirent *entry;

                if (!dir) {
                        must_fail(-1, *args);
                        continue;
                }
                while ((entry = readdir(dir)))
                        if (entry->d_name[0] != '.')
                                escaped("%s/%s is there", *args, entry->d_name);
                (void)closedir(dir);
                refused("%s: empty", *args);
        }
}

static void write_path(char **args)
{
        char path[PATH_MAX];
        int fd;

        for (; *args; args++) {
                (void)snprintf(path, sizeof(path), "%s/.escape-%d", *args, (int)getpid());
                fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                if (fd >= 0)
                        (void)unlink(path);
                must_fail(fd, path);
                must_fail(utimensat(AT_FDCWD, *args, NULL, 0), "utimensat");
        }
}

/* Everything that can be reached, by names that contain a word, so that a canary anywhere on the
 * host is found wherever it shows up. */
struct walk {
        const char *word;
        unsigned long entries;
        dev_t proc;      /* walked by walk_processes() */
        struct stat usr; /* large, the host's, and meant to be there */
};

static void walk(struct walk *w, int parent, const char *name, unsigned depth)
{
        int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        struct dirent *entry;
        struct stat st;
        DIR *dir;

        if (fd < 0)
                return;
        if (fstat(fd, &st) < 0 || st.st_dev == w->proc || depth > MAX_DEPTH ||
            (st.st_dev == w->usr.st_dev && st.st_ino == w->usr.st_ino) || !(dir = fdopendir(fd))) {
                (void)close(fd);
                return;
        }
        while ((entry = readdir(dir)) && w->entries++ < MAX_ENTRIES) {
                if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
                        continue;
                if (strstr(entry->d_name, w->word))
                        escaped("found %s beneath %s", entry->d_name, name);
                if (entry->d_type == DT_DIR || entry->d_type == DT_UNKNOWN)
                        walk(w, fd, entry->d_name, depth + 1);
        }
        (void)closedir(dir);
}

static void walk_from(struct walk *w, const char *start)
{
        int fd = open(start, O_PATH | O_CLOEXEC);

        if (fd < 0)
                return;
        walk(w, fd, ".", 0);
        (void)close(fd);
}

/* Root and working directory of every process, and directories that any of them holds open. */
static void walk_processes(struct walk *w)
{
        DIR *proc = opendir("/proc"), *fds;
        struct dirent *entry, *fd;
        char path[PATH_MAX];

        while (proc && (entry = readdir(proc))) {
                if (strspn(entry->d_name, "0123456789") != strlen(entry->d_name))
                        continue;
                (void)snprintf(path, sizeof(path), "/proc/%s/cwd", entry->d_name);
                walk_from(w, path);
                (void)snprintf(path, sizeof(path), "/proc/%s/root", entry->d_name);
                walk_from(w, path);
                (void)snprintf(path, sizeof(path), "/proc/%s/fd", entry->d_name);
                fds = opendir(path);
                while (fds && (fd = readdir(fds))) {
                        (void)snprintf(path, sizeof(path), "/proc/%s/fd/%s", entry->d_name,
                                       fd->d_name);
                        walk_from(w, path);
                }
                if (fds)
                        (void)closedir(fds);
        }
        if (proc)
                (void)closedir(proc);
}

static void find_canary(char **args)
{
        struct walk w = { .word = args[0] };
        struct stat st;

        if (stat("/proc/self", &st) == 0)
                w.proc = st.st_dev;
        (void)stat("/usr", &w.usr);
        for (char **start = args + 1; *start; start++)
                walk_from(&w, *start);
        if (!args[1]) {
                walk_from(&w, "/");
                walk_processes(&w);
        }
        if (w.entries >= MAX_ENTRIES)
                broken("more than %d entries", MAX_ENTRIES);
        refused("%lu entries, none with %s", w.entries, args[0]);
}

/* The working directory must lie beneath the root, and the way up must end there. */
static void working_directory(char **args)
{
        char path[PATH_MAX];
        struct stat up, root;
        int fd;

        if (syscall(SYS_getcwd, path, sizeof(path)) > 0 && path[0] != '/')
                escaped("the working directory is outside the root: %s", path);
        fd = open("../../../../../../../../../../../../../../../../../../../../../../../..",
                  O_PATH | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &up) < 0 || stat("/", &root) < 0) {
                refused("no way up: %s", strerrorname_np(errno));
                return;
        }
        if (up.st_dev != root.st_dev || up.st_ino != root.st_ino)
                escaped("the way up does not end at the root");
        refused("the way up ends at the root");
}

/* The old way out of a chroot: keep a directory, go into a deeper root, walk up from the kept one.
 */
static void break_chroot(char **args)
{
        int here = open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char deeper[] = "/tmp/escape-XXXXXX";
        long r;

        if (!mkdtemp(deeper))
                broken("mkdtemp: %s", strerrorname_np(errno));
        r = chroot(deeper);
        if (r == 0 && fchdir(here) == 0) {
                for (int i = 0; i < 64; i++)
                        if (chdir("..") < 0)
                                break;
                r = chroot(".");
        }
        (void)rmdir(deeper);
        must_fail(r, "chroot");
}

/* Files by inode number instead of by name: 2 is the root of most file systems. */
static void open_by_handle(char **args)
{
        union {
                struct file_handle handle;
                char room[sizeof(struct file_handle) + MAX_HANDLE_SZ];
        } h = { .handle.handle_bytes = MAX_HANDLE_SZ };
        static const char *const places[] = { "/usr", "/", "/tmp", "/etc" };
        int mount, dir;

        for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
                dir = open(places[i], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                h.handle.handle_bytes = MAX_HANDLE_SZ;
                if (name_to_handle_at(AT_FDCWD, places[i], &h.handle, &mount, 0) < 0) {
                        h.handle.handle_bytes = 8;
                        h.handle.handle_type = 1;
                        memset(h.handle.f_handle, 0, 8);
                        h.handle.f_handle[0] = 2;
                }
                must_fail(open_by_handle_at(dir, &h.handle, O_RDONLY), places[i]);
                (void)close(dir);
        }
}

const struct escape_case file_cases[] = {
        { "open", "PATH...", 1, open_path },  { "empty", "DIR...", 1, find_empty },
        { "write", "DIR...", 1, write_path }, { "find", "WORD [START...]", 1, find_canary },
        { "cwd", "", 0, working_directory },  { "chroot", "", 0, break_chroot },
        { "handle", "", 0, open_by_handle },  { 0 },
};
