/* Shared by the files of run.h.
 *
 * A task is what an operation knows of the run that it works on: the row as it last saw it, the
 * agent, the place. Every job begins by reading the row again and ends with the step that it
 * recorded, so jobs of one run may come in any order and after any crash; at any time there is at
 * most one per run (run_host.c). */
#pragma once

#include "core/access/run_policy.h"
#include "core/adapters/adapter_run.h"
#include "core/callbacks/callback.h"
#include "core/exec/exec.h"
#include "core/leases/lease.h"
#include "core/runs/run.h"
#include "core/runs/run_log.h"
#include "rt/pool.h"
#include "store/execution_workspaces.h"
#include "store/issues.h"
#include "store/projects.h"

#define RUN_FAILED_CODE    "adapter_failed"
#define RUN_LOST_CODE      "process_lost"
#define RUN_DISK_FULL_CODE "disk_full"
#define RUN_LOST_TEXT      "Process lost -- server may have restarted"
#define RUN_CANCELLED_CODE "cancelled"
#define RUN_CANCELLED_TEXT "Cancelled by control plane"
#define RUN_ASSETS_MEMBER  "paperclipAssets" /* of the context; adapter_run.h */
#define RUN_GRACE_MS       15000
#define RUN_NOTE_MS        10000 /* time for writing a row, whatever else happens */

/* What is left to do with a run once a job is over. */
enum run_next {
        RUN_NEXT_DONE,    /* nothing */
        RUN_NEXT_WATCH,   /* its command runs: execution_id */
        RUN_NEXT_HTTP,    /* the run is an HTTP request that has to be made */
        RUN_NEXT_FINISH,  /* its command is over */
        RUN_NEXT_AGAIN,   /* could not be done now: repeat the job later */
        RUN_NEXT_PREPARE, /* its command was not started: prepare from the beginning */
        RUN_NEXT_WAIT,    /* the same, after pause_ms */
        RUN_NEXT_LANE,    /* repeat the job with a seat in its environment's lane: run_result */
};

struct run_result {
        enum run_next next;
        char execution[UUID_LEN + 1]; /* of RUN_NEXT_WATCH */
        struct lane_name lane;        /* of RUN_NEXT_LANE */
        int64_t grace_ms;             /* between SIGTERM and SIGKILL */
        int64_t pause_ms;             /* of RUN_NEXT_WAIT */
        char *input; /* of a command that may not have received all of it; heap, or NULL */
        size_t input_len;
};

/* The environment and workspace chosen for a run (environment-runtime 5.1). */
struct run_choice {
        struct environment env;
        bool is_default;                      /* no object names it: it is the company's default */
        bool has_policy;                      /* what issues and projects say about it counts */
        struct issue issue;                   /* id NULL: none */
        struct project project;               /* id NULL: none */
        struct execution_workspace workspace; /* id NULL: none */
        json_t *config;                       /* the workspace's; NULL: none */
        const char *mode;                     /* of the workspace, or the default */
};

struct run_task {
        struct op *op; /* as the agent */
        struct op own; /* what `op` points to */
        struct runtime *rt;
        struct actor actor;
        struct run run;
        struct agent agent;
        const char *company_name;
        json_t *config;  /* adapterConfig; run_build() puts the project's variables under its own */
        json_t *context; /* contextSnapshot; written with the next step */
        struct run_choice choice;
        const char *project_id; /* whose variables the command gets; NULL: none */
        struct lease_record record;
        const struct kind *kind;
        const char *local_cwd; /* directory on this machine; NULL: none */
        const char *cwd;       /* where the command starts; NULL: as the driver says */
        struct adapter_input input;
        struct adapter_command command;
        int64_t end_asked_at;     /* of a command that was taken up; 0: it was not */
        const char *failure_code; /* of the error that is being returned; NULL: adapter_failed */
};

/* How a run ended. */
struct run_outcome {
        const char *status, *error, *error_code, *signal;
        int64_t exit_code;              /* -1: none */
        json_t *result;                 /* members of resultJson; NULL: none */
        struct adapter_result *adapter; /* NULL: the adapter reached no result */
        const char *log_sha256, *out, *err;
        int64_t log_bytes;
        bool timed_out;
        bool is_incomplete; /* output is missing */
        bool is_lost;       /* through no fault of the command: tried once more */
};

/* -- run.c -- */

/* Load a run and everything that its row refers to. ERR_NOT_FOUND. `op` is the job's. */
int run_task_load(struct op *op, struct runtime *rt, const char *id, struct run_task *ret,
                  struct err *err);
/* Load the run's lease, once there is one; ERR_NOT_FOUND. */
int run_task_lease(struct run_task *t, struct err *err);
/* Read the row again. */
int run_task_refresh(struct run_task *t, struct err *err);
/* The execution of the run's command; with `key` the one that was started under that key. */
int run_task_execution(struct run_task *t, const char *key, struct execution *ret, struct err *err);
/* An operation of the same task that ignores cancel, with time to write something down. */
struct op run_note_op(const struct run_task *t);
/* Move from step to step; the other members of the task's row are written with it, and the context.
 * `with`, when it is not NULL, is called in the same transaction. Afterwards run.status is the
 * current one. ERR_CONFLICT when another job has moved the run. */
int run_step(struct run_task *t, const char *from, const char *to,
             int (*with)(struct db *db, struct run_task *t, struct err *err), struct err *err);
/* Give an object to the arena, which frees it at its end. */
json_t *run_keep(struct arena *arena, json_t *take_value);
/* Parsed and kept; an empty object for a text that is not an object. */
json_t *run_parse(struct arena *arena, const char *text);
/* Live events, once the transaction is committed. */
void run_announce_status(struct db *db, const struct run *run);
void run_announce_agent(struct db *db, const struct run *run, const char *status);

/* Rows that are read before anything of them is written. */
struct run_rows {
        struct arena *arena; /* of the rows and their texts */
        struct run *at;
        size_t n, room;
};
int run_rows_add(void *ctx, const struct run *row); /* a run_fn */

/* -- run_queue.c -- */

struct run_ids {
        char (*at)[UUID_LEN + 1];
        size_t n, room;
};
void run_ids_done(struct run_ids *ids);

/* What the agent is told of its issue as it is now (run_wake_context.c): its fields, its
 * description and its latest comments, long texts cut. A new reference. ERR_NOT_FOUND. */
int run_describe_issue(struct db *db, const struct op *op, const char *id, json_t **ret,
                       struct err *err);

/* One pass over the table: runs that no job works on (when asked for), runs to cancel, and runs
 * that can be claimed. */
struct run_pass {
        bool look_for_strays;
        struct run_ids strays, cancelled, claimed;
};
int run_pass(struct op *op, struct runtime *rt, struct run_pass *pass, struct err *err);

/* -- run_select.c -- */
/* Whether the run's adapter starts a process, which needs a place. */
bool run_needs_place(const struct run_task *t);
int run_select(struct run_task *t, struct err *err);
/* The project that the run works for: of its issue, else of its context. 1, or 0: none, or it is
 * gone. */
int run_find_project(struct db *db, struct run_task *t, struct project *ret, struct err *err);

/* The lane (rt/pool.h) of the run's work: the lane for runs in its environment, or in the
 * environment that would be chosen now; for a request, the lane of its agent. Runs and API calls
 * have separate lanes: setting many runs up must not keep an operator from looking at one. */
int run_lane(struct op *op, struct runtime *rt, const char *id, bool is_request,
             struct lane_name *ret, struct err *err);

/* -- run_place.c: the lease, the directory, and making it ready -- */
int run_acquire(struct run_task *t, struct err *err);
int run_stage(struct run_task *t, struct err *err);
/* An error as `Failed to resolve execution <what> for "<environment>": …`. */
int run_fail_transport(struct run_task *t, int r, const char *what, struct err *err);
/* ERR_FORBIDDEN when the agent's configuration was written with an agent's key and the environment
 * is not isolated. An agent may choose its command in a sandbox and then have work on the host, by
 * an issue in another project for example: what its key wrote does not follow it there. Checked
 * before a place is taken, and again when the command is made, since the configuration may have
 * changed in between. */
int run_check_place(struct run_task *t, const struct environment *env, struct err *err);
/* Which shell runs scripts there: `sh`, or `bash` where the lease declares it. */
const char *run_shell(struct run_task *t);
/* At the end of a command, while the run has its place: its workspace's teardownCommand. A failure
 * is an event. */
int run_teardown(struct run_task *t, struct err *err);
/* Once its changes are home: the branch of its worktree, into the project's repository. The same.
 */
int run_publish(struct run_task *t, struct err *err);
/* Where commands start, for a run that has its place already. */
void run_find_cwd(struct run_task *t);

/* -- run_assets.c: files for the agent's program beside the work -- */
/* Bring the adapter's assets to the place, and write into the context where they are. A run that
 * cannot have them does not begin. */
int run_assets(struct run_task *t, struct err *err);

/* -- run_command.c -- */
/* Fill the adapter's input. */
void run_input(struct run_task *t, const json_t *session);
/* The adapter's input; `session` as saved unless `fresh`. */
int run_build(struct run_task *t, bool fresh, struct err *err);
/* The same for a run with a started command, by the execution's key. */
int run_rebuild(struct run_task *t, const char *key, struct err *err);
/* Install what the command needs, where the adapter knows how. A failed installation is not an
 * error. */
int run_setup(struct run_task *t, struct err *err);
/* Open the callback and start the command. *ret_id: the execution. */
int run_start(struct run_task *t, const char *key, const char **ret_id, struct err *err);
/* "run:<id>", or with `fresh` the one of the second attempt. In the arena. */
const char *run_key(struct run_task *t, bool fresh);

/* -- run_ready.c: checks in the place before the command -- */
/* A session file that does not belong to this directory is not resumed: the command is built anew.
 * The file of a fresh session is made, empty. */
int run_ready_session(struct run_task *t, struct err *err);
/* ERR_UNPROCESSABLE when the model cannot be reached from there; an event when it may not be. */
int run_ready_network(struct run_task *t, struct err *err);
/* ERR_UNPROCESSABLE when the model is not available there. */
int run_ready_model(struct run_task *t, struct err *err);

/* -- run_session.c: the files of sessions, from one place to the next -- */
/* Whether the files of a saved session are here. */
bool run_session_is_kept(const struct run_task *t, const json_t *session);
/* Keep them at the end of a command; what fails is logged. */
void run_session_save(struct run_task *t, const char *session_id);
/* Bring them before the command; false: it has to begin without that session. */
bool run_session_bring(struct run_task *t);

/* Keep how a command was made, even if its agent changes: inside a transaction, before the command
 * is started under that key. */
int run_kept_put(struct db *db, struct run_task *t, const char *key, struct err *err);
/* 1: the task's input and command are filled as far as its end needs them; 0: nothing is kept. */
int run_kept_get(struct run_task *t, const char *key, struct err *err);

/* -- run_postpone.c: preparing again -- */
/* Whether a failed preparation may succeed later: by the error (base/err.h), or because the place
 * that it was about has ended. */
bool run_may_pass(struct run_task *t, int r, const struct err *cause);
/* The command was not started, and may be later: give up what the run holds, and record when it is
 * tried again, or that it was tried for long enough. `from` is its step, `took_ms` the duration of
 * this try. */
enum run_next run_postpone(struct run_task *t, const char *from, int64_t took_ms,
                           const struct err *cause, struct run_result *ret);
/* The idempotency key of the run's lease: the run's own key, and another one once the lease of an
 * earlier try has ended. A lease that an earlier daemon left is taken over, unless something was
 * done in its place: then it is released first. */
int run_lease_key(struct run_task *t, const char **ret, struct err *err);

/* -- run_prepare.c, run_finish.c, run_http.c, run_recover.c: jobs -- */
typedef enum run_next run_job_fn(struct op *op, struct runtime *rt, const char *id,
                                 struct run_result *ret);
run_job_fn run_prepare, run_finish;
/* Make the run's request, and finish the run. */
run_job_fn run_http;
/* Take up a run by its step. */
run_job_fn run_recover;
/* Watch a command that an earlier daemon started: the callback is opened, and the command gets the
 * rest of its input. */
enum run_next run_go_on(struct run_task *t, struct run_result *ret);
/* The run could not be taken up, again and again: it is over, and how it ended is unknown.
 * Releasing its lease ends what is left of it. */
run_job_fn run_give_up;

/* -- run_pump.c: while the command runs -- */

/* How far a command's output was searched for its last word and its steps (adapter_run.h). */
struct run_word {
        char execution[UUID_LEN + 1]; /* the execution that the rest is about */
        const char *type;             /* of its adapter; static; NULL: it has neither */
        bool has_steps, has_last;
        int64_t line, at; /* where a line begins; where the search goes on */
        int64_t times;    /* the last word came in a row */
        bool said;
        int64_t steps; /* events of the run that tell of its steps */
};

struct run_pump {
        const struct exec_view *view; /* is noted in the row; NULL: not now */
        bool ask;                     /* it lives on after its last word: note that it has to end */
        struct run_word word;         /* from one time to the next */
        bool more;                    /* there is more output now */
        bool asked;                   /* it is noted */
};

/* Bring output into the log, and look for steps and the last word in it. */
void run_pump(struct op *op, struct runtime *rt, const char *id, struct run_pump *pump);
/* The steps in all of the output, once the command has ended and its input is known. */
int run_note_steps(struct run_task *t, struct err *err);
/* Set the members of the row that describe the output. */
void run_set_output(struct run *run, const struct run_log_state *state);

/* -- run_outcome.c -- */
/* Record how the run ended and go on to `releasing`. A terminal run keeps its status. */
int run_conclude(struct run_task *t, const char *from, const struct run_outcome *outcome,
                 struct err *err);
/* The outcome for an error before the command began. */
struct run_outcome run_failure(const struct run_task *t, const struct err *cause);
/* Give up the leases and finish. */
enum run_next run_release(struct run_task *t);
/* The events and rows that follow from a terminal status, inside the transaction that set it. */
int run_note_end(struct db *db, struct runtime *rt, const struct run *run, struct err *err);

/* -- run_follow.c: inside the transaction that records the end -- */
/* Set livenessState and its reason: how far the run got with its issue. The row has its status and
 * its output; `spoke`: its adapter found a last word. */
int run_judge_liveness(struct db *db, const struct op *op, struct run *run, bool spoke,
                       struct err *err);
/* Once the run has let go of its issue, and unless it is tried again: wake the agent of a run that
 * left its issue open; block an issue whose runs are lost or fail again and again. */
int run_follow(struct db *db, struct run_task *t, const struct run *run, bool *ret_kick,
               struct err *err);
