/* Shared by the files of core/workspaces/workspace.h. */
#pragma once

#include "core/workspaces/workspace.h"
#include "core/workspaces/workspace_host.h"

/* Steps: of a restore, and of giving up. */
#define STEP_COLLECTING "collecting"
#define STEP_MERGING    "merging"
#define STEP_SETTLING   "settling"
#define STEP_SAVED      "saved"

/* One operation on one workspace. Row and view follow each move. */
struct workspace_job {
        struct op *op;
        struct runtime *rt;
        struct place place;
        struct workspace_row row;
        struct workspace view; /* the row as ways see it */
        const struct workspace_way *way;
        struct workspace_work work;
        bool at_work;
        bool has_changes; /* here, and not saved yet: a failure now is the daemon's own */
};

/* Read the row, place and way of a workspace and begin to work on it; `wait` as in
 * workspace_work_begin(). The caller ends it with workspace_job_end(), also after an error. */
int workspace_job_begin(struct workspace_job *j, const char *id, bool wait, struct err *err);
/* The same for the workspace that a lease has, staged or being restored: ERR_CONFLICT otherwise. */
int workspace_job_of_lease(struct workspace_job *j, const struct lease_record *record,
                           struct err *err);
void workspace_job_end(struct workspace_job *j);
/* Read what the row says into the view. */
void workspace_job_view(struct workspace_job *j);

/* What a move writes beside the row: an entry in the audit trail. `details` is taken. */
struct workspace_move {
        struct workspace_job *job;
        struct workspace_row to;
        const char *action; /* NULL: none */
        json_t *details;
        int (*also)(struct db *db, void *ctx, struct err *err); /* in the same transaction */
        void *ctx;
};

/* To another state: row, the lease's metadata, the trail, in one transaction. ERR_CONFLICT when
 * another operation moved it. m->details is released in any case. */
int workspace_move(const struct op *op, struct workspace_move *m, struct err *err);
/* A copy of the row to be changed and moved to. */
struct workspace_move workspace_move_to(struct workspace_job *j, const char *state,
                                        const char *step);
/* The row inside a transaction of the caller; *row is what it became. */
int workspace_row_move(struct db *db, const struct runtime *rt, struct workspace_row *row,
                       struct workspace_row *to, struct arena *arena, struct err *err);

/* Where the directory of a lease is, in places that are not on this machine. */
struct workspace_remote {
        struct lease lease;
        const char *cwd; /* absolute: the lease's `remoteCwd` */
        /* The name of its directory: the run's id, or the lease's. A run that is prepared again has
         * another lease; giving up the first lease while the command works in the second must not
         * remove the directory. */
        const char *run;
        bool in_place; /* `workspaceMode` */
};
/* Everything in the operation's arena. ERR_UNPROCESSABLE: the lease names no directory. */
int workspace_remote_find(struct op *op, struct runtime *rt, const char *lease_id,
                          struct workspace_remote *ret, struct err *err);

/* In the directory of a workspace that is fetched from where it is: what was staged, what a fetch
 * makes, and the tree that it saw. */
#define WORKSPACE_BASELINE "baseline"
#define WORKSPACE_FETCHING "fetching"
#define WORKSPACE_NEXT     "next"

int workspace_open_dir(const char *path, int *ret_fd, struct err *err);
/* A complete fetch becomes the bundle. dir_fd is that of w->dir. */
int workspace_keep_fetched(struct op *op, const struct workspace *w, int dir_fd,
                           struct change_set **ret, struct err *err);
/* As in struct workspace_way. */
int workspace_settle_fetched(struct op *op, struct runtime *rt, const struct place *place,
                             const struct workspace *w, struct err *err);

/* NULL-terminated list of a JSON array of texts, in the arena. */
const char *const *workspace_patterns(struct arena *arena, const char *json);

/* Merge a change set into a directory beneath a workspace root. Closes nothing. */
struct merge_request {
        const char *company_id; /* whose roots count */
        const char *path;
        const struct excludes *excludes;
        uint32_t umask;
        bool dry_run;
        struct workspace_work *work; /* for progress; may be NULL */
        const char *scratch;         /* a directory of ours for git; gone afterwards */
        /* Watches the changes as they are merged; `dir` is the directory. NULL: there is no
         * watcher. */
        struct change_set *(*watch)(void *ctx, struct change_set *from, int dir);
        void *ctx;
};
static inline const char *workspace_scratch(struct arena *arena, const char *dir)
{
        return arena_printf(arena, "%s/git", dir);
}
int workspace_merge(struct op *op, struct runtime *rt, struct change_set *changes,
                    const struct merge_request *req, struct restore_report *ret, struct err *err);

/* workspace_diff.c: lists the changes as they pass into a merge, in the array that is open in `w`:
 * {path, change, kind, size, diff?}. */
struct change_list {
        struct jw *w;
        uint64_t max;     /* changes that are written; `n` counts all */
        size_t texts_max; /* bytes of differences of text files, all together; 0: none */
        bool is_kept;     /* no differences of files that are likely to have secrets in them */
        uint64_t n;       /* the rest is change_list_watch()'s own */
        size_t texts;
        struct change_set set, *from;
        int dir; /* the directory as it is */
};
void change_list_watch(struct change_list *l, struct merge_request *req);

/* The members of restore_report_encode()'s object. */
void restore_report_members(struct jw *w, const struct restore_report *report);

/* Ask the way for the changes. */
int workspace_collect(struct workspace_job *j, struct change_set **ret, uint32_t *ret_umask,
                      struct err *err);

/* Remove a directory of ours and all that is in it. */
int workspace_remove_dir(struct op *op, const char *path, struct err *err);

/* workspace_salvage.c: save the changes that were not brought home. *ret_saved is the salvage, id
 * NULL when there was nothing. The row is not moved. */
int workspace_save(struct workspace_job *j, const char *reason, struct salvage *ret_saved,
                   struct err *err);
/* Salvages that are over. */
int salvage_sweep(struct op *op, struct runtime *rt, struct err *err);

/* workspace_restore.c: go on with a restore that had begun. */
int workspace_restore_resume(struct workspace_job *j, struct restore_report *ret, struct err *err);

/* workspace_end.c: remove the workspace from its place and end it. `note` says why; NULL: nothing
 * special. */
int workspace_end(struct workspace_job *j, const char *note, struct err *err);
/* Whether, after an error in collecting, asking the place again can never help. */
bool workspace_is_hopeless(const struct workspace_job *j, int r);
