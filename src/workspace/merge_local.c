/* The host's side of a merge: looks at paths, makes directories, and keeps entries aside. */
#define _GNU_SOURCE
#include "workspace/merge_parts.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/scan.h"

#define KEPT       ".berth-local-"
#define NEW_DIR    0755 /* of a directory that they have and did not change */
#define MAX_NUMBER 10000

const char *merge_name_of(const char *path)
{
        const char *slash = strrchr(path, '/');

        return slash ? slash + 1 : path;
}

void merge_dir_of(const char *path, char ret[TREE_MAX_PATH + 1])
{
        size_t n = (size_t)(merge_name_of(path) - path);

        memcpy(ret, path, n);
        ret[n > 0 ? n - 1 : 0] = '\0';
}

static int64_t nanoseconds(struct timespec t)
{
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Directories */

void merge_forget_dir(struct merge *m)
{
        cleanup_fd(&m->dir);
        m->dir = -1;
}

void merge_touch(struct merge *m, const char *dir_path)
{
        if (m->n_touched > MERGE_TOUCHED)
                return;
        for (size_t i = 0; i < m->n_touched; i++)
                if (streq(m->touched[i], dir_path))
                        return;
        if (m->n_touched < MERGE_TOUCHED)
                m->touched[m->n_touched] = arena_strdup(m->op->arena, dir_path);
        m->n_touched++;
}

static int clean_dir(struct merge *m, int dir, struct err *err)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *e;

        if (!d) {
                int r = err_sys(err, ERR_IO, errno, "read a directory");

                cleanup_fd(&fd);
                return r;
        }
        while ((e = readdir(d)) != NULL)
                if (merge_journal_owns(&m->journal, e->d_name))
                        (void)unlinkat(fd, e->d_name, 0);
        closedir(d);
        return 0;
}

static int open_dir(struct merge *m, const char *path, int *ret, struct err *err)
{
        return path_open_plain(m->root, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, ret, err);
}

int merge_clean(struct merge *m, struct err *err)
{
        const char *path = NULL;

        while ((path = merge_journal_next_dir(&m->journal, path)) != NULL) {
                CLEAN(cleanup_fd) int fd = -1;
                int r;

                if (*path && !tree_path_ok(path))
                        continue;
                if (open_dir(m, path, &fd, NULL) < 0)
                        continue; /* gone, or not ours to reach any more */
                r = clean_dir(m, fd, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* When the directory, or one that it lies in, last changed otherwise than by what was put into it
 * or taken out: most likely it was moved here then. 0: none did. */
static int64_t moved_ns(const struct merge *m, const char *dir)
{
        const char *end = *dir ? dir : NULL;
        char part[TREE_MAX_PATH + 1];
        int64_t last = 0;

        while (end) {
                struct stat st;

                end = strchrnul(end, '/');
                memcpy(part, dir, (size_t)(end - dir));
                part[end - dir] = '\0';
                if (fstatat(m->root, part, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    nanoseconds(st.st_ctim) > nanoseconds(st.st_mtim))
                        last = MAX(last, nanoseconds(st.st_ctim));
                end = *end ? end + 1 : NULL;
        }
        return last;
}

/* Files in a directory that was moved keep their times, and are still not what was staged under
 * this name. */
static int64_t dir_moved_ns(struct merge *m)
{
        if (!m->dir_moved_known)
                m->dir_moved_ns = moved_ns(m, m->dir_path);
        m->dir_moved_known = true;
        return m->dir_moved_ns;
}

/* `dir` is the path of a directory; "" is the root. */
static int enter_dir(struct merge *m, const char *dir, struct err *err)
{
        if (m->dir >= 0 && streq(m->dir_path, dir))
                return 1;
        merge_forget_dir(m);
        int r = open_dir(m, dir, &m->dir, err);
        if (r == ERR_NOT_FOUND || r == ERR_FORBIDDEN)
                return 0;
        if (r == ERR_UNPROCESSABLE)
                return err_set(err, r,
                               "%s is a mount point or lies behind one: nothing is merged there; "
                               "exclude it",
                               dir);
        if (r < 0)
                return r;
        memcpy(m->dir_path, dir, strlen(dir) + 1);
        m->dir_moved_known = false;
        if (merge_journal_is_dirty(&m->journal) && !m->options->dry_run)
                r = clean_dir(m, m->dir, err);
        return r < 0 ? r : 1;
}

int merge_parent(struct merge *m, const char *path, int *ret_dir, struct err *err)
{
        char dir[TREE_MAX_PATH + 1];

        merge_dir_of(path, dir);
        int r = enter_dir(m, dir, err);
        if (r > 0)
                *ret_dir = m->dir;
        return r;
}

static bool is_empty(int dir)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *e;
        bool empty = d != NULL;

        if (!d)
                cleanup_fd(&fd);
        while (empty && (e = readdir(d)) != NULL)
                empty = streq(e->d_name, ".") || streq(e->d_name, "..");
        if (d)
                closedir(d);
        return empty;
}

/* By a descriptor, and only what we made: the owner of the directory could have moved something of
 * ours there. A directory that has something in it is not the new one, and a link is worth no more
 * than its name. */
int merge_give_owner(struct merge *m, int dir, const char *name, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;

        if (!m->options->set_owner)
                return 0;
        fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "open %s", name);
        if (S_ISDIR(st.st_mode) && (st.st_uid != geteuid() || !is_empty(fd)))
                return 0;
        if (!S_ISDIR(st.st_mode) && (!S_ISLNK(st.st_mode) || st.st_uid != geteuid()))
                return merge_replaced(name, err);
        if (fchownat(fd, "", m->root_st.st_uid, m->root_st.st_gid, AT_EMPTY_PATH) < 0)
                return err_sys(err, ERR_IO, errno, "give %s to the owner of the workspace", name);
        return 0;
}

int merge_replaced(const char *name, struct err *err)
{
        return err_set(err, ERR_CONFLICT, "%s was replaced by somebody else", name);
}

/* One directory, in a parent that is there. */
static int make_one(struct merge *m, const char *path, struct err *err)
{
        int dir, r = merge_parent(m, path, &dir, err);
        char dir_path[TREE_MAX_PATH + 1];
        struct stat st;

        if (r <= 0)
                return r < 0 ? r : err_set(err, ERR_CONFLICT, "%s vanished", path);
        if (fstatat(dir, merge_name_of(path), &st, AT_SYMLINK_NOFOLLOW) == 0) {
                if (S_ISDIR(st.st_mode))
                        return 0;
                r = merge_keep_aside(m, path, true, err);
                if (r < 0)
                        return r;
                r = merge_parent(m, path, &dir, err);
                if (r <= 0)
                        return r < 0 ? r : err_set(err, ERR_CONFLICT, "%s vanished", path);
        }
        if (mkdirat(dir, merge_name_of(path), NEW_DIR) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s", path);
        FAULT("workspace.merge.parent");
        merge_dir_of(path, dir_path);
        merge_touch(m, dir_path);
        return merge_give_owner(m, dir, merge_name_of(path), err);
}

int merge_make_parent(struct merge *m, const char *path, int *ret_dir, struct err *err)
{
        int r = merge_parent(m, path, ret_dir, err);
        char part[TREE_MAX_PATH + 1];

        if (r != 0)
                return r;
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                memcpy(part, path, (size_t)(slash - path));
                part[slash - path] = '\0';
                r = make_one(m, part, err);
                if (r < 0)
                        return r;
        }
        r = merge_parent(m, path, ret_dir, err);
        return r != 0 ? r : err_set(err, ERR_CONFLICT, "%s: its directory vanished", path);
}

/* Looking */

static bool needs_hash(const struct change *c, const struct stat *st)
{
        uint64_t size = (uint64_t)st->st_size;

        if (!S_ISREG(st->st_mode))
                return false;
        return (!c->is_delete && c->now.kind == TREE_FILE && c->now.size == size) ||
               (c->has_was && c->was.kind == TREE_FILE && c->was.size == size);
}

int merge_look(struct merge *m, const struct change *c, struct merge_look *ret, struct err *err)
{
        const char *name = merge_name_of(c->now.path);
        int dir, r = merge_parent(m, c->now.path, &dir, err);

        ret->local = (struct merge_local){ 0 };
        memset(&ret->st, 0, sizeof(ret->st));
        if (r == ERR_UNPROCESSABLE && c->is_delete)
                r = 0;
        if (r <= 0)
                return r;
        if (fstatat(dir, name, &ret->st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "%s", c->now.path);
        r = scan_one(dir, name, needs_hash(c, &ret->st), &ret->local.entry, ret->target, err);
        if (r < 0)
                return err_wrap(err, r, "%s", c->now.path);
        ret->local.is_there = r > 0;
        if (r > 0 && S_ISDIR(ret->st.st_mode))
                ret->local.entry.kind = TREE_DIR; /* a mount point too; nothing gets beneath it */
        ret->local.is_shared = S_ISREG(ret->st.st_mode) && ret->st.st_nlink > 1;
        ret->local.ctime_ns = nanoseconds(ret->st.st_ctim);
        if (c->was_by_time)
                ret->local.ctime_ns = MAX(ret->local.ctime_ns, dir_moved_ns(m));
        return 0;
}

bool merge_is_same_stat(const struct stat *a, const struct stat *b)
{
        return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_mode == b->st_mode &&
               a->st_size == b->st_size && nanoseconds(a->st_mtim) == nanoseconds(b->st_mtim) &&
               nanoseconds(a->st_ctim) == nanoseconds(b->st_ctim);
}

/* Keeping aside */

/* <name>.berth-local-<time>, and -2, -3 ... behind it; the name is shortened, between two
 * characters, where it would be too long. */
static void kept_name(const char *name, const char *stamp, unsigned number,
                      char ret[TREE_MAX_NAME + 1])
{
        char tail[128];
        size_t n = strlen(name), max;
        int len;

        if (number > 1)
                len = snprintf(tail, sizeof(tail), KEPT "%.64s-%u", stamp, number);
        else
                len = snprintf(tail, sizeof(tail), KEPT "%.64s", stamp);
        max = TREE_MAX_NAME - (size_t)len;
        if (n > max) {
                n = max;
                while (n > 1 && ((unsigned char)name[n] & 0xc0) == 0x80)
                        n--;
        }
        snprintf(ret, TREE_MAX_NAME + 1, "%.*s%s", (int)n, name, tail);
}

static bool is_same_file(int dir, const char *name, const struct stat *ours)
{
        struct stat st;

        return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_ino == ours->st_ino &&
               st.st_dev == ours->st_dev;
}

/* Conflicts by their path. The place chose the paths: with a key that it does not know they do not
 * fall into one slot. */
static struct merge_conflict **conflict_slot(const struct merge *m, const char *path)
{
        uint8_t hash[crypto_shorthash_BYTES];
        uint64_t v;

        (void)crypto_shorthash(hash, (const uint8_t *)path, strlen(path), m->conflict_key);
        memcpy(&v, hash, sizeof(v));
        return &m->conflict_slots[v & (m->n_conflict_slots - 1)];
}

static struct merge_conflict *first_conflict(const struct merge *m, const char *path)
{
        return m->n_conflict_slots ? *conflict_slot(m, path) : NULL;
}

static void grow_slots(struct merge *m)
{
        free(m->conflict_slots);
        if (m->n_conflict_slots == 0)
                randombytes_buf(m->conflict_key, sizeof(m->conflict_key));
        m->n_conflict_slots = m->n_conflict_slots ? 2 * m->n_conflict_slots : 64;
        m->conflict_slots = xcalloc(m->n_conflict_slots, sizeof(struct merge_conflict *));
        for (struct merge_conflict *c = m->report.conflicts; c; c = c->next) {
                struct merge_conflict **slot = conflict_slot(m, c->path);

                c->chain = *slot;
                *slot = c;
        }
}

/* A merge that died after it had kept it: the same file has the other name already. */
static bool kept_before(const struct merge *m, int dir, const char *path, const struct stat *ours,
                        char ret[TREE_MAX_NAME + 1])
{
        for (const struct merge_conflict *c = first_conflict(m, path); c; c = c->chain) {
                const char *name = merge_name_of(c->kept);

                if (!streq(c->path, path) || strlen(name) > TREE_MAX_NAME ||
                    !is_same_file(dir, name, ours))
                        continue;
                memcpy(ret, name, strlen(name) + 1);
                return true;
        }
        return false;
}

/* 1: the name is free; 0: ours has it already. */
static int choose_name(const struct merge *m, int dir, const char *path, const struct stat *ours,
                       char ret[TREE_MAX_NAME + 1], struct err *err)
{
        struct stat st;

        if (kept_before(m, dir, path, ours, ret))
                return 0;
        for (unsigned number = 1; number <= MAX_NUMBER; number++) {
                kept_name(merge_name_of(path), m->options->stamp, number, ret);
                if (fstatat(dir, ret, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return errno == ENOENT ? 1 : err_sys(err, ERR_IO, errno, "%s", path);
                if (st.st_ino == ours->st_ino && st.st_dev == ours->st_dev)
                        return 0;
        }
        return err_set(err, ERR_CONFLICT, "%s was kept too often", path);
}

void merge_report_conflict(struct merge *m, const char *path, const char *kept)
{
        struct merge_conflict *c, **slot;

        for (c = first_conflict(m, path); c; c = c->chain)
                if (streq(c->path, path) && streq(c->kept, kept))
                        return;
        if (m->report.n_conflicts >= m->n_conflict_slots)
                grow_slots(m);
        c = arena_new(m->op->arena, struct merge_conflict);
        c->path = arena_strdup(m->op->arena, path);
        c->kept = arena_strdup(m->op->arena, kept);
        slot = conflict_slot(m, path);
        c->chain = *slot;
        *slot = c;
        if (m->last_conflict)
                m->last_conflict->next = c;
        else
                m->report.conflicts = c;
        m->last_conflict = c;
        m->report.n_conflicts++;
}

static int move_aside(int dir, const char *name, const char *kept, bool vacate, struct err *err)
{
        /* A second name first: then the path is never empty. Where that cannot be, a new name. */
        if (!vacate && linkat(dir, name, dir, kept, 0) == 0)
                return 0;
        if (renameat2(dir, name, dir, kept, RENAME_NOREPLACE) == 0)
                return 0;
        if (errno == EINVAL && renameat(dir, name, dir, kept) == 0)
                return 0;
        return err_sys(err, errno == EEXIST ? ERR_CONFLICT : ERR_IO, errno, "keep %s as %s", name,
                       kept);
}

static void kept_path(const char *dir_path, const char *name, char *ret, size_t size)
{
        snprintf(ret, size, "%s%s%s", dir_path, *dir_path ? "/" : "", name);
}

/* A file that has two names already needs no second one; to vacate the path, one of them goes. */
static int settle_kept(int dir, const char *name, bool vacate, struct err *err)
{
        if (vacate && unlinkat(dir, name, 0) < 0 && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "remove %s", name);
        return 0;
}

int merge_keep_aside(struct merge *m, const char *path, bool vacate, struct err *err)
{
        char name[TREE_MAX_NAME + 1], dir_path[TREE_MAX_PATH + 1], kept[2 * TREE_MAX_PATH];
        int dir, is_free, r = merge_parent(m, path, &dir, err);
        struct stat st;

        if (r <= 0)
                return r;
        if (fstatat(dir, merge_name_of(path), &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "%s", path);
        is_free = choose_name(m, dir, path, &st, name, err);
        if (is_free < 0)
                return is_free;
        merge_dir_of(path, dir_path);
        kept_path(dir_path, name, kept, sizeof(kept));
        merge_report_conflict(m, path, kept);
        if (m->options->dry_run)
                return 0;
        r = merge_journal_kept(&m->journal, path, kept, err);
        if (r < 0)
                return r;
        FAULT("workspace.merge.aside.before");
        r = is_free ? move_aside(dir, merge_name_of(path), name, vacate, err)
                    : settle_kept(dir, merge_name_of(path), vacate, err);
        if (r < 0)
                return r;
        FAULT("workspace.merge.aside.after");
        merge_touch(m, dir_path);
        if (S_ISDIR(st.st_mode))
                merge_forget_dir(m);
        return 0;
}
