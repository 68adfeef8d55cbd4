/* Writes an event of a run and announces it. */
#include "core/live/run_event.h"

#include "base/clock.h"
#include "store/run_events.h"

int run_event_add(struct db *db, struct runtime *rt UNUSED, const struct run *run, const char *type,
                  const char *level, const char *message, json_t *take_payload, struct err *err)
{
        CLEAN(cleanup_free) char *payload = take_payload ? json_to_text(take_payload) : NULL;
        struct uuid id = uuid_new();
        struct run_event row = {
                .id = id.s,
                .company_id = run->company_id,
                .run_id = run->id,
                .agent_id = run->agent_id,
                .event_type = type,
                .stream = "system",
                .level = level,
                .message = message,
                .payload = payload,
                .created_at = clock_now_us(),
        };
        int r = run_events_insert(db, &row, err);

        if (r < 0) {
                json_decref(take_payload);
                return r;
        }
        db_announce(db, run->company_id, "heartbeat.run.event",
                    json_pack("{s:s, s:s, s:I, s:s, s:s, s:s?, s:n, s:s?, s:o?}", "runId", run->id,
                              "agentId", run->agent_id, "seq", (json_int_t)row.seq, "eventType",
                              type, "stream", row.stream, "level", level, "color", "message",
                              message, "payload", take_payload));
        return 0;
}
