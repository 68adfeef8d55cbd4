/* SQL for `heartbeat_run_events`. */
#include "store/run_events.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct run_event, id, "id"),
        TEXT(struct run_event, company_id, "companyId"),
        TEXT(struct run_event, run_id, "runId"),
        TEXT(struct run_event, agent_id, "agentId"),
        NUMBER(struct run_event, seq, "seq"),
        TEXT(struct run_event, event_type, "eventType"),
        TEXT(struct run_event, stream, "stream"),
        TEXT(struct run_event, level, "level"),
        TEXT(struct run_event, color, "color"),
        TEXT(struct run_event, message, "message"),
        DOCUMENT(struct run_event, payload, "payload"),
        TIME(struct run_event, created_at, "createdAt"),
};
const struct row_type run_event_table =
        ROW_TYPE("heartbeat_run_events", struct run_event, columns, NULL);

int run_events_insert(struct db *db, struct run_event *row, struct err *err)
{
        int r = db_number(db,
                          "SELECT COALESCE(MAX(seq), 0) + 1 FROM heartbeat_run_events "
                          "WHERE run_id = ?1",
                          DB_ARGS(DB_T(row->run_id)), &row->seq, err);

        return r < 0 ? r : row_insert(db, &run_event_table, row, err);
}

int run_events_list(struct db *db, const char *run_id, int64_t after_seq, int64_t limit,
                    struct arena *arena, run_event_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &run_event_table,
                        "SELECT * FROM heartbeat_run_events WHERE run_id = ?1 "
                        "AND seq > ?2 ORDER BY seq LIMIT ?3",
                        DB_ARGS(DB_T(run_id), DB_I(after_seq), DB_I(limit ? limit : INT64_MAX)),
                        arena, fn, ctx, err);
}
