/* Shared by the files of the exec module; see exec.h. */
#ifndef BERTH_CORE_EXEC_INTERNAL_H
#define BERTH_CORE_EXEC_INTERNAL_H

#include <pthread.h>

#include "box/launch.h"
#include "box/link.h"
#include "core/egress.h"
#include "core/exec.h"

#define STOP_GRACE_MS   2000
#define SIGNAL_GRACE_MS 5000
#define LAUNCH_STRIPES  64
#define RECONNECT_MS    20
#define RECORD_AGAIN_MS 500
#define ADOPT_WAIT_MS   3000
#define EXEC_LOST_REASON                                                                           \
        "The supervisor of the command was killed, and the command with it. Output that was on "   \
        "its way may be missing."
#define EXEC_REMOTE_REASON                                                                         \
        "The daemon ended while the provider ran the command; how it ended is not known."
#define EXEC_UNSTARTED_REASON "The daemon or the supervisor ended before the command was started."
#define OUTPUT_DIR            "output"
#define BOXES_DIR             "boxes"

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
        bool seen;               /* the box listed it */
        struct box_start *start; /* until the box took it; owned */
        char *start_memory;
        size_t start_size; /* of start_memory: it may hold secrets and is wiped */
        struct exec_watch *watches;
        /* run by a plugin: no box */
        char *remote_plugin; /* NULL: it is not, or has not begun */
        int64_t remote_call;
        char remote_place[UUID_LEN + 1];

        bool takes_stdin, stdin_eof_sent;
        bool stdin_unsure; /* taken up after a restart: whether it takes input is to be found out */
        struct stdin_write *stdin_head, **stdin_tail;
        uint64_t stdin_queued, stdin_sent, stdin_taken, stdin_limit;

        /* recording the end */
        struct pool_job job;
        bool has_exit;
        struct box_exit exit;
        const char *final_status;
        int final_code; /* 0, or how a shell would end that could not start it */
        char reason[256];
        bool recorded, needs_record;
};

enum box_phase { BOX_IDLE, BOX_CONNECTING, BOX_READY, BOX_CHECKING };

struct box {
        struct box *next;
        struct exec_hub *hub;
        char place_id[UUID_LEN + 1];
        char *dir;
        uint64_t epoch;
        struct box_link *link;
        enum box_phase phase;
        uint8_t kill_method;
        uint32_t next_channel;
        struct exec *execs;
        bool listing;  /* adopting: LIST was sent */
        bool adopting; /* counted in hub->adopting */
        bool stopping;
        struct promise *stop;  /* kept when the box is gone */
        struct promise *quiet; /* kept when nothing runs in it any more */
        struct pool_job job;   /* looking after a box that went silent */
        bool job_running, found_dead;
        bool dead;             /* and buried; forgotten with its last execution */
        struct tunnel *tunnel; /* NULL until something is served through it */
        bool has_tunnel;       /* the link's box knows tunnels */
        struct egress *egress; /* NULL: none */
        struct exec *arrived;  /* while the job ran; still INTENDED, linked by box_next */
        uv_timer_t retry;
};

#define EXEC_BUCKETS 1024

/* An execution between the beginning of its operation and the loop's knowing its box. Settling a
 * place whose box died leaves it alone: its operation starts another box. */
struct intended {
        struct intended *next;
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
        pthread_mutex_t launch_locks[LAUNCH_STRIPES];
        uv_timer_t record_timer;   /* tries again what the store refused */
        uv_timer_t adopt_timer;    /* ends the wait for boxes that do not answer */
        struct resolver *resolver; /* NULL until there is a proxy */
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
/* Any thread: whoever makes or buries the box of a place holds this. */
pthread_mutex_t *box_launch_lock(struct exec_hub *hub, const char *place_id);
void exec_drop(struct exec *e); /* out of the hub, freed */
void exec_drop_start(struct exec *e);
struct box *box_find(struct exec_hub *hub, const char *place_id);
struct box *box_add(struct exec_hub *hub, const char *place_id, uint64_t epoch);
/* Drop a box that is dead and has no execution left. */
void box_forget_if_over(struct box *box);
/* Keep the promise of exec_end_all() when it is true. */
void box_tell_quiet(struct box *box);
void exec_changed(struct exec *e);

/* Serve the way out of a box, unless it is served already. The policy may be NULL. */
void box_set_egress(struct box *box, struct egress_policy *take_policy);
/* Let go of what is served through it. */
void box_close_tunnel(struct box *box);

/* exec_box.c: the link */
void box_reach(struct box *box);
void exec_submit(struct exec *e);

/* exec_remote.c: commands that a plugin runs */
/* Operation: `dir` is there for the output. */
int exec_remote_begin(struct exec_hub *hub, const struct execution *row,
                      const struct exec_request *req, const char *dir, struct err *err);
void exec_remote_abandon(struct exec *e);

/* exec_end.c: recording the end */
void exec_finish(struct exec *e, const char *status, const char *reason);
void exec_record_again(uv_timer_t *timer);
/* Operation: bury what is left of a place's box and settle its open rows, from exit records or as
 * lost. `closing`: also a box that lives and executions that are only intended, for nothing may
 * begin there any more. Otherwise both are left alone, and 1 is returned for a box that lives. */
int exec_settle_place(struct op *op, struct exec_hub *hub, const char *place_id, bool closing,
                      struct err *err);

/* exec_input.c */
void stdin_pump(struct exec *e);
void stdin_taken(struct exec *e, uint64_t taken, uint64_t limit);
void stdin_rewind(struct exec *e, uint64_t taken);
void stdin_fail(struct exec *e);
int stdin_add(struct exec *e, const struct stdin_piece *piece, bool owned,
              void (*done)(void *, int), void *arg, struct err *err);

/* A sandbox's is in the directory of the sandbox. */
char *box_dir(const struct exec_hub *hub, const char *place_id);

#endif
