/* Decides where worktrees are, what their branches are called, and when they are removed. */
#define _GNU_SOURCE
#include "core/workspaces/worktree.h"
#include "core/access/access.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "core/roots/workspace_root.h"
#include "core/workspaces/workspace_internal.h"

#define BRANCH_MAX 120

bool worktree_is(const struct execution_workspace *w)
{
        return w->id && w->worktree_path && w->worktree_of;
}

/* -- Names ------------------------------------------------------------------------------------ */

const char *worktree_path(struct arena *arena, const char *repository, const char *parent,
                          const char *branch, const char *id)
{
        char *name = arena_strdup(arena, branch);

        id += strlen(id) - 8; /* ids of one time begin alike */
        for (char *c = name; *c; c++)
                if (*c == '/')
                        *c = '-';
        if (!parent)
                return arena_printf(arena, "%s/.paperclip-runtime/worktrees/%s-%s", repository,
                                    name, id);
        return *parent == '/' ? arena_printf(arena, "%s/%s-%s", parent, name, id)
                              : arena_printf(arena, "%s/%s/%s-%s", repository, parent, name, id);
}

/* Everything else becomes a dash; no two of them, none at an end of a part. */
static void add_clean(struct buf *b, const char *text)
{
        for (; *text && b->len < BRANCH_MAX; text++) {
                const char c = *text, last = b->len ? b->data[b->len - 1] : '/';

                if (isalnum((unsigned char)c) || c == '_' || (c == '/' && b->len && last != '/') ||
                    (c == '.' && isalnum((unsigned char)last)))
                        buf_putc(b, c);
                else if (c != '/' && c != '.' && last != '-' && last != '/' && last != '.')
                        buf_putc(b, '-');
        }
}

const char *worktree_branch(struct arena *arena, const char *template,
                            const char *(*value)(void *ctx, const char *name), void *ctx)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        char *branch;
        size_t n;

        while (*template) {
                const char *open = strstr(template, "{{"), *end = open ? strstr(open, "}}") : NULL;

                if (!end) {
                        add_clean(&b, template);
                        break;
                }
                add_clean(&b, arena_strndup(arena, template, (size_t)(open - template)));
                add_clean(&b,
                          value(ctx, arena_strtrim(arena, arena_strndup(arena, open + 2,
                                                                        (size_t)(end - open - 2)))
                                             ?: "")
                                  ?: "");
                template = end + 2;
        }
        branch = arena_strdup(arena, buf_str(&b));
        for (n = strlen(branch); n > 0 && strchr("-./", branch[n - 1]); n--)
                branch[n - 1] = '\0';
        return git_branch_ok(branch) ? branch : NULL;
}

/* -- One at a time ---------------------------------------------------------------------------- */

struct worktree_job {
        struct git_worktree git;
        int lock, repository;
};

static void worktree_job_end(struct worktree_job *j)
{
        cleanup_fd(&j->repository);
        cleanup_fd(&j->lock);
}

/* With what a crash left of the last one removed. */
static int worktree_job_begin(struct op *op, struct runtime *rt,
                              const struct execution_workspace *w, struct worktree_job *j,
                              struct err *err)
{
        const char *dir = arena_printf(op->arena, "%s/worktrees", rt->data_dir), *path = NULL;
        char iso[ISO_TIME_LEN + 1];
        char *stamp = arena_alloc(op->arena, sizeof(iso));
        size_t n = 0;
        int r = path_make_dirs(dir, 0700, err);

        *j = (struct worktree_job){ .lock = -1, .repository = -1 };
        if (r < 0)
                return r;
        j->lock = open(arena_printf(op->arena, "%s/%s.lock", dir, w->id),
                       O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (j->lock < 0)
                return err_sys(err, ERR_IO, errno, "create a lock in %s", dir);
        if (flock(j->lock, LOCK_EX | LOCK_NB) < 0)
                return err_set(err, ERR_BUSY, "The worktree is in use; try again shortly.");
        clock_iso(clock_wall_us(), iso);
        for (const char *p = iso; *p && *p != '.'; p++)
                if (*p != '-' && *p != ':')
                        stamp[n++] = *p;
        stamp[n++] = 'Z';
        stamp[n] = '\0';
        j->git = (struct git_worktree){
                .dir = w->worktree_path,
                .branch = w->branch_name,
                .base = w->base_ref,
                .scratch = arena_printf(op->arena, "%s/%s", dir, w->id),
                .stamp = stamp,
        };
        if (!j->git.branch || !git_branch_ok(j->git.branch))
                return err_set(err, ERR_UNPROCESSABLE, "The workspace names no branch");
        r = workspace_remove_dir(op, j->git.scratch, err);
        if (r >= 0)
                r = workspace_root_open(
                        rt, &(struct workspace_asker){ w->company_id, op->actor->is_daemon_user },
                        w->worktree_of, op->arena, &j->repository, &path, err);
        j->git.repository = path;
        j->git.repository_fd = j->repository;
        return r;
}

/* What is in it is of no interest to the repository around it. */
static int hide_parent(struct op *op, const struct execution_workspace *w, struct err *err)
{
        const char *dir = arena_printf(op->arena, "%s/.paperclip-runtime", w->worktree_of);
        CLEAN(cleanup_fd) int fd = -1;

        if (!str_starts(w->worktree_path, dir))
                return 0;
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", dir);
        if (faccessat(fd, ".gitignore", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
                return 0;
        return file_write_at(fd, ".gitignore", "*\n", 2, 0644, err);
}

static bool is_there(struct op *op, const struct execution_workspace *w)
{
        return access(arena_printf(op->arena, "%s/.git", w->worktree_path), F_OK) == 0;
}

/* Write down where the worktree is; "": nowhere. */
static int note_path(const struct worktree_job *j, const char *path, struct err *err)
{
        size_t len = strlen(path);

        if (ftruncate(j->lock, 0) < 0 || pwrite(j->lock, path, len, 0) != (ssize_t)len)
                return err_sys(err, ERR_IO, errno, "write down where a worktree is");
        return 0;
}

int worktree_ensure(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                    struct err *err)
{
        const char *slash = strrchr(w->worktree_path, '/');
        const char *parent =
                arena_strndup(op->arena, w->worktree_path, (size_t)(slash - w->worktree_path));
        struct worktree_job j;
        int r = worktree_job_begin(op, rt, w, &j, err);

        if (r >= 0)
                r = note_path(&j, w->worktree_path, err);
        FAULT("worktree.make.before");
        if (r >= 0 && !is_there(op, w)) {
                r = workspace_remove_dir(op, arena_printf(op->arena, "%s.making", w->worktree_path),
                                         err);
                if (r >= 0)
                        r = path_make_dirs(parent, 0755, err);
                if (r >= 0)
                        r = workspace_root_check(rt,
                                                 &(struct workspace_asker){
                                                         w->company_id, op->actor->is_daemon_user },
                                                 parent, err);
                if (r >= 0)
                        r = hide_parent(op, w, err);
                if (r >= 0)
                        r = git_worktree_make(op, &j.git, err);
                (void)workspace_remove_dir(op, j.git.scratch, NULL);
                if (r < 0 && !is_there(op, w))
                        (void)note_path(&j, "", NULL);
        }
        FAULT("worktree.make.after");
        worktree_job_end(&j);
        return r;
}

int worktree_publish(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                     struct git_report *ret, struct err *err)
{
        struct worktree_job j;
        int r = worktree_job_begin(op, rt, w, &j, err);

        *ret = (struct git_report){ 0 };
        if (r >= 0 && is_there(op, w)) {
                r = git_worktree_publish(op, &j.git, ret, err);
                (void)workspace_remove_dir(op, j.git.scratch, NULL);
        }
        worktree_job_end(&j);
        return r;
}

int worktree_look(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                  struct git_worktree_state *ret, struct err *err)
{
        struct worktree_job j;
        int r;

        *ret = (struct git_worktree_state){ 0 };
        if (!is_there(op, w))
                return 0;
        r = worktree_job_begin(op, rt, w, &j, err);
        if (r >= 0) {
                r = git_worktree_look(op, &j.git, ret, err);
                (void)workspace_remove_dir(op, j.git.scratch, NULL);
        }
        worktree_job_end(&j);
        return r < 0 ? r : 1;
}

/* -- Removing --------------------------------------------------------------------------------- */

static int note_removed(struct db *db, void *arg, struct err *err)
{
        return execution_workspaces_worktree_gone(db, arg, err);
}

/* The row forgets the directory once it is gone. */
static int worktree_remove(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                           struct err *err)
{
        const char *dir = arena_printf(op->arena, "%s/worktrees/%s", rt->data_dir, w->id);
        int r;

        FAULT("worktree.remove.before");
        r = workspace_remove_dir(op, arena_printf(op->arena, "%s.making", w->worktree_path), err);
        if (r >= 0)
                r = workspace_remove_dir(op, w->worktree_path, err);
        if (r >= 0)
                r = workspace_remove_dir(op, dir, err);
        FAULT("worktree.remove.after");
        if (r >= 0)
                r = store_write(op, rt->store, note_removed, (void *)w->id, err);
        if (r >= 0)
                (void)unlink(arena_printf(op->arena, "%s.lock", dir));
        return r;
}

int worktree_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct execution_workspace *due = NULL;
        int r = store_read_begin(op, rt->store, &db, err), n = 0;

        if (r >= 0)
                n = r = execution_workspaces_to_remove(db, op->arena, &due, err);
        store_read_end(&db);
        for (int i = 0; r >= 0 && i < n; i++) {
                r = worktree_remove(op, rt, &due[i], err);
                if (r < 0 && r != ERR_CANCELLED) {
                        log_warn("could not remove a worktree; it will be tried again",
                                 LOG_S("workspace", due[i].id), LOG_S("error", err->msg));
                        err_clear(err);
                        r = 0;
                }
        }
        return MIN(r, 0);
}

/* -- A company's ------------------------------------------------------------------------------- */

struct worktree_rows {
        struct arena *arena;
        struct execution_workspace *at;
        size_t n, room;
};

static int collect_worktree(void *ctx, const struct execution_workspace *row)
{
        struct worktree_rows *all = ctx;

        if (worktree_is(row)) {
                all->at = arena_more(all->arena, all->at, all->n, &all->room, sizeof(*all->at));
                all->at[all->n++] = *row;
        }
        return 0;
}

/* What would be lost with the directory; NULL: nothing. ERR_BUSY and ERR_CANCELLED. */
static int find_loss(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                     const char **ret, struct err *err)
{
        struct git_worktree_state state;
        struct git_report report;
        int r;

        *ret = NULL;
        if (!is_there(op, w))
                return 0;
        r = worktree_publish(op, rt, w, &report, err);
        if (r >= 0)
                r = worktree_look(op, rt, w, &state, err);
        if (r == ERR_BUSY || r == ERR_CANCELLED)
                return r;
        if (r < 0) {
                *ret = arena_strdup(op->arena, err->msg);
                err_clear(err);
        } else if (state.modified > 0 || state.untracked > 0) {
                *ret = "it has files that are in no commit";
        } else if (state.tip && !state.is_published) {
                *ret = "it has commits that the project's repository does not have";
        }
        return 0;
}

int worktree_drop_all(struct op *op, struct runtime *rt, const char *company_id, struct err *err)
{
        const struct execution_workspace_filter any = { 0 };
        struct worktree_rows all = { .arena = op->arena };
        CLEAN(store_read_end) struct db *db = NULL;
        const char *loss;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = execution_workspaces_list(db, company_id, &any, op->arena, collect_worktree,
                                              &all, err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < all.n; i++) {
                r = find_loss(op, rt, &all.at[i], &loss, err);
                if (r >= 0 && loss)
                        log_warn("a worktree of a company that is deleted stays",
                                 LOG_S("path", all.at[i].worktree_path), LOG_S("reason", loss));
                else if (r >= 0)
                        r = worktree_remove(op, rt, &all.at[i], err);
        }
        return r;
}

/* -- Rows and directories ---------------------------------------------------------------------- */

/* The worktree that a lock says; NULL: none, or somebody is working on it. */
static const char *path_of_lock(struct op *op, int dir, const char *name)
{
        CLEAN(cleanup_fd) int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        char path[PATH_MAX];
        ssize_t n = fd < 0 ? -1 : pread(fd, path, sizeof(path) - 1, 0);

        if (n <= 0 || path[0] != '/' || flock(fd, LOCK_SH | LOCK_NB) < 0)
                return NULL;
        return arena_strndup(op->arena, path, (size_t)n);
}

static int survey_lock(struct op *op, struct runtime *rt, int dir, const char *name,
                       worktree_survey_fn fn, void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *id = arena_strndup(op->arena, name, strcspn(name, "."));
        const char *path = uuid_is_valid(id) ? path_of_lock(op, dir, name) : NULL;
        struct execution_workspace w = { 0 };
        bool was_there;
        int r;

        if (!path)
                return 0;
        was_there = access(path, F_OK) == 0;
        r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = execution_workspaces_get(db, id, op->arena, &w, err);
        if (r == ERR_NOT_FOUND)
                err_clear(err);
        else if (r < 0)
                return r;
        /* Looked at before and after the row was read: what was made or removed meanwhile is
         * neither. A worktree that is being made again has its lock taken. */
        if (!w.worktree_path && was_there && access(path, F_OK) == 0)
                fn(ctx, false, id, path);
        else if (w.worktree_path && !streq(w.status, "archived") && !was_there &&
                 access(path, F_OK) < 0 && path_of_lock(op, dir, name))
                fn(ctx, true, id, path);
        return 0;
}

int worktree_survey(struct op *op, struct runtime *rt, worktree_survey_fn fn, void *ctx,
                    struct err *err)
{
        const char *path = arena_printf(op->arena, "%s/worktrees", rt->data_dir);
        DIR *dir = opendir(path);
        struct dirent *entry;
        int r = 0;

        if (!dir)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "list %s", path);
        while (r >= 0 && (entry = readdir(dir)))
                if (streq(entry->d_name + strcspn(entry->d_name, "."), ".lock"))
                        r = survey_lock(op, rt, dirfd(dir), entry->d_name, fn, ctx, err);
        closedir(dir);
        return r;
}
