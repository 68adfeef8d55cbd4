/* SQL for `environment_leases`. */
#include "store/leases.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct lease, id, "id"),
        TEXT(struct lease, company_id, "companyId"),
        TEXT(struct lease, environment_id, "environmentId"),
        TEXT(struct lease, execution_workspace_id, "executionWorkspaceId"),
        TEXT(struct lease, issue_id, "issueId"),
        TEXT(struct lease, heartbeat_run_id, "heartbeatRunId"),
        TEXT(struct lease, status, "status"),
        TEXT(struct lease, policy, "leasePolicy", .sql = "lease_policy"),
        TEXT(struct lease, provider, "provider"),
        TEXT(struct lease, provider_lease_id, "providerLeaseId"),
        TIME(struct lease, acquired_at, "acquiredAt"),
        TIME(struct lease, last_used_at, "lastUsedAt"),
        TIME_OR_NULL(struct lease, expires_at, "expiresAt"),
        TIME_OR_NULL(struct lease, released_at, "releasedAt"),
        TEXT(struct lease, failure_reason, "failureReason"),
        TEXT(struct lease, cleanup_status, "cleanupStatus"),
        DOCUMENT(struct lease, metadata, "metadata"),
        TIME(struct lease, created_at, "createdAt"),
        TIME(struct lease, updated_at, "updatedAt"),
        TEXT(struct lease, place_id),
        TEXT(struct lease, idempotency_key),
};
const struct row_type lease_table =
        ROW_TYPE("environment_leases", struct lease, columns, "Environment lease not found");

int leases_last_of_place(struct db *db, const char *place_id, struct arena *arena,
                         struct lease *ret, struct err *err)
{
        return row_get(db, &lease_table,
                       "SELECT * FROM environment_leases WHERE place_id = ?1 "
                       "ORDER BY created_at DESC, id LIMIT 1",
                       DB_ARGS(DB_T(place_id)), arena, ret, err);
}

int leases_by_key(struct db *db, const char *environment_id, const char *key, struct arena *arena,
                  struct lease *ret, struct err *err)
{
        return row_get(db, &lease_table,
                       "SELECT * FROM environment_leases WHERE environment_id = ?1 "
                       "AND idempotency_key = ?2 AND idempotency_key IS NOT NULL",
                       DB_ARGS(DB_T(environment_id), DB_T(key)), arena, ret, err);
}

/* What a page of a list begins behind, and its order. ?3 and ?4 are the row before it, ?5 the
 * limit. */
#define PAGE                                                                                       \
        "AND last_used_at <= ?3 AND (last_used_at < ?3 OR "                                        \
        "(created_at, id) < (SELECT created_at, id FROM environment_leases WHERE id = ?4)) "       \
        "ORDER BY last_used_at DESC, created_at DESC, id DESC LIMIT ?5"

/* Texts of their own where a filter has an index of its own; ?2 is then what it may be besides. */
#define ALIVE "AND (status = 'active' OR status = 'retained') "
#define BAD   "AND status <> 'active' AND status <> 'retained' AND status <> 'released' "

static int list_page(struct db *db, const char *sql, const char *owner, const char *status,
                     int64_t before_us, const char *before_id, int64_t limit, struct arena *arena,
                     lease_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &lease_table, sql,
                        DB_ARGS(DB_T(owner), DB_T(status), DB_I(before_us ? before_us : INT64_MAX),
                                DB_T(before_id ? before_id : ""), DB_I(limit ? limit : INT64_MAX)),
                        arena, fn, ctx, err);
}

int leases_list(struct db *db, const char *environment_id, const char *status, int64_t before_us,
                const char *before_id, int64_t limit, struct arena *arena, lease_fn fn, void *ctx,
                struct err *err)
{
        static const char any[] = "SELECT * FROM environment_leases "
                                  "WHERE environment_id = ?1 AND status = COALESCE(CAST(?2 AS "
                                  "TEXT), status) " PAGE;
        static const char alive[] = "SELECT * FROM environment_leases "
                                    "WHERE environment_id = ?1 " ALIVE "AND status = ?2 " PAGE;
        static const char bad[] = "SELECT * FROM environment_leases "
                                  "WHERE environment_id = ?1 " BAD "AND status = ?2 " PAGE;
        const char *sql = bad;

        if (!status || streq(status, "released"))
                sql = any;
        else if (streq(status, "active") || streq(status, "retained"))
                sql = alive;
        return list_page(db, sql, environment_id, status, before_us, before_id, limit, arena, fn,
                         ctx, err);
}

int leases_list_company(struct db *db, const char *company_id, bool living, int64_t before_us,
                        const char *before_id, int64_t limit, struct arena *arena, lease_fn fn,
                        void *ctx, struct err *err)
{
        static const char all[] = "SELECT * FROM environment_leases "
                                  "WHERE company_id = ?1 AND CAST(?2 AS TEXT) IS NULL " PAGE;
        static const char alive[] = "SELECT * FROM environment_leases WHERE company_id = ?1 "
                                    "AND CAST(?2 AS TEXT) IS NULL " ALIVE PAGE;

        return list_page(db, living ? alive : all, company_id, NULL, before_us, before_id, limit,
                         arena, fn, ctx, err);
}

int leases_active_of_run(struct db *db, const char *run_id, struct arena *arena, struct lease **ret,
                         struct err *err)
{
        return row_all(db, &lease_table,
                       "SELECT * FROM environment_leases WHERE heartbeat_run_id = ?1 "
                       "AND heartbeat_run_id IS NOT NULL AND status = 'active' "
                       "ORDER BY acquired_at, id",
                       DB_ARGS(DB_T(run_id)), arena, ret, err);
}

int leases_living_of_environment(struct db *db, const char *environment_id, struct arena *arena,
                                 struct lease **ret, struct err *err)
{
        return row_all(db, &lease_table,
                       "SELECT * FROM environment_leases WHERE environment_id = ?1 "
                       "AND (status = 'active' OR status = 'retained') ORDER BY acquired_at, id",
                       DB_ARGS(DB_T(environment_id)), arena, ret, err);
}

int leases_living_of_place(struct db *db, const char *place_id, struct arena *arena,
                           struct lease **ret, struct err *err)
{
        return row_all(db, &lease_table,
                       "SELECT * FROM environment_leases WHERE place_id = ?1 "
                       "AND (status = 'active' OR status = 'retained') ORDER BY acquired_at, id",
                       DB_ARGS(DB_T(place_id)), arena, ret, err);
}

int leases_expired(struct db *db, int64_t now_us, struct arena *arena, struct lease **ret,
                   struct err *err)
{
        return row_all(db, &lease_table,
                       "SELECT * FROM environment_leases WHERE status = 'active' "
                       "AND expires_at IS NOT NULL AND expires_at <= ?1 ORDER BY expires_at",
                       DB_ARGS(DB_I(now_us)), arena, ret, err);
}

int leases_of_ended_runs(struct db *db, bool failed, struct arena *arena, struct lease **ret,
                         struct err *err)
{
        return row_all(db, &lease_table,
                       "SELECT * FROM environment_leases WHERE id IN "
                       "(SELECT l.id FROM environment_leases l "
                       "JOIN heartbeat_runs r ON r.id = l.heartbeat_run_id "
                       "WHERE (l.status = 'active' OR l.status = 'retained') "
                       "AND l.status = 'active' AND (r.status = ?1 OR r.status = ?2) "
                       "AND (r.step = 'done' OR r.step = 'queued'))",
                       DB_ARGS(DB_T(failed ? "failed" : "succeeded"),
                               DB_T(failed ? "timed_out" : "cancelled")),
                       arena, ret, err);
}

int leases_end(struct db *db, const char *id, const char *from, const struct lease *to,
               struct err *err)
{
        return db_exec(db,
                       "UPDATE environment_leases SET status = ?3, released_at = ?4, "
                       "failure_reason = COALESCE(?5, failure_reason), "
                       "cleanup_status = COALESCE(?6, cleanup_status), "
                       "last_used_at = ?7, updated_at = ?7 WHERE id = ?1 AND status = ?2",
                       DB_ARGS(DB_T(id), DB_T(from), DB_T(to->status), DB_TIME(to->released_at),
                               DB_T(to->failure_reason), DB_T(to->cleanup_status),
                               DB_I(to->updated_at)),
                       err);
}

int leases_renew(struct db *db, const char *id, int64_t now_us, int64_t expires_at, int64_t used_at,
                 struct err *err)
{
        return db_exec(db,
                       "UPDATE environment_leases SET expires_at = ?2, last_used_at = ?3, "
                       "updated_at = ?3 WHERE id = ?1 AND status = 'active' "
                       "AND (expires_at IS NULL OR expires_at > ?4)",
                       DB_ARGS(DB_T(id), DB_I(expires_at), DB_I(used_at), DB_I(now_us)), err);
}

int leases_set_metadata(struct db *db, const char *id, const char *metadata, int64_t now_us,
                        struct err *err)
{
        return db_exec(db,
                       "UPDATE environment_leases SET metadata = ?2, last_used_at = ?3, "
                       "updated_at = ?3 WHERE id = ?1",
                       DB_ARGS(DB_T(id), DB_T(metadata), DB_I(now_us)), err);
}

int leases_set_cleanup(struct db *db, const char *place_id, const char *cleanup_status,
                       int64_t now_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE environment_leases SET cleanup_status = ?2, updated_at = ?3 "
                       "WHERE place_id = ?1 AND status <> 'active' "
                       "AND (cleanup_status = 'pending' OR cleanup_status = 'failed')",
                       DB_ARGS(DB_T(place_id), DB_T(cleanup_status), DB_I(now_us)), err);
}

int leases_count_living(struct db *db, const char *place_id, const char *except_id, int64_t *ret,
                        struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM environment_leases WHERE place_id = ?1 "
                         "AND (status = 'active' OR status = 'retained') AND id <> ?2",
                         DB_ARGS(DB_T(place_id), DB_T(except_id ? except_id : "")), ret, err);
}

int leases_shift_expiry(struct db *db, int64_t delta_us, struct err *err)
{
        return db_exec(db,
                       "UPDATE environment_leases SET expires_at = expires_at + ?1 "
                       "WHERE status = 'active' AND expires_at IS NOT NULL",
                       DB_ARGS(DB_I(delta_us)), err);
}

int leases_count_by_status(struct db *db, struct arena *arena,
                           int (*fn)(void *ctx, const char *status, int64_t n), void *ctx,
                           struct err *err)
{
        return db_counts(db,
                         "SELECT status, COUNT(*) FROM environment_leases "
                         "WHERE status = 'active' OR status = 'retained' GROUP BY status",
                         DB_NO_ARGS, arena, fn, ctx, err);
}

int leases_is_first_of_run(struct db *db, const struct lease *lease, bool *ret, struct err *err)
{
        int64_t n = 0;
        int r = !lease->heartbeat_run_id
                        ? 0
                        : db_number(db,
                                    "SELECT COUNT(*) FROM environment_leases "
                                    "WHERE heartbeat_run_id = ?1 AND heartbeat_run_id IS NOT NULL "
                                    "AND environment_id = ?2 AND (acquired_at < ?3 OR "
                                    "(acquired_at = ?3 AND id < ?4))",
                                    DB_ARGS(DB_T(lease->heartbeat_run_id),
                                            DB_T(lease->environment_id), DB_I(lease->acquired_at),
                                            DB_T(lease->id)),
                                    &n, err);

        *ret = r >= 0 && lease->heartbeat_run_id && n == 0;
        return MIN(r, 0);
}
