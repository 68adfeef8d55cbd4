/* Decides which directories of this machine a company may name. */
#define _GNU_SOURCE
#include "core/roots/workspace_root.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/fd.h"
#include "base/path.h"
#include "core/roots/own_files.h"

#define COMPANY            "{company}"
#define ROOT_COMPANIES_MAX 64

/* A path that is to be opened beneath one of the roots. */
struct opening {
        const char *path;
        int flags;
        int *ret;
        struct err *err; /* why it is unknown whether the path lies there; code 0: it is known */
};

/* Open the path, a directory, if it lies beneath the root `dir`, which is called `root`. The kernel
 * decides that. */
static bool open_beneath(struct opening *o, int dir, const char *root)
{
        CLEAN(err_done) struct err err = { 0 };
        const size_t len = strlen(root);
        const char *rest = o->path + len;

        if (strncmp(o->path, root, len) != 0 || (*rest != '/' && *rest != '\0'))
                return false;
        while (*rest == '/')
                rest++;
        int r = path_open_beneath(dir, *rest ? rest : ".", o->flags | O_DIRECTORY, 0, o->ret, &err);
        if (r < 0 && err.is_transient)
                err_move(o->err, &err);
        return r >= 0;
}

static bool real_path_of(int fd, char *ret, size_t size)
{
        char link[64];

        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(link, ret, size);
        if (n <= 0 || n == (ssize_t)size || ret[0] != '/')
                return false;
        ret[n] = '\0';
        return true;
}

/* A canonical path need not begin with the root as it was written. */
static bool open_beneath_root(void *ctx, const char *root)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(cleanup_fd) int dir = -1;
        struct opening *o = ctx;
        char real[4096];

        if (path_open_named(root, &dir, &err) < 0) {
                if (err.is_transient)
                        err_move(o->err, &err);
                return false;
        }
        return open_beneath(o, dir, root) || (real_path_of(dir, real, sizeof(real)) &&
                                              !streq(real, root) && open_beneath(o, dir, real));
}

/* The root that an entry of the list stands for, for this company; NULL: the entry is not for the
 * company. */
static char *root_for(const char *entry, size_t len, const char *company_id)
{
        struct buf root = BUF_INIT;
        struct uuid id;

        if (len > UUID_LEN && entry[UUID_LEN] == '=') {
                char owner[UUID_LEN + 1];

                memcpy(owner, entry, UUID_LEN);
                owner[UUID_LEN] = '\0';
                if (uuid_parse(owner, &id)) {
                        if (!company_id || !streq(id.s, company_id))
                                return NULL;
                        entry += UUID_LEN + 1;
                        len -= UUID_LEN + 1;
                }
        }
        while (len > 1 && entry[len - 1] == '/')
                len--;
        while (len > 0) {
                if (len >= strlen(COMPANY) && memcmp(entry, COMPANY, strlen(COMPANY)) == 0) {
                        if (!company_id) {
                                buf_done(&root);
                                return NULL;
                        }
                        buf_puts(&root, company_id);
                        entry += strlen(COMPANY);
                        len -= strlen(COMPANY);
                } else {
                        buf_putc(&root, *entry++);
                        len--;
                }
        }
        if (root.len > 0)
                return buf_take(&root);
        buf_done(&root);
        return NULL;
}

/* Whether `inner` lies beneath `outer`, by their names. */
static bool is_beneath(const char *inner, const char *outer)
{
        size_t n = strlen(outer);

        return streq(outer, "/") ? inner[1] != '\0' : str_starts(inner, outer) && inner[n] == '/';
}

/* Whether the company has a root that `root` is beneath. A restore to that outer root can put a
 * link in the place of `root`, so `root` is not opened by its own name; it is open to the company
 * anyway. */
static bool is_covered(const char *roots, const char *company_id, const char *root)
{
        for (size_t n; *roots; roots += n + (roots[n] == ':')) {
                CLEAN(cleanup_free) char *other = NULL;

                n = strcspn(roots, ":");
                other = root_for(roots, n, company_id);
                if (other && is_beneath(root, other))
                        return true;
        }
        return false;
}

/* Calls fn with each root of the company until one returns true. */
static bool each_root(const char *roots, const char *company_id,
                      bool (*fn)(void *ctx, const char *root), void *ctx)
{
        const char *at = roots;

        while (at && *at) {
                size_t n = strcspn(at, ":");
                CLEAN(cleanup_free) char *root = root_for(at, n, company_id);

                if (root && !is_covered(roots, company_id, root) && fn(ctx, root))
                        return true;
                at += n;
                at += *at == ':';
        }
        return false;
}

/* Two companies for comparing their roots. Ids in the list are those of companies; the last two
 * stand for all others. */
struct companies {
        struct uuid ids[ROOT_COMPANIES_MAX];
        size_t n;
};

static void add_company(struct companies *c, const char *text)
{
        struct uuid id;

        if (c->n == ROOT_COMPANIES_MAX || !uuid_parse(text, &id))
                return;
        for (size_t i = 0; i < c->n; i++)
                if (streq(c->ids[i].s, id.s))
                        return;
        c->ids[c->n++] = id;
}

static void find_companies(const char *roots, struct companies *ret)
{
        add_company(ret, "00000000-0000-4000-8000-000000000000");
        add_company(ret, "ffffffff-ffff-4fff-bfff-ffffffffffff");
        for (; strlen(roots) >= UUID_LEN; roots++) {
                char text[UUID_LEN + 1];

                memcpy(text, roots, UUID_LEN);
                text[UUID_LEN] = '\0';
                add_company(ret, text);
        }
}

/* By their names, or by their present link targets. */
static bool is_nested(const char *inner, const char *outer)
{
        CLEAN(cleanup_free) char *real_inner = realpath(inner, NULL);
        CLEAN(cleanup_free) char *real_outer = realpath(outer, NULL);

        return is_beneath(inner, outer) ||
               is_beneath(real_inner ? real_inner : inner, real_outer ? real_outer : outer);
}

/* Whether one entry's root for one company lies beneath another entry's for another company.
 * Entries that are both for every company do not clash. */
static bool entries_clash(const char *inner, size_t inner_len, const char *outer, size_t outer_len,
                          const struct companies *c)
{
        for (size_t i = 0; i < c->n; i++) {
                CLEAN(cleanup_free) char *a = root_for(inner, inner_len, c->ids[i].s);

                for (size_t k = 0; a && k < c->n; k++) {
                        CLEAN(cleanup_free) char *b = root_for(outer, outer_len, c->ids[k].s);

                        if (i != k && b && is_nested(a, b))
                                return true;
                }
        }
        return false;
}

static bool is_for_all(const char *entry, size_t len)
{
        CLEAN(cleanup_free) char *root = root_for(entry, len, NULL);

        return root;
}

int workspace_roots_check(const char *roots, struct err *err)
{
        struct companies companies = { .n = 0 };

        find_companies(roots, &companies);
        for (const char *a = roots; *a; a += strcspn(a, ":"), a += *a == ':')
                for (const char *b = roots; *b; b += strcspn(b, ":"), b += *b == ':') {
                        size_t n = strcspn(a, ":"), m = strcspn(b, ":");

                        if (!(is_for_all(a, n) && is_for_all(b, m)) &&
                            entries_clash(a, n, b, m, &companies))
                                return err_set(err, ERR_INVALID,
                                               "workspace_roots: %.*s lies in %.*s, so what one "
                                               "company brings home could lead another's "
                                               "elsewhere; give each company directories beside "
                                               "those of the others",
                                               (int)n, a, (int)m, b);
                }
        return 0;
}

/* 1: it is open; 0: it lies beneath none of them; else the error why that is unknown. */
static int open_beneath_any(const char *roots, const char *company_id, const char *path, int flags,
                            int *ret, struct err *err)
{
        CLEAN(err_done) struct err untold = { 0 };
        struct opening o = { path, flags, ret, &untold };
        int r = each_root(roots, company_id, open_beneath_root, &o);

        if (r == 0 && untold.code) {
                r = untold.code;
                err_move(err, &untold);
        }
        return r;
}

static bool list_root(void *ctx, const char *root)
{
        struct buf *list = ctx;

        buf_appendf(list, "%s%s", list->len ? ":" : "", root);
        return false;
}

static int refuse_path(const struct runtime *rt, const char *company_id, const char *path,
                       struct err *err)
{
        CLEAN(buf_done) struct buf roots = BUF_INIT;

        (void)each_root(rt->settings.workspace_roots, company_id, list_root, &roots);
        return err_set(err, ERR_UNPROCESSABLE,
                       "Workspace path '%s' is not an existing directory beneath the allowed roots "
                       "(%s). Set BERTH_WORKSPACE_ROOTS to allow more.",
                       path, roots.len ? buf_str(&roots) : "none for this company");
}

/* File systems in which the kernel shows itself: there is no work in them. */
static bool shows_kernel(int fd)
{
        struct statfs fs;

        return fstatfs(fd, &fs) < 0 || fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC ||
               fs.f_type == CGROUP_SUPER_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC ||
               fs.f_type == DEVPTS_SUPER_MAGIC;
}

/* For the user that the daemon runs as, who could do there without us all that we do: a directory
 * of that user, by its real path. Returns as open_beneath_any() does. */
static int open_own(const char *path, int flags, int *ret, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        char real[4096];
        struct stat st;

        fd = open(path, flags | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EACCES ||
                       errno == ENAMETOOLONG))
                return 0;
        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "open %s", path);
        if (st.st_uid != geteuid() || shows_kernel(fd) || !real_path_of(fd, real, sizeof(real)) ||
            !streq(real, path))
                return 0;
        *ret = take_fd(&fd);
        return 1;
}

static int open_allowed(const struct workspace_asker *asker, const struct runtime *rt,
                        const char *path, int flags, int *ret, struct err *err)
{
        int r = open_beneath_any(rt->settings.workspace_roots, asker->company_id, path, flags, ret,
                                 err);

        return r == 0 && asker->is_daemon_user ? open_own(path, flags, ret, err) : r;
}

int workspace_root_open(const struct runtime *rt, const struct workspace_asker *asker,
                        const char *path, struct arena *arena, int *ret_fd, const char **ret_path,
                        struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        char real[4096];

        int r = open_allowed(asker, rt, path, O_RDONLY, &fd, err);
        if (r <= 0)
                return r < 0 ? r : refuse_path(rt, asker->company_id, path, err);
        r = own_files_check(rt, fd, path, err);
        if (r < 0)
                return r;
        if (!real_path_of(fd, real, sizeof(real)))
                return refuse_path(rt, asker->company_id, path, err);
        *ret_path = arena_strdup(arena, real);
        *ret_fd = take_fd(&fd);
        return 0;
}

int workspace_root_check(const struct runtime *rt, const struct workspace_asker *asker,
                         const char *path, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        int r = open_allowed(asker, rt, path, O_PATH, &fd, err);

        if (r <= 0)
                return r < 0 ? r : refuse_path(rt, asker->company_id, path, err);
        return own_files_check(rt, fd, path, err);
}

int workspace_root_reopen(const struct runtime *rt, const char *path, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        char real[4096];

        if (fd < 0 && errno != ENOTDIR && errno != ELOOP)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                               path);
        if (fd < 0 || !real_path_of(fd, real, sizeof(real)) || !streq(real, path))
                return err_set(err, ERR_CONFLICT,
                               "%s leads elsewhere by now; a part of it was replaced", path);
        int r = own_files_check(rt, fd, path, err);
        if (r >= 0)
                *ret_fd = take_fd(&fd);
        return r;
}

int rootfs_check(const struct runtime *rt, const char *path, struct err *err)
{
        const char *roots = rt->settings.sandbox_rootfs_dirs;
        CLEAN(cleanup_free) char *ours = rt->data_dir ? xasprintf("%s/rootfs", rt->data_dir) : NULL;
        CLEAN(cleanup_fd) int fd = -1;
        int r = open_beneath_any(roots, NULL, path, O_PATH, &fd, err);

        if (r != 0)
                return r < 0 ? r : own_files_check_but(rt, fd, path, ours, err);
        return err_set(
                err, ERR_UNPROCESSABLE,
                "rootfs '%s' is not an existing directory beneath the allowed ones (%s). Set "
                "sandbox_rootfs_dirs to allow more.",
                path, roots ? roots : "none");
}
