/* Rows of `environment_leases`. A lease is living while it is `active` or `retained`; the moves out
 * of that are compare-and-set, so that only one caller ever ends a lease. */
#pragma once

#include "store/db.h"

struct lease {
        const char *id, *company_id, *environment_id, *place_id;
        const char *execution_workspace_id, *issue_id, *heartbeat_run_id;
        const char *status, *policy, *provider, *provider_lease_id;
        int64_t acquired_at, last_used_at;
        int64_t expires_at, released_at; /* 0: none */
        const char *failure_reason, *cleanup_status;
        const char *metadata; /* JSON object or NULL */
        const char *idempotency_key;
        int64_t created_at, updated_at;
};

extern const struct row_type lease_table;

typedef int (*lease_fn)(void *ctx, const struct lease *row);

ROW_BASICS(leases, struct lease, lease_table) /* leases_insert(), leases_get() */
int leases_by_key(struct db *db, const char *environment_id, const char *key, struct arena *arena,
                  struct lease *ret, struct err *err);

/* Last used first. status NULL for all. At most `limit` rows (0: all), starting after the row whose
 * last_used_at and id are given (0, NULL: from the start). */
int leases_list(struct db *db, const char *environment_id, const char *status, int64_t before_us,
                const char *before_id, int64_t limit, struct arena *arena, lease_fn fn, void *ctx,
                struct err *err);
/* The same of a whole company: all of them, or those that live. */
int leases_list_company(struct db *db, const char *company_id, bool living, int64_t before_us,
                        const char *before_id, int64_t limit, struct arena *arena, lease_fn fn,
                        void *ctx, struct err *err);
int leases_active_of_run(struct db *db, const char *run_id, struct arena *arena, struct lease **ret,
                         struct err *err);
int leases_living_of_environment(struct db *db, const char *environment_id, struct arena *arena,
                                 struct lease **ret, struct err *err);
int leases_living_of_place(struct db *db, const char *place_id, struct arena *arena,
                           struct lease **ret, struct err *err);
/* Active leases whose time is up. */
int leases_expired(struct db *db, int64_t now_us, struct arena *arena, struct lease **ret,
                   struct err *err);
/* Active leases whose run is known here, has ended, and is no longer worked on: of failed and timed
 * out ones, or of the others. */
int leases_of_ended_runs(struct db *db, bool failed, struct arena *arena, struct lease **ret,
                         struct err *err);

/* The newest of a place, living or not; ERR_NOT_FOUND when there never was one. */
int leases_last_of_place(struct db *db, const char *place_id, struct arena *arena,
                         struct lease *ret, struct err *err);

/* End a lease that still has status `from`: 1, or 0 when it has not. released_at 0 is written as
 * NULL; failure_reason and cleanup_status are written when not NULL. */
int leases_end(struct db *db, const char *id, const char *from, const struct lease *to,
               struct err *err);
/* Give an active lease whose time is not up at `now_us` a new one: 1, or 0 when there is none. */
int leases_renew(struct db *db, const char *id, int64_t now_us, int64_t expires_at, int64_t used_at,
                 struct err *err);
int leases_set_metadata(struct db *db, const char *id, const char *metadata, int64_t now_us,
                        struct err *err);
/* Set the clean-up status of ended leases of a place that have one pending or failed. */
int leases_set_cleanup(struct db *db, const char *place_id, const char *cleanup_status,
                       int64_t now_us, struct err *err);
int leases_count_living(struct db *db, const char *place_id, const char *except_id, int64_t *ret,
                        struct err *err);
/* Move the expiry of all active leases by delta (the wall clock was set). Returns how many. */
int leases_shift_expiry(struct db *db, int64_t delta_us, struct err *err);
int leases_count_by_status(struct db *db, struct arena *arena,
                           int (*fn)(void *ctx, const char *status, int64_t n), void *ctx,
                           struct err *err);

/* Whether it has a run, and no older lease of that run is in its environment. */
int leases_is_first_of_run(struct db *db, const struct lease *lease, bool *ret, struct err *err);
