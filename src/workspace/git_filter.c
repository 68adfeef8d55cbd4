/* What a change set says about `.git`: which parts are taken out of it, and which are refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "workspace/content.h"
#include "workspace/git_internal.h"

#define MAX_REF_FILE 4096

/* A configuration is never taken from a place, and git makes one with every repository: without
 * one, `.git` is what a place brought, and git is not run on that. A user who adopts it (`git
 * init`, `git config`) gets one. */
static bool has_config(int workspace_fd)
{
        struct stat st;

        return fstatat(workspace_fd, ".git/config", &st, AT_SYMLINK_NOFOLLOW) == 0;
}

enum git_kind git_kind(int workspace_fd)
{
        struct stat st;

        if (fstatat(workspace_fd, ".git", &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? GIT_NONE : GIT_ELSEWHERE;
        if (!S_ISDIR(st.st_mode) ||
            faccessat(workspace_fd, ".git/commondir", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return GIT_ELSEWHERE;
        return has_config(workspace_fd) ? GIT_REPOSITORY : GIT_NONE;
}

static void refuse_path(struct git_import *g, const char *path)
{
        if (g->refused++ == 0)
                g->first_refused = xstrdup(path);
}

/* Refs */

static int read_small(struct git_import *g, const struct change *c, size_t limit, struct buf *ret,
                      struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        char chunk[8192];
        ssize_t n;
        int r = g->from->open(g->from, c, &fd, err);

        if (r < 0)
                return r;
        buf_clear(ret);
        while ((n = read(fd, chunk, sizeof(chunk))) > 0 && ret->len <= limit)
                buf_append(ret, chunk, (size_t)n);
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read %s", c->now.path);
        return ret->len <= limit && !buf_failed(ret);
}

static struct git_ref *add_ref(struct git_import *g, const char *name)
{
        if (!git_ref_name_ok(name))
                return NULL;
        if (g->n_refs >= GIT_MAX_REFS) {
                g->n_too_many++;
                return NULL;
        }
        g->refs = xrealloc(g->refs, (g->n_refs + 1) * sizeof(*g->refs));
        struct git_ref *ref = &g->refs[g->n_refs++];
        *ref = (struct git_ref){ 0 };
        memcpy(ref->name, name, strlen(name) + 1);
        return ref;
}

static int take_ref(struct git_import *g, const char *name, const struct change *c, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char oid[GIT_HEX + 1];

        if (c->is_delete) {
                (void)add_ref(g, name);
                return 0;
        }
        if (c->now.kind != TREE_FILE)
                return 0;
        int r = read_small(g, c, MAX_REF_FILE, &text, err);
        if (r <= 0 || !git_parse_oid(buf_str(&text), text.len, oid))
                return r < 0 ? r : 0;
        struct git_ref *ref = add_ref(g, name);
        if (ref)
                memcpy(ref->oid, oid, sizeof(oid));
        return 0;
}

static int take_head(struct git_import *g, const struct change *c, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int r = read_small(g, c, MAX_REF_FILE, &text, err);

        if (r > 0)
                g->has_head = git_parse_head(buf_str(&text), text.len, &g->head);
        return r < 0 ? r : 0;
}

static int take_packed(struct git_import *g, const struct change *c, struct err *err)
{
        int r = read_small(g, c, GIT_MAX_PACKED, &g->packed_refs, err);

        g->has_packed = r > 0;
        return r < 0 ? r : 0;
}

/* Objects */

static int copy_to(struct git_import *g, const struct change *c, const char *dir, const char *name,
                   struct err *err)
{
        CLEAN(cleanup_fd) int from = -1;
        CLEAN(cleanup_fd) int to = -1;
        char path[TREE_MAX_NAME + 1], temporary[TREE_MAX_NAME + 1];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        snprintf(temporary, sizeof(temporary), "%s/new", dir);
        if (mkdirat(g->scratch_fd, dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s", dir);
        if (faccessat(g->scratch_fd, path, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        int r = g->from->open(g->from, c, &from, err);
        if (r < 0)
                return r;
        to = openat(g->scratch_fd, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (to < 0)
                return err_sys(err, ERR_IO, errno, "create %s", temporary);
        r = content_copy(g->op, from, to, c->now.size, NULL, err);
        if (r >= 0 && renameat(g->scratch_fd, temporary, g->scratch_fd, path) < 0)
                r = err_sys(err, ERR_IO, errno, "rename to %s", path);
        return r;
}

/* "ab/cdef…": a loose object. */
static bool is_loose(const char *name)
{
        char hex[GIT_HEX + 1];

        if (strlen(name) != GIT_HEX + 1 || name[2] != '/')
                return false;
        memcpy(hex, name, 2);
        memcpy(hex + 2, name + 3, GIT_HEX - 2 + 1);
        return git_oid_ok(hex);
}

/* "pack/pack-<hex>.pack". Its index is not taken: git makes one of its own. */
static bool is_pack(const char *name)
{
        static const char before[] = "pack/pack-", after[] = ".pack";
        char hex[GIT_HEX + 1];

        if (strlen(name) != sizeof(before) - 1 + GIT_HEX + sizeof(after) - 1 ||
            !str_starts(name, before) || !streq(name + sizeof(before) - 1 + GIT_HEX, after))
                return false;
        memcpy(hex, name + sizeof(before) - 1, GIT_HEX);
        hex[GIT_HEX] = '\0';
        return git_oid_ok(hex);
}

static int take_object(struct git_import *g, const char *name, const struct change *c,
                       struct err *err)
{
        char dir[16];

        if (c->is_delete || c->now.kind != TREE_FILE)
                return 0;
        if (is_loose(name)) {
                snprintf(dir, sizeof(dir), "loose/%.2s", name);
                g->n_loose++;
                return copy_to(g, c, dir, name + 3, err);
        }
        if (!is_pack(name))
                return 0;
        g->n_packs++;
        return copy_to(g, c, "packs", name + strlen("pack/"), err);
}

/* The filter */

static int take_change(struct git_import *g, const char *inside, const struct change *c,
                       struct err *err)
{
        if (*inside == '\0' || git_is_dangerous(inside)) {
                if (!c->is_delete && (*inside || c->now.kind != TREE_DIR))
                        refuse_path(g, c->now.path);
                return 0;
        }
        if (!g->scratch)
                return 0;
        if (str_starts(inside, "objects/"))
                return take_object(g, inside + strlen("objects/"), c, err);
        if (str_starts(inside, "refs/heads/") || str_starts(inside, "refs/tags/"))
                return take_ref(g, inside, c, err);
        if (c->is_delete || c->now.kind != TREE_FILE)
                return 0;
        if (streq(inside, "HEAD"))
                return take_head(g, c, err);
        return streq(inside, "packed-refs") ? take_packed(g, c, err) : 0;
}

/* Whether the merge gets it. */
static int sort_out(struct git_import *g, const struct change *c, struct err *err)
{
        const char *path = c->now.path;
        size_t first = strcspn(path, "/");
        int r;

        if (g->kind != GIT_NONE && git_part_is(path, first, ".git")) {
                if (g->kind == GIT_REPOSITORY && first == 4 && str_starts(path, ".git")) {
                        r = take_change(g, path[first] ? path + first + 1 : path + first, c, err);
                        return r < 0 ? r : 0;
                }
                refuse_path(g, path);
                return 0;
        }
        if (git_guard_refuses(&g->guard, c)) {
                refuse_path(g, path);
                return 0;
        }
        return 1;
}

static int filter_next(struct change_set *s, struct change *ret, struct err *err)
{
        struct git_import *g = container_of(s, struct git_import, filtered);
        int r;

        while ((r = g->from->next(g->from, ret, err)) > 0) {
                r = sort_out(g, ret, err);
                if (r != 0)
                        return r;
        }
        return r;
}

static int filter_open(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        struct git_import *g = container_of(s, struct git_import, filtered);
        CLEAN(cleanup_fd) int fd = -1;
        int r = g->from->open(g->from, c, &fd, err);

        if (r >= 0)
                r = git_guard_open(&g->guard, g->op, c->now.path, &fd, err);
        if (r == 0) {
                refuse_path(g, c->now.path);
                return err_set(err, ERR_NOT_FOUND, "'%s' is not taken", c->now.path);
        }
        if (r > 0)
                *ret_fd = take_fd(&fd);
        return r < 0 ? r : 0;
}

static void filter_close(struct change_set *s)
{
        (void)s; /* the caller closes the set */
}

struct change_set *git_import_filter(struct git_import *g, struct change_set *from)
{
        g->from = from;
        g->filtered = (struct change_set){ filter_next, filter_open, filter_close };
        return &g->filtered;
}

static int open_scratch(struct git_import *g, struct err *err)
{
        int r = path_make_dirs(g->scratch, 0700, err);

        if (r < 0)
                return r;
        g->scratch_fd = open(g->scratch, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (g->scratch_fd < 0 || (mkdirat(g->scratch_fd, "loose", 0700) < 0 && errno != EEXIST))
                return err_sys(err, ERR_IO, errno, "open %s", g->scratch);
        return 0;
}

int git_import_new(struct op *op, int workspace_fd, const char *scratch, struct git_import **ret,
                   struct err *err)
{
        struct git_import *g = xcalloc(1, sizeof(*g));
        int r = 0;

        g->op = op;
        g->kind = git_kind(workspace_fd);
        g->guard.root = workspace_fd;
        g->scratch_fd = g->host_fd = -1;
        buf_init(&g->packed_refs, GIT_MAX_PACKED + 16384);
        if (scratch) {
                g->scratch = xstrdup(scratch);
                r = open_scratch(g, err);
        }
        if (r < 0) {
                git_import_free(g);
                return r;
        }
        *ret = g;
        return 0;
}

void git_import_free(struct git_import *g)
{
        if (!g)
                return;
        cleanup_fd(&g->scratch_fd);
        cleanup_fd(&g->host_fd);
        buf_done(&g->packed_refs);
        buf_done(&g->host_refs);
        free(g->refs);
        free(g->scratch);
        free(g->first_refused);
        free(g->host);
        free(g->own_repository);
        free(g->repository);
        free(g);
}
