/* Callbacks where nothing but plain commands can be run in the place: a gateway inside puts the
 * agent's requests into files. A thread of the daemon looks for these files by commands, passes the
 * requests through the run's channel as if they had come over a tunnel, and writes the answers back
 * (remote-execution 3). So the checks are those of callback_gate.c, and nothing that the place says
 * is trusted.
 *
 *   <remoteCwd>/.paperclip-runtime/<adapter>/paperclip-bridge/server/    the gateway's program
 *   <remoteCwd>/.paperclip-runtime/<adapter>/paperclip-bridge/queue/<run>/   requests, responses
 *
 *   callback_files.c   the commands: bring the gateway, start it, take a turn, stop it
 *   callback_queue.c   the thread */
#pragma once

#include "core/callbacks/callback.h"
#include "core/kinds/plugin/plugin_box.h"

#define QUEUE_REQUEST_MAX ((size_t)2 << 20) /* of a request's file */
#define QUEUE_DRAIN_MS    2000
#define QUEUE_STOPPED     "Bridge worker stopped before request could be handled."

struct callback_queue;

/* Where the files are. In an arena. */
struct queue_paths {
        const char *server; /* directory of the program */
        const char *queue;
};

/* Operations; results in the arena. */

/* ERR_UNPROCESSABLE where the lease does not say where its work is. */
int queue_paths_of(struct op *op, const struct plugin_lease *l, const char *adapter_type,
                   const char *run_id, struct queue_paths *ret, struct err *err);
/* Make sure that the program is there; *ret_uploaded says whether it had to be uploaded. */
int queue_sync_program(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                       const struct queue_paths *paths, bool *ret_uploaded, struct err *err);
/* Start the gateway anew, on that port or with 0 on any, and wait until it listens. */
int queue_start(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                const struct queue_paths *paths, const char *token, uint16_t port,
                uint16_t *ret_port, struct err *err);

/* One turn: write the answer if there is one, then wait for a request, for so many tenths of a
 * second. */
struct queue_turn {
        const char *id;       /* of the request that `answer` is for; NULL: none */
        const char *answer;   /* the whole file */
        bool is_forced;       /* also when the request is not there any more */
        unsigned rounds;      /* tenths of a second */
        const char *ret_id;   /* of the next request; NULL: there is none */
        const char *ret_text; /* its file; NULL: it cannot be read */
        size_t ret_len;
};
int queue_take_turn(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                    const struct queue_paths *paths, struct queue_turn *turn, struct err *err);
/* Accept no more requests; those that are there are still answered. */
int queue_refuse_new(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                     const struct queue_paths *paths, struct err *err);
/* End the gateway and remove its files. */
int queue_stop(struct op *op, struct runtime *rt, const struct plugin_lease *l,
               const struct queue_paths *paths, struct err *err);

/* Read the output of a command as a request: its id and its file, in the arena; none when the
 * output makes no sense. For fuzzing. */
void queue_read_printed(struct arena *arena, const char *printed, struct queue_turn *turn);

/* The bytes of the HTTP request that a file describes, and of the answer as a file. ERR_INVALID:
 * the file is not a request that could be sent. Pure. */
int queue_request_bytes(const char *text, size_t len, const char *token, struct buf *ret,
                        struct err *err);
int queue_answer_text(const char *id, const char *bytes, size_t len, struct buf *ret,
                      struct err *err);
void queue_error_text(const char *id, int status, const char *text, struct buf *ret);

/* The thread. Loop thread, but for the operation that calls queue_new(). */

/* `number` is the channel's. */
struct callback_queue *queue_new(struct runtime *rt, const char *run_id, const char *lease_id,
                                 const char *adapter_type);
/* Run. `over` is called on the loop thread when it has ended by itself or after queue_close(). */
int queue_run(struct callback_queue *q, uintptr_t number, void (*over)(void *ctx), void *ctx,
              struct err *err);
/* Answer the requests that are there within QUEUE_DRAIN_MS, stop the gateway, end. */
void queue_close(struct callback_queue *q);
/* Break off, and wait for the thread; the gateway stays. */
void queue_abandon(struct callback_queue *q);
/* After `over`, or after queue_abandon(), or when it was never run. */
void queue_free(struct callback_queue *q);
