/* Which writes go into one transaction, and which thread runs them. */
#include "store/write_queue.h"

#include <time.h>

/* How often a queued write looks whether its caller gave up. */
#define CANCEL_LOOK_MS 1000

void write_group_fail(struct write_job *group, int code, const struct err *cause)
{
        for (struct write_job *job = group; job; job = job->next) {
                if (job->result < 0)
                        continue;
                job->result = code;
                err_set(job->err, code, "%s", cause->msg);
        }
}

static void *write_thread(void *arg)
{
        struct write_queue *q = arg;

        pthread_mutex_lock(&q->lock);
        for (;;) {
                struct write_job *group, *job, *next;

                while (q->writing || (!q->head && !q->stopping))
                        pthread_cond_wait(&q->work, &q->lock);
                if (!q->head)
                        break;
                q->writing = true;
                group = q->head;
                q->head = NULL;
                q->tail = &q->head;
                for (job = group; job; job = job->next)
                        job->state = WRITE_TAKEN;
                pthread_mutex_unlock(&q->lock);

                q->run(q, group);

                pthread_mutex_lock(&q->lock);
                q->writing = false;
                for (job = group; job; job = next) {
                        next = job->next; /* the job is gone once its owner sees FINISHED */
                        job->state = WRITE_FINISHED;
                        pthread_cond_signal(&job->finished);
                }
        }
        pthread_mutex_unlock(&q->lock);
        return NULL;
}

static void unlink_job(struct write_queue *q, struct write_job *job)
{
        struct write_job **at = &q->head;

        while (*at != job)
                at = &(*at)->next;
        *at = job->next;
        if (q->tail == &job->next)
                q->tail = at;
}

static void add_ms(struct timespec *t, int64_t ms)
{
        int64_t ns = t->tv_nsec + (ms % 1000) * 1000000;

        t->tv_sec += ms / 1000 + ns / 1000000000;
        t->tv_nsec = ns % 1000000000;
}

/* With the lock held. A job that the writer has taken is waited for however long it takes: its
 * outcome must be known. One that is still queued can be withdrawn. */
static int wait_for_job(struct write_queue *q, const struct op *op, struct write_job *job)
{
        while (job->state == WRITE_QUEUED) {
                struct timespec until;
                int r = op_check(op, job->err);

                if (r < 0) {
                        unlink_job(q, job);
                        return r;
                }
                clock_gettime(CLOCK_MONOTONIC, &until);
                add_ms(&until, op_time_left(op, CANCEL_LOOK_MS));
                pthread_cond_timedwait(&job->finished, &q->lock, &until);
        }
        while (job->state != WRITE_FINISHED)
                pthread_cond_wait(&job->finished, &q->lock);
        return job->result;
}

/* No job writes and no job waits. With the lock held, which is let go of meanwhile. */
static int write_here(struct write_queue *q, const struct op *op, struct write_job *job)
{
        int r = op_check(op, job->err);

        if (r < 0)
                return r;
        q->writing = true;
        pthread_mutex_unlock(&q->lock);
        q->run(q, job);
        pthread_mutex_lock(&q->lock);
        q->writing = false;
        if (q->head || q->stopping)
                pthread_cond_signal(&q->work);
        return job->result;
}

static int write_in_turn(struct write_queue *q, const struct op *op, struct write_job *job)
{
        pthread_condattr_t attr;

        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&job->finished, &attr);
        pthread_condattr_destroy(&attr);
        *q->tail = job;
        q->tail = &job->next;
        pthread_cond_signal(&q->work);
        int r = wait_for_job(q, op, job);
        pthread_cond_destroy(&job->finished);
        return r;
}

int write_queue_write(struct write_queue *q, const struct op *op, store_fn fn, void *arg,
                      struct err *err)
{
        struct err scratch = { 0 };
        struct write_job job = { .fn = fn, .arg = arg, .err = err ? err : &scratch };

        pthread_mutex_lock(&q->lock);
        int r = q->writing || q->head ? write_in_turn(q, op, &job) : write_here(q, op, &job);
        pthread_mutex_unlock(&q->lock);
        err_done(&scratch);
        return r;
}

int write_queue_start(struct write_queue *q,
                      void (*run)(struct write_queue *q, struct write_job *group), struct err *err)
{
        *q = (struct write_queue){ .run = run };
        q->tail = &q->head;
        pthread_mutex_init(&q->lock, NULL);
        pthread_cond_init(&q->work, NULL);
        int r = pthread_create(&q->thread, NULL, write_thread, q);
        if (r == 0)
                return 0;
        pthread_mutex_destroy(&q->lock);
        pthread_cond_destroy(&q->work);
        return err_sys(err, ERR_INTERNAL, r, "start the writer thread");
}

void write_queue_stop(struct write_queue *q)
{
        pthread_mutex_lock(&q->lock);
        q->stopping = true;
        pthread_cond_signal(&q->work);
        pthread_mutex_unlock(&q->lock);
        pthread_join(q->thread, NULL);
        pthread_mutex_destroy(&q->lock);
        pthread_cond_destroy(&q->work);
}
