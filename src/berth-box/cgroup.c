/* Killing by cgroup2: one cgroup berth-<box id> beside the box's own processes, one in it per
 * execution. No controller is needed, only that the directory is writable.
 *
 * The mount is found in /proc/self/mountinfo (also beside version 1 hierarchies), our place in it
 * from the "0::" line of /proc/self/cgroup. Whether it really works is tried once, with a process:
 * permissions, namespaces and threaded cgroups forbid it in more ways than are worth checking. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "berth-box/box.h"

#define MAX_DEPTH 32

/* Undo the octal escapes of mountinfo, in place. */
static void unescape_octal(char *s)
{
        char *to = s;

        for (; *s; s++) {
                unsigned value;

                if (s[0] == '\\' && sscanf(s + 1, "%3o", &value) == 1 && s[1] && s[2] && s[3]) {
                        *to++ = (char)value;
                        s += 3;
                } else {
                        *to++ = *s;
                }
        }
        *to = '\0';
}

/* Is `word` one of the comma-separated words of `list`, which ends at a blank, colon or line end?
 */
static bool list_has(const char *list, const char *word)
{
        size_t n = strlen(word);

        for (;;) {
                size_t len = strcspn(list, ", :\n");

                if (len == n && strncmp(list, word, n) == 0)
                        return true;
                if (list[len] != ',')
                        return false;
                list += len + 1;
        }
}

/* "31 23 0:28 ROOT MOUNTPOINT options - TYPE source options". Version 1 hierarchies name their
 * controller among the last options. */
static bool find_mount(const char *controller, char root[4096], char point[4096])
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char *save = NULL;

        buf_init(&text, (size_t)1 << 20);
        if (file_read_at(AT_FDCWD, "/proc/self/mountinfo", (size_t)1 << 20, &text, NULL) < 0 ||
            !text.data)
                return false;
        for (char *line = strtok_r(text.data, "\n", &save); line;
             line = strtok_r(NULL, "\n", &save)) {
                const char *kind = strstr(line, " - ");
                const char *options = kind ? strrchr(kind, ' ') : NULL;

                if (kind && str_starts(kind + 3, controller ? "cgroup " : "cgroup2 ") &&
                    (!controller || list_has(options + 1, controller)) &&
                    sscanf(line, "%*d %*d %*s %4095s %4095s", root, point) == 2) {
                        unescape_octal(root);
                        unescape_octal(point);
                        return true;
                }
        }
        return false;
}

/* "4:memory:/path", version 2 is "0::/path". */
static bool find_own_path(const char *controller, char path[4096])
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        buf_init(&text, 65536);
        if (file_read_at(AT_FDCWD, "/proc/self/cgroup", 65536, &text, NULL) < 0)
                return false;
        for (const char *line = buf_str(&text); *line; line += *line == '\n') {
                const char *list = strchr(line, ':');

                if (!list)
                        return false;
                if (controller ? list_has(list + 1, controller) : str_starts(line, "0::/"))
                        return sscanf(strchr(list + 1, ':') + 1, "%4095[^\n]", path) == 1;
                line = strchrnul(line, '\n');
        }
        return false;
}

bool cgroup_own_directory(const char *controller, char ret[4096])
{
        static char root[4096], point[4096], own[4096];
        const char *below = own;

        if (!find_mount(controller, root, point) || !find_own_path(controller, own))
                return false;
        if (!streq(root, "/")) {
                size_t n = strlen(root);

                if (strncmp(own, root, n) != 0 || (own[n] && own[n] != '/'))
                        return false; /* we are outside of what is mounted */
                below = own + n;
        }
        return snprintf(ret, 4096, "%s%s", point, streq(below, "/") ? "" : below) < 4096;
}

static int write_file(int dir_fd, const char *name, const char *text)
{
        CLEAN(cleanup_fd) int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* Does anything live in it? Also when we cannot tell, unless it is gone. */
static bool is_populated(int dir_fd, const char *name)
{
        char path[64], text[256] = "";

        snprintf(path, sizeof(path), "%s/cgroup.events", name);
        CLEAN(cleanup_fd) int fd = openat(dir_fd, path, O_RDONLY | O_CLOEXEC);

        if (fd < 0)
                return errno != ENOENT;
        ssize_t n = read(fd, text, sizeof(text) - 1);
        return n <= 0 || !strstr(text, "populated 0");
}

static void signal_procs(int dir_fd, int signal)
{
        char text[16384];
        size_t kept = 0;
        ssize_t n;
        CLEAN(cleanup_fd) int fd = openat(dir_fd, "cgroup.procs", O_RDONLY | O_CLOEXEC);

        while (fd >= 0 && (n = read(fd, text + kept, sizeof(text) - 1 - kept)) > 0) {
                char *line = text, *end;

                kept += (size_t)n;
                text[kept] = '\0';
                while ((end = strchr(line, '\n'))) {
                        pid_t pid = (pid_t)strtol(line, NULL, 10);

                        if (pid > 1)
                                (void)kill(pid, signal);
                        line = end + 1;
                }
                kept -= (size_t)(line - text);
                memmove(text, line, kept);
        }
}

/* The cgroup and those that were made inside it, the deepest first: signal, or with 0 remove. */
static void walk_cgroups(int parent_fd, const char *name, int signal, int depth)
{
        int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *entry;

        if (!dir) {
                cleanup_fd(&fd);
                return;
        }
        while (depth < MAX_DEPTH && (entry = readdir(dir)))
                if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
                        walk_cgroups(fd, entry->d_name, signal, depth + 1);
        if (signal)
                signal_procs(fd, signal);
        closedir(dir);
        if (!signal)
                (void)unlinkat(parent_fd, name, AT_REMOVEDIR);
}

void cgroup_remove(struct box *b, const char *name)
{
        if (b->cgroup_fd < 0 || unlinkat(b->cgroup_fd, name, AT_REMOVEDIR) == 0)
                return;
        walk_cgroups(b->cgroup_fd, name, 0, 0);
}

/* Kill without waiting: atomically where the kernel can, else frozen so that nothing forks away. */
static void kill_group(struct box *b, int parent_fd, const char *name)
{
        char path[64];

        snprintf(path, sizeof(path), "%s/cgroup.kill", name);
        if (b->cgroup_has_kill && write_file(parent_fd, path, "1") == 0)
                return;
        snprintf(path, sizeof(path), "%s/cgroup.freeze", name);
        (void)write_file(parent_fd, path, "1");
        walk_cgroups(parent_fd, name, SIGKILL, 0);
}

bool cgroup_kill_step(struct box *b, struct exec *e)
{
        if (is_populated(b->cgroup_fd, e->name)) {
                kill_group(b, b->cgroup_fd, e->name);
                return false;
        }
        cgroup_remove(b, e->name);
        return true;
}

void cgroup_signal(struct box *b, struct exec *e, int signal)
{
        walk_cgroups(b->cgroup_fd, e->name, signal, 0);
}

int cgroup_create(struct box *b, struct exec *e)
{
        if (mkdirat(b->cgroup_fd, e->name, 0755) < 0 && errno != EEXIST)
                return -1;
        return openat(b->cgroup_fd, e->name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Can a process be born in there? */
static bool try_it(struct box *b)
{
        bool joined;
        int status;

        if (mkdirat(b->cgroup_fd, "probe", 0755) < 0 && errno != EEXIST)
                return false;
        CLEAN(cleanup_fd)
        int fd = openat(b->cgroup_fd, "probe", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        pid_t pid = fd >= 0 ? child_fork(fd, &joined) : -1;
        if (pid == 0)
                _exit(joined || write_file(fd, "cgroup.procs", "0") == 0 ? 0 : 1);
        if (pid < 0 || waitpid(pid, &status, 0) != pid)
                status = -1;
        b->cgroup_has_kill = faccessat(fd, "cgroup.kill", W_OK, 0) == 0;
        cgroup_remove(b, "probe");
        return status == 0;
}

/* What a killed box of the same id has left in it. */
static void clear_left_over(struct box *b, int parent_fd, const char *name)
{
        for (int i = 0; i < 200 && is_populated(parent_fd, name); i++) {
                kill_group(b, parent_fd, name);
                (void)usleep(5000);
        }
        walk_cgroups(parent_fd, name, 0, 0);
}

/* A box before us may have been started from another place; it wrote down where its cgroup was. */
static void clear_previous(struct box *b)
{
        char path[4096] = "";
        CLEAN(cleanup_fd) int fd = openat(b->dir_fd, "cgroup", O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        ssize_t n = fd >= 0 ? read(fd, path, sizeof(path) - 1) : -1;

        if (n > 0 && path[0] == '/')
                clear_left_over(b, AT_FDCWD, path);
        (void)unlinkat(b->dir_fd, "cgroup", 0);
}

static int note_path(struct box *b)
{
        CLEAN(cleanup_fd)
        int fd = openat(b->dir_fd, "cgroup", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        return fd < 0 ? -1 : fd_write_all(fd, b->cgroup_path, strlen(b->cgroup_path), NULL);
}

void cgroup_init(struct box *b)
{
        char own[4096], name[64];

        b->cgroup_has_kill = true;
        clear_previous(b);
        if (b->force_subreaper || !cgroup_own_directory(NULL, own))
                return;
        CLEAN(cleanup_fd) int parent = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (parent < 0)
                return;
        snprintf(name, sizeof(name), "berth-%s", b->name);
        if (snprintf(b->cgroup_path, sizeof(b->cgroup_path), "%s/%s", own, name) >=
            (int)sizeof(b->cgroup_path))
                return;
        clear_left_over(b, parent, name);
        if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST)
                return;
        b->cgroup_fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (b->cgroup_fd >= 0 && try_it(b) && note_path(b) == 0) {
                b->kill_method = BOX_KILL_CGROUP;
                return;
        }
        cleanup_fd(&b->cgroup_fd);
        b->cgroup_fd = -1;
        (void)unlinkat(parent, name, AT_REMOVEDIR);
}

void cgroup_done(struct box *b)
{
        if (b->cgroup_fd < 0)
                return;
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].state != EXEC_FREE)
                        cgroup_remove(b, b->execs[i].name);
        if (!b->sandbox) /* where PID 1 itself is in the box's */
                (void)rmdir(b->cgroup_path);
}
