#include "store/places.h"

#define COLUMNS                                                                                    \
        "id, company_id, environment_id, driver, provider, provider_lease_id, config, policy, "    \
        "state, epoch, has_world, holder_run_id, request_key, owner_node, owner_boot, "            \
        "owner_instance, deadline_at, attempts, next_attempt_at, note, created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct place *p)
{
        *p = (struct place){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .environment_id = stmt_text(s, 2, a),
                .driver = stmt_text(s, 3, a),
                .provider = stmt_text(s, 4, a),
                .provider_lease_id = stmt_text(s, 5, a),
                .config = stmt_text(s, 6, a),
                .policy = stmt_text(s, 7, a),
                .state = stmt_text(s, 8, a),
                .epoch = stmt_number(s, 9),
                .has_world = stmt_number(s, 10) != 0,
                .holder_run_id = stmt_text(s, 11, a),
                .request_key = stmt_text(s, 12, a),
                .owner_node = stmt_text(s, 13, a),
                .owner_boot = stmt_text(s, 14, a),
                .owner_instance = stmt_text(s, 15, a),
                .deadline_at = stmt_number(s, 16),
                .attempts = stmt_number(s, 17),
                .next_attempt_at = stmt_number(s, 18),
                .note = stmt_text(s, 19, a),
                .created_at = stmt_number(s, 20),
                .updated_at = stmt_number(s, 21),
        };
}

int places_insert(struct db *db, const struct place *row, struct err *err)
{
        return db_exec(
                db,
                "INSERT INTO places (" COLUMNS
                ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, "
                "?16, ?17, ?18, ?19, ?20, ?21, ?22)",
                DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->environment_id),
                        DB_T(row->driver), DB_T(row->provider), DB_T(row->provider_lease_id),
                        DB_T(row->config), DB_T(row->policy), DB_T(row->state), DB_I(row->epoch),
                        DB_I(row->has_world), DB_T(row->holder_run_id), DB_T(row->request_key),
                        DB_T(row->owner_node), DB_T(row->owner_boot), DB_T(row->owner_instance),
                        DB_TIME(row->deadline_at), DB_I(row->attempts),
                        DB_TIME(row->next_attempt_at), DB_T(row->note), DB_I(row->created_at),
                        DB_I(row->updated_at)),
                err);
}

int places_replace(struct db *db, const struct place *from, const struct place *to, struct err *err)
{
        return db_exec(db,
                       "UPDATE places SET state = ?4, epoch = ?5, provider_lease_id = ?6, "
                       "has_world = ?7, holder_run_id = ?8, owner_node = ?9, owner_boot = ?10, "
                       "owner_instance = ?11, deadline_at = ?12, attempts = ?13, "
                       "next_attempt_at = ?14, note = ?15, updated_at = ?16, config = ?17, "
                       "policy = ?18 "
                       "WHERE id = ?1 AND state = ?2 AND epoch = ?3",
                       DB_ARGS(DB_T(from->id), DB_T(from->state), DB_I(from->epoch),
                               DB_T(to->state), DB_I(to->epoch), DB_T(to->provider_lease_id),
                               DB_I(to->has_world), DB_T(to->holder_run_id), DB_T(to->owner_node),
                               DB_T(to->owner_boot), DB_T(to->owner_instance),
                               DB_TIME(to->deadline_at), DB_I(to->attempts),
                               DB_TIME(to->next_attempt_at), DB_T(to->note), DB_I(to->updated_at),
                               DB_T(to->config), DB_T(to->policy)),
                       err);
}

static int get_one(struct stmt *s, struct arena *arena, struct place *ret, struct err *err)
{
        int r = stmt_step(s, err);

        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Place not found");
        load(s, arena, ret);
        return 0;
}

int places_get(struct db *db, const char *id, struct arena *arena, struct place *ret,
               struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM places WHERE id = ?1", DB_ARGS(DB_T(id)), &s,
                         err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

int places_by_request(struct db *db, const char *environment_id, const char *key,
                      struct arena *arena, struct place *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM places WHERE environment_id = ?1 "
                         "AND request_key = ?2 AND state = 'intended' AND request_key IS NOT NULL",
                         DB_ARGS(DB_T(environment_id), DB_T(key)), &s, err);

        return r < 0 ? r : get_one(s, arena, ret, err);
}

static int each(struct stmt *s, struct arena *arena, place_fn fn, void *ctx, struct err *err)
{
        int r = 0;

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct place p;

                load(s, arena, &p);
                r = fn(ctx, &p);
        }
        return r;
}

int places_living(struct db *db, const char *state, struct arena *arena, place_fn fn, void *ctx,
                  struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM places WHERE state <> 'gone' "
                         "AND (CAST(?1 AS TEXT) IS NULL OR state = ?1) ORDER BY updated_at, id",
                         DB_ARGS(DB_T(state)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
}

int places_of_environment(struct db *db, const char *environment_id, struct arena *arena,
                          place_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM places WHERE state <> 'gone' "
                         "AND environment_id = ?1 ORDER BY updated_at DESC, id",
                         DB_ARGS(DB_T(environment_id)), &s, err);

        return r < 0 ? r : each(s, arena, fn, ctx, err);
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
