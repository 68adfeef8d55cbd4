/* Rows of workspaces, salvages and execution workspaces, for every back end. */
#include "store_suite.h"

#include "store/execution_workspaces.h"
#include "store/leases.h"
#include "store/salvages.h"
#include "store/workspaces.h"

COLLECT(workspace_row)
COLLECT(salvage)
COLLECT(execution_workspace)

static struct workspace_row a_workspace(const char *id, const char *lease, const char *state,
                                        int64_t at)
{
        return (struct workspace_row){ .id = id,
                                       .company_id = "c1",
                                       .lease_id = lease,
                                       .place_id = "p1",
                                       .state = state,
                                       .epoch = 1,
                                       .way = "overlay",
                                       .local_path = "/srv",
                                       .exclude = "[]",
                                       .staged_ns = 5,
                                       .owner_instance = "i1",
                                       .created_at = at,
                                       .updated_at = at };
}

static int workspace_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct workspace_row one = a_workspace("w1", "l1", WORKSPACE_ENDED, 1);
        struct workspace_row two = a_workspace("w2", "l1", WORKSPACE_STAGING, 2);
        struct workspace_row other = a_workspace("w3", "l2", WORKSPACE_STAGED, 3);
        struct workspace_row got, to;
        struct ids ids = { "" };

        CHECK(store_suite_company(db, arg, err) >= 0);
        CHECK(workspaces_insert(db, &one, err) >= 0);
        CHECK(workspaces_insert(db, &two, err) >= 0);
        CHECK(workspaces_insert(db, &other, err) >= 0);
        CHECK(workspaces_of_lease(db, "l1", a, &got, err) >= 0 && streq(got.id, "w2"));
        CHECK(workspaces_get(db, "none", a, &got, NULL) == ERR_NOT_FOUND);
        CHECK(workspaces_of_lease(db, "none", a, &got, NULL) == ERR_NOT_FOUND);
        CHECK(workspaces_living(db, NULL, a, collect_workspace_row, &ids, err) >= 0);
        CHECK(streq(ids.text, "w2 w3"));
        to = two;
        to.state = WORKSPACE_STAGED;
        to.epoch = 2;
        to.cwd = "/workspace";
        to.restored_at = 9;
        CHECK(workspaces_replace(db, &two, &to, err) == 1);
        CHECK(workspaces_replace(db, &two, &to, err) == 0); /* an old epoch */
        CHECK(workspaces_get(db, "w2", a, &got, err) >= 0);
        CHECK(streq(got.state, WORKSPACE_STAGED) && streq(got.cwd, "/workspace"));
        CHECK(got.restored_at == 9 && !got.report && got.staged_ns == 5 && got.epoch == 2);
        ids = (struct ids){ "" };
        CHECK(workspaces_living(db, "elsewhere", a, collect_workspace_row, &ids, err) >= 0);
        CHECK(streq(ids.text, ""));
        return 0;
}

static int insert_second_living(struct db *db, void *arg, struct err *err)
{
        struct workspace_row row = a_workspace("w9", "l2", WORKSPACE_STAGING, 9);

        return workspaces_insert(db, &row, err);
}

static void test_workspaces(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, workspace_rows, &f->arena);
        assert_int_equal(store_write(&f->op, f->store, insert_second_living, NULL, &f->err),
                         ERR_CONFLICT);
}

static struct salvage a_salvage(const char *id, const char *workspace, const char *state,
                                int64_t at)
{
        return (struct salvage){ .id = id,
                                 .company_id = "c1",
                                 .workspace_id = workspace,
                                 .lease_id = "l1",
                                 .environment_id = "e1",
                                 .state = state,
                                 .reason = "released",
                                 .local_path = "/srv",
                                 .exclude = "[]",
                                 .expires_at = 100 * at,
                                 .created_at = at,
                                 .updated_at = at };
}

static int salvage_rows(struct db *db, void *arg, struct err *err)
{
        static const struct {
                const char *id, *workspace, *state;
        } rows[] = {
                { "s1", "w1", SALVAGE_READY },
                { "s2", "w1", SALVAGE_SAVING }, /* its workspace has ended */
                { "s3", "w2", SALVAGE_SAVING }, /* its workspace lives */
                { "s4", "w1", SALVAGE_DROPPING },
                { "s5", "w1", SALVAGE_READY },
        };
        struct arena *a = arg;
        struct workspace_row ended = a_workspace("w1", "l1", WORKSPACE_ENDED, 1);
        struct workspace_row living = a_workspace("w2", "l1", WORKSPACE_STAGED, 2);
        struct salvage got, to;
        struct ids ids = { "" };

        CHECK(store_suite_company(db, arg, err) >= 0);
        CHECK(workspaces_insert(db, &ended, err) >= 0 && workspaces_insert(db, &living, err) >= 0);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct salvage row =
                        a_salvage(rows[i].id, rows[i].workspace, rows[i].state, (int64_t)i + 1);

                CHECK(salvages_insert(db, &row, err) >= 0);
        }
        CHECK(salvages_list(db, "c1", 0, NULL, 10, a, collect_salvage, &ids, err) >= 0);
        CHECK(streq(ids.text, "s5 s1"));
        ids = (struct ids){ "" };
        CHECK(salvages_list(db, "c1", 5, "s5", 10, a, collect_salvage, &ids, err) >= 0);
        CHECK(streq(ids.text, "s1"));
        ids = (struct ids){ "" };
        /* One that nobody has seen goes only when that is wished; the first look counts. */
        CHECK(salvages_over(db, 5, false, a, collect_salvage, &ids, err) >= 0);
        CHECK(streq(ids.text, "s2 s4"));
        ids = (struct ids){ "" };
        CHECK(salvages_over(db, 5, true, a, collect_salvage, &ids, err) >= 0);
        CHECK(streq(ids.text, "s1 s2 s4"));
        ids = (struct ids){ "" };
        CHECK(salvages_note_seen(db, "s1", 50, 70, err) == 1);
        CHECK(salvages_note_seen(db, "s1", 60, 80, err) == 0);
        CHECK(salvages_get(db, "s1", a, &got, err) >= 0 && got.seen_at == 50 &&
              got.expires_at == 70);
        CHECK(salvages_over(db, 50, false, a, collect_salvage, &ids, err) >= 0);
        CHECK(streq(ids.text, "s2 s4"));
        ids = (struct ids){ "" };
        CHECK(salvages_over(db, 51, false, a, collect_salvage, &ids, err) >= 0);
        CHECK(streq(ids.text, "s1 s2 s4"));
        CHECK(salvages_saving(db, "w2", a, &got, err) >= 0 && streq(got.id, "s3"));
        to = got;
        to.state = SALVAGE_READY;
        to.changes = 2;
        to.umask = 18;
        CHECK(salvages_move(db, "s3", SALVAGE_SAVING, &to, err) == 1);
        CHECK(salvages_move(db, "s3", SALVAGE_SAVING, &to, err) == 0);
        CHECK(salvages_saving(db, "w2", a, &got, NULL) == ERR_NOT_FOUND);
        CHECK(salvages_get(db, "s3", a, &got, err) >= 0 && got.changes == 2 && got.umask == 18);
        CHECK(salvages_delete(db, "s3", SALVAGE_DROPPING, err) == 0);
        CHECK(salvages_delete(db, "s3", SALVAGE_READY, err) == 1);
        CHECK(salvages_get(db, "s3", a, &got, NULL) == ERR_NOT_FOUND);
        return 0;
}

static void test_salvages(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, salvage_rows, &f->arena);
}

static int execution_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct execution_workspace row = {
                .id = "x1",
                .company_id = "c1",
                .project_id = "pr",
                .mode = "shared_workspace",
                .strategy_type = "project_primary",
                .name = "one",
                .status = "active",
                .provider_type = "local_fs",
                .last_used_at = 1,
                .opened_at = 1,
                .created_at = 1,
                .updated_at = 1,
        };
        struct execution_workspace_filter all = { 0 }, reusable = { .reuse_eligible = true };
        struct execution_workspace got;
        int64_t leases, issues;
        struct ids ids = { "" };

        CHECK(store_suite_company(db, arg, err) >= 0);
        CHECK(db_exec(db,
                      "INSERT INTO projects (id, company_id, name, created_at, updated_at) "
                      "VALUES ('pr', 'c1', 'P', 1, 1)",
                      DB_NO_ARGS, err) == 1);
        CHECK(execution_workspaces_insert(db, &row, err) >= 0);
        row.id = "x2";
        row.status = "archived";
        row.last_used_at = 2;
        CHECK(execution_workspaces_insert(db, &row, err) >= 0);
        CHECK(execution_workspaces_list(db, "c1", &all, a, collect_execution_workspace, &ids,
                                        err) >= 0);
        CHECK(streq(ids.text, "x2 x1"));
        ids = (struct ids){ "" };
        CHECK(execution_workspaces_list(db, "c1", &reusable, a, collect_execution_workspace, &ids,
                                        err) >= 0);
        CHECK(streq(ids.text, "x1"));
        CHECK(execution_workspaces_get(db, "none", a, &got, NULL) == ERR_NOT_FOUND);
        CHECK(execution_workspaces_get(db, "x2", a, &got, err) >= 0 && !got.metadata);
        got.name = "new";
        got.updated_at = 2;
        CHECK(execution_workspaces_replace(db, &got, 1, err) == 1);
        CHECK(execution_workspaces_replace(db, &got, 1, err) == 0);
        CHECK(execution_workspaces_count_users(db, "x1", &leases, &issues, err) >= 0);
        CHECK(leases == 0 && issues == 0);
        return 0;
}

static void test_execution_workspaces(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, execution_rows, &f->arena);
}

#define ROW_TEST(name)                                                                             \
        cmocka_unit_test_setup_teardown(name, store_suite_setup, store_suite_teardown)

int store_suite_run_workspaces(void)
{
        const struct CMUnitTest tests[] = {
                ROW_TEST(test_workspaces),
                ROW_TEST(test_salvages),
                ROW_TEST(test_execution_workspaces),
        };

        return cmocka_run_group_tests_name("workspaces", tests, NULL, NULL);
}
