/* Kinds of places: how one is found, and that a new one is a folder (kind_attic) and a line. */
#include "secret_fixture.h"
#include "store_read.h"

#include "core/environments/env_select.h"
#include "core/environments/environment.h"
#include "core/environments/probe.h"
#include "core/leases/environment_delete.h"
#include "core/leases/leaks.h"
#include "core/leases/lease.h"
#include "kind_attic/attic.h"

static const struct runtime builtin = { .kinds = builtin_kinds };

static void test_finding(void **state)
{
        const struct kind *fake = kind_find(&builtin, "sandbox", "fake");
        const struct kind *berth = kind_find(&builtin, "sandbox", "berth");
        const struct kind *others = kind_find(&builtin, "sandbox", "somebody's");
        json_t *config = json_pack("{s:s}", "provider", " berth ");

        (void)state;
        assert_string_equal(fake->provider, "fake");
        assert_string_equal(berth->provider, "berth");
        assert_null(others->provider);
        assert_ptr_equal(kind_find(&builtin, "sandbox", NULL), fake);
        assert_ptr_equal(kind_of_config(&builtin, "sandbox", config), berth);
        assert_string_equal(kind_find(&builtin, "ssh", "anything")->driver, "ssh");
        assert_null(kind_find(&builtin, "pigeon", NULL));
        assert_null(kind_find(&builtin, NULL, NULL));
        json_decref(config);
}

/* Each has what every caller takes for granted. */
static void test_every_table_is_whole(void **state)
{
        (void)state;
        for (const struct kind *const *k = builtin_kinds; *k; k++) {
                assert_non_null((*k)->driver);
                assert_non_null((*k)->label);
                assert_non_null((*k)->isolation);
                assert_non_null((*k)->normalize);
                assert_non_null((*k)->probe);
                assert_non_null((*k)->plan);
                assert_non_null((*k)->open);
                assert_non_null((*k)->close);
                assert_non_null((*k)->realization);
                assert_false((*k)->isolated && (*k)->runs_on_host);
                assert_false((*k)->transfer && !(*k)->route); /* callback_open.c asks both */
                assert_true(!(*k)->claim == !(*k)->unclaim);
                /* kind_runs_on_host() asks any kind of a driver */
                assert_int_equal((*k)->runs_on_host, kind_runs_on_host(&builtin, (*k)->driver));
        }
}

static void test_drivers_come_once(void **state)
{
        static const char *const expected[] = { "local", "ssh", "sandbox", "plugin", NULL };
        const char *const *found;
        struct arena arena;
        size_t i;

        (void)state;
        arena_init(&arena);
        found = kind_drivers(&builtin, &arena);
        for (i = 0; expected[i]; i++)
                assert_string_equal(found[i], expected[i]);
        assert_null(found[i]);
        arena_done(&arena);
}

/* -- A new kind ------------------------------------------------------------------------------- */

/* The folder is kind_attic; the line is the second. */
static const struct kind *const with_attic[] = {
        &kind_attic,
        NULL,
};

static int attic_setup(void **state)
{
        struct secret_world *w;
        int r = secret_world_setup(state);

        w = *state;
        w->rt->kinds = with_attic;
        attic = (struct attic){ 0 };
        return r;
}

static struct environment make_attic(struct secret_world *w)
{
        struct environment_change wish = {
                .name = "Up",
                .driver = "attic",
                .config = doc(w, "{\"shelf\":\" top \",\"key\":\"" ATTIC_KEY "\"}"),
        };
        struct environment env;

        assert_done(environment_create(w->op, w->rt, TEST_COMPANY, &wish, &env, err));
        return env;
}

static void test_a_new_kind_is_configured(void **state)
{
        struct secret_world *w = *state;
        struct environment env = make_attic(w), other;
        const json_t *config = doc(w, "%s", env.config);

        assert_string_equal(json_get_string(config, "shelf"), "top");
        assert_null(strstr(env.config, ATTIC_KEY));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets WHERE name LIKE "
                                       "'environment-attic-up-key-________'"),
                         1);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_bindings WHERE "
                                       "config_path = 'keyRef'"),
                         1);
        assert_refused(
                environment_create(w->op, w->rt, TEST_COMPANY,
                                   &(struct environment_change){ .name = "b", .driver = "attic" },
                                   &other, err),
                ERR_UNPROCESSABLE, "An attic needs a shelf.");
        assert_done(environment_delete(w->op, w->rt, env.id, false, NULL, &env, err));
        assert_int_equal(attic.forgotten, 1);
}

static void test_a_new_kind_is_probed(void **state)
{
        struct secret_world *w = *state;
        CLEAN(probe_result_done) struct probe_result answer = { 0 };
        struct environment env = make_attic(w);

        assert_done(probe_saved(w->op, w->rt, env.id, &answer, err));
        assert_true(answer.ok);
        assert_string_equal(answer.driver, "attic");
        assert_string_equal(buf_str(&answer.summary), "The attic opens.");
}

struct choice {
        struct secret_world *w;
        const char *id;
};

static int choose(struct db *db, void *arg, struct err *err)
{
        struct choice *q = arg;

        return env_select(db, q->w->rt, q->w->op, TEST_COMPANY, q->id, ENV_FOR_WORK, NULL, err);
}

static void test_a_new_kind_takes_work(void **state)
{
        struct secret_world *w = *state;
        struct environment env = make_attic(w);
        struct choice q = { w, env.id };

        assert_done(store_read(w->op, w->rt->store, choose, &q, err));
}

static void test_a_new_kind_is_leased(void **state)
{
        struct secret_world *w = *state;
        struct leaks leaks;
        json_t *answer;
        const char *text;
        struct environment env = make_attic(w);
        struct lease_request request = { .ttl_ms = 60000 };
        struct lease_record record;
        json_t *workspace = doc(w, "{\"localPath\":\"/srv/w\"}");

        assert_done(lease_acquire(w->op, w->rt, &env, &request, &record, err));
        assert_string_equal(attic.box, record.lease.place_id);
        assert_int_equal(attic.claims, 1);
        assert_done(lease_realize(w->op, w->rt, record.lease.id, workspace, &answer, err));
        text = json_to_arena(w->op->arena, answer);
        assert_non_null(strstr(text, "\"transport\":\"attic\""));
        assert_non_null(strstr(text, "Attic workspace realized at /attic."));
        assert_refused(lease_set_paused(w->op, w->rt, record.lease.id, true, &answer, err),
                       ERR_UNPROCESSABLE,
                       "Environment driver \"attic\" does not support lease pause.");
        assert_done(lease_release(w->op, w->rt, record.lease.id, LEASE_RELEASED, &record, err));
        assert_string_equal(record.lease.cleanup_status, "success");
        assert_string_equal(attic.box, "");
        assert_int_equal(attic.claims, 0);

        snprintf(attic.box, sizeof(attic.box), "%s", uuid_new().s); /* nobody knows it */
        w->rt->data_dir = w->t->dir;
        assert_done(leaks_find(w->op, w->rt, &leaks, err));
        assert_int_equal(leaks.n, 1);
        assert_string_equal(leaks.at[0].tag, attic.box);
}

#define WITH_ATTIC(fn) cmocka_unit_test_setup_teardown(fn, attic_setup, secret_world_teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_finding),
                cmocka_unit_test(test_every_table_is_whole),
                cmocka_unit_test(test_drivers_come_once),
                WITH_ATTIC(test_a_new_kind_is_configured),
                WITH_ATTIC(test_a_new_kind_is_probed),
                WITH_ATTIC(test_a_new_kind_takes_work),
                WITH_ATTIC(test_a_new_kind_is_leased),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
