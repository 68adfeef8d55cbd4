#define _GNU_SOURCE
#include "store_suite.h"
#include "store_read.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/companies.h"
#include "store/environments.h"

static const struct store_backend *used;

void store_suite_use(const struct store_backend *backend)
{
        used = backend;
}

static int open_again(struct store_fixture *f)
{
        f->store = NULL;
        return store_open(f->url, &f->store, &f->err);
}

int store_suite_setup(void **state)
{
        struct store_fixture *f;

        memory_may_fail(false);
        f = xcalloc(1, sizeof(*f));
        arena_init(&f->arena);
        f->op = (struct op){ .arena = &f->arena, .deadline_ms = OP_NO_DEADLINE };
        used->create(f->url);
        *state = f;
        if (open_again(f) < 0)
                fail_msg("%s: %s", f->url, f->err.msg);
        memory_may_fail(true);
        return 0;
}

int store_suite_teardown(void **state)
{
        struct store_fixture *f = *state;

        memory_may_fail(false);
        store_close(f->store);
        used->drop(f->url);
        arena_done(&f->arena);
        err_done(&f->err);
        free(f);
        return 0;
}

void store_suite_write(struct store_fixture *f, store_fn fn, void *arg)
{
        if (store_write(&f->op, f->store, fn, arg, &f->err) < 0)
                fail_msg("%s", f->err.msg);
}

static int insert_company(struct db *db, void *arg, struct err *err)
{
        struct company c = { .id = arg,
                             .name = "Company",
                             .status = "active",
                             .issue_prefix = arg,
                             .created_at = 1,
                             .updated_at = 1 };

        return companies_insert(db, &c, err);
}

int store_suite_company(struct db *db, void *arg, struct err *err)
{
        struct environment e = { .id = "e1",
                                 .company_id = "c1",
                                 .name = "Environment",
                                 .driver = "sandbox",
                                 .status = "active",
                                 .config = "{}",
                                 .created_at = 1,
                                 .updated_at = 1 };

        CHECK(insert_company(db, TEXT("c1"), err) == 1);
        return environments_insert(db, &e, err);
}

struct count {
        const char *sql;
        int64_t n;
};

static int count(struct db *db, void *arg, struct err *err)
{
        struct count *c = arg;

        return db_number(db, c->sql, DB_NO_ARGS, &c->n, err);
}

int64_t store_suite_count(struct store_fixture *f, const char *sql)
{
        struct count c = { sql, -1 };

        if (store_read(&f->op, f->store, count, &c, &f->err) < 0)
                fail_msg("%s", f->err.msg);
        return c.n;
}

#define COMPANIES "SELECT COUNT(*) FROM companies"

/* Tables */

static int add_newer_version(struct db *db, void *arg, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO schema_migrations (version, name, applied_at) "
                       "VALUES (999999, 'of a newer berth', 1)",
                       DB_NO_ARGS, err);
}

static void test_an_existing_database_is_left_as_it_is(void **state)
{
        struct store_fixture *f = *state;
        int64_t versions = store_suite_count(f, "SELECT COUNT(*) FROM schema_migrations");
        int64_t applied = store_suite_count(f, "SELECT MAX(applied_at) FROM schema_migrations");

        assert_true(versions > 0);
        store_suite_write(f, insert_company, TEXT("c1"));
        store_close(f->store);
        assert_int_equal(open_again(f), 0);
        assert_int_equal(store_suite_count(f, "SELECT COUNT(*) FROM schema_migrations"), versions);
        assert_int_equal(store_suite_count(f, "SELECT MAX(applied_at) FROM schema_migrations"),
                         applied);
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
}

static int forget_newer_version(struct db *db, void *arg, struct err *err)
{
        return db_exec(db, "DELETE FROM schema_migrations WHERE version = 999999", DB_NO_ARGS, err);
}

static void test_a_newer_database_is_refused(void **state)
{
        struct store_fixture *f = *state;
        struct store *first = f->store;

        store_suite_write(f, insert_company, TEXT("c1"));
        store_suite_write(f, add_newer_version, NULL);
        assert_int_equal(open_again(f), ERR_VERSION);
        assert_non_null(strstr(f->err.msg, "999999"));
        assert_null(f->store);
        f->store = first;
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
        store_suite_write(f, forget_newer_version, NULL);
        store_close(f->store);
        assert_int_equal(open_again(f), 0);
}

static void test_close_while_idle(void **state)
{
        struct store_fixture *f = *state;

        for (int i = 0; i < 20; i++) {
                store_close(f->store);
                assert_int_equal(open_again(f), 0);
                if (i % 2)
                        assert_int_equal(store_suite_count(f, COMPANIES), 0);
        }
        store_close(NULL);
}

/* One write */

static void test_results_come_back(void **state)
{
        struct store_fixture *f = *state;

        assert_int_equal(store_write(&f->op, f->store, insert_company, TEXT("c1"), &f->err), 1);
        assert_int_equal(store_write(&f->op, f->store, insert_company, TEXT("c1"), &f->err),
                         ERR_CONFLICT);
        assert_int_equal(f->err.code, ERR_CONFLICT);
        assert_int_equal(store_write(&f->op, f->store, insert_company, TEXT("c1"), NULL),
                         ERR_CONFLICT);
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
        assert_true(store_healthy(f->store));
}

static int insert_then_fail(struct db *db, void *arg, struct err *err)
{
        int r = insert_company(db, arg, err);

        return r < 0 ? r : err_set(err, ERR_UNPROCESSABLE, "second thoughts");
}

static void test_a_failing_function_leaves_nothing(void **state)
{
        struct store_fixture *f = *state;

        assert_int_equal(store_write(&f->op, f->store, insert_then_fail, TEXT("c1"), &f->err),
                         ERR_UNPROCESSABLE);
        assert_string_equal(f->err.msg, "second thoughts");
        assert_int_equal(store_suite_count(f, COMPANIES), 0);
        store_suite_write(f, insert_company, TEXT("c1"));
}

struct kept_counter {
        int n;
        bool fails;
};

static int count_up(struct db *db, void *arg, struct err *err)
{
        struct kept_counter *c = arg;

        db_keep(db, &c->n, sizeof(c->n));
        c->n += 1;
        db_keep(db, &c->n, sizeof(c->n));
        c->n *= 10;
        if (c->fails)
                return err_set(err, ERR_UNPROCESSABLE, "second thoughts");
        return insert_company(db, TEXT(c->n == 10 ? "c10" : "c20"), err);
}

/* Also with BERTH_TEST_REPEAT_WRITES, where each function runs twice. */
static void test_kept_memory_is_put_back(void **state)
{
        struct store_fixture *f = *state;
        struct kept_counter c = { 0, true };

        assert_int_equal(store_write(&f->op, f->store, count_up, &c, &f->err), ERR_UNPROCESSABLE);
        assert_int_equal(c.n, 0);
        c.fails = false;
        store_suite_write(f, count_up, &c);
        assert_int_equal(c.n, 10);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE id = 'c10'"), 1);
}

static int wrong_sql(struct db *db, void *arg, struct err *err)
{
        return db_exec(db, "SELECT nonsense FROM nowhere", DB_NO_ARGS, err);
}

static void test_wrong_statements_are_our_fault(void **state)
{
        struct store_fixture *f = *state;

        assert_int_equal(store_write(&f->op, f->store, wrong_sql, NULL, &f->err), ERR_INTERNAL);
        assert_int_equal(store_read(&f->op, f->store, wrong_sql, NULL, &f->err), ERR_INTERNAL);
        store_suite_write(f, insert_company, TEXT("c1"));
}

static int delete_companies(struct db *db, void *arg, struct err *err)
{
        return db_exec(db, "DELETE FROM companies", DB_NO_ARGS, err);
}

static void test_a_read_cannot_write(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, insert_company, TEXT("c1"));
        assert_true(store_read(&f->op, f->store, delete_companies, NULL, &f->err) < 0);
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
}

/* The same text, on every level its own statement. */
#define NESTED "SELECT id FROM companies WHERE id > ?1 ORDER BY id"

static int walk(struct db *db, const char *after, int depth, int64_t *total, struct arena *arena,
                struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        static const char sql[] = NESTED;
        int r = db_query(db, sql, DB_ARGS(DB_T(after)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                ++*total;
                r = depth > 0 ? walk(db, stmt_text(s, 0, arena), depth - 1, total, arena, err) : 0;
        }
        return r;
}

static int nested(struct db *db, void *arg, struct err *err)
{
        struct store_fixture *f = arg;
        int64_t total = 0;

        for (int i = 0; i < 6; i++)
                CHECK(insert_company(db, (char[]){ (char)('a' + i), '\0' }, err) == 1);
        /* Six, and below each those behind it, two levels down: 6 + 15 + 20. */
        CHECK(walk(db, "", 2, &total, &f->arena, err) == 0);
        CHECK(total == 41);
        total = 0;
        CHECK(walk(db, "", 0, &total, &f->arena, err) == 0);
        CHECK(total == 6);
        return 0;
}

static void test_one_statement_used_within_itself(void **state)
{
        store_suite_write(*state, nested, *state);
}

static int values(struct db *db, void *arg, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        struct store_fixture *f = arg;
        int64_t n = 7;

        CHECK(db_query(db,
                       "SELECT CAST(?1 AS TEXT), CAST(?2 AS BIGINT), CAST(?3 AS TEXT), "
                       "CAST(?4 AS BIGINT), CAST(?5 AS TEXT)",
                       DB_ARGS(DB_T("tëxt ' \" \n"), DB_I(INT64_MIN), DB_T(NULL), DB_TIME(0),
                               DB_T("")),
                       &s, err) >= 0);
        CHECK(stmt_step(s, err) == 1);
        CHECK(streq(stmt_text(s, 0, &f->arena), "tëxt ' \" \n"));
        CHECK(stmt_number(s, 1) == INT64_MIN);
        CHECK(stmt_is_null(s, 2) && !stmt_text(s, 2, &f->arena));
        CHECK(stmt_is_null(s, 3) && stmt_number(s, 3) == 0);
        CHECK(!stmt_is_null(s, 4) && streq(stmt_text(s, 4, &f->arena), ""));
        CHECK(stmt_step(s, err) == 0);
        CHECK(db_number(db, "SELECT 1 FROM companies WHERE id = 'none'", DB_NO_ARGS, &n, NULL) ==
              ERR_NOT_FOUND);
        CHECK(n == 7);
        return 0;
}

static void test_values(void **state)
{
        store_suite_write(*state, values, *state);
}

/* Several at a time */

#define THREADS 8
#define ROUNDS  25

struct writer {
        struct store_fixture *f;
        int number;
        int failed_at; /* 0: it went well */
        pthread_t thread;
};

static int is_there(struct db *db, void *arg, struct err *err)
{
        int64_t one;

        return db_number(db, "SELECT 1 FROM companies WHERE id = ?1", DB_ARGS(DB_T(arg)), &one,
                         err);
}

static void *write_and_look(void *arg)
{
        struct writer *w = arg;
        struct op op = { .deadline_ms = OP_NO_DEADLINE };

        for (int i = 0; i < ROUNDS && !w->failed_at; i++) {
                char id[32];
                bool fails = i % 5 == w->number % 5;

                snprintf(id, sizeof(id), "w%d-%d", w->number, i);
                if (store_write(&op, w->f->store, fails ? insert_then_fail : insert_company, id,
                                NULL) != (fails ? ERR_UNPROCESSABLE : 1))
                        w->failed_at = __LINE__;
                else if (store_read(&op, w->f->store, is_there, id, NULL) !=
                         (fails ? ERR_NOT_FOUND : 0))
                        w->failed_at = __LINE__;
        }
        return NULL;
}

static void test_each_write_is_visible_when_it_returned(void **state)
{
        struct store_fixture *f = *state;
        struct writer writers[THREADS];

        for (int i = 0; i < THREADS; i++) {
                writers[i] = (struct writer){ .f = f, .number = i };
                assert_int_equal(
                        pthread_create(&writers[i].thread, NULL, write_and_look, &writers[i]), 0);
        }
        for (int i = 0; i < THREADS; i++) {
                pthread_join(writers[i].thread, NULL);
                assert_int_equal(writers[i].failed_at, 0);
        }
        assert_int_equal(store_suite_count(f, COMPANIES), THREADS * ROUNDS * 4 / 5);
}

/* Until a thread sleeps, which after it said that it goes to the store means: it waits there. The
 * store's promises hold however the writes are grouped, so a wrong guess only weakens a test. */
static void wait_asleep(const int *tid)
{
        char path[64], line[256];

        for (;;) {
                FILE *file;
                char state = 'R';

                sched_yield();
                if (!__atomic_load_n(tid, __ATOMIC_ACQUIRE))
                        continue;
                snprintf(path, sizeof(path), "/proc/self/task/%d/stat", *tid);
                file = fopen(path, "re");
                if (!file)
                        return;
                if (fgets(line, sizeof(line), file))
                        sscanf(line, "%*d (%*[^)]) %c", &state);
                fclose(file);
                if (state == 'S')
                        return;
        }
}

static void *run_member(void *arg)
{
        struct store_member *m = arg;
        struct op op = { .deadline_ms = OP_NO_DEADLINE, .arena = &m->f->arena };

        __atomic_store_n(&m->tid, (int)syscall(SYS_gettid), __ATOMIC_RELEASE);
        m->result = store_write(&op, m->f->store, m->fn, m->arg, &m->err);
        return NULL;
}

/* A write that lasts until it may go on. */
struct gate {
        sem_t entered, may_go;
        bool is_open; /* a write function may be run once more */
};

static int stand_at_gate(struct db *db, void *arg, struct err *err)
{
        struct gate *g = arg;

        if (g->is_open)
                return 0;
        sem_post(&g->entered);
        while (sem_wait(&g->may_go) < 0 && errno == EINTR)
                ;
        g->is_open = true;
        return 0;
}

static void open_gate_store(struct gate *g, struct store_member *keeper, struct store_fixture *f)
{
        pthread_t thread;

        sem_init(&g->entered, 0, 0);
        sem_init(&g->may_go, 0, 0);
        g->is_open = false;
        *keeper = (struct store_member){ .fn = stand_at_gate, .arg = g, .f = f };
        assert_int_equal(pthread_create(&thread, NULL, run_member, keeper), 0);
        keeper->thread = thread;
        while (sem_wait(&g->entered) < 0 && errno == EINTR)
                ;
}

static void close_gate_store(struct gate *g, struct store_member *keeper)
{
        sem_post(&g->may_go);
        pthread_join(keeper->thread, NULL);
        sem_destroy(&g->entered);
        sem_destroy(&g->may_go);
        assert_int_equal(keeper->result, 0);
}

void store_suite_group(struct store_fixture *f, struct store_member *members, size_t n)
{
        struct store_member keeper;
        struct gate gate;

        open_gate_store(&gate, &keeper, f);
        for (size_t i = 0; i < n; i++) {
                pthread_t thread;

                members[i].f = f;
                assert_int_equal(pthread_create(&thread, NULL, run_member, &members[i]), 0);
                members[i].thread = thread;
                wait_asleep(&members[i].tid);
        }
        close_gate_store(&gate, &keeper);
        for (size_t i = 0; i < n; i++)
                pthread_join(members[i].thread, NULL);
}

static void test_a_failing_member_undoes_only_itself(void **state)
{
        struct store_fixture *f = *state;
        struct store_member members[] = {
                { .fn = insert_company, .arg = TEXT("a") },
                { .fn = insert_then_fail, .arg = TEXT("b") },
                { .fn = insert_company, .arg = TEXT("c") },
                { .fn = insert_company, .arg = TEXT("a") },
                { .fn = insert_then_fail, .arg = TEXT("e") },
                { .fn = insert_company, .arg = TEXT("b") },
        };
        static const int expected[] = {
                1, ERR_UNPROCESSABLE, 1, ERR_CONFLICT, ERR_UNPROCESSABLE, 1
        };

        store_suite_group(f, members, ARRAY_LEN(members));
        for (size_t i = 0; i < ARRAY_LEN(members); i++)
                assert_int_equal(members[i].result, expected[i]);
        assert_string_equal(members[1].err.msg, "second thoughts");
        assert_int_equal(store_suite_count(f, COMPANIES), 3);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE id IN ('a', 'b', 'c')"), 3);
}

static int mark(struct db *db, void *arg, struct err *err)
{
        atomic_store((_Atomic bool *)arg, true);
        return 5;
}

static void test_a_queued_write_is_withdrawn_when_its_time_is_over(void **state)
{
        struct store_fixture *f = *state;
        struct store_member keeper, before = { .fn = insert_company, .arg = TEXT("before") };
        struct op_cancel cancel;
        struct op limited = f->op, cancelled = f->op;
        _Atomic bool ran = false;
        struct gate gate;
        pthread_t thread;

        assert_int_equal(op_cancel_init(&cancel, NULL), 0);
        cancelled.cancel = &cancel;
        open_gate_store(&gate, &keeper, f);
        before.f = f;
        assert_int_equal(pthread_create(&thread, NULL, run_member, &before), 0);
        wait_asleep(&before.tid);
        limited.deadline_ms = clock_mono_ms() + 20;
        assert_int_equal(store_write(&limited, f->store, mark, &ran, &f->err), ERR_TIMEOUT);
        assert_int_equal(f->err.code, ERR_TIMEOUT);
        limited.deadline_ms = clock_mono_ms() + 20;
        assert_int_equal(store_write(&limited, f->store, mark, &ran, NULL), ERR_TIMEOUT);
        close_gate_store(&gate, &keeper);
        pthread_join(thread, NULL);
        /* The one queued before it, and those after it, are not touched. */
        assert_int_equal(before.result, 1);
        store_suite_write(f, insert_company, TEXT("after"));
        assert_false(ran);
        assert_int_equal(store_suite_count(f, COMPANIES), 2);
        /* One that is over before it begins does not even get into the queue. */
        op_cancel_set(&cancel);
        assert_int_equal(store_write(&cancelled, f->store, mark, &ran, &f->err), ERR_CANCELLED);
        assert_int_equal(store_read(&cancelled, f->store, mark, &ran, &f->err), ERR_CANCELLED);
        assert_false(ran);
        op_cancel_done(&cancel);
}

struct slow {
        int64_t until_ms;
        const char *id;
};

static int insert_slowly(struct db *db, void *arg, struct err *err)
{
        struct slow *s = arg;

        while (clock_mono_ms() <= s->until_ms)
                sched_yield();
        return insert_company(db, TEXT(s->id), err);
}

static void test_a_write_under_way_is_waited_for(void **state)
{
        struct store_fixture *f = *state;
        struct op limited = f->op;
        struct slow slow = { clock_mono_ms() + 50, "c1" };

        limited.deadline_ms = slow.until_ms - 10;
        /* Its outcome is known, so it is said, whatever the clock says. */
        assert_int_equal(store_write(&limited, f->store, insert_slowly, &slow, &f->err), 1);
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
}

struct snapshot {
        struct store_fixture *f;
        int64_t before, after;
        int write_result;
};

static void *write_beside(void *arg)
{
        struct snapshot *s = arg;
        struct op op = { .deadline_ms = OP_NO_DEADLINE };

        s->write_result = store_write(&op, s->f->store, insert_company, TEXT("beside"), NULL);
        return NULL;
}

static int look_twice(struct db *db, void *arg, struct err *err)
{
        struct snapshot *s = arg;
        pthread_t thread;

        CHECK(db_number(db, COMPANIES, DB_NO_ARGS, &s->before, err) >= 0);
        CHECK(pthread_create(&thread, NULL, write_beside, s) == 0);
        pthread_join(thread, NULL);
        return db_number(db, COMPANIES, DB_NO_ARGS, &s->after, err);
}

static void test_a_reader_sees_one_instant(void **state)
{
        struct store_fixture *f = *state;
        struct snapshot s = { .f = f };

        store_suite_write(f, insert_company, TEXT("c1"));
        assert_int_equal(store_read(&f->op, f->store, look_twice, &s, &f->err), 0);
        assert_int_equal(s.write_result, 1);
        assert_int_equal(s.before, 1);
        assert_int_equal(s.after, 1);
        assert_int_equal(store_suite_count(f, COMPANIES), 2);
}

static int read_inside(struct db *db, void *arg, struct err *err)
{
        struct store_fixture *f = arg;
        struct count c = { COMPANIES, -1 };

        CHECK(store_read(&f->op, f->store, count, &c, err) >= 0);
        return (int)c.n;
}

static void test_reads_within_reads_use_their_own_connection(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, insert_company, TEXT("c1"));
        for (int i = 0; i < 3; i++)
                assert_int_equal(store_read(&f->op, f->store, read_inside, f, &f->err), 1);
}

/* A read is a value: it sees one instant from its beginning to the end of its scope, and a
 * connection that met an error serves the next one. */
static void test_a_read_lasts_as_long_as_its_scope(void **state)
{
        struct store_fixture *f = *state;
        struct db *first = NULL;
        int64_t n;

        {
                CLEAN(store_read_end) struct db *db = NULL;

                assert_int_equal(store_read_begin(&f->op, f->store, &db, &f->err), 0);
                first = db;
                assert_int_equal(db_number(db, COMPANIES, DB_NO_ARGS, &n, &f->err), 0);
                store_suite_write(f, insert_company, TEXT("c1"));
                assert_int_equal(db_number(db, COMPANIES, DB_NO_ARGS, &n, &f->err), 0);
                assert_int_equal(n, 0);
                assert_int_equal(
                        db_number(db, "SELECT nothing FROM companies", DB_NO_ARGS, &n, &f->err),
                        ERR_INTERNAL);
        }
        for (int i = 0; i < 2; i++) {
                CLEAN(store_read_end) struct db *db = NULL;

                assert_int_equal(store_read_begin(&f->op, f->store, &db, &f->err), 0);
                assert_ptr_equal(db, first);
                assert_int_equal(db_number(db, COMPANIES, DB_NO_ARGS, &n, &f->err), 0);
                assert_int_equal(n, 1);
                store_read_end(&db);
                assert_null(db);
        }
}

#define STORE_TEST(name)                                                                           \
        cmocka_unit_test_setup_teardown(name, store_suite_setup, store_suite_teardown)

int store_suite_run_engine(void)
{
        const struct CMUnitTest tests[] = {
                STORE_TEST(test_an_existing_database_is_left_as_it_is),
                STORE_TEST(test_a_newer_database_is_refused),
                STORE_TEST(test_close_while_idle),
                STORE_TEST(test_results_come_back),
                STORE_TEST(test_a_failing_function_leaves_nothing),
                STORE_TEST(test_kept_memory_is_put_back),
                STORE_TEST(test_wrong_statements_are_our_fault),
                STORE_TEST(test_a_read_cannot_write),
                STORE_TEST(test_one_statement_used_within_itself),
                STORE_TEST(test_values),
                STORE_TEST(test_each_write_is_visible_when_it_returned),
                STORE_TEST(test_a_failing_member_undoes_only_itself),
                STORE_TEST(test_a_queued_write_is_withdrawn_when_its_time_is_over),
                STORE_TEST(test_a_write_under_way_is_waited_for),
                STORE_TEST(test_a_reader_sees_one_instant),
                STORE_TEST(test_a_read_lasts_as_long_as_its_scope),
                STORE_TEST(test_reads_within_reads_use_their_own_connection),
        };

        return cmocka_run_group_tests_name(used->name, tests, NULL, NULL);
}
