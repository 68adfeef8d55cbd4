/* Workspaces of leases: a directory of the operator brought into a place, and what was changed
 * there brought home (docs/workspaces.md).
 *
 * A lease has at most one workspace at a time (store/workspaces.h). Its life: staging -> staged ->
 * restoring -> staged, in the end ended; every move is a compare-and-set. What was changed is saved
 * as a salvage before a place is given up in any way but a release after a restore.
 *
 * The engine (src/workspace) knows trees; a way (below) knows how a kind of place is reached;
 * this file decides what happens when. Operation threads. */
#ifndef BERTH_CORE_WORKSPACE_H
#define BERTH_CORE_WORKSPACE_H

#include "core/lease.h"
#include "workspace/bundle.h"
#include "workspace/merge.h"
#include "workspace/scan.h"

/* One staged workspace, as a way sees it. */
struct workspace {
        const char *id, *lease_id, *place_id;
        const char *local_path; /* canonical, beneath a workspace root */
        const char *cwd;        /* in the place; NULL until staged */
        const char *isolation;  /* "overlay", "copy"; NULL: what the way likes best */
        struct excludes excludes;
        const char *dir;   /* of ours: <data>/workspaces/<id>, for manifests and bundles */
        int64_t staged_ns; /* realtime clock when staging began */
};

struct stage_result {
        const char *cwd;
        uint64_t files, bytes, sent_bytes;
};

typedef void (*workspace_progress_fn)(void *ctx, const char *phase, uint64_t done, uint64_t total);

/* How a workspace gets into a place and back. Functions may be called again after a crash and come
 * to the same end. */
struct workspace_way {
        const char *name; /* recorded: "overlay", "copy", "sync", "archive", "in_place" */
        /* Bring it in. */
        int (*stage)(struct op *op, struct runtime *rt, const struct place *place,
                     const struct workspace *w, workspace_progress_fn progress, void *ctx,
                     struct stage_result *ret, struct err *err);
        /* What was changed since, ready to be merged; the caller closes it. May fetch it into
         * w->dir first. *ret_umask as in merge.h. */
        int (*collect)(struct op *op, struct runtime *rt, const struct place *place,
                       const struct workspace *w, workspace_progress_fn progress, void *ctx,
                       struct change_set **ret, uint32_t *ret_umask, struct err *err);
        /* The changes are merged: what is there now is the new baseline. */
        int (*settle)(struct op *op, struct runtime *rt, const struct place *place,
                      const struct workspace *w, struct err *err);
        /* Nothing of it is needed there any more. NULL: nothing to do. */
        int (*unstage)(struct op *op, struct runtime *rt, const struct place *place,
                       const struct workspace *w, struct err *err);
        bool works_dead; /* collect() needs no living box (an upper layer on this machine) */
};

/* The way for a place and an isolation, or ERR_UNPROCESSABLE with a text that says what to do. */
int workspace_way_for(const struct runtime *rt, const struct environment *env,
                      const struct place *place, const char *isolation,
                      const struct workspace_way **ret, struct err *err);
/* By its recorded name; NULL: unknown. */
const struct workspace_way *workspace_way_by_name(const char *name);

extern const struct workspace_way workspace_overlay;  /* the built-in sandbox, no copying */
extern const struct workspace_way workspace_copy;     /* the built-in sandbox, reflink or copy */
extern const struct workspace_way workspace_sync;     /* a box anywhere (workspace/sync.h) */
extern const struct workspace_way workspace_archive;  /* plain execute: tar in commands */
extern const struct workspace_way workspace_in_place; /* the directory itself: local */

struct stage_request {
        const char *local_path;
        const char *isolation;          /* NULL: default */
        const char *const *exclude;     /* NULL-terminated; may be NULL */
        workspace_progress_fn progress; /* may be NULL */
        void *ctx;
};

struct restore_report {
        struct merge_report merge;
        const char *git_head; /* new head that was integrated; NULL: none */
        int64_t duration_ms;
};

int workspace_stage(struct op *op, struct runtime *rt, const struct lease_record *record,
                    const struct stage_request *req, struct stage_result *ret, struct err *err);
/* local_path NULL: where it was staged from. dry_run: only say what would happen (diff). */
int workspace_restore(struct op *op, struct runtime *rt, const struct lease_record *record,
                      const char *local_path, bool dry_run, workspace_progress_fn progress,
                      void *ctx, struct restore_report *ret, struct err *err);

/* Before a place is given up: save what was not brought home. 0 also when there is nothing to save;
 * an error leaves the workspace as it is, and the caller asks again. */
int workspace_salvage(struct op *op, struct runtime *rt, const struct place *place,
                      const char *reason, struct err *err);

#endif
