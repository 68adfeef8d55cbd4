/* Carries out what the merge decided, a batch at a time. */
#define _GNU_SOURCE
#include "workspace/merge_parts.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/content.h"

#define BATCH_STEPS 2048
#define BATCH_BYTES ((uint64_t)256 << 20)
#define FEW_TEMPS   8 /* are synced singly */
#define TRIES       4 /* for a path that changes whenever we look */

void merge_count(struct merge *m, const struct change *c, enum merge_what what, bool was_there)
{
        switch (what) {
        case MERGE_NOTHING:
                return;
        case MERGE_LEAVE:
                m->report.left++;
                return;
        case MERGE_DELETE:
                m->report.deleted++;
                return;
        case MERGE_MODE:
                m->report.changed++;
                return;
        case MERGE_PUT:
        case MERGE_ASIDE:
                if (was_there)
                        m->report.changed++;
                else
                        m->report.added++;
                if (c->now.kind == TREE_FILE)
                        m->report.bytes += c->now.size;
        }
}

/* A step and its end */

static char *own(const char *text)
{
        return text ? xstrdup(text) : NULL;
}

struct merge_step *merge_step_new(const struct change *c, const struct merge_look *look,
                                  struct merge_verdict verdict)
{
        struct merge_step *s = xcalloc(1, sizeof(*s));

        s->change = *c;
        s->change.now.path = s->texts[0] = own(c->now.path);
        s->change.now.target = s->texts[1] = c->is_delete ? NULL : own(c->now.target);
        s->change.was.path = NULL;
        s->change.was.target = s->texts[2] = c->has_was ? own(c->was.target) : NULL;
        s->verdict = verdict;
        s->was_there = look->local.is_there;
        s->st = look->st;
        return s;
}

static void drop_temp(struct merge *m, struct merge_step *s)
{
        int dir;

        if (s->temp[0] && merge_parent(m, s->change.now.path, &dir, NULL) > 0)
                (void)unlinkat(dir, s->temp, 0);
        s->temp[0] = '\0';
}

void merge_step_drop(struct merge *m, struct merge_step *s)
{
        if (!s)
                return;
        drop_temp(m, s);
        for (size_t i = 0; i < ARRAY_LEN(s->texts); i++)
                free(s->texts[i]);
        free(s);
}

/* Theirs, under a temporary name */

static int fill_temp(struct merge *m, struct merge_step *s, int fd, struct err *err)
{
        CLEAN(cleanup_fd) int from = -1;
        struct stat st;
        int r = m->changes->open(m->changes, &s->change, &from, err);

        if (r < 0)
                return r;
        /* The other side may still be writing: all that is there now, not as much as there was. */
        if (fstat(from, &st) < 0 || (uint64_t)st.st_size > TREE_MAX_SIZE)
                return err_set(err, ERR_CONFLICT, "it changed while it was read");
        if ((uint64_t)st.st_size > s->change.now.size)
                r = budget_take(m->options->budget, 0, (uint64_t)st.st_size - s->change.now.size,
                                s->change.now.path, err);
        if (r < 0)
                return r;
        s->change.now.size = (uint64_t)st.st_size;
        r = content_copy(m->op, from, fd, s->change.now.size, NULL, err);
        if (r < 0)
                return r;
        FAULT("workspace.merge.copied");
        if (fchmod(fd, s->verdict.mode) < 0)
                return err_sys(err, ERR_IO, errno, "set the mode");
        return 0;
}

static int make_temp(struct merge *m, struct merge_step *s, int dir, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;

        if (s->change.now.kind == TREE_LINK) {
                if (symlinkat(s->change.now.target, dir, s->temp) < 0)
                        return err_sys(err, ERR_IO, errno, "create a link");
                return merge_give_owner(m, dir, s->temp, err);
        }
        fd = openat(dir, s->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "create a temporary file");
        s->temp_dev = st.st_dev;
        s->temp_ino = st.st_ino;
        FAULT("workspace.merge.temp");
        int r = fill_temp(m, s, fd, err);
        if (r >= 0 && m->options->set_owner && fchown(fd, m->root_st.st_uid, m->root_st.st_gid) < 0)
                r = err_sys(err, ERR_IO, errno, "give it to the owner of the workspace");
        return r;
}

int merge_step_prepare(struct merge *m, struct merge_step *s, struct err *err)
{
        const char *path = s->change.now.path;
        char dir_path[TREE_MAX_PATH + 1];
        int dir, r = merge_make_parent(m, path, &dir, err);

        if (r < 0)
                return r;
        merge_dir_of(path, dir_path);
        r = merge_journal_temp(&m->journal, dir_path, s->temp, err);
        if (r >= 0)
                r = make_temp(m, s, dir, err);
        if (r < 0)
                return err_wrap(err, r, "%s", path);
        m->n_temps++;
        m->batch_bytes += s->change.now.size;
        return 0;
}

/* Taking a step */

/* Work on the path since it was decided is not overwritten: the path is decided again. The times of
 * a directory do not tell what is in it. */
static int look_again(struct merge *m, struct merge_step *s, int dir, struct err *err)
{
        const char *name = merge_name_of(s->change.now.path);
        struct merge_look look;
        struct stat st;
        bool is_there = fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;

        if (!is_there && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "look at %s", s->change.now.path);
        if (!is_there && !s->was_there)
                return 0;
        if (is_there && s->was_there &&
            (merge_is_same_stat(&st, &s->st) ||
             (S_ISDIR(st.st_mode) && S_ISDIR(s->st.st_mode) && st.st_ino == s->st.st_ino)))
                return 0;
        int r = merge_look(m, &s->change, &look, err);
        if (r < 0)
                return r;
        s->verdict = merge_decide(&s->change, &look.local, m->options->umask);
        s->was_there = look.local.is_there;
        s->st = look.st;
        return 0;
}

static int remove_ours(struct merge *m, struct merge_step *s, int dir, struct err *err)
{
        bool is_dir = S_ISDIR(s->st.st_mode);
        char dir_path[TREE_MAX_PATH + 1];

        FAULT("workspace.merge.delete.before");
        if (unlinkat(dir, merge_name_of(s->change.now.path), is_dir ? AT_REMOVEDIR : 0) < 0) {
                if (errno == ENOENT)
                        return 0;
                if (is_dir && (errno == ENOTEMPTY || errno == EEXIST || errno == EBUSY))
                        return 0; /* something of ours is in it */
                return err_sys(err, ERR_IO, errno, "remove %s", s->change.now.path);
        }
        FAULT("workspace.merge.delete.after");
        if (is_dir)
                merge_forget_dir(m);
        merge_dir_of(s->change.now.path, dir_path);
        merge_touch(m, dir_path);
        merge_count(m, &s->change, MERGE_DELETE, true);
        return 0;
}

/* By a descriptor that needs no right to read and follows nothing, and only of the file that was
 * looked at or made: another file that is there by now may be private. */
static int set_mode(int dir, const char *name, dev_t dev, ino_t ino, uint32_t mode, struct err *err)
{
        CLEAN(cleanup_fd) int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
        char self[32];
        struct stat st;

        if (fd < 0 || fstat(fd, &st) < 0)
                return errno == ENOENT ? 0 : err_sys(err, ERR_IO, errno, "open %s", name);
        if (st.st_dev != dev || st.st_ino != ino)
                return merge_replaced(name, err);
        if (!S_ISREG(st.st_mode) || (st.st_mode & 07777) == mode)
                return 0;
        snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
        if (chmod(self, mode) < 0)
                return err_sys(err, ERR_IO, errno, "set the mode of %s", name);
        return 0;
}

static int change_mode(struct merge *m, struct merge_step *s, int dir, struct err *err)
{
        FAULT("workspace.merge.mode.before");
        int r = set_mode(dir, merge_name_of(s->change.now.path), s->st.st_dev, s->st.st_ino,
                         s->verdict.mode, err);
        if (r < 0)
                return r;
        FAULT("workspace.merge.mode.after");
        m->n_touched = MERGE_TOUCHED + 1; /* syncing its directory would not do */
        merge_count(m, &s->change, MERGE_MODE, true);
        return 0;
}

/* Our directory goes when it is empty; else all that is left in it is kept. */
static int vacate_dir(struct merge *m, struct merge_step *s, int dir, struct err *err)
{
        const char *path = s->change.now.path;

        if (unlinkat(dir, merge_name_of(path), AT_REMOVEDIR) == 0 || errno == ENOENT) {
                FAULT("workspace.merge.vacated");
                return 0;
        }
        if (errno != ENOTEMPTY && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "remove %s", path);
        return merge_keep_aside(m, path, true, err);
}

/* 1: done; 0: something else is there by now. */
static int give_name(struct merge *m, struct merge_step *s, bool replace, struct err *err)
{
        const char *path = s->change.now.path, *name = merge_name_of(path);
        int dir, r = merge_parent(m, path, &dir, err);

        if (r <= 0)
                return r < 0 ? r : err_set(err, ERR_CONFLICT, "%s: its directory vanished", path);
        if (s->change.now.kind == TREE_FILE) {
                r = set_mode(dir, s->temp, s->temp_dev, s->temp_ino, s->verdict.mode, err);
                if (r < 0)
                        return r;
        }
        FAULT("workspace.merge.rename.before");
        r = renameat2(dir, s->temp, dir, name, replace ? 0 : RENAME_NOREPLACE);
        if (r < 0 && errno == EINVAL && !replace)
                r = renameat(dir, s->temp, dir, name);
        if (r < 0 && (errno == EEXIST || errno == EISDIR))
                return 0;
        if (r < 0)
                return err_sys(err, ERR_IO, errno, "put %s in its place", path);
        FAULT("workspace.merge.rename.after");
        s->temp[0] = '\0';
        return 1;
}

static int put_theirs(struct merge *m, struct merge_step *s, int dir, struct err *err)
{
        bool over_dir = s->was_there && S_ISDIR(s->st.st_mode);
        char dir_path[TREE_MAX_PATH + 1];
        int r = 0;

        if (over_dir)
                r = vacate_dir(m, s, dir, err);
        else if (s->verdict.what == MERGE_ASIDE)
                r = merge_keep_aside(m, s->change.now.path, false, err);
        if (r >= 0)
                r = give_name(m, s, s->was_there && !over_dir, err);
        if (r <= 0)
                return r;
        merge_dir_of(s->change.now.path, dir_path);
        merge_touch(m, dir_path);
        merge_count(m, &s->change, s->verdict.what, s->was_there);
        return 1;
}

/* 1: done; 0: look again. */
static int try_step(struct merge *m, struct merge_step *s, int dir, struct err *err)
{
        int r = look_again(m, s, dir, err);

        if (r < 0)
                return r;
        switch (s->verdict.what) {
        case MERGE_NOTHING:
        case MERGE_LEAVE:
                merge_count(m, &s->change, s->verdict.what, s->was_there);
                return 1;
        case MERGE_DELETE:
                r = remove_ours(m, s, dir, err);
                break;
        case MERGE_MODE:
                r = change_mode(m, s, dir, err);
                break;
        case MERGE_PUT:
        case MERGE_ASIDE:
                if (!s->temp[0])
                        return 0; /* theirs was not needed when it could be had */
                return put_theirs(m, s, dir, err);
        }
        return r < 0 ? r : 1;
}

static int take_step(struct merge *m, struct merge_step *s, struct err *err)
{
        for (int i = 0; i < TRIES; i++) {
                int dir, r = op_check(m->op, err);

                if (r < 0)
                        return r;
                r = merge_parent(m, s->change.now.path, &dir, err);
                if (r == 0 && !s->temp[0])
                        return 0; /* its directory is gone, and so is what was to be deleted */
                if (r == 0)
                        break;
                if (r > 0)
                        r = try_step(m, s, dir, err);
                if (r != 0)
                        return r < 0 ? r : 0;
        }
        return err_set(err, ERR_CONFLICT, "%s is being changed by somebody else; try again",
                       s->change.now.path);
}

/* Batches */

static int sync_temp(struct merge *m, const struct merge_step *s, struct err *err)
{
        int dir, r = merge_parent(m, s->change.now.path, &dir, err);

        if (r <= 0 || s->change.now.kind != TREE_FILE)
                return r < 0 ? r : 0;
        CLEAN(cleanup_fd) int fd = openat(dir, s->temp, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0 || fdatasync(fd) < 0)
                return err_sys(err, ERR_IO, errno, "sync %s", s->change.now.path);
        return 0;
}

/* A waiting step has been written as well; it is synced again with the batch that it joins. */
static int sync_batch(struct merge *m, struct err *err)
{
        int r = merge_journal_sync(&m->journal, err);

        if (r < 0)
                return r;
        if (m->n_temps > FEW_TEMPS) {
                if (syncfs(m->root) < 0)
                        return err_sys(err, ERR_IO, errno, "sync the workspace");
                return 0;
        }
        for (size_t i = 0; r >= 0 && i < m->n_steps; i++)
                if (m->steps[i]->temp[0])
                        r = sync_temp(m, m->steps[i], err);
        return r;
}

int merge_flush(struct merge *m, struct err *err)
{
        if (m->n_steps == 0)
                return 0;
        int r = sync_batch(m, err);
        if (r < 0)
                return r;
        FAULT("workspace.merge.synced");
        for (size_t i = 0; r >= 0 && i < m->n_steps; i++)
                r = take_step(m, m->steps[i], err);
        for (size_t i = 0; i < m->n_steps; i++)
                merge_step_drop(m, m->steps[i]);
        m->n_steps = m->n_temps = 0;
        m->batch_bytes = 0;
        if (r >= 0 && m->options->progress)
                m->options->progress(m->options->ctx, &m->report);
        return r;
}

int merge_step_add(struct merge *m, struct merge_step *take_step_, struct err *err)
{
        if (!m->steps)
                m->steps = xcalloc(BATCH_STEPS, sizeof(struct merge_step *));
        m->steps[m->n_steps++] = take_step_;
        if (m->n_steps < BATCH_STEPS && m->batch_bytes < BATCH_BYTES)
                return 0;
        return merge_flush(m, err);
}

int merge_sync_touched(struct merge *m, struct err *err)
{
        if (m->n_touched > MERGE_TOUCHED) {
                if (syncfs(m->root) < 0)
                        return err_sys(err, ERR_IO, errno, "sync the workspace");
                return 0;
        }
        for (size_t i = 0; i < m->n_touched; i++) {
                const char *path = *m->touched[i] ? m->touched[i] : ".";
                CLEAN(cleanup_fd) int fd = -1;
                int r = path_open_plain(m->root, path, O_RDONLY | O_DIRECTORY, 0, &fd, err);

                if (r == ERR_NOT_FOUND || r == ERR_FORBIDDEN || r == ERR_UNPROCESSABLE)
                        continue; /* removed by a later step, or by another process */
                if (r < 0)
                        return r;
                if (fsync(fd) < 0)
                        return err_sys(err, ERR_IO, errno, "sync %s", path);
        }
        return 0;
}

/* Directories of theirs */

static int make_dir(struct merge *m, const struct change *c, struct merge_verdict v,
                    const struct merge_look *look, struct err *err)
{
        const char *path = c->now.path, *name = merge_name_of(path);
        char dir_path[TREE_MAX_PATH + 1];
        CLEAN(cleanup_fd) int made = -1;
        int dir, r = merge_make_parent(m, path, &dir, err);

        if (r >= 0 && v.what == MERGE_ASIDE)
                r = merge_keep_aside(m, path, true, err);
        if (r < 0)
                return r;
        if (v.what == MERGE_PUT && look->local.is_there && unlinkat(dir, name, 0) < 0 &&
            errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "replace %s", path);
        FAULT("workspace.merge.mkdir.before");
        if (mkdirat(dir, name, v.mode) < 0)
                return errno == EEXIST ? 0 : err_sys(err, ERR_IO, errno, "create %s", path);
        FAULT("workspace.merge.mkdir.after");
        r = path_open_plain(dir, name, O_RDONLY | O_DIRECTORY, 0, &made, err);
        if (r >= 0 && fchmod(made, v.mode) < 0)
                r = err_sys(err, ERR_IO, errno, "set the mode of %s", path);
        if (r >= 0)
                r = merge_give_owner(m, dir, name, err);
        if (r < 0)
                return r;
        merge_dir_of(path, dir_path);
        merge_touch(m, dir_path);
        return 1;
}

int merge_make_dir(struct merge *m, const struct change *c, struct err *err)
{
        for (int i = 0; i < TRIES; i++) {
                struct merge_look look;
                struct merge_verdict v;
                int r = merge_look(m, c, &look, err);

                if (r < 0)
                        return r;
                v = merge_decide(c, &look.local, m->options->umask);
                if (v.what != MERGE_NOTHING && !m->options->dry_run)
                        r = make_dir(m, c, v, &look, err);
                else if (v.what == MERGE_ASIDE)
                        r = merge_keep_aside(m, c->now.path, true, err);
                if (r < 0)
                        return r;
                if (r > 0 || v.what == MERGE_NOTHING || m->options->dry_run) {
                        merge_count(m, c, v.what, look.local.is_there);
                        return v.what != MERGE_NOTHING;
                }
        }
        return err_set(err, ERR_CONFLICT, "%s is being changed by somebody else; try again",
                       c->now.path);
}
