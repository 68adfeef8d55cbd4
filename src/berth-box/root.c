/* The root of a sandbox, built by PID 1 in its own mount namespace.
 *
 * From nothing: one tmpfs, which holds all that is written (its size is the disk limit), with the
 * host's programs read-only in it. Or from a base, a rootfs or an image: an overlay of its
 * directories, the layers above them and the writable storage.
 *
 * Everything is put on a directory of the host that is not needed meanwhile, one mount over the
 * other, the root last. Then the root is changed, and what is below goes away with the host's tree
 * in one call. Until then absolute paths are the host's, and relative ones the new root's. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/fd.h"
#include "base/mount.h"
#include "berth-box/sandbox.h"

#define SAFE      (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)
#define READ_ONLY (SAFE | MOUNT_ATTR_RDONLY)

/* For what is not storage: /run, /dev/shm. */
#define SMALL_TMPFS "256m"

static const char *const programs[] = { "usr",   "bin",   "sbin",   "lib",
                                        "lib32", "lib64", "libx32", "opt" };
static const char *const devices[] = { "null", "zero", "full", "random", "urandom", "tty" };
static const char *const parts[] = { "upper",          "work", "workspace",
                                     "workspace-work", "tmp",  "tmp-work" };
static const char *const masked[] = { "kcore", "keys", "sysrq-trigger", "timer_list" };

/* Staging */

/* Overlays take only what is attached somewhere. */
static int stage_trees(const struct sandbox *s, struct err *err)
{
        const struct trees *t = &s->trees;
        bool overlaid = s->spec.workspace == SANDBOX_WORK_OVERLAY;

        if ((t->storage >= 0 && mount_attach_somewhere(t->storage) < 0) ||
            (overlaid && mount_attach_somewhere(t->workspace) < 0))
                return err_sys(err, ERR_PROVIDER, errno, "attach the sandbox's directories");
        for (uint32_t i = 0; i < s->spec.n_base; i++)
                if (mount_attach_somewhere(t->base[i]) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "attach the root's directory");
        for (uint32_t i = 0; i < s->spec.n_layers; i++)
                if (mount_attach_somewhere(t->layers[i]) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "attach a layer");
        return 0;
}

static int make_tmpfs(const struct sandbox *s, bool is_storage)
{
        char size[32] = SMALL_TMPFS, inodes[32];
        const struct sandbox_limits *l = &s->spec.limits;
        const char *options[] = { "mode", "0755", "size", size, "nr_inodes", inodes, NULL };

        if (is_storage && l->disk_bytes)
                snprintf(size, sizeof(size), "%llu", (unsigned long long)l->disk_bytes);
        snprintf(inodes, sizeof(inodes), "%llu", (unsigned long long)l->inodes);
        if (!is_storage || !l->inodes)
                options[4] = NULL;
        if (is_storage && !l->disk_bytes)
                snprintf(size, sizeof(size), "50%%");
        return mount_new("tmpfs", SAFE, options);
}

/* Of a tmpfs: with a rootfs one beside it, else a corner of the root itself, which no process
 * inside may enter, so that one size bounds everything. */
static int make_storage(const struct sandbox *s)
{
        CLEAN(cleanup_fd) int fd = -1;

        if (s->spec.n_base) {
                fd = make_tmpfs(s, true);
                if (fd < 0 || mount_attach_somewhere(fd) < 0)
                        return -1;
        } else {
                if (mkdir(".berth", 0700) < 0)
                        return -1;
                fd = open(".berth", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        }
        for (size_t i = 0; fd >= 0 && i < ARRAY_LEN(parts); i++)
                if (mkdirat(fd, parts[i], 0755) < 0)
                        return -1;
        return take_fd(&fd);
}

/* The directory that `upper` and `work` are in. */
static int storage_dir(struct sandbox *s, struct err *err)
{
        if (s->trees.storage < 0)
                s->trees.storage = make_storage(s);
        return s->trees.storage < 0
                       ? err_sys(err, ERR_PROVIDER, errno, "make the sandbox's storage")
                       : s->trees.storage;
}

static int overlay_of_layers(struct sandbox *s, struct err *err)
{
        struct overlay o = { .upper = "upper", .work = "work" };

        o.upper_dir = storage_dir(s, err);
        if (o.upper_dir < 0)
                return o.upper_dir;
        for (uint32_t i = 0; i < s->spec.n_layers; i++) {
                if (s->spec.layers[i].form != SANDBOX_LAYER_FILES)
                        o.lower_part[i] = "upper";
                o.lower[o.n_lower++] = s->trees.layers[i];
        }
        for (uint32_t i = 0; i < s->spec.n_base; i++)
                o.lower[o.n_lower++] = s->trees.base[i];
        return overlay_make(&o, err);
}

/* Whether /workspace and /tmp stand on those of an earlier sandbox. */
static bool has_place_below(const struct sandbox *s)
{
        return s->spec.n_layers > 0 && s->spec.layers[0].form == SANDBOX_LAYER_PLACE;
}

/* One of these two. The directory itself looks as the earlier one did. */
static int overlay_of_part(struct sandbox *s, const char *part, const char *work, struct err *err)
{
        struct overlay o = { .upper = part, .work = work };
        struct stat st;

        o.upper_dir = storage_dir(s, err);
        if (o.upper_dir < 0)
                return o.upper_dir;
        if (fstatat(s->trees.layers[0], part, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            fchownat(o.upper_dir, part, st.st_uid, st.st_gid, AT_SYMLINK_NOFOLLOW) < 0 ||
            fchmodat(o.upper_dir, part, st.st_mode & 07777, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make /%s like the one below it", part);
        while (o.n_lower < s->spec.n_layers &&
               s->spec.layers[o.n_lower].form == SANDBOX_LAYER_PLACE) {
                o.lower_part[o.n_lower] = part;
                o.lower[o.n_lower] = s->trees.layers[o.n_lower];
                o.n_lower++;
        }
        return overlay_make(&o, err);
}

/* The root itself; it becomes the working directory. */
static int make_root(struct sandbox *s, struct err *err)
{
        CLEAN(cleanup_fd) int root = -1;

        if (s->spec.n_base) {
                root = overlay_of_layers(s, err);
                if (root < 0)
                        return root;
        } else {
                root = make_tmpfs(s, s->spec.storage == SANDBOX_STORE_TMPFS);
        }
        if (root < 0 || mount_attach_somewhere(root) < 0 || fchdir(root) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make the sandbox's root");
        return 0;
}

/* The content of the root */

static int make_dir(const char *path, mode_t mode, uint32_t owner)
{
        struct stat st;

        if (mkdir(path, mode) < 0 && errno != EEXIST)
                return -1;
        if (lstat(path, &st) < 0)
                return -1;
        if (!S_ISDIR(st.st_mode)) {
                errno = ENOTDIR;
                return -1;
        }
        if (st.st_uid != owner && chown(path, owner, owner) < 0)
                return -1;
        return (st.st_mode & 07777) == mode || chmod(path, mode) == 0 ? 0 : -1;
}

/* Merged systems have links for most of them. */
static int show_programs(struct err *err)
{
        for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
                char from[16], target[256];
                ssize_t n;

                snprintf(from, sizeof(from), "/%s", programs[i]);
                n = readlink(from, target, sizeof(target) - 1);
                if (n > 0) {
                        target[n] = '\0';
                        if (symlink(target, programs[i]) < 0)
                                return err_sys(err, ERR_PROVIDER, errno, "make %s", from);
                        continue;
                }
                if (errno == ENOENT)
                        continue;
                if (mkdir(programs[i], 0755) < 0 || mount_bind(from, programs[i], READ_ONLY) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "show %s in the sandbox", from);
        }
        return 0;
}

static int show_device(const char *name)
{
        char from[32];

        snprintf(from, sizeof(from), "/dev/%s", name);
        return etc_write(from + 1, "") < 0
                       ? -1
                       : mount_bind(from, from + 1, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC);
}

static int make_devices(const struct sandbox *s, struct err *err)
{
        static const char *const pts[] = { "mode", "0620", "gid", "5", "ptmxmode", "0666", NULL };
        CLEAN(cleanup_fd) int tty = -1;

        if (s->spec.n_base) {
                CLEAN(cleanup_fd) int dev = make_tmpfs(s, false);

                if ((mkdir("dev", 0755) < 0 && errno != EEXIST) || dev < 0 ||
                    mount_attach(dev, AT_FDCWD, "dev") < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "make /dev");
        } else if (mkdir("dev", 0755) < 0) {
                return err_sys(err, ERR_PROVIDER, errno, "make /dev");
        }
        for (size_t i = 0; i < ARRAY_LEN(devices); i++)
                if (show_device(devices[i]) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "show /dev/%s", devices[i]);
        tty = mount_new("devpts", MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC, pts);
        if (mkdir("dev/pts", 0755) < 0 || tty < 0 || mount_attach(tty, AT_FDCWD, "dev/pts") < 0 ||
            make_dir("dev/shm", 01777, 0) < 0 || symlink("pts/ptmx", "dev/ptmx") < 0 ||
            symlink("/proc/self/fd", "dev/fd") < 0 || symlink("fd/0", "dev/stdin") < 0 ||
            symlink("fd/1", "dev/stdout") < 0 || symlink("fd/2", "dev/stderr") < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make /dev");
        return 0;
}

static void forbid_user_namespaces(void)
{
        CLEAN(cleanup_fd)
        int fd = open("proc/sys/user/max_user_namespaces", O_WRONLY | O_CLOEXEC);

        if (fd >= 0)
                (void)!write(fd, "0", 1);
}

/* Its own processes only, and of those only one's own. The masked files are for root only; a nested
 * sandbox may make a /proc of its own only while nothing of this one is. */
static int make_proc(struct sandbox *s, struct err *err)
{
        static const char *const options[] = { "hidepid", "2", NULL };
        const uint64_t attr = SAFE | MOUNT_ATTR_NOEXEC;
        CLEAN(cleanup_fd) int proc = mount_new("proc", attr, options);

        s->report.hidden_pids = proc >= 0;
        if (proc < 0)
                proc = mount_new("proc", attr, NULL);
        if ((mkdir("proc", 0555) < 0 && errno != EEXIST) || proc < 0 ||
            mount_attach(proc, AT_FDCWD, "proc") < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make /proc");
        if (s->spec.nested_sandbox)
                return 0;
        forbid_user_namespaces();
        for (size_t i = 0; i < ARRAY_LEN(masked); i++) {
                char path[32];

                snprintf(path, sizeof(path), "proc/%s", masked[i]);
                /* Asked for first: a mount that is made and goes nowhere costs a grace period. */
                if (access(path, F_OK) == 0 &&
                    mount_bind("/dev/null", path, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NOEXEC) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "mask /%s", path);
        }
        if (mount_bind("proc/sys", "proc/sys", READ_ONLY | MOUNT_ATTR_NOEXEC) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make /proc/sys read-only");
        return 0;
}

/* A part of the storage, where there is one besides the root. */
static int show_storage(const struct sandbox *s, const char *name, const char *to)
{
        CLEAN(cleanup_fd) int fd = mount_clone(s->trees.storage, name, true, SAFE);

        return fd < 0 ? -1 : mount_attach(fd, AT_FDCWD, to);
}

static int make_home(struct sandbox *s, struct err *err)
{
        CLEAN(cleanup_fd) int home = -1;

        if (s->spec.own_users)
                return 0;
        if (make_dir("home", 0755, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make /home");
        if (!s->spec.n_base && s->spec.n_layers > 0) {
                home = overlay_of_layers(s, err);
                if (home < 0)
                        return home;
                if (mount_attach(home, AT_FDCWD, "home") < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "make /home");
        } else if (!s->spec.n_base && s->spec.storage != SANDBOX_STORE_TMPFS) {
                if (show_storage(s, "upper", "home") < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "make /home");
        }
        if (make_dir("home/agent", 0755, SANDBOX_AGENT) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make the home directory");
        return 0;
}

static int make_temporary(struct sandbox *s, struct err *err)
{
        if (make_dir("tmp", 01777, 0) < 0 || make_dir("run", 0755, 0) < 0 ||
            make_dir("var", 0755, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make /tmp, /run and /var");
        if (has_place_below(s)) {
                CLEAN(cleanup_fd) int tmp = overlay_of_part(s, "tmp", "tmp-work", err);

                if (tmp < 0)
                        return tmp;
                if (mount_attach(tmp, AT_FDCWD, "tmp") < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "make /tmp");
        } else if (s->spec.storage != SANDBOX_STORE_TMPFS && show_storage(s, "tmp", "tmp") < 0) {
                return err_sys(err, ERR_PROVIDER, errno, "make /tmp");
        }
        if (s->spec.n_base)
                return 0;
        if (symlink("../tmp", "var/tmp") < 0 || symlink("../run", "var/run") < 0 ||
            make_dir("root", 0700, 0) < 0 || make_dir("var/lib", 0755, 0) < 0 ||
            make_dir("mnt", 0755, 0) < 0 || make_dir("srv", 0755, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make /var");
        return 0;
}

/* The directory and what is missing above it. No other process is in here yet, but a rootfs or an
 * earlier box may have left links: they are not followed. */
static int make_path(const char *path, int *ret_fd)
{
        int at = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);

        while (at >= 0 && *path) {
                size_t n = strcspn(path, "/");
                CLEAN(cleanup_fd) int above = take_fd(&at);
                char name[256];

                if (n >= sizeof(name)) {
                        errno = ENAMETOOLONG;
                        return -1;
                }
                memcpy(name, path, n);
                name[n] = '\0';
                if (n > 0 && mkdirat(above, name, 0755) < 0 && errno != EEXIST)
                        return -1;
                at = openat(above, n > 0 ? name : ".",
                            O_PATH | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
                path += n + (path[n] == '/');
        }
        *ret_fd = at;
        return at < 0 ? -1 : 0;
}

static int workspace_mount(struct sandbox *s, struct err *err)
{
        struct overlay o = { .lower = { s->trees.workspace },
                             .n_lower = 1,
                             .upper = "workspace",
                             .work = "workspace-work" };

        if (s->spec.workspace == SANDBOX_WORK_BIND)
                return take_fd(&s->trees.workspace);
        if (s->spec.workspace == SANDBOX_WORK_PRIVATE && has_place_below(s))
                return overlay_of_part(s, "workspace", "workspace-work", err);
        if (s->spec.workspace == SANDBOX_WORK_PRIVATE)
                return mount_clone(s->trees.storage, "workspace", true, SAFE);
        o.upper_dir = storage_dir(s, err);
        if (o.upper_dir < 0)
                return o.upper_dir;
        if (fchownat(o.upper_dir, "workspace", sandbox_user_id(&s->spec),
                     sandbox_group_id(&s->spec), 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make the workspace");
        return overlay_make(&o, err);
}

static int make_workspace(struct sandbox *s, struct err *err)
{
        const char *path = s->spec.workspace_path ? s->spec.workspace_path : "/workspace";
        bool in_root = s->spec.workspace == SANDBOX_WORK_PRIVATE &&
                       s->spec.storage == SANDBOX_STORE_TMPFS && !has_place_below(s);
        CLEAN(cleanup_fd) int at = -1;
        CLEAN(cleanup_fd) int fd = -1;

        if (make_path(path + 1, &at) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make %s", path);
        if (in_root)
                return fchownat(at, "", sandbox_user_id(&s->spec), sandbox_group_id(&s->spec),
                                AT_EMPTY_PATH) < 0
                               ? err_sys(err, ERR_PROVIDER, errno, "make %s", path)
                               : 0;
        fd = workspace_mount(s, err);
        if (fd < -1)
                return fd;
        if (fd < 0 ||
            move_mount(fd, "", at, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "show the workspace at %s", path);
        return 0;
}

/* What a command's working directory needs to exist, as container engines do it. */
static int make_working_dir(const struct sandbox *s, struct err *err)
{
        CLEAN(cleanup_fd) int at = -1;

        if (s->spec.working_dir && make_path(s->spec.working_dir + 1, &at) < 0 && errno != ELOOP &&
            errno != ENOTDIR)
                return err_sys(err, ERR_PROVIDER, errno, "make %s", s->spec.working_dir);
        return 0;
}

/* What is written below these goes where they lead. Until the root is changed that could be the
 * host: an image that has something else than a directory there gets an empty one. */
static int make_real_dirs(struct err *err)
{
        static const char *const names[] = { "dev", "proc", "etc" };
        struct stat st;

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                if (lstat(names[i], &st) == 0 && !S_ISDIR(st.st_mode) && unlink(names[i]) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "make /%s", names[i]);
                if (mkdir(names[i], 0755) < 0 && errno != EEXIST)
                        return err_sys(err, ERR_PROVIDER, errno, "make /%s", names[i]);
        }
        return 0;
}

static int fill_root(struct box *b, struct err *err)
{
        struct sandbox *s = b->sandbox;
        int r = s->spec.n_base ? make_real_dirs(err) : show_programs(err);

        if (r >= 0)
                r = make_devices(s, err);
        if (r >= 0)
                r = make_proc(s, err);
        if (r >= 0)
                r = s->spec.n_base ? etc_amend(b, err) : etc_build(b, err);
        if (r >= 0)
                r = make_temporary(s, err);
        if (r >= 0)
                r = make_home(s, err);
        if (r >= 0)
                r = make_working_dir(s, err);
        return r < 0 ? r : make_workspace(s, err);
}

/* The old root comes to lie over the new one, and is taken away with all that is in it. That it is
 * really the new one we are in then is worth a look. */
static int change_root(struct err *err)
{
        struct stat wanted, got;

        if (stat(".", &wanted) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "change the root");
        if (syscall(SYS_pivot_root, ".", ".") < 0 || umount2(".", MNT_DETACH) < 0 || chdir("/") < 0)
                return err_sys(err, ERR_PROVIDER, errno, "change the root");
        if (stat("/", &got) < 0 || got.st_dev != wanted.st_dev || got.st_ino != wanted.st_ino)
                return err_set(err, ERR_PROVIDER, "change the root: something covers it");
        return 0;
}

int root_build(struct box *b, struct err *err)
{
        struct sandbox *s = b->sandbox;

        umask(022);
        if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make mounts private");
        int r = s->rootless ? trees_grab(s, err) : 0;
        if (r >= 0)
                r = stage_trees(s, err);
        if (r < 0)
                return r;
        /* Files that are made from here on belong to inner root. */
        setfsgid(0);
        setfsuid(0);
        r = make_root(s, err);
        if (r >= 0)
                r = fill_root(b, err);
        if (r >= 0)
                r = change_root(err);
        /* Where its group is not mapped, its files stay in inner root's. No mode of theirs lets a
         * group in. */
        setfsuid(SANDBOX_SUPERVISOR);
        setfsgid(SANDBOX_SUPERVISOR);
        umask(077);
        return r;
}
