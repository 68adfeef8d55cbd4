/* Makes worktrees, looks at what is in them, and publishes their branch. */
#define _GNU_SOURCE
#include "workspace/git_worktree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/git_internal.h"

#define REFS_MAX ((size_t)8 << 20)

bool git_branch_ok(const char *branch)
{
        char name[GIT_NAME_MAX + 1];
        int n = snprintf(name, sizeof(name), "refs/heads/%s", branch);

        return n > 0 && (size_t)n < sizeof(name) && git_ref_name_ok(name);
}

/* Run git, and be content with nothing but success. */
static int git_must(struct git_import *g, const struct git_run *run, struct buf *out,
                    struct err *err)
{
        const char *said;
        int status, r = git_run(g, run, out, &status, &said, err);

        if (r >= 0 && status != 0)
                r = err_set(err, ERR_PROVIDER, "git: %s", *said ? said : "it failed");
        return r;
}

/* The project's repository, for our own user. */
static int worktree_open(struct op *op, const struct git_worktree *w,
                         const struct git_options *options, struct git_import **ret,
                         struct err *err)
{
        struct git_import *g = NULL;
        const char *why = NULL;
        int r = git_import_new(op, w->repository_fd, w->scratch, &g, err);

        if (r < 0)
                return r;
        if (g->kind == GIT_REPOSITORY)
                r = git_import_open(g, options, &why, err);
        else
                why = "it is not a git repository";
        if (r >= 0 && g->owner.uid)
                why = arena_printf(op->arena,
                                   "it belongs to user %u, and the daemon is user %u. Worktrees "
                                   "are only made of repositories of the daemon's own user: run "
                                   "the daemon as user %u, give it a clone of its own, or use the "
                                   "mode shared_workspace",
                                   (unsigned)g->owner.uid, (unsigned)geteuid(),
                                   (unsigned)g->owner.uid);
        if (r >= 0 && why)
                r = err_set(err, ERR_UNPROCESSABLE, "No worktree of %s: %s", w->repository, why);
        if (r == ERR_NOT_FOUND)
                r = err_set(err, ERR_UNPROCESSABLE, "No worktree of %s: there is no git",
                            w->repository);
        if (r < 0) {
                if (g->owner.uid && g->host_fd >= 0)
                        git_clear(g);
                git_import_free(g);
                return r;
        }
        *ret = g;
        return 0;
}

/* The commit that a name stands for in the project's repository; "": none. */
static int find_commit(struct git_import *g, const char *name, char ret[GIT_HEX + 1],
                       struct err *err)
{
        const char *const args[] = { "rev-parse", "-q", "--verify",
                                     arena_printf(g->op->arena, "%s^{commit}", name), NULL };
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const char *said;
        int status, r = 0;

        ret[0] = '\0';
        if (*name == '-')
                return 0;
        r = git_run(g, &(struct git_run){ .args = args, .on_host = true }, &out, &status, &said,
                    err);
        if (r >= 0 && status == 0)
                (void)git_parse_oid(buf_str(&out), out.len, ret);
        return r;
}

/* What it was called, or what the remote called it. */
static int find_base(struct git_import *g, const struct git_worktree *w, char ret[GIT_HEX + 1],
                     struct err *err)
{
        const char *base = w->base ? w->base : "HEAD";
        int r = find_commit(g, base, ret, err);

        if (r >= 0 && !*ret)
                r = find_commit(g, arena_printf(g->op->arena, "refs/remotes/origin/%s", base), ret,
                                err);
        if (r >= 0 && !*ret)
                r = err_set(err, ERR_UNPROCESSABLE, "No worktree of %s: there is no commit \"%s\"",
                            w->repository, base);
        return r;
}

/* -- Making ----------------------------------------------------------------------------------- */

/* Who commits there is who commits here. */
static int copy_identity(struct git_import *g, struct err *err)
{
        static const char *const names[] = { "user.name", "user.email" };
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(names); i++) {
                const char *const get[] = { "config", "--get", names[i], NULL };
                CLEAN(buf_done) struct buf out = BUF_INIT;
                const char *said;
                int status;

                r = git_run(g, &(struct git_run){ .args = get, .on_host = true }, &out, &status,
                            &said, err);
                if (r < 0 || status != 0 || out.len < 2)
                        continue;
                out.data[out.len - 1] = '\0'; /* the end of the line */
                const char *const set[] = { "config", names[i], out.data, NULL };

                r = git_must(g, &(struct git_run){ .args = set, .alone = true }, NULL, err);
        }
        return r;
}

static int copy_shallow(struct git_import *g, int dir, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int r = file_read_at(g->scratch_fd, "repo/shallow", REFS_MAX, &text, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? r : file_write_at(dir, ".git/shallow", text.data, text.len, 0600, err);
}

/* The history of one commit, from the project's repository. */
static int pack_history(struct git_import *g, const char *oid, int *ret_fd, struct err *err)
{
        static const char *const args[] = { "pack-objects",        "--revs", "--stdout", "-q",
                                            "--delta-base-offset", NULL };
        CLEAN(cleanup_fd)
        int pack =
                openat(g->scratch_fd, "history.pack", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        int r;

        if (pack < 0)
                return err_sys(err, ERR_IO, errno, "create %s/history.pack", g->scratch);
        r = git_must(g,
                     &(struct git_run){ .args = args,
                                        .on_host = true,
                                        .input = arena_printf(g->op->arena, "%s\n", oid),
                                        .out_fd = pack },
                     NULL, err);
        if (r >= 0 && lseek(pack, 0, SEEK_SET) < 0)
                r = err_sys(err, ERR_IO, errno, "seek");
        if (r >= 0)
                *ret_fd = take_fd(&pack);
        return r;
}

/* The repository in `dir`, with the commit checked out. From here on g's own repository is that
 * one. */
static int fill_worktree(struct git_import *g, const char *dir, const char *branch, const char *oid,
                         struct err *err)
{
        struct arena *a = g->op->arena;
        const char *ref = arena_printf(a, "refs/heads/%s", branch);
        const char *const commands[][6] = {
                { "symbolic-ref", "HEAD", ref },
                { "update-ref", ref, oid },
                { arena_printf(a, "--work-tree=%s", dir), "read-tree", "-u", "--reset", oid },
        };
        CLEAN(cleanup_fd) int pack = -1;
        CLEAN(cleanup_fd) int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int r = pack_history(g, oid, &pack, err);

        if (r >= 0 && fd < 0)
                r = err_sys(err, ERR_IO, errno, "open %s", dir);
        if (r < 0)
                return r;
        free(g->own_repository);
        g->own_repository = xasprintf("%s/.git", dir);
        r = git_must(
                g,
                &(struct git_run){ .args = (const char *[]){ "init", "-q", "--template=", NULL },
                                   .alone = true },
                NULL, err);
        if (r >= 0)
                r = copy_shallow(g, fd, err);
        if (r >= 0)
                r = git_must(g,
                             &(struct git_run){
                                     .args = (const char *[]){ "index-pack", "--stdin", NULL },
                                     .alone = true,
                                     .in_fd = pack },
                             NULL, err);
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(commands); i++)
                r = git_must(g, &(struct git_run){ .args = commands[i], .alone = true }, NULL, err);
        if (r >= 0)
                r = copy_identity(g, err);
        if (r >= 0 && syncfs(fd) < 0) /* before it gets its name */
                r = err_sys(err, ERR_IO, errno, "sync %s", dir);
        return r;
}

int git_worktree_make(struct op *op, const struct git_worktree *w, struct err *err)
{
        const char *making = arena_printf(op->arena, "%s.making", w->dir);
        struct git_options options = { .workspace = w->repository, .stamp = w->stamp };
        struct git_import *g = NULL;
        char oid[GIT_HEX + 1];
        int r = worktree_open(op, w, &options, &g, err);

        if (r < 0)
                return r;
        /* A branch that is there already is gone on with. */
        r = find_commit(g, arena_printf(op->arena, "refs/heads/%s", w->branch), oid, err);
        if (r >= 0 && !*oid)
                r = find_base(g, w, oid, err);
        if (r >= 0)
                r = path_make_dirs(making, 0755, err);
        FAULT("worktree.fill.before");
        if (r >= 0)
                r = fill_worktree(g, making, w->branch, oid, err);
        FAULT("worktree.fill.after");
        if (r >= 0 && rename(making, w->dir) < 0)
                r = err_sys(err, ERR_IO, errno, "rename %s", making);
        FAULT("worktree.named");
        git_import_free(g);
        return r;
}

/* -- Looking ---------------------------------------------------------------------------------- */

/* The commit of its branch, from its files; "": none. */
static int read_tip(struct git_import *g, const struct git_worktree *w, char ret[GIT_HEX + 1],
                    struct err *err)
{
        const char *name = arena_printf(g->op->arena, "refs/heads/%s", w->branch);
        CLEAN(cleanup_fd) int git = -1;
        CLEAN(cleanup_fd) int fd = -1;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct git_ref line;
        size_t at = 0;
        int r;

        ret[0] = '\0';
        git = open(arena_printf(g->op->arena, "%s/.git", w->dir),
                   O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (git < 0)
                return 0;
        r = path_open_plain(git, name, O_RDONLY, 0, &fd, err);
        if (r >= 0) {
                char hex[GIT_HEX + 2];
                ssize_t n = pread(fd, hex, sizeof(hex), 0);

                (void)git_parse_oid(hex, n > 0 ? (size_t)n : 0, ret);
                return 0;
        }
        err_clear(err);
        r = file_read_at(git, "packed-refs", REFS_MAX, &text, err);
        if (r < 0) {
                err_clear(err);
                return 0;
        }
        while (git_packed_next(buf_str(&text), text.len, &at, &line))
                if (streq(line.name, name))
                        memcpy(ret, line.oid, sizeof(line.oid));
        return 0;
}

/* Our repository sees the worktree's objects: `on`. */
static int borrow_objects(struct git_import *g, const struct git_worktree *w, bool on,
                          struct err *err)
{
        const char *text = arena_printf(g->op->arena, "%s/.git/objects\n", w->dir);

        if (!on)
                return unlinkat(g->scratch_fd, "repo/objects/info/alternates", 0) < 0
                               ? err_sys(err, ERR_IO, errno, "remove alternates")
                               : 0;
        if (strchr(w->dir, '\n'))
                return err_set(err, ERR_UNPROCESSABLE,
                               "The name of the directory has a line break");
        /* Objects of others would come along. */
        if (access(arena_printf(g->op->arena, "%s/.git/objects/info/alternates", w->dir), F_OK) ==
            0)
                return err_set(err, ERR_UNPROCESSABLE,
                               "%s/.git borrows objects from elsewhere; it is not read", w->dir);
        if (mkdirat(g->scratch_fd, "repo/objects/info", 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s/repo/objects/info", g->scratch);
        return file_write_at(g->scratch_fd, "repo/objects/info/alternates", text, strlen(text),
                             0600, err);
}

static int count_files(struct git_import *g, const struct git_worktree *w, const char *tip,
                       struct git_worktree_state *ret, struct err *err)
{
        const char *tree = arena_printf(g->op->arena, "--work-tree=%s", w->dir);
        const char *index = arena_printf(g->op->arena, "%s/index", g->scratch);
        const char *const head[] = { "update-ref", "--no-deref", "HEAD", tip, NULL };
        const char *const read[] = { tree, "read-tree", tip, NULL };
        const char *const status[] = {
                tree,
                "status",
                "--porcelain",
                "-z",
                "--no-renames",
                "--untracked-files=normal",
                "--ignore-submodules=all",
                "--",
                ".",
                ":(exclude).paperclip-runtime",
                NULL,
        };
        CLEAN(buf_done) struct buf out = BUF_INIT;
        int r = git_must(g, &(struct git_run){ .args = head, .alone = true }, NULL, err);

        if (r >= 0)
                r = git_must(g, &(struct git_run){ .args = read, .alone = true, .index = index },
                             NULL, err);
        if (r >= 0)
                r = git_must(g, &(struct git_run){ .args = status, .alone = true, .index = index },
                             &out, err);
        for (size_t at = 0; r >= 0 && at + 3 < out.len; at += strlen(out.data + at) + 1) {
                if (strncmp(out.data + at, "??", 2) == 0)
                        ret->untracked++;
                else
                        ret->modified++;
        }
        return r;
}

static int count_commits(struct git_import *g, const struct git_worktree *w, const char *tip,
                         struct git_worktree_state *ret, struct err *err)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        long long behind = 0, ahead = 0;
        char base[GIT_HEX + 1];
        int r = find_base(g, w, base, err);

        if (r < 0)
                return r;
        const char *const args[] = { "rev-list", "--left-right", "--count",
                                     arena_printf(g->op->arena, "%s...%s", base, tip), NULL };

        r = git_must(g, &(struct git_run){ .args = args }, &out, err);
        if (r >= 0 && sscanf(buf_str(&out), "%lld %lld", &behind, &ahead) != 2)
                r = err_set(err, ERR_PROVIDER, "git rev-list said nothing");
        ret->behind = behind;
        ret->ahead = ahead;
        ret->is_merged = ahead == 0;
        return r;
}

int git_worktree_look(struct op *op, const struct git_worktree *w, struct git_worktree_state *ret,
                      struct err *err)
{
        struct git_options options = { .workspace = w->repository, .stamp = w->stamp };
        struct git_import *g = NULL;
        char tip[GIT_HEX + 1];
        bool is_new = false;
        int r = worktree_open(op, w, &options, &g, err);

        *ret = (struct git_worktree_state){ 0 };
        if (r < 0)
                return r;
        r = read_tip(g, w, tip, err);
        if (r >= 0 && *tip) {
                ret->tip = arena_strdup(op->arena, tip);
                r = borrow_objects(g, w, true, err);
                if (r >= 0)
                        r = count_files(g, w, tip, ret, err);
                if (r >= 0)
                        r = count_commits(g, w, tip, ret, err);
                if (r >= 0)
                        r = git_is_new(g, tip, &is_new, err);
                ret->is_published = r >= 0 && !is_new;
        }
        git_import_free(g);
        return r;
}

/* -- Publishing ------------------------------------------------------------------------------- */

/* New objects of the worktree into our repository, each of them looked at; 1, or 0: *ret_note. */
static int take_objects(struct git_import *g, const struct git_worktree *w, const char *tip,
                        const char **ret_note, struct err *err)
{
        int r = borrow_objects(g, w, true, err);

        if (r >= 0)
                r = git_take_new(g, tip, ret_note, err);
        if (r >= 0 && borrow_objects(g, w, false, err) < 0)
                return ERR_IO;
        return r;
}

int git_worktree_publish(struct op *op, const struct git_worktree *w, struct git_report *ret,
                         struct err *err)
{
        struct git_options options = { .workspace = w->repository, .stamp = w->stamp };
        struct git_import *g = NULL;
        struct git_ref ref = { 0 };
        char ours[GIT_HEX + 1];
        int r = worktree_open(op, w, &options, &g, err);

        *ret = (struct git_report){ 0 };
        if (r < 0)
                return r;
        (void)snprintf(ref.name, sizeof(ref.name), "refs/heads/%s", w->branch);
        r = read_tip(g, w, ref.oid, err);
        git_host_ref(g, ref.name, ours);
        if (r >= 0 && *ref.oid && !streq(ours, ref.oid)) {
                r = take_objects(g, w, ref.oid, &ret->note, err);
                if (r > 0)
                        r = git_transfer(g, arena_printf(op->arena, "%s\n", ref.oid), &ret->note,
                                         err);
                FAULT("worktree.publish.before");
                if (r > 0)
                        r = git_place_ref(g, &ref, ret, err);
                FAULT("worktree.publish.after");
        }
        git_import_free(g);
        return MIN(r, 0);
}
