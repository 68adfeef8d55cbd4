/* SQL for `places`. */
#include "store/places.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct place, id, NULL, FIXED),
        TEXT(struct place, company_id, NULL, FIXED),
        TEXT(struct place, environment_id, NULL, FIXED),
        TEXT(struct place, driver, NULL, FIXED),
        TEXT(struct place, provider, NULL, FIXED),
        TEXT(struct place, provider_lease_id),
        DOCUMENT(struct place, config),
        TEXT(struct place, policy),
        TEXT(struct place, state),
        NUMBER(struct place, epoch),
        FLAG(struct place, has_world),
        TEXT(struct place, holder_run_id),
        TEXT(struct place, request_key, NULL, FIXED),
        TEXT(struct place, owner_node),
        TEXT(struct place, owner_boot),
        TEXT(struct place, owner_instance),
        TIME_OR_NULL(struct place, deadline_at),
        NUMBER(struct place, attempts),
        TIME_OR_NULL(struct place, next_attempt_at),
        TEXT(struct place, note),
        TIME(struct place, created_at, NULL, FIXED),
        TIME(struct place, updated_at),
};
const struct row_type place_table = ROW_TYPE("places", struct place, columns, "Place not found");

int places_replace(struct db *db, const struct place *from, const struct place *to, struct err *err)
{
        return row_exec(db, &place_table,
                        "UPDATE places SET * WHERE id = ?1 AND state = ?2 AND epoch = ?3", to,
                        DB_ARGS(DB_T(from->id), DB_T(from->state), DB_I(from->epoch)), err);
}

int places_by_request(struct db *db, const char *environment_id, const char *key,
                      struct arena *arena, struct place *ret, struct err *err)
{
        return row_get(db, &place_table,
                       "SELECT * FROM places WHERE environment_id = ?1 "
                       "AND request_key = ?2 AND state = 'intended' AND request_key IS NOT NULL",
                       DB_ARGS(DB_T(environment_id), DB_T(key)), arena, ret, err);
}

int places_living(struct db *db, const char *state, struct arena *arena, place_fn fn, void *ctx,
                  struct err *err)
{
        return ROW_EACH(db, &place_table,
                        "SELECT * FROM places WHERE state <> 'gone' "
                        "AND (CAST(?1 AS TEXT) IS NULL OR state = ?1) ORDER BY updated_at, id",
                        DB_ARGS(DB_T(state)), arena, fn, ctx, err);
}

int places_of_environment(struct db *db, const char *environment_id, struct arena *arena,
                          struct place **ret, struct err *err)
{
        if (!environment_id)
                return row_all(db, &place_table,
                               "SELECT * FROM places WHERE state <> 'gone' ORDER BY updated_at, id",
                               DB_NO_ARGS, arena, ret, err);
        return row_all(db, &place_table,
                       "SELECT * FROM places WHERE state <> 'gone' "
                       "AND environment_id = ?1 ORDER BY updated_at DESC, id",
                       DB_ARGS(DB_T(environment_id)), arena, ret, err);
}

int places_shift_times(struct db *db, int64_t delta_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE places SET deadline_at = deadline_at + ?1, "
                       "next_attempt_at = next_attempt_at + ?1 WHERE state <> 'gone'",
                       DB_ARGS(DB_I(delta_us)), err);
}

int places_count_policy(struct db *db, const char *policy, int64_t *ret, struct err *err)
{
        return db_number(db, "SELECT COUNT(*) FROM places WHERE state <> 'gone' AND policy = ?1",
                         DB_ARGS(DB_T(policy)), ret, err);
}

int places_count_by_state(struct db *db, struct arena *arena,
                          int (*fn)(void *ctx, const char *state, int64_t n), void *ctx,
                          struct err *err)
{
        return db_counts(db,
                         "SELECT state, COUNT(*) FROM places WHERE state <> 'gone' GROUP BY state",
                         DB_NO_ARGS, arena, fn, ctx, err);
}
