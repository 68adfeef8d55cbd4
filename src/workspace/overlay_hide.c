/* Hides excluded paths of the lower layer by whiteouts in the upper one. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "base/fd.h"
#include "base/path.h"
#include "workspace/overlay.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

struct hiding {
        int upper_fd, lower_fd;
        const struct excludes *excludes;
        uid_t owner; /* the owner of the upper layer, and of what is made in it */
        gid_t group;
        char path[TREE_MAX_PATH + 1];
};

/* The directory in the upper layer that goes with the one in the lower layer. */
static int make_parent(const struct hiding *h, const char *name, int upper, int lower, int *ret)
{
        struct stat st;

        if (fstatat(lower, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -1;
        if (mkdirat(upper, name, 0700) == 0) {
                if (fchownat(upper, name, h->owner, h->group, AT_SYMLINK_NOFOLLOW) < 0 ||
                    fchmodat(upper, name, st.st_mode & 0777, 0) < 0)
                        return -1;
        } else if (errno != EEXIST) {
                return -1;
        }
        *ret = openat(upper, name, OPEN_DIR);
        return *ret < 0 ? -1 : 0;
}

/* A path that is not there below needs no hiding; a link on the way is not followed. */
static int hide_path(const struct hiding *h, const char *path)
{
        CLEAN(cleanup_fd) int upper = openat(h->upper_fd, ".", OPEN_DIR);
        CLEAN(cleanup_fd) int lower = openat(h->lower_fd, ".", OPEN_DIR);
        struct stat st;
        char part[TREE_MAX_NAME + 1];
        const char *slash;

        while (upper >= 0 && lower >= 0 && (slash = strchr(path, '/'))) {
                CLEAN(cleanup_fd) int above_upper = take_fd(&upper);
                CLEAN(cleanup_fd) int above_lower = take_fd(&lower);

                if (slash - path > TREE_MAX_NAME)
                        return 0;
                snprintf(part, sizeof(part), "%.*s", (int)(slash - path), path);
                lower = openat(above_lower, part, OPEN_DIR);
                if (lower < 0)
                        return errno == ENOENT || errno == ENOTDIR || errno == ELOOP ? 0 : -1;
                if (make_parent(h, part, above_upper, above_lower, &upper) < 0)
                        return -1;
                path = slash + 1;
        }
        if (upper < 0 || lower < 0)
                return -1;
        if (fstatat(lower, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -1;
        if (mknodat(upper, path, S_IFCHR, makedev(0, 0)) < 0 && errno != EEXIST)
                return -1;
        return 0;
}

/* 1, 0, or -1 when it cannot be looked at: then it must not be shown. */
static int is_never(const struct hiding *h, int dir, const char *name)
{
        struct stat st;

        if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : -1;
        return excludes_never(h->excludes, tree_id_of(&st));
}

/* Everything beneath the directory that is at h->path now. */
static int hide_beneath(struct hiding *h, int take_dir, size_t depth)
{
        DIR *dir = fdopendir(take_dir);
        size_t at = strlen(h->path);
        struct dirent *entry;
        int r = 0;

        if (!dir) {
                close(take_dir);
                return -1;
        }
        while (r == 0 && (entry = readdir(dir))) {
                const char *name = entry->d_name;
                int sub, never;

                if (streq(name, ".") || streq(name, "..") || at + 1 + strlen(name) > TREE_MAX_PATH)
                        continue;
                snprintf(h->path + at, sizeof(h->path) - at, "%s%s", at ? "/" : "", name);
                never = excludes_match(h->excludes, h->path) ? 1 : is_never(h, dirfd(dir), name);
                if (never > 0) {
                        r = hide_path(h, h->path);
                } else if (never == 0 && depth < TREE_MAX_DEPTH) {
                        sub = openat(dirfd(dir), name, OPEN_DIR);
                        if (sub >= 0)
                                r = hide_beneath(h, sub, depth + 1);
                        else if (errno != ENOENT && errno != ENOTDIR && errno != ELOOP &&
                                 errno != EACCES)
                                r = -1;
                } else {
                        r = never;
                }
                h->path[at] = '\0';
        }
        closedir(dir);
        return r;
}

/* A pattern without asterisks, written in any of the ways that excludes_match() knows. */
static int hide_pattern(const struct hiding *h, const char *pattern)
{
        char path[TREE_MAX_PATH + 1];

        while (str_starts(pattern, "./"))
                pattern += 2;
        pattern += strspn(pattern, "/");
        size_t len = strlen(pattern);
        while (len > 0 && pattern[len - 1] == '/')
                len--;
        if (len == 0 || len > TREE_MAX_PATH)
                return 0;
        snprintf(path, sizeof(path), "%.*s", (int)len, pattern);
        return tree_path_ok(path) ? hide_path(h, path) : 0;
}

static bool needs_walk(const struct excludes *x)
{
        for (const char *const *p = x ? x->patterns : NULL; p && *p; p++)
                if (strchr(*p, '*'))
                        return true;
        /* Mounts are not seen in an overlay; another name of a file would be. */
        return x && x->never && x->never->has_links;
}

int overlay_hide(int upper_fd, int lower_fd, const struct excludes *excludes, struct err *err)
{
        struct hiding h = { .upper_fd = upper_fd, .lower_fd = lower_fd, .excludes = excludes };
        struct stat st;
        int r = fstat(upper_fd, &st);

        h.owner = st.st_uid;
        h.group = st.st_gid;
        if (r == 0 && needs_walk(excludes)) {
                int dir = openat(lower_fd, ".", OPEN_DIR);

                r = dir < 0 ? -1 : hide_beneath(&h, dir, 0);
        } else if (r == 0) {
                r = hide_path(&h, ".paperclip-runtime");
                for (const char *const *p = excludes ? excludes->patterns : NULL; r == 0 && p && *p;
                     p++)
                        r = hide_pattern(&h, *p);
        }
        return r < 0 ? err_sys(err, ERR_IO, errno, "hide what is excluded") : 0;
}
