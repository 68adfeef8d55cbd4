/* Workspaces of leases: a directory of the operator is brought into a place, and the changes made
 * there are brought home (docs/workspaces.md).
 *
 * A lease has at most one workspace at a time (store/workspaces.h). Its life:
 *
 *   stage     staging committed | the way brings it in | staged committed
 *   restore   restoring, step `collecting` | the way collects the changes
 *             step `merging` committed     | it is merged into the directory (workspace/merge.h)
 *             step `settling` committed    | the way takes what was collected as the new baseline
 *             staged committed
 *   give up   the salvage's intent committed | changes not brought home are saved as a bundle
 *             salvage and step `saved` committed | the way removes it there | ended committed
 *
 * Every move is a compare-and-set on state and epoch; at any time at most one thread of this
 * process works on a workspace (workspace_host.h). A crash between any two of these steps leaves a
 * row that workspace_sweep() takes up: a stage is undone; a restore that had begun to merge is
 * completed, any other goes back to `staged`.
 *
 * Before a place is given up in any way but a release after a restore, the changes are saved as a
 * salvage, unless the operator said `discard`.
 *
 * The engine (src/workspace) knows trees; a way (below) knows how a kind of place is reached;
 * the files core/workspaces/workspace_*.c decide what happens when. Operation threads. */
#pragma once

#include "core/places/lease_record.h"
#include "store/salvages.h"
#include "store/workspaces.h"
#include "workspace/bundle.h"
#include "workspace/git.h"
#include "workspace/merge.h"
#include "workspace/scan.h"

/* One staged workspace, as a way sees it. */
struct workspace {
        const char *id, *lease_id, *place_id;
        const char *local_path; /* canonical, beneath a workspace root */
        const char *cwd;        /* in the place; NULL until staged */
        const char *isolation;  /* "overlay", "copy"; NULL: the way chooses */
        struct excludes excludes;
        const char *dir;   /* of ours: <data>/workspaces/<id>, for manifests and bundles */
        int64_t staged_ns; /* realtime clock: files changed on the host since have a later time */
};

/* Open its directory on this machine, or its replacement (workspace_salvage.c), and check that it
 * is still the directory that was allowed. */
int workspace_open_local(const struct runtime *rt, const struct workspace *w, int *ret_fd,
                         struct err *err);

struct stage_result {
        const char *cwd;
        uint64_t files, bytes, sent_bytes;
};

typedef void (*workspace_progress_fn)(void *ctx, const char *phase, uint64_t done, uint64_t total);

/* How a workspace gets into a place and back. Functions may be called again after a crash and lead
 * to the same result. */
struct workspace_way {
        const char *name; /* recorded: "overlay", "copy", "sync", "archive", "in_place" */
        /* Whether it works for this place; *ret_why says what is missing. NULL: it does. */
        bool (*usable)(const struct runtime *rt, const struct place *place, const char **ret_why);
        /* Bring it in. What an earlier attempt left there does no harm. */
        int (*stage)(struct op *op, struct runtime *rt, const struct place *place,
                     const struct workspace *w, workspace_progress_fn progress, void *ctx,
                     struct stage_result *ret, struct err *err);
        /* The changes since, ready to be merged; the caller closes the set. A way that fetches them
         * first makes a bundle of them in <w->dir>/WORKSPACE_BUNDLE, in place of the one that is
         * there: as long as the restore is not over, this bundle is merged again after a crash.
         * *ret_umask as in merge.h. ERR_NOT_FOUND: the place does not exist any more, and its
         * changes are gone. NULL: there is never anything to bring home (in_place). */
        int (*collect)(struct op *op, struct runtime *rt, const struct place *place,
                       const struct workspace *w, workspace_progress_fn progress, void *ctx,
                       struct change_set **ret, uint32_t *ret_umask, struct err *err);
        /* The changes are merged: the tree that the last collect() saw (not the present one) is the
         * new baseline. NULL: nothing to do. */
        int (*settle)(struct op *op, struct runtime *rt, const struct place *place,
                      const struct workspace *w, struct err *err);
        /* Nothing of it is needed there any more. Also after a stage that failed half way. NULL:
         * nothing to do. */
        int (*unstage)(struct op *op, struct runtime *rt, const struct place *place,
                       const struct workspace *w, struct err *err);
        /* The next workspace of the same lease uses the same directory, and stage() sends only what
         * differs: a workspace that is replaced is left there. */
        bool is_replaced;
        bool works_dead;      /* collect() needs no living box (an upper layer on this machine) */
        bool dies_with_place; /* closing the place is enough: no unstage() before it */
        bool needs_world;     /* something outside the database is made for it */
};

#define WORKSPACE_BUNDLE "bundle"

/* The limits of one restore or one salvage; a new set for each. */
struct budget workspace_budget(const struct runtime *rt);

/* The way for a place and an isolation, or ERR_UNPROCESSABLE with a text that says what to do. */
int workspace_way_for(const struct runtime *rt, const struct place *place, const char *isolation,
                      const struct workspace_way **ret, struct err *err);

extern const struct workspace_way workspace_sync;     /* a box anywhere (workspace/sync.h) */
extern const struct workspace_way workspace_archive;  /* plain execute: tar in commands */
extern const struct workspace_way workspace_in_place; /* the directory itself: local */

struct stage_request {
        const char *local_path;
        const char *isolation;      /* NULL: default */
        const char *const *exclude; /* NULL-terminated; may be NULL */
};

/* What restores did or would do. In the operation's arena. */
struct restore_report {
        struct merge_report merge;
        struct git_report git; /* commits that came along */
        int64_t duration_ms;
        const char
                *changes; /* the first of them, as a JSON array like a diff's; NULL: not listed */
};

/* Bring a directory in. A workspace that the lease already has is given up first: its changes that
 * were not brought home are saved. *ret_row is the row, staged. */
int workspace_stage(struct op *op, struct runtime *rt, const struct lease_record *record,
                    const struct stage_request *req, struct workspace_row *ret_row,
                    struct err *err);
/* Bring the changes home. local_path NULL: to the directory it was staged from. */
int workspace_restore(struct op *op, struct runtime *rt, const struct lease_record *record,
                      const char *local_path, struct restore_report *ret, struct err *err);
/* What a restore would do, without doing it: {changes: [...], conflicts: [...], ...} as JSON. */
int workspace_diff(struct op *op, struct runtime *rt, const struct lease_record *record,
                   bool with_text, struct buf *ret_json, struct err *err);
/* The operator does not want the changes that were not brought home: the workspace ends, nothing is
 * saved. */
int workspace_discard(struct op *op, struct runtime *rt, const struct lease_record *record,
                      struct workspace_row *ret_row, struct err *err);
/* The newest workspace of a lease; ERR_NOT_FOUND. */
int workspace_get(struct op *op, struct runtime *rt, const char *lease_id,
                  struct workspace_row *ret, struct err *err);

/* Before a place is given up or goes back into stock: save the changes that were not brought home,
 * and end the place's workspaces. 0 also when there is nothing to save. An error leaves the
 * workspace as it is, and the caller asks again. Where that can never help (the place is dead, and
 * the way needs it alive) the loss is recorded, on the lease too, and the result is 0. `lease_id`
 * NULL: the workspaces of all leases, whose commands are ended first. `reason` NULL: how the lease
 * ended. */
int workspace_give_up(struct op *op, struct runtime *rt, const struct place *place,
                      const char *lease_id, const char *reason, struct err *err);
/* The same for a lease whose next workspace uses the way `next`. */
int workspace_replace(struct op *op, struct runtime *rt, const struct place *place,
                      const char *lease_id, const struct workspace_way *next, struct err *err);
/* Whether a thread works on a workspace of the place just now. */
bool workspace_is_busy(struct op *op, struct runtime *rt, const char *place_id);
/* Inside a transaction that ends a lease whose place has no world: nothing can be lost. */
int workspace_end_worldless(struct db *db, const struct runtime *rt, const char *place_id,
                            struct arena *arena, struct err *err);

/* Workspaces that no thread works on are taken up, one environment at a time, as in sweeper.h;
 * first at start. */
struct sweep_list;
int workspace_sweep_look(struct op *op, struct runtime *rt, struct sweep_list *list,
                         struct err *err);
int workspace_sweep(struct op *op, struct runtime *rt, const char *environment_id, struct err *err);
/* Files of ended workspaces are removed from this machine. */
int workspace_tidy(struct op *op, struct runtime *rt, struct err *err);

/* The directory in which commands of a lease start when they name none: that of its workspace, from
 * the lease's metadata; NULL: there is none. */
const char *workspace_default_cwd(struct arena *arena, const struct lease *lease);

/* Saved changes; rights are checked by the functions themselves. */
int salvage_list(struct op *op, struct runtime *rt, const char *company_id, int64_t before_us,
                 const char *before_id, int64_t limit, salvage_fn fn, void *ctx, struct err *err);
int salvage_get(struct op *op, struct runtime *rt, const char *id, struct salvage *ret,
                struct err *err);
/* What applying it would do, as workspace_diff(). */
int salvage_diff(struct op *op, struct runtime *rt, const struct salvage *s, bool with_text,
                 struct buf *ret_json, struct err *err);
/* Merge it; local_path NULL: into the directory it was staged from. */
int salvage_apply(struct op *op, struct runtime *rt, const char *id, const char *local_path,
                  struct restore_report *ret, struct err *err);
int salvage_drop(struct op *op, struct runtime *rt, const char *id, struct salvage *ret,
                 struct err *err);

/* {added, changed, deleted, left, conflicts: [{path, kept}], bytes, git, durationMs}; `git` is
 * null, or {head, merged, conflictRef, indexStale, kept: [{name, here}], refused, firstRefused,
 * note}. */
void restore_report_encode(struct jw *w, const struct restore_report *report);
