/* Reads the upper layer of an overlay as changes. */
#define _GNU_SOURCE
#include "workspace/overlay.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "base/arena.h"
#include "base/fd.h"
#include "workspace/content.h"

#define MAX_CHANGES ((size_t)4 << 20)
#define OPEN_DIR    (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)

/* One directory that is being walked, in one layer or both. */
struct frame {
        int upper, lower; /* -1: not there */
        bool replaces;    /* entries of the lower one are gone unless the upper one has them too */
        size_t path_len;  /* of the directory's own path; 0: the root */
        char **names;     /* of both, sorted */
        size_t n, at;
};

struct walk {
        struct tree_source source; /* the entries of the upper layer */
        struct change_set set;
        const struct overlay_layers *layers;
        struct arena arena; /* of the changes */
        struct change *changes;
        size_t n_changes, cap_changes, next;
        struct frame frames[TREE_MAX_DEPTH];
        size_t depth;
        char path[TREE_MAX_PATH + 1];
        char target[TREE_MAX_TARGET + 1];
        struct tree_entry applied;
        bool has_applied, applied_over;
        int upper_fd;
};

/* Directories */

static int by_bytes(const void *a, const void *b)
{
        return strcmp(*(char *const *)a, *(char *const *)b);
}

static int add_names(struct frame *f, int fd, size_t *cap, struct err *err)
{
        int copy = openat(fd, ".", OPEN_DIR);
        DIR *dir = copy < 0 ? NULL : fdopendir(copy);
        struct dirent *entry;

        if (!dir) {
                if (copy >= 0)
                        close(copy);
                return err_sys(err, ERR_IO, errno, "read a directory of the workspace");
        }
        errno = 0;
        while ((entry = readdir(dir))) {
                if (streq(entry->d_name, ".") || streq(entry->d_name, ".."))
                        continue;
                if (f->n == *cap) {
                        *cap = *cap ? *cap * 2 : 16;
                        f->names = xrealloc(f->names, *cap * sizeof(*f->names));
                }
                f->names[f->n++] = xstrdup(entry->d_name);
        }
        closedir(dir);
        return errno ? err_sys(err, ERR_IO, errno, "read a directory of the workspace") : 0;
}

static void drop_doubles(struct frame *f)
{
        size_t n = 0;

        for (size_t i = 0; i < f->n; i++)
                if (n > 0 && streq(f->names[n - 1], f->names[i]))
                        free(f->names[i]);
                else
                        f->names[n++] = f->names[i];
        f->n = n;
}

static void pop(struct walk *w)
{
        struct frame *f = &w->frames[--w->depth];

        for (size_t i = 0; i < f->n; i++)
                free(f->names[i]);
        free(f->names);
        cleanup_fd(&f->upper);
        cleanup_fd(&f->lower);
        w->path[f->path_len] = '\0';
}

/* Takes both descriptors. */
static int push(struct walk *w, int upper, int lower, bool replaces, struct err *err)
{
        struct frame *f = &w->frames[w->depth];
        size_t cap = 0;
        int r = 0;

        if (w->depth == TREE_MAX_DEPTH) { /* left out, as everywhere */
                cleanup_fd(&upper);
                cleanup_fd(&lower);
                return 0;
        }
        *f = (struct frame){ upper, lower, replaces, strlen(w->path), NULL, 0, 0 };
        w->depth++;
        if (upper >= 0)
                r = add_names(f, upper, &cap, err);
        if (r >= 0 && replaces && lower >= 0)
                r = add_names(f, lower, &cap, err);
        if (f->n > 1)
                qsort(f->names, f->n, sizeof(*f->names), by_bytes);
        drop_doubles(f);
        return r;
}

/* Changes */

/* What an earlier restore took over at this path; entries come in order on both sides. */
static int find_applied(struct walk *w, const char *path, bool *ret, struct err *err)
{
        *ret = false;
        while (w->layers->applied && !w->applied_over) {
                int r = w->has_applied ? 1 : tree_next(w->layers->applied, &w->applied, err);
                int order;

                if (r < 0)
                        return r;
                w->applied_over = r == 0;
                w->has_applied = r > 0;
                if (r == 0)
                        break;
                order = tree_compare(w->applied.path, path);
                if (order > 0)
                        break;
                if (order == 0) {
                        *ret = true;
                        return 0;
                }
                w->has_applied = false;
        }
        return 0;
}

static void keep_strings(struct walk *w, struct tree_entry *e)
{
        e->path = arena_strdup(&w->arena, e->path);
        e->target = arena_strdup(&w->arena, e->target);
}

static int add_change(struct walk *w, const struct change *c, struct err *err)
{
        if (w->n_changes >= MAX_CHANGES)
                return err_set(err, ERR_TOO_LARGE, "more than %zu changes in the workspace",
                               MAX_CHANGES);
        if (w->n_changes == w->cap_changes) {
                w->cap_changes = w->cap_changes ? w->cap_changes * 2 : 64;
                w->changes = xrealloc(w->changes, w->cap_changes * sizeof(*w->changes));
        }
        struct change *kept = &w->changes[w->n_changes++];
        *kept = *c;
        keep_strings(w, &kept->now);
        if (c->has_was)
                keep_strings(w, &kept->was);
        return 0;
}

/* Fill in what the entry was when it was staged, as far as the lower layer tells. */
static void set_was(const struct walk *w, struct change *c, const struct tree_entry *lower)
{
        c->was_by_time = w->layers->staged_ns != 0;
        c->staged_ns = w->layers->staged_ns;
        if (!c->was_by_time && lower) {
                c->has_was = true;
                c->was = *lower;
                c->was.path = c->now.path;
        }
}

/* What it was: as an earlier restore left it (1), else as the lower layer tells (0). */
static int find_was(struct walk *w, struct change *c, const struct tree_entry *lower,
                    struct err *err)
{
        bool applied;
        int r = find_applied(w, w->path, &applied, err);

        if (r >= 0 && applied) {
                c->has_was = true;
                c->was = w->applied;
        } else if (r >= 0) {
                set_was(w, c, lower);
        }
        return r < 0 ? r : applied;
}

static int add_delete(struct walk *w, const struct tree_entry *lower, struct err *err)
{
        struct change c = { .is_delete = true, .now.path = w->path };
        int r = find_was(w, &c, lower, err);

        return r < 0 ? r : add_change(w, &c, err);
}

static int add_put(struct walk *w, const struct tree_entry *now, const struct tree_entry *lower,
                   struct err *err)
{
        struct change c = { .now = *now };
        int r = find_was(w, &c, lower, err);

        if (r < 0 || (r > 0 && tree_same(now, &w->applied)))
                return MIN(r, 0);
        return add_change(w, &c, err);
}

/* One name. Below, `lower` is what the lower layer has there now. */

struct below {
        bool there;
        struct tree_entry entry;
        char target[TREE_MAX_TARGET + 1];
};

/* Its content is read only where it can matter: as the baseline, or to see that nothing changed. */
static int look_below(const struct walk *w, const struct frame *f, const char *name,
                      const struct tree_entry *now, struct below *ret, struct err *err)
{
        bool exact = w->layers->staged_ns == 0;
        int r = 0;

        ret->there = false;
        if (f->lower < 0)
                return 0;
        r = scan_one(f->lower, name, exact, &ret->entry, ret->target, err);
        if (r > 0 && !exact && now && now->kind == TREE_FILE && ret->entry.kind == TREE_FILE &&
            ret->entry.size == now->size)
                r = scan_one(f->lower, name, true, &ret->entry, ret->target, err);
        ret->there = r > 0;
        return MIN(r, 0);
}

/* -1 when there is no directory. */
static int open_below(const struct frame *f, const char *name, const struct below *b, int *ret_fd,
                      struct err *err)
{
        *ret_fd = -1;
        if (!b->there || b->entry.kind != TREE_DIR)
                return 0;
        *ret_fd = openat(f->lower, name, OPEN_DIR);
        if (*ret_fd < 0 && errno != ENOENT && errno != EACCES)
                return err_sys(err, ERR_IO, errno, "read a directory of the workspace");
        return 0;
}

/* The entries beneath a directory that is not there any more. */
static int gone_beneath(struct walk *w, const struct frame *f, const char *name,
                        const struct below *below, struct err *err)
{
        int lower, r = open_below(f, name, below, &lower, err);

        return r < 0 || lower < 0 ? r : push(w, -1, lower, true, err);
}

static int gone(struct walk *w, const struct frame *f, const char *name, struct err *err)
{
        struct below below;
        int r = look_below(w, f, name, NULL, &below, err);

        /* An entry that cannot be read below, or is mounted there, was not theirs to delete. */
        if (r < 0 || !below.there || below.entry.kind == TREE_UNKNOWN)
                return r;
        r = add_delete(w, &below.entry, err);
        return r < 0 ? r : gone_beneath(w, f, name, &below, err);
}

static bool is_opaque(int fd)
{
        char value[2];

        return fgetxattr(fd, "user.overlay.opaque", value, sizeof(value)) == 1 && value[0] == 'y';
}

static int directory(struct walk *w, const struct frame *f, const char *name,
                     const struct tree_entry *now, struct err *err)
{
        struct below below;
        int lower = -1, upper = openat(f->upper, name, OPEN_DIR);

        if (upper < 0)
                return errno == ENOENT
                               ? 0
                               : err_sys(err, ERR_IO, errno, "read a directory of the workspace");
        int r = look_below(w, f, name, now, &below, err);
        if (r >= 0 && !(below.there && below.entry.kind == TREE_DIR))
                r = add_put(w, now, below.there ? &below.entry : NULL, err);
        if (r >= 0)
                r = open_below(f, name, &below, &lower, err);
        if (r < 0) {
                close(upper);
                return r;
        }
        return push(w, upper, lower, is_opaque(upper), err);
}

static int leaf(struct walk *w, const struct frame *f, const char *name,
                const struct tree_entry *now, struct err *err)
{
        struct below below;
        int r = look_below(w, f, name, now, &below, err);

        if (r < 0 || (below.there && tree_same(now, &below.entry)))
                return r;
        r = add_put(w, now, below.there ? &below.entry : NULL, err);
        return r < 0 ? r : gone_beneath(w, f, name, &below, err);
}

static int take_hole(struct walk *w, const struct stat *st, struct err *err)
{
        uint64_t there = (uint64_t)st->st_blocks * 512, size = (uint64_t)st->st_size;

        return size <= there ? 0 : budget_take(w->layers->budget, 0, size - there, w->path, err);
}

/* 1 with what has the name in a layer, 0 when nothing has. An entry that cannot be looked at does
 * not count as deleted. */
static int look_in_layer(int fd, const char *name, struct stat *ret, struct err *err)
{
        if (fd < 0)
                return 0;
        if (fstatat(fd, name, ret, AT_SYMLINK_NOFOLLOW) == 0)
                return 1;
        return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "look at %s", name);
}

static int is_never_below(const struct walk *w, const struct frame *f, const char *name,
                          struct err *err)
{
        const struct excludes *x = w->layers->excludes;
        struct stat st;
        int r = x && x->never ? look_in_layer(f->lower, name, &st, err) : 0;

        return r > 0 ? excludes_never(x, tree_id_of(&st)) : r;
}

/* 1 with an entry of the upper layer, 0 when the name has none. */
static int visit(struct walk *w, struct frame *f, const char *name, struct tree_entry *ret,
                 struct err *err)
{
        struct stat st;
        int r = is_never_below(w, f, name, err);

        if (r != 0) /* hidden by us, not deleted */
                return MIN(r, 0);
        r = look_in_layer(f->upper, name, &st, err);
        if (r <= 0)
                return r < 0 ? r : gone(w, f, name, err);
        if (S_ISCHR(st.st_mode) && st.st_rdev == makedev(0, 0))
                return gone(w, f, name, err);
        r = S_ISREG(st.st_mode) ? take_hole(w, &st, err) : 0;
        if (r >= 0)
                r = scan_one(f->upper, name, true, ret, w->target, err);
        if (r <= 0 || ret->kind == TREE_UNKNOWN) /* does not travel, or gone since */
                return MIN(r, 0);
        ret->path = w->path;
        r = ret->kind == TREE_DIR ? directory(w, f, name, ret, err) : leaf(w, f, name, ret, err);
        return r < 0 ? r : 1;
}

/* Put the name behind the directory's path; false when that is too long to travel. */
static bool set_path(struct walk *w, const struct frame *f, const char *name)
{
        size_t at = f->path_len, len = strlen(name);

        if (at + 1 + len > TREE_MAX_PATH)
                return false;
        if (at > 0)
                w->path[at++] = '/';
        memcpy(w->path + at, name, len + 1);
        return true;
}

static int next_entry(struct tree_source *source, struct tree_entry *ret, struct err *err)
{
        struct walk *w = container_of(source, struct walk, source);

        while (w->depth > 0) {
                struct frame *f = &w->frames[w->depth - 1];
                const char *name;
                int r;

                if (f->at == f->n) {
                        pop(w);
                        continue;
                }
                name = f->names[f->at++];
                if (!set_path(w, f, name) || excludes_match(w->layers->excludes, w->path))
                        continue;
                r = visit(w, f, name, ret, err);
                if (r != 0)
                        return r;
        }
        return 0;
}

/* The change set */

static int next_change(struct change_set *s, struct change *ret, struct err *err)
{
        struct walk *w = container_of(s, struct walk, set);

        if (w->next == w->n_changes)
                return 0;
        *ret = w->changes[w->next++];
        return 1;
}

static int open_content(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        return content_open(container_of(s, struct walk, set)->upper_fd, c->now.path, ret_fd, err);
}

static void close_set(struct change_set *s)
{
        struct walk *w = container_of(s, struct walk, set);

        while (w->depth > 0)
                pop(w);
        cleanup_fd(&w->upper_fd);
        free(w->changes);
        arena_done(&w->arena);
        free(w);
}

static int read_all(struct walk *w, struct err *err)
{
        const struct overlay_layers *l = w->layers;
        int upper = openat(l->upper_fd, ".", OPEN_DIR), lower = openat(l->lower_fd, ".", OPEN_DIR);
        int r;

        if (upper < 0 || lower < 0) {
                r = err_sys(err, ERR_IO, errno, "open the workspace");
                cleanup_fd(&upper);
                cleanup_fd(&lower);
                return r;
        }
        r = push(w, upper, lower, false, err);
        return r < 0 ? r
                     : manifest_write(l->manifest_dir, l->manifest_name, &w->source, NULL, NULL,
                                      err);
}

int overlay_open(const struct overlay_layers *layers, struct change_set **ret, struct err *err)
{
        struct walk *w = xcalloc(1, sizeof(*w));

        w->source.next = next_entry;
        w->set = (struct change_set){ next_change, open_content, close_set };
        w->layers = layers;
        w->upper_fd = openat(layers->upper_fd, ".", OPEN_DIR);
        arena_init(&w->arena);
        int r = read_all(w, err);
        w->layers = NULL;
        if (r < 0)
                close_set(&w->set);
        else
                *ret = &w->set;
        return r;
}
