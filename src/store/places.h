/* Rows of `places`. States, and which code may change them, are up to core
 * (core/places/place_state.h); here a move is one compare-and-set that names both ends and the
 * epoch. */
#pragma once

#include "store/db.h"

struct place {
        const char *id, *company_id, *environment_id, *driver, *provider, *provider_lease_id;
        const char *config; /* JSON object: what the provider gets */
        const char *policy, *state;
        int64_t epoch;
        bool has_world; /* something outside the database was intended for it */
        const char *holder_run_id, *request_key;
        const char *owner_node, *owner_boot, *owner_instance;
        int64_t deadline_at; /* 0: none */
        int64_t attempts;
        int64_t next_attempt_at; /* 0: none */
        const char *note;
        int64_t created_at, updated_at;
};

extern const struct row_type place_table;

typedef int (*place_fn)(void *ctx, const struct place *row);

ROW_BASICS(places, struct place, place_table) /* places_insert(), places_get() */

/* Write *to over the row that still has the state and epoch of *from. Returns 1, or 0 when another
 * writer was first. The caller has set to->epoch. */
int places_replace(struct db *db, const struct place *from, const struct place *to,
                   struct err *err);

/* Living places (not gone) in one state, oldest change first; NULL for every state. */
int places_living(struct db *db, const char *state, struct arena *arena, place_fn fn, void *ctx,
                  struct err *err);
/* Move all times of living places by delta (the wall clock was set). Returns how many. */
int places_shift_times(struct db *db, int64_t delta_us, struct err *err);
/* Living places of one environment, newest change first; NULL: of all, oldest change first. How
 * many. */
int places_of_environment(struct db *db, const char *environment_id, struct arena *arena,
                          struct place **ret, struct err *err);
/* Living places with that policy. */
int places_count_policy(struct db *db, const char *policy, int64_t *ret, struct err *err);
/* Living places by state. */
int places_count_by_state(struct db *db, struct arena *arena,
                          int (*fn)(void *ctx, const char *state, int64_t n), void *ctx,
                          struct err *err);
/* An acquire under way with that key; ERR_NOT_FOUND when there is none. */
int places_by_request(struct db *db, const char *environment_id, const char *key,
                      struct arena *arena, struct place *ret, struct err *err);
