/* Bringing changes home: the three-way merge of baseline, what the host has now, and what was
 * changed elsewhere (remote-execution 2.8, with both sides of a conflict kept).
 *
 *   - changed there, as staged here: taken over.
 *   - changed there and here: theirs takes the path, ours is kept beside it as
 *     <name>.berth-local-<time> and reported; the same content on both sides is no conflict.
 *   - deleted there: deleted here only if it is still as staged; a directory only when it is empty.
 *   - a change of mode alone applies when ours is unchanged; one that a umask explains is none. A
 *     mode that was changed here stays when they change the content.
 *   - excluded paths, and what is only here, are never read, written or deleted.
 *
 * One workspace at a time (flock on a file beside our own records, not in the workspace). Files
 * are written under a temporary name, synced together, then renamed: a path holds the old content
 * or the new one, whatever happens. Doing it again after a crash comes to the same end.
 *
 * Every path is opened beneath the workspace, part by part, no symlink followed: what a hostile
 * change set can do is bounded by the workspace. Set-id bits, devices and hard links do not exist
 * here. Blocking; operation threads. */
#pragma once

#include "rt/op.h"
#include "workspace/budget.h"
#include "workspace/change.h"

struct merge_conflict {
        struct merge_conflict *next;
        struct merge_conflict *chain; /* the merge's own */
        const char *path, *kept;      /* in the operation's arena; `kept` relative too */
};

struct merge_report {
        uint64_t added, changed, deleted, bytes;
        uint64_t left; /* deletions that a local change outweighed */
        struct merge_conflict *conflicts;
        size_t n_conflicts;
};

struct merge_options {
        /* A file of the workspace's own, outside of it: locked (flock) while the merge works, so
         * the caller must not hold it. The merge keeps its journal in it. A dry run needs none. */
        const char *lock_path;
        const struct excludes *excludes;
        /* "20261115T101500Z": the <time> of what is kept; best the same when it is done again. */
        const char *stamp;
        /* Files that grew since their change was read are taken from it; may be NULL. */
        struct budget *budget;
        uint32_t umask; /* of the other side: modes that differ by it alone are the same */
        bool set_owner; /* give what is made to the owner of the workspace's root */
        bool dry_run;   /* only report */
        /* Under the lock, before the first change; may be NULL. */
        int (*before)(void *ctx, struct op *op, struct err *err);
        void *ctx;
        void (*progress)(void *ctx, const struct merge_report *so_far);
};

int merge_apply(struct op *op, int workspace_fd, struct change_set *changes,
                const struct merge_options *options, struct merge_report *ret, struct err *err);
