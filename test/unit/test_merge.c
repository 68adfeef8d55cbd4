/* The rules of the merge one by one, and what a hostile change set or a bad moment can do to it.
 * test_merge_walk.c compares random ones with a model; test_merge_crash.c kills it everywhere. */
#define _GNU_SOURCE
#include "merge_fixture.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "workspace/content.h"
#include "workspace/merge_parts.h"

#define KEPT(name) name ".berth-local-" STAMP

struct trees {
        struct merge_world w;
        struct tree was, now, want, got;
};

static int setup(void **state)
{
        struct trees *t = xcalloc(1, sizeof(*t));

        world_init(&t->w);
        *state = t;
        return 0;
}

static int teardown(void **state)
{
        struct trees *t = *state;

        world_done(&t->w);
        mock_done(&t->was);
        mock_done(&t->now);
        mock_done(&t->want);
        mock_done(&t->got);
        free(t);
        return 0;
}

/* `was` was staged; then it was edited there (`now`) and here (on disk). */
static void staged(struct trees *t)
{
        mock_assign(&t->now, &t->was);
        world_set(&t->w, &t->was);
}

static void merge(struct trees *t)
{
        if (world_merge(&t->w, &t->was, &t->now, false) < 0)
                fail_msg("merge: %s", t->w.err.msg);
}

static void expect_text(struct trees *t, const char *path, const char *want)
{
        char *text = world_text(&t->w, path);

        if (!text)
                fail_msg("%s is not there", path);
        assert_string_equal(text, want);
        free(text);
}

static void expect_absent(struct trees *t, const char *path)
{
        struct stat st;

        assert_int_equal(fstatat(t->w.ws, path, &st, AT_SYMLINK_NOFOLLOW), -1);
}

static uint32_t mode_of(struct trees *t, const char *path)
{
        struct stat st;

        assert_int_equal(fstatat(t->w.ws, path, &st, AT_SYMLINK_NOFOLLOW), 0);
        return st.st_mode & 07777;
}

static void expect_conflict(struct trees *t, const char *path, const char *kept)
{
        const struct merge_conflict *c = t->w.report.conflicts;

        while (c && !streq(c->path, path))
                c = c->next;
        if (!c)
                fail_msg("no conflict at %s", path);
        else
                assert_string_equal(c->kept, kept);
}

static void expect_nothing_ours(struct trees *t)
{
        world_read(&t->w, &t->got);
        for (size_t i = 0; i < t->got.n; i++)
                assert_null(strstr(t->got.nodes[i].path, ".berth-tmp"));
}

static void expect_clear_journal(struct trees *t)
{
        struct stat st;

        assert_int_equal(stat(t->w.lock, &st), 0);
        assert_int_equal(st.st_size, 0);
}

/* The rules */

/* remote-execution 8.12, 8.13, 8.14: changed and new files come; what was made here stays; what is
 * excluded is left alone on both sides. */
static void test_restore(void **state)
{
        static const char *const patterns[] = { ".claude", NULL };
        static const struct excludes excludes = { .patterns = patterns };
        struct trees *t = *state;

        mock_file(&t->was, "README.md", "local\n");
        mock_file(&t->was, ".claude/settings.json", "{\"local\":true}\n");
        mock_file(&t->was, ".paperclip-runtime/state.json", "{}\n");
        staged(t);
        world_write(&t->w, "local-stale.txt", "remove?\n");
        mock_file(&t->now, "README.md", "remote\n");
        mock_file(&t->now, "src/new/remote-only.txt", "sync back\n");
        mock_file(&t->now, ".claude/settings.json", "theirs");
        mock_remove(&t->now, ".paperclip-runtime");
        mock_file(&t->now, ".paperclip-runtime/other", "theirs");
        t->w.options.excludes = &excludes;
        merge(t);
        mock_assign(&t->want, &t->was);
        mock_file(&t->want, "README.md", "remote\n");
        mock_file(&t->want, "src/new/remote-only.txt", "sync back\n");
        mock_file(&t->want, "local-stale.txt", "remove?\n");
        world_read(&t->w, &t->got);
        mock_assert_equal(&t->got, &t->want, "restored");
        assert_int_equal(t->w.report.n_conflicts, 0);
        assert_int_equal(t->w.report.added, 3); /* two directories and a file */
        assert_int_equal(t->w.report.changed, 1);
        assert_int_equal(t->w.report.bytes, 17);
}

/* remote-execution 8.15 */
static void test_two_restores_of_one_baseline(void **state)
{
        struct trees *t = *state;
        struct tree other = { 0 };

        mock_file(&t->was, "README.md", "x");
        staged(t);
        mock_assign(&other, &t->was);
        mock_file(&t->now, "manual-qa/run-1/notes.md", "first");
        mock_file(&other, "manual-qa/run-1/report.md", "second");
        merge(t);
        assert_int_equal(world_merge(&t->w, &t->was, &other, false), 0);
        expect_text(t, "manual-qa/run-1/notes.md", "first");
        expect_text(t, "manual-qa/run-1/report.md", "second");
        mock_done(&other);
}

static void test_both_changed(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "d/both", "was");
        mock_file(&t->was, "d/same", "was");
        mock_file(&t->was, "d/ours", "was");
        mock_link(&t->was, "d/link", "was");
        staged(t);
        world_write(&t->w, "d/both", "ours");
        world_write(&t->w, "d/same", "agreed");
        world_write(&t->w, "d/ours", "ours");
        world_write(&t->w, "d/added", "ours");
        assert_int_equal(unlinkat(t->w.ws, "d/link", 0), 0);
        assert_int_equal(symlinkat("ours", t->w.ws, "d/link"), 0);
        mock_file(&t->now, "d/both", "theirs");
        mock_file(&t->now, "d/same", "agreed");
        mock_file(&t->now, "d/added", "theirs");
        mock_link(&t->now, "d/link", "theirs");
        merge(t);
        expect_text(t, "d/both", "theirs");
        expect_text(t, KEPT("d/both"), "ours");
        expect_text(t, "d/same", "agreed");
        expect_text(t, "d/ours", "ours");
        expect_text(t, "d/added", "theirs");
        expect_text(t, KEPT("d/added"), "ours");
        assert_int_equal(t->w.report.n_conflicts, 3);
        expect_conflict(t, "d/both", KEPT("d/both"));
        expect_conflict(t, "d/added", KEPT("d/added"));
        expect_conflict(t, "d/link", KEPT("d/link"));
        world_read(&t->w, &t->got);
        assert_string_equal(mock_find(&t->got, "d/link")->text, "theirs");
        assert_string_equal(mock_find(&t->got, KEPT("d/link"))->text, "ours");
}

static void test_names_of_what_is_kept(void **state)
{
        struct trees *t = *state;
        char name[256] = "x", kept[256];

        for (size_t i = 1; i < 255; i += 2) /* two bytes each: the cut is between two of them */
                memcpy(name + i, "\xc3\xa4", 3);
        mock_file(&t->was, "f", "was");
        staged(t);
        world_write(&t->w, "f", "ours");
        world_write(&t->w, KEPT("f"), "somebody's");
        world_write(&t->w, name, "ours");
        mock_file(&t->now, "f", "theirs");
        mock_file(&t->now, name, "theirs");
        merge(t);
        expect_text(t, KEPT("f"), "somebody's");
        expect_text(t, KEPT("f") "-2", "ours");
        expect_conflict(t, "f", KEPT("f") "-2");
        snprintf(kept, sizeof(kept), "%.225s" KEPT(""), name);
        assert_int_equal(strlen(kept), 254);
        expect_text(t, kept, "ours");
        expect_text(t, name, "theirs");
        expect_conflict(t, name, kept);
}

static void test_deletions(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "gone/a", "was");
        mock_file(&t->was, "gone/deep/b", "was");
        mock_file(&t->was, "stays/changed", "was");
        mock_file(&t->was, "stays/unchanged", "was");
        mock_link(&t->was, "link", "was");
        staged(t);
        world_write(&t->w, "stays/changed", "ours");
        for (size_t i = 0; i < t->was.n; i++)
                mock_remove(&t->now, t->was.nodes[i].path);
        merge(t);
        expect_absent(t, "gone");
        expect_absent(t, "link");
        expect_absent(t, "stays/unchanged");
        expect_text(t, "stays/changed", "ours");
        assert_int_equal(t->w.report.left, 1);
        assert_int_equal(t->w.report.deleted, 6);
        assert_int_equal(t->w.report.n_conflicts, 0);
}

static void test_modes(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "exec", "x");
        mock_file(&t->was, "exec-ours", "x");
        mock_put(&t->was, "by-umask", TREE_FILE, 0664, "x");
        mock_put(&t->was, "by-umask-edited", TREE_FILE, 0664, "x");
        mock_file(&t->was, "ours", "x");
        mock_file(&t->was, "gone", "x");
        staged(t);
        mock_find(&t->now, "exec")->mode = 0755;
        mock_find(&t->now, "exec-ours")->mode = 0755;
        world_write(&t->w, "exec-ours", "ours");
        mock_find(&t->now, "by-umask")->mode = 0644;
        mock_put(&t->now, "by-umask-edited", TREE_FILE, 0644, "theirs");
        assert_int_equal(fchmodat(t->w.ws, "ours", 0700, 0), 0);
        mock_file(&t->now, "ours", "theirs");
        mock_find(&t->now, "gone")->mode = 0755;
        assert_int_equal(unlinkat(t->w.ws, "gone", 0), 0);
        mock_put(&t->now, "set-id", TREE_FILE, 0644, "x");
        mock_put(&t->now, "unreadable", TREE_FILE, 0, "x");
        merge(t);
        assert_int_equal(mode_of(t, "exec"), 0755);
        assert_int_equal(mode_of(t, "exec-ours"), 0644);
        expect_text(t, "exec-ours", "ours");
        assert_int_equal(mode_of(t, "by-umask"), 0664);
        assert_int_equal(mode_of(t, "by-umask-edited"), 0664);
        expect_text(t, "by-umask-edited", "theirs");
        expect_text(t, "ours", "theirs"); /* content of theirs, mode of ours */
        assert_int_equal(mode_of(t, "ours"), 0700);
        expect_absent(t, "gone");
        assert_int_equal(mode_of(t, "unreadable"), 0400);
        assert_int_equal(t->w.report.n_conflicts, 0);
}

/* Kinds that change. What is only here survives whatever becomes of its directory. */
static void test_directory_becomes_file(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "clean/a", "was");
        mock_file(&t->was, "full/a", "was");
        mock_file(&t->was, "full/sub/b", "was");
        staged(t);
        world_write(&t->w, "full/sub/ours", "ours");
        mock_file(&t->now, "clean", "theirs");
        mock_link(&t->now, "full", "theirs");
        merge(t);
        expect_text(t, "clean", "theirs");
        world_read(&t->w, &t->got);
        assert_int_equal(mock_find(&t->got, "full")->kind, TREE_LINK);
        expect_text(t, KEPT("full") "/sub/ours", "ours");
        expect_absent(t, KEPT("full") "/a");
        assert_int_equal(t->w.report.n_conflicts, 1);
        expect_conflict(t, "full", KEPT("full"));
}

static void test_file_becomes_directory(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "clean", "was");
        mock_file(&t->was, "edited", "was");
        staged(t);
        world_write(&t->w, "edited", "ours");
        mock_file(&t->now, "clean/a", "theirs");
        mock_file(&t->now, "edited/a", "theirs");
        merge(t);
        expect_text(t, "clean/a", "theirs");
        expect_text(t, "edited/a", "theirs");
        expect_text(t, KEPT("edited"), "ours");
        assert_int_equal(t->w.report.n_conflicts, 1);
}

static void test_parents_that_went_away(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "deleted/sub/f", "was");
        mock_file(&t->was, "replaced/f", "was");
        staged(t);
        assert_int_equal(unlinkat(t->w.ws, "deleted/sub/f", 0), 0);
        assert_int_equal(unlinkat(t->w.ws, "deleted/sub", AT_REMOVEDIR), 0);
        assert_int_equal(unlinkat(t->w.ws, "deleted", AT_REMOVEDIR), 0);
        assert_int_equal(unlinkat(t->w.ws, "replaced/f", 0), 0);
        assert_int_equal(unlinkat(t->w.ws, "replaced", AT_REMOVEDIR), 0);
        world_write(&t->w, "replaced", "ours");
        mock_file(&t->now, "deleted/sub/f", "theirs");
        mock_file(&t->now, "replaced/f", "theirs");
        merge(t);
        expect_text(t, "deleted/sub/f", "theirs");
        expect_text(t, "replaced/f", "theirs");
        expect_text(t, KEPT("replaced"), "ours");
}

/* A file of the workspace may have another name outside of it, in a package manager's store for
 * one. */
static void test_other_names_keep_their_mode(void **state)
{
        struct trees *t = *state;
        struct stat st;

        mock_file(&t->was, "f", "text");
        staged(t);
        assert_int_equal(linkat(t->w.ws, "f", t->w.root_fd, "outside", 0), 0);
        mock_file(&t->now, "f", "text");
        mock_find(&t->now, "f")->mode = 0755;
        merge(t);
        assert_int_equal(fstatat(t->w.ws, "f", &st, 0), 0);
        assert_int_equal(st.st_mode & 0777, 0755);
        assert_int_equal(fstatat(t->w.root_fd, "outside", &st, 0), 0);
        assert_int_equal(st.st_mode & 0777, 0644);
        expect_text(t, "f", "text");
}

/* Links are never followed: neither on the way nor at the end of it. */
static void test_links_are_not_followed(void **state)
{
        struct trees *t = *state;
        char *text;

        assert_int_equal(mkdirat(t->w.root_fd, "outside", 0755), 0);
        assert_int_equal(file_write_at(t->w.root_fd, "outside/f", "safe", 4, 0644, NULL), 0);
        mock_file(&t->was, "dir/f", "was");
        mock_file(&t->was, "file", "was");
        staged(t);
        assert_int_equal(unlinkat(t->w.ws, "dir/f", 0), 0);
        assert_int_equal(unlinkat(t->w.ws, "dir", AT_REMOVEDIR), 0);
        assert_int_equal(symlinkat("../outside", t->w.ws, "dir"), 0);
        assert_int_equal(unlinkat(t->w.ws, "file", 0), 0);
        assert_int_equal(symlinkat("../outside/f", t->w.ws, "file"), 0);
        mock_file(&t->now, "dir/f", "theirs");
        mock_file(&t->now, "dir/g", "theirs");
        mock_file(&t->now, "file", "theirs");
        merge(t);
        expect_text(t, "dir/f", "theirs");
        expect_text(t, "dir/g", "theirs");
        expect_text(t, "file", "theirs");
        world_read(&t->w, &t->got);
        assert_int_equal(mock_find(&t->got, "dir")->kind, TREE_DIR);
        assert_string_equal(mock_find(&t->got, KEPT("dir"))->text, "../outside");
        assert_string_equal(mock_find(&t->got, KEPT("file"))->text, "../outside/f");
        assert_int_equal(faccessat(t->w.root_fd, "outside/g", F_OK, 0), -1);
        text = world_text(&t->w, "../outside/f");
        assert_string_equal(text, "safe");
        free(text);
}

static void test_deletion_behind_a_link(void **state)
{
        struct trees *t = *state;

        assert_int_equal(mkdirat(t->w.root_fd, "outside", 0755), 0);
        assert_int_equal(file_write_at(t->w.root_fd, "outside/f", "was", 3, 0644, NULL), 0);
        mock_file(&t->was, "dir/f", "was");
        staged(t);
        assert_int_equal(unlinkat(t->w.ws, "dir/f", 0), 0);
        assert_int_equal(unlinkat(t->w.ws, "dir", AT_REMOVEDIR), 0);
        assert_int_equal(symlinkat("../outside", t->w.ws, "dir"), 0);
        mock_remove(&t->now, "dir/f");
        merge(t);
        assert_int_equal(faccessat(t->w.root_fd, "outside/f", F_OK, 0), 0);
}

/* A FIFO is neither opened, which would wait for ever, nor lost. */
static void test_what_is_no_file(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "gone", "was");
        staged(t);
        assert_int_equal(mkfifoat(t->w.ws, "pipe", 0600), 0);
        assert_int_equal(unlinkat(t->w.ws, "gone", 0), 0);
        assert_int_equal(mkfifoat(t->w.ws, "gone", 0600), 0);
        mock_file(&t->now, "pipe", "theirs");
        mock_remove(&t->now, "gone");
        merge(t);
        expect_text(t, "pipe", "theirs");
        world_read(&t->w, &t->got);
        assert_int_equal(mock_find(&t->got, KEPT("pipe"))->kind, TREE_UNKNOWN);
        assert_int_equal(mock_find(&t->got, "gone")->kind, TREE_UNKNOWN);
        assert_int_equal(t->w.report.left, 1);
}

/* An overlay tells by time alone what was changed here. */
static void test_told_by_time(void **state)
{
        struct trees *t = *state;
        struct tree_changes changes;
        struct tree ours = { 0 };

        mock_file(&t->was, "touched", "was");
        mock_file(&t->was, "untouched", "was");
        mock_file(&t->was, "deleted-touched", "was");
        mock_file(&t->was, "deleted", "was");
        staged(t);
        mock_assign(&ours, &t->was);
        mock_find(&ours, "touched")->mode = 0600; /* anything: the fixture makes a time of it */
        mock_find(&ours, "deleted-touched")->mode = 0600;
        mock_file(&t->now, "touched", "theirs");
        mock_file(&t->now, "untouched", "theirs");
        mock_remove(&t->now, "deleted-touched");
        mock_remove(&t->now, "deleted");
        mock_changes_init(&changes, &t->was, &t->now);
        changes.by_time = true;
        changes.ours = &ours;
        assert_int_equal(merge_apply(&t->w.op, t->w.ws, &changes.set, &t->w.options, &t->w.report,
                                     &t->w.err),
                         0);
        expect_text(t, "touched", "theirs");
        expect_text(t, KEPT("touched"), "was");
        expect_text(t, "untouched", "theirs");
        expect_text(t, "deleted-touched", "was");
        expect_absent(t, "deleted");
        assert_int_equal(t->w.report.n_conflicts, 1);
        assert_int_equal(t->w.report.left, 1);
        mock_done(&ours);
}

static int64_t staged_ns;

static const char *by_real_time(struct tree_changes *t, struct change *c)
{
        (void)t;
        c->has_was = false;
        c->was_by_time = true;
        c->staged_ns = staged_ns;
        return c->now.path;
}

static void wait_for_later_times(struct trees *t)
{
        struct timespec until, now;
        struct stat st;

        clock_gettime(CLOCK_REALTIME, &until);
        do {
                world_write(&t->w, "tick", "x");
                assert_int_equal(fstatat(t->w.ws, "tick", &st, 0), 0);
                now = st.st_ctim;
        } while (now.tv_sec < until.tv_sec ||
                 (now.tv_sec == until.tv_sec && now.tv_nsec <= until.tv_nsec));
        staged_ns = (int64_t)until.tv_sec * 1000000000 + until.tv_nsec;
}

/* A directory that was moved to where another one was brings files that are older than staging,
 * and still not those that were staged. */
static void test_by_time_in_a_directory_that_was_moved(void **state)
{
        struct trees *t = *state;
        struct tree_changes changes;

        mock_file(&t->was, "d/e/f", "was");
        mock_file(&t->was, "d/e/gone", "was");
        mock_file(&t->was, "same/f", "was");
        mock_file(&t->was, "v2/e/f", "second");
        mock_file(&t->was, "v2/e/gone", "second");
        staged(t);
        wait_for_later_times(t);
        assert_int_equal(renameat(t->w.ws, "d", t->w.ws, "v1"), 0);
        assert_int_equal(renameat(t->w.ws, "v2", t->w.ws, "d"), 0);
        mock_file(&t->now, "d/e/f", "theirs");
        mock_remove(&t->now, "d/e/gone");
        mock_file(&t->now, "same/f", "theirs");
        mock_changes_init(&changes, &t->was, &t->now);
        changes.edit = by_real_time;
        assert_int_equal(merge_apply(&t->w.op, t->w.ws, &changes.set, &t->w.options, &t->w.report,
                                     &t->w.err),
                         0);
        expect_text(t, "d/e/f", "theirs");
        expect_text(t, KEPT("d/e/f"), "second");
        expect_text(t, "d/e/gone", "second");
        expect_text(t, "same/f", "theirs");
        assert_int_equal(t->w.report.n_conflicts, 1);
}

/* Hostile change sets */

static const char *hostile_path;
static uint32_t hostile_mode;

static const char *make_hostile(struct tree_changes *c, struct change *change)
{
        (void)c;
        if (hostile_mode)
                change->now.mode = hostile_mode;
        return hostile_path ? hostile_path : change->now.path;
}

static int merge_hostile(struct trees *t)
{
        struct tree_changes changes;

        mock_changes_init(&changes, &t->was, &t->now);
        changes.edit = make_hostile;
        return merge_apply(&t->w.op, t->w.ws, &changes.set, &t->w.options, &t->w.report, &t->w.err);
}

static void test_hostile_paths(void **state)
{
        static const char *const paths[] = {
                "../out", "/tmp/berth-out", "a/../../out", "a//b", "", ".", "..", "a/", "./a",
        };
        struct trees *t = *state;

        staged(t);
        mock_file(&t->now, "f", "theirs");
        for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
                hostile_path = paths[i];
                assert_int_equal(merge_hostile(t), ERR_INVALID);
        }
        hostile_path = NULL;
        world_read(&t->w, &t->got);
        assert_int_equal(t->got.n, 0);
        assert_int_equal(faccessat(t->w.root_fd, "out", F_OK, 0), -1);
}

static void test_hostile_order(void **state)
{
        struct trees *t = *state;

        staged(t);
        mock_file(&t->now, "f", "theirs");
        mock_file(&t->now, "g", "theirs");
        hostile_path = "f"; /* twice */
        assert_int_equal(merge_hostile(t), ERR_INVALID);
        hostile_path = NULL;
        expect_nothing_ours(t);
}

static const char *beneath_a_file(struct tree_changes *c, struct change *change)
{
        (void)c;
        return streq(change->now.path, "g") ? "f/g" : change->now.path;
}

static void test_hostile_beneath_a_file(void **state)
{
        struct trees *t = *state;
        struct tree_changes changes;

        staged(t);
        mock_file(&t->now, "f", "theirs");
        mock_file(&t->now, "g", "theirs");
        mock_changes_init(&changes, &t->was, &t->now);
        changes.edit = beneath_a_file;
        assert_int_equal(merge_apply(&t->w.op, t->w.ws, &changes.set, &t->w.options, &t->w.report,
                                     &t->w.err),
                         ERR_INVALID);
        expect_nothing_ours(t);
}

static void test_hostile_mode(void **state)
{
        struct trees *t = *state;

        staged(t);
        mock_file(&t->now, "f", "theirs");
        hostile_mode = 06777;
        assert_int_equal(merge_hostile(t), 0);
        hostile_mode = 0;
        assert_int_equal(mode_of(t, "f"), 0777);
}

/* Bad moments */

static struct trees *disturbed;
static int (*open_quietly)(struct change_set *, const struct change *, int *, struct err *);

static int disturb(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        bool agrees = streq(c->now.path, "agreed");

        world_write(&disturbed->w, c->now.path, agrees ? "theirs" : "typed meanwhile");
        return open_quietly(s, c, ret_fd, err);
}

static int cancel(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        if (streq(c->now.path, "b"))
                op_cancel_set(disturbed->w.op.cancel);
        return open_quietly(s, c, ret_fd, err);
}

static int merge_with(struct trees *t,
                      int (*open)(struct change_set *, const struct change *, int *, struct err *))
{
        struct tree_changes changes;

        mock_changes_init(&changes, &t->was, &t->now);
        disturbed = t;
        open_quietly = changes.set.open;
        changes.set.open = open;
        return merge_apply(&t->w.op, t->w.ws, &changes.set, &t->w.options, &t->w.report, &t->w.err);
}

/* The place works on while its changes are merged: one file is gone, one has become longer. */
static int work_on(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        int r;

        if (streq(c->now.path, "gone"))
                return err_set(err, ERR_NOT_FOUND, "open %s", c->now.path);
        r = open_quietly(s, c, ret_fd, err);
        if (r >= 0 && streq(c->now.path, "longer")) {
                assert_int_equal(pwrite(*ret_fd, "something else", 14, 0), 14);
                assert_int_equal(ftruncate(*ret_fd, 14), 0);
        }
        return r;
}

static void test_changed_there_while_merging(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "longer", "was");
        staged(t);
        mock_file(&t->now, "gone", "theirs");
        mock_file(&t->now, "longer", "theirs");
        mock_file(&t->now, "z", "theirs");
        assert_int_equal(merge_with(t, work_on), 0);
        expect_absent(t, "gone");
        expect_text(t, "longer", "something else");
        expect_text(t, "z", "theirs");
        assert_int_equal(t->w.report.added, 1);
}

/* The owner of the workspace puts a file of root's where ours was: another name of it, or the file
 * itself, which root left in a directory of his. */
static void swap_temp(bool move)
{
        int fd = openat(disturbed->w.ws, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        const int root = disturbed->w.root_fd;
        DIR *d = fdopendir(fd);
        const struct dirent *e;

        assert_non_null(d);
        while ((e = readdir(d)) != NULL)
                if (str_starts(e->d_name, ".berth-tmp-")) {
                        assert_int_equal(unlinkat(fd, e->d_name, 0), 0);
                        assert_int_equal(move ? renameat(root, "secret", fd, e->d_name)
                                              : linkat(root, "secret", fd, e->d_name, 0),
                                         0);
                        break;
                }
        closedir(d);
}

static int swap_for_link(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        swap_temp(false);
        return open_quietly(s, c, ret_fd, err);
}

static int swap_for_file(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        swap_temp(true);
        return open_quietly(s, c, ret_fd, err);
}

static void test_owner_of_what_we_made_alone(void **state)
{
        struct trees *t = *state;

        if (geteuid() != 0)
                skip();
        staged(t);
        assert_int_equal(fchown(t->w.ws, 65534, 65534), 0);
        t->w.options.set_owner = true;
        mock_file(&t->now, "f", "theirs");
        for (int i = 0; i < 2; i++) {
                CLEAN(cleanup_fd)
                int secret = openat(t->w.root_fd, "secret", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
                struct stat st;

                assert_true(secret >= 0);
                assert_int_equal(merge_with(t, i ? swap_for_file : swap_for_link), ERR_CONFLICT);
                err_clear(&t->w.err);
                assert_int_equal(fstat(secret, &st), 0);
                assert_int_equal(st.st_uid, 0);
                assert_int_equal(st.st_mode & 0777, 0600);
        }
}

/* Somebody saves a file between the decision and the rename. */
static void test_edited_while_merging(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "f", "was");
        staged(t);
        mock_file(&t->now, "f", "theirs");
        mock_file(&t->now, "new", "theirs");
        mock_file(&t->now, "agreed", "theirs");
        assert_int_equal(merge_with(t, disturb), 0);
        expect_text(t, "f", "theirs");
        expect_text(t, KEPT("f"), "typed meanwhile");
        expect_text(t, "new", "theirs");
        expect_text(t, KEPT("new"), "typed meanwhile");
        assert_int_equal(t->w.report.n_conflicts, 2);
        expect_nothing_ours(t);
}

static void test_cancelled(void **state)
{
        struct trees *t = *state;
        struct op_cancel c;

        staged(t);
        mock_file(&t->now, "a", "theirs");
        mock_file(&t->now, "b", "theirs");
        assert_int_equal(op_cancel_init(&c, NULL), 0);
        t->w.op.cancel = &c;
        assert_int_equal(merge_with(t, cancel), ERR_CANCELLED);
        expect_nothing_ours(t);
        expect_clear_journal(t); /* or it would grow with every try */
        t->w.op.cancel = NULL;
        op_cancel_done(&c);
        merge(t);
        expect_text(t, "b", "theirs");
}

static int disturb_another(struct change_set *s, const struct change *c, int *ret_fd,
                           struct err *err)
{
        world_write(&disturbed->w, "agreed", "typed meanwhile");
        return open_quietly(s, c, ret_fd, err);
}

/* A journal that a damaged disk or an old version left: records that no merge wrote are passed
 * over, and the merge is done. */
static void test_a_journal_that_is_damaged(void **state)
{
        static const char *const kept[] = { "a.berth-local-x", "../lock", "/etc/passwd", "", "a/" };
        struct trees *t = *state;
        CLEAN(cleanup_free) char *huge = xcalloc(1, 100001);
        int fd = open(t->w.lock, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        memset(huge, 'h', 100000);
        mock_file(&t->was, "a", "1");
        staged(t);
        for (size_t i = 0; i <= ARRAY_LEN(kept); i++) {
                const char *k = i < ARRAY_LEN(kept) ? kept[i] : huge;

                assert_true(dprintf(fd, "C%s%c%s/x%c", k, 0, k, 0) > 0);
                assert_true(dprintf(fd, "Cz%c%s%c", 0, k, 0) > 0);
                assert_true(dprintf(fd, "D%s%cB%s%c", k, 0, k, 0) > 0);
        }
        assert_true(dprintf(fd, "?%s%cC", huge, 0) > 0);
        close(fd);
        mock_file(&t->now, "a", "theirs");
        merge(t);
        expect_text(t, "a", "theirs");
        assert_int_equal(t->w.report.n_conflicts, 0);
        expect_clear_journal(t);
}

/* Theirs was the same, so nobody fetched it; now it would be needed. The next try has it. */
static void test_edited_after_it_agreed(void **state)
{
        struct trees *t = *state;

        mock_file(&t->was, "agreed", "was");
        staged(t);
        world_write(&t->w, "agreed", "theirs");
        mock_put(&t->now, "agreed", TREE_FILE, 0755, "theirs");
        mock_file(&t->now, "other", "theirs");
        assert_int_equal(merge_with(t, disturb_another), ERR_CONFLICT);
        expect_text(t, "agreed", "typed meanwhile");
        expect_nothing_ours(t);
        merge(t);
        expect_text(t, "agreed", "theirs");
        expect_text(t, KEPT("agreed"), "typed meanwhile");
        expect_text(t, "other", "theirs");
}

static void test_one_at_a_time(void **state)
{
        struct trees *t = *state;
        int fd = open(t->w.lock, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        staged(t);
        mock_file(&t->now, "f", "theirs");
        assert_int_equal(flock(fd, LOCK_EX), 0);
        t->w.op.deadline_ms = clock_mono_ms();
        assert_int_equal(world_merge(&t->w, &t->was, &t->now, false), ERR_TIMEOUT);
        expect_absent(t, "f");
        t->w.op.deadline_ms = OP_NO_DEADLINE;
        close(fd);
        merge(t);
        expect_text(t, "f", "theirs");
}

static int refuse_before(void *ctx, struct op *op, struct err *err)
{
        struct trees *t = ctx;
        CLEAN(cleanup_fd) int fd = open(t->w.lock, O_RDWR | O_CLOEXEC);

        (void)op;
        assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), -1); /* it is held already */
        expect_absent(t, "f");
        return err_set(err, ERR_CONFLICT, "not now");
}

static void test_before(void **state)
{
        struct trees *t = *state;

        staged(t);
        mock_file(&t->now, "f", "theirs");
        t->w.options.before = refuse_before;
        t->w.options.ctx = t;
        assert_int_equal(world_merge(&t->w, &t->was, &t->now, false), ERR_CONFLICT);
        expect_absent(t, "f");
}

static void test_many(void **state)
{
        struct trees *t = *state;
        char path[32];

        staged(t);
        for (unsigned i = 0; i < 2500; i++) { /* several batches, and many directories */
                snprintf(path, sizeof(path), "d%03u/f%u", i % 50, i);
                mock_file(&t->now, path, path);
        }
        merge(t);
        world_read(&t->w, &t->got);
        mock_assert_equal(&t->got, &t->now, "many");
        assert_int_equal(t->w.report.added, 2550);
}

/* As many conflicts as a hostile place likes: reporting them ends, and each is told once. */
static void test_many_conflicts(void **state)
{
        enum { MANY = 200000 };
        struct merge_world *w = &((struct trees *)*state)->w;
        struct merge *m = xcalloc(1, sizeof(*m));
        char path[16], kept[32];
        size_t n = 0;

        m->op = &w->op;
        for (int i = 0; i < 2 * MANY; i++) {
                snprintf(path, sizeof(path), "%06d", i % MANY);
                snprintf(kept, sizeof(kept), "%s.berth-local", path);
                merge_report_conflict(m, path, kept);
        }
        for (const struct merge_conflict *c = m->report.conflicts; c; c = c->next) {
                snprintf(path, sizeof(path), "%06zu", n++);
                assert_string_equal(c->path, path);
        }
        assert_int_equal(n, MANY);
        assert_int_equal(m->report.n_conflicts, MANY);
        free(m->conflict_slots);
        free(m);
}

/* A hole comes home as a hole. */
static void test_holes_stay_holes(void **state)
{
        struct merge_world *w = &((struct trees *)*state)->w;
        const off_t size = (off_t)4 << 30;
        CLEAN(cleanup_fd) int from = openat(w->root_fd, "from", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CLEAN(cleanup_fd) int to = openat(w->root_fd, "to", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        char text[8] = { 0 };
        struct stat st;

        assert_int_equal(pwrite(from, "begin", 5, 0), 5);
        assert_int_equal(pwrite(from, "middle", 6, size / 2), 6);
        assert_int_equal(ftruncate(from, size), 0);
        assert_int_equal(content_copy(&w->op, from, to, (uint64_t)size, NULL, &w->err), 0);
        assert_int_equal(fstat(to, &st), 0);
        assert_int_equal(st.st_size, size);
        assert_true(st.st_blocks * 512 < (off_t)16 << 20);
        assert_int_equal(pread(to, text, 6, size / 2), 6);
        assert_string_equal(text, "middle");
        /* One that became shorter is no file that ends in a hole. */
        assert_int_equal(ftruncate(from, size / 2), 0);
        assert_int_equal(content_copy(&w->op, from, to, (uint64_t)size, NULL, &w->err),
                         ERR_CONFLICT);
}

static void test_owner(void **state)
{
        struct trees *t = *state;
        struct stat st;

        if (geteuid() != 0)
                skip();
        staged(t);
        assert_int_equal(fchown(t->w.ws, 12345, 54321), 0);
        mock_file(&t->now, "d/f", "theirs");
        mock_link(&t->now, "d/l", "theirs");
        t->w.options.set_owner = true;
        merge(t);
        for (size_t i = 0; i < t->now.n; i++) {
                assert_int_equal(fstatat(t->w.ws, t->now.nodes[i].path, &st, AT_SYMLINK_NOFOLLOW),
                                 0);
                assert_int_equal(st.st_uid, 12345);
                assert_int_equal(st.st_gid, 54321);
        }
}

/* A mount namespace of its own, with a small file system for the workspace: a full disk is an error
 * that says so, nothing is lost, and with room it goes on. Then something is mounted in it. */

static void in_small_workspace(struct trees *t)
{
        char *large = xcalloc(1, (512 << 10) + 1), path[SCRATCH_PATH_MAX + 32];

        memset(large, 'x', 512 << 10);
        world_write(&t->w, "f", "ours");
        world_write(&t->w, "ballast", large);
        mock_file(&t->was, "f", "was");
        mock_file(&t->now, "a", large);
        mock_file(&t->now, "f", large);
        assert_int_equal(world_merge(&t->w, &t->was, &t->now, false), ERR_IO);
        assert_non_null(strstr(t->w.err.msg, "No space left"));
        expect_text(t, "f", "ours");
        expect_nothing_ours(t);
        assert_int_equal(unlinkat(t->w.ws, "ballast", 0), 0);
        mock_file(&t->now, "f", "theirs");
        merge(t);
        expect_text(t, "f", "theirs");
        expect_text(t, KEPT("f"), "ours");

        assert_int_equal(mkdirat(t->w.ws, "mnt", 0755), 0);
        snprintf(path, sizeof(path), "%s/ws/mnt", t->w.root);
        assert_int_equal(mount("none", path, "tmpfs", 0, "size=64k"), 0);
        mock_assign(&t->was, &t->now);
        mock_file(&t->now, "mnt/f", "theirs");
        assert_int_equal(world_merge(&t->w, &t->was, &t->now, false), ERR_UNPROCESSABLE);
        assert_non_null(strstr(t->w.err.msg, "mount point"));
        expect_absent(t, "mnt/f");
        assert_int_equal(umount(path), 0);
        free(large);
}

static void test_full_disk_and_mounts(void **state)
{
        struct trees *t = *state;
        char path[SCRATCH_PATH_MAX + 16];
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                snprintf(path, sizeof(path), "%s/ws", t->w.root);
                if (unshare(CLONE_NEWNS) < 0 ||
                    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
                    mount("none", path, "tmpfs", 0, "size=1m") < 0)
                        _exit(77);
                close(t->w.ws);
                t->w.ws = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
                in_small_workspace(t);
                _exit(0); /* a failed assertion does not come here */
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
                skip();
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_restore),
                TEST(test_two_restores_of_one_baseline),
                TEST(test_both_changed),
                TEST(test_names_of_what_is_kept),
                TEST(test_deletions),
                TEST(test_modes),
                TEST(test_directory_becomes_file),
                TEST(test_file_becomes_directory),
                TEST(test_parents_that_went_away),
                TEST(test_other_names_keep_their_mode),
                TEST(test_links_are_not_followed),
                TEST(test_deletion_behind_a_link),
                TEST(test_what_is_no_file),
                TEST(test_told_by_time),
                TEST(test_by_time_in_a_directory_that_was_moved),
                TEST(test_hostile_paths),
                TEST(test_hostile_order),
                TEST(test_hostile_beneath_a_file),
                TEST(test_hostile_mode),
                TEST(test_changed_there_while_merging),
                TEST(test_owner_of_what_we_made_alone),
                TEST(test_edited_while_merging),
                TEST(test_edited_after_it_agreed),
                TEST(test_cancelled),
                TEST(test_one_at_a_time),
                TEST(test_a_journal_that_is_damaged),
                TEST(test_before),
                TEST(test_many),
                TEST(test_many_conflicts),
                TEST(test_holes_stay_holes),
                TEST(test_owner),
                TEST(test_full_disk_and_mounts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
