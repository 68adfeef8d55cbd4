#include "store/activity.h"

#define COLUMNS                                                                                    \
        "id, company_id, actor_type, actor_id, action, entity_type, entity_id, agent_id, "         \
        "run_id, details, created_at"

int activity_insert(struct db *db, const struct activity *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO activity_log (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                       DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->actor_type),
                               DB_T(row->actor_id), DB_T(row->action), DB_T(row->entity_type),
                               DB_T(row->entity_id), DB_T(row->agent_id), DB_T(row->run_id),
                               DB_T(row->details), DB_I(row->created_at)),
                       err);
}

int activity_list(struct db *db, const char *company_id, const char *agent_id,
                  const char *entity_type, const char *entity_id, const char *action, int64_t limit,
                  struct arena *arena, activity_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM activity_log WHERE company_id = ?1 "
                         "AND (CAST(?2 AS TEXT) IS NULL OR agent_id = ?2) "
                         "AND (CAST(?3 AS TEXT) IS NULL OR entity_type = ?3) "
                         "AND (CAST(?4 AS TEXT) IS NULL OR entity_id = ?4) "
                         "AND (CAST(?5 AS TEXT) IS NULL OR action = ?5) "
                         "ORDER BY created_at DESC, id DESC LIMIT ?6",
                         DB_ARGS(DB_T(company_id), DB_T(agent_id), DB_T(entity_type),
                                 DB_T(entity_id), DB_T(action), DB_I(limit)),
                         &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct activity a = {
                        .id = stmt_text(s, 0, arena),
                        .company_id = stmt_text(s, 1, arena),
                        .actor_type = stmt_text(s, 2, arena),
                        .actor_id = stmt_text(s, 3, arena),
                        .action = stmt_text(s, 4, arena),
                        .entity_type = stmt_text(s, 5, arena),
                        .entity_id = stmt_text(s, 6, arena),
                        .agent_id = stmt_text(s, 7, arena),
                        .run_id = stmt_text(s, 8, arena),
                        .details = stmt_text(s, 9, arena),
                        .created_at = stmt_number(s, 10),
                };

                r = fn(ctx, &a);
        }
        return r;
}
