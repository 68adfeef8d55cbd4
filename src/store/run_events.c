#include "store/run_events.h"

#define COLUMNS                                                                                    \
        "run_id, seq, id, company_id, agent_id, event_type, stream, level, color, message, "       \
        "payload, created_at"

int run_events_insert(struct db *db, struct run_event *row, struct err *err)
{
        int r = db_number(db,
                          "SELECT COALESCE(MAX(seq), 0) + 1 FROM heartbeat_run_events "
                          "WHERE run_id = ?1",
                          DB_ARGS(DB_T(row->run_id)), &row->seq, err);

        if (r < 0)
                return r;
        return db_exec(db,
                       "INSERT INTO heartbeat_run_events (" COLUMNS ") "
                       "VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                       DB_ARGS(DB_T(row->run_id), DB_I(row->seq), DB_T(row->id),
                               DB_T(row->company_id), DB_T(row->agent_id), DB_T(row->event_type),
                               DB_T(row->stream), DB_T(row->level), DB_T(row->color),
                               DB_T(row->message), DB_T(row->payload), DB_I(row->created_at)),
                       err);
}

int run_events_list(struct db *db, const char *run_id, int64_t after_seq, int64_t limit,
                    struct arena *arena, run_event_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM heartbeat_run_events WHERE run_id = ?1 "
                         "AND seq > ?2 ORDER BY seq LIMIT ?3",
                         DB_ARGS(DB_T(run_id), DB_I(after_seq), DB_I(limit ? limit : INT64_MAX)),
                         &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct run_event e = {
                        .run_id = stmt_text(s, 0, arena),
                        .seq = stmt_number(s, 1),
                        .id = stmt_text(s, 2, arena),
                        .company_id = stmt_text(s, 3, arena),
                        .agent_id = stmt_text(s, 4, arena),
                        .event_type = stmt_text(s, 5, arena),
                        .stream = stmt_text(s, 6, arena),
                        .level = stmt_text(s, 7, arena),
                        .color = stmt_text(s, 8, arena),
                        .message = stmt_text(s, 9, arena),
                        .payload = stmt_text(s, 10, arena),
                        .created_at = stmt_number(s, 11),
                };

                r = fn(ctx, &e);
        }
        return r;
}
