/* threads: callers that make the same environment at once. */
#include "runtime.h"

#include <pthread.h>

#include "core/environments/environment.h"

#define PARALLEL 8

struct ensure {
        struct arena arena;
        struct environment env;
};

static int ensure(struct db *db, void *arg, struct err *err)
{
        struct ensure *q = arg;

        return environment_ensure_local(db, TEST_COMPANY, &q->arena, &q->env, err);
}

static int setup(void **state)
{
        *state = test_runtime_new(NULL);
        return 0;
}

static int teardown(void **state)
{
        test_runtime_free(*state);
        return 0;
}

static void ensure_local(struct test_runtime *t, struct ensure *q)
{
        arena_init(&q->arena);
        assert_true(store_write(&t->op, t->rt.store, ensure, q, NULL) >= 0);
}

/* environment-runtime 7.42 */
static void test_twice_is_once(void **state)
{
        struct test_runtime *t = *state;
        struct ensure first, again;

        ensure_local(t, &first);
        ensure_local(t, &again);
        assert_string_equal(first.env.id, again.env.id);
        assert_string_equal(again.env.name, "Local");
        assert_string_equal(again.env.driver, "local");
        assert_string_equal(again.env.status, "active");
        assert_string_equal(again.env.config, "{}");
        assert_string_equal(again.env.metadata, "{\"managedByPaperclip\":true}");
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM environments"), 1);
        arena_done(&first.arena);
        arena_done(&again.arena);
}

static int insert_archived(struct db *db, void *arg, struct err *err)
{
        struct environment env = {
                .id = "e0000000-0000-4000-8000-000000000001",
                .company_id = TEST_COMPANY,
                .name = "Old one",
                .driver = "local",
                .status = "archived",
                .config = "{\"a\":1}",
                .metadata = "{\"mine\":true}",
                .created_at = 1000,
                .updated_at = 2000,
        };

        (void)arg;
        return environments_insert(db, &env, err);
}

/* environment-runtime 7.43 */
static void test_an_archived_one_is_left_alone(void **state)
{
        struct test_runtime *t = *state;
        struct ensure q;

        assert_true(store_write(&t->op, t->rt.store, insert_archived, NULL, NULL) >= 0);
        ensure_local(t, &q);
        assert_string_equal(q.env.id, "e0000000-0000-4000-8000-000000000001");
        assert_string_equal(q.env.name, "Old one");
        assert_string_equal(q.env.status, "archived");
        assert_string_equal(q.env.config, "{\"a\":1}");
        assert_string_equal(q.env.metadata, "{\"mine\":true}");
        assert_int_equal(q.env.updated_at, 2000);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM environments"), 1);
        arena_done(&q.arena);
}

struct racer {
        pthread_t thread;
        pthread_barrier_t *start;
        struct test_runtime *t;
        struct ensure q;
        int result;
};

static void *race(void *arg)
{
        struct racer *r = arg;
        struct op op = { .arena = &r->q.arena, .deadline_ms = OP_NO_DEADLINE };

        arena_init(&r->q.arena);
        pthread_barrier_wait(r->start);
        r->result = store_write(&op, r->t->rt.store, ensure, &r->q, NULL);
        return NULL;
}

/* environment-runtime 7.44 */
static void test_eight_at_once(void **state)
{
        struct racer racers[PARALLEL];
        pthread_barrier_t start;

        pthread_barrier_init(&start, NULL, PARALLEL);
        for (size_t i = 0; i < PARALLEL; i++) {
                racers[i] = (struct racer){ .start = &start, .t = *state };
                assert_int_equal(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
        }
        for (size_t i = 0; i < PARALLEL; i++)
                pthread_join(racers[i].thread, NULL);
        for (size_t i = 0; i < PARALLEL; i++) {
                assert_true(racers[i].result >= 0);
                assert_string_equal(racers[i].q.env.id, racers[0].q.env.id);
                assert_string_equal(racers[i].q.env.driver, "local");
                assert_string_equal(racers[i].q.env.status, "active");
        }
        for (size_t i = 0; i < PARALLEL; i++)
                arena_done(&racers[i].q.arena);
        pthread_barrier_destroy(&start);
        assert_int_equal(test_number(*state, "SELECT COUNT(*) FROM environments"), 1);
}

static void test_unknown_values_in_a_row(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        struct environment env = { .driver = "pigeon", .status = "active" };
        struct test_runtime *t = *state;

        assert_int_equal(environment_check_row(&t->rt, &env, &e), ERR_CORRUPT);
        assert_string_equal(e.msg, "Unexpected environment driver value: pigeon");
        env.driver = "local";
        env.status = "asleep";
        assert_int_equal(environment_check_row(&t->rt, &env, &e), ERR_CORRUPT);
        assert_string_equal(e.msg, "Unexpected environment status value: asleep");
        env.status = "archived";
        assert_int_equal(environment_check_row(&t->rt, &env, &e), 0);
}

#define WITH_STORE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_STORE(test_twice_is_once),
                WITH_STORE(test_an_archived_one_is_left_alone),
                WITH_STORE(test_eight_at_once),
                WITH_STORE(test_unknown_values_in_a_row),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
