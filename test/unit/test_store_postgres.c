/* postgres: the store suite on a server.
 *
 * And what only PostgreSQL has: a function that goes on after a refused statement, conflicts with
 * other programs, and connections that are lost. test/run starts the server and says where it is:
 * BERTH_TEST_POSTGRES is a URL with %s for the database. */
#include "store_suite.h"

#include "store/companies.h"
#include "store/postgres/pg_conn.h"

#define COMPANIES "SELECT COUNT(*) FROM companies"

/* Databases are copies of one that has its tables. */
static struct pg_conn *admin;
static char template[64];

static void url_of(const char *name, char url[STORE_URL_MAX])
{
        const char *pattern = getenv("BERTH_TEST_POSTGRES");
        const char *at = pattern ? strstr(pattern, "%s") : NULL;

        assert_non_null(at);
        snprintf(url, STORE_URL_MAX, "%.*s%s%s", (int)(at - pattern), pattern, name, at + 2);
}

static void script(struct pg_conn *c, const char *sql)
{
        struct err err = { 0 };

        if (db_script(pg_conn_db(c), sql, &err) < 0)
                fail_msg("%s: %s", sql, err.msg);
}

static struct pg_conn *connect_to(const char *url)
{
        struct pg_conn *c = NULL;
        struct err err = { 0 };

        if (pg_conn_open(url, "test", &c, &err) < 0)
                fail_msg("%s: %s", url, err.msg);
        return c;
}

static void create(char url[STORE_URL_MAX])
{
        static int number;
        char sql[256], name[64];

        snprintf(name, sizeof(name), "u%d_%d", (int)getpid(), ++number);
        snprintf(sql, sizeof(sql), "CREATE DATABASE %s TEMPLATE %s STRATEGY FILE_COPY", name,
                 *template ? template : "template0");
        script(admin, sql);
        url_of(name, url);
}

static void drop(const char *url)
{
        char sql[256], name[64];

        sscanf(strstr(url, "///") + 3, "%63[a-z0-9_]", name);
        snprintf(sql, sizeof(sql), "DROP DATABASE %s WITH (FORCE)", name);
        script(admin, sql);
}

static const struct store_backend postgres = { "postgres", create, drop };

static int insert(struct db *db, const char *id, struct err *err)
{
        struct company c = { .id = id,
                             .name = "Company",
                             .status = "active",
                             .issue_prefix = id,
                             .created_at = 1,
                             .updated_at = 1 };

        return companies_insert(db, &c, err);
}

static int insert_one(struct db *db, void *arg, struct err *err)
{
        return insert(db, arg, err);
}

struct counted {
        struct pg_conn *other;
        int runs;
        const char *id;
};

/* In SQLite a refused statement leaves the transaction as it is. */
static int go_on_after_refusal(struct db *db, void *arg, struct err *err)
{
        struct counted *c = arg;

        c->runs++;
        CHECK(insert(db, c->id, err) == 1);
        CHECK(insert(db, "taken", NULL) == ERR_CONFLICT);
        CHECK(db_exec(db, "UPDATE companies SET name = 'changed' WHERE id = ?1",
                      DB_ARGS(DB_T(c->id)), err) == 1);
        CHECK(insert(db, "taken", NULL) == ERR_CONFLICT);
        return 7;
}

static void test_a_function_goes_on_after_a_refused_statement(void **state)
{
        struct store_fixture *f = *state;
        struct counted alone = { .id = "alone" }, first = { .id = "first" };
        struct store_member members[] = {
                { .fn = insert_one, .arg = TEXT("before") },
                { .fn = go_on_after_refusal, .arg = &first },
                { .fn = insert_one, .arg = TEXT("taken") },
                { .fn = insert_one, .arg = TEXT("after") },
        };

        store_suite_write(f, insert_one, TEXT("taken"));
        assert_int_equal(store_write(&f->op, f->store, go_on_after_refusal, &alone, &f->err), 7);
        assert_int_equal(alone.runs, 2); /* the second time with care */
        store_suite_group(f, members, ARRAY_LEN(members));
        assert_int_equal(members[0].result, 1);
        assert_int_equal(members[1].result, 7);
        assert_int_equal(members[2].result, ERR_CONFLICT);
        assert_int_equal(members[3].result, 1);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE name = 'changed'"), 2);
        assert_int_equal(store_suite_count(f, COMPANIES), 5);
}

/* Another program changes a row after this transaction has begun to read. */
static int lose_a_race(struct db *db, void *arg, struct err *err)
{
        struct counted *c = arg;
        int64_t n;

        CHECK(db_number(db, COMPANIES, DB_NO_ARGS, &n, err) == 0);
        if (c->runs++ == 0)
                script(c->other, "UPDATE companies SET name = 'theirs' WHERE id = 'c1'");
        return db_exec(db, "UPDATE companies SET name = name || ' and ours' WHERE id = 'c1'",
                       DB_NO_ARGS, err);
}

static void test_a_conflict_repeats_the_group(void **state)
{
        struct store_fixture *f = *state;
        struct counted c = { .other = connect_to(f->url) };

        store_suite_write(f, insert_one, TEXT("c1"));
        assert_int_equal(store_write(&f->op, f->store, lose_a_race, &c, &f->err), 1);
        assert_int_equal(c.runs, 2);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE name = 'theirs and ours'"), 1);
        pg_conn_close(c.other);
}

#define CUT                                                                                        \
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "                                  \
        "WHERE application_name LIKE 'berth%' AND datname = current_database()"

/* The server ends the session in the middle of the transaction: nothing of it happened, so it is
 * run once more on a new one. */
static int lose_the_session(struct db *db, void *arg, struct err *err)
{
        struct counted *c = arg;
        int r = insert(db, c->id, err);

        if (c->runs++ == 0)
                script(c->other, CUT);
        return r < 0 ? r : db_exec(db, "UPDATE companies SET name = name || '!'", DB_NO_ARGS, err);
}

static void test_a_lost_session_repeats_the_group(void **state)
{
        struct store_fixture *f = *state;
        struct counted c = { .other = connect_to(f->url), .id = "c1" };

        assert_int_equal(store_write(&f->op, f->store, lose_the_session, &c, &f->err), 1);
        assert_int_equal(c.runs, 2);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE name = 'Company!'"), 1);
        assert_true(store_healthy(f->store));
        /* Sessions that were lost while nobody used them are not noticed. */
        script(c.other, CUT);
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
        store_suite_write(f, insert_one, TEXT("c2"));
        pg_conn_close(c.other);
}

/* The server cannot be told to lose an answer, so a trigger at the end of the transaction ends the
 * session while COMMIT is under way. */
#define CUT_AT_COMMIT                                                                              \
        "CREATE SEQUENCE tries; "                                                                  \
        "CREATE FUNCTION cut() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "                      \
        "IF nextval('tries') = 1 THEN PERFORM pg_terminate_backend(pg_backend_pid()); "            \
        "PERFORM pg_sleep(10); END IF; RETURN NULL; END $$; "                                      \
        "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON companies DEFERRABLE INITIALLY "            \
        "DEFERRED FOR EACH ROW EXECUTE FUNCTION cut(); "

static int count_runs(struct db *db, void *arg, struct err *err)
{
        struct counted *c = arg;

        c->runs++;
        return insert(db, c->id, err);
}

static void test_a_lost_commit_that_did_not_happen_is_repeated(void **state)
{
        struct store_fixture *f = *state;
        struct pg_conn *other = connect_to(f->url);
        struct counted c = { .id = "c1" };

        script(other, CUT_AT_COMMIT);
        assert_int_equal(store_write(&f->op, f->store, count_runs, &c, &f->err), 1);
        assert_int_equal(c.runs, 2);
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
        assert_int_equal(store_suite_count(f, "SELECT commits FROM store_writer"), 1);
        pg_conn_close(other);
}

static void test_a_lost_commit_that_happened_is_not_repeated(void **state)
{
        struct store_fixture *f = *state;
        struct pg_conn *other = connect_to(f->url);
        struct counted c = { .id = "c1" };

        /* The number is what the lost transaction would have left, as it looks after its commit. */
        script(other, CUT_AT_COMMIT "UPDATE store_writer SET commits = 1");
        assert_int_equal(store_write(&f->op, f->store, count_runs, &c, &f->err), 1);
        assert_int_equal(c.runs, 1);
        c.id = "c2";
        assert_int_equal(store_write(&f->op, f->store, count_runs, &c, &f->err), 1);
        assert_int_equal(store_suite_count(f, "SELECT commits FROM store_writer"), 2);
        pg_conn_close(other);
}

static void test_one_daemon_at_a_time(void **state)
{
        struct store_fixture *f = *state;
        struct store *second = NULL;
        struct pg_conn *other = connect_to(f->url);

        assert_int_equal(store_open(f->url, &second, &f->err), ERR_LOCKED);
        assert_non_null(strstr(f->err.msg, "another berth daemon (berth "));
        /* The first one has lost its session, and another daemon has come and gone meanwhile. */
        script(other, "UPDATE store_writer SET token = 'another'");
        script(other, CUT);
        for (int i = 0; i < 2; i++)
                assert_int_equal(store_write(&f->op, f->store, insert_one, TEXT("c1"), &f->err),
                                 ERR_LOCKED);
        assert_false(store_healthy(f->store));
        pg_conn_close(other);
        store_close(f->store);
        assert_int_equal(store_open(f->url, &f->store, &f->err), 0);
        store_suite_write(f, insert_one, TEXT("c1"));
}

static int write_and_read_bytes(struct db *db, void *arg, struct err *err)
{
        struct store_fixture *f = arg;
        const char *name;

        CHECK(insert(db, "c1", err) == 1);
        CHECK(db_exec(db, "UPDATE companies SET name = ?1", DB_ARGS(DB_T("a\xff-b")), err) == 1);
        CHECK(db_text(db, "SELECT name FROM companies WHERE id = 'c1'", DB_NO_ARGS, &f->arena,
                      &name, err) == 1);
        CHECK(streq(name, "a\xef\xbf\xbd-b"));
        return 0;
}

static void test_bytes_that_are_no_text_are_replaced(void **state)
{
        store_suite_write(*state, write_and_read_bytes, *state);
}

static int insert_long(struct db *db, void *arg, struct err *err)
{
        char prefix[20000];
        unsigned x = 1;

        for (size_t i = 0; i < sizeof(prefix); i++) /* what cannot be packed */
                prefix[i] = (char)('a' + (x = x * 1103515245 + 12345) / 65536 % 26);
        prefix[sizeof(prefix) - 1] = '\0';
        return insert(db, prefix, err);
}

static void test_a_key_that_no_index_takes(void **state)
{
        struct store_fixture *f = *state;

        assert_int_equal(store_write(&f->op, f->store, insert_long, NULL, &f->err), ERR_TOO_LARGE);
        store_suite_write(f, insert_one, TEXT("c1"));
}

static int small_or_large(struct db *db, void *arg, struct err *err)
{
        int64_t n;

        /* Of the text alone ?1 would be a small number. */
        for (int64_t i = 0; i < 2; i++) {
                CHECK(db_number(db, COMPANIES " WHERE ?1 = 0 OR created_at < ?1",
                                DB_ARGS(i ? DB_I(INT64_MAX) : DB_TIME(0)), &n, err) == 0);
                CHECK(n == i);
        }
        return 0;
}

static void test_numbers_are_large(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, insert_one, TEXT("c1"));
        store_suite_write(f, small_or_large, NULL);
}

static void test_what_cannot_be_opened(void **state)
{
        struct store_fixture *f = *state;
        struct store *other = NULL;
        char url[STORE_URL_MAX];

        url_of("not_there", url);
        assert_int_equal(store_open(url, &other, &f->err), ERR_BUSY);
        assert_non_null(strstr(f->err.msg, "not_there"));
        assert_int_equal(store_open("postgres://%zz", &other, &f->err), ERR_INVALID);
        assert_int_equal(store_open("postgres://u:s3cret@127.0.0.1:1/x", &other, &f->err),
                         ERR_BUSY);
        assert_null(strstr(f->err.msg, "s3cret"));
        assert_null(other);
}

static void make_template(void)
{
        char url[STORE_URL_MAX];
        struct store *store = NULL;
        struct err err = { 0 };

        create(url);
        if (store_open(url, &store, &err) < 0)
                fail_msg("%s", err.msg);
        store_close(store);
        sscanf(strstr(url, "///") + 3, "%63[a-z0-9_]", template);
}

#define POSTGRES_TEST(name)                                                                        \
        cmocka_unit_test_setup_teardown(name, store_suite_setup, store_suite_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                POSTGRES_TEST(test_a_function_goes_on_after_a_refused_statement),
                POSTGRES_TEST(test_a_conflict_repeats_the_group),
                POSTGRES_TEST(test_a_lost_session_repeats_the_group),
                POSTGRES_TEST(test_a_lost_commit_that_did_not_happen_is_repeated),
                POSTGRES_TEST(test_a_lost_commit_that_happened_is_not_repeated),
                POSTGRES_TEST(test_one_daemon_at_a_time),
                POSTGRES_TEST(test_bytes_that_are_no_text_are_replaced),
                POSTGRES_TEST(test_a_key_that_no_index_takes),
                POSTGRES_TEST(test_numbers_are_large),
                POSTGRES_TEST(test_what_cannot_be_opened),
        };
        char url[STORE_URL_MAX];
        int failed = 0;

        if (!getenv("BERTH_TEST_POSTGRES")) {
                printf("1..1\nok 1 - store on PostgreSQL # SKIP no server; run it with test/run\n");
                return 0;
        }
        url_of("postgres", url);
        admin = connect_to(url);
        make_template();
        store_suite_use(&postgres);
        failed += store_suite_run_engine();
        failed += store_suite_run_rows();
        failed += store_suite_run_work();
        failed += store_suite_run_workspaces();
        failed += cmocka_run_group_tests_name("postgres only", tests, NULL, NULL);
        snprintf(url, sizeof(url), "DROP DATABASE %s WITH (FORCE)", template);
        script(admin, url);
        pg_conn_close(admin);
        return failed;
}
