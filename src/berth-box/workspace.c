/* A directory of the host shown in a sandbox that runs already: `berth-box --workspace`.
 *
 * A process of its own does it, from outside and as root: it takes the host's directories, with the
 * owners that they are to have inside, enters the user namespace of the sandbox, lays the overlay
 * in a mount namespace of its own, where no other process sees it being made, and carries it over.
 * PID 1 has no right to mount anything, and needs none.
 *
 * What it writes goes to STORE/upper on the host: it outlives the sandbox. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sched.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "base/mount.h"
#include "berth-box/mains.h"
#include "berth-box/sandbox.h"
#include "box/launch.h"

#define MAX_MOUNTINFO ((size_t)4 << 20)
#define SAFE          (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
/* How a mount of ours is known again. */
#define WORKSPACE_SOURCE "berth-workspace"

struct showing {
        struct sandbox *s;
        const struct main_args *args;
        int proc_fd, user_ns, mount_ns;
        int lower, store, mount;
};

static int open_namespace(int pid, const char *name)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/ns/%s", pid, name);
        return open(path, O_RDONLY | O_CLOEXEC);
}

/* The namespaces of the PID 1 in DIR. While the lock is held the number in the file is its own; it
 * is looked at once more when the descriptors are there. */
int sandbox_find(const char *dir, int *ret_user_ns, int *ret_mount_ns, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/pid", dir);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int pid, r = file_read_at(AT_FDCWD, path, 256, &text, err);

        if (r >= 0 && (sscanf(buf_str(&text), "%d", &pid) != 1 || pid <= 1))
                r = ERR_NOT_FOUND;
        if (r >= 0)
                r = box_check_alive(dir, err);
        if (r == 0 || r == ERR_NOT_FOUND)
                return err_set(err, ERR_NOT_FOUND, "no sandbox runs there");
        if (r < 0)
                return r;
        *ret_user_ns = open_namespace(pid, "user");
        *ret_mount_ns = open_namespace(pid, "mnt");
        if (*ret_user_ns < 0 || *ret_mount_ns < 0)
                return err_sys(err, ERR_PROVIDER, errno, "reach the sandbox");
        r = box_check_alive(dir, err);
        return r == 0 ? err_set(err, ERR_NOT_FOUND, "the sandbox has ended") : MIN(r, 0);
}

/* Outside */

static int take_lower(struct showing *w, struct err *err)
{
        uint32_t agent = sandbox_host_id(&w->s->spec, sandbox_user_id(&w->s->spec));
        CLEAN(cleanup_fd) int ns = -1;
        struct stat st;

        w->lower = mount_clone(AT_FDCWD, w->args->lower, false, SAFE);
        if (w->lower < 0 || fstat(w->lower, &st) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "take the directory");
        if (!S_ISDIR(st.st_mode))
                return err_set(err, ERR_PROVIDER, "the workspace is not a directory");
        if (st.st_uid == agent)
                return 0;
        struct idmap map = { st.st_uid, st.st_gid, agent, 1 };

        int r = userns_for_idmap(&map, &ns, err);
        if (r >= 0 && mount_idmap(w->lower, ns) < 0)
                r = err_sys(err, ERR_PROVIDER, errno,
                            "show the owners of the directory inside (its file system must "
                            "support id-mapped mounts; isolation \"copy\" does without)");
        return r;
}

static int take_trees(struct showing *w, struct err *err)
{
        int r = take_lower(w, err);

        if (r < 0)
                return r;
        w->store = mount_clone(AT_FDCWD, w->args->store, false, SAFE);
        return w->store < 0 ? err_sys(err, ERR_PROVIDER, errno, "take %s", w->args->store) : 0;
}

/* Between the two: the rights of the sandbox's root, the mounts of the host. */
static int lay_overlay(struct showing *w, struct err *err)
{
        struct overlay o = { .source = WORKSPACE_SOURCE,
                             .lower = { w->lower },
                             .n_lower = 1,
                             .upper_dir = w->store,
                             .upper = "upper",
                             .work = "work" };

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make a mount namespace");
        if (mount_attach_somewhere(w->lower) < 0 || mount_attach_somewhere(w->store) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "attach the workspace");
        w->mount = overlay_make(&o, err);
        return MIN(w->mount, 0);
}

static int become_inner_root(struct showing *w, struct err *err)
{
        if (setns(w->user_ns, CLONE_NEWUSER) < 0 || syscall(SYS_setgroups, 0, NULL) < 0 ||
            syscall(SYS_setresgid, 0, 0, 0) < 0 || syscall(SYS_setresuid, 0, 0, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "enter the sandbox");
        return 0;
}

/* Inside */

int sandbox_open_dir(const char *path)
{
        struct open_how how = { .flags = O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW,
                                .resolve = RESOLVE_NO_SYMLINKS };

        return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));
}

/* Whether the mount with that id is one that an earlier call has put there. */
static bool is_ours(int proc_fd, uint64_t id)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char *rest, *line;

        if (file_read_at(proc_fd, "self/mountinfo", MAX_MOUNTINFO, &text, NULL) < 0)
                return false;
        rest = text.data;
        while ((line = strsep(&rest, "\n")))
                if (strtoull(line, NULL, 10) == id)
                        return strstr(line, " - overlay " WORKSPACE_SOURCE " ");
        return false;
}

/* Take away what earlier calls have shown: it lies uppermost. */
static int hide_workspace(const struct showing *w, struct err *err)
{
        for (int tries = 0; tries < 16; tries++) {
                CLEAN(cleanup_fd) int at = sandbox_open_dir(w->args->given);
                struct statx st;

                if (at < 0 || statx(at, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "find %s", w->args->given);
                if (!(st.stx_attributes & STATX_ATTR_MOUNT_ROOT) ||
                    !is_ours(w->proc_fd, st.stx_mnt_id))
                        return 0;
                if (umount2(w->args->given, MNT_DETACH | UMOUNT_NOFOLLOW) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "hide %s", w->args->given);
        }
        return err_set(err, ERR_PROVIDER, "hide %s: there is no end of it", w->args->given);
}

static int show_workspace(const struct showing *w, struct err *err)
{
        CLEAN(cleanup_fd) int at = sandbox_open_dir(w->args->given);

        if (at < 0 ||
            move_mount(w->mount, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "show the workspace at %s",
                               w->args->given);
        return 0;
}

static int do_workspace(struct showing *w, struct err *err)
{
        bool shows = w->args->lower;
        int r = sandbox_find(w->args->dir, &w->user_ns, &w->mount_ns, err);

        if (r >= 0 && shows)
                r = take_trees(w, err);
        if (r >= 0)
                r = become_inner_root(w, err);
        if (r >= 0 && shows)
                r = lay_overlay(w, err);
        if (r >= 0 && setns(w->mount_ns, CLONE_NEWNS) < 0)
                r = err_sys(err, ERR_PROVIDER, errno, "enter the sandbox");
        if (r >= 0)
                r = hide_workspace(w, err);
        return r < 0 || !shows ? r : show_workspace(w, err);
}

int workspace_main(const struct main_args *a)
{
        CLEAN(err_done) struct err err = { 0 };
        struct showing w = { .s = a->sandbox, .args = a, .lower = -1, .store = -1, .mount = -1 };

        w.proc_fd = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
        int r = do_workspace(&w, &err);
        if (r < 0)
                printf("error %s%s\n", box_not_now(&err), err.msg);
        else
                puts("done");
        fflush(stdout); /* a sanitizer has its last word before exit() flushes, and it fails in here
                         */
        return r < 0 ? 1 : 0;
}
