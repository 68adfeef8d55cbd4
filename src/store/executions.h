/* Rows of `executions`. Open means `starting` or `running`. */
#pragma once

#include "store/db.h"

#define EXEC_STARTING "starting" /* recorded; the box may or may not have begun */
#define EXEC_RUNNING  "running"
#define EXEC_EXITED   "exited"
#define EXEC_FAILED   "failed" /* never ran */
#define EXEC_LOST     "lost"   /* its supervisor died with it */

struct execution {
        const char *id, *company_id, *lease_id, *place_id, *command;
        const char *args; /* JSON array */
        const char *cwd;
        bool is_terminal;
        int64_t timeout_ms; /* 0: none */
        const char *idempotency_key, *status;
        int64_t pid;       /* 0: not known */
        int64_t exit_code; /* -1: none */
        int64_t signal;    /* 0: none */
        bool timed_out, is_incomplete;
        int64_t stdout_len, stderr_len;
        const char *reason;
        int64_t started_at, ended_at, created_at, updated_at;
        const char *boot_id; /* of the machine, when it was recorded; NULL: by an earlier version */
};

extern const struct row_type execution_table;

typedef int (*execution_fn)(void *ctx, const struct execution *row);

ROW_BASICS(executions, struct execution,
           execution_table) /* executions_insert(), executions_get() */
int executions_by_key(struct db *db, const char *lease_id, const char *key, struct arena *arena,
                      struct execution *ret, struct err *err);
/* The next caller with its idempotency key gets an execution of its own. */
int executions_free_key(struct db *db, const char *id, struct err *err);
/* Newest first; after the row (before_us, before_id) when given; limit 0: all. */
int executions_list(struct db *db, const char *lease_id, int64_t before_us, const char *before_id,
                    int64_t limit, struct arena *arena, execution_fn fn, void *ctx,
                    struct err *err);
/* Open ones, of one place or (NULL) of all. */
int executions_open(struct db *db, const char *place_id, struct arena *arena, execution_fn fn,
                    void *ctx, struct err *err);
/* Record the end of an open execution: 1, or 0 when it had ended. */
int executions_end(struct db *db, const struct execution *row, struct err *err);
/* Those that ended before that time, oldest first. */
int executions_ended_before(struct db *db, int64_t before_us, int64_t limit, struct arena *arena,
                            execution_fn fn, void *ctx, struct err *err);
/* How much output of ended executions is kept, by places that are not gone; of one execution at
 * most `most` counts. */
int executions_output(struct db *db, int64_t most, struct arena *arena,
                      int (*fn)(void *ctx, const char *place_id, int64_t bytes), void *ctx,
                      struct err *err);
/* The row goes, and its output is to be removed (outputs_to_remove). */
int executions_delete(struct db *db, const char *id, struct err *err);

/* Output whose execution is gone, in any way: a trigger notes it with the end of the row. */
struct output_to_remove {
        const char *execution_id;
        int64_t attempts; /* that failed */
        const char *note; /* why the last one did */
};

extern const struct row_type output_to_remove_table;

typedef int (*output_to_remove_fn)(void *ctx, const struct output_to_remove *row);

/* Up to `limit`, those that failed least often first. */
int outputs_to_remove(struct db *db, int64_t limit, struct arena *arena, output_to_remove_fn fn,
                      void *ctx, struct err *err);
int outputs_to_remove_done(struct db *db, const char *execution_id, struct err *err);
int outputs_to_remove_failed(struct db *db, const char *execution_id, const char *note,
                             struct err *err);
