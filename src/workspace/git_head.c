/* How the host's branch moves: by fast-forward, by a merge, or not at all. */
#define _GNU_SOURCE
#include <stdio.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fd.h"
#include "workspace/git_internal.h"

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
        if (r == 0)
                return keep_apart(g, theirs, why, ret, err);
        return r;
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
