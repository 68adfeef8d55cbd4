#define _GNU_SOURCE
#include "runtime.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "core/exec/exec_internal.h"

/* What is kept of output, and places that are asked to be quiet: a hub without a box. */

#define PLACE "0a000000-0000-4000-8000-000000000001"
#define MIB   ((uint64_t)1 << 20)

struct world {
        struct test_runtime *t;
        uv_loop_t loop;
        struct exec_hub *hub;
};

static int setup(void **state)
{
        struct world *w = xcalloc(1, sizeof(*w));
        struct exec_hub_config config = { .loop = &w->loop };
        struct err e = { 0 };

        w->t = test_runtime_new(NULL);
        w->t->rt.settings.output_max_mb = w->t->rt.settings.output_place_max_mb = 1024;
        uv_loop_init(&w->loop);
        config.rt = &w->t->rt;
        config.data_dir = w->t->dir;
        config.box_program = "/nonexistent";
        assert_int_equal(mail_new(&w->loop, &config.mail, &e), 0);
        if (exec_hub_new(&config, &w->hub, &e) < 0)
                fail_msg("%s", e.msg);
        w->t->rt.hub = w->hub;
        *state = w;
        return 0;
}

static int teardown(void **state)
{
        struct world *w = *state;
        struct mail *mail = w->hub->config.mail;
        char path[SCRATCH_PATH_MAX + 16];

        exec_hub_free(w->hub);
        mail_free(mail);
        uv_run(&w->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&w->loop), 0);
        for (int i = 0; i < 2; i++) {
                snprintf(path, sizeof(path), "%s/%s", w->t->dir, i ? "boxes" : "output");
                (void)remove(path);
        }
        test_runtime_free(w->t);
        free(w);
        return 0;
}

/* A file system that makes no holes, or any other reason why the oldest bytes stay. */
static void test_what_cannot_be_dropped_is_said(void **state)
{
        struct world *w = *state;
        CLEAN(cleanup_free) char *path = xasprintf("%s/stream", w->t->dir);
        const uint64_t len[2] = { 3 * MIB, 0 };
        uint64_t punched[2] = { 0, 0 };
        struct stat st;
        int fds[2];

        fds[0] = fds[1] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        for (int i = 0; i < 3 * 256; i++)
                assert_int_equal(write(fds[0], (char[4096]){ 'x' }, 4096), 4096);
        close(fds[0]);
        fds[0] = fds[1] = open(path, O_RDONLY | O_CLOEXEC);
        assert_false(exec_output_drop(fds, len, punched, MIB));
        assert_int_equal(punched[0], 0);
        close(fds[0]);

        fds[0] = fds[1] = open(path, O_RDWR | O_CLOEXEC);
        assert_true(exec_output_drop(fds, len, punched, MIB));
        assert_int_equal(punched[0], 2 * MIB);
        assert_int_equal(fstat(fds[0], &st), 0);
        assert_true((uint64_t)st.st_blocks * 512 < 2 * MIB);
        close(fds[0]);
        (void)remove(path);
}

/* A box may say any length up to 2^62: what its place has taken never wraps around. */
static void test_lengths_that_do_not_fit(void **state)
{
        struct world *w = *state;
        const struct place place = { .id = PLACE };
        const int64_t most = exec_output_bytes((uint64_t)1 << 62, (uint64_t)1 << 62);

        assert_true(most > 0);
        assert_true(exec_output_bytes(UINT64_MAX, UINT64_MAX) > 0);
        assert_int_equal(exec_output_bytes(3, 4), 7);
        for (int i = 0; i < 5; i++) {
                exec_output_took(w->hub, PLACE, most);
                assert_int_equal(
                        exec_output_max(&(struct box_output){
                                .limit = MIB,
                                .place_limit = 1024 * MIB,
                                .place_taken = exec_output_limits(&w->t->rt, &place).place_taken }),
                        0);
        }
        exec_output_took(w->hub, PLACE, -most);
        exec_output_took(w->hub, PLACE, -most);
        exec_output_took(w->hub, PLACE, -INT64_MAX);
        assert_int_equal(exec_output_limits(&w->t->rt, &place).place_taken, 0);
}

static int insert_open(struct db *db, void *arg, struct err *err)
{
        static const char *const rows[] = {
                "INSERT INTO environments (id, company_id, name, driver, status, created_at, "
                "updated_at) VALUES ('e', '" TEST_COMPANY "', 'E', 'local', 'active', 1, 1)",
                "INSERT INTO environment_leases (id, company_id, environment_id, place_id, status, "
                "lease_policy, created_at, updated_at, acquired_at, last_used_at) VALUES ('l', "
                "'" TEST_COMPANY "', 'e', '" PLACE "', 'active', 'ephemeral', 1, 1, 1, 1)",
                "INSERT INTO executions (id, company_id, lease_id, place_id, command, status, "
                "created_at, updated_at) VALUES ('x', '" TEST_COMPANY "', 'l', '" PLACE
                "', 'true', 'running', 1, 1)",
        };
        int r = 0;

        for (size_t i = 0; i < ARRAY_LEN(rows) && r >= 0; i++)
                r = db_exec(db, rows[i], DB_NO_ARGS, err);
        return r;
}

/* Somebody waited for a place to be quiet and gave up: the next one can. */
static void test_who_gave_up_is_in_nobodys_way(void **state)
{
        struct world *w = *state;
        const struct place place = { .id = PLACE, .driver = "local" };
        struct err e = { 0 };
        struct box *box;
        struct exec *running;

        if (store_write(&w->t->op, w->t->rt.store, insert_open, NULL, &e) < 0)
                fail_msg("%s", e.msg);
        box = box_add(w->hub, kept_place_new(&place));
        running = exec_add(w->hub, "e0000000-0000-4000-8000-000000000001");
        exec_join_box(running, box);
        for (int i = 0; i < 2; i++) {
                struct op op = w->t->op;

                op.deadline_ms = clock_mono_ms() + 20;
                assert_int_equal(exec_end_all(&op, &w->t->rt, &place, &e), ERR_TIMEOUT);
                mail_catch_up(w->hub->config.mail);
                assert_null(box->quiet);
        }
        exec_drop(running);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_what_cannot_be_dropped_is_said, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(test_lengths_that_do_not_fit, setup, teardown),
                cmocka_unit_test_setup_teardown(test_who_gave_up_is_in_nobodys_way, setup,
                                                teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
