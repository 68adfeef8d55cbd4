/* Looking for runs to claim: what a pass writes, and how often. */
#include "runtime.h"

#include "core/runs/run_internal.h"

#define AGENTS   100
#define AGENT_ID "%08u-0000-4000-8000-000000000000"

/* A store that counts its transactions. */
struct counted {
        struct store store;
        struct store *behind;
        unsigned writes;
};

static int counted_read_begin(const struct op *op, struct store *s, struct db **ret,
                              struct err *err)
{
        struct store *behind = container_of(s, struct counted, store)->behind;

        return behind->ops->read_begin(op, behind, ret, err);
}

static int counted_write(const struct op *op, struct store *s, store_fn fn, void *arg,
                         struct err *err)
{
        struct counted *c = container_of(s, struct counted, store);

        c->writes++;
        return store_write(op, c->behind, fn, arg, err);
}

static const struct store_ops counted_ops = { .read_begin = counted_read_begin,
                                              .write = counted_write };

struct fixture {
        struct test_runtime *t;
        struct runtime rt; /* on the counted store */
        struct counted counted;
};

/* -- Rows -------------------------------------------------------------------------------------- */

static int put_run(struct db *db, unsigned agent, const char *status, const char *step,
                   struct err *err)
{
        struct uuid id = uuid_new();
        char agent_id[UUID_LEN + 1];
        struct run row = {
                .id = id.s,
                .company_id = TEST_COMPANY,
                .agent_id = agent_id,
                .invocation_source = "on_demand",
                .status = status,
                .step = step,
                .exit_code = -1,
                .created_at = clock_now_us(),
                .updated_at = clock_now_us(),
        };

        snprintf(agent_id, sizeof(agent_id), AGENT_ID, agent);
        return runs_insert(db, &row, err);
}

/* Each may run one at a time, runs one, and has another one queued. */
static int put_agents(struct db *db, void *arg UNUSED, struct err *err)
{
        int r = 0;

        for (unsigned i = 0; r >= 0 && i < AGENTS; i++) {
                char id[UUID_LEN + 1];

                snprintf(id, sizeof(id), AGENT_ID, i);
                r = db_exec(db,
                            "INSERT INTO agents (id, company_id, name, url_key, runtime_config, "
                            "created_at, updated_at) VALUES (?1, ?2, ?1, ?1, "
                            "'{\"heartbeat\":{\"maxConcurrentRuns\":1}}', 1, 1)",
                            DB_ARGS(DB_T(id), DB_T(TEST_COMPANY)), err);
                if (r >= 0)
                        r = put_run(db, i, RUN_RUNNING, STEP_EXECUTING, err);
                if (r >= 0)
                        r = put_run(db, i, RUN_QUEUED, STEP_QUEUED, err);
        }
        return r;
}

static int edit(struct db *db, void *arg, struct err *err)
{
        return db_exec(db, arg, DB_NO_ARGS, err);
}

static void run_sql(struct fixture *f, const char *sql)
{
        assert_true(store_write(&f->t->op, f->t->rt.store, edit, (void *)sql, NULL) >= 0);
}

static int setup(void **state)
{
        struct fixture *f = xcalloc(1, sizeof(*f));

        f->t = test_runtime_new(NULL);
        f->counted.store.ops = &counted_ops;
        f->counted.behind = f->t->rt.store;
        f->rt = f->t->rt;
        f->rt.store = &f->counted.store;
        assert_true(store_write(&f->t->op, f->t->rt.store, put_agents, NULL, NULL) >= 0);
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;

        test_runtime_free(f->t);
        free(f);
        return 0;
}

/* How many were claimed. */
static size_t pass(struct fixture *f)
{
        struct run_pass p = { 0 };
        size_t n;

        f->counted.writes = 0;
        assert_true(run_pass(&f->t->op, &f->rt, &p, NULL) >= 0);
        n = p.claimed.n;
        run_ids_done(&p.claimed);
        run_ids_done(&p.cancelled);
        run_ids_done(&p.strays);
        return n;
}

/* -- Tests ------------------------------------------------------------------------------------- */

static void test_agents_that_wait_for_themselves_cost_no_transaction(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(pass(f), 0);
        assert_int_equal(f->counted.writes, 0);
}

static void test_one_that_has_room_costs_one(void **state)
{
        struct fixture *f = *state;

        run_sql(f, "UPDATE heartbeat_runs SET status = 'succeeded', step = 'done' "
                   "WHERE status = 'running' AND agent_id LIKE '00000007%'");
        assert_int_equal(pass(f), 1);
        assert_int_equal(f->counted.writes, 1);
        assert_int_equal(test_number(f->t,
                                     "SELECT COUNT(*) FROM heartbeat_runs WHERE agent_id LIKE "
                                     "'00000007%' AND status = 'running'"),
                         1);
        assert_int_equal(pass(f), 0);
        assert_int_equal(f->counted.writes, 0);
}

/* What a cancelled run still holds is no room. */
static void test_a_cancelled_one_counts_until_its_command_is_over(void **state)
{
        struct fixture *f = *state;

        run_sql(f, "UPDATE heartbeat_runs SET status = 'cancelled' WHERE status = 'running'");
        assert_int_equal(pass(f), 0);
        assert_int_equal(f->counted.writes, 0);
        run_sql(f, "UPDATE heartbeat_runs SET step = 'releasing' WHERE status = 'cancelled'");
        assert_int_equal(pass(f), AGENTS);
}

/* Refusing is something to write. */
static void test_those_that_may_not_work(void **state)
{
        struct fixture *f = *state;

        run_sql(f, "UPDATE agents SET status = 'paused' WHERE id < '00000002'");
        assert_int_equal(pass(f), 0);
        assert_int_equal(f->counted.writes, 2);
        assert_int_equal(test_number(f->t, "SELECT COUNT(*) FROM heartbeat_runs WHERE error_code = "
                                           "'agent_not_invokable' AND step = 'done'"),
                         2);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
        const struct CMUnitTest tests[] = {
                TEST(test_agents_that_wait_for_themselves_cost_no_transaction),
                TEST(test_one_that_has_room_costs_one),
                TEST(test_a_cancelled_one_counts_until_its_command_is_over),
                TEST(test_those_that_may_not_work),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
