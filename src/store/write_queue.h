/* One writer at a time, and writes that wait together in one commit.
 *
 * Write jobs wait in a queue. A thread takes all of them as one group and lets the back end run the
 * group in one transaction. A caller that finds no group under way and no job in the queue runs its
 * own job on its own thread: a group of one without the way to the writer and back, which takes as
 * long as a fast disk.
 *
 * Any thread; `run` is called by one thread at a time. */
#pragma once

#include <pthread.h>

#include "store/store.h"

enum write_state { WRITE_QUEUED, WRITE_TAKEN, WRITE_FINISHED };

/* On the stack of the thread that waits for it. */
struct write_job {
        struct write_job *next;
        store_fn fn;
        void *arg;
        struct err *err;
        int result;
        enum write_state state;
        pthread_cond_t finished;
};

struct write_queue {
        pthread_mutex_t lock;
        pthread_cond_t work;
        pthread_t thread;
        struct write_job *head, **tail;
        bool writing; /* a group is under way */
        bool stopping;
        /* Gives every job of the group its result. */
        void (*run)(struct write_queue *q, struct write_job *group);
};

int write_queue_start(struct write_queue *q,
                      void (*run)(struct write_queue *q, struct write_job *group), struct err *err);
/* What waits is still written. */
void write_queue_stop(struct write_queue *q);

/* Run fn in a group: what it returned, or why the group failed. A job that waits is withdrawn when
 * the operation ends; one that a group has taken is waited for however long it takes, because its
 * outcome must be known. */
int write_queue_write(struct write_queue *q, const struct op *op, store_fn fn, void *arg,
                      struct err *err);

/* A transaction that failed counts for no job: those that had succeeded get the cause, too. */
void write_group_fail(struct write_job *group, int code, const struct err *cause);
