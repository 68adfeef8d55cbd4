/* Rows of `heartbeat_run_events`: what happened in a run, numbered from 1 without gaps. */
#pragma once

#include "store/db.h"

struct run_event {
        const char *id, *company_id, *run_id, *agent_id;
        int64_t seq;
        const char *event_type, *stream, *level, *color, *message;
        const char *payload; /* JSON object, or NULL */
        int64_t created_at;
};

extern const struct row_type run_event_table;

typedef int (*run_event_fn)(void *ctx, const struct run_event *row);

/* Gives it the next number, in row->seq. */
int run_events_insert(struct db *db, struct run_event *row, struct err *err);
/* Ascending, after that number; limit 0: all. */
int run_events_list(struct db *db, const char *run_id, int64_t after_seq, int64_t limit,
                    struct arena *arena, run_event_fn fn, void *ctx, struct err *err);
