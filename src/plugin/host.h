/* The plugin host: worker processes and the calls made to them.
 *
 * A worker is a child that speaks JSON-RPC, one document per line, on its standard input and
 * output. The host starts it, tells requests from answers by their shape, restarts it when it dies,
 * and gives up when it dies too often. Its loop side lives on the loop thread; functions marked
 * "operation" block an operation thread until the answer, the deadline or the cancel. The host
 * writes no rows: what it learns about a worker goes to the `changed` and `log` callbacks.
 *
 * Whatever a worker sends is hostile: lines are bounded, documents are parsed strictly, ids that
 * were never given out are dropped, and a worker that floods is stopped from sending (its pipe is
 * not read) rather than buffered. */
#ifndef BERTH_PLUGIN_HOST_H
#define BERTH_PLUGIN_HOST_H

#include <uv.h>

#include "codec/json.h"
#include "rt/mail.h"
#include "rt/op.h"

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
        int64_t pid, started_at, last_crash_at, next_restart_at;
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
        const json_t *config;           /* plugin-wide configuration */
        const char *const *env;         /* NAME=value, complete; from plugin_env() */
        const char *private_dir;        /* the worker's own directory; made when missing */
        const char *const *extra_reads; /* more paths it may read; NULL-terminated, may be NULL */
};

struct plugin_host_config {
        uv_loop_t *loop;
        struct mail *mail;
        const char *node;        /* path of the interpreter; NULL: looked up in PATH */
        const char *instance_id; /* for initialize */
        const char *host_version;
        bool confine; /* Landlock where the kernel has it */
        void *ctx;
        /* Loop thread. A line of log; already bounded and rate-limited. */
        void (*log)(void *ctx, const char *plugin_id, const char *level, const char *message,
                    const json_t *meta);
        /* Loop thread. The state of a worker changed. */
        void (*changed)(void *ctx, const char *plugin_id, const struct worker_view *view);
};

/* One call. Strings and params are borrowed until it returns. */
struct plugin_call {
        const char *plugin_id;
        const char *method;
        json_t *params;
        const char *company_id; /* for the invocation scope; NULL: none */
        int64_t timeout_ms;     /* 0: the default (30 s) */
        /* Values that must not appear in what the worker makes us log or say; NULL-terminated. */
        const char *const *redact;
        /* execute.log of this call, as it arrives. Loop thread. NULL: dropped. */
        void (*output)(void *ctx, bool is_stderr, const char *chunk, size_t len);
        /* The answer came after the caller had given up (timeout, cancel). Loop thread; the result
         * is borrowed. NULL: dropped and counted. ctx must outlive the worker. */
        void (*late)(void *ctx, const json_t *result);
        void *ctx;
};

int plugin_host_new(const struct plugin_host_config *config, struct plugin_host **ret,
                    struct err *err);
/* Loop thread: kill what is left and free. */
void plugin_host_free(struct plugin_host *host);

/* Operation: start (or restart) a worker and wait until it is initialized. */
int plugin_host_start(struct op *op, struct plugin_host *host, const struct worker_spec *spec,
                      struct err *err);
/* Operation: let running calls end within a bound, then shutdown, SIGTERM, SIGKILL. A worker that
 * does not run is fine. */
int plugin_host_stop(struct op *op, struct plugin_host *host, const char *plugin_id,
                     struct err *err);
/* Operation: stop all, in parallel. */
int plugin_host_stop_all(struct op *op, struct plugin_host *host, struct err *err);

/* Any thread. False when no worker is registered. */
bool plugin_host_view(struct plugin_host *host, const char *plugin_id, struct worker_view *ret);
bool plugin_host_is_running(struct plugin_host *host, const char *plugin_id);
/* Any thread: whether the worker said that it has the method. */
bool plugin_host_supports(struct plugin_host *host, const char *plugin_id, const char *method);

/* Operation: call and wait. The error's code says what is known of the effect: ERR_UNCERTAIN when
 * the worker died, ERR_TIMEOUT and ERR_CANCELLED when it may still be at it, ERR_NOT_IMPLEMENTED
 * for -32004, ERR_PROVIDER for an answer that is an error; details carry {"code": <JSON-RPC code>}.
 * *ret is a new reference. */
int plugin_call(struct op *op, struct plugin_host *host, const struct plugin_call *call,
                json_t **ret, struct err *err);

#endif
