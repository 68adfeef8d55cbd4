/* Rows of `heartbeat_runs` (migrations/0008_runs.sql says what the steps are). Every write names
 * what it expects to find: status, step or owner; 1 when it was so, 0 when another writer was
 * first. */
#pragma once

#include "store/db.h"

#define RUN_QUEUED          "queued"
#define RUN_SCHEDULED_RETRY "scheduled_retry"
#define RUN_RUNNING         "running"
#define RUN_SUCCEEDED       "succeeded"
#define RUN_FAILED          "failed"
#define RUN_CANCELLED       "cancelled"
#define RUN_TIMED_OUT       "timed_out"

#define STEP_QUEUED    "queued"
#define STEP_PREPARING "preparing"
#define STEP_EXECUTING "executing"
#define STEP_FINISHING "finishing"
#define STEP_RELEASING "releasing"
#define STEP_DONE      "done"

/* SQL: whether a run may still do something to what it works on. A cancelled one does until its
 * command is gone and its changes are home; from then on giving up its leases does not count. */
#define RUN_HOLDS                                                                                  \
        "(step <> 'done' AND (status IN ('queued', 'scheduled_retry', 'running') OR "              \
        "step IN ('preparing', 'executing', 'finishing')))"

struct run {
        const char *id, *company_id, *agent_id, *invocation_source, *trigger_detail, *status;
        const char *error, *error_code, *signal;
        int64_t exit_code; /* -1: none */
        const char *result_json, *context_snapshot, *usage_json;
        int64_t process_pid, process_group_id, process_started_at; /* 0: not known */
        int64_t last_output_at, last_output_seq;
        const char *retry_of_run_id;
        int64_t process_loss_retry_count;
        const char *wakeup_request_id;
        const char *step, *owner, *issue_id, *task_key;
        const char *environment_id, *lease_id, *execution_id;
        int64_t callback_port, cancel_requested_at;
        const char *session_id_before, *session_id_after;
        const char *log_ref, *log_sha256;
        int64_t log_bytes;
        const char *stdout_excerpt, *stderr_excerpt, *last_output_stream;
        bool is_incomplete; /* output is missing */
        int64_t last_output_bytes;
        int64_t scheduled_retry_at, scheduled_retry_attempt;
        const char *scheduled_retry_reason;
        int64_t started_at, leased_at, staged_at, spawned_at, first_output_at, exited_at;
        int64_t restored_at, finished_at, released_at;
        int64_t created_at, updated_at;
        /* Of one whose preparation failed for now; reason NULL: it does not wait. */
        const char *waiting_reason;
        int64_t waiting_since, next_try_at; /* 0: none */
        int64_t prepare_failures;           /* in a row */
        int64_t waited_ms;                  /* what they and the pauses took */
        /* How far it got, in words of the API; NULL until it has ended. */
        const char *liveness_state, *liveness_reason;
        int64_t continuation_attempt;       /* which follow-up it is; 0: none */
        int64_t last_useful_action_at;      /* 0: none */
        const char *retry_exhausted_reason; /* NULL: it was tried again, or did not have to be */
        /* What was last said about its silence, and when; NULL: nothing. */
        const char *silence_level;
        int64_t silence_noted_at;
};

extern const struct row_type run_table;

typedef int (*run_fn)(void *ctx, const struct run *row);

ROW_BASICS(runs, struct run, run_table) /* runs_insert(), runs_get() */

struct run_filter {
        const char *company_id;   /* NULL: all */
        const char *agent_id;     /* NULL: all */
        const char *issue_id;     /* NULL: all */
        bool live;                /* queued, scheduled_retry and running only */
        int64_t before_us, limit; /* 0: from the newest; 0: all */
        const char *before_id;
};
/* Newest first. */
int runs_list(struct db *db, const struct run_filter *filter, struct arena *arena, run_fn fn,
              void *ctx, struct err *err);
/* Runs that have to be continued: step neither queued nor done. */
int runs_unfinished(struct db *db, struct arena *arena, run_fn fn, void *ctx, struct err *err);
/* Agents that have something queued, those that wait longest first. */
int runs_waiting_agents(struct db *db, struct arena *arena,
                        int (*fn)(void *ctx, const char *agent_id), void *ctx, struct err *err);
/* Queued ones of an agent, oldest first; limit 0: all. */
int runs_queued(struct db *db, const char *agent_id, int64_t limit, struct arena *arena, run_fn fn,
                void *ctx, struct err *err);
/* Those whose end was asked for while their command may run. */
int runs_cancelled(struct db *db, struct arena *arena, run_fn fn, void *ctx, struct err *err);
/* Live ones of an agent. */
int runs_live_of(struct db *db, const char *agent_id, struct arena *arena, run_fn fn, void *ctx,
                 struct err *err);
/* The one that works in a place, or was the last to. */
int runs_last_in_place(struct db *db, const char *place_id, struct arena *arena, run_fn fn,
                       void *ctx, struct err *err);
/* scheduled_retry whose time has come. */
int runs_due(struct db *db, int64_t now_us, struct arena *arena, run_fn fn, void *ctx,
             struct err *err);
/* Those whose command runs and printed nothing since. */
int runs_silent(struct db *db, int64_t since_us, struct arena *arena, run_fn fn, void *ctx,
                struct err *err);
/* How many of the agent are running, those included that are ended and whose command may not be. */
int runs_count_running(struct db *db, const char *agent_id, int64_t *ret, struct err *err);
/* How many of an agent, or with NULL of the company, are not over yet. */
int runs_count_open_of(struct db *db, const char *company_id, const char *agent_id, int64_t *ret,
                       struct err *err);
/* Delete at most `limit` of them, with everything that belongs to them; how many. */
int runs_delete_some(struct db *db, const char *company_id, const char *agent_id, int64_t limit,
                     struct err *err);
/* How many of all agents are not over yet. */
int runs_count_open(struct db *db, int64_t *ret, struct err *err);

/* queued -> running, step preparing, with its owner and started_at. Once per id, ever. */
int runs_claim(struct db *db, const char *id, const char *owner, int64_t now_us, struct err *err);
/* What it is told, of one that was just claimed. */
int runs_tell(struct db *db, const char *id, const char *context_snapshot, struct err *err);
/* scheduled_retry -> queued. */
int runs_wake(struct db *db, const char *id, int64_t now_us, struct err *err);
/* Another instance takes over what `from` (may be NULL) left. */
int runs_adopt(struct db *db, const char *id, const char *from, const char *owner, int64_t now_us,
               struct err *err);
/* From step to step, by its owner; everything else of the row that `row` carries is written but
 * status, finished_at, error*, exit_code, signal and result: those are runs_end()'s. */
int runs_step(struct db *db, const struct run *row, const char *from, const char *to,
              struct err *err);
/* The outcome: status, error*, exit_code, signal, result, usage, excerpts, session, finished_at.
 * Only of a run whose status is still `from`. */
int runs_end(struct db *db, const struct run *row, const char *from, struct err *err);
/* Ask for the end of one that runs; 0 when it was asked for before. */
int runs_request_cancel(struct db *db, const char *id, int64_t now_us, struct err *err);
/* How far the output is, and the process that it comes from once that is known. Unconditional: it
 * only grows. */
int runs_note_output(struct db *db, const struct run *row, struct err *err);
/* What was said about the silence of one that runs. */
int runs_note_silence(struct db *db, const char *id, const char *level, int64_t now_us,
                      struct err *err);
/* One that never began is over: its step becomes done with its end. */
int runs_drop(struct db *db, const char *id, int64_t now_us, struct err *err);

/* The wake-up that a run came from: `claimed`, or how it ended. NULL: there was none. */
int runs_note_wakeup(struct db *db, const char *wakeup_id, const char *status, const char *error,
                     int64_t now_us, struct err *err);

bool run_is_terminal(const struct run *run);
