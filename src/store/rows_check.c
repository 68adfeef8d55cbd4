/* The rules between rows that `berth db check` checks. */
#include "store/rows_check.h"

/* Each statement gives the ids of rows that should not be. */
static const struct {
        const char *what, *sql;
} rules[] = {
        { "a living lease has no place that lives",
          "SELECT l.id FROM environment_leases l LEFT JOIN places p ON p.id = l.place_id "
          "WHERE (l.status = 'active' OR l.status = 'retained') "
          "AND (p.id IS NULL OR p.state = 'gone')" },
        { "a command that has not ended has no place",
          "SELECT e.id FROM executions e LEFT JOIN places p ON p.id = e.place_id "
          "WHERE (e.status = 'starting' OR e.status = 'running') AND p.id IS NULL" },
        { "ids of this machine are kept for a place that is gone",
          "SELECT s.place_id FROM sandboxes s LEFT JOIN places p ON p.id = s.place_id "
          "WHERE p.id IS NULL OR p.state = 'gone'" },
        { "a workspace that has not ended has no place",
          "SELECT w.id FROM workspaces w LEFT JOIN places p ON p.id = w.place_id "
          "WHERE w.state <> 'ended' AND p.id IS NULL" },
        { "a run that has not ended names a lease that is not there",
          "SELECT r.id FROM heartbeat_runs r LEFT JOIN environment_leases l ON l.id = r.lease_id "
          "WHERE r.step <> 'done' AND r.lease_id IS NOT NULL AND l.id IS NULL" },
        { "a run that has not ended names a command that is not there",
          "SELECT r.id FROM heartbeat_runs r LEFT JOIN executions e ON e.id = r.execution_id "
          "WHERE r.step <> 'done' AND r.execution_id IS NOT NULL AND e.id IS NULL" },
};

int rows_check(struct db *db, rows_finding_fn fn, void *ctx, struct err *err)
{
        struct arena arena;
        int found = 0, r = 0;

        arena_init(&arena);
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(rules); i++) {
                CLEAN(stmt_end) struct stmt *s = NULL;

                r = db_query(db, rules[i].sql, DB_NO_ARGS, &s, err);
                while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                        fn(ctx, rules[i].what, stmt_text(s, 0, &arena));
                        found++;
                }
        }
        arena_done(&arena);
        return r < 0 ? r : found;
}

int rows_has(struct db *db, enum rows_kind kind, const char *id, bool *ret, struct err *err)
{
        static const char *const sql[] = {
                [ROWS_EXECUTIONS] = "SELECT (SELECT COUNT(*) FROM executions WHERE id = ?1) + "
                                    "(SELECT COUNT(*) FROM outputs_to_remove "
                                    "WHERE execution_id = ?1)",
                [ROWS_SNAPSHOTS] = "SELECT COUNT(*) FROM snapshots WHERE id = ?1",
                [ROWS_SALVAGES] = "SELECT COUNT(*) FROM salvages WHERE id = ?1",
                [ROWS_IMAGE_LAYERS] = "SELECT COUNT(*) FROM image_layers WHERE id = ?1",
        };
        int64_t n;
        int r = db_number(db, sql[kind], DB_ARGS(DB_T(id)), &n, err);

        *ret = r >= 0 && n > 0;
        return r;
}

int rows_with_files(struct db *db, enum rows_kind kind, struct arena *arena,
                    int (*fn)(void *ctx, const char *id), void *ctx, struct err *err)
{
        static const char *const sql[] = {
                [ROWS_EXECUTIONS] = "SELECT id FROM executions WHERE ended_at IS NOT NULL "
                                    "AND stdout_len + stderr_len > 0",
                [ROWS_SNAPSHOTS] = "SELECT id FROM snapshots WHERE state = 'ready'",
                [ROWS_SALVAGES] = "SELECT id FROM salvages WHERE state = 'ready'",
                [ROWS_IMAGE_LAYERS] = "SELECT id FROM image_layers WHERE state = 'ready'",
        };

        return db_texts(db, sql[kind], DB_NO_ARGS, arena, fn, ctx, err);
}
