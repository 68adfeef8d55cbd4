/* Rows of `heartbeat_run_commands`: how the commands of a run were made, until the run is done. */
#pragma once

#include "store/db.h"

struct run_command {
        const char *run_id, *execution_key;
        const char *adapter;  /* JSON object (core/runs/run_command.c) */
        const char *input;    /* what it reads; NULL: nothing */
        int64_t end_asked_at; /* 0: it was not */
        int64_t created_at;
};

extern const struct row_type run_command_table;

/* Replaces what was kept under the same key. */
int run_commands_put(struct db *db, const struct run_command *row, struct err *err);
/* 1, or 0 when there is none. */
int run_commands_get(struct db *db, const char *run_id, const char *execution_key,
                     struct arena *arena, struct run_command *ret, struct err *err);
/* 1, or 0 when it was asked before, or nothing is kept. */
int run_commands_ask_end(struct db *db, const char *run_id, const char *execution_key,
                         int64_t now_us, struct err *err);
/* All of a run. */
int run_commands_delete(struct db *db, const char *run_id, struct err *err);
