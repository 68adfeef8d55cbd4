#define _GNU_SOURCE
#include "merge_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"

/* Trees in memory */

static void node_done(struct node *n)
{
        free(n->path);
        free(n->text);
}

void mock_done(struct tree *t)
{
        for (size_t i = 0; i < t->n; i++)
                node_done(&t->nodes[i]);
        free(t->nodes);
        *t = (struct tree){ 0 };
}

void mock_assign(struct tree *to, const struct tree *from)
{
        mock_done(to);
        for (size_t i = 0; i < from->n; i++) {
                const struct node *n = &from->nodes[i];

                mock_put(to, n->path, n->kind, n->mode, n->text);
        }
}

struct node *mock_find(const struct tree *t, const char *path)
{
        for (size_t i = 0; i < t->n; i++)
                if (streq(t->nodes[i].path, path))
                        return &t->nodes[i];
        return NULL;
}

static bool beneath(const char *path, const char *dir)
{
        return str_starts(path, dir) && path[strlen(dir)] == '/';
}

static void remove_beneath(struct tree *t, const char *path, bool itself)
{
        size_t kept = 0;

        for (size_t i = 0; i < t->n; i++) {
                struct node n = t->nodes[i];

                if (beneath(n.path, path) || (itself && streq(n.path, path)))
                        node_done(&n);
                else
                        t->nodes[kept++] = n;
        }
        t->n = kept;
}

void mock_remove(struct tree *t, const char *path)
{
        char *copy = xstrdup(path);

        remove_beneath(t, copy, true);
        free(copy);
}

static void insert(struct tree *t, struct node n)
{
        size_t at = 0;

        while (at < t->n && tree_compare(t->nodes[at].path, n.path) < 0)
                at++;
        t->nodes = xrealloc(t->nodes, (t->n + 1) * sizeof(*t->nodes));
        memmove(&t->nodes[at + 1], &t->nodes[at], (t->n - at) * sizeof(*t->nodes));
        t->nodes[at] = n;
        t->n++;
}

static void make_parents(struct tree *t, const char *path)
{
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                char *part = xstrndup(path, (size_t)(slash - path));
                const struct node *n = mock_find(t, part);

                if (!n || n->kind != TREE_DIR)
                        mock_put(t, part, TREE_DIR, 0755, NULL);
                free(part);
        }
}

void mock_put(struct tree *t, const char *path, enum tree_kind kind, uint32_t mode,
              const char *text)
{
        struct node n = {
                .path = xstrdup(path),
                .kind = kind,
                .mode = kind == TREE_LINK ? 0 : mode,
                .text = text ? xstrdup(text) : NULL,
        };
        const struct node *before = mock_find(t, path);

        make_parents(t, path);
        if (before && before->kind == TREE_DIR && kind == TREE_DIR) {
                node_done(&n);
                return;
        }
        remove_beneath(t, n.path, true);
        insert(t, n);
}

void mock_file(struct tree *t, const char *path, const char *text)
{
        mock_put(t, path, TREE_FILE, 0644, text);
}

void mock_dir(struct tree *t, const char *path)
{
        mock_put(t, path, TREE_DIR, 0755, NULL);
}

void mock_link(struct tree *t, const char *path, const char *target)
{
        mock_put(t, path, TREE_LINK, 0, target);
}

void mock_move(struct tree *t, const char *from, const char *to)
{
        struct tree moved = { 0 };

        for (size_t i = 0; i < t->n; i++) {
                const struct node *n = &t->nodes[i];
                char *path;

                if (!streq(n->path, from) && !beneath(n->path, from))
                        continue;
                path = xasprintf("%s%s", to, n->path + strlen(from));
                mock_put(&moved, path, n->kind, n->mode, n->text);
                free(path);
        }
        mock_remove(t, from);
        for (size_t i = 0; i < moved.n; i++)
                mock_put(t, moved.nodes[i].path, moved.nodes[i].kind, moved.nodes[i].mode,
                         moved.nodes[i].text);
        mock_done(&moved);
}

/* On disk */

void mock_write(const struct tree *t, int dir)
{
        for (size_t i = 0; i < t->n; i++) {
                const struct node *n = &t->nodes[i];
                int fd;

                switch (n->kind) {
                case TREE_DIR:
                        assert_int_equal(mkdirat(dir, n->path, n->mode), 0);
                        break;
                case TREE_LINK:
                        assert_int_equal(symlinkat(n->text, dir, n->path), 0);
                        break;
                default:
                        fd = openat(dir, n->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
                        assert_true(fd >= 0);
                        assert_int_equal(fd_write_all(fd, n->text, strlen(n->text), NULL), 0);
                        assert_int_equal(fchmod(fd, n->mode), 0);
                        close(fd);
                }
        }
}

static char *read_text(int dir, const char *name)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        assert_int_equal(file_read_at(dir, name, (size_t)1 << 24, &b, NULL), 0);
        buf_putc(&b, '\0');
        return buf_take(&b);
}

static void read_one(struct tree *t, int dir, const char *name, const char *path);

static void read_dir(struct tree *t, int take_fd, const char *prefix)
{
        DIR *d = fdopendir(take_fd);
        const struct dirent *e;

        assert_non_null(d);
        while ((e = readdir(d)) != NULL) {
                char *path;

                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                path = xasprintf("%s%s%s", prefix, *prefix ? "/" : "", e->d_name);
                read_one(t, dirfd(d), e->d_name, path);
                free(path);
        }
        closedir(d);
}

static void read_one(struct tree *t, int dir, const char *name, const char *path)
{
        char target[4096] = "";
        struct stat st;

        assert_int_equal(fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW), 0);
        if (S_ISLNK(st.st_mode)) {
                assert_true(readlinkat(dir, name, target, sizeof(target) - 1) > 0);
                mock_link(t, path, target);
        } else if (S_ISDIR(st.st_mode)) {
                mock_put(t, path, TREE_DIR, st.st_mode & 07777, NULL);
                read_dir(t, openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path);
        } else if (S_ISREG(st.st_mode)) {
                char *text = read_text(dir, name);

                mock_put(t, path, TREE_FILE, st.st_mode & 07777, text);
                free(text);
        } else {
                mock_put(t, path, TREE_UNKNOWN, 0, NULL);
        }
}

void mock_read(struct tree *t, int dir)
{
        mock_done(t);
        read_dir(t, openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "");
}

void mock_print(const struct tree *t, const char *what)
{
        print_message("%s:\n", what);
        for (size_t i = 0; i < t->n; i++)
                print_message("  %s %c %o %s\n", t->nodes[i].path, "?dfl*"[t->nodes[i].kind],
                              t -> nodes[i].mode, t->nodes[i].text ? t->nodes[i].text : "");
}

static bool node_equal(const struct node *a, const struct node *b)
{
        if (!streq(a->path, b->path) || a->kind != b->kind)
                return false;
        if (a->kind == TREE_FILE && a->mode != b->mode)
                return false;
        return a->kind == TREE_DIR || a->kind == TREE_UNKNOWN || streq(a->text, b->text);
}

void mock_assert_equal(const struct tree *got, const struct tree *want, const char *what)
{
        bool equal = got->n == want->n;

        for (size_t i = 0; equal && i < got->n; i++)
                equal = node_equal(&got->nodes[i], &want->nodes[i]);
        if (equal)
                return;
        mock_print(got, "got");
        mock_print(want, "wanted");
        fail_msg("%s: the trees differ", what);
}

/* Changes */

static void to_entry(const struct node *n, struct tree_entry *ret)
{
        assert_non_null(n);
        if (!n)
                return;
        *ret = (struct tree_entry){ .path = n->path, .kind = n->kind, .mode = n->mode };
        if (n->kind == TREE_LINK)
                ret->target = n->text;
        if (n->kind != TREE_FILE)
                return;
        ret->size = strlen(n->text);
        crypto_generichash(ret->hash, TREE_HASH, (const unsigned char *)n->text, ret->size, NULL,
                           0);
}

/* An overlay does not know what was there, only when. */
static void forget_was(const struct tree_changes *t, struct change *c)
{
        const struct node *was = mock_find(t->was, c->now.path),
                          *ours = mock_find(t->ours, c->now.path);
        bool touched = !was || !ours || !node_equal(was, ours);

        c->has_was = false;
        c->was_by_time = true;
        /* The time of a directory changes with what is in it: as if somebody had been there. */
        c->staged_ns = touched || ours->kind == TREE_DIR ? 0 : INT64_MAX;
}

static int next_change(struct change_set *s, struct change *ret, struct err *err)
{
        struct tree_changes *t = container_of(s, struct tree_changes, set);

        while (t->was_at < t->was->n || t->now_at < t->now->n) {
                const struct node *a = t->was_at < t->was->n ? &t->was->nodes[t->was_at] : NULL;
                const struct node *b = t->now_at < t->now->n ? &t->now->nodes[t->now_at] : NULL;
                int order = !a ? 1 : !b ? -1 : tree_compare(a->path, b->path);

                *ret = (struct change){ .is_delete = order < 0, .has_was = order <= 0 };
                if (order <= 0) {
                        to_entry(a, &ret->was);
                        ret->now.path = a->path;
                        t->was_at++;
                }
                if (order >= 0) {
                        to_entry(b, &ret->now);
                        t->now_at++;
                }
                if (order == 0 && node_equal(a, b))
                        continue;
                if (t->by_time)
                        forget_was(t, ret);
                if (t->edit)
                        ret->now.path = t->edit(t, ret);
                return 1;
        }
        return 0;
}

static int open_text(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        struct tree_changes *t = container_of(s, struct tree_changes, set);
        const struct node *n = &t->now->nodes[t->now_at - 1];
        int fd = memfd_create("content", MFD_CLOEXEC);

        assert_true(fd >= 0);
        assert_int_equal(n->kind, TREE_FILE);
        assert_int_equal(fd_write_all(fd, n->text, strlen(n->text), NULL), 0);
        assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
        *ret_fd = fd;
        return 0;
}

static void close_changes(struct change_set *s)
{
        (void)s;
}

void mock_changes_init(struct tree_changes *c, const struct tree *was, const struct tree *now)
{
        *c = (struct tree_changes){
                .set = { next_change, open_text, close_changes },
                .was = was,
                .now = now,
        };
}

/* A world */

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
        (void)st;
        (void)type;
        (void)where;
        return remove(path);
}

void mock_remove_dir(const char *path)
{
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void scratch_in_memory(char path[SCRATCH_PATH_MAX])
{
        snprintf(path, SCRATCH_PATH_MAX, "/dev/shm/berth-test-XXXXXX");
        if (!mkdtemp(path))
                make_scratch(path);
}

static void open_workspace(struct merge_world *w)
{
        assert_int_equal(mkdirat(w->root_fd, "ws", 0755), 0);
        w->ws = openat(w->root_fd, "ws", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_true(w->ws >= 0);
}

void world_init(struct merge_world *w)
{
        memset(w, 0, sizeof(*w));
        assert_true(sodium_init() >= 0);
        scratch_in_memory(w->root);
        w->root_fd = open(w->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        open_workspace(w);
        snprintf(w->lock, sizeof(w->lock), "%s/lock", w->root);
        snprintf(w->bundle, sizeof(w->bundle), "%s/bundle", w->root);
        arena_init(&w->arena);
        w->op = (struct op){ .arena = &w->arena, .deadline_ms = OP_NO_DEADLINE };
        w->options = (struct merge_options){
                .lock_path = w->lock,
                .stamp = STAMP,
                .umask = 022,
        };
}

void world_done(struct merge_world *w)
{
        close(w->ws);
        close(w->root_fd);
        mock_remove_dir(w->root);
        arena_done(&w->arena);
        err_done(&w->err);
}

void world_set(struct merge_world *w, const struct tree *t)
{
        char path[SCRATCH_PATH_MAX + 16];

        close(w->ws);
        snprintf(path, sizeof(path), "%s/ws", w->root);
        mock_remove_dir(path);
        open_workspace(w);
        mock_write(t, w->ws);
}

static int merge_bundle(struct merge_world *w, struct change_set *changes)
{
        struct bundle_writer *writer;
        struct change_set *set;
        int r;

        assert_int_equal(bundle_create(w->bundle, &writer, &w->err), 0);
        r = bundle_take(&w->op, writer, changes, NULL, &w->err);
        if (r >= 0)
                r = bundle_finish(writer, &w->err);
        bundle_close(writer);
        if (r >= 0)
                r = bundle_open(w->bundle, &set, NULL, &w->err);
        if (r >= 0) {
                r = merge_apply(&w->op, w->ws, set, &w->options, &w->report, &w->err);
                set->close(set);
        }
        assert_int_equal(bundle_remove(&w->op, w->bundle, NULL), 0);
        return r;
}

int world_merge(struct merge_world *w, const struct tree *was, const struct tree *now,
                bool by_bundle)
{
        struct tree_changes changes;

        mock_changes_init(&changes, was, now);
        memset(&w->report, 0, sizeof(w->report));
        if (by_bundle)
                return merge_bundle(w, &changes.set);
        return merge_apply(&w->op, w->ws, &changes.set, &w->options, &w->report, &w->err);
}

void world_read(struct merge_world *w, struct tree *ret)
{
        mock_read(ret, w->ws);
}

void world_write(struct merge_world *w, const char *path, const char *text)
{
        int fd = openat(w->ws, path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        assert_true(fd >= 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
        close(fd);
}

char *world_text(struct merge_world *w, const char *path)
{
        if (faccessat(w->ws, path, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                return NULL;
        return read_text(w->ws, path);
}
