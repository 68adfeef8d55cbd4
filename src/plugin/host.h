/* The plugin host: worker processes and the calls made to them.
 *
 * A worker is a child that speaks JSON-RPC, one document per line, on its standard input and
 * output. Each has a thread of its own here (worker.c), which starts it, tells requests from
 * answers by their shape, restarts it when it dies and gives up when it dies too often. So one that
 * floods, or answers with megabytes, costs the loop and the other workers nothing. The host writes
 * no rows: what it learns goes to the callbacks, which run on the thread of the worker concerned
 * and must neither block for long nor call operations of the host.
 *
 * An entry that ends in .js, .mjs or .cjs is run by node; any other is a program itself.
 *
 * Whatever a worker sends is hostile: lines are bounded, documents are parsed strictly, ids that
 * were never given out are dropped, and a worker is read no faster than it is dealt with.
 *
 * Functions marked "operation" block an operation thread until the answer, the deadline or the
 * cancel; the others are for any thread. */
#pragma once

#include "codec/json.h"
#include "plugin/confine.h"
#include "rt/op.h"

#define PLUGIN_CALL_MS       30000
#define PLUGIN_CALL_GRACE_MS 30000 /* over what a provider was told */

struct plugin_host;

enum worker_state {
        WORKER_STOPPED,
        WORKER_STARTING,
        WORKER_RUNNING,
        WORKER_STOPPING,
        WORKER_CRASHED,
        WORKER_BACKOFF,
};

struct worker_view {
        enum worker_state state;
        int64_t pid, started_at, last_crash_at, next_restart_at; /* 0: none; wall clock, us */
        unsigned consecutive_crashes, total_crashes, pending;
        bool gave_up;     /* no further restart; `reason` says why */
        char reason[512]; /* of the last failure; redacted */
};

/* A worker to run. Borrowed during the call, copied by the host. */
struct worker_spec {
        const char *plugin_id, *plugin_key;
        const char *root;  /* real path of the package */
        const char *entry; /* real path of the worker file, inside root */
        const json_t *manifest;
        const json_t *config;           /* plugin-wide configuration; NULL: {} */
        const char *const *env;         /* NAME=value, complete; from plugin_env() */
        const char *private_dir;        /* the worker's own directory; made when missing */
        const char *const *extra_reads; /* more paths it may read; NULL-terminated, may be NULL */
        const char *copies;        /* a directory for those that its user has to get a copy of */
        const char *const *probes; /* instead of running it: confine_argv(); NULL: none */
        bool keep_trying; /* a first start that fails counts as a crash: it is not the last */
};

/* How long things may take, in milliseconds; 0 stands for the value in the comment. */
struct worker_times {
        int64_t initialize;   /* 15000 */
        int64_t call;         /* 30000, for calls without a limit of their own */
        int64_t drain;        /* 10000: calls under way, before a shutdown */
        int64_t shutdown;     /* 10000: the answer to shutdown */
        int64_t leave;        /* 500: to exit after it */
        int64_t term;         /* 5000: after SIGTERM */
        int64_t kill;         /* 2000: after SIGKILL */
        int64_t backoff;      /* 1000, doubling ... */
        int64_t backoff_max;  /* 300000 */
        int64_t stable;       /* 60000: after this crashes are counted anew */
        int64_t crash_budget; /* 10 in a row */
        int64_t settle;       /* 60000: for a provider to carry out a request that was cut off */
};

struct plugin_host_config {
        const char *node;              /* path of the interpreter; NULL: node in PATH */
        struct confine_policy *policy; /* NULL: workers are not confined */
        const char *instance_id;       /* for initialize */
        const char *host_version;
        struct worker_times times;
        void *ctx;
        /* A line of log; bounded, rate-limited and redacted already. meta may be NULL. */
        void (*log)(void *ctx, const char *plugin_key, const char *level, const char *message,
                    const char *meta);
        /* The state of a worker changed. */
        void (*changed)(void *ctx, const char *plugin_id, const struct worker_view *view);
};

/* One call. Strings and params are borrowed while it is begun. */
struct plugin_call {
        const char *plugin_id;
        const char *method;
        const json_t *params;
        const char *company_id; /* for the invocation scope; NULL: none */
        int64_t timeout_ms;     /* 0: the default */
        /* Values that must not appear in what the worker makes us log or say; NULL-terminated. */
        const char *const *redact;
        /* execute.log of this call, as it arrives, in order and without a gap. NULL: dropped. */
        void (*output)(void *ctx, bool is_stderr, const char *chunk, size_t len);
        /* Called exactly once if the call ended with ERR_TIMEOUT or ERR_CANCELLED, and in no other
         * case: with the answer that came too late (borrowed), or with NULL when there was an error
         * or none will ever come. NULL: the caller is not interested. */
        void (*late)(void *ctx, const json_t *result);
        void *ctx;
};

/* Operation: prepare the files of a worker, and say how it is started: for callers that talk to a
 * worker themselves, and for the probes. In the arena. */
int plugin_host_command(const struct op *op, const struct plugin_host_config *config,
                        const struct worker_spec *spec, struct arena *arena, const char **ret_path,
                        const char *const **ret_argv, struct err *err);

int plugin_host_new(const struct plugin_host_config *config, struct plugin_host **ret,
                    struct err *err);
/* Kill what is left and free. The host is no longer in use. */
void plugin_host_free(struct plugin_host *host);

/* Operation: start (or restart) a worker and wait until it is initialized, or its first start has
 * failed. One that fails here is not started again by itself, unless the spec says so: then the
 * error is of the first start, and plugin_host_view() tells whether it was given up. */
int plugin_host_start(struct op *op, struct plugin_host *host, const struct worker_spec *spec,
                      struct err *err);
/* Operation: let running calls end within a bound, then shutdown, SIGTERM, SIGKILL. A worker that
 * does not run is fine. Afterwards it is not registered any more. */
int plugin_host_stop(struct op *op, struct plugin_host *host, const char *plugin_id,
                     struct err *err);
/* Operation: stop all, in parallel. */
int plugin_host_stop_all(struct op *op, struct plugin_host *host, struct err *err);

/* False when no worker is registered. */
bool plugin_host_view(struct plugin_host *host, const char *plugin_id, struct worker_view *ret);
bool plugin_host_is_running(struct plugin_host *host, const char *plugin_id);
/* Whether the worker said that it has the method. */
bool plugin_host_supports(struct plugin_host *host, const char *plugin_id, const char *method);
int64_t plugin_host_settle_ms(const struct plugin_host *host);
const char *worker_state_name(enum worker_state state);

/* Operation: call and wait. The error's code says what is known of the effect: ERR_UNCERTAIN when
 * the worker died over it, ERR_TIMEOUT and ERR_CANCELLED when it may still be at it,
 * ERR_NOT_IMPLEMENTED for -32004, ERR_PROVIDER for an answer that is an error and for a call that
 * never reached a worker; details carry {"code": <JSON-RPC code>}. *ret is a new reference. */
int plugin_call(struct op *op, struct plugin_host *host, const struct plugin_call *call,
                json_t **ret, struct err *err);

/* The same without waiting. `done` is called exactly once unless an error is returned, with the
 * codes of plugin_call(); the result is borrowed. */
typedef void (*plugin_done_fn)(void *ctx, int code, const json_t *result, const struct err *err);
int plugin_call_begin(struct plugin_host *host, const struct plugin_call *call, plugin_done_fn done,
                      void *done_ctx, int64_t *ret_id, struct err *err);
/* The answer is no longer wanted: `done` is called with that code, ERR_CANCELLED or ERR_TIMEOUT,
 * unless it was called before. The worker is not told; the protocol has no word for it. */
void plugin_call_abandon(struct plugin_host *host, const char *plugin_id, int64_t id, int code);
