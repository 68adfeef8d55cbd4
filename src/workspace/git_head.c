/* How the host's branch moves: by fast-forward, by a merge, or not at all. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/content.h"
#include "workspace/git_internal.h"

/* How the host's index follows its branch, and when it is left as it was. */

/* The host's index. git works on a copy in our repository; the result takes the place of the host's
 * under the lock that git programs use, if that is still the one that was copied. So the lock is
 * held for a moment only. Where the host's repository belongs to another user, so does ours: a file
 * there is read only if it belongs to that user, or every user may read it. */

static const char empty_tree[] = "4b825dc642cb6eb9a060e54bf8d69288fbee4904";

#define TEMPORARY "index.berth-tmp"

static bool same_file(const struct stat *a, const struct stat *b)
{
        return a->st_ino == b->st_ino && a->st_size == b->st_size &&
               a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static int copy_index(struct git_import *g, int from, int to, struct err *err)
{
        struct stat st;

        if (fstat(from, &st) < 0)
                return err_sys(err, ERR_IO, errno, "look at the index");
        return content_copy(g->op, from, to, (uint64_t)st.st_size, NULL, err);
}

static int open_ours(const struct git_import *g, int *ret, struct err *err)
{
        return g->owner.uid ? path_open_plain(g->host_fd, GIT_IMPORT, O_RDONLY | O_DIRECTORY, 0,
                                              ret, err)
                            : path_open_plain(g->scratch_fd, "repo", O_RDONLY | O_DIRECTORY, 0, ret,
                                              err);
}

/* A file of that name that may be read, or below 0 with errno. */
static int open_index(const struct git_import *g, int dir, struct stat *ret)
{
        CLEAN(cleanup_fd)
        int fd = openat(dir, "index", O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);

        if (fd < 0)
                return -1;
        if (fstat(fd, ret) < 0 || !S_ISREG(ret->st_mode) ||
            (g->owner.uid && ret->st_uid != g->owner.uid && !(ret->st_mode & S_IROTH))) {
                errno = EACCES;
                return -1;
        }
        return take_fd(&fd);
}

/* 1 with what was copied, 0 when it is nothing that can be. No index is an empty one (st_ino 0). */
static int copy_out(struct git_import *g, int ours, struct stat *ret, struct err *err)
{
        CLEAN(cleanup_fd) int from = -1;
        CLEAN(cleanup_fd) int to = -1;

        *ret = (struct stat){ 0 };
        (void)unlinkat(ours, "index", 0);
        from = open_index(g, g->host_fd, ret);
        if (from < 0)
                return errno == ENOENT;
        to = openat(ours, "index", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (to < 0 || (g->owner.uid && fchown(to, g->owner.uid, (gid_t)-1) < 0))
                return err_sys(err, ERR_IO, errno, "create %s/index", g->repository);
        int r = copy_index(g, from, to, err);
        return r < 0 ? r : 1;
}

/* A lock that we died with is another name of the file that was to become the index. */
static void drop_own_lock(int dir)
{
        struct stat lock, temporary;

        if (fstatat(dir, "index.lock", &lock, AT_SYMLINK_NOFOLLOW) == 0 &&
            fstatat(dir, TEMPORARY, &temporary, AT_SYMLINK_NOFOLLOW) == 0 &&
            lock.st_dev == temporary.st_dev && lock.st_ino == temporary.st_ino)
                (void)unlinkat(dir, "index.lock", 0);
}

static int write_beside(struct git_import *g, int ours, const struct stat *old, struct err *err)
{
        CLEAN(cleanup_fd) int from = -1;
        CLEAN(cleanup_fd) int to = -1;
        const int dir = g->host_fd;
        struct stat made, owner;

        drop_own_lock(dir);
        (void)unlinkat(dir, TEMPORARY, 0);
        to = openat(dir, TEMPORARY, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
        from = open_index(g, ours, &made);
        if (from < 0 || to < 0 || fstat(dir, &owner) < 0)
                return err_sys(err, ERR_IO, errno, "create %s/" TEMPORARY, g->host);
        if (geteuid() == 0 && fchown(to, owner.st_uid, owner.st_gid) < 0)
                return err_sys(err, ERR_IO, errno, "change the owner of the index");
        int r = copy_index(g, from, to, err);
        if (r >= 0 && (fchmod(to, old->st_ino ? old->st_mode & 0666 : 0644) < 0 || fsync(to) < 0))
                r = err_sys(err, ERR_IO, errno, "sync the index");
        return r;
}

/* 1, or 0 when another program works on it or has done so. */
static int put_back(struct git_import *g, int ours, const struct stat *old, struct err *err)
{
        const int dir = g->host_fd;
        struct stat now = { 0 };
        int r = write_beside(g, ours, old, err);

        FAULT("workspace.git.index.before");
        if (r >= 0 && linkat(dir, TEMPORARY, dir, "index.lock", 0) == 0) {
                FAULT("workspace.git.index.locked");
                if ((fstatat(dir, "index", &now, AT_SYMLINK_NOFOLLOW) == 0 || errno == ENOENT) &&
                    same_file(&now, old) && renameat(dir, "index.lock", dir, "index") == 0)
                        r = 1;
                else
                        (void)unlinkat(dir, "index.lock", 0);
        }
        (void)unlinkat(dir, TEMPORARY, 0);
        FAULT("workspace.git.index.after");
        return r;
}

/* The index as it was, with the changes between the two commits: staged changes stay, or git
 * refuses. Working files are not looked at, so no filter runs. */
static int change(struct git_import *g, const char *old, const char *new, struct err *err)
{
        const char *const args[] = { "read-tree", "-i", "-m", *old ? old : empty_tree, new, NULL };
        const char *said;
        int status;
        int r = git_run(
                g,
                &(struct git_run){ .args = args,
                                   .index = arena_printf(g->op->arena, "%s/index", g->repository) },
                NULL, &status, &said, err);

        return r < 0 ? r : status == 0;
}

/* What changed between two commits ("": none), into the host's index. *ret_stale: it
 * is as it was, since something is in the way. */
static int git_move_index(struct git_import *g, const char *old, const char *new, bool *ret_stale,
                          struct err *err)
{
        CLEAN(cleanup_fd) int ours = -1;
        struct stat copied;
        int r = open_ours(g, &ours, err);

        if (r < 0 && g->owner.uid) { /* its owner took it away */
                err_clear(err);
                *ret_stale = true;
                return 0;
        }
        if (r >= 0)
                r = copy_out(g, ours, &copied, err);
        if (r > 0)
                r = change(g, old, new, err);
        if (r > 0)
                r = put_back(g, ours, &copied, err);
        *ret_stale = r == 0;
        return r < 0 ? r : 0;
}

/* The host's branch. */

#define SWAP_TRIES 5
#define SHIELD_MS  30000
#define MOVED      "moved" /* "<old> <new> <ref>": a move that may have happened, without the index */

static int note_move(struct git_import *g, const char *old, const char *new, const char *ref,
                     struct err *err)
{
        const char *text = arena_printf(g->op->arena, "%s %s %s", *old ? old : "-", new, ref);

        return file_write_at(g->scratch_fd, MOVED, text, strlen(text), 0600, err);
}

/* The branch has moved: the index follows also when the caller no longer waits. */
static int finish_head(struct git_import *g, const char *old, const char *new,
                       struct git_report *ret, struct err *err)
{
        struct op shield = op_shield(g->op, SHIELD_MS), *op = g->op;

        g->op = &shield;
        int r = git_move_index(g, old, new, &ret->index_stale, err);
        g->op = op;
        if (r < 0)
                return r;
        ret->head = arena_strdup(g->op->arena, new);
        (void)unlinkat(g->scratch_fd, MOVED, 0);
        return 0;
}

int git_finish_move(struct git_import *g, struct git_report *ret, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char old[GIT_HEX + 1], new[GIT_HEX + 1], ref[GIT_NAME_MAX + 1], now[GIT_HEX + 1];
        int r = file_read_at(g->scratch_fd, MOVED, 4096, &text, err);

        if (r == ERR_NOT_FOUND)
                return 0;
        if (r < 0)
                return r;
        if (sscanf(buf_str(&text), "%40s %40s %250s", old, new, ref) != 3)
                return 0;
        git_host_ref(g, ref, now);
        return streq(now, new) ? finish_head(g, streq(old, "-") ? "" : old, new, ret, err) : 0;
}

/* Histories that do not come together are both kept. */
static int keep_apart(struct git_import *g, const char *theirs, const char *why,
                      struct git_report *ret, struct err *err)
{
        const char *ref = arena_printf(g->op->arena, "refs/berth/conflict/%s", g->options->stamp);
        const char *said;
        int r = git_swap(g, ref, theirs, "", &said, err);

        if (r < 0)
                return r;
        if (r > 0)
                ret->conflict_ref = ref;
        ret->note = r > 0 ? why : arena_printf(g->op->arena, "%s; %s: %s", why, ref, said);
        return 0;
}

/* 1 with a merge commit that the host has; 0 when the two do not merge, *ret_why. */
static int merge_heads(struct git_import *g, const char *ours, const char *theirs,
                       char ret[GIT_HEX + 1], const char **ret_why, struct err *err)
{
        const char *const merge_args[] = { "merge-tree", "--write-tree", "--name-only",
                                           ours,         theirs,         NULL };
        CLEAN(buf_done) struct buf tree = BUF_INIT;
        CLEAN(buf_done) struct buf commit = BUF_INIT;
        const char *said, *message;
        int status,
                r = git_run(g, &(struct git_run){ .args = merge_args }, &tree, &status, &said, err);

        if (r < 0)
                return r;
        *ret_why = status == 1 ? "both sides have commits that do not merge" : said;
        if (status != 0 || tree.len < GIT_HEX)
                return 0;
        tree.data[GIT_HEX] = '\0';
        message = arena_printf(g->op->arena, "Paperclip SSH sync merge %.12s", theirs);
        const char *const commit_args[] = { "commit-tree", tree.data, "-p",    ours, "-p",
                                            theirs,        "-m",      message, NULL };

        r = git_run(g, &(struct git_run){ .args = commit_args }, &commit, &status, &said, err);
        if (r < 0)
                return r;
        if (status != 0 || !git_parse_oid(buf_str(&commit), commit.len, ret))
                return err_set(err, ERR_PROVIDER, "git commit-tree: %s", said);
        return git_transfer(g, buf_str(&commit), ret_why, err);
}

/* What HEAD should become: 1 with a commit, 0 when nothing is to be done (any more). */
static int decide(struct git_import *g, const char *ours, const char *theirs, const char *from,
                  char ret_new[GIT_HEX + 1], struct git_report *ret, struct err *err)
{
        const bool same = from && g->host_branch && streq(from, g->host_branch);
        bool behind = false, ahead = false, is_new = same;
        const char *why = NULL;
        int r = 0;

        memcpy(ret_new, theirs, GIT_HEX + 1);
        if (!*ours)
                return 1;
        r = git_is_ancestor(g, theirs, ours, &behind, err);
        if (r < 0 || behind)
                return r;
        /* Elsewhere than on our branch only commits that the host does not have are work that was
         * done; the rest was only looked at. */
        if (!same)
                r = git_is_new(g, theirs, &is_new, err);
        if (r >= 0 && is_new)
                r = git_is_ancestor(g, ours, theirs, &ahead, err);
        if (r < 0 || !is_new)
                return r;
        if (ahead)
                return 1;
        if (!same && from)
                return 0; /* a branch of its own: it comes as that */
        r = merge_heads(g, ours, theirs, ret_new, &why, err);
        return r == 0 ? keep_apart(g, theirs, why, ret, err) : r;
}

int git_integrate(struct git_import *g, const char *theirs, const char *from,
                  struct git_report *ret, struct err *err)
{
        const char *said = "", *ref;
        char ours[GIT_HEX + 1], new[GIT_HEX + 1];
        int r;

        for (int i = 0; i < SWAP_TRIES; i++) {
                git_host_ref(g, "HEAD", ours);
                r = decide(g, ours, theirs, from, new, ret, err);
                if (r <= 0)
                        return r;
                ref = g->host_branch ? g->host_branch : "HEAD";
                r = note_move(g, ours, new, ref, err);
                if (r < 0)
                        return r;
                FAULT("workspace.git.ref.before");
                r = git_swap(g, ref, new, ours, &said, err);
                FAULT("workspace.git.ref.after");
                if (r < 0)
                        return r;
                if (r > 0) {
                        ret->merged = !streq(new, theirs);
                        r = finish_head(g, ours, new, ret, err);
                        return r < 0 ? r : git_host_refs(g, err);
                }
                r = git_host_refs(g, err);
                if (r < 0)
                        return r;
        }
        return keep_apart(g, theirs,
                          arena_printf(g->op->arena, "the branch could not be moved: %s", said),
                          ret, err);
}
