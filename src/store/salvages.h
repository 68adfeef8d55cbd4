/* Rows of `salvages`: changes of workspaces that were saved before their place was given up. */
#pragma once

#include "store/db.h"

#define SALVAGE_SAVING   "saving"
#define SALVAGE_READY    "ready"
#define SALVAGE_DROPPING "dropping"

struct salvage {
        const char *id, *company_id, *workspace_id, *lease_id, *environment_id;
        const char *state, *reason, *local_path;
        const char *exclude; /* JSON array of texts */
        int64_t umask;
        int64_t changes, deletes, bytes;
        int64_t applied_at; /* 0: never */
        int64_t expires_at; /* 0: not by itself */
        int64_t created_at, updated_at;
        int64_t seen_at; /* when it was first looked at; 0: never */
};

extern const struct row_type salvage_table;

typedef int (*salvage_fn)(void *ctx, const struct salvage *row);

/* ERR_CONFLICT when one of the workspace is being saved. */
ROW_BASICS(salvages, struct salvage, salvage_table) /* salvages_insert(), salvages_get() */
/* The one of a workspace that is being saved; ERR_NOT_FOUND. */
int salvages_saving(struct db *db, const char *workspace_id, struct arena *arena,
                    struct salvage *ret, struct err *err);
/* From one state to another, with what *to knows of it. 1, or 0 when it is in another state. */
int salvages_move(struct db *db, const char *id, const char *from, const struct salvage *to,
                  struct err *err);
int salvages_delete(struct db *db, const char *id, const char *state, struct err *err);
/* Newest first, those that are ready; at most `limit`, after the one whose created_at and id are
 * given (0, NULL: from the start). */
int salvages_list(struct db *db, const char *company_id, int64_t before_us, const char *before_id,
                  int64_t limit, struct arena *arena, salvage_fn fn, void *ctx, struct err *err);
/* The first look at it. */
int salvages_note_seen(struct db *db, const char *id, int64_t now_us, int64_t expires_at,
                       struct err *err);
/* Those that were seen before `before_us` (`unseen`: or made before it and never seen), that are
 * being dropped, or whose workspace has ended while they were saved. */
int salvages_over(struct db *db, int64_t before_us, bool unseen, struct arena *arena, salvage_fn fn,
                  void *ctx, struct err *err);
