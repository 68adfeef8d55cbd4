/* Connections to ssh hosts: one ssh process per environment, shared by its leases, whose remote end
 * is the relay to the boxes there (box/mux.h).
 *
 *     DOWN ──► LOGIN ──► UP          the relay answers
 *      ▲         │  └──► PLAIN       the host cannot run a box; believed for a minute
 *      └─────────┴────── lost, or given up
 *
 * An operation that needs a connection that is down logs in, and operations that come meanwhile
 * wait for the result. A connection that is lost while places use it is opened again by itself,
 * with growing pauses; one that no place uses is closed after a minute. Keys are resolved for each
 * login and never kept.
 *
 * The registry's lock guards the registry and the members marked below. */
#pragma once

#include <pthread.h>
#include <uv.h>

#include "box/mux.h"
#include "core/exec/box_route.h"
#include "core/kinds/ssh/ssh_hosts.h"
#include "rt/pool.h"

enum conn_state { CONN_DOWN, CONN_LOGIN, CONN_UP, CONN_PLAIN };

/* A place that needs the connection. */
struct ssh_user {
        struct ssh_user *next;
        struct kept_place *kept;
};

/* One ssh process. Loop thread. */
struct ssh_carrier {
        struct ssh_hosts *hosts;
        struct ssh_conn *conn; /* NULL: it was given up */
        struct mux *mux;
        struct proc_watch watch;
        pid_t session; /* what it started goes with it; 0: it has ended */
        uv_poll_t errors;
        int err_fd;
        unsigned open; /* handles */
        bool was_ready, has_errors;
        struct promise *ready;
};

struct ssh_conn {
        struct ssh_conn *next;
        struct ssh_hosts *hosts;
        char *key, *company_id, *environment_id, *config;
        /* under the lock */
        enum conn_state state;
        unsigned attempts; /* logins that came to an end */
        struct ssh_hello hello;
        int code; /* of the last login */
        char error[512];
        int64_t plain_until_ms;
        struct ssh_user *users;
        /* loop thread */
        struct ssh_carrier *carrier;
        unsigned failures; /* in a row */
        unsigned breaches; /* of the protocol by its relay, in a row */
        uv_timer_t timer;  /* opens it again, or closes it when it is idle */
        bool has_timer, timer_reopens;
        struct pool_job job;
        bool job_running;
};

struct ssh_plain;

struct ssh_hosts {
        struct runtime *rt;
        char *run_dir, *known_dir;
        char *box_paths[SSH_N_BOXES];
        struct ssh_setup setup; /* hashes: see ssh_hosts_setup() */
        pthread_mutex_t hash_lock;
        bool has_hashes;
        uv_loop_t *loop;
        pthread_mutex_t lock;
        struct ssh_conn *conns; /* never removed before the end */
        bool closing;           /* loop thread, as the next */
        unsigned carriers;
        struct ssh_plain *plain; /* ssh_plain.c; under the lock, as the next */
        int64_t last_call;
};

/* ssh_conn.c: any thread */
/* The connection of a place; made when there is none. ERR_CORRUPT when the place's configuration
 * cannot be read. */
int ssh_conn_of(struct ssh_hosts *h, const struct place *place, struct ssh_conn **ret,
                struct err *err);
struct ssh_conn *ssh_conn_find(struct ssh_hosts *h, const char *key);
void ssh_conn_use(struct ssh_conn *c, const struct place *place);
void ssh_conn_leave(struct ssh_conn *c, const char *place_id);
/* Operation: make sure that it is up, or plain. *ret_hello (may be NULL) is a copy. */
int ssh_conn_reach(struct op *op, struct ssh_conn *c, const struct secret_context *context,
                   struct ssh_hello *ret_hello, struct err *err);
/* Record the new state of the connection. Wakes no thread: waiting operations look by themselves.
 */
void ssh_conn_set(struct ssh_conn *c, enum conn_state state, int code, const char *why);

/* ssh_carrier.c */
/* Operation: hand the session of a call to the loop and wait until the relay answers. */
int ssh_carrier_start(struct op *op, struct ssh_conn *c, struct ssh_call *call, struct err *err);
/* Loop thread: the mux, or NULL; opens the connection again when it is down and its pause is over.
 */
struct mux *ssh_carrier_mux(struct ssh_conn *c);
/* Loop thread: give everything up. */
void ssh_carrier_close(struct ssh_conn *c);
/* Any thread: a place has left the connection; it may be idle now. */
void ssh_carrier_tick(struct ssh_conn *c);
