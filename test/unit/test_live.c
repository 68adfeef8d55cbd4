/* threads: writers and readers of one ring. */
/* Live events: numbers, the ring, readers that come late or fall behind, and announcements that are
 * published when they are committed. */
#include "runtime.h"
#include "store_read.h"

#include <pthread.h>

#include "core/access/audit.h"
#include "core/live/live_ring.h"
#include "rt/pool.h"
#include "store/settings.h"

#define OTHER "c0000000-0000-4000-8000-000000000002"

static uv_loop_t loop;
static struct live *live;

static int start(void **state)
{
        (void)state;
        assert_int_equal(uv_loop_init(&loop), 0);
        return live_new(&loop, &live, NULL);
}

static int stop(void **state)
{
        (void)state;
        live_free(live);
        uv_run(&loop, UV_RUN_DEFAULT);
        return uv_loop_close(&loop);
}

static void publish(const char *company, int n)
{
        json_t *payload = json_object();

        json_object_set_new(payload, "n", json_integer(n));
        live_publish(live, company, "test", payload);
}

/* The number in the payload of the next event; -1: none. */
static int take(struct live_reader *r, int64_t *ret_id)
{
        CLEAN(live_event_done) struct live_event *e = live_reader_take(live, r);
        json_t *v;
        int n;

        if (!e)
                return -1;
        assert_string_equal(e->type, "test");
        assert_int_equal(json_parse(e->text, e->len, &v, NULL), 0);
        assert_int_equal(json_integer_value(json_object_get(v, "id")), e->id);
        assert_string_equal(json_get_string(v, "companyId"), r->company_id);
        assert_non_null(json_get_string(v, "createdAt"));
        n = (int)json_integer_value(json_object_get(json_get_object(v, "payload"), "n"));
        if (ret_id)
                *ret_id = e->id;
        json_decref(v);
        return n;
}

static void assert_control(struct live_reader *r, const char *type, int64_t after, int64_t before)
{
        CLEAN(live_event_done) struct live_event *e = live_reader_take(live, r);
        json_t *v, *payload;

        assert_non_null(e);
        assert_string_equal(e->type, type);
        assert_int_equal(e->id, before - 1);
        assert_int_equal(json_parse(e->text, e->len, &v, NULL), 0);
        payload = json_get_object(v, "payload");
        assert_int_equal(json_integer_value(json_object_get(payload, "after")), after);
        assert_int_equal(json_integer_value(json_object_get(payload, "before")), before);
        json_decref(v);
}

static void test_own_company_in_order(void **state)
{
        struct live_reader a = { 0 }, b = { 0 };
        int64_t first = 0, second = 0;

        (void)state;
        publish(TEST_COMPANY, 1);
        live_reader_add(live, &a, TEST_COMPANY, LIVE_NOW);
        live_reader_add(live, &b, OTHER, LIVE_NOW);
        assert_int_equal(take(&a, NULL), -1);
        publish(TEST_COMPANY, 2);
        publish(OTHER, 3);
        publish(TEST_COMPANY, 4);
        assert_int_equal(take(&a, &first), 2);
        assert_int_equal(take(&a, &second), 4);
        assert_int_equal(second, first + 2);
        assert_int_equal(take(&a, NULL), -1);
        assert_int_equal(take(&b, NULL), 3);
        assert_int_equal(take(&b, NULL), -1);
        live_reader_remove(&a);
        live_reader_remove(&b);
        live_publish(NULL, TEST_COMPANY, "test", json_object());
}

static void test_replay(void **state)
{
        struct live_reader r = { 0 };
        int64_t base = live_last_id(live);

        (void)state;
        for (int i = 1; i <= 5; i++)
                publish(TEST_COMPANY, i);
        live_reader_add(live, &r, TEST_COMPANY, base + 3);
        assert_int_equal(take(&r, NULL), 4);
        assert_int_equal(take(&r, NULL), 5);
        live_reader_remove(&r);
        /* The last one: nothing is missing. */
        live_reader_add(live, &r, TEST_COMPANY, base + 5);
        assert_int_equal(take(&r, NULL), -1);
        live_reader_remove(&r);
        /* The one before the first that is there: nothing is missing either. */
        live_reader_add(live, &r, TEST_COMPANY, base);
        assert_int_equal(take(&r, NULL), 1);
        live_reader_remove(&r);
        /* From before the ring, of an earlier daemon or long ago; and from nowhere. */
        live_reader_add(live, &r, TEST_COMPANY, base - 1);
        assert_control(&r, "reset", base - 1, base + 6);
        assert_int_equal(take(&r, NULL), -1);
        publish(TEST_COMPANY, 6);
        assert_int_equal(take(&r, NULL), 6);
        live_reader_remove(&r);
        live_reader_add(live, &r, TEST_COMPANY, base + 100);
        assert_control(&r, "reset", base + 100, base + 7);
        live_reader_remove(&r);
}

static void test_numbers_grow_over_restarts(void **state)
{
        int64_t last;

        publish(TEST_COMPANY, 1);
        last = live_last_id(live);
        stop(state);
        start(state);
        assert_true(live_last_id(live) + 1 > last);
}

static void test_falling_behind(void **state)
{
        struct live_reader r = { 0 };
        int64_t base = live_last_id(live);
        const int n = 20000;

        (void)state;
        live_reader_add(live, &r, TEST_COMPANY, LIVE_NOW);
        for (int i = 1; i <= n; i++)
                publish(TEST_COMPANY, i);
        assert_control(&r, "missed", base, base + n - 16384 + 1);
        for (int i = n - 16384 + 1; i <= n; i++)
                assert_int_equal(take(&r, NULL), i);
        assert_int_equal(take(&r, NULL), -1);
        live_reader_remove(&r);
}

/* A reader that is not yet told of its reset falls behind on top of that. */
static void test_lost_twice(void **state)
{
        struct live_reader r = { 0 };
        int64_t base = live_last_id(live);

        (void)state;
        live_reader_add(live, &r, TEST_COMPANY, 1);
        for (int i = 1; i <= 16385; i++)
                publish(TEST_COMPANY, i);
        assert_control(&r, "reset", 1, base + 2);
        assert_int_equal(take(&r, NULL), 2);
        live_reader_remove(&r);
}

static void test_bounded_by_bytes(void **state)
{
        struct live_reader r = { 0 };
        CLEAN(cleanup_free) char *text = xcalloc(1, (1 << 20) + 1);
        int64_t base = live_last_id(live);

        (void)state;
        memset(text, 'x', 1 << 20);
        live_reader_add(live, &r, TEST_COMPANY, LIVE_NOW);
        for (int i = 0; i < 20; i++) {
                json_t *payload = json_object();

                json_object_set_new(payload, "text", json_string(text));
                live_publish(live, TEST_COMPANY, "test", payload);
        }
        assert_control(&r, "missed", base, base + 14); /* seven of a little over 1 MiB */
        live_reader_remove(&r);
}

/* What another has to say takes nothing away from who says little. */
static void test_a_noisy_company(void **state)
{
        struct live_reader r = { 0 }, connected = { 0 };
        int64_t base = live_last_id(live);

        (void)state;
        live_reader_add(live, &connected, OTHER, LIVE_NOW);
        publish(OTHER, 1);
        for (int i = 0; i < 100000; i++)
                publish(TEST_COMPANY, i);
        publish(OTHER, 2);
        live_reader_add(live, &r, OTHER, base);
        assert_int_equal(take(&r, NULL), 1);
        assert_int_equal(take(&r, NULL), 2);
        assert_int_equal(take(&r, NULL), -1);
        assert_int_equal(take(&connected, NULL), 1);
        assert_int_equal(take(&connected, NULL), 2);
        live_reader_remove(&r);
        live_reader_remove(&connected);
}

static const char *company_number(unsigned i)
{
        static char id[UUID_LEN + 1];

        snprintf(id, sizeof(id), "c0000000-0000-4000-8000-%012u", i + 100);
        return id;
}

static struct shared_event *event_of(const char *company, int64_t id, size_t len)
{
        struct shared_event *e = xcalloc(1, sizeof(*e) + len);

        snprintf(e->event.company_id, sizeof(e->event.company_id), "%s", company);
        e->event.id = id;
        e->event.len = len;
        atomic_init(&e->refs, 1);
        return e;
}

static int64_t first_kept(const struct live_rings *all, const char *company)
{
        struct shared_event *e = live_rings_find(all, company, 0);
        int64_t id = e ? e->event.id : 0;

        if (e)
                live_event_unref(e);
        return id;
}

/* However many companies there are, together they keep so much; those that keep most give up. */
static void test_many_companies(void **state)
{
        static struct live_rings all;
        int64_t id = 1;

        (void)state;
        live_rings_init(&all, 0);
        live_rings_add(&all, event_of(OTHER, id++, 100));
        for (int round = 0; round < 100; round++)
                for (unsigned i = 0; i < 300; i++) {
                        live_rings_add(&all, event_of(company_number(i), id++, 2000));
                        assert_true(all.bytes <= LIVE_ALL_BYTES);
                }
        assert_int_equal(first_kept(&all, OTHER), 1);
        assert_int_equal(live_rings_gone(&all, OTHER), 0);
        for (unsigned i = 0; i < 300; i++) { /* all of them have something, and know what is gone */
                int64_t gone = live_rings_gone(&all, company_number(i));

                assert_true(gone > 0);
                assert_true(first_kept(&all, company_number(i)) > gone);
                assert_int_equal((gone - 2) % 300, i);
        }
        /* So many that they cannot all have one: whose is gone is told so, and others may be. */
        for (unsigned i = 1000; i < 101000; i++) {
                live_rings_add(&all, event_of(company_number(i), id++, 100));
                assert_true(all.bytes <= LIVE_ALL_BYTES);
        }
        assert_int_equal(first_kept(&all, company_number(1000)), 0);
        assert_true(live_rings_gone(&all, company_number(1000)) >= id - 100000);
        assert_true(first_kept(&all, company_number(100999)) == id - 1);
        live_rings_done(&all);
        assert_int_equal(all.bytes, 0);
}

struct counted {
        struct live_reader reader;
        unsigned calls;
        struct counted *remove; /* when it is called */
};

static void count(struct live_reader *r)
{
        struct counted *c = container_of(r, struct counted, reader);

        c->calls++;
        if (c->remove)
                live_reader_remove(&c->remove->reader);
        while (take(r, NULL) >= 0)
                ;
}

static void test_told_on_the_loop(void **state)
{
        struct counted c[4] = { 0 };

        (void)state;
        for (size_t i = 0; i < 4; i++) {
                c[i].reader.ready = count;
                live_reader_add(live, &c[i].reader, TEST_COMPANY, LIVE_NOW);
        }
        c[1].remove = &c[1];
        c[2].remove = &c[3];
        publish(TEST_COMPANY, 1);
        assert_int_equal(c[0].calls, 0);
        uv_run(&loop, UV_RUN_NOWAIT);
        assert_int_equal(c[0].calls, 1);
        assert_int_equal(c[1].calls, 1);
        assert_int_equal(c[2].calls, 1);
        assert_int_equal(c[3].calls, 0);
        publish(TEST_COMPANY, 2);
        uv_run(&loop, UV_RUN_NOWAIT);
        assert_int_equal(c[0].calls, 2);
        assert_int_equal(c[1].calls, 1);
        live_reader_remove(&c[0].reader);
        live_reader_remove(&c[2].reader);
}

static void *publish_many(void *arg)
{
        for (int i = 0; i < 2000; i++)
                publish(TEST_COMPANY, i);
        return arg;
}

static void test_many_threads(void **state)
{
        struct live_reader r = { 0 };
        pthread_t threads[4];
        int64_t last = 0, id;
        int n = 0;

        (void)state;
        live_reader_add(live, &r, TEST_COMPANY, LIVE_NOW);
        for (size_t i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, publish_many, NULL), 0);
        while (n < 8000) {
                if (take(&r, &id) < 0)
                        continue;
                assert_true(id > last);
                last = id;
                n++;
        }
        for (size_t i = 0; i < 4; i++)
                pthread_join(threads[i], NULL);
        assert_int_equal(take(&r, NULL), -1);
        live_reader_remove(&r);
}

/* Transactions */

static int log_something(struct db *db, void *arg, struct err *err)
{
        struct test_runtime *t = arg;
        json_t *details = json_object();

        json_object_set_new(details, "password", json_string("hunter2"));
        return audit(db, &t->op, TEST_COMPANY, "thing.done", "thing", "t1", details, err);
}

static int log_and_fail(struct db *db, void *arg, struct err *err)
{
        int r = log_something(db, arg, err);

        return r < 0 ? r : err_set(err, ERR_CONFLICT, "no");
}

static void test_audit_is_told_after_commit(void **state)
{
        struct test_runtime *t = test_runtime_new(NULL);
        struct live_reader r = { 0 };
        struct live_event *e;
        json_t *v, *payload;

        (void)state;
        live_attach(live, t->rt.store);
        live_reader_add(live, &r, TEST_COMPANY, LIVE_NOW);
        assert_int_equal(store_write(&t->op, t->rt.store, log_and_fail, t, NULL), ERR_CONFLICT);
        assert_null(live_reader_take(live, &r));
        assert_true(store_write(&t->op, t->rt.store, log_something, t, NULL) >= 0);
        e = live_reader_take(live, &r);
        assert_non_null(e);
        assert_string_equal(e->type, "activity.logged");
        assert_int_equal(json_parse(e->text, e->len, &v, NULL), 0);
        payload = json_get_object(v, "payload");
        assert_string_equal(json_get_string(payload, "action"), "thing.done");
        assert_string_equal(json_get_string(payload, "entityId"), "t1");
        assert_string_equal(json_get_string(payload, "actorType"), "system");
        assert_true(json_is_null(json_object_get(payload, "runId")));
        assert_string_equal(json_get_string(json_get_object(payload, "details"), "password"),
                            REDACTED);
        json_decref(v);
        live_event_done(&e);
        assert_null(live_reader_take(live, &r));
        live_reader_remove(&r);
        live_attach(NULL, t->rt.store);
        assert_true(store_write(&t->op, t->rt.store, log_something, t, NULL) >= 0);
        test_runtime_free(t);
}

/* Writers that share a commit: one that fails takes nothing of the others along, nor they of it. */
static void *write_in_turns(void *arg)
{
        struct test_runtime *t = arg;

        for (int i = 0; i < 100; i++) {
                assert_int_equal(store_write(&t->op, t->rt.store, log_and_fail, t, NULL),
                                 ERR_CONFLICT);
                assert_true(store_write(&t->op, t->rt.store, log_something, t, NULL) >= 0);
        }
        return NULL;
}

static void test_shared_commits(void **state)
{
        struct test_runtime *t = test_runtime_new(NULL);
        struct live_reader r = { 0 };
        struct live_event *e;
        pthread_t threads[4];
        int n = 0;

        (void)state;
        live_attach(live, t->rt.store);
        live_reader_add(live, &r, TEST_COMPANY, LIVE_NOW);
        for (size_t i = 0; i < 4; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, write_in_turns, t), 0);
        for (size_t i = 0; i < 4; i++)
                pthread_join(threads[i], NULL);
        for (; (e = live_reader_take(live, &r)); n++)
                live_event_done(&e);
        assert_int_equal(n, 400);
        assert_int_equal(n, test_number(t, "SELECT count(*) FROM activity_log"));
        live_reader_remove(&r);
        live_attach(NULL, t->rt.store);
        test_runtime_free(t);
}

/* Numbers */

static int put_end(struct db *db, void *arg, struct err *err)
{
        return settings_put_event_numbers(db, *(int64_t *)arg, 1, err);
}

static int get_end(struct db *db, void *arg, struct err *err)
{
        return settings_get_event_numbers(db, arg, err);
}

/* Behind everything that was ever reserved, whatever the clock says; and more before it runs out.
 */
static void test_numbers_of_the_store(void **state)
{
        struct test_runtime *t = test_runtime_new(NULL);
        struct pool *pool;
        int64_t ahead = INT64_C(1) << 52, end = 0, last;

        (void)state;
        assert_int_equal(pool_new(&loop, 1, 4, &pool, NULL), 0);
        assert_int_equal(live_number(&t->op, live, t->rt.store, pool, NULL), 0);
        assert_true(live_last_id(live) < ahead); /* the clock, the first time */
        assert_true(store_write(&t->op, t->rt.store, put_end, &ahead, NULL) >= 0);
        for (int i = 0; i < 3; i++) {
                assert_true(store_read(&t->op, t->rt.store, get_end, &end, NULL) >= 0);
                assert_int_equal(live_number(&t->op, live, t->rt.store, pool, NULL), 0);
                assert_int_equal(live_last_id(live), end - 1);
                publish(TEST_COMPANY, i);
        }
        assert_true(store_read(&t->op, t->rt.store, get_end, &end, NULL) >= 0);
        for (last = live_last_id(live); last < end - 1000; last++)
                live_publish(live, TEST_COMPANY, "t", json_object());
        uv_run(&loop, UV_RUN_NOWAIT);
        while (!pool_idle(pool))
                uv_run(&loop, UV_RUN_ONCE);
        ahead = end;
        assert_true(store_read(&t->op, t->rt.store, get_end, &end, NULL) >= 0);
        assert_true(end > ahead);
        pool_free(pool);
        test_runtime_free(t);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_own_company_in_order),
                TEST(test_replay),
                TEST(test_numbers_grow_over_restarts),
                TEST(test_falling_behind),
                TEST(test_lost_twice),
                TEST(test_bounded_by_bytes),
                TEST(test_a_noisy_company),
                TEST(test_many_companies),
                TEST(test_numbers_of_the_store),
                TEST(test_told_on_the_loop),
                TEST(test_many_threads),
                TEST(test_audit_is_told_after_commit),
                TEST(test_shared_commits),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
