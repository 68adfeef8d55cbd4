/* Rows of `workspaces`: directories of the operator in places. States, and which code changes them,
 * are up to core (core/workspaces/workspace.h); here a move is one compare-and-set on state and
 * epoch. */
#pragma once

#include "store/db.h"

#define WORKSPACE_STAGING   "staging"
#define WORKSPACE_STAGED    "staged"
#define WORKSPACE_RESTORING "restoring"
#define WORKSPACE_ENDED     "ended"

struct workspace_row {
        const char *id, *company_id, *lease_id, *place_id;
        const char *state;
        int64_t epoch;
        const char *step; /* of a restore; NULL: none */
        const char *way, *isolation;
        const char *local_path;
        const char *target_path; /* where a restore goes; NULL: local_path */
        const char *exclude;     /* JSON array of texts */
        const char *cwd;         /* in the place; NULL until staged */
        int64_t umask, staged_ns;
        int64_t files, bytes, sent_bytes;
        int64_t restored_at; /* 0: never */
        const char *report;  /* of the last restore, JSON; NULL: none */
        const char *note;
        int64_t attempts, next_attempt_at;
        const char *owner_instance;
        int64_t created_at, updated_at;
};

extern const struct row_type workspace_table;

typedef int (*workspace_row_fn)(void *ctx, const struct workspace_row *row);

/* ERR_CONFLICT when the lease has a living one. */
ROW_BASICS(workspaces, struct workspace_row,
           workspace_table) /* workspaces_insert(), workspaces_get() */
/* The newest of a lease, living or not; ERR_NOT_FOUND "The lease has no workspace". */
int workspaces_of_lease(struct db *db, const char *lease_id, struct arena *arena,
                        struct workspace_row *ret, struct err *err);
/* Write *to over the row that still has the state and epoch of *from: 1, or 0 when another writer
 * was first. The caller has set to->epoch. */
int workspaces_replace(struct db *db, const struct workspace_row *from,
                       const struct workspace_row *to, struct err *err);
/* Living ones (not ended), oldest first. place_id NULL: of all places. */
int workspaces_living(struct db *db, const char *place_id, struct arena *arena, workspace_row_fn fn,
                      void *ctx, struct err *err);
/* Of all leases in an execution workspace, newest first. */
int workspaces_of_execution_workspace(struct db *db, const char *id, struct arena *arena,
                                      workspace_row_fn fn, void *ctx, struct err *err);
