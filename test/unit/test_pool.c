/* threads: the pool itself. */
#define _GNU_SOURCE
#include "test.h"

#include <pthread.h>

#include "base/clock.h"
#include "rt/pool.h"

#define HOUR_MS  INT64_C(3600000)
#define MAX_JOBS 64

/* A gate that jobs wait at, and a record of what happened. */
struct fixture {
        uv_loop_t loop;
        struct pool *pool;
        pthread_mutex_t lock;
        pthread_cond_t changed;
        bool open;
        unsigned started;
        int order[MAX_JOBS];
        unsigned n_order;
        unsigned done;
};

struct test_job {
        struct pool_job job;
        struct fixture *f;
        int number;
        int result;          /* what op_check() or the wait said */
        int64_t deadline_ms; /* the operation's */
        bool ran, was_done;
        bool wait_cancelled; /* wait for being cancelled */
        pthread_t thread;
        struct test_job *then; /* submitted by `done` */
};

static void run_at_gate(struct pool_job *job, struct op *op)
{
        struct test_job *t = container_of(job, struct test_job, job);
        struct fixture *f = t->f;

        t->ran = true;
        t->thread = pthread_self();
        t->deadline_ms = op->deadline_ms;
        arena_strdup(op->arena, "freed with the operation");
        pthread_mutex_lock(&f->lock);
        f->order[f->n_order++ % MAX_JOBS] = t->number;
        f->started++;
        pthread_cond_broadcast(&f->changed);
        while (!f->open && !t->wait_cancelled)
                pthread_cond_wait(&f->changed, &f->lock);
        pthread_mutex_unlock(&f->lock);
        t->result = t->wait_cancelled ? op_wait_fd(op, -1, 0, -1, NULL) : op_check(op, NULL);
}

static void note_done(struct pool_job *job)
{
        struct test_job *t = container_of(job, struct test_job, job);
        struct fixture *f = t->f;

        assert_false(t->was_done);
        t->was_done = true;
        f->done++;
        if (t->then)
                assert_int_equal(pool_submit(f->pool, &t->then->job, NULL), 0);
}

static struct test_job make_job(struct fixture *f, int number)
{
        return (struct test_job){ .job = { .run = run_at_gate, .done = note_done },
                                  .f = f,
                                  .number = number,
                                  .result = 1 };
}

static void wait_started(struct fixture *f, unsigned n)
{
        pthread_mutex_lock(&f->lock);
        while (f->started < n)
                pthread_cond_wait(&f->changed, &f->lock);
        pthread_mutex_unlock(&f->lock);
}

static void open_gate(struct fixture *f)
{
        pthread_mutex_lock(&f->lock);
        f->open = true;
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
}

static void start(struct fixture *f, unsigned threads, unsigned queue)
{
        *f = (struct fixture){ .done = 0 };
        pthread_mutex_init(&f->lock, NULL);
        pthread_cond_init(&f->changed, NULL);
        assert_int_equal(uv_loop_init(&f->loop), 0);
        assert_int_equal(pool_new(&f->loop, threads, queue, &f->pool, NULL), 0);
}

static void run_until_idle(struct fixture *f)
{
        while (!pool_idle(f->pool))
                uv_run(&f->loop, UV_RUN_ONCE);
}

static void stop(struct fixture *f)
{
        open_gate(f);
        run_until_idle(f);
        pool_free(f->pool);
        uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&f->loop), 0);
        pthread_mutex_destroy(&f->lock);
        pthread_cond_destroy(&f->changed);
}

static struct pool_stats stats_of(struct fixture *f)
{
        struct pool_stats s;

        pool_stats(f->pool, &s);
        return s;
}

static void test_one_job(void **state)
{
        struct fixture f;
        struct test_job t;

        (void)state;
        start(&f, 2, 2);
        assert_true(pool_idle(f.pool));
        t = make_job(&f, 1);
        t.job.timeout_ms = HOUR_MS;
        assert_int_equal(pool_submit(f.pool, &t.job, NULL), 0);
        assert_false(pool_idle(f.pool));
        open_gate(&f);
        run_until_idle(&f);
        assert_true(t.was_done);
        assert_int_equal(t.result, 0);
        assert_false(pthread_equal(t.thread, pthread_self()));
        assert_true(t.deadline_ms > clock_mono_ms() && t.deadline_ms <= clock_mono_ms() + HOUR_MS);
        /* The same job again, this time without a deadline. */
        t.was_done = false;
        t.job.timeout_ms = 0;
        assert_int_equal(pool_submit(f.pool, &t.job, NULL), 0);
        run_until_idle(&f);
        assert_true(t.was_done);
        assert_int_equal(t.deadline_ms, OP_NO_DEADLINE);
        assert_int_equal(stats_of(&f).completed, 2);
        stop(&f);
}

static void test_time_in_the_queue_counts(void **state)
{
        struct fixture f;
        struct test_job first, second;

        (void)state;
        start(&f, 1, 2);
        first = make_job(&f, 1);
        second = make_job(&f, 2);
        second.job.timeout_ms = 1;
        assert_int_equal(pool_submit(f.pool, &first.job, NULL), 0);
        assert_int_equal(pool_submit(f.pool, &second.job, NULL), 0);
        while (clock_mono_ms() <= second.job.deadline_ms)
                sched_yield();
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(second.result, ERR_TIMEOUT);
        stop(&f);
}

static void test_one_thread_keeps_the_order(void **state)
{
        struct fixture f;
        struct test_job jobs[20];

        (void)state;
        start(&f, 1, 20);
        for (int i = 0; i < 20; i++) {
                jobs[i] = make_job(&f, i);
                assert_int_equal(pool_submit(f.pool, &jobs[i].job, NULL), 0);
        }
        open_gate(&f);
        run_until_idle(&f);
        for (int i = 0; i < 20; i++)
                assert_int_equal(f.order[i], i);
        assert_int_equal(stats_of(&f).threads, 1);
        stop(&f);
}

static void test_the_queue_is_bounded(void **state)
{
        struct fixture f;
        struct test_job jobs[6];
        struct err err = { 0 };

        (void)state;
        start(&f, 2, 3);
        for (int i = 0; i < 6; i++)
                jobs[i] = make_job(&f, i);
        for (int i = 0; i < 2; i++)
                assert_int_equal(pool_submit(f.pool, &jobs[i].job, &err), 0);
        wait_started(&f, 2); /* both threads are at the gate, the queue is empty */
        for (int i = 2; i < 5; i++)
                assert_int_equal(pool_submit(f.pool, &jobs[i].job, &err), 0);
        assert_int_equal(stats_of(&f).queued, 3);
        assert_int_equal(pool_submit(f.pool, &jobs[5].job, &err), ERR_BUSY);
        assert_int_equal(err.code, ERR_BUSY);
        assert_int_equal(stats_of(&f).refused, 1);
        assert_int_equal(stats_of(&f).busy, 2);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(f.done, 5);
        assert_false(jobs[5].ran);
        /* And one more, now that there is room. */
        assert_int_equal(pool_submit(f.pool, &jobs[5].job, &err), 0);
        run_until_idle(&f);
        assert_true(jobs[5].was_done);
        stop(&f);
}

static void test_threads_start_when_needed(void **state)
{
        struct fixture f;
        struct test_job jobs[5];

        (void)state;
        start(&f, 3, 8);
        assert_int_equal(stats_of(&f).threads, 0);
        for (unsigned i = 0; i < 5; i++) {
                jobs[i] = make_job(&f, (int)i);
                assert_int_equal(pool_submit(f.pool, &jobs[i].job, NULL), 0);
                assert_int_equal(stats_of(&f).threads, MIN(i + 1, 3));
        }
        wait_started(&f, 3);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(f.done, 5);
        stop(&f);
}

/* A worker waits again before its job is handed back, so the next job finds it. */
static void test_an_idle_thread_is_used_first(void **state)
{
        struct fixture f;
        struct test_job t;

        (void)state;
        start(&f, 3, 8);
        open_gate(&f);
        for (int i = 0; i < 5; i++) {
                t = make_job(&f, i);
                assert_int_equal(pool_submit(f.pool, &t.job, NULL), 0);
                run_until_idle(&f);
                assert_int_equal(stats_of(&f).threads, 1);
        }
        stop(&f);
}

static void test_cancel_a_running_job(void **state)
{
        struct fixture f;
        struct test_job t, next;

        (void)state;
        start(&f, 1, 2);
        t = make_job(&f, 1);
        t.wait_cancelled = true;
        next = make_job(&f, 2);
        assert_int_equal(pool_submit(f.pool, &t.job, NULL), 0);
        assert_int_equal(pool_submit(f.pool, &next.job, NULL), 0);
        wait_started(&f, 1);
        pool_cancel(f.pool, &t.job);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(t.result, ERR_CANCELLED);
        /* The next one on the same thread is not meant. */
        assert_int_equal(next.result, 0);
        pool_cancel(f.pool, &t.job); /* done: harmless */
        t.was_done = false;
        t.wait_cancelled = false;
        assert_int_equal(pool_submit(f.pool, &t.job, NULL), 0);
        run_until_idle(&f);
        assert_int_equal(t.result, 0);
        stop(&f);
}

static void test_cancel_a_queued_job(void **state)
{
        struct fixture f;
        struct test_job first, queued, third;

        (void)state;
        start(&f, 1, 3);
        first = make_job(&f, 1);
        queued = make_job(&f, 2);
        third = make_job(&f, 3);
        assert_int_equal(pool_submit(f.pool, &first.job, NULL), 0);
        wait_started(&f, 1);
        assert_int_equal(pool_submit(f.pool, &queued.job, NULL), 0);
        assert_int_equal(pool_submit(f.pool, &third.job, NULL), 0);
        pool_cancel(f.pool, &queued.job);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(first.result, 0);
        assert_true(queued.was_done);
        assert_int_equal(queued.result, ERR_CANCELLED);
        assert_int_equal(third.result, 0);
        stop(&f);
}

static void drain(bool cancel)
{
        struct fixture f;
        struct test_job running, queued, late;
        struct err err = { 0 };

        start(&f, 1, 3);
        running = make_job(&f, 1);
        running.wait_cancelled = cancel;
        queued = make_job(&f, 2);
        late = make_job(&f, 3);
        assert_int_equal(pool_submit(f.pool, &running.job, NULL), 0);
        wait_started(&f, 1);
        assert_int_equal(pool_submit(f.pool, &queued.job, NULL), 0);
        pool_drain(f.pool, cancel);
        assert_int_equal(pool_submit(f.pool, &late.job, &err), ERR_BUSY);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(running.result, cancel ? ERR_CANCELLED : 0);
        assert_int_equal(queued.result, cancel ? ERR_CANCELLED : 0);
        assert_false(late.ran);
        assert_int_equal(f.done, 2);
        stop(&f);
}

static void test_drain(void **state)
{
        (void)state;
        drain(false);
        drain(true);
}

static void test_many_jobs_from_the_loop(void **state)
{
        enum { CHAINS = 16, LENGTH = 200 };
        static struct test_job jobs[CHAINS][LENGTH];
        struct fixture f;

        (void)state;
        start(&f, 4, CHAINS);
        open_gate(&f);
        for (int i = 0; i < CHAINS; i++) {
                for (int j = 0; j < LENGTH; j++) {
                        jobs[i][j] = make_job(&f, i);
                        jobs[i][j].then = j + 1 < LENGTH ? &jobs[i][j + 1] : NULL;
                }
                assert_int_equal(pool_submit(f.pool, &jobs[i][0].job, NULL), 0);
        }
        run_until_idle(&f);
        assert_int_equal(f.done, CHAINS * LENGTH);
        assert_int_equal(stats_of(&f).completed, CHAINS * LENGTH);
        stop(&f);
}

static void test_freed_without_use(void **state)
{
        struct fixture f;

        (void)state;
        start(&f, 4, 4);
        stop(&f);
}

static void run_opens_gate(struct pool_job *job, struct op *op)
{
        (void)op;
        open_gate(container_of(job, struct test_job, job)->f);
}

/* Every thread waits for what a job does that comes last: it has to run all the same, and before
 * those that were there first. */
static void test_what_others_wait_for(void **state)
{
        struct fixture f;
        struct test_job waits[4], opens[2];

        (void)state;
        start(&f, 2, 2);
        for (int i = 0; i < 4; i++) {
                waits[i] = make_job(&f, i);
                assert_int_equal(pool_submit(f.pool, &waits[i].job, NULL), 0);
                if (i < 2)
                        wait_started(&f, (unsigned)i + 1);
        }
        for (int i = 0; i < 2; i++) {
                opens[i] = make_job(&f, 10 + i);
                opens[i].job.run = run_opens_gate;
                opens[i].job.urgent = opens[i].job.awaited = true;
                assert_int_equal(pool_submit(f.pool, &opens[i].job, NULL), 0);
        }
        run_until_idle(&f);
        for (int i = 0; i < 4; i++)
                assert_true(waits[i].was_done);
        assert_true(opens[0].was_done && opens[1].was_done);
        assert_int_equal(stats_of(&f).threads, 2);
        stop(&f);
}

/* -- Lanes ------------------------------------------------------------------------------------- */

static struct test_job make_owned(struct fixture *f, int number, const char *owner, const char *key)
{
        struct test_job t = make_job(f, number);

        pool_job_lane(&t.job, LANE_PEERS, lane_name(owner, key));
        return t;
}

static struct test_job make_in_lane(struct fixture *f, int number, const char *key)
{
        return make_owned(f, number, NULL, key);
}

/* One lane is full, then all lanes together: who has no lane is still served, by a thread of its
 * own, and who waits for a seat has no thread. */
static void test_lanes_leave_threads_to_others(void **state)
{
        struct fixture f;
        struct test_job slow[6], other;

        (void)state;
        start(&f, 1, 8);
        pool_limit_lanes(f.pool, LANE_PEERS,
                         (struct lane_limits){ .each = 2, .all = 3, .queue = 4 });
        for (int i = 0; i < 4; i++) {
                slow[i] = make_in_lane(&f, i, "one");
                assert_int_equal(pool_submit(f.pool, &slow[i].job, NULL), 0);
        }
        for (int i = 4; i < 6; i++) {
                slow[i] = make_in_lane(&f, i, "two");
                assert_int_equal(pool_submit(f.pool, &slow[i].job, NULL), 0);
        }
        wait_started(&f, 3);
        assert_int_equal(stats_of(&f).seats[LANE_PEERS], 3);
        assert_int_equal(stats_of(&f).waiting[LANE_PEERS], 3);
        assert_int_equal(stats_of(&f).threads, 3);
        assert_true(slow[4].ran);
        other = make_job(&f, 9);
        other.wait_cancelled = true; /* does not wait at the gate */
        other.job.timeout_ms = 1;
        assert_int_equal(pool_submit(f.pool, &other.job, NULL), 0);
        while (!other.was_done)
                uv_run(&f.loop, UV_RUN_ONCE);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(f.done, 7);
        assert_int_equal(stats_of(&f).seats[LANE_PEERS], 0);
        stop(&f);
}

/* A lane with many who wait does not keep another one from its turn. */
static void test_lanes_take_turns(void **state)
{
        struct fixture f;
        struct test_job jobs[5];

        (void)state;
        start(&f, 1, 8);
        pool_limit_lanes(f.pool, LANE_PEERS,
                         (struct lane_limits){ .each = 1, .all = 1, .queue = 8 });
        for (int i = 0; i < 5; i++) {
                jobs[i] = make_in_lane(&f, i, i < 3 ? "many" : "few");
                assert_int_equal(pool_submit(f.pool, &jobs[i].job, NULL), 0);
        }
        open_gate(&f);
        run_until_idle(&f);
        for (int i = 0; i < 5; i++)
                assert_int_equal(f.order[i], ((const int[]){ 0, 1, 3, 2, 4 })[i]);
        stop(&f);
}

static void test_a_lane_has_a_bounded_queue(void **state)
{
        struct fixture f;
        struct test_job jobs[3], urgent, elsewhere;
        struct err err = { 0 };

        (void)state;
        start(&f, 1, 8);
        pool_limit_lanes(f.pool, LANE_PEERS,
                         (struct lane_limits){ .each = 1, .all = 2, .queue = 1 });
        for (int i = 0; i < 3; i++)
                jobs[i] = make_in_lane(&f, i, "one");
        assert_int_equal(pool_submit(f.pool, &jobs[0].job, &err), 0);
        assert_int_equal(pool_submit(f.pool, &jobs[1].job, &err), 0);
        assert_int_equal(pool_submit(f.pool, &jobs[2].job, &err), ERR_BUSY);
        urgent = make_in_lane(&f, 3, "one");
        urgent.job.urgent = true;
        assert_int_equal(pool_submit(f.pool, &urgent.job, &err), 0);
        elsewhere = make_in_lane(&f, 4, "two");
        assert_int_equal(pool_submit(f.pool, &elsewhere.job, &err), 0);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(f.done, 4);
        assert_false(jobs[2].ran);
        stop(&f);
}

/* An owner with a lane for each job has half of the seats, the next one half of what is left; and
 * when seats become free, whoever has more than are free leaves them to the others. */
static void test_an_owner_leaves_seats_to_others(void **state)
{
        static const char *const owners[] = { "a", "a", "a", "a", "a", "a", "b", "b", "b", "c" };
        struct test_job jobs[ARRAY_LEN(owners)];
        struct fixture f;
        char key[8];

        start(&f, 1, 64);
        pool_limit_lanes(f.pool, LANE_PEERS,
                         (struct lane_limits){ .each = 2, .all = 6, .queue = 8 });
        for (int i = 0; i < (int)ARRAY_LEN(owners); i++) {
                (void)snprintf(key, sizeof(key), "%s%d", owners[i], i);
                jobs[i] = make_owned(&f, i, owners[i], key);
                assert_int_equal(pool_submit(f.pool, &jobs[i].job, NULL), 0);
        }
        wait_started(&f, 6); /* 3 of a, 2 of b, 1 of c */
        assert_int_equal(stats_of(&f).seats[LANE_PEERS], 6);
        for (int i = 0; i < (int)ARRAY_LEN(owners); i++)
                assert_int_equal(jobs[i].ran, i < 3 || i == 6 || i == 7 || i == 9);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(f.done, (int)ARRAY_LEN(owners));
        assert_int_equal(stats_of(&f).seats[LANE_PEERS], 0);
        stop(&f);
}

/* The same with those who wait: whoever finds a seat is never refused for a queue that is full. */
static void test_an_owner_leaves_room_in_the_queue(void **state)
{
        struct test_job jobs[5], others[2];
        struct fixture f;
        char key[8];

        start(&f, 1, 4);
        pool_limit_lanes(f.pool, LANE_PEERS,
                         (struct lane_limits){ .each = 1, .all = 2, .queue = 4 });
        for (int i = 0; i < 5; i++) {
                (void)snprintf(key, sizeof(key), "a%d", i);
                jobs[i] = make_owned(&f, i, "a", key);
                /* One has a seat, two wait: that is half of the queue. */
                assert_int_equal(pool_submit(f.pool, &jobs[i].job, NULL), i < 3 ? 0 : ERR_BUSY);
        }
        for (int i = 0; i < 2; i++) {
                others[i] = make_owned(&f, 5 + i, "b", "b");
                assert_int_equal(pool_submit(f.pool, &others[i].job, NULL), 0);
        }
        wait_started(&f, 2);
        assert_true(others[0].ran);
        open_gate(&f);
        run_until_idle(&f);
        assert_int_equal(f.done, 5);
        stop(&f);
}

/* Whoever waits for a seat is told when it is cancelled or its time is over, although nobody gives
 * a seat up. */
static void test_waiting_for_a_seat_ends(void **state)
{
        struct fixture f;
        struct test_job holder, late, cancelled;

        (void)state;
        start(&f, 1, 8);
        pool_limit_lanes(f.pool, LANE_PEERS,
                         (struct lane_limits){ .each = 1, .all = 1, .queue = 8 });
        holder = make_in_lane(&f, 0, "one");
        holder.wait_cancelled = true;
        late = make_in_lane(&f, 1, "one");
        late.job.timeout_ms = 1;
        late.wait_cancelled = true;
        cancelled = make_in_lane(&f, 2, "one");
        cancelled.wait_cancelled = true;
        assert_int_equal(pool_submit(f.pool, &holder.job, NULL), 0);
        assert_int_equal(pool_submit(f.pool, &late.job, NULL), 0);
        assert_int_equal(pool_submit(f.pool, &cancelled.job, NULL), 0);
        wait_started(&f, 1);
        pool_cancel(f.pool, &cancelled.job);
        while (!late.was_done || !cancelled.was_done)
                uv_run(&f.loop, UV_RUN_ONCE);
        assert_int_equal(late.result, ERR_TIMEOUT);
        assert_int_equal(cancelled.result, ERR_CANCELLED);
        assert_false(holder.was_done);
        pool_cancel(f.pool, &holder.job);
        stop(&f);
}

struct seeker {
        struct test_job t;
        bool taken;
};

static void run_take_seat(struct pool_job *job, struct op *op)
{
        struct test_job *t = container_of(job, struct test_job, job);
        const struct lane_name one = lane_name(NULL, "one");

        container_of(t, struct seeker, t)->taken = pool_take_seat(op, LANE_PEERS, &one);
        run_at_gate(job, op);
}

/* A job changes lanes while it runs, and gives its old seat to whoever waits for it. */
static void test_a_seat_is_taken_by_a_running_job(void **state)
{
        struct fixture f;
        struct seeker seekers[3];
        struct test_job run;

        (void)state;
        start(&f, 4, 8);
        pool_limit_lanes(f.pool, LANE_RUNS,
                         (struct lane_limits){ .each = 1, .all = 1, .queue = 8 });
        pool_limit_lanes(f.pool, LANE_PEERS,
                         (struct lane_limits){ .each = 1, .all = 2, .queue = 8 });
        for (int i = 0; i < 2; i++) {
                seekers[i] = (struct seeker){ .t = make_job(&f, i) };
                seekers[i].t.job.run = run_take_seat;
                pool_job_lane(&seekers[i].t.job, LANE_RUNS, lane_name(NULL, NULL));
                assert_int_equal(pool_submit(f.pool, &seekers[i].t.job, NULL), 0);
                wait_started(&f, (unsigned)i + 1);
        }
        assert_true(seekers[0].taken);
        assert_false(seekers[1].taken); /* and keeps its old one */
        assert_int_equal(stats_of(&f).seats[LANE_RUNS], 1);
        run = make_job(&f, 2);
        pool_job_lane(&run.job, LANE_RUNS, lane_name(NULL, NULL));
        assert_int_equal(pool_submit(f.pool, &run.job, NULL), 0);
        assert_int_equal(stats_of(&f).waiting[LANE_RUNS], 1);
        open_gate(&f);
        run_until_idle(&f);
        assert_true(run.was_done);
        stop(&f);
}

static void run_shielded(struct pool_job *job, struct op *op)
{
        struct test_job *t = container_of(job, struct test_job, job);
        struct op shield = op_shield(op, HOUR_MS);

        pthread_mutex_lock(&t->f->lock);
        t->f->started++;
        pthread_cond_broadcast(&t->f->changed);
        pthread_mutex_unlock(&t->f->lock);
        t->result = op_wait_fd(&shield, -1, 0, -1, NULL);
}

/* Cancelling leaves what is shielded alone; the end of the daemon does not. */
static void test_a_stop_ends_shielded_work(void **state)
{
        struct fixture f;
        struct test_job t;

        (void)state;
        start(&f, 1, 2);
        t = make_job(&f, 1);
        t.job.run = run_shielded;
        assert_int_equal(pool_submit(f.pool, &t.job, NULL), 0);
        wait_started(&f, 1);
        pool_drain(f.pool, true);
        assert_false(pool_idle(f.pool));
        pool_stop(f.pool);
        run_until_idle(&f);
        assert_int_equal(t.result, ERR_CANCELLED);
        stop(&f);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_one_job),
                cmocka_unit_test(test_what_others_wait_for),
                cmocka_unit_test(test_time_in_the_queue_counts),
                cmocka_unit_test(test_one_thread_keeps_the_order),
                cmocka_unit_test(test_the_queue_is_bounded),
                cmocka_unit_test(test_threads_start_when_needed),
                cmocka_unit_test(test_an_idle_thread_is_used_first),
                cmocka_unit_test(test_cancel_a_running_job),
                cmocka_unit_test(test_cancel_a_queued_job),
                cmocka_unit_test(test_drain),
                cmocka_unit_test(test_many_jobs_from_the_loop),
                cmocka_unit_test(test_freed_without_use),
                cmocka_unit_test(test_lanes_leave_threads_to_others),
                cmocka_unit_test(test_lanes_take_turns),
                cmocka_unit_test(test_a_lane_has_a_bounded_queue),
                cmocka_unit_test(test_an_owner_leaves_seats_to_others),
                cmocka_unit_test(test_an_owner_leaves_room_in_the_queue),
                cmocka_unit_test(test_waiting_for_a_seat_ends),
                cmocka_unit_test(test_a_seat_is_taken_by_a_running_job),
                cmocka_unit_test(test_a_stop_ends_shielded_work),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
