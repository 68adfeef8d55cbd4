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
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
