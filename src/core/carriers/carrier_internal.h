/* Between the files of the module. The registry's lock guards the registry and the members marked
 * below. */
#pragma once

#include <pthread.h>

#include "box/mux.h"
#include "core/carriers/carrier.h"
#include "rt/pool.h"

#define CARRIER_GONE_MAX 256

enum carrier_state { CARRIER_DOWN, CARRIER_LOGIN, CARRIER_UP, CARRIER_PLAIN };

/* A place that needs the connection. */
struct carrier_user {
        struct carrier_user *next;
        struct kept_place *kept;
};

/* The process. Loop thread. */
struct carrier_process {
        struct carriers *all;
        struct carrier *carrier; /* NULL: it was given up */
        struct mux *mux;
        struct proc_watch watch;
        pid_t session; /* what it started goes with it; 0: it has ended */
        uv_poll_t errors;
        int err_fd;
        unsigned open; /* handles */
        bool was_ready, has_errors;
        struct promise *ready;
};

struct carrier {
        struct carrier *next;
        struct carriers *all;
        const struct carrier_type *type;
        char *key;
        struct kept_place *first; /* for which it was made */
        /* under the lock */
        unsigned refs; /* operations, letters and jobs that use it */
        enum carrier_state state;
        unsigned attempts; /* to open it that came to an end */
        struct ssh_hello hello;
        int code; /* of the last attempt */
        char error[512];
        int64_t plain_until_ms;
        struct carrier_user *users;
        bool is_shut;
        /* loop thread */
        struct carrier_process *process;
        unsigned failures; /* in a row */
        unsigned breaches; /* of the protocol by its relay, in a row */
        uv_timer_t timer;  /* opens it again, or closes it when it is idle */
        bool has_timer, timer_reopens;
        struct pool_job job;
        bool job_running;
};

struct carriers {
        struct runtime *rt;
        char *run_dir;
        char *box_paths[SSH_N_BOXES];
        struct ssh_setup setup; /* hashes: see carriers_setup() */
        pthread_mutex_t hash_lock;
        bool has_hashes;
        uv_loop_t *loop;
        pthread_mutex_t lock;
        char gone[CARRIER_GONE_MAX][UUID_LEN + 1]; /* places; the oldest is replaced */
        unsigned n_gone;
        struct carrier *list; /* those of one place are removed with it */
        bool closing;         /* loop thread, as the next */
        unsigned processes, removals;
};

/* carrier.c: any thread */
/* The connection of a place; made when there is none. The caller owes a carrier_putp(). */
int carrier_of(struct runtime *rt, const struct place *place, struct carrier **ret,
               struct err *err);
struct carrier *carrier_get(struct carrier *c);
void carrier_putp(struct carrier **c);
void carrier_free(struct carrier *c);
struct carrier *carrier_find(struct carriers *all, const char *key);
void carrier_use(struct carrier *c, const struct place *place);
bool carrier_has_users(struct carrier *c);
bool carrier_is_gone(struct runtime *rt, const struct place *place);
bool carrier_is_shut(struct carrier *c);
void carrier_set_shut(struct carrier *c, bool shut);
/* Operation: make sure that it is up, or plain. *ret_hello (may be NULL) is a copy. */
int carrier_open(struct op *op, struct carrier *c, const struct secret_context *context,
                 struct ssh_hello *ret_hello, struct err *err);
/* Record the new state of the connection. Wakes no thread: waiting operations look by themselves.
 */
void carrier_set(struct carrier *c, enum carrier_state state, int code, const char *why);

/* carrier_process.c */
/* Operation: hand the session of a call to the loop and wait until the relay answers. */
int carrier_process_start(struct op *op, struct carrier *c, struct ssh_call *call, struct err *err);
/* Loop thread: the mux, or NULL; opens the connection again when it is down and its pause is over.
 */
struct mux *carrier_mux(struct carrier *c);
/* Loop thread: give everything up. */
void carrier_close(struct carrier *c);
/* Any thread: the caller was the last that uses the connection; the loop removes it. */
void carrier_put_last(struct carrier *c);
/* Any thread: a place has left the connection; it may be idle now. */
void carrier_tick(struct carrier *c);
