/* Trees that belong to a sandbox, when no sandbox uses them: given to another of its ids, or
 * removed. Root does that as it is; anybody else in a user namespace with the sandbox's ids, as its
 * root.
 *
 * The tree may be hostile in form, not in motion: names and links of any kind, and directories so
 * deep that neither a path nor a stack reaches their end. Links are not followed. What lies too
 * deep is moved up before it is removed, and is an error when it should be given. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "berth-box/mains.h"
#include "berth-box/sandbox.h"

#define MAX_DEPTH 200

struct work {
        bool remove;
        uid_t owner;
        int top_fd;
        unsigned moved;
};

static DIR *open_dir(int at, const char *name)
{
        int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        DIR *dir;

        /* Its owner may have locked even itself out; who may change its mode does. */
        if (fd < 0 && errno == EACCES && fchmodat(at, name, 0700, 0) == 0)
                fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        dir = fd < 0 ? NULL : fdopendir(fd);
        if (!dir && fd >= 0)
                close(fd);
        return dir;
}

static int walk(struct work *w, int at, const char *name, int depth);

static int each_entry(struct work *w, DIR *dir, int depth)
{
        struct dirent *entry;
        int r = 0;

        while (r == 0 && (entry = readdir(dir)))
                if (!streq(entry->d_name, ".") && !streq(entry->d_name, ".."))
                        r = walk(w, dirfd(dir), entry->d_name, depth + 1);
        return r;
}

static int too_deep(struct work *w, int at, const char *name)
{
        char up[32];

        if (!w->remove) {
                errno = ELOOP;
                return -1;
        }
        snprintf(up, sizeof(up), ".deep-%u", w->moved++);
        return renameat(at, name, w->top_fd, up);
}

static int walk(struct work *w, int at, const char *name, int depth)
{
        struct stat st;
        DIR *dir;
        int r;

        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -1;
        if (!w->remove && fchownat(at, name, w->owner, w->owner, AT_SYMLINK_NOFOLLOW) < 0)
                return -1;
        if (!S_ISDIR(st.st_mode))
                return w->remove ? unlinkat(at, name, 0) : 0;
        if (depth > MAX_DEPTH)
                return too_deep(w, at, name);
        dir = open_dir(at, name);
        if (!dir)
                return -1;
        r = each_entry(w, dir, depth);
        closedir(dir);
        return r == 0 && w->remove ? unlinkat(at, name, AT_REMOVEDIR) : r;
}

/* `top_fd` is the directory itself; it stays until the end, since deep ones are moved to it. */
static int work_through(struct work *w)
{
        unsigned before;

        if (!w->remove && fchown(w->top_fd, w->owner, w->owner) < 0)
                return -1;
        do {
                DIR *dir = open_dir(w->top_fd, ".");
                int r;

                if (!dir)
                        return -1;
                before = w->moved;
                r = each_entry(w, dir, 0);
                closedir(dir);
                if (r < 0)
                        return r;
        } while (w->moved > before);
        return 0;
}

static NORETURN void run_inside(const struct sandbox *s, struct work *w, int go)
{
        char byte;

        (void)s;
        if (read(go, &byte, 1) != 1 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
            syscall(SYS_setresuid, 0, 0, 0) < 0 || work_through(w) < 0)
                _exit(errno > 0 && errno < 255 ? errno : 255);
        _exit(0);
}

static int work_in_namespace(const struct sandbox *s, struct work *w, struct err *err)
{
        struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
        int go[2], status = 0, r;
        pid_t pid;

        if (pipe2(go, O_CLOEXEC) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        if (pid < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make a user namespace");
        if (pid == 0) {
                close(go[1]);
                run_inside(s, w, go[0]);
        }
        close(go[0]);
        r = userns_map(s, pid, err);
        if (r >= 0)
                (void)!write(go[1], "", 1);
        close(go[1]);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
        if (r >= 0 && status != 0)
                r = err_sys(err, ERR_IO, WIFEXITED(status) ? WEXITSTATUS(status) : EINTR,
                            "work on the sandbox's files");
        return r;
}

static int do_work(const struct sandbox *s, const char *path, const char *what, struct err *err)
{
        struct work w = { .remove = streq(what, "remove") };
        unsigned inner = 0;
        char rest;
        int r = 0;

        if (!w.remove && sscanf(what, "give=%u%c", &inner, &rest) != 1)
                return err_set(err, ERR_USAGE, "--tree: remove or give=ID");
        w.top_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (w.top_fd < 0)
                return errno == ENOENT && w.remove ? 0 : err_sys(err, ERR_IO, errno, "open");
        w.owner = s->rootless ? inner : sandbox_host_id(&s->spec, inner);
        if (s->rootless)
                r = work_in_namespace(s, &w, err);
        else if (work_through(&w) < 0)
                r = err_sys(err, ERR_IO, errno, "work on the sandbox's files");
        close(w.top_fd);
        if (r >= 0 && w.remove && rmdir(path) < 0)
                r = err_sys(err, ERR_IO, errno, "remove");
        return r;
}

int files_main(const struct main_args *a)
{
        CLEAN(err_done) struct err err = { 0 };

        a->sandbox->rootless = geteuid() != 0;
        if (do_work(a->sandbox, a->dir, a->given, &err) < 0) {
                printf("%s\n", err.msg);
                return 1;
        }
        puts("done");
        return 0;
}
