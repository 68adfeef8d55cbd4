/* Commits that were made elsewhere, brought into the host's own repository (remote-execution 4.6).
 *
 * A workspace whose root is a git repository travels with its `.git`, so commits made there come
 * home as changed files in it. Those are never merged file by file: a configuration, a hook or an
 * index that a box wrote must not get into a repository that people and programs use here. Instead
 *
 *   1. git_import_filter() stands in front of the merge. It takes the content of `.git` out of the
 *      change set: objects and packs into a scratch directory of ours, HEAD and refs into memory,
 *      nothing else. In repositories further down, of whatever name (git_guard.c), and where the
 *      host has none, files come as always, without what would make git run something
 *      (configuration, hooks, links elsewhere).
 *   2. git_import_apply() reads the objects into a repository of our own with a fixed
 *      configuration, where git computes every name anew, packs what is reachable from the new refs
 *      and not from the host's (which fails unless all of it is there), and puts that one pack
 *      into the host's repository.
 *   3. The host's branch moves by compare-and-swap: fast-forward, or a merge commit when both sides
 *      have new commits. Histories that cannot be merged are kept, theirs as
 *      refs/berth/conflict/<stamp>; the files come by the merge of files in any case.
 *   4. The index follows the branch, with what was staged kept; no file in the workspace is read.
 *
 * New branches and tags are created under their names; of those that exist here already, branches
 * follow by fast-forward, and everything else is kept as refs/berth/<stamp>/….
 *
 * git runs with the rights of the owner of the host's repository. The owner can put a link anywhere
 * in it at any moment, so nothing that looks at the repository before git does would keep git from
 * following it. A daemon that is root becomes the owner (rt/become.h); our repository is then
 * .git/berth-import while it lasts, because the owner cannot reach our files. Any other daemon
 * brings no commits into a repository that is not its own user's.
 *
 * No git of ours ever runs in a repository that a box wrote, and none reads a configuration beyond
 * the host repository's own, of which hooks, monitors and protocols are turned off.
 *
 * Doing it again after a crash comes to the same end. Blocking; operation threads. */
#pragma once

#include "rt/op.h"
#include "workspace/change.h"

enum git_kind {
        GIT_NONE,       /* no `.git` in the workspace, or one that a place made: files */
        GIT_REPOSITORY, /* a directory */
        GIT_ELSEWHERE,  /* a file or link (a worktree, a submodule): `.git` is left alone */
};

enum git_kind git_kind(int workspace_fd);

struct git_kept {
        struct git_kept *next;
        const char *name; /* in the place: "refs/heads/x" */
        const char *here; /* under which name it is kept */
};

struct git_report {
        const char *head;         /* the commit that HEAD moved to; NULL: it did not */
        bool merged;              /* that is a merge commit of ours */
        const char *conflict_ref; /* histories that could not be merged: theirs is there */
        bool index_stale;         /* staged changes stood in the way: the index is as it was */
        struct git_kept *kept;    /* other branches and tags that came */
        uint64_t refused;         /* changes in git directories that are never taken */
        const char *first_refused;
        const char *note; /* why commits were not taken, for people; NULL: nothing to say */
};

struct git_import;

/* `scratch`: an absolute path of ours, made when it is missing; the same one when it is done again.
 * The caller removes it once it was applied. NULL: only filter, nothing is kept and there is
 * nothing to apply. The operation outlives it. */
int git_import_new(struct op *op, int workspace_fd, const char *scratch, struct git_import **ret,
                   struct err *err);
/* `from` without what the import takes; neither owns the other. Once it came to its end, the import
 * has everything. */
struct change_set *git_import_filter(struct git_import *g, struct change_set *from);

struct git_options {
        const char *workspace; /* absolute */
        const char *program;   /* our own, by which git is run as the owner (rt/become.h); may be
                                  NULL */
        const char *stamp;     /* as in merge.h */
};

/* Below 0 when we failed; commits that are refused or do not fit are told in the report. */
int git_import_apply(struct git_import *g, const struct git_options *options,
                     struct git_report *ret, struct err *err);
void git_import_free(struct git_import *g);
