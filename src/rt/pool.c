#include "rt/pool.h"

#include <pthread.h>

#include "base/clock.h"

/* jansson recurses while parsing and drivers format on the stack; untouched pages cost nothing. */
#define STACK_SIZE ((size_t)1 << 20)

struct pool_worker {
        struct pool *pool;
        pthread_t thread;
        struct op_cancel cancel;
        bool kept; /* for awaited jobs only */
};

struct queue {
        struct pool_job *head, **tail;
        unsigned n;
        pthread_cond_t more;
};

struct pool {
        uv_async_t wake; /* tells the loop that `finished` is not empty */
        pthread_mutex_t lock;
        struct queue ordinary, awaited;
        struct pool_job *finished, **finished_tail;
        struct pool_worker *workers; /* max_threads, and the kept one behind them */
        unsigned max_threads, threads, idle, running;
        unsigned max_queue;
        bool has_kept;
        uint64_t completed, refused;
        bool stopping; /* no new jobs */
        bool quitting; /* threads end when the queue is empty */
};

static void push(struct pool_job ***tail, struct pool_job *job)
{
        job->next = NULL;
        **tail = job;
        *tail = &job->next;
}

static void queue_init(struct queue *q)
{
        q->tail = &q->head;
        pthread_cond_init(&q->more, NULL);
}

static struct pool_job *queue_take(struct queue *q)
{
        struct pool_job *job = q->head;

        if (!job)
                return NULL;
        q->head = job->next;
        if (!q->head)
                q->tail = &q->head;
        q->n--;
        return job;
}

static unsigned queued(const struct pool *p)
{
        return p->ordinary.n + p->awaited.n;
}

static void run_job(struct pool_worker *w, struct pool_job *job)
{
        struct arena arena;
        struct op op = {
                .arena = &arena,
                .deadline_ms = job->deadline_ms,
                .cancel = &w->cancel,
        };

        arena_init(&arena);
        job->run(job, &op);
        arena_done(&arena);
}

/* With p->lock held; NULL when it is time to end. */
static struct pool_job *next_job(struct pool_worker *w)
{
        struct pool *p = w->pool;
        struct queue *waits_at = w->kept ? &p->awaited : &p->ordinary;

        for (;;) {
                struct pool_job *job = queue_take(&p->awaited);

                if (!job && !w->kept)
                        job = queue_take(&p->ordinary);
                if (job || p->quitting)
                        return job;
                p->idle += !w->kept;
                pthread_cond_wait(&waits_at->more, &p->lock);
                p->idle -= !w->kept;
        }
}

static void *work(void *arg)
{
        struct pool_worker *w = arg;
        struct pool *p = w->pool;
        struct pool_job *job;

        pthread_mutex_lock(&p->lock);
        while ((job = next_job(w))) {
                p->running++;
                job->state = JOB_RUNNING;
                job->worker = w;
                op_cancel_reset(&w->cancel);
                if (job->cancelled)
                        op_cancel_set(&w->cancel);
                pthread_mutex_unlock(&p->lock);

                run_job(w, job);

                pthread_mutex_lock(&p->lock);
                job->state = JOB_DONE;
                job->worker = NULL;
                p->running--;
                p->completed++;
                push(&p->finished_tail, job);
                /* Under the lock, so that the loop cannot free the handle before we are done with
                 * it. */
                uv_async_send(&p->wake);
        }
        pthread_mutex_unlock(&p->lock);
        return NULL;
}

static void deliver(uv_async_t *handle)
{
        struct pool *p = container_of(handle, struct pool, wake);
        struct pool_job *job, *next;

        pthread_mutex_lock(&p->lock);
        job = p->finished;
        p->finished = NULL;
        p->finished_tail = &p->finished;
        pthread_mutex_unlock(&p->lock);
        for (; job; job = next) {
                next = job->next;
                job->done(job);
        }
}

int pool_new(uv_loop_t *loop, unsigned max_threads, unsigned max_queue, struct pool **ret,
             struct err *err)
{
        struct pool *p = xcalloc(1, sizeof(*p));
        int r;

        p->max_threads = max_threads;
        p->max_queue = max_queue;
        p->finished_tail = &p->finished;
        p->workers = xcalloc(max_threads + 1, sizeof(*p->workers));
        queue_init(&p->ordinary);
        queue_init(&p->awaited);
        pthread_mutex_init(&p->lock, NULL);
        r = uv_async_init(loop, &p->wake, deliver);
        if (r < 0) {
                free(p->workers);
                free(p);
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        }
        *ret = p;
        return 0;
}

/* With p->lock held. */
static int start_thread(struct pool *p, bool kept, struct err *err)
{
        struct pool_worker *w = &p->workers[kept ? p->max_threads : p->threads];
        pthread_attr_t attr;
        int r;

        w->pool = p;
        w->kept = kept;
        r = op_cancel_init(&w->cancel, err);
        if (r < 0)
                return r;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, STACK_SIZE);
        r = pthread_create(&w->thread, &attr, work, w);
        pthread_attr_destroy(&attr);
        if (r != 0) {
                op_cancel_done(&w->cancel);
                return err_sys(err, ERR_BUSY, r, "start thread");
        }
        if (kept)
                p->has_kept = true;
        else
                p->threads++;
        return 0;
}

int pool_submit(struct pool *p, struct pool_job *job, struct err *err)
{
        struct queue *q = job->awaited ? &p->awaited : &p->ordinary;
        bool awaited;
        int r = 0;

        pthread_mutex_lock(&p->lock);
        if (p->stopping)
                r = err_set(err, ERR_BUSY, "The server is shutting down.");
        else if (queued(p) >= p->max_queue && !job->urgent)
                r = err_set(err, ERR_BUSY, "Too many operations are waiting; try again shortly.");
        else if (p->idle <= queued(p) && p->threads < p->max_threads)
                r = start_thread(p, false, err);
        else if (p->idle <= queued(p) && job->awaited && !p->has_kept)
                r = start_thread(p, true, err);
        /* A thread that could not be started is no reason to refuse while others work. */
        if (r < 0 && p->threads > 0 && !p->stopping && (job->urgent || queued(p) < p->max_queue))
                r = 0;
        if (r < 0) {
                p->refused++;
                pthread_mutex_unlock(&p->lock);
                return r;
        }
        job->deadline_ms = job->timeout_ms > 0 ? clock_mono_ms() + job->timeout_ms : OP_NO_DEADLINE;
        job->state = JOB_QUEUED;
        job->cancelled = false;
        q->n++;
        push(&q->tail, job);
        awaited = job->awaited; /* it may be gone as soon as the lock is */
        pthread_mutex_unlock(&p->lock);
        /* Whoever wakes up takes the lock first. */
        pthread_cond_signal(&p->ordinary.more);
        if (awaited)
                pthread_cond_signal(&p->awaited.more);
        return 0;
}

void pool_cancel(struct pool *p, struct pool_job *job)
{
        pthread_mutex_lock(&p->lock);
        job->cancelled = true;
        if (job->state == JOB_RUNNING)
                op_cancel_set(&job->worker->cancel);
        pthread_mutex_unlock(&p->lock);
}

void pool_stats(struct pool *p, struct pool_stats *ret)
{
        pthread_mutex_lock(&p->lock);
        *ret = (struct pool_stats){
                .threads = p->threads,
                .busy = p->running,
                .queued = queued(p),
                .completed = p->completed,
                .refused = p->refused,
        };
        pthread_mutex_unlock(&p->lock);
}

bool pool_idle(struct pool *p)
{
        bool idle;

        pthread_mutex_lock(&p->lock);
        idle = queued(p) == 0 && p->running == 0 && !p->finished;
        pthread_mutex_unlock(&p->lock);
        return idle;
}

void pool_drain(struct pool *p, bool cancel)
{
        pthread_mutex_lock(&p->lock);
        p->stopping = true;
        if (cancel) {
                for (struct pool_job *job = p->ordinary.head; job; job = job->next)
                        job->cancelled = true;
                for (struct pool_job *job = p->awaited.head; job; job = job->next)
                        job->cancelled = true;
                for (unsigned i = 0; i < p->threads; i++)
                        op_cancel_set(&p->workers[i].cancel);
                if (p->has_kept)
                        op_cancel_set(&p->workers[p->max_threads].cancel);
        }
        pthread_mutex_unlock(&p->lock);
}

static void free_pool(uv_handle_t *handle)
{
        struct pool *p = container_of((uv_async_t *)handle, struct pool, wake);

        pthread_mutex_destroy(&p->lock);
        pthread_cond_destroy(&p->ordinary.more);
        pthread_cond_destroy(&p->awaited.more);
        free(p->workers);
        free(p);
}

static void join(struct pool_worker *w)
{
        pthread_join(w->thread, NULL);
        op_cancel_done(&w->cancel);
}

void pool_free(struct pool *p)
{
        pthread_mutex_lock(&p->lock);
        p->stopping = p->quitting = true;
        pthread_cond_broadcast(&p->ordinary.more);
        pthread_cond_broadcast(&p->awaited.more);
        pthread_mutex_unlock(&p->lock);
        for (unsigned i = 0; i < p->threads; i++)
                join(&p->workers[i]);
        if (p->has_kept)
                join(&p->workers[p->max_threads]);
        uv_close((uv_handle_t *)&p->wake, free_pool);
}
