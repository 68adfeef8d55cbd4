/* Worktrees: a directory with a repository of its own, on a branch, for work that is kept apart
 * until it is merged.
 *
 * A worktree of git's own has a file for its `.git`, which means nothing in a sandbox or on another
 * host. So ours is a repository: it has the history of its branch, works in every place, and its
 * commits come home like those of any workspace (git.h). The work of its branch is then published:
 * the branch of the same name in the project's repository follows it, by fast-forward only.
 *
 * git runs on both under the rules of git.h: the configuration that counts is the project's
 * repository's own, hooks, monitors, filters and protocols are off, and none of git reads a
 * configuration that was written in the worktree. Only repositories of our own user.
 *
 * Making one again after a crash begins from the start, beside its directory; the directory appears
 * whole or not at all. Blocking; operation threads. */
#pragma once

#include "workspace/git.h"

struct git_worktree {
        const char *repository; /* absolute: the directory with the project's `.git` */
        int repository_fd;
        const char *dir;    /* absolute: where the worktree is, or is to be */
        const char *branch; /* "acm-1-login" */
        const char *base; /* what a new branch begins with, and is to be merged into; NULL: HEAD */
        const char *scratch; /* as in git.h */
        const char *stamp;   /* as in git.h */
};

/* Whether git takes it for the name of a branch. */
bool git_branch_ok(const char *branch);

/* ERR_UNPROCESSABLE when the repository cannot be used, or has no such base. */
int git_worktree_make(struct op *op, const struct git_worktree *w, struct err *err);

struct git_worktree_state {
        const char *tip;             /* its commit; NULL: the branch is gone there */
        bool is_published;           /* the project's repository has the commit in its refs */
        bool is_merged;              /* base has it */
        int64_t ahead, behind;       /* commits, of base */
        int64_t modified, untracked; /* files that are in no commit; ignored ones do not count */
};
int git_worktree_look(struct op *op, const struct git_worktree *w, struct git_worktree_state *ret,
                      struct err *err);
/* The report says under which name the commits are there (`kept`), or why not (`note`). */
int git_worktree_publish(struct op *op, const struct git_worktree *w, struct git_report *ret,
                         struct err *err);
