/* Shared by the files of the callback module; see callback.h. Loop thread, except where said. */
#pragma once

#include <pthread.h>

#include "box/tunnel.h"
#include "core/access/run_token.h"
#include "core/callbacks/callback.h"
#include "rt/mail.h"
#include "rt/pool.h"

#define NOTE_PATH_MAX 512

/* A request that is to become an event of its run. */
struct note {
        struct note *next;
        char run_id[UUID_LEN + 1], agent_id[UUID_LEN + 1], company_id[UUID_LEN + 1];
        char method[8];
        char path[NOTE_PATH_MAX + 1];
        int status;
        int64_t took_us;
};

/* An operation that waits for the channel's port. */
struct waiter {
        struct waiter *next;
        struct promise *promise;
};

/* Kinds of refusals: each is logged once for a run. */
enum refusal {
        REFUSED_TOKEN,
        REFUSED_FULL,
        REFUSED_RATE,
        REFUSED_PATH,
        REFUSED_ROUTE,
        REFUSED_TYPE,
};

struct channel {
        struct channel *next; /* under the host's lock for other threads */
        struct callback_host *host;
        struct callback_identity identity; /* points to the texts below */
        char run_id[UUID_LEN + 1], agent_id[UUID_LEN + 1], company_id[UUID_LEN + 1];
        char place_id[UUID_LEN + 1];
        char token[CHANNEL_TOKEN_LEN + 1];
        uintptr_t number; /* what http_peer.via carries; never used again */
        /* Where it is served. */
        bool straight;        /* nowhere: the agent comes to our own port */
        struct box *box;      /* NULL: there is none at the moment */
        struct channel *peer; /* the next one of the box */
        struct tunnel_listener listener;
        uint16_t port; /* under the lock; 0: not known on this link */
        struct waiter *waiters;
        struct callback_queue *queue; /* NULL: it has no file queue, or that is over */
        bool has_files;               /* immutable: it had one */
        /* What it has done. */
        unsigned in_flight;
        int64_t last_answer_ms;
        _Atomic uint64_t count;
        unsigned noted;
        unsigned refusals; /* bits of what was logged */
        double tokens;     /* of the rate limit */
        int64_t tokens_at;
        bool closing;
        int64_t close_by_ms;
};

struct callback_host {
        struct runtime *rt;
        uv_loop_t *loop;
        struct http_server *http;
        pthread_mutex_t lock; /* the list and the ports in it */
        struct channel *channels;
        uintptr_t last_number;
        uv_timer_t timer; /* while something is to be written or closed */
        bool timer_on;
        struct note *notes, **notes_tail;
        struct pool_job job; /* writes notes */
        struct note *writing;
        bool job_running;
};

/* Serve a connection of the channel with that number; it is closed when there is no such channel
 * any more. */
void callback_serve(struct callback_host *host, int take_fd, uintptr_t number);
struct channel *callback_find(struct callback_host *host, const char *run_id);
/* Have the timer look. */
void callback_stir(struct callback_host *host);

void callback_channel_free(struct channel *c);
/* Operation: make it known on the loop, and serve it from the place, or with NULL from nowhere. The
 * promise is kept when its port is known. */
void callback_post_open(struct callback_host *host, struct channel *take_channel,
                        const struct place *place, struct promise *promise);

/* callback_notes.c */
void callback_note_add(struct channel *c, const char *method, const char *path, int status,
                       int64_t started_us);
/* Hand the waiting notes to the pool. */
void callback_notes_flush(struct callback_host *host);
/* The same on this thread: the daemon ends. */
void callback_notes_finish(struct callback_host *host);
