#include "runtime.h"

#include "core/leases/lease.h"

#define ENV "e0000000-0000-4000-8000-000000000001"
#define RUN "a0000000-0000-4000-8000-000000000001"

/* Two drivers that only count how often they are asked. */

static int closed_first, closed_second, close_result;

/* What happens while a provider works. */
static void (*during_open)(struct op *op, struct runtime *rt);
static void (*during_resume)(struct op *op, struct runtime *rt);

static int plan(struct op *op, struct runtime *rt, const struct environment *env,
                const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        *ret = (struct lease_plan){ .provider = "counting",
                                    .policy = POLICY_EPHEMERAL,
                                    .config = "{}",
                                    .has_world = true };
        return 0;
}

static int open_place(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        ret->id = place->id;
        if (during_open)
                during_open(op, rt);
        return 0;
}

static int close_first(struct op *op, struct runtime *rt, const struct place *place,
                       struct err *err)
{
        closed_first++;
        return close_result < 0 ? err_set(err, close_result, "no answer") : 0;
}

static int close_second(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        closed_second++;
        return 0;
}

static int plan_reuse(struct op *op, struct runtime *rt, const struct environment *env,
                      const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        *ret = (struct lease_plan){ .provider = "counting",
                                    .policy = POLICY_REUSE_ENVIRONMENT,
                                    .config = "{}",
                                    .has_world = true,
                                    .reuse = true };
        return 0;
}

static int resume_place(struct op *op, struct runtime *rt, const struct place *place,
                        const struct lease_request *req, struct provider_lease *ret,
                        struct err *err)
{
        ret->id = place->id;
        if (during_resume)
                during_resume(op, rt);
        return 0;
}

static bool matches(const char *recorded, const char *wanted)
{
        return true;
}

static const struct kind reusing = { .driver = "local",
                                     .plan = plan_reuse,
                                     .open = open_place,
                                     .resume = resume_place,
                                     .close = close_first,
                                     .matches = matches };
static const struct kind first = { .driver = "local",
                                   .plan = plan,
                                   .open = open_place,
                                   .close = close_first,
                                   .writes_cleanup_status = true };
static const struct kind second = {
        .driver = "ssh", .plan = plan, .open = open_place, .close = close_second
};
static const struct kind *const both[] = { &first, &second, NULL };
static const struct kind *const only_first[] = { &first, NULL };
static const struct kind *const only_reusing[] = { &reusing, NULL };

static struct environment env = {
        .id = ENV,
        .company_id = TEST_COMPANY,
        .name = "box",
        .driver = "local",
        .status = "active",
        .config = "{}",
        .created_at = 1,
        .updated_at = 1,
};

static int insert_env(struct db *db, void *arg, struct err *err)
{
        (void)arg;
        return environments_insert(db, &env, err);
}

static int become_ssh(struct db *db, void *arg, struct err *err)
{
        return db_exec(db, "UPDATE environments SET driver = 'ssh'", DB_NO_ARGS, err);
}

static int setup(void **state)
{
        struct test_runtime *t = test_runtime_new(both);

        env.driver = "local";
        closed_first = closed_second = close_result = 0;
        during_open = during_resume = NULL;
        assert_true(store_write(&t->op, t->rt.store, insert_env, NULL, NULL) >= 0);
        *state = t;
        return 0;
}

static int teardown(void **state)
{
        test_runtime_free(*state);
        return 0;
}

static const struct lease_request request = { .run_id = RUN };

/* environment-runtime 7.6 */
static void test_unregistered_driver(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        struct test_runtime *t = *state;
        struct lease_record record;

        t->rt.kinds = only_first;
        env.driver = "ssh";
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &record, &e),
                         ERR_UNPROCESSABLE);
        assert_string_equal(e.msg, "Environment driver \"ssh\" is not registered in the "
                                   "environment runtime yet.");
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM environment_leases"), 0);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM places"), 0);
}

/* environment-runtime 7.32 */
static void test_release_by_the_driver_of_the_lease(void **state)
{
        struct test_runtime *t = *state;
        struct lease_record record;

        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &record, NULL), 0);
        assert_true(store_write(&t->op, t->rt.store, become_ssh, NULL, NULL) >= 0);
        assert_int_equal(
                lease_release(&t->op, &t->rt, record.lease.id, LEASE_RELEASED, &record, NULL), 0);
        assert_string_equal(record.env.driver, "ssh");
        assert_string_equal(record.lease.status, LEASE_RELEASED);
        assert_int_equal(closed_first, 1);
        assert_int_equal(closed_second, 0);
}

static int count_record(void *ctx, const struct lease_record *record)
{
        assert_string_equal(record->lease.status, LEASE_FAILED);
        ++*(int *)ctx;
        return 0;
}

/* A lease whose driver is gone ends all the same, and its place stays on the books. */
static void test_release_without_the_driver(void **state)
{
        struct test_runtime *t = *state;
        struct lease_record record;
        int n = 0;

        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &record, NULL), 0);
        t->rt.kinds = both + 1; /* without the first */
        assert_int_equal(
                lease_release_run(&t->op, &t->rt, RUN, LEASE_FAILED, count_record, &n, NULL), 0);
        assert_int_equal(n, 1);
        assert_int_equal(closed_first, 0);
        assert_int_equal(closed_second, 0);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM places WHERE state = 'closing'"), 1);
}

/* A provider that fails does not keep the lease, nor those after it. */
static void test_release_goes_on_past_a_failure(void **state)
{
        struct test_runtime *t = *state;
        struct lease_record a, b;
        int n = 0;

        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &a, NULL), 0);
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &b, NULL), 0);
        close_result = ERR_PROVIDER;
        assert_int_equal(
                lease_release_run(&t->op, &t->rt, RUN, LEASE_FAILED, count_record, &n, NULL), 0);
        assert_int_equal(n, 2);
        assert_int_equal(closed_first, 2);
        assert_int_equal(
                test_number(t, "SELECT COUNT(*) FROM environment_leases WHERE status = 'failed' "
                               "AND cleanup_status = 'failed'"),
                2);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM places WHERE state = 'closing' "
                                        "AND attempts = 1"),
                         2);
}

static int archive(struct db *db, void *arg, struct err *err)
{
        return db_exec(db, "UPDATE environments SET status = 'archived'", DB_NO_ARGS, err);
}

static void archive_meanwhile(struct op *op, struct runtime *rt)
{
        assert_true(store_write(op, rt->store, archive, NULL, NULL) >= 0);
}

/* What the provider opened for an environment that nobody may use any more goes again. */
static void test_archived_while_the_provider_works(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        struct test_runtime *t = *state;
        struct lease_record record;

        during_open = archive_meanwhile;
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &record, &e),
                         ERR_UNPROCESSABLE);
        assert_string_equal(e.msg, "Environment \"box\" is not active.");
        assert_int_equal(closed_first, 1);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM environment_leases"), 0);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM places WHERE state <> 'gone'"), 0);
}

static struct lease_record nested;

static void acquire_meanwhile(struct op *op, struct runtime *rt)
{
        during_resume = NULL;
        assert_int_equal(lease_acquire(op, rt, &env, &request, &nested, NULL), 0);
}

/* A place that is just being given to one lease of a run is not given to another as well. */
static void test_only_what_a_lease_holds_is_joined(void **state)
{
        struct test_runtime *t = *state;
        struct lease_record parked, one, two;

        t->rt.kinds = only_reusing;
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &parked, NULL), 0);
        assert_int_equal(
                lease_release(&t->op, &t->rt, parked.lease.id, LEASE_RELEASED, &parked, NULL), 0);
        during_resume = acquire_meanwhile;
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &one, NULL), 0);
        assert_string_equal(one.lease.place_id, parked.lease.place_id);
        assert_string_not_equal(nested.lease.place_id, one.lease.place_id);
        /* ... but once it is given, the next one joins */
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &two, NULL), 0);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM places"), 2);
}

static void release_meanwhile(struct op *op, struct runtime *rt)
{
        during_resume = NULL;
        assert_int_equal(lease_release(op, rt, nested.lease.id, LEASE_FAILED, &nested, NULL), 0);
}

/* The lease that was joined ends first, and its place with it: another place is found. */
static void test_joined_lease_ends_meanwhile(void **state)
{
        struct test_runtime *t = *state;
        struct lease_record record;

        t->rt.kinds = only_reusing;
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &nested, NULL), 0);
        during_resume = release_meanwhile;
        assert_int_equal(lease_acquire(&t->op, &t->rt, &env, &request, &record, NULL), 0);
        assert_string_equal(record.lease.status, LEASE_ACTIVE);
        assert_string_not_equal(record.lease.place_id, nested.lease.place_id);
        assert_int_equal(closed_first, 1);
        assert_int_equal(test_number(t, "SELECT COUNT(*) FROM places WHERE state = 'held'"), 1);
}

#define WITH_STORE(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                WITH_STORE(test_unregistered_driver),
                WITH_STORE(test_release_by_the_driver_of_the_lease),
                WITH_STORE(test_release_without_the_driver),
                WITH_STORE(test_release_goes_on_past_a_failure),
                WITH_STORE(test_archived_while_the_provider_works),
                WITH_STORE(test_only_what_a_lease_holds_is_joined),
                WITH_STORE(test_joined_lease_ends_meanwhile),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
