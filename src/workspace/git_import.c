/* Brings commits home: which refs are wanted, and where each of them goes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "workspace/git_internal.h"

/* Which refs of the place are news, and what becomes of each. */

struct wanted {
        struct git_ref *refs;
        size_t n;
        char head[GIT_HEX + 1]; /* the commit of HEAD in the place; "": nothing new */
        const char *head_from;  /* its branch; NULL: none */
};

static bool is_branch(const char *name)
{
        return str_starts(name, "refs/heads/");
}

static const struct git_ref *find_ref(const struct git_ref *refs, size_t n, const char *name)
{
        for (size_t i = 0; i < n; i++)
                if (streq(refs[i].name, name))
                        return &refs[i];
        return NULL;
}

static void want(struct git_import *g, struct wanted *w, const char *name, const char *oid)
{
        char ours[GIT_HEX + 1];

        git_host_ref(g, name, ours);
        if (streq(ours, oid) || find_ref(w->refs, w->n, name))
                return;
        if (w->n >= 2 * GIT_MAX_REFS) {
                g->n_too_many++;
                return;
        }
        memcpy(w->refs[w->n].name, name, strlen(name) + 1);
        memcpy(w->refs[w->n++].oid, oid, GIT_HEX + 1);
}

/* A line of packed-refs counts when the ref has no file of its own in the place: it was deleted
 * there, or there never was one. */
static bool packed_counts(const struct git_import *g, const struct git_ref *line)
{
        const struct git_ref *single = find_ref(g->refs, g->n_refs, line->name);

        if (!is_branch(line->name) && !str_starts(line->name, "refs/tags/"))
                return false;
        if (single)
                return !*single->oid;
        return faccessat(g->host_fd, line->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static int want_packed(struct git_import *g, struct wanted *w, struct err *err)
{
        struct git_ref line;
        size_t at = 0;
        int r = 0;

        /* The place may have written a great many lines. */
        while (r >= 0 &&
               git_packed_next(buf_str(&g->packed_refs), g->packed_refs.len, &at, &line)) {
                r = op_check(g->op, err);
                if (r >= 0 && packed_counts(g, &line))
                        want(g, w, line.name, line.oid);
        }
        return r;
}

static int want_all(struct git_import *g, struct wanted *w, struct err *err)
{
        w->refs = arena_alloc(g->op->arena, 2 * GIT_MAX_REFS * sizeof(*w->refs));
        for (size_t i = 0; i < g->n_refs; i++)
                if (*g->refs[i].oid)
                        want(g, w, g->refs[i].name, g->refs[i].oid);
        if (g->has_packed) {
                int r = want_packed(g, w, err);

                if (r < 0)
                        return r;
        }
        if (g->has_head && *g->head.oid) {
                memcpy(w->head, g->head.oid, sizeof(w->head));
                return 0;
        }
        const char *branch = g->has_head ? g->head.name : g->host_branch;
        const struct git_ref *ref = branch ? find_ref(w->refs, w->n, branch) : NULL;
        if (!ref)
                return 0;
        memcpy(w->head, ref->oid, sizeof(w->head));
        w->head_from = branch;
        return 0;
}

static bool is_a(const struct buf *kinds, const char *oid, const char *kind)
{
        char line[GIT_HEX + 16];

        snprintf(line, sizeof(line), "\n%s %s\n", oid, kind);
        return strstr(buf_str(kinds), line) != NULL;
}

/* Only commits can be branches; an object that does not exist is nothing. */
static int check_kinds(struct git_import *g, struct wanted *w, struct err *err)
{
        static const char *const args[] = { "cat-file", "--batch-check=%(objectname) %(objecttype)",
                                            NULL };
        CLEAN(buf_done) struct buf names = BUF_INIT;
        CLEAN(buf_done) struct buf kinds = BUF_INIT;
        const char *said;
        size_t kept = 0;
        int status, r;

        for (size_t i = 0; i < w->n; i++)
                buf_appendf(&names, "%s\n", w->refs[i].oid);
        buf_appendf(&names, "%s\n", w->head);
        buf_putc(&kinds, '\n');
        r = git_run(g, &(struct git_run){ .args = args, .input = buf_str(&names) }, &kinds, &status,
                    &said, err);
        if (r < 0)
                return r;
        for (size_t i = 0; i < w->n; i++)
                if (is_a(&kinds, w->refs[i].oid, "commit") ||
                    (!is_branch(w->refs[i].name) && is_a(&kinds, w->refs[i].oid, "tag")))
                        w->refs[kept++] = w->refs[i];
        w->n = kept;
        if (!is_a(&kinds, w->head, "commit"))
                w->head[0] = '\0';
        return 0;
}

/* What is there */

static void add_kept(struct git_import *g, struct git_report *ret, const char *name,
                     const char *here)
{
        struct git_kept *k = arena_new(g->op->arena, struct git_kept), **at = &ret->kept;

        k->name = arena_strdup(g->op->arena, name);
        k->here = here ? here : k->name;
        while (*at)
                at = &(*at)->next;
        *at = k;
}

static int keep_aside(struct git_import *g, const struct git_ref *ref, struct git_report *ret,
                      struct err *err)
{
        const char *here = arena_printf(g->op->arena, "refs/berth/%s/%s", g->options->stamp,
                                        ref->name + strlen("refs/"));
        const char *said;
        int r = git_swap(g, here, ref->oid, "", &said, err);

        if (r > 0)
                add_kept(g, ret, ref->name, here);
        else if (r == 0)
                ret->note = arena_printf(g->op->arena, "%s: %s", here, said);
        return r;
}

/* A branch that is checked out in another worktree must not move. */
static bool may_move(const struct git_import *g)
{
        return faccessat(g->host_fd, "worktrees", F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

int git_place_ref(struct git_import *g, const struct git_ref *ref, struct git_report *ret,
                  struct err *err)
{
        char ours[GIT_HEX + 1];
        bool behind = false, ahead = false;
        const char *said;
        int r = 0;

        git_host_ref(g, ref->name, ours);
        if (streq(ours, ref->oid))
                return 0;
        if (*ours && is_branch(ref->name))
                r = git_is_ancestor(g, ref->oid, ours, &behind, err);
        if (r < 0 || behind)
                return r;
        /* The branch that is checked out moves with its files only: git_integrate(). */
        if (*ours && is_branch(ref->name) && may_move(g) &&
            !(g->host_branch && streq(ref->name, g->host_branch)))
                r = git_is_ancestor(g, ours, ref->oid, &ahead, err);
        if (r >= 0 && (!*ours || ahead)) {
                r = git_swap(g, ref->name, ref->oid, ours, &said, err);
                if (r > 0)
                        add_kept(g, ret, ref->name, NULL);
                if (r != 0)
                        return r;
        }
        return r < 0 ? r : keep_aside(g, ref, ret, err);
}

/* All that are not here yet, in one go: 1, or 0 when one of them is in the way of another. */
static int create_all(struct git_import *g, const struct wanted *w, struct git_report *ret,
                      struct err *err)
{
        static const char *const args[] = { "update-ref", "--no-deref", "--stdin", NULL };
        CLEAN(buf_done) struct buf commands = BUF_INIT;
        char ours[GIT_HEX + 1];
        const char *said;
        int status, r;

        for (size_t i = 0; i < w->n; i++) {
                git_host_ref(g, w->refs[i].name, ours);
                if (!*ours && !git_may_write(g, w->refs[i].name))
                        return 0;
                if (!*ours)
                        buf_appendf(&commands, "create %s %s\n", w->refs[i].name, w->refs[i].oid);
        }
        if (commands.len == 0)
                return 1;
        r = git_run(g, &(struct git_run){ .args = args, .on_host = true, .input = commands.data },
                    NULL, &status, &said, err);
        if (r < 0 || status != 0)
                return r;
        for (size_t i = 0; i < w->n; i++) {
                git_host_ref(g, w->refs[i].name, ours);
                if (*ours)
                        continue;
                add_kept(g, ret, w->refs[i].name, NULL);
        }
        return 1;
}

static int place_all(struct git_import *g, const struct wanted *w, struct git_report *ret,
                     struct err *err)
{
        const struct git_ref *current =
                g->host_branch ? find_ref(w->refs, w->n, g->host_branch) : NULL;
        int r = 0;

        if (current && (!w->head_from || !streq(w->head_from, current->name)))
                r = git_integrate(g, current->oid, current->name, ret, err);
        if (r >= 0 && *w->head)
                r = git_integrate(g, w->head, w->head_from, ret, err);
        if (r >= 0)
                r = create_all(g, w, ret, err);
        if (r > 0)
                r = git_host_refs(g, err);
        for (size_t i = 0; i < w->n && r >= 0; i++)
                if (&w->refs[i] != current)
                        r = git_place_ref(g, &w->refs[i], ret, err);
        return r < 0 ? r : 0;
}

static int import(struct git_import *g, struct wanted *w, struct git_report *ret, struct err *err)
{
        CLEAN(buf_done) struct buf tips = BUF_INIT;
        int r = git_ingest(g, &ret->note, err);

        if (r > 0)
                r = check_kinds(g, w, err) < 0 ? ERR_PROVIDER : 1;
        if (r <= 0 || (w->n == 0 && !*w->head))
                return r < 0 ? r : 0;
        for (size_t i = 0; i < w->n; i++)
                buf_appendf(&tips, "%s\n", w->refs[i].oid);
        if (*w->head)
                buf_appendf(&tips, "%s\n", w->head);
        r = git_transfer(g, buf_str(&tips), &ret->note, err);
        return r <= 0 ? r : place_all(g, w, ret, err);
}

/* The host's repository has to be one that we understand. */
static const char *why_not(const struct git_import *g)
{
        static const char elsewhere[] =
                "the repository has parts elsewhere, or of another user's; commits are not brought "
                "home";
        static const char *const dirs[] = { ".",    "objects",    "objects/pack",
                                            "refs", "refs/heads", "refs/tags" };
        const char *refs = buf_str(&g->host_refs);

        if (!git_is_readable(g) ||
            faccessat(g->host_fd, "commondir", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return elsewhere;
        for (size_t i = 0; i < ARRAY_LEN(dirs); i++)
                if (!git_is_own_dir(g, dirs[i]))
                        return elsewhere;
        if (*refs && strcspn(refs, " ") != GIT_HEX)
                return "the repository does not use SHA-1; commits are not brought home";
        return NULL;
}

/* The repository, and with whose rights git works on it. The owner of the workspace can put another
 * `.git` there. NULL: we can. */
static const char *open_host(struct git_import *g)
{
        const struct git_options *o = g->options;
        struct stat st, above;

        g->host_fd = openat(g->guard.root, ".git", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (g->host_fd < 0 || fstat(g->host_fd, &st) < 0 || fstat(g->guard.root, &above) < 0)
                return "`.git` is not a directory here; commits are not brought home";
        g->host = xasprintf("%s/.git", o->workspace);
        g->own_repository = xasprintf("%s/repo", g->scratch);
        if (geteuid() == 0)
                g->owner = (struct become){ o->program, st.st_uid ? st.st_uid : above.st_uid };
        if (g->owner.uid && !g->owner.trampoline)
                return "the repository is another user's; commits are not brought home";
        g->host_of_git = g->owner.uid ? g->host : ".";
        g->repository = g->owner.uid ? xasprintf("%s/" GIT_IMPORT, g->host_of_git)
                                     : xstrdup(g->own_repository);
        return NULL;
}

static void report_refused(struct git_import *g, struct git_report *ret)
{
        ret->refused = g->refused;
        ret->first_refused = arena_strdup(g->op->arena, g->first_refused);
        if (g->n_too_many > 0)
                ret->note =
                        arena_printf(g->op->arena, "%zu branches and tags too many", g->n_too_many);
        if (g->kind == GIT_ELSEWHERE && g->refused > 0)
                ret->note = "`.git` is not a directory here; commits are not brought home";
}

int git_import_open(struct git_import *g, const struct git_options *options, const char **ret_why,
                    struct err *err)
{
        g->options = options;
        *ret_why = open_host(g);
        if (!*ret_why)
                *ret_why = why_not(g); /* before git reads anything of it */
        if (*ret_why)
                return 0;
        int r = git_prepare(g, ret_why, err);
        if (r > 0)
                r = git_host_refs(g, err);
        if (r >= 0 && !*ret_why)
                *ret_why = why_not(g);
        if (r < 0 || *ret_why)
                git_clear(g);
        return r < 0 ? r : !*ret_why;
}

static int import_all(struct git_import *g, struct git_report *ret, struct err *err)
{
        struct wanted w = { 0 };
        int r = git_finish_move(g, ret, err);

        if (r < 0)
                return r;
        r = want_all(g, &w, err);
        return r < 0 || (w.n == 0 && !*w.head) ? r : import(g, &w, ret, err);
}

int git_import_apply(struct git_import *g, const struct git_options *options,
                     struct git_report *ret, struct err *err)
{
        const char *why;

        *ret = (struct git_report){ 0 };
        report_refused(g, ret);
        if (g->kind != GIT_REPOSITORY || (g->n_refs == 0 && !g->has_packed && !g->has_head))
                return 0;
        int r = git_import_open(g, options, &why, err);
        if (r > 0) {
                r = import_all(g, ret, err);
                git_clear(g);
        } else if (r == 0) {
                ret->note = why;
        }
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        ret->note = "there is no git on this host; commits are not brought home";
        return 0;
}
