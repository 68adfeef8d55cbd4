/* Secrets in the configuration of environments. */
#include "secret_fixture.h"

#include "core/environments/env_secrets.h"
#include "core/environments/environment.h"
#include "core/leases/environment_delete.h"

#define SSH "\"host\":\"h\",\"username\":\"u\",\"remoteWorkspacePath\":\"/w\""

static const char schema_text[] =
        "{\"properties\":{\"apiKey\":{\"format\":\"secret-ref\"},\"auth\":{\"properties\":"
        "{\"token\":{\"format\":\"secret-ref\"}}}}}";

static struct environment make_ssh(struct secret_world *w, const char *more)
{
        struct environment env;
        struct environment_change wish = { .name = "My Box!",
                                           .driver = "ssh",
                                           .config = doc(w, "{" SSH "%s}", more) };

        assert_done(environment_create(w->op, w->rt, TEST_COMPANY, &wish, &env, err));
        return env;
}

static const char *key_of(struct secret_world *w, const struct environment *env)
{
        return json_get_string(json_object_get(doc(w, "%s", env->config), "privateKeySecretRef"),
                               "secretId");
}

static int patch(struct secret_world *w, const char *id, const char *body, struct err *err)
{
        json_t *given = doc(w, "%s", body);
        struct environment_change wish = { .name = json_get_string(given, "name"),
                                           .driver = json_get_string(given, "driver"),
                                           .config = json_object_get(given, "config") };
        struct environment env;

        return environment_update(w->op, w->rt, id, &wish, &env, err);
}

/* environment-runtime 7.74; http-api 8.17 */
static void test_the_configured_provider_keeps_the_key(void **state)
{
        struct secret_world *w = *state;

        w->rt->settings.secrets_provider = VAULT_AWS;
        (void)make_ssh(w, ",\"privateKey\":\"PEM\"");
        assert_int_equal(vault_calls.creates, 1);
        assert_string_equal(sql_text(w, "SELECT provider FROM company_secrets"), VAULT_AWS);
}

/* H17: the row cannot be written, so there is no secret either, here and outside. */
static void test_no_environment_no_secret(void **state)
{
        struct secret_world *w = *state;
        struct environment_change wish = { .name = "b",
                                           .driver = "ssh",
                                           .config = doc(w, "{" SSH ",\"privateKey\":\"PEM\"}") };
        struct environment env;

        run_sql(w,
                "CREATE TRIGGER t BEFORE INSERT ON environments BEGIN SELECT RAISE(ABORT, 'no'); "
                "END");
        for (size_t i = 0; i < 2; i++) {
                w->rt->settings.secrets_provider = i ? VAULT_AWS : VAULT_LOCAL;
                assert_true(environment_create(w->op, w->rt, TEST_COMPANY, &wish, &env,
                                               &(struct err){ 0 }) < 0);
                assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
        }
        assert_int_equal(vault_calls.creates, 1);
        assert_int_equal(vault_calls.removes, 1);
}

/* H16: a key that was picked from the company's secrets is nobody's to remove. */
static void test_a_picked_secret_is_left_alone(void **state)
{
        struct secret_world *w = *state;
        const char *picked = make_secret(w, "shared", "PEM");
        struct environment env = make_ssh(
                w, arena_printf(w->op->arena,
                                ",\"privateKeySecretRef\":{\"type\":\"secret_ref\",\"secretId\":"
                                "\"%s\"}",
                                picked));
        struct environment gone;

        assert_done(patch(w, env.id, "{\"config\":{\"privateKey\":\"OTHER\"}}", err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 2);
        assert_done(environment_delete(w->op, w->rt, env.id, false, NULL, &gone, err));
        assert_string_equal(sql_text(w, "SELECT id FROM company_secrets"), picked);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 1);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_bindings"), 0);
}

/* H16: one that the environment made stays when somebody else uses it by now. */
static void test_a_shared_secret_outlives_its_maker(void **state)
{
        struct secret_world *w = *state;
        struct environment env = make_ssh(w, ",\"privateKey\":\"PEM\""), gone;
        const char *key = key_of(w, &env);

        bind(w, key, "agent", "a1", "env.KEY", 0);
        assert_done(environment_delete(w->op, w->rt, env.id, false, NULL, &gone, err));
        assert_string_equal(sql_text(w, "SELECT id FROM company_secrets"), key);
        assert_null(sql_text(w, "SELECT owner_environment_id FROM company_secrets"));
}

/* Another company's secret, or none, is refused with the environment. */
static void test_foreign_references_are_refused(void **state)
{
        struct secret_world *w = *state;
        struct environment_change wish;
        struct environment env;
        struct secret s;

        assert_done(create_from(w->op, w->rt, OTHER_COMPANY,
                                doc(w, "{\"name\":\"theirs\",\"value\":\"x\"}"), &s, err));
        wish = (struct environment_change){
                .name = "b",
                .driver = "ssh",
                .config = doc(w,
                              "{" SSH ",\"privateKeySecretRef\":{\"type\":\"secret_ref\","
                              "\"secretId\":\"%s\"}}",
                              s.id),
        };
        assert_refused(environment_create(w->op, w->rt, TEST_COMPANY, &wish, &env, err),
                       ERR_UNPROCESSABLE, "Secret must belong to same company");
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM environments"), 0);
}

/* H15: saving the same configuration again keeps the one binding. */
static void test_saving_again(void **state)
{
        struct secret_world *w = *state;
        struct environment env = make_ssh(w, ",\"privateKey\":\"PEM\"");

        for (int i = 0; i < 3; i++)
                assert_done(patch(w, env.id, "{\"config\":{\"port\":2222}}", err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_bindings"), 1);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 1);
        assert_done(patch(w, env.id, "{\"driver\":\"local\"}", err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_bindings"), 0);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
}

/* H12: while something lives in the environment its key stays, and opens for giving it up. */
static void test_a_key_outlives_its_replacement_while_places_live(void **state)
{
        struct secret_world *w = *state;
        struct environment env = make_ssh(w, ",\"privateKey\":\"OLD\"");
        struct secret_context cleanup = { .for_cleanup = true }, plain = { 0 };
        json_t *recorded = doc(w, "%s", env.config), *resolved = NULL;

        run_sql(w,
                arena_printf(w->op->arena,
                             "INSERT INTO places (id, company_id, environment_id, driver, state, "
                             "owner_node, owner_boot, owner_instance, created_at, updated_at) "
                             "VALUES ('p', '" TEST_COMPANY "', '%s', 'ssh', 'held', 'n', 'b', "
                             "'i', 1, 1)",
                             env.id));
        assert_done(patch(w, env.id, "{\"config\":{\"privateKey\":\"NEW\"}}", err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 2);
        assert_refused(secret_resolve_config(w->op, w->rt, TEST_COMPANY, env.id,
                                             kind_find(w->rt, "ssh", NULL), recorded, NULL, &plain,
                                             &resolved, err),
                       ERR_UNPROCESSABLE, "not bound");
        assert_done(secret_resolve_config(w->op, w->rt, TEST_COMPANY, env.id,
                                          kind_find(w->rt, "ssh", NULL), recorded, NULL, &cleanup,
                                          &resolved, err));
        assert_string_equal(json_get_string(resolved, "privateKey"), "OLD");
        json_decref(resolved);
        run_sql(w, "UPDATE places SET state = 'gone'");
        assert_done(env_secrets_sweep(w->op, w->rt, err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 1);
}

static void test_resolving_ssh(void **state)
{
        struct secret_world *w = *state;
        struct environment env = make_ssh(w, ",\"privateKey\":\" PEM \"");
        json_t *config = doc(w, "%s", env.config), *resolved = NULL;
        struct secret_context context = { .run_id = "r1", .issue_id = "i1" };

        assert_refused(secret_resolve_config(w->op, w->rt, TEST_COMPANY, NULL,
                                             kind_find(w->rt, "ssh", NULL), config, NULL, &context,
                                             &resolved, err),
                       ERR_UNPROCESSABLE, "Runtime secret resolution requires an environment id");
        assert_done(secret_resolve_config(w->op, w->rt, TEST_COMPANY, env.id,
                                          kind_find(w->rt, "ssh", NULL), config, NULL, &context,
                                          &resolved, err));
        assert_string_equal(json_get_string(resolved, "privateKey"), "PEM");
        assert_true(json_is_null(json_object_get(config, "privateKey")));
        json_decref(resolved);
        assert_string_equal(sql_text(w, "SELECT consumer_type || consumer_id = 'environment' || "
                                        "(SELECT id FROM environments) AND heartbeat_run_id = 'r1' "
                                        "AND issue_id = 'i1' AND actor_type = 'system' AND "
                                        "config_path = 'privateKeySecretRef' FROM "
                                        "secret_access_events"),
                            "1");
}

struct save {
        struct secret_world *w;
        struct environment *env;
        json_t *config, *schema;
        struct env_secrets secrets;
};

static int save(struct db *db, void *arg, struct err *err)
{
        struct save *q = arg;

        return env_secrets_commit(db, q->w->op, q->w->rt, q->env, q->config, q->schema, &q->secrets,
                                  err);
}

/* The members that a schema declares; none without a schema. */
static void test_fields_of_a_schema(void **state)
{
        struct secret_world *w = *state;
        struct environment env = {
                .id = ENVIRONMENT, .company_id = TEST_COMPANY, .name = "Box", .driver = "sandbox"
        };
        const char *given = make_secret(w, "given", "picked");
        struct save q = { .w = w, .env = &env, .schema = doc(w, "%s", schema_text) };
        json_t *resolved = NULL;

        q.config = doc(w,
                       "{\"provider\":\"p\",\"apiKey\":\"  value  \",\"other\":\"  kept \","
                       "\"auth\":{\"token\":\"%s\"}}",
                       given);
        assert_done(env_secrets_extract(w->op, w->rt, &env, q.config, q.schema, &q.secrets, err));
        assert_done(store_write(w->op, w->rt->store, save, &q, err));
        env_secrets_finish(w->op, w->rt, &q.secrets);
        assert_null(strstr(json_to_arena(w->op->arena, q.config), "value"));
        assert_string_equal(json_get_string(q.config, "other"), "  kept ");
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets WHERE name LIKE "
                                       "'environment-sandbox-box-apikey-________' AND description "
                                       "= 'Secret for Box apikey.'"),
                         1);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_bindings"), 2);
        assert_done(secret_resolve_config(w->op, w->rt, TEST_COMPANY, ENVIRONMENT,
                                          kind_find(w->rt, "sandbox", "any"), q.config, q.schema,
                                          NULL, &resolved, err));
        assert_string_equal(json_get_string(resolved, "apiKey"), "value");
        assert_string_equal(json_get_string(json_object_get(resolved, "auth"), "token"), "picked");
        json_decref(resolved);
        /* no schema, no secret */
        q.config = doc(w, "{\"provider\":\"p\",\"apiKey\":\"value\"}");
        assert_done(env_secrets_extract(w->op, w->rt, &env, q.config, NULL, &q.secrets, err));
        assert_int_equal(q.secrets.n_drafts, 0);
        env_secrets_abandon(w->op, &q.secrets);
        /* blank is nothing */
        q.config = doc(w, "{\"provider\":\"p\",\"apiKey\":\"  \"}");
        assert_done(env_secrets_extract(w->op, w->rt, &env, q.config, q.schema, &q.secrets, err));
        assert_null(json_object_get(q.config, "apiKey"));
        env_secrets_abandon(w->op, &q.secrets);
}

int main(void)
{
#define WORLD(test) cmocka_unit_test_setup_teardown(test, secret_world_setup, secret_world_teardown)
        const struct CMUnitTest tests[] = {
                WORLD(test_the_configured_provider_keeps_the_key),
                WORLD(test_no_environment_no_secret),
                WORLD(test_a_picked_secret_is_left_alone),
                WORLD(test_a_shared_secret_outlives_its_maker),
                WORLD(test_foreign_references_are_refused),
                WORLD(test_saving_again),
                WORLD(test_a_key_outlives_its_replacement_while_places_live),
                WORLD(test_resolving_ssh),
                WORLD(test_fields_of_a_schema),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
