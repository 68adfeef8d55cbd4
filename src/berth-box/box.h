/* berth-box: the supervisor that runs beside the work (docs/box-protocol.md).
 *
 * One thread, one epoll loop, one struct box. Nothing is shared and nothing blocks but three things
 * that are short by nature: writing to the spool, syncing an exit record, and a pass over /proc.
 *
 *   main.c    command line, detaching; mains.h: what else the program can be started as
 *   setup.c   directory, lock, socket, signals, tables
 *   loop.c    the loop: events, signals, deadlines, stopping, idling
 *   conn.c    connections: bytes in, bytes out, HELLO and which one is the host
 *   host.c    what the host's frames do
 *   say.c     what is told to the host, and when there is room for it
 *   exec.c    the life of an execution, from START to the exit record
 *   child.c   making the process: descriptors, terminal, exec
 *   spool.c   output files, their bound, the exit record, what a killed box left behind
 *   stdin.c   input, buffered within its credit
 *   tunnel.c  connections made beside the work, served by the host; _say: what it is told
 *   service.c connections that the host makes, each served by a process of its own
 *   tree.c    killing a process tree: the interface, and by /proc and the marker
 *   cgroup.c  killing a process tree by cgroup2
 *   sandbox.h the same as PID 1 of a sandbox
 *
 * Memory: everything is in struct box, made at start, or in two mappings whose pages cost nothing
 * until they are used. A START allocates what its payload needs and frees it again.
 *
 * Descriptors: everything is close-on-exec, and 0, 1 and 2 are /dev/null, so a child only has to
 * put its own three in place. */
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include "base/buf.h"
#include "base/err.h"
#include "codec/frame.h"
#include "codec/redact.h"

#define BOX_MAX_CONNS   16
#define BOX_MAX_PROCS   65536 /* processes that one pass over /proc looks at */
#define BOX_OUT_SIZE    ((size_t)512 << 10)
#define BOX_OUT_RESERVE ((size_t)4 << 10) /* room that any answer fits in */
#define BOX_STDIN_SIZE  ((size_t)64 << 10)
#define BOX_PIPE_SIZE   (1 << 20)

#define BOX_HELLO_MS   10000 /* a connection says HELLO within this time */
#define BOX_CLOSING_MS 2000  /* and takes the ERROR that ends it within this one */
#define BOX_GIVE_UP_MS 10000 /* a process that SIGKILL does not end is left after this time */
#define BOX_SYNC_MS    1000 /* for a host to write an end down before the box makes it safe itself */
#define BOX_ROOM_MS    200  /* a full disk is tried again after this time */
#define BOX_LINGER_MS  2000 /* for a host that has not taken everything when the box stops */

/* Life of an execution. `ending` (below) says whether its tree is being killed. */
enum exec_state {
        EXEC_FREE,
        EXEC_STARTING, /* forked; whether exec succeeds is not known yet */
        EXEC_FAILED,   /* it did not; kept until the host has been told */
        EXEC_RUNNING,
        EXEC_ENDED, /* exit record written, nothing left of it but the spool */
};

/* What the host is still to be told about an execution; see say.c for the order. */
enum {
        SAY_STARTED = 1,
        SAY_STATE = 2,
        SAY_TAKEN = 4,
        SAY_ERROR = 8,
        SAY_EXIT = 16,
};

struct stream {
        int pipe; /* where the command's output comes from; -1: at its end */
        int file; /* the spool; -1: not open */
        bool polled;
        bool enlarged;
        bool broken;      /* the disk refused it; the execution is being killed */
        struct buf held;  /* taken from the pipe, and not in the spool for want of room */
        uint64_t written; /* bytes in the spool */
        uint64_t stored;  /* acknowledged by a host; written - stored is bounded */
        uint64_t punched; /* given back to the file system: of an own spool what a host has, of a
                             shared one what exceeds the limit */
        /* Of the attachment, own spool: DATA goes from `sent` up to `limit` once `open`. */
        bool open;
        uint64_t sent, limit;
        uint64_t told;                /* shared spool: the length in the last GREW or STATE */
        struct redact_stream *redact; /* NULL: as the command wrote it */
        bool is_over;                 /* what the redaction kept back is out */
};

struct exec {
        enum exec_state state;
        uint8_t id[FRAME_UUID];
        char name[37]; /* id as text: the spool directory, the cgroup, the marker */
        uint32_t flags;
        uint8_t kill_method;
        pid_t pid;  /* kept after the end, for STATE */
        bool alive; /* the main process is not reaped, so its pid is still its own */
        int status; /* from waitpid() */
        uint64_t started_ms;
        struct redactor *redactor; /* values that are not to be spooled; NULL: none */
        uint32_t grace_ms;
        char command[64]; /* for messages */

        int64_t limit_at; /* time limit; this and the next ones in clock_mono_ms(), 0: none */
        int64_t kill_at;  /* end of the grace */
        int64_t step_at;  /* when to look again whether the tree is dead */
        int64_t give_up_at;
        int64_t sync_at; /* when the exit record has to be on disk; 0: it is */
        int step_pause_ms;
        struct box_output output; /* limit 0: none */
        int64_t full_until; /* there is no room for output: how long that is waited for; 0: there is
                             */
        int64_t room_at;    /* the disk is full: when to try again; 0: it is not */
        int64_t room_until; /* and how long that is waited for; 0: it is not */
        bool ending;
        bool is_dead;      /* nothing is left of its tree, only its end is not written yet */
        bool ended_itself; /* and was not killed */
        bool has_record;   /* the exit record is written */
        uint8_t end_flags; /* BOX_EXIT_* */

        int status_pipe;  /* the child's word on exec */
        uint64_t signals; /* came before that word; bit n - 1 is signal n */
        int keep_tty;     /* the terminal's other side, so that it cannot hang up early */
        struct stream out[2];

        int stdin_fd;
        bool stdin_open, stdin_eof, stdin_eof_sent, stdin_polled;
        uint64_t taken;      /* bytes accepted from the host */
        uint64_t taken_told; /* the limit in the last TAKEN */
        size_t ring_head, ring_len;

        struct box_exit exit;
        bool adopted;    /* at start only: a killed box left it without an exit record */
        bool spool_made; /* spool/<uuid> is ours to remove */
        bool no_splice;  /* the file system does not take it */
        uint16_t fail_code;
        char fail_text[160];

        uint32_t channel; /* on the host's connection; 0: not attached */
        unsigned say;
};

enum conn_state { CONN_FREE, CONN_NEW, CONN_HOST, CONN_CLOSING };

struct conn {
        enum conn_state state;
        int fd;
        uint32_t events;  /* what epoll was told */
        int64_t deadline; /* CONN_NEW and CONN_CLOSING */
        size_t in_len;
        struct buf out; /* on the static store below; never grows past it */
        size_t out_sent;
        struct buf joined; /* CONT parts */
        uint32_t join_channel;
        bool joining;
        int list_at; /* next slot that a LIST answers with; -1: none under way */
        uint32_t list_count;
        uint64_t epoch;
        char in[FRAME_HEADER + FRAME_MAX_PAYLOAD];
        char out_store[BOX_OUT_SIZE + 1];
};

/* One process in a pass over /proc. */
struct proc {
        pid_t pid, ppid, sid;
        uint8_t owner;
        char state;
        uint64_t start;
};

struct sandbox;

struct box {
        struct sandbox *sandbox; /* NULL: beside the work, on the machine itself */
        uint8_t id[FRAME_UUID];
        char dir[4096]; /* absolute */
        char cgroup_path[4096];
        uint64_t spool_limit;
        uint64_t output_limit; /* of the whole place, as the last START said; 0: none */
        uint64_t output_taken; /* of that, by executions that were forgotten */
        int64_t idle_exit_ms;
        struct rlimit nofile; /* as inherited */
        uint64_t ignored;     /* signals that we ignore, some of them because our parent did */

        struct exec *execs;
        char *stdin_store;
        struct proc *procs;
        size_t n_procs;
        struct conn *conns;
        struct conn *host;
        struct box_tunnel *tunnel; /* NULL until the first LISTEN or CONNECT */
        uint64_t epoch;            /* the highest seen */

        int64_t now; /* clock_mono_ms() of this turn */
        int64_t idle_since;
        int64_t stop_by;
        int64_t stop_kill_at;
        int64_t linger_until;

        pid_t pid;
        mode_t umask;
        int program_fd; /* our own program, -1: not to be had */
        int dir_fd, spool_fd, lock_fd, listen_fd, signal_fd, epoll_fd;
        int cgroup_fd;   /* berth-<box id>, or -1 */
        int children_fd; /* our own children, or -1 where the kernel does not say */
        int proc_fd;
        int n_execs;     /* slots in use lie below this */
        uint32_t in_use; /* and are so many */
        int say_next;    /* where the next round of telling begins */

        char name[37]; /* id as text */
        uint8_t kill_method;
        bool say_tunnel_first;
        bool force_subreaper;
        bool is_locked; /* BOX_LOCK_FD is the lock already */
        bool cgroup_has_kill;
        bool stopping, stop_killed;
        bool child_died;
};

/* setup.c */
void setup_process(struct box *b);
int setup_null_streams(void);
int setup_tables(struct box *b, struct err *err);
/* The directory, private to us, and the descriptors that everything else is opened from. */
int setup_directory(struct box *b, struct err *err);
int setup_lock(struct box *b, struct err *err);
int setup_spool(struct box *b, struct err *err);
int setup_signals(struct box *b, struct err *err);
int setup_pid_file(struct box *b, pid_t pid, struct err *err);
int setup_socket(struct box *b, struct err *err);
int setup_listen(struct box *b, struct err *err);

/* loop.c */
enum box_event {
        EV_LISTEN,
        EV_SIGNAL,
        EV_CONN,
        EV_STATUS,
        EV_STDOUT,
        EV_STDERR,
        EV_STDIN,
        EV_TUNNEL_LISTEN,
        EV_TUNNEL,
};
int box_watch(struct box *b, int fd, uint32_t events, enum box_event kind, int index);
void box_unwatch(struct box *b, int fd);
int box_loop(struct box *b);
void box_stop(struct box *b, int64_t grace_ms);
int box_index(const struct box *b, const struct exec *e);
void box_deadline(int64_t *nearest, int64_t candidate);

/* conn.c */
void conn_accept(struct box *b);
void conn_event(struct box *b, struct conn *c, uint32_t events);
/* Answer ERROR and close once it is on its way. */
void conn_fail(struct box *b, struct conn *c, uint32_t channel, uint16_t code, const char *text);
size_t conn_room(struct conn *c); /* for frames at the end of the output buffer */
/* Handle the frames that were read, as far as there is room for answers. */
void conn_handle_all(struct box *b);
/* Queue what the connections are to be told and write it; close connections that were too slow. */
void conn_tell_all(struct box *b, int64_t *nearest);
/* At the very end: STOPPED, and a little time to take it. */
void conn_finish(struct box *b);

/* host.c: 0, or the code of the error that ends the connection, with its text. The payload may
 * be written to. */
int host_frame(struct box *b, struct conn *c, const struct frame_header *h, char *payload,
               size_t len, struct err *err);
void host_detach_all(struct box *b);

/* say.c */
void say_error(struct conn *c, uint32_t channel, uint16_t code, const char *text);
void say_welcome(struct box *b, struct conn *c);
/* False when it stopped for want of room. */
bool say_pending(struct box *b, struct conn *c);
/* Has the host everything it asked for? */
bool say_done(const struct box *b);

/* exec.c */
struct exec *exec_find(struct box *b, const uint8_t id[FRAME_UUID]);
struct exec *exec_by_channel(struct box *b, uint32_t channel);
struct exec *exec_by_pid(struct box *b, pid_t pid);
struct exec *exec_new(struct box *b, const uint8_t id[FRAME_UUID]);
void exec_free(struct box *b, struct exec *e);
void exec_fail(struct box *b, struct exec *e, uint16_t code, const char *what, int errno_value);
void exec_status(struct box *b, struct exec *e);
void exec_signal(struct box *b, struct exec *e, int signal);
/* SIGTERM to the tree now, SIGKILL after the grace. */
void exec_terminate(struct box *b, struct exec *e, uint8_t why, int64_t grace_ms);
void exec_kill(struct box *b, struct exec *e, uint8_t why);
void exec_reap(struct box *b);
/* Deadlines and the steps of ending. */
void exec_turn(struct box *b, struct exec *e, int64_t *nearest);
bool exec_is_live(const struct exec *e);

/* child.c */
struct start {
        uint8_t id[FRAME_UUID];
        uint32_t flags;
        uint64_t time_limit_ms;
        uint32_t grace_ms;
        uint16_t columns, rows;
        char *cwd, *spool, *command;
        struct box_output output;
        char **argv, **envp, **redact, **acp; /* owned arrays of borrowed strings */
};
/* Make the process; its word on exec comes through e->status_pipe. On failure e is EXEC_FAILED, or
 * free when no connection is attached. */
void child_start(struct box *b, struct exec *e, const struct start *s);
void child_resize(struct exec *e, uint16_t columns, uint16_t rows);
/* A process with a command's rights that serves `fd`, which it gets as its standard input: this
 * program with --files. Its pid, or -1. */
pid_t child_serve_files(struct box *b, int fd);
/* Fork into a cgroup; for probing whether that works at all, too. */
pid_t child_fork(int cgroup_fd, bool *ret_joined);

/* spool.c */
int spool_create(struct box *b, struct exec *e, const char *shared_dir);
void spool_discard(struct box *b, struct exec *e); /* of a START that failed */
void spool_remove(struct box *b, struct exec *e);  /* FORGET */
bool spool_reopen(struct box *b, struct exec *e);
void spool_close(struct exec *e);
/* Keep these values out of the spool; false when they are too many. */
bool spool_redact(struct exec *e, char *const *values);
/* Move what the pipe has; below 0 when the disk does not take it. */
int spool_move(struct box *b, struct exec *e, int stream);
/* Take what is in the pipe now, as far as it may be kept; below 0 when something was lost, 1 when
 * the disk is full and the rest may still find room. */
int spool_drain(struct box *b, struct exec *e, int stream);
/* Bytes of it that are on the disk. */
uint64_t spool_kept(const struct exec *e);
/* Bytes that may still be kept of it, by the limits of the execution and of the place. */
uint64_t spool_output_room(const struct box *b, const struct exec *e);
/* Whether it waits with something to say. */
bool spool_is_pending(const struct exec *e);
void spool_poll(struct box *b, struct exec *e, int stream);
void spool_stored(struct box *b, struct exec *e, int stream, uint64_t stored);
/* The disk was full: look again. */
void spool_retry(struct box *b, struct exec *e);
void spool_write_exit(struct box *b, struct exec *e);
void spool_sync_turn(struct box *b, struct exec *e, int64_t *nearest);
int spool_adopt(struct box *b, struct err *err);
void spool_remove_all(struct box *b);

/* stdin.c */
int stdin_take(struct box *b, struct exec *e, uint64_t offset, bool eof, const char *data,
               size_t len);
uint64_t stdin_limit(const struct exec *e);
void stdin_write(struct box *b, struct exec *e);
void stdin_close(struct box *b, struct exec *e);

/* tunnel.c; tunnel_frame() as host_frame() */
int tunnel_frame(struct box *b, struct conn *c, const struct frame_header *h, struct frame_in *in,
                 struct err *err);
void tunnel_listener_event(struct box *b, uint32_t index);
void tunnel_event(struct box *b, uint32_t index, uint32_t events);
void tunnel_turn(struct box *b, int64_t *nearest);
/* The host is gone: its connections are reset, listeners stay for the next one. */
void tunnel_detach(struct box *b);
/* Stop listening, and reset what there is. */
void tunnel_close(struct box *b);

/* tunnel_say.c: false when it stopped for want of room */
bool tunnel_say(struct box *b, struct conn *c);

/* service.c */
bool service_is_worker(const struct box *b, pid_t pid);
size_t service_count(const struct box *b);
void service_reaped(struct box *b, pid_t pid);

/* tree.c */
void tree_init(struct box *b);
/* One step of killing the whole tree, main process included; true when nothing is left of it. */
bool tree_kill_step(struct box *b, struct exec *e);
void tree_signal(struct box *b, struct exec *e, int signal);
/* At start: kill what carries the marker of an execution that a killed box left. */
void tree_kill_adopted(struct box *b);
/* At the end: kill everything beneath the box. */
bool tree_kill_all_step(struct box *b);

/* cgroup.c */
/* Where the box itself is in the hierarchy of a version 1 controller, or of version 2 (NULL): a
 * path in the mounted tree. */
bool cgroup_own_directory(const char *controller, char ret[4096]);
void cgroup_init(struct box *b);
int cgroup_create(struct box *b, struct exec *e); /* its descriptor, or -1 */
bool cgroup_kill_step(struct box *b, struct exec *e);
void cgroup_signal(struct box *b, struct exec *e, int signal);
void cgroup_remove(struct box *b, const char *name);
void cgroup_done(struct box *b);

/* The words before the text of an error in a box's last message: whether the error may pass. That
 * another box is there is an answer of its own. */
static inline const char *box_not_now(const struct err *err)
{
        return err->is_transient && err->code != ERR_LOCKED ? BOX_NOT_NOW : "";
}
