/* Trees of the host that go into a sandbox.
 *
 * They may lie in directories that the sandbox's users cannot search (the daemon's data), so a
 * launcher that is root grabs them as detached mounts, which it hands on as descriptors. Another
 * user may not do that outside; there PID 1 is that user itself and grabs them by name.
 *
 * What belongs to root or to another sandbox on disk is shown with the ids of this one. Only root
 * may arrange that. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/mount.h"
#include "berth-box/sandbox.h"

#define SAFE (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV)

void trees_init(struct trees *t)
{
        t->storage = t->workspace = -1;
        for (size_t i = 0; i < SANDBOX_MAX_BASE; i++)
                t->base[i] = -1;
        for (size_t i = 0; i < SANDBOX_MAX_LAYERS; i++)
                t->layers[i] = -1;
}

/* The id to give to chown(), wherever that is done. */
static uid_t owner_id(const struct sandbox *s, uint32_t inner)
{
        return s->rootless ? inner : sandbox_host_id(&s->spec, inner);
}

static int prepare_one(const struct sandbox *s, int at, const char *name, mode_t mode,
                       uint32_t inner, struct err *err)
{
        struct stat st;
        uid_t id = owner_id(s, inner);

        if (mkdirat(at, name, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_PROVIDER, errno, "make '%s' in the storage", name);
        if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode))
                return err_set(err, ERR_PROVIDER, "'%s' in the storage is not a directory", name);
        if (st.st_uid == id)
                return 0;
        if (fchownat(at, name, id, id, AT_SYMLINK_NOFOLLOW) < 0 || fchmodat(at, name, mode, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "give '%s' to the sandbox", name);
        return 0;
}

/* The storage may be an image, so this is done beneath its mount. */
static int prepare_storage(const struct sandbox *s, int at, struct err *err)
{
        int r = prepare_one(s, at, "upper", 0755, 0, err);

        /* Its own directories are found in it by name. */
        if (!s->rootless && fchownat(at, "", owner_id(s, 0), owner_id(s, 0), AT_EMPTY_PATH) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "give the storage to the sandbox");
        if (r >= 0)
                r = prepare_one(s, at, "work", 0755, 0, err);
        if (r >= 0)
                r = prepare_one(s, at, "tmp", 01777, 0, err);
        if (r >= 0)
                r = prepare_one(s, at, "tmp-work", 0755, 0, err);
        if (r >= 0)
                r = prepare_one(s, at, "workspace", 0755, sandbox_user_id(&s->spec), err);
        return r < 0 ? r : prepare_one(s, at, "workspace-work", 0755, 0, err);
}

/* The loop device frees itself when its last user, the mount, is gone. */
static int mount_image(const char *path, struct err *err)
{
        struct loop_config config = { .info.lo_flags = LO_FLAGS_AUTOCLEAR };
        CLEAN(cleanup_fd) int image = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        CLEAN(cleanup_fd) int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
        char device[32];

        if (image < 0)
                return err_sys(err, ERR_PROVIDER, errno, "open the image %s", path);
        config.fd = (unsigned)image;
        for (int tries = 0; tries < 64; tries++) {
                int number = control < 0 ? -1 : ioctl(control, LOOP_CTL_GET_FREE);

                if (number < 0)
                        break;
                snprintf(device, sizeof(device), "/dev/loop%d", number);
                CLEAN(cleanup_fd) int loop = open(device, O_RDWR | O_CLOEXEC);

                if (loop < 0)
                        break;
                if (ioctl(loop, LOOP_CONFIGURE, &config) < 0) {
                        if (errno == EBUSY) /* another process was faster */
                                continue;
                        break;
                }
                const char *const options[] = { "source", device, NULL };
                int fd = mount_new("ext4", SAFE, options);

                if (fd < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "mount the image %s", path);
                return fd;
        }
        return err_sys(err, ERR_PROVIDER, errno, "a loop device for the image %s", path);
}

static int grab_tree(const struct sandbox *s, const char *what, const char *path, uint64_t attr,
                     int *ret, struct err *err)
{
        struct stat st;

        *ret = mount_clone(AT_FDCWD, path, s->rootless, SAFE | attr);
        if (*ret < 0)
                return err_sys(err, ERR_PROVIDER, errno, "%s %s", what, path);
        if (fstat(*ret, &st) < 0 || !S_ISDIR(st.st_mode))
                return err_set(err, ERR_PROVIDER, "%s %s is not a directory", what, path);
        return 0;
}

static int grab_storage(struct sandbox *s, struct err *err)
{
        int r = 0;

        if (s->spec.storage == SANDBOX_STORE_TMPFS)
                return 0;
        if (s->spec.storage == SANDBOX_STORE_DIR)
                r = grab_tree(s, "storage", s->spec.storage_path, 0, &s->trees.storage, err);
        else
                s->trees.storage = r = s->rootless
                                               ? err_set(err, ERR_PROVIDER,
                                                         "an image as storage needs a daemon that "
                                                         "is root")
                                               : mount_image(s->spec.storage_path, err);
        return r < 0 ? r : prepare_storage(s, s->trees.storage, err);
}

int trees_grab(struct sandbox *s, struct err *err)
{
        struct stat st;
        int r = grab_storage(s, err);

        for (uint32_t i = 0; r >= 0 && i < s->spec.n_base; i++)
                r = grab_tree(s, "rootfs", s->spec.base[i], MOUNT_ATTR_RDONLY, &s->trees.base[i],
                              err);
        for (uint32_t i = 0; r >= 0 && i < s->spec.n_layers; i++)
                r = grab_tree(s, "layer", s->spec.layers[i].path, MOUNT_ATTR_RDONLY,
                              &s->trees.layers[i], err);
        if (r < 0 || s->spec.workspace == SANDBOX_WORK_PRIVATE)
                return r;
        r = grab_tree(s, "workspace", s->spec.workspace_dir, 0, &s->trees.workspace, err);
        if (r < 0)
                return r;
        if (fstat(s->trees.workspace, &st) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "workspace");
        s->trees.workspace_uid = st.st_uid;
        s->trees.workspace_gid = st.st_gid;
        return 0;
}

/* Owners */

static int show_as(struct sandbox *s, int tree, const char *path, int ns, struct err *err)
{
        if (mount_idmap(tree, ns) < 0)
                return err_sys(err, ERR_PROVIDER, errno,
                               "show the owners of %s inside (its file system must support "
                               "id-mapped mounts)",
                               path);
        s->report.idmapped = true;
        return 0;
}

/* One namespace serves all directories of the base: making it costs a process. */
static int show_base(struct sandbox *s, struct err *err)
{
        struct idmap map = { 0, 0, s->spec.first_id, s->spec.n_ids - 1 };
        CLEAN(cleanup_fd) int ns = -1;
        int r = s->spec.n_base > 0 ? userns_for_idmap(&map, &ns, err) : 0;

        for (uint32_t i = 0; r >= 0 && i < s->spec.n_base; i++)
                r = show_as(s, s->trees.base[i], s->spec.base[i], ns, err);
        return r;
}

static int show_tree(struct sandbox *s, int tree, const char *path, const struct idmap *map,
                     struct err *err)
{
        CLEAN(cleanup_fd) int ns = -1;
        int r = userns_for_idmap(map, &ns, err);

        return r < 0 ? r : show_as(s, tree, path, ns, err);
}

static int show_layer(struct sandbox *s, int tree, const struct sandbox_layer *layer,
                      struct err *err)
{
        struct idmap map = { layer->first_id, layer->first_id, s->spec.first_id,
                             s->spec.n_ids - 1 };

        return layer->first_id == s->spec.first_id ? 0 : show_tree(s, tree, layer->path, &map, err);
}

int trees_show_owners(struct sandbox *s, struct err *err)
{
        struct trees *t = &s->trees;
        uint32_t user = sandbox_host_id(&s->spec, sandbox_user_id(&s->spec));
        int r = show_base(s, err);

        for (uint32_t i = 0; r >= 0 && i < s->spec.n_layers; i++)
                r = show_layer(s, t->layers[i], &s->spec.layers[i], err);
        if (r < 0 || t->workspace < 0 || t->workspace_uid == user)
                return r;
        struct idmap map = { t->workspace_uid, t->workspace_gid, user, 1 };

        return show_tree(s, t->workspace, s->spec.workspace_dir, &map, err);
}

/* Overlays. Their directories are named by the number of their descriptor, with those as working
 * directory: a list of 160 absolute names would be too long for either call. */

#define LOWER_MAX    (SANDBOX_MAX_LAYERS * 16 + SANDBOX_MAX_BASE * 5)
#define FSCONFIG_MAX 255 /* the longest value that fsconfig() takes */

struct overlay_names {
        char lower[LOWER_MAX], upper[64], work[64];
};

static int overlay_by_steps(const struct overlay_names *n, const char *source, struct err *err)
{
        const char *const options[] = { "source",   source,   "lowerdir", n->lower,
                                        "upperdir", n->upper, "workdir",  n->work,
                                        "xino",     "auto",   NULL };
        CLEAN(cleanup_fd) int fs = fsopen("overlay", FSOPEN_CLOEXEC);

        for (const char *const *opt = options; fs >= 0 && *opt; opt += 2)
                if (fsconfig(fs, FSCONFIG_SET_STRING, opt[0], opt[1], 0) < 0)
                        return err_sys(err, ERR_PROVIDER, errno, "overlay option %s", opt[0]);
        if (fs < 0 || fsconfig(fs, FSCONFIG_SET_FLAG, "userxattr", NULL, 0) < 0 ||
            fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make an overlay");
        int fd = fsmount(fs, FSMOUNT_CLOEXEC, SAFE);
        return fd < 0 ? err_sys(err, ERR_PROVIDER, errno, "make an overlay") : fd;
}

/* mount() takes a page of options, but attaches what it makes: the caller gets a copy of it. */
static int overlay_at_once(const struct overlay_names *n, const char *source, struct err *err)
{
        static const char *const places[] = { "/tmp", "/mnt", "/run", "/srv", "/media" };
        char options[LOWER_MAX + 256];
        int fd = -1;

        snprintf(options, sizeof(options), "lowerdir=%s,upperdir=%s,workdir=%s,xino=auto,userxattr",
                 n->lower, n->upper, n->work);
        errno = ENOENT;
        for (size_t i = 0; i < ARRAY_LEN(places) && fd < 0 && errno == ENOENT; i++) {
                if (mount(source, places[i], "overlay", MS_NOSUID | MS_NODEV, options) < 0)
                        continue;
                fd = mount_clone(AT_FDCWD, places[i], false, SAFE);
                (void)umount2(places[i], MNT_DETACH);
        }
        return fd < 0 ? err_sys(err, ERR_PROVIDER, errno, "make an overlay") : fd;
}

int overlay_make(const struct overlay *o, struct err *err)
{
        const char *source = o->source ? o->source : "overlay";
        CLEAN(cleanup_fd) int back = open(".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct overlay_names n = { 0 };
        size_t len = 0;

        for (size_t i = 0; i < o->n_lower; i++)
                len += (size_t)snprintf(n.lower + len, sizeof(n.lower) - len, "%s%d%s%s",
                                        i ? ":" : "", o->lower[i], o->lower_part[i] ? "/" : "",
                                        o->lower_part[i] ? o->lower_part[i] : "");
        snprintf(n.upper, sizeof(n.upper), "%d/%s", o->upper_dir, o->upper);
        snprintf(n.work, sizeof(n.work), "%d/%s", o->upper_dir, o->work);
        if (back < 0 || chdir("/proc/self/fd") < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make an overlay");
        int fd = len <= FSCONFIG_MAX ? overlay_by_steps(&n, source, err)
                                     : overlay_at_once(&n, source, err);
        if (fchdir(back) < 0) {
                cleanup_fd(&fd);
                return err_sys(err, ERR_PROVIDER, errno, "make an overlay");
        }
        return fd;
}
