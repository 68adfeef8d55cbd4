/* Runs: an agent is woken, works in its environment, and its changes are brought home.
 *
 *   wake      a wake-up request and a queued run, in one transaction            run_wake.c
 *   claim     queued -> running by compare-and-set: once per run id, ever       run_queue.c
 *   prepare   environment chosen | lease | workspace | callback | command       run_prepare.c
 *   execute   the command runs in the box; no thread of ours waits              run_host.c
 *   finish    callback closed | output read | workspace home | outcome          run_finish.c
 *   release   leases given up | the next queued run                             run_outcome.c
 *
 * Each step is recorded (store/runs.h) before its work is done, and all work of a step may be done
 * again after a crash: the lease and the execution carry the run's id as idempotency key. Runs that
 * an earlier instance of the daemon left are taken up at start (run_recover.c): a command that
 * still runs goes on, a command that is gone is reported as lost.
 *
 * `status` is what users see, `step` what is left to do. A cancelled run is terminal at once; after
 * that its command is ended, its changes are brought home and its leases are released.
 *
 * The host (struct run_host) lives on the loop: it knows which runs are being worked on here, and
 * watches their executions. Functions marked "operation" are called on operation threads; results
 * live in the operation's arena. */
#pragma once

#include <uv.h>

#include "codec/json.h"
#include "core/access/access.h"
#include "core/issues/rules/issue_rules.h"
#include "core/live/run_event.h"
#include "store/run_events.h"
#include "store/runs.h"

struct run_host;

/* The request for a wake-up (http-api 3.8). Strings may be NULL where the API lets them be
 * absent. */
struct wake_request {
        const char *agent_id;
        const char *source; /* timer, assignment, on_demand, automation */
        const char *trigger_detail, *reason;
        const json_t *payload; /* object or NULL; `issueId` scopes the run */
        const char *idempotency_key;
        const char *issue_id;        /* NULL: payload.issueId */
        const char *wake_comment_id; /* the comment that the wake-up is about */
        bool force_fresh_session;
        int64_t continuation_attempt; /* which follow-up of a run it is; 0: none */
};

#define WAKE_TIMER      "timer"
#define WAKE_ASSIGNMENT "assignment"
#define WAKE_ON_DEMAND  "on_demand"
#define WAKE_AUTOMATION "automation"

#define WAKE_REASON_DEFERRED "issue_execution_deferred"
#define WAKE_REASON_BLOCKED  "issue_dependencies_blocked"
#define WAKE_REASON_SKIPPED  "wakeup_skipped"

enum wake_outcome {
        WAKE_QUEUED,    /* *ret_run is the new run */
        WAKE_COALESCED, /* it joins a queued run of the same task: *ret_run */
        WAKE_DEFERRED,  /* the issue is being worked on: `holder` */
        WAKE_SKIPPED,
};

struct wake_result {
        enum wake_outcome outcome;
        struct run run;     /* of a queued or coalesced wake-up; of a deferred one, the holder's */
        const char *reason; /* of a deferred or skipped wake-up */
        const char *issue_id, *holder_agent_id, *holder_agent_name;
};

/* Inside a write transaction: write the rows of a wake-up (run_wake.h for deferred ones). The same
 * idempotency key again gives the same run. 409 `Agent is not invokable in its current state` with
 * details.status. Nothing starts before run_host_kick(). */
int run_wake_in(struct db *db, const struct op *op, struct runtime *rt,
                const struct wake_request *req, struct wake_result *ret, struct err *err);
/* Operation: the same in a transaction of its own, and kick. */
int run_wake(struct op *op, struct runtime *rt, const struct wake_request *req,
             struct wake_result *ret, struct err *err);

/* Operation. Terminal runs are returned unchanged. */
int run_cancel(struct op *op, struct runtime *rt, const char *run_id, struct run *ret,
               struct err *err);
/* Inside a write transaction: end all live runs of an agent, because the agent was paused or
 * terminated, or its issue was taken away. Kick afterwards. */
int run_cancel_agent(struct db *db, const struct op *op, struct runtime *rt, const char *agent_id,
                     const char *why, struct err *err);

/* The same for one run that was read in this transaction; does nothing when it has ended. */
int run_cancel_in(struct db *db, const struct op *op, struct runtime *rt, struct run *run,
                  const char *why, const char *code, struct err *err);

/* The host. */
int run_host_new(struct runtime *rt, uv_loop_t *loop, struct run_host **ret, struct err *err);
/* Loop thread, once boxes are adopted and before requests are served: take up the runs that were
 * left. */
int run_host_start(struct run_host *host, struct err *err);
/* Any thread: there may be something to claim, to cancel or to schedule. NULL: nothing happens. */
void run_host_kick(struct run_host *host);
/* Loop thread: start nothing any more. Commands go on without the daemon. */
void run_host_stop(struct run_host *host);
void run_host_free(struct run_host *host);
