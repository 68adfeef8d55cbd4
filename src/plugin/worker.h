/* One worker and its thread; inside the plugin host only (host.h says what it promises).
 *
 * The thread owns the process and its pipes. Members that other threads touch are under `lock`: the
 * state, the calls and the bytes on their way to the worker. Callbacks are made by the thread
 * without the lock, so all of one worker come one after the other. */
#pragma once

#include <pthread.h>

#include "base/uuid.h"
#include "codec/jsonrpc.h"
#include "codec/ndjson.h"
#include "plugin/host.h"
#include "plugin/secret_set.h"
#include "rt/proc.h"

#define WORKER_LINE_MAX    ((size_t)64 << 20)
#define WORKER_OUT_MAX     ((size_t)128 << 20)
#define WORKER_CALLS_MAX   10000
#define WORKER_STDERR_KEPT 8000
#define WORKER_STDERR_LINE ((size_t)64 << 10)
#define WORKER_LOG_BURST   100 /* lines in ... */
#define WORKER_LOG_WINDOW  10000
#define WORKER_CHUNK_MAX   1000000 /* UTF-16 units of one execute.log */
#define WORKER_OUTPUT_MAX  ((size_t)128 << 20)

/* A call that was begun. It stays in the list after its caller gave up, until it is answered or the
 * process ends. */
struct rpc_call {
        struct rpc_call *next;
        int64_t id;
        char *method, *company_id;
        struct uuid invocation;
        int64_t deadline_ms, limit_ms;
        char *line; /* until the worker is initialized and may get it */
        size_t line_len;
        int abandoned; /* the code that its caller wants, or 0 */
        bool gave_up;  /* its caller has been told */
        bool gap;      /* a piece of its output was dropped: no further one is passed on */
        size_t output; /* bytes passed on */
        plugin_done_fn done;
        void *done_ctx;
        void (*on_output)(void *ctx, bool is_stderr, const char *chunk, size_t len);
        void (*late)(void *ctx, const json_t *result);
        void *ctx;
};

enum stop_phase { STOP_NONE, STOP_DRAIN, STOP_ASKED, STOP_LEAVING, STOP_TERM, STOP_KILL };

struct worker {
        struct worker *next; /* in the host */
        struct plugin_host *host;
        const struct plugin_host_config *config;

        /* immutable */
        char *id, *key, *private_dir;
        char *program;      /* to start, with */
        char **argv, **env; /* NULL-terminated */
        json_t *initialize; /* params; used by the thread only */
        json_t *plugin_config;
        pthread_t thread;

        /* the thread's own */
        struct ndjson lines, err_lines;
        struct buf stderr_tail;
        int64_t initialize_id, shutdown_id;
        int64_t phase_until_ms;
        int64_t running_since_ms, eof_ms; /* when its output was closed; 0: it is open */
        int64_t log_window_ms, read_again_ms;
        struct proc proc;
        int in_fd, out_fd, err_fd;
        enum stop_phase phase; /* of the stop */
        unsigned log_count, log_suppressed, junk;

        _Atomic int refs;
        int wake_fd;  /* something changed for the thread */
        int first_fd; /* readable once the first start succeeded or failed */
        int ended_fd; /* readable once the thread is done */

        pthread_mutex_t lock; /* over these */
        struct worker_view view;
        json_t *methods;                     /* array, of the running process; NULL: none */
        struct rpc_call *calls, **calls_end; /* oldest first */
        int64_t next_id;
        struct buf out; /* to the worker's standard input */
        size_t out_sent;
        struct secret_set secrets; /* values that it was given */
        unsigned n_calls;
        bool stop_wanted, stop_at_once;
        char first_error[1024]; /* "": the first start went well */

        /* the thread's own again */
        char failure[1024]; /* why this process is no good; "": it is */
        bool keep_trying;   /* as in its spec */
        bool out_eof, err_eof, started_once, initialized, shutdown_answered;
};

/* host.c uses these. */
int worker_new(struct plugin_host *host, const struct plugin_host_config *config,
               const struct worker_spec *spec, struct worker **ret, struct err *err);
int worker_start_thread(struct worker *w, struct err *err);
void worker_free(struct worker *w); /* one whose thread was never started */
struct worker *worker_ref(struct worker *w);
void worker_unref(struct worker *w); /* joins the thread with the last one */
void worker_ask_to_stop(struct worker *w, bool at_once);

/* rpc.c: calls and messages. */
int rpc_begin(struct worker *w, const struct plugin_call *call, plugin_done_fn done, void *done_ctx,
              int64_t *ret_id, struct err *err);
void rpc_abandon(struct worker *w, int64_t id, int code);
/* Thread: ask the process itself something; not part of the public calls. Returns the id. */
int64_t rpc_send_own(struct worker *w, const char *method, const json_t *params);
/* Thread: one line of the worker. */
int rpc_take_line(void *ctx, const char *line, size_t len);
/* Thread: end the calls whose time is up or whose caller gave up. Returns when to look again,
 * INT64_MAX: never.
 */
int64_t rpc_expire(struct worker *w);
/* Thread: let the calls go that waited for initialize. */
void rpc_release_held(struct worker *w);
/* Thread: the process is gone. */
void rpc_fail_all(struct worker *w, const char *why);
/* Thread: whether a caller still waits for an answer. */
bool rpc_is_busy(struct worker *w);

/* worker_log.c */
/* Thread: a line of log from the worker, by its own rules. meta may be NULL. */
void worker_log(struct worker *w, const char *level, const char *message, const json_t *meta);
/* Thread: something about the worker that its operator should know. */
void worker_note(struct worker *w, const char *message, const char *about, size_t len);
int worker_take_stderr(void *ctx, const char *line, size_t len);
/* Text without secrets, cut to fit. */
void worker_redact(struct worker *w, const char *text, char *ret, size_t size);
/* The same, with what the worker last said on standard error behind it. */
void worker_explain(struct worker *w, const char *text, char *ret, size_t size);

/* worker_process.c */
/* Operation: prepare what the worker has of files, and settle its command line. Once, before its
 * thread is started. */
int worker_prepare(const struct op *op, struct worker *w, const struct worker_spec *spec,
                   struct err *err);
/* The rest is for the thread. */
int worker_process_start(struct worker *w, struct err *err);
/* Close and forget what belonged to it. */
void worker_process_forget(struct worker *w);
void worker_send(struct worker *w);
bool worker_has_output(struct worker *w);
/* One read. False when there is no more for now. */
bool worker_receive(struct worker *w, int fd, struct ndjson *lines, bool *eof);
/* What it wrote before it ended counts. Others may hold the pipes open, so this does not wait. */
void worker_read_rest(struct worker *w);
void worker_signal(struct worker *w, int signal);
/* Kill and wait for the process and whatever it started. */
void worker_bury(struct worker *w, struct proc_status *ret);
void worker_describe_end(struct worker *w, const struct proc_status *status, char *ret,
                         size_t size);

/* worker.c */
void worker_fail(struct worker *w, const char *fmt, ...) PRINTF(2, 3);
