/* Rows of runs: whoever comes second changes nothing. */
#include "store_read.h"
#include "test.h"

#include "base/clock.h"
#include "core/access/access.h"
#include "core/runs/run_internal.h"
#include "store/agent_state.h"
#include "store/store.h"
#include "store/wakeups.h"

#define ONE   "one"
#define TWO   "two"
#define RUN_1 "00000000-0000-4000-8000-000000000001"
#define RUN_2 "00000000-0000-4000-8000-000000000002"

struct fixture {
        struct store *store;
        struct arena arena;
        struct op op;
        char scratch[SCRATCH_PATH_MAX], url[SCRATCH_PATH_MAX + 16];
        struct run row;
        const char *from, *to, *id, *owner;
        int64_t n;
};

static struct run a_run(const char *id)
{
        return (struct run){
                .id = id,
                .company_id = "c1",
                .agent_id = "a1",
                .invocation_source = "on_demand",
                .status = RUN_QUEUED,
                .step = STEP_QUEUED,
                .exit_code = -1,
                .created_at = clock_now_us(),
                .updated_at = 1,
        };
}

static int prepare(struct db *db, void *arg UNUSED, struct err *err)
{
        struct run first = a_run(RUN_1), second = a_run(RUN_2);
        int r = db_exec(db,
                        "INSERT INTO companies (id, name, issue_prefix, created_at, updated_at) "
                        "VALUES ('c1', 'C', 'C', 1, 1)",
                        DB_NO_ARGS, err);

        if (r >= 0)
                r = db_exec(db,
                            "INSERT INTO agents (id, company_id, name, url_key, created_at, "
                            "updated_at) VALUES ('a1', 'c1', 'A', 'a', 1, 1)",
                            DB_NO_ARGS, err);
        if (r >= 0)
                r = runs_insert(db, &first, err);
        return r < 0 ? r : runs_insert(db, &second, err);
}

static int setup(void **state)
{
        struct fixture *f;

        memory_may_fail(false);
        f = xcalloc(1, sizeof(*f));
        make_scratch(f->scratch);
        snprintf(f->url, sizeof(f->url), "%s/db", f->scratch);
        assert_int_equal(store_open(f->url, &f->store, NULL), 0);
        arena_init(&f->arena);
        f->op = (struct op){ .arena = &f->arena, .deadline_ms = OP_NO_DEADLINE };
        assert_true(store_write(&f->op, f->store, prepare, f, NULL) >= 0);
        *state = f;
        memory_may_fail(true);
        return 0;
}

static int teardown(void **state)
{
        static const char *const endings[] = { "", "-wal", "-shm" };
        struct fixture *f = *state;

        memory_may_fail(false);
        store_close(f->store);
        arena_done(&f->arena);
        for (size_t i = 0; i < ARRAY_LEN(endings); i++) {
                CLEAN(cleanup_free) char *path = xasprintf("%s%s", f->url, endings[i]);

                unlink(path);
        }
        rmdir(f->scratch);
        free(f);
        return 0;
}

static int get(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return runs_get(db, f->id, &f->arena, &f->row, err);
}

static int claim(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return runs_claim(db, f->id, f->owner, clock_now_us(), err);
}

static int step(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return runs_step(db, &f->row, f->from, f->to, err);
}

static int end(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return runs_end(db, &f->row, f->from, err);
}

static int adopt(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return runs_adopt(db, f->id, f->from, f->owner, 7, err);
}

static int count(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return runs_count_running(db, "a1", &f->n, err);
}

static int drop(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return runs_drop(db, f->id, 9, err);
}

static int add_state(struct db *db, void *arg, struct err *err)
{
        struct agent_runtime_state state = {
                .agent_id = "a1",
                .company_id = "c1",
                .adapter_type = "process",
                .session_params_json = arg ? "{\"sessionId\":\"s\"}" : NULL,
                .session_id = arg ? "s" : NULL,
                .last_run_id = RUN_1,
                .total_input_tokens = 3,
                .total_cost_cents = 5,
                .updated_at = clock_now_us(),
        };

        return agent_runtime_state_add(db, &state, false, err);
}

static int get_state(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;
        struct agent_runtime_state state;
        int r = agent_runtime_state_get(db, "a1", &f->arena, &state, err);

        if (r < 0)
                return r;
        assert_int_equal(state.total_input_tokens, 6);
        assert_int_equal(state.total_cost_cents, 10);
        assert_string_equal(state.session_id, "s"); /* one without a session leaves it */
        return 0;
}

static int do_write(struct fixture *f, store_fn fn)
{
        return store_write(&f->op, f->store, fn, f, NULL);
}

static void reread(struct fixture *f, const char *id)
{
        f->id = id;
        assert_int_equal(store_read(&f->op, f->store, get, f, NULL), 0);
}

/* Once per id, ever: neither a second time, nor by another instance, nor after its end. */
static void test_claimed_once(void **state)
{
        struct fixture *f = *state;

        f->id = RUN_1;
        f->owner = ONE;
        assert_int_equal(do_write(f, claim), 1);
        assert_int_equal(do_write(f, claim), 0);
        f->owner = TWO;
        assert_int_equal(do_write(f, claim), 0);
        reread(f, RUN_1);
        assert_string_equal(f->row.status, RUN_RUNNING);
        assert_string_equal(f->row.step, STEP_PREPARING);
        assert_string_equal(f->row.owner, ONE);
        f->from = RUN_RUNNING;
        f->row.status = RUN_FAILED;
        assert_int_equal(do_write(f, end), 1);
        assert_int_equal(do_write(f, claim), 0);
}

static void test_steps_are_of_the_owner(void **state)
{
        struct fixture *f = *state;

        f->id = RUN_1;
        f->owner = ONE;
        assert_int_equal(do_write(f, claim), 1);
        reread(f, RUN_1);
        f->from = STEP_EXECUTING;
        f->to = STEP_FINISHING;
        assert_int_equal(do_write(f, step), 0); /* it is not there */
        f->from = STEP_PREPARING;
        f->to = STEP_EXECUTING;
        f->row.owner = TWO;
        assert_int_equal(do_write(f, step), 0); /* it is not his */
        f->row.owner = ONE;
        f->row.lease_id = "l1";
        assert_int_equal(do_write(f, step), 1);
        assert_int_equal(do_write(f, step), 0);
        reread(f, RUN_1);
        assert_string_equal(f->row.step, STEP_EXECUTING);
        assert_string_equal(f->row.lease_id, "l1");
        f->from = TWO;
        f->owner = TWO;
        assert_int_equal(do_write(f, adopt), 0); /* from somebody who does not have it */
        f->from = ONE;
        assert_int_equal(do_write(f, adopt), 1);
        f->from = STEP_EXECUTING;
        f->row.owner = ONE;
        assert_int_equal(do_write(f, step), 0);
}

static void test_one_end(void **state)
{
        struct fixture *f = *state;

        f->id = RUN_1;
        f->owner = ONE;
        assert_int_equal(do_write(f, claim), 1);
        reread(f, RUN_1);
        f->from = RUN_RUNNING;
        f->row.status = RUN_CANCELLED;
        f->row.finished_at = 5;
        assert_int_equal(do_write(f, end), 1);
        f->row.status = RUN_SUCCEEDED;
        assert_int_equal(do_write(f, end), 0);
        reread(f, RUN_1);
        assert_string_equal(f->row.status, RUN_CANCELLED);
        assert_true(run_is_terminal(&f->row));
        /* Its command may still run: it counts, until that is over. */
        assert_int_equal(store_read(&f->op, f->store, count, f, NULL), 0);
        assert_int_equal(f->n, 1);
        assert_int_equal(do_write(f, drop), 0); /* which is for those that never began */
}

static void test_one_that_never_began(void **state)
{
        struct fixture *f = *state;

        reread(f, RUN_2);
        f->owner = ONE;
        assert_int_equal(do_write(f, drop), 0); /* it has not ended */
        f->from = RUN_QUEUED;
        f->row.status = RUN_CANCELLED;
        f->row.finished_at = 5;
        assert_int_equal(do_write(f, end), 1);
        assert_int_equal(do_write(f, drop), 1);
        assert_int_equal(do_write(f, claim), 0);
        reread(f, RUN_2);
        assert_string_equal(f->row.step, STEP_DONE);
}

static int advance(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return agent_schedules_advance(db, "a1", f->n, err);
}

static int set_back(struct db *db, void *arg, struct err *err)
{
        struct fixture *f = arg;

        return agent_schedules_reset(db, "a1", f->n, err);
}

/* Two passes may find the same time due; one of them wakes. */
static void test_each_due_time_once(void **state)
{
        struct fixture *f = *state;

        f->n = 100;
        assert_int_equal(do_write(f, advance), 1);
        assert_int_equal(do_write(f, advance), 0);
        f->n = 99;
        assert_int_equal(do_write(f, advance), 0);
        f->n = 101;
        assert_int_equal(do_write(f, advance), 1);
        f->n = 50;
        assert_int_equal(do_write(f, set_back), 1); /* the clock was */
        f->n = 51;
        assert_int_equal(do_write(f, advance), 1);
}

static void test_what_is_remembered_adds_up(void **state)
{
        struct fixture *f = *state;

        assert_true(store_write(&f->op, f->store, add_state, f, NULL) >= 0);
        assert_true(store_write(&f->op, f->store, add_state, NULL, NULL) >= 0);
        assert_int_equal(store_read(&f->op, f->store, get_state, f, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_claimed_once, setup, teardown),
                cmocka_unit_test_setup_teardown(test_steps_are_of_the_owner, setup, teardown),
                cmocka_unit_test_setup_teardown(test_one_end, setup, teardown),
                cmocka_unit_test_setup_teardown(test_one_that_never_began, setup, teardown),
                cmocka_unit_test_setup_teardown(test_each_due_time_once, setup, teardown),
                cmocka_unit_test_setup_teardown(test_what_is_remembered_adds_up, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
