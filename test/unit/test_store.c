/* threads: writers that commit together. */
/* The store suite on SQLite, and what only SQLite has: a file, and a disk that can be full. */
#include "store_suite.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPANIES "SELECT COUNT(*) FROM companies"

static void create(char url[STORE_URL_MAX])
{
        char scratch[SCRATCH_PATH_MAX];

        make_scratch(scratch);
        snprintf(url, STORE_URL_MAX, "%s/berth.db", scratch);
}

static void drop(const char *url)
{
        char path[STORE_URL_MAX + 8];

        unlink(url);
        for (int i = 0; i < 2; i++) {
                snprintf(path, sizeof(path), "%s-%s", url, i ? "shm" : "wal");
                unlink(path);
        }
        snprintf(path, sizeof(path), "%.*s", (int)(strrchr(url, '/') - url), url);
        assert_int_equal(rmdir(path), 0);
}

static const struct store_backend sqlite = { "sqlite", create, drop };

static void test_only_we_can_read_it(void **state)
{
        struct store_fixture *f = *state;
        char path[STORE_URL_MAX + 8];
        struct stat st;

        store_suite_write(f, store_suite_company, NULL);
        for (int i = 0; i < 3; i++) {
                snprintf(path, sizeof(path), "%s%s", f->url,
                         i == 0   ? ""
                         : i == 1 ? "-wal"
                                  : "-shm");
                assert_int_equal(stat(path, &st), 0);
                assert_int_equal(st.st_mode & 0777, 0600);
        }
}

static void test_not_a_database(void **state)
{
        struct store_fixture *f = *state;
        struct store *other = NULL;
        char path[STORE_URL_MAX + 8];
        int fd;

        snprintf(path, sizeof(path), "%s.txt", f->url);
        fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        for (int i = 0; i < 200; i++)
                assert_int_equal(write(fd, "This is not a database.\n", 24), 24);
        close(fd);
        assert_int_equal(store_open(path, &other, &f->err), ERR_CORRUPT);
        assert_non_null(strstr(f->err.msg, path));
        unlink(path);
        assert_int_equal(store_open("/nonexistent/directory/berth.db", &other, &f->err), ERR_IO);
        assert_null(other);
}

/* A disk that takes nothing more beyond what the log has now. */
static void limit_files(struct store_fixture *f, rlim_t spare)
{
        char path[STORE_URL_MAX + 8];
        struct rlimit limit;
        struct stat st;

        snprintf(path, sizeof(path), "%s-wal", f->url);
        assert_int_equal(stat(path, &st), 0);
        signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
        limit.rlim_cur = (rlim_t)st.st_size + spare;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static void unlimit_files(void)
{
        struct rlimit limit;

        assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
        limit.rlim_cur = limit.rlim_max;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

static int insert(struct db *db, void *arg, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO companies (id, name, issue_prefix, created_at, updated_at) "
                       "VALUES (?1, ?1, ?1, 1, 1)",
                       DB_ARGS(DB_T(arg)), err);
}

/* More than the connection keeps in memory, so that it has to write before the commit. */
static int insert_a_lot(struct db *db, void *arg, struct err *err)
{
        enum { SIZE = 1 << 16 };
        CLEAN(cleanup_free) char *text = xcalloc(1, SIZE);
        int r = insert(db, arg, err);

        memset(text, 'x', SIZE - 1);
        for (int i = 0; r >= 0 && i < 512; i++) {
                snprintf(text, 32, "%s-%d", (const char *)arg, i);
                text[strlen(text)] = 'x';
                r = insert(db, text, err);
        }
        return r;
}

static int fail_alone(struct db *db, void *arg, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE, "for a reason of its own");
}

static void test_a_commit_that_fails_is_nobodys(void **state)
{
        struct store_fixture *f = *state;
        struct store_member members[] = {
                { .fn = insert, .arg = TEXT("a") },
                { .fn = fail_alone },
                { .fn = insert, .arg = TEXT("c") },
        };

        store_suite_write(f, insert, TEXT("before"));
        limit_files(f, 0);
        store_suite_group(f, members, ARRAY_LEN(members));
        assert_false(store_healthy(f->store));
        unlimit_files();
        assert_int_equal(members[0].result, ERR_IO);
        assert_int_equal(members[0].err.code, ERR_IO);
        assert_true(members[0].err.msg[0] != '\0');
        assert_int_equal(members[1].result, ERR_UNPROCESSABLE);
        assert_int_equal(members[2].result, ERR_IO);
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
        /* And on with it once there is room. */
        store_suite_write(f, insert, TEXT("a"));
        assert_true(store_healthy(f->store));
        assert_int_equal(store_suite_count(f, COMPANIES), 2);
}

/* SQLite gives the whole transaction up when it cannot write in the middle of it. Who was told that
 * a write worked must find it, who was told that it failed must not. */
static void test_a_member_that_breaks_the_transaction(void **state)
{
        struct store_fixture *f = *state;
        struct store_member members[] = {
                { .fn = insert, .arg = TEXT("a") }, { .fn = insert_a_lot, .arg = TEXT("b") },
                { .fn = insert, .arg = TEXT("c") }, { .fn = fail_alone },
                { .fn = insert, .arg = TEXT("d") },
        };
        int64_t succeeded = 0;

        store_suite_write(f, insert, TEXT("before"));
        limit_files(f, 1 << 20);
        store_suite_group(f, members, ARRAY_LEN(members));
        unlimit_files();
        for (size_t i = 0; i < ARRAY_LEN(members); i++)
                succeeded += members[i].result >= 0;
        assert_int_equal(members[1].result, ERR_IO);
        assert_true(members[3].result < 0);
        assert_int_equal(store_suite_count(f, COMPANIES), 1 + succeeded);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE id = 'a'"), members[0].result >= 0);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE id = 'c'"), members[2].result >= 0);
        assert_int_equal(store_suite_count(f, COMPANIES " WHERE id = 'd'"), members[4].result >= 0);
        store_suite_write(f, insert_a_lot, TEXT("b"));
}

static void test_alone_on_a_full_disk(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, insert, TEXT("before"));
        limit_files(f, 1 << 20);
        assert_int_equal(store_write(&f->op, f->store, insert_a_lot, TEXT("b"), &f->err), ERR_IO);
        assert_false(store_healthy(f->store));
        unlimit_files();
        assert_int_equal(store_suite_count(f, COMPANIES), 1);
        store_suite_write(f, insert, TEXT("after"));
        assert_true(store_healthy(f->store));
}

#define SQLITE_TEST(name)                                                                          \
        cmocka_unit_test_setup_teardown(name, store_suite_setup, store_suite_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                SQLITE_TEST(test_only_we_can_read_it),
                SQLITE_TEST(test_not_a_database),
                SQLITE_TEST(test_a_commit_that_fails_is_nobodys),
                SQLITE_TEST(test_a_member_that_breaks_the_transaction),
                SQLITE_TEST(test_alone_on_a_full_disk),
        };
        int failed = 0;

        store_suite_use(&sqlite);
        failed += store_suite_run_engine();
        failed += store_suite_run_rows();
        failed += store_suite_run_work();
        failed += store_suite_run_workspaces();
        failed += cmocka_run_group_tests_name("sqlite only", tests, NULL, NULL);
        return failed;
}
