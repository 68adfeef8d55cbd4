/* The merge's loop: takes the changes in order, decides each, and reports conflicts. */
#define _GNU_SOURCE
#include "workspace/merge.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>

#include "base/fault.h"
#include "base/fd.h"
#include "workspace/merge_parts.h"
#include "workspace/scan.h"

/* The changes as they come */

static bool is_at_or_beneath(const char *path, const char *dir)
{
        size_t n = strlen(dir);

        return strncmp(path, dir, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static bool state_ok(const struct tree_entry *e)
{
        switch (e->kind) {
        case TREE_DIR:
                return true;
        case TREE_FILE:
                return e->size <= TREE_MAX_SIZE;
        case TREE_LINK:
                return e->target && *e->target && strlen(e->target) <= TREE_MAX_TARGET;
        default:
                return false;
        }
}

/* A change set may come from a box: nothing in it is taken for granted. */
static int check_change(struct merge *m, const struct change *c, struct err *err)
{
        const char *path = c->now.path;

        if (!tree_path_ok(path) || (!c->is_delete && !state_ok(&c->now)) ||
            (c->has_was && !state_ok(&c->was)))
                return err_set(err, ERR_INVALID, "a change that cannot be: '%s'", path);
        if (m->last[0] && tree_compare(m->last, path) >= 0)
                return err_set(err, ERR_INVALID, "changes out of order: '%s'", path);
        memcpy(m->last, path, strlen(path) + 1);
        if (m->closed[0] && is_at_or_beneath(path, m->closed)) {
                if (!c->is_delete)
                        return err_set(err, ERR_INVALID, "'%s' is in what is no directory", path);
                return 0;
        }
        m->closed[0] = '\0';
        if (c->is_delete || c->now.kind != TREE_DIR)
                memcpy(m->closed, path, strlen(path) + 1);
        return 0;
}

/* Dry run: whether our directory holds more than what would be deleted in it. */

static uint64_t count_beneath(int dir, unsigned depth)
{
        int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *e;
        uint64_t count = 0;

        if (!d)
                cleanup_fd(&fd);
        while (d && (e = readdir(d)) != NULL) {
                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                count++;
                if (e->d_type != DT_DIR || depth == 0)
                        continue;
                CLEAN(cleanup_fd)
                int below = openat(fd, e->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

                if (below >= 0)
                        count += count_beneath(below, depth - 1);
        }
        if (d)
                closedir(d);
        return count;
}

static bool would_be_empty(struct merge *m, const struct merge_wait *w)
{
        const char *path = w->step->change.now.path;
        int dir;

        if (merge_parent(m, path, &dir, NULL) <= 0)
                return true;
        CLEAN(cleanup_fd)
        int fd = openat(dir, merge_name_of(path), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

        return fd < 0 || count_beneath(fd, TREE_MAX_DEPTH) <= w->deleted;
}

static void would_delete(struct merge *m)
{
        for (size_t i = 0; i < m->n_waits; i++)
                m->waits[i].deleted++;
}

static int would_settle(struct merge *m, struct merge_wait *w, struct err *err)
{
        const struct change *c = &w->step->change;
        bool is_empty = would_be_empty(m, w);

        if (c->is_delete) {
                if (is_empty) {
                        merge_count(m, c, MERGE_DELETE, true);
                        would_delete(m);
                }
                return 0;
        }
        merge_count(m, c, MERGE_PUT, true);
        return is_empty ? 0 : merge_keep_aside(m, c->now.path, true, err);
}

/* Report what stands in the way of a directory that would be made. */
static int would_make_parent(struct merge *m, const char *path, struct err *err)
{
        char part[TREE_MAX_PATH + 1];
        int dir, r = merge_parent(m, path, &dir, err);

        if (r != 0 || (m->made[0] && is_at_or_beneath(path, m->made)))
                return r < 0 ? r : 0;
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                struct stat st;

                memcpy(part, path, (size_t)(slash - path));
                part[slash - path] = '\0';
                r = merge_parent(m, part, &dir, err);
                if (r < 0)
                        return r;
                if (r > 0 && fstatat(dir, merge_name_of(part), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISDIR(st.st_mode))
                        continue;
                memcpy(m->made, part, strlen(part) + 1);
                return merge_keep_aside(m, part, true, err);
        }
        return 0;
}

static int would_do(struct merge *m, const struct change *c, const struct merge_look *look,
                    struct merge_verdict v, struct err *err)
{
        int r = 0;

        if (v.what == MERGE_PUT || v.what == MERGE_ASIDE)
                r = would_make_parent(m, c->now.path, err);
        if (r >= 0 && v.what == MERGE_ASIDE)
                r = merge_keep_aside(m, c->now.path, false, err);
        if (r < 0)
                return r;
        merge_count(m, c, v.what, look->local.is_there);
        if (v.what == MERGE_DELETE)
                would_delete(m);
        return 0;
}

/* Waiting for what is beneath */

static int settle_last(struct merge *m, struct err *err)
{
        struct merge_wait w = m->waits[--m->n_waits];

        if (!m->options->dry_run)
                return merge_step_add(m, w.step, err);
        int r = would_settle(m, &w, err);
        merge_step_drop(m, w.step);
        return r;
}

/* path NULL: all of them. */
static int settle_waits(struct merge *m, const char *path, struct err *err)
{
        int r = 0;

        while (r >= 0 && m->n_waits > 0 &&
               !(path && is_at_or_beneath(path, m->waits[m->n_waits - 1].step->change.now.path)))
                r = settle_last(m, err);
        return r;
}

/* One change */

static int take_dir(struct merge *m, const struct change *c, struct err *err)
{
        int r;

        if (m->options->dry_run) {
                r = would_make_parent(m, c->now.path, err);
                if (r < 0)
                        return r;
        }
        r = merge_make_dir(m, c, err);
        if (r > 0 && m->options->dry_run && !(m->made[0] && is_at_or_beneath(c->now.path, m->made)))
                memcpy(m->made, c->now.path, strlen(c->now.path) + 1);
        return r < 0 ? r : 0;
}

static int take_other(struct merge *m, const struct change *c, struct err *err)
{
        struct merge_look look;
        int r = merge_look(m, c, &look, err);

        if (r < 0)
                return r;
        struct merge_verdict v = merge_decide(c, &look.local, m->options->umask);
        bool waits = look.local.is_there && S_ISDIR(look.st.st_mode) && v.what != MERGE_NOTHING &&
                     v.what != MERGE_LEAVE;
        if (v.what == MERGE_NOTHING || v.what == MERGE_LEAVE) {
                merge_count(m, c, v.what, look.local.is_there);
                return 0;
        }
        if (m->options->dry_run && !waits)
                return would_do(m, c, &look, v, err);
        struct merge_step *s = merge_step_new(c, &look, v);
        if (!m->options->dry_run && (v.what == MERGE_PUT || v.what == MERGE_ASIDE))
                r = merge_step_prepare(m, s, err);
        if (r < 0) {
                merge_step_drop(m, s);
                if (r == ERR_NOT_FOUND) /* removed there since: the next merge hears of it */
                        err_clear(err);
                return r == ERR_NOT_FOUND ? 0 : r;
        }
        if (!waits)
                return merge_step_add(m, s, err);
        m->waits[m->n_waits++] = (struct merge_wait){ .step = s }; /* never more than parts */
        return 0;
}

static int take_change(struct merge *m, const struct change *c, struct err *err)
{
        int r = check_change(m, c, err);

        if (r >= 0)
                r = settle_waits(m, c->now.path, err);
        if (r >= 0)
                r = op_check(m->op, err);
        if (r < 0)
                return r;
        if (excludes_match(m->options->excludes, c->now.path))
                return 0;
        if (!c->is_delete && c->now.kind == TREE_DIR)
                return take_dir(m, c, err);
        return take_other(m, c, err);
}

/* The whole */

static int take_all(struct merge *m, struct err *err)
{
        struct change c;
        int r;

        while ((r = m->changes->next(m->changes, &c, err)) > 0) {
                r = take_change(m, &c, err);
                if (r < 0)
                        return r;
        }
        if (r >= 0)
                r = settle_waits(m, NULL, err);
        return r < 0 ? r : merge_flush(m, err);
}

/* What a merge that died kept is part of this report, because it was not reported yet. */
static void report_before(struct merge *m)
{
        const char *path = NULL, *kept;
        struct stat st;
        int dir;

        while ((path = merge_journal_next_kept(&m->journal, path, &kept)) != NULL)
                if (tree_path_ok(path) && tree_path_ok(kept) &&
                    merge_parent(m, kept, &dir, NULL) > 0 &&
                    fstatat(dir, merge_name_of(kept), &st, AT_SYMLINK_NOFOLLOW) == 0)
                        merge_report_conflict(m, path, kept);
}

static int apply_changes(struct merge *m, struct err *err)
{
        const struct merge_options *o = m->options;

        if (o->dry_run)
                return take_all(m, err);
        int r = merge_journal_open(m->op, &m->journal, o->lock_path, err);
        if (r < 0)
                return r;
        FAULT("workspace.merge.locked");
        if (o->before) {
                r = o->before(o->ctx, m->op, err);
                if (r < 0)
                        return r;
        }
        r = merge_clean(m, err);
        if (r >= 0) {
                report_before(m);
                r = take_all(m, err);
        }
        if (r >= 0)
                r = merge_sync_touched(m, err);
        if (r < 0)
                return r;
        FAULT("workspace.merge.applied");
        r = merge_journal_end(&m->journal, err);
        FAULT("workspace.merge.end");
        return r;
}

static void end(struct merge *m, bool is_done)
{
        for (size_t i = 0; i < m->n_steps; i++)
                merge_step_drop(m, m->steps[i]);
        for (size_t i = 0; i < m->n_waits; i++)
                merge_step_drop(m, m->waits[i].step);
        free(m->steps);
        free(m->conflict_slots);
        merge_forget_dir(m);
        if (!is_done)
                merge_journal_give_up(&m->journal);
        merge_journal_close(&m->journal);
}

int merge_apply(struct op *op, int workspace_fd, struct change_set *changes,
                const struct merge_options *options, struct merge_report *ret, struct err *err)
{
        struct merge *m = xcalloc(1, sizeof(*m));
        int r;

        m->op = op;
        m->root = workspace_fd;
        m->changes = changes;
        m->options = options;
        m->journal = MERGE_JOURNAL_INIT;
        m->dir = -1;
        if (fstat(workspace_fd, &m->root_st) < 0)
                r = err_sys(err, ERR_IO, errno, "the workspace");
        else
                r = apply_changes(m, err);
        end(m, r >= 0);
        if (r >= 0)
                *ret = m->report;
        free(m);
        return r < 0 ? r : 0;
}
