/* Rows of `sandboxes`: what a place of the built-in sandbox holds of this machine. */
#pragma once

#include "store/db.h"

struct sandbox_row {
        const char *place_id, *node_id;
        int64_t first_id, n_ids;   /* host ids; reserved as long as the row is there */
        const char *snapshot_id;   /* NULL: none */
        const char *image_id;      /* NULL: none */
        int64_t user_id, group_id; /* the inner ids of commands; both 0: the agent's, or root's */
        bool is_paused;
        int64_t created_at;
};

extern const struct row_type sandbox_table;

/* A range that begins where another one does is ERR_CONFLICT. */
int sandboxes_insert(struct db *db, const struct sandbox_row *row, struct err *err);
/* ERR_NOT_FOUND "Sandbox not found". */
int sandboxes_get(struct db *db, const char *place_id, struct arena *arena, struct sandbox_row *ret,
                  struct err *err);
/* Returns 1, or 0 when there was none. */
int sandboxes_delete(struct db *db, const char *place_id, struct err *err);
/* Whether some row of the node has an id in [first, first + n). */
int sandboxes_overlap(struct db *db, const char *node_id, int64_t first, int64_t n, bool *ret,
                      struct err *err);
int sandboxes_set_paused(struct db *db, const char *place_id, bool is_paused, struct err *err);
