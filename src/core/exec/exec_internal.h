/* Shared by the files of the exec module; see exec.h. */
#pragma once

#include <pthread.h>

#include "box/launch.h"
#include "box/link.h"
#include "core/exec/box_route.h"
#include "core/exec/egress.h"
#include "core/exec/exec.h"
#include "core/exec/exec_output.h"

#define STOP_GRACE_MS   2000
#define SIGNAL_GRACE_MS 5000
#define RECONNECT_MS    20
#define RECONNECT_MAX   30000 /* of a way that stays down */
#define RECORD_AGAIN_MS 500
#define ADOPT_WAIT_MS   3000
#define BEATS           4 /* in peer_silence_ms: exec_box.c */
#define OVERDUE_MAX     (20 * BEATS)
#define EXEC_LOST_REASON                                                                           \
        "The supervisor of the command was killed, and the command with it. Output that was on "   \
        "its way may be missing."
#define EXEC_REMOTE_REASON                                                                         \
        "The daemon ended while the provider ran the command; how it ended is not known."
#define EXEC_UNKNOWN_REASON                                                                        \
        "The supervisor does not know the command any more. It may have run; its output may be "   \
        "missing."
#define EXEC_UNSAFE_REASON                                                                          \
        "Output of the command is missing: the disk with the data directory lost it. The daemon's " \
        "log has the error; look at the disk."
#define EXEC_OVERDUE_REASON                                                                        \
        "The supervisor has not told of the command's end, long after its time limit. The "        \
        "command may still run; releasing the lease ends it."
#define OUTPUT_DIR "output"
#define BOXES_DIR  "boxes"

struct stdin_write {
        struct stdin_write *next;
        const char *data;
        size_t len;
        uint64_t end; /* offset after its last byte */
        bool eof;
        bool owned; /* data is ours to free */
        void (*done)(void *arg, int code);
        void *arg;
};

/* INTENDED: its operation is still recording it or making sure of a box; it has no box yet. */
enum exec_phase { EXEC_QUEUED, EXEC_INTENDED, EXEC_SENT, EXEC_LIVE, EXEC_ENDING };

/* One open execution. Fields under `lock` are read by other threads. */
struct exec {
        struct exec *next;     /* in the hub's table */
        struct exec *box_next; /* in its box */
        struct exec_hub *hub;
        struct box *box;
        struct exec_view view; /* under lock */
        uint8_t id[FRAME_UUID];
        uint32_t channel; /* 0: none on this link */
        enum exec_phase phase;
        bool seen;                /* the box listed it */
        bool of_other_boot;       /* begun before this machine was booted: files may be lost */
        bool asked;               /* START or ATTACH was sent, and not answered */
        unsigned asked_beats;     /* since it was asked */
        int64_t limit_at;         /* when its time limit and its grace are over; 0: no limit */
        uint64_t overdue_len;     /* its output at the last beat after that */
        unsigned overdue_beats;   /* since then, of a box that could have told and said nothing */
        unsigned overdue_all;     /* also those in which it brought output */
        uint32_t sent_to;         /* the pid of the box that START went to; 0: not sent */
        struct box_output output; /* limits; 0: not known yet, after a restart */
        struct exec_spool *spool; /* exec_spool.c; NULL: the box writes our files */
        struct box_start *start;  /* until the box took it; owned */
        char *start_memory;
        size_t start_size; /* of start_memory: it may hold secrets and is wiped */
        struct exec_watch *watches;
        /* run by a runner: no box */
        const struct exec_runner *runner; /* NULL: it is not, or has not begun */
        char *remote_who;
        int64_t remote_call;
        struct exec_remote_run *remote_run; /* NULL, or what is not written yet of its output */
        char remote_place[UUID_LEN + 1];

        bool takes_stdin, stdin_eof_sent;
        bool stdin_unsure; /* taken up after a restart: whether it takes input is to be found out */
        struct stdin_write *stdin_head, **stdin_tail;
        uint64_t stdin_queued, stdin_sent, stdin_taken, stdin_limit;

        /* recording the end */
        struct pool_job job;
        struct box_exit exit;
        const char *final_status;
        int final_code; /* 0, or how a shell would end that could not start it */
        bool has_exit, recorded, needs_record;
        bool was_refused; /* our disk had no room for what its box sent */
        bool is_here;     /* its files are ours; for the job that records its end */
        char reason[256];
};

enum box_phase { BOX_IDLE, BOX_CONNECTING, BOX_READY, BOX_CHECKING };

struct box {
        struct box *next;
        struct exec_hub *hub;
        char place_id[UUID_LEN + 1];
        struct kept_place *kept;
        const struct box_route *route;
        uint64_t epoch;
        struct box_link *link;
        enum box_phase phase;
        uint8_t kill_method;
        uint32_t pid;         /* as it said on the link */
        uint64_t spool_limit; /* the same */
        unsigned failures;    /* since it was last reached; not on this machine */
        unsigned breaches;    /* of the protocol, since a command last ended in it */
        uint32_t next_channel;
        /* exec_box.c, "Silence": beats without a byte, and without WELCOME or LISTED. */
        unsigned silent_beats, greeting_beats;
        uint64_t heard; /* box_link_heard() at the last beat */
        struct exec *execs;
        bool listing;  /* adopting: LIST was sent */
        bool adopting; /* counted in hub->adopting */
        bool stopping;
        struct promise *stop;  /* kept when the box is gone */
        struct promise *quiet; /* kept when nothing runs in it any more */
        struct pool_job job;   /* looking after a box that went silent */
        bool job_running, found_dead, is_unknown;
        bool dead;                /* and buried; forgotten with its last execution */
        struct tunnel *tunnel;    /* NULL until something is served through it */
        bool has_tunnel;          /* the link's box knows tunnels */
        bool has_files;           /* and serves files */
        bool has_output;          /* and holds to limits of output */
        bool has_acp;             /* and is a client of ACP agents */
        struct service *services; /* streams to it, and operations that wait for one */
        struct egress *egress;    /* NULL: none */
        struct channel *channels; /* callback.c */
        struct exec *arrived;     /* while the job ran; still INTENDED, linked by box_next */
        uv_timer_t retry;
};

#define EXEC_BUCKETS 1024

/* An execution between the beginning of its operation and the loop's knowing its box. Settling a
 * place whose box died leaves it alone: its operation starts another box. */
struct intended {
        struct intended *next;
        char id[UUID_LEN + 1];
};

/* An output file that is followed. */
struct exec_file {
        struct exec_file *next;
        int fd;
        unsigned users;
        bool want_stderr;
        char id[UUID_LEN + 1];
};

struct exec_hub {
        struct exec_hub_config config;
        char *boxes_dir, *output_dir;
        uint8_t node[FRAME_UUID];
        pthread_mutex_t lock; /* the table and the views in it */
        struct exec *table[EXEC_BUCKETS];
        struct intended *intended; /* under lock */
        struct box *boxes;
        struct box_locks locks;
        uv_timer_t record_timer;      /* tries again what the store refused */
        uv_timer_t adopt_timer;       /* ends the wait for boxes that do not answer */
        uv_timer_t beat_timer;        /* BEATS times in peer_silence_ms */
        struct output_taken *outputs; /* exec_output.c; under lock */
        struct exec_file *files;      /* loop thread */
        struct resolver *resolver;    /* NULL until there is a proxy */
        unsigned timers_open;
        unsigned adopting;
        void (*adopted)(void *);
        void *adopted_arg;
        bool closing;
};

/* exec_hub.c */
struct exec *exec_find(struct exec_hub *hub, const char *id);
struct exec *exec_add(struct exec_hub *hub, const char *id); /* INTENDED */
void exec_join_box(struct exec *e, struct box *box);         /* QUEUED */
/* Any thread. */
void intended_add(struct exec_hub *hub, const char *id);
void intended_remove(struct exec_hub *hub, const char *id);
bool intended_has(struct exec_hub *hub, const char *id);
void exec_drop(struct exec *e); /* out of the hub, freed */
/* The same for one whose row has its end: tell its watchers first. status NULL: as it is. */
void exec_drop_ended(struct exec *e, const char *status);
void exec_set_lengths(struct exec *e, uint64_t out, uint64_t errors);
void exec_drop_start(struct exec *e);
struct box *box_find(struct exec_hub *hub, const char *place_id);
struct box *box_add(struct exec_hub *hub, struct kept_place *take_place);
/* Drop a box that is dead and has no execution left. */
void box_forget_if_over(struct box *box);
/* Keep the promise of exec_end_all() when it is true. */
void box_tell_quiet(struct box *box);
void exec_changed(struct exec *e);

/* Serve the way out of a box, unless it is served already. The policy may be NULL. */
void box_set_egress(struct box *box, struct egress_policy *take_policy);
/* The tunnel, made on first need; NULL when that fails. */
struct tunnel *box_tunnel(struct box *box);

/* exec_box.c: the link */
void box_reach(struct box *box);
void exec_submit(struct exec *e);
/* How it ended; or, where that is unknown, why. */
void exec_take_exit(struct exec *e, const struct box_exit *exit, const char *lost_reason);

/* box_service.c, loop thread */
/* There is a link: connect the waiting operations. */
void box_services_up(struct box *box);
/* The box died: true when an operation waits for the next one. */
bool box_services_wait(struct box *box);
void box_services_end(struct box *box);

/* callback.c, loop thread: there is a link; the tunnel is about to go. */
void box_callbacks_up(struct box *box);
void box_callbacks_end(struct box *box);

/* exec_spool.c: output that the box sends. Loop thread, but the last one. */
/* The box has just begun the execution (NULL), or tells on a new link how far it is. */
void exec_spool_attach(struct exec *e, const struct box_state *state);
void exec_spool_detach(struct exec *e);
/* ERR_INVALID: the box broke the protocol. */
int exec_spool_data(struct exec *e, uint8_t stream, uint64_t offset, const char *data, size_t len,
                    struct err *err);
/* exec_take_exit() follows when everything is in the files. */
void exec_spool_exit(struct exec *e, const struct box_exit *exit);
/* The box will send no more: the files stay as they are. */
void exec_spool_lost(struct exec *e, const char *reason);
void exec_spool_again(struct exec *e);
void exec_spool_drop(struct exec *e);
/* Operation, before START can be sent: existing files mean that the command may have begun. */
int exec_spool_prepare(const char *dir, struct err *err);

/* exec_remote.c: commands that a plugin runs */
/* Operation: `dir` is there for the output. */
int exec_remote_begin(struct exec_hub *hub, const struct execution *row, const struct place *place,
                      const struct exec_request *req, const char *dir, struct err *err);
void exec_remote_abandon(struct exec *e);
/* Operation: write the output that found no room. False when it may still find some: try again
 * later. */
bool exec_remote_flush(struct exec *e);
void exec_remote_free(struct exec_remote_run *run);

/* exec_end.c: recording the end */
int exec_write_end(struct db *db, void *row, struct err *err); /* executions_end() for a write */
/* The first call decides; later ones change nothing. */
void exec_finish(struct exec *e, const char *status, const char *reason);
/* Soon try again what the disk or the pool refused. */
void exec_retry_later(struct exec_hub *hub);
enum { SETTLED = 0, SETTLE_ALIVE = 1, SETTLE_UNKNOWN = 2 };
/* Operation: bury what is left of a place's box and settle its open rows, from exit records or as
 * lost. `closing`: also end a box that lives, and settle executions that are only intended, for
 * nothing may begin there any more. Otherwise both are left alone: SETTLE_ALIVE for a box that
 * lives, SETTLE_UNKNOWN for one that cannot be asked. A box elsewhere that died with open
 * executions is started again, for its directory holds what it kept of them. */
int exec_settle_place(struct op *op, struct exec_hub *hub, const struct place *place, bool closing,
                      struct err *err);

void stdin_taken(struct exec *e, uint64_t taken, uint64_t limit);
void stdin_rewind(struct exec *e, uint64_t taken);
void stdin_fail(struct exec *e);
int stdin_add(struct exec *e, const struct stdin_piece *piece, bool owned,
              void (*done)(void *, int), void *arg, struct err *err);

/* The directory of a box on this machine. A sandbox's is in the directory of the sandbox. */
char *box_dir(const struct exec_hub *hub, const char *place_id);
