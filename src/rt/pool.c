/* Which job of the pool runs next: threads, lanes, seats, and the queue. */
#include "rt/pool.h"

#include <limits.h>
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"

/* jansson recurses while parsing and drivers format on the stack; untouched pages cost nothing. */
#define STACK_SIZE ((size_t)1 << 20)

/* How often the jobs that wait for a seat are searched for one whose time is over. */
#define EXPIRE_MS 100

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

/* Exists while it has a lane. */
struct lane_owner {
        struct lane_owner *next;
        enum lane_kind kind;
        char name[LANE_OWNER_MAX + 1];
        unsigned lanes, seats, waiting;
};

/* Exists while a job has a seat in it or waits for one. */
struct lane {
        struct lane *next;
        enum lane_kind kind;
        char key[LANE_KEY_MAX + 1];
        struct lane_owner *owner; /* NULL: none */
        unsigned seats;           /* taken */
        struct pool_job *head, **tail;
        unsigned n; /* that wait */
};

struct pool {
        uv_async_t wake;   /* tells the loop that `finished` is not empty */
        uv_timer_t expiry; /* runs while jobs wait for seats */
        unsigned handles;
        struct op_cancel stop;
        pthread_mutex_t lock;
        struct queue ordinary, awaited;
        struct lane *lanes; /* the one whose turn is next comes first */
        struct lane_owner *owners;
        struct lane_limits limits[LANE_KINDS];
        unsigned seats[LANE_KINDS], waiting[LANE_KINDS];
        struct pool_job *finished, **finished_tail;
        struct pool_worker *workers; /* max_threads, and the kept one behind them */
        unsigned max_threads, threads, starting, idle, running;
        unsigned max_queue;
        bool has_kept;
        uint64_t completed, refused;
        bool stopping; /* no new jobs */
        bool quitting; /* threads end when the queue is empty */
};

static void push_job(struct pool_job ***tail, struct pool_job *job)
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

static unsigned count_queued(const struct pool *p)
{
        return p->ordinary.n + p->awaited.n;
}

/* -- Lanes: all with p->lock held -------------------------------------------------------------- */

static struct lane_owner *owner_join(struct pool *p, enum lane_kind kind, const char *name)
{
        struct lane_owner *o = p->owners;

        while (o && (o->kind != kind || !streq(o->name, name)))
                o = o->next;
        if (!o) {
                o = xcalloc(1, sizeof(*o));
                o->kind = kind;
                memcpy(o->name, name, sizeof(o->name));
                o->next = p->owners;
                p->owners = o;
        }
        o->lanes++;
        return o;
}

static void owner_leave(struct pool *p, struct lane_owner *o)
{
        struct lane_owner **at = &p->owners;

        if (!o || --o->lanes > 0)
                return;
        while (*at != o)
                at = &(*at)->next;
        *at = o->next;
        free(o);
}

static struct lane *lane_of(struct pool *p, enum lane_kind kind, const struct lane_name *name)
{
        struct lane *l = p->lanes, **at = &p->lanes;

        while (l && (l->kind != kind || !streq(l->key, name->key)))
                l = l->next;
        if (l)
                return l;
        l = xcalloc(1, sizeof(*l));
        l->kind = kind;
        memcpy(l->key, name->key, sizeof(l->key));
        l->owner = name->owner[0] ? owner_join(p, kind, name->owner) : NULL;
        l->tail = &l->head;
        while (*at)
                at = &(*at)->next;
        *at = l;
        return l;
}

static void lane_drop_if_empty(struct pool *p, struct lane *l)
{
        struct lane **at = &p->lanes;

        if (l->seats > 0 || l->n > 0)
                return;
        while (*at != l)
                at = &(*at)->next;
        *at = l->next;
        owner_leave(p, l->owner);
        free(l);
}

static void lane_to_end(struct pool *p, struct lane *l)
{
        struct lane **at = &p->lanes;

        while (*at != l)
                at = &(*at)->next;
        *at = l->next;
        while (*at)
                at = &(*at)->next;
        l->next = NULL;
        *at = l;
}

static bool has_seat_free(const struct pool *p, const struct lane *l)
{
        const struct lane_limits *limits = &p->limits[l->kind];
        unsigned taken = p->seats[l->kind];

        return l->seats < limits->each && taken < limits->all &&
               (!l->owner || l->owner->seats < limits->all - taken);
}

static void sit_down(struct pool *p, struct pool_job *job, struct lane *l)
{
        job->seat = l;
        l->seats++;
        if (l->owner)
                l->owner->seats++;
        p->seats[l->kind]++;
        lane_to_end(p, l);
}

static void queue_add(struct queue *q, struct pool_job *job)
{
        job->state = JOB_QUEUED;
        q->n++;
        push_job(&q->tail, job);
        pthread_cond_signal(&q->more);
}

/* It may run. */
static void make_runnable(struct pool *p, struct pool_job *job)
{
        queue_add(job->awaited ? &p->awaited : &p->ordinary, job);
        if (job->awaited)
                pthread_cond_signal(&p->ordinary.more);
}

static void wait_for_seat(struct pool *p, struct pool_job *job, struct lane *l)
{
        job->state = JOB_WAITING;
        l->n++;
        if (l->owner)
                l->owner->waiting++;
        p->waiting[l->kind]++;
        push_job(&l->tail, job);
}

static struct pool_job *wait_over(struct pool *p, struct lane *l, struct pool_job **at)
{
        struct pool_job *job = *at;

        *at = job->next;
        if (!*at)
                l->tail = at;
        l->n--;
        if (l->owner)
                l->owner->waiting--;
        p->waiting[l->kind]--;
        return job;
}

static void set_deadline(struct pool_job *job)
{
        job->submitted_ms = clock_mono_ms();
        job->deadline_ms =
                job->timeout_ms > 0 ? job->submitted_ms + job->timeout_ms : OP_NO_DEADLINE;
}

/* Give free seats to waiting jobs, one lane after the other. The time of a job begins anew with its
 * seat: one that had little left would only begin what it cannot finish. */
static void fill_seats(struct pool *p, enum lane_kind kind)
{
        struct lane *l = p->lanes;

        while (l && p->seats[kind] < p->limits[kind].all) {
                if (l->kind == kind && l->n > 0 && has_seat_free(p, l)) {
                        struct pool_job *job = wait_over(p, l, &l->head);

                        sit_down(p, job, l);
                        set_deadline(job);
                        make_runnable(p, job);
                        l = p->lanes;
                } else {
                        l = l->next;
                }
        }
}

static void stand_up(struct pool *p, struct pool_job *job)
{
        struct lane *l = job->seat;

        if (!l)
                return;
        enum lane_kind kind = l->kind;
        job->seat = NULL;
        l->seats--;
        if (l->owner)
                l->owner->seats--;
        p->seats[kind]--;
        lane_drop_if_empty(p, l);
        fill_seats(p, kind);
}

/* Run the jobs that have no reason to wait any longer, without a seat. */
static void release_waiting(struct pool *p, bool (*is_over)(const struct pool_job *, int64_t now))
{
        int64_t now = clock_mono_ms();
        struct lane *l, *next;

        for (l = p->lanes; l; l = next) {
                struct pool_job **at = &l->head;

                next = l->next;
                while (*at) {
                        if (is_over(*at, now))
                                make_runnable(p, wait_over(p, l, at));
                        else
                                at = &(*at)->next;
                }
                lane_drop_if_empty(p, l);
        }
}

static bool is_expired(const struct pool_job *job, int64_t now)
{
        return job->deadline_ms <= now;
}

static bool is_cancelled(const struct pool_job *job, int64_t now UNUSED)
{
        return job->cancelled;
}

static unsigned count_waiting(const struct pool *p)
{
        unsigned n = 0;

        for (int i = 0; i < LANE_KINDS; i++)
                n += p->waiting[i];
        return n;
}

static void run_job(struct pool_worker *w, struct pool_job *job)
{
        struct arena arena;
        struct op op = {
                .arena = &arena,
                .deadline_ms = job->deadline_ms,
                .cancel = &w->cancel,
                .stop = &w->pool->stop,
                .job = job,
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

static void ensure_threads(struct pool *p, unsigned free_now);

static void *worker_main(void *arg)
{
        struct pool_worker *w = arg;
        struct pool *p = w->pool;
        struct pool_job *job;

        pthread_mutex_lock(&p->lock);
        p->starting -= !w->kept;
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
                stand_up(p, job);
                push_job(&p->finished_tail, job);
                ensure_threads(p, !w->kept);
                /* Under the lock, so that the loop cannot free the handle before we are done with
                 * it. */
                uv_async_send(&p->wake);
        }
        pthread_mutex_unlock(&p->lock);
        return NULL;
}

static void deliver_done(uv_async_t *handle)
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

static void expire_waiting(uv_timer_t *timer)
{
        struct pool *p = container_of(timer, struct pool, expiry);

        pthread_mutex_lock(&p->lock);
        release_waiting(p, is_expired);
        ensure_threads(p, 0);
        if (count_waiting(p) == 0)
                uv_timer_stop(timer);
        pthread_mutex_unlock(&p->lock);
}

int pool_new(uv_loop_t *loop, unsigned max_threads, unsigned max_queue, struct pool **ret,
             struct err *err)
{
        struct pool *p = xcalloc(1, sizeof(*p));

        p->max_threads = max_threads;
        p->max_queue = max_queue;
        p->finished_tail = &p->finished;
        p->workers = xcalloc(max_threads + 1, sizeof(*p->workers));
        queue_init(&p->ordinary);
        queue_init(&p->awaited);
        for (int i = 0; i < LANE_KINDS; i++)
                p->limits[i] = (struct lane_limits){ UINT_MAX, UINT_MAX, UINT_MAX };
        pthread_mutex_init(&p->lock, NULL);
        int r = op_cancel_init(&p->stop, err);
        if (r >= 0 && (r = uv_async_init(loop, &p->wake, deliver_done)) < 0) {
                op_cancel_done(&p->stop);
                r = err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        }
        if (r < 0) {
                free(p->workers);
                free(p);
                return r;
        }
        (void)uv_timer_init(loop, &p->expiry);
        p->handles = 2;
        *ret = p;
        return 0;
}

void pool_limit_lanes(struct pool *p, enum lane_kind kind, struct lane_limits limits)
{
        p->limits[kind] = limits;
        if (kind == LANE_RUNS)
                return;
        p->max_threads += limits.all;
        free(p->workers);
        p->workers = xcalloc(p->max_threads + 1, sizeof(*p->workers));
}

/* With p->lock held. */
static int start_thread(struct pool *p, bool kept, struct err *err)
{
        struct pool_worker *w = &p->workers[kept ? p->max_threads : p->threads];
        pthread_attr_t attr;

        w->pool = p;
        w->kept = kept;
        int r = op_cancel_init(&w->cancel, err);
        if (r < 0)
                return r;
        pthread_attr_init(&attr);
        pthread_attr_setstacksize(&attr, STACK_SIZE);
        r = pthread_create(&w->thread, &attr, worker_main, w);
        pthread_attr_destroy(&attr);
        if (r != 0) {
                op_cancel_done(&w->cancel);
                return err_sys(err, ERR_BUSY, r, "start thread");
        }
        p->has_kept = p->has_kept || kept;
        p->threads += !kept;
        p->starting += !kept;
        return 0;
}

/* Threads for all that can run, as far as there may be any; `free_now` are about to take a job
 * without being idle. A thread that cannot be started is no failure while others work. */
static void ensure_threads(struct pool *p, unsigned free_now)
{
        while (p->idle + p->starting + free_now < count_queued(p) && p->threads < p->max_threads &&
               start_thread(p, false, NULL) >= 0)
                ;
}

struct lane_name lane_name(const char *owner, const char *key)
{
        struct lane_name name;

        snprintf(name.owner, sizeof(name.owner), "%s", owner ? owner : "");
        snprintf(name.key, sizeof(name.key), "%s", key ? key : name.owner);
        return name;
}

void pool_job_lane(struct pool_job *job, enum lane_kind kind, struct lane_name name)
{
        job->lane = kind;
        job->lane_name = name;
}

/* Whether there is room for it, or why not. */
static int admit_job(struct pool *p, const struct pool_job *job, const struct lane *l,
                     struct err *err)
{
        unsigned left = p->max_queue - MIN(count_waiting(p), p->max_queue);

        if (p->stopping)
                return err_set(err, ERR_BUSY, "The server is shutting down.");
        if (job->urgent)
                return 0;
        if (l && (l->n > 0 || !has_seat_free(p, l))) {
                if (l->n >= p->limits[l->kind].queue)
                        return err_set(err, ERR_BUSY,
                                       "Too many operations wait for this environment's provider; "
                                       "try again shortly.");
                if (l->owner && l->owner->waiting >= left)
                        return err_set(err, ERR_BUSY,
                                       "Too many operations of this company wait for providers; "
                                       "try again shortly.");
                if (left == 0)
                        return err_set(err, ERR_BUSY,
                                       "Too many operations are waiting; try again shortly.");
        }
        if (count_queued(p) >= p->max_queue)
                return err_set(err, ERR_BUSY,
                               "Too many operations are waiting; try again shortly.");
        return 0;
}

int pool_submit(struct pool *p, struct pool_job *job, struct err *err)
{
        struct lane *l = NULL;

        pthread_mutex_lock(&p->lock);
        if (job->lane != LANE_NONE)
                l = lane_of(p, job->lane, &job->lane_name);
        int r = admit_job(p, job, l, err);
        if (r >= 0 && p->threads == 0) /* with one at least it will be run */
                r = start_thread(p, false, err);
        if (r < 0) {
                p->refused++;
                if (l)
                        lane_drop_if_empty(p, l);
                pthread_mutex_unlock(&p->lock);
                return r;
        }
        set_deadline(job);
        job->cancelled = false;
        job->seat = NULL;
        if (l && (l->n > 0 || !has_seat_free(p, l))) {
                wait_for_seat(p, job, l);
                fill_seats(p, l->kind); /* the first one may only have waited for a thread */
                if (!uv_is_active((uv_handle_t *)&p->expiry))
                        uv_timer_start(&p->expiry, expire_waiting, EXPIRE_MS, EXPIRE_MS);
        } else {
                if (l)
                        sit_down(p, job, l);
                make_runnable(p, job);
        }
        ensure_threads(p, 0);
        if (p->awaited.n > 0 && p->idle + p->starting < count_queued(p) && !p->has_kept)
                (void)start_thread(p, true, NULL);
        pthread_mutex_unlock(&p->lock);
        return 0;
}

bool pool_take_seat(const struct op *op, enum lane_kind kind, const struct lane_name *name)
{
        struct pool_job *job = op->job;

        if (!job)
                return true;
        struct pool *p = job->worker->pool;
        pthread_mutex_lock(&p->lock);
        struct lane *l = lane_of(p, kind, name);
        bool taken = job->seat == l || (l->n == 0 && has_seat_free(p, l));
        if (taken && job->seat != l) {
                struct lane *old = job->seat;

                /* The new seat first, so that the lane does not go when the old one is left. */
                sit_down(p, job, l);
                if (old) {
                        struct pool_job left = { .seat = old };

                        stand_up(p, &left);
                        ensure_threads(p, 0);
                }
        }
        lane_drop_if_empty(p, l);
        pthread_mutex_unlock(&p->lock);
        return taken;
}

void pool_needs_seat(const struct op *op, const char *what)
{
#ifdef BERTH_FAULTS
        if (op->job && (!op->job->seat || op->job->seat->kind == LANE_RUNS) &&
            op_check(op, NULL) >= 0) {
                fprintf(stderr, "%s is waited for without a seat\n", what);
                abort();
        }
#else
        (void)op;
        (void)what;
#endif
}

void pool_cancel(struct pool *p, struct pool_job *job)
{
        pthread_mutex_lock(&p->lock);
        job->cancelled = true;
        if (job->state == JOB_RUNNING)
                op_cancel_set(&job->worker->cancel);
        if (job->state == JOB_WAITING) {
                release_waiting(p, is_cancelled);
                ensure_threads(p, 0);
        }
        pthread_mutex_unlock(&p->lock);
}

/* Each queue is in the order of its jobs, so the first one has waited longest. */
static int64_t longest_wait(const struct pool *p)
{
        int64_t first = INT64_MAX;

        if (p->ordinary.head)
                first = p->ordinary.head->submitted_ms;
        for (const struct lane *l = p->lanes; l; l = l->next)
                if (l->head)
                        first = MIN(first, l->head->submitted_ms);
        return first == INT64_MAX ? 0 : MAX(clock_mono_ms() - first, 0);
}

void pool_stats(struct pool *p, struct pool_stats *ret)
{
        pthread_mutex_lock(&p->lock);
        *ret = (struct pool_stats){
                .threads = p->threads,
                .busy = p->running,
                .queued = count_queued(p),
                .longest_wait_ms = longest_wait(p),
                .completed = p->completed,
                .refused = p->refused,
        };
        memcpy(ret->seats, p->seats, sizeof(ret->seats));
        memcpy(ret->waiting, p->waiting, sizeof(ret->waiting));
        pthread_mutex_unlock(&p->lock);
}

bool pool_idle(struct pool *p)
{
        pthread_mutex_lock(&p->lock);
        bool idle =
                count_queued(p) == 0 && count_waiting(p) == 0 && p->running == 0 && !p->finished;
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
                for (struct lane *l = p->lanes; l; l = l->next)
                        for (struct pool_job *job = l->head; job; job = job->next)
                                job->cancelled = true;
                release_waiting(p, is_cancelled);
                ensure_threads(p, 0);
                for (unsigned i = 0; i < p->threads; i++)
                        op_cancel_set(&p->workers[i].cancel);
                if (p->has_kept)
                        op_cancel_set(&p->workers[p->max_threads].cancel);
        }
        pthread_mutex_unlock(&p->lock);
}

void pool_stop(struct pool *p)
{
        pool_drain(p, true);
        op_cancel_set(&p->stop);
}

static void free_pool(uv_handle_t *handle)
{
        struct pool *p = handle->data;

        if (--p->handles > 0)
                return;
        op_cancel_done(&p->stop);
        pthread_mutex_destroy(&p->lock);
        pthread_cond_destroy(&p->ordinary.more);
        pthread_cond_destroy(&p->awaited.more);
        free(p->workers);
        free(p);
}

static void join_threads(struct pool_worker *w)
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
                join_threads(&p->workers[i]);
        if (p->has_kept)
                join_threads(&p->workers[p->max_threads]);
        p->wake.data = p->expiry.data = p;
        uv_close((uv_handle_t *)&p->wake, free_pool);
        uv_close((uv_handle_t *)&p->expiry, free_pool);
}
