/* Rows of `agent_wakeup_requests`: why an agent was to work, and what became of it.
 *
 *   queued                    `run_id` is the run that was made for it
 *   coalesced                 a run that was queued already takes it along: `run_id`
 *   deferred_issue_execution  the issue is being worked on, by `run_id`; it becomes queued when
 * that ends skipped                   nothing happened; `error` says why claimed, completed,
 * failed, cancelled   as its run
 *
 * `payload` is what the caller sent; that of a deferred one also has `_wake`, what its run needs to
 * know besides. */
#pragma once

#include "store/db.h"

#define WAKEUP_QUEUED    "queued"
#define WAKEUP_COALESCED "coalesced"
#define WAKEUP_DEFERRED  "deferred_issue_execution"
#define WAKEUP_SKIPPED   "skipped"

struct wakeup {
        const char *id, *company_id, *agent_id, *source, *trigger_detail, *reason;
        const char *payload; /* object or NULL */
        const char *status;
        int64_t coalesced_count;
        const char *requested_by_actor_type, *requested_by_actor_id;
        const char *idempotency_key, *issue_id, *run_id, *error;
        int64_t requested_at, claimed_at, finished_at;
};

extern const struct row_type wakeup_table;

typedef int (*wakeup_fn)(void *ctx, const struct wakeup *row);

int wakeups_insert(struct db *db, const struct wakeup *row, struct err *err);
/* ERR_NOT_FOUND. */
int wakeups_by_key(struct db *db, const char *agent_id, const char *key, struct arena *arena,
                   struct wakeup *ret, struct err *err);
/* The deferred one of that agent and issue; ERR_NOT_FOUND. */
int wakeups_deferred_of(struct db *db, const char *agent_id, const char *issue_id,
                        struct arena *arena, struct wakeup *ret, struct err *err);
/* All that are deferred, the oldest first. */
int wakeups_deferred(struct db *db, struct arena *arena, wakeup_fn fn, void *ctx, struct err *err);
/* Those that waited for that run, or for any of that issue (NULL: none). */
int wakeups_deferred_after(struct db *db, const char *run_id, const char *issue_id,
                           struct arena *arena, wakeup_fn fn, void *ctx, struct err *err);
/* One more came that it speaks for: its payload, reason and count. 0 when it is no longer `from`.
 */
int wakeups_merge(struct db *db, const char *id, const char *from, const char *reason,
                  const char *payload, struct err *err);
/* From status to status, with the run (NULL: as it was) and the error. 0 when another writer was
 * first.
 */
int wakeups_move(struct db *db, const char *id, const char *from, const char *to,
                 const char *run_id, const char *error, int64_t now_us, struct err *err);

/* The run that has not begun of an agent, for the issue, or when that is NULL for the task (may be
 * NULL too): its id, or NULL. */
int wakeups_waiting_run(struct db *db, const char *agent_id, const char *issue_id,
                        const char *task_key, struct arena *arena, const char **ret,
                        struct err *err);
/* A run of the issue that has not ended, or whose command may not have (RUN_HOLDS), of any agent;
 * those that began come first. NULL: none. */
int wakeups_live_run(struct db *db, const char *issue_id, struct arena *arena, const char **ret,
                     struct err *err);
/* One of them that has ended and whose command may not have, unless it was woken for `aside` only
 * and not ended because of the issue; never `but` (may be NULL). NULL: none. */
int wakeups_leaving_run(struct db *db, const char *issue_id, const char *aside, const char *but,
                        struct arena *arena, const char **ret, struct err *err);
/* Set the context of a run that has not begun; 0 when it has begun, or ended. */
int wakeups_set_context(struct db *db, const char *run_id, const char *context_snapshot,
                        int64_t now_us, struct err *err);

/* When the first scheduled retry is due; 0: there is none. */
int wakeups_next_retry(struct db *db, int64_t *ret_us, struct err *err);
int wakeups_count_deferred(struct db *db, int64_t *ret, struct err *err);

/* An agent that may have a schedule, or had one. */
struct agent_schedule {
        const char *agent_id, *status, *runtime_config;
        int64_t last_due_at; /* 0: never */
};
typedef int (*agent_schedule_fn)(void *ctx, const struct agent_schedule *row);

int agent_schedules_list(struct db *db, struct arena *arena, agent_schedule_fn fn, void *ctx,
                         struct err *err);
/* Remember a due time; 0 when that time, or a later one, was remembered before. */
int agent_schedules_advance(struct db *db, const char *agent_id, int64_t due_us, struct err *err);
/* Begin anew from that time, whatever was remembered. */
int agent_schedules_reset(struct db *db, const char *agent_id, int64_t due_us, struct err *err);
int agent_schedules_forget(struct db *db, const char *agent_id, struct err *err);
