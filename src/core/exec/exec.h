/* Executions: commands that run in leases, through the box of their place.
 *
 * The record and the world: a row is committed before the box is asked to start the command, and
 * again when the command has ended, before any watcher is told. In between the box's word counts.
 * Output is in files that the box writes and all readers open (`output/<id>/stdout`, `stderr`), so
 * neither a restart of the daemon nor a reader that comes late loses or doubles a byte.
 *
 * The hub holds the present state: links to boxes and the state of open executions. It lives on the
 * loop thread; functions marked "operation" are called on operation threads. After a restart it
 * takes up every box that still runs (exec_hub_adopt()); an execution whose box is gone is settled
 * from the exit record the box left, or as lost. */
#pragma once

#include <uv.h>

#include "codec/json.h"
#include "core/places/lease_record.h"
#include "rt/mail.h"
#include "rt/pool.h"
#include "store/executions.h"

/* The `reason` of an execution that is `failed` by no fault of its own. */
#define EXEC_UNSTARTED_REASON "The daemon or the supervisor ended before the command was started."
/* How the reason begins when the command could not be started for want of a resource. */
#define EXEC_NOT_NOW_REASON "The command could not be started for now: "

/* How the reason begins when the output found no room on the disk in time. */
#define EXEC_DISK_FULL_REASON "The disk ran full: "

/* Whether output was lost to a full disk. */
bool exec_lacked_room(const struct execution *row);
/* Whether the command could not be started for want of a resource: the caller may try again. */
bool exec_lacked_means(const struct execution *row);
/* Whether the execution ended before its command began, by no fault of its own: it may be started
 * again. */
bool exec_never_began(const struct execution *row);

struct exec_hub;

struct exec_hub_config {
        uv_loop_t *loop;
        struct mail *mail;
        struct pool *pool;
        struct runtime *rt;
        const char *data_dir;
        const char *box_program; /* path of berth-box */
};

struct exec_request;

typedef void (*exec_output_fn)(void *ctx, bool is_stderr, const char *data, size_t len);
/* 0 with {exitCode, signal, timedOut}, and stdout and stderr where they were not given before; or
 * an error. */
typedef void (*exec_done_fn)(void *ctx, int code, const json_t *result, const struct err *err);

/* A runner runs single commands where there is no box, each to its end: a plugin's worker, or ssh.
 */
struct exec_runner {
        /* Operation. After success `done` is called, once; callbacks come from a thread of the
         * runner. *ret_call names the command. */
        int (*begin)(struct runtime *rt, const struct execution *row,
                     const struct exec_request *req, exec_output_fn output, exec_done_fn done,
                     void *ctx, int64_t *ret_call, struct err *err);
        /* Any thread: give it up. */
        void (*abandon)(struct runtime *rt, const char *who, int64_t call);
};

/* A command that a runner runs. */
struct exec_remote {
        const struct exec_runner *runner;
        const char *who; /* the runner's name for its peer; for abandon() */
        void *call;      /* the runner's own */
};

/* A command to run in a lease: what its caller sets, then what the kind of the place adds
 * (prepare_exec() of kind.h). */
struct exec_request {
        const char *command;
        const char *const *args; /* NULL-terminated; NULL: none */
        const char *cwd;         /* NULL: the workspace, else home */
        const json_t *own_env;   /* the caller's variables, strings; borrowed, may be NULL */
        const char *stdin_text;  /* NULL: none */
        size_t stdin_len;
        bool open_stdin; /* more input may come */
        bool terminal;
        uint16_t columns, rows;
        int64_t timeout_ms;          /* 0: none */
        const char *idempotency_key; /* NULL: none */
        const char *agent_id;        /* runs for this agent; NULL: none. See exec_agent.h */
        const char *project_id;      /* with an agent: its work is of this project; NULL: of none */
        /* The command is an agent that speaks ACP, and the box is its client: what the client is
         * told (berth-box/acp.c). NULL-terminated; NULL: it is not. */
        const char *const *acp;

        bool is_helper;         /* the daemon's own, before or after the agent's work */
        bool is_single;         /* a runner takes it to its end: no terminal, all input at once */
        const char *const *env; /* NULL-terminated NAME=value, complete */
        /* Of another machine: the variables of its login, whose start-up files come before `env`;
         * NULL: the command starts with `env` alone. */
        const char *const *login;
        /* Turns the complete request into the one that the box gets; in the arena. NULL: the
         * request itself. */
        void (*wrap)(struct arena *arena, const struct exec_request *in, struct exec_request *ret);
        const char *const *redact; /* values to keep out of the output; NULL-terminated, or NULL */
        const struct exec_remote *remote; /* NULL: by the box */
        const char *agent_config;         /* adapterConfig of the agent; set by exec_start() */
        const char *project_env;          /* env of the project; NULL: none. Set by exec_start() */
};

/* What is known of an execution now. */
struct exec_view {
        char id[UUID_LEN + 1];
        const char *status; /* EXEC_*; static */
        int64_t pid, started_at;
        uint8_t kill_method; /* 0: not known */
        uint64_t stdout_len, stderr_len;
        bool ended; /* recorded: the row says the rest */
};

/* Input for an execution. With an offset a piece may be sent again when it is not known whether it
 * arrived: bytes that arrived before are dropped, and a gap is refused. */
struct stdin_piece {
        const char *data;
        size_t len;
        bool eof;       /* nothing follows */
        int64_t offset; /* of the first byte; -1: right after what came before */
};

/* A watcher, told when an execution changes. Loop thread. */
struct exec_watch {
        struct exec_watch *next;
        void (*changed)(struct exec_watch *watch, const struct exec_view *view);
};

int exec_hub_new(const struct exec_hub_config *config, struct exec_hub **ret, struct err *err);
/* Operation, before the loop serves requests: read the executions that were open when the daemon
 * stopped. */
int exec_hub_adopt(struct op *op, struct exec_hub *hub, struct err *err);
/* Loop thread: reach for the boxes found. `done` is called when each has answered or was settled,
 * or after a few seconds: a box that hangs must not keep the daemon from starting. The hub goes on
 * trying to reach it. */
void exec_hub_connect(struct exec_hub *hub, void (*done)(void *), void *arg);
/* Loop thread: let go of all boxes; they and their commands go on. */
void exec_hub_free(struct exec_hub *hub);

/* Operation: record and start a request that is prepared (exec_request.h). *ret_id is the
 * execution, which may be one that the idempotency key names. */
int exec_start(struct op *op, struct runtime *rt, const struct lease_record *record,
               const struct exec_request *req, const char **ret_id, struct err *err);
/* Operation: end everything in a place and its box. */
int exec_close_place(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
/* Operation: give up every command that a runner runs in a place. */
int exec_remote_end_place(struct op *op, struct runtime *rt, const char *place_id, struct err *err);
/* Operation: end every command that runs in a place; its box goes on. */
int exec_end_all(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
/* Any thread: reach for the box of a place before the first command needs it. */
void exec_reach_place(struct runtime *rt, const struct place *place);
/* Operation: every box that exists here and does not belong to a sandbox, by its place; `provider`
 * is used in the report of them. */
int exec_list_boxes(struct op *op, struct runtime *rt, const char *provider, kind_found_fn fn,
                    void *ctx, struct err *err);
/* Operation: forget executions that ended long ago, and remove the output of those that are gone.
 */
int exec_prune(struct op *op, struct runtime *rt, struct err *err);

/* Any thread: what the hub knows of an open execution; false when it is not open. */
bool exec_snapshot(struct exec_hub *hub, const char *id, struct exec_view *ret);

/* Loop thread. False when the execution is not open (any more): its row tells. */
bool exec_watch_add(struct exec_hub *hub, const char *id, struct exec_watch *watch);
void exec_watch_remove(struct exec_hub *hub, const char *id, struct exec_watch *watch);
/* Loop thread. ERR_NOT_FOUND when it is not open, ERR_CONFLICT when it takes no input. `done` is
 * called when the box has taken the bytes (code 0) or never will. data is borrowed until then. */
int exec_stdin(struct exec_hub *hub, const char *id, const struct stdin_piece *piece,
               void (*done)(void *arg, int code), void *arg, struct err *err);
int exec_signal(struct exec_hub *hub, const char *id, int signal, struct err *err);
int exec_resize(struct exec_hub *hub, const char *id, uint16_t columns, uint16_t rows,
                struct err *err);

/* Any thread: open the output file of an execution, for reading from its first byte that is kept. A
 * reader that uses offsets asks exec_output_from(). */
int exec_open_output(const struct runtime *rt, const char *id, bool want_stderr, int *ret_fd,
                     struct err *err);

/* Any thread: append the first `max` bytes that are kept; none when the command never wrote any.
 * *ret_truncated (may be NULL) becomes true when there is more. */
int exec_read_output(const struct runtime *rt, const char *id, bool want_stderr, size_t max,
                     struct buf *ret, bool *ret_truncated, struct err *err);

/* Loop thread: the same file for followers, which read with pread(). All followers share one
 * descriptor. */
struct exec_file;
int exec_file_get(struct runtime *rt, const char *id, bool want_stderr, struct exec_file **ret,
                  struct err *err);
int exec_file_fd(const struct exec_file *f);
void exec_file_put(struct runtime *rt, struct exec_file *f); /* NULL: nothing */

/* "SIGTERM" and 15; NULL and 0 when there is no such signal. */
const char *signal_name(int number);
int signal_number(const char *name);
const char *kill_method_name(uint8_t method);
