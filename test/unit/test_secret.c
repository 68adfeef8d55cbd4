/* threads: two rotations at once. */
#include "secret_fixture.h"
#include "store_read.h"

#include <pthread.h>

static const struct secret_use use_env = { .consumer_type = "environment",
                                           .consumer_id = ENVIRONMENT,
                                           .config_path = "privateKeySecretRef",
                                           .actor_type = "system" };

static int resolve_as(struct secret_world *w, const char *id, const struct secret_use *use,
                      int64_t version, char *ret, struct err *err)
{
        struct secret_value value = { 0 };
        int r = secret_resolve(w->op, w->rt, TEST_COMPANY, id, version, use, &value, err);

        if (r >= 0)
                snprintf(ret, 256, "%s", value.data);
        secret_value_done(&value);
        return r;
}

static void insert_agent(struct secret_world *w)
{
        run_sql(w, "INSERT INTO agents (id, company_id, name, url_key, created_at, updated_at) "
                   "VALUES ('a1', '" TEST_COMPANY "', 'CodexCoder', 'codexcoder', 1, 1)");
}

struct env_sync {
        struct secret_world *w;
        json_t *env;
        json_t *normal;
};

static int check_env(struct db *db, void *arg, struct err *err)
{
        struct env_sync *q = arg;

        return secret_check_env(db, q->w->rt, TEST_COMPANY, q->env, q->w->op->arena, &q->normal,
                                err);
}

static int sync_env(struct db *db, void *arg, struct err *err)
{
        struct env_sync *q = arg;

        return secret_sync_env_bindings(db, TEST_COMPANY, "agent", "a1", "env.", q->env,
                                        q->w->op->arena, err);
}

/* environment-runtime 7.128 */
static void test_a_foreign_secret_in_a_variable(void **state)
{
        struct secret_world *w = *state;
        struct env_sync q = { .w = w };
        struct secret s;

        assert_done(create_from(w->op, w->rt, OTHER_COMPANY,
                                doc(w, "{\"name\":\"theirs\",\"value\":\"x\"}"), &s, err));
        q.env = doc(w, "{\"TOKEN\":{\"type\":\"secret_ref\",\"secretId\":\"%s\"}}", s.id);
        assert_refused(store_read(w->op, w->rt->store, check_env, &q, err), ERR_UNPROCESSABLE,
                       "Secret must belong to same company");
        assert_refused(store_write(w->op, w->rt->store, sync_env, &q, err), ERR_UNPROCESSABLE,
                       "same company");
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_bindings"), 0);
}

static void test_the_forms_of_variables(void **state)
{
        static const struct {
                const char *env, *text;
        } wrong[] = {
                { "{\"1A\":\"x\"}", "Invalid environment variable name: 1A" },
                { "{\"A\":{\"type\":\"other\"}}", "Invalid environment binding for key: A" },
                { "{\"A\":5}", "Invalid environment binding for key: A" },
                { "{\"A\":{\"type\":\"secret_ref\",\"secretId\":\"no\"}}",
                  "Invalid environment binding for key: A" },
                { "{\"A\":\"***REDACTED***\"}",
                  "Refusing to persist redacted placeholder for key: A" },
                { "{\"API_TOKEN\":\"x\"}",
                  "Strict secret mode requires secret references for sensitive key: API_TOKEN" },
        };
        struct secret_world *w = *state;
        struct env_sync q = { .w = w };

        w->rt->settings.secrets_strict = true;
        for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
                q.env = doc(w, "%s", wrong[i].env);
                assert_refused(store_read(w->op, w->rt->store, check_env, &q, err),
                               ERR_UNPROCESSABLE, wrong[i].text);
        }
        q.env = doc(w, "{\"A\":\"x\",\"TOKEN\":\" \"}");
        assert_done(store_read(w->op, w->rt->store, check_env, &q, err));
        assert_string_equal(json_to_arena(w->op->arena, q.normal),
                            "{\"A\":{\"type\":\"plain\",\"value\":\"x\"},"
                            "\"TOKEN\":{\"type\":\"plain\",\"value\":\" \"}}");
        json_decref(q.normal);
}

struct rebind {
        struct secret_world *w;
        const char *secret;
};

static int bind_again(struct db *db, void *arg, struct err *err)
{
        struct rebind *q = arg;
        struct secret_ref ref = { .secret_id = q->secret, .config_path = "env.A" };

        return secret_bind(db, TEST_COMPANY, "agent", "a1", &ref, q->w->op->arena, err);
}

/* environment-runtime 7.129 */
static void test_a_path_has_one_binding(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "v");
        struct rebind q = { w, make_secret(w, "two", "v") };

        bind(w, id, "agent", "a1", "env.A", 0);
        assert_refused(store_write(w->op, w->rt->store, bind_again, &q, err), ERR_CONFLICT,
                       "Secret binding already exists at env.A");
}

static int keep_usage(void *ctx, const struct secret_usage *usage)
{
        *(struct secret_usage *)ctx = *usage;
        return 0;
}

/* environment-runtime 7.130 */
static void test_usage_names_the_target(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "v");
        struct secret_usage usage;
        struct secret s;

        insert_agent(w);
        bind(w, id, "agent", "a1", "env.A", 0);
        assert_done(secret_get(w->op, w->rt, id, &s, err));
        assert_int_equal(s.reference_count, 1);
        assert_done(secret_list_usage(w->op, w->rt, id, keep_usage, &usage, err));
        assert_string_equal(usage.target.label, "CodexCoder");
        assert_string_equal(usage.target.slug, "codexcoder");
        assert_string_equal(usage.target.status, "idle");
}

/* environment-runtime 7.131; http-api 8.64 */
static void test_only_the_bound_consumer_gets_it(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "hunter2");
        struct secret_use other = use_env;
        char value[256];

        bind(w, id, "environment", ENVIRONMENT, "privateKeySecretRef", 0);
        other.consumer_id = "somebody";
        assert_refused(resolve_as(w, id, &other, 0, value, err), ERR_UNPROCESSABLE,
                       "Secret is not bound to environment:somebody at privateKeySecretRef");
        assert_done(resolve_as(w, id, &use_env, 0, value, err));
        assert_string_equal(value, "hunter2");
        assert_string_equal(sql_text(w, "SELECT group_concat(outcome || ':' || "
                                        "COALESCE(error_code, ''), '|') FROM (SELECT * FROM "
                                        "secret_access_events ORDER BY created_at)"),
                            "failure:Secret is not bound to environment:somebody at "
                            "privateKeySecretRef|success:");
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM secret_access_events WHERE "
                                       "quote(id) || quote(actor_id) || quote(error_code) || "
                                       "quote(config_path) LIKE '%hunter2%'"),
                         0);
        assert_true(sql_number(w, "SELECT COUNT(*) FROM company_secrets WHERE last_resolved_at IS "
                                  "NOT NULL") == 1);
        other.config_path = " ";
        assert_refused(resolve_as(w, id, &other, 0, value, err), ERR_UNPROCESSABLE,
                       "Secret resolution requires a binding config path");
}

/* environment-runtime 7.132 */
static void test_variables_replace_only_their_own_bindings(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "v");
        struct env_sync q = { .w = w };

        bind(w, id, "agent", "a1", "runtime.token", 0);
        bind(w, id, "agent", "a1", "env_.other", 0);
        q.env = doc(w, "{\"A\":{\"type\":\"secret_ref\",\"secretId\":\"%s\",\"version\":1}}", id);
        assert_done(store_write(w->op, w->rt->store, sync_env, &q, err));
        assert_string_equal(sql_text(w, "SELECT version_selector FROM company_secret_bindings "
                                        "WHERE config_path = 'env.A'"),
                            "1");
        q.env = doc(w, "{}");
        assert_done(store_write(w->op, w->rt->store, sync_env, &q, err));
        assert_string_equal(sql_text(w, "SELECT group_concat(config_path) FROM (SELECT * FROM "
                                        "company_secret_bindings ORDER BY config_path)"),
                            "env_.other,runtime.token");
}

/* environment-runtime 7.133 */
static void test_a_failing_note_does_not_fail_a_resolve(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "v1");
        char value[256];

        bind(w, id, "environment", ENVIRONMENT, "privateKeySecretRef", 0);
        run_sql(w, "CREATE TRIGGER t BEFORE UPDATE OF last_resolved_at ON company_secrets "
                   "BEGIN SELECT RAISE(ABORT, 'no'); END");
        assert_done(resolve_as(w, id, &use_env, 0, value, err));
        assert_string_equal(value, "v1");
}

/* environment-runtime 7.134 */
static void test_an_external_reference(void **state)
{
        struct secret_world *w = *state;
        char value[256];
        struct secret s;

        assert_done(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w, "{\"name\":\"far\",\"provider\":\"aws_secrets_manager\","
                                       "\"managedMode\":\"external_reference\",\"externalRef\":"
                                       "\"arn:x\",\"providerVersionRef\":\"ver-1\"}"),
                                &s, err));
        assert_int_equal(vault_calls.creates, 0);
        assert_int_equal(vault_calls.resolves, 0);
        assert_string_equal(s.external_ref, "arn:x");
        assert_string_equal(sql_text(w, "SELECT provider_version_ref FROM company_secret_versions"),
                            "ver-1");
        assert_string_equal(s.status, "active");
        assert_refused(resolve_as(w, s.id, &use_env, 0, value, err), ERR_UNPROCESSABLE,
                       "not bound");
}

/* environment-runtime 7.135 */
static void test_a_failing_event_does_not_mask_the_error(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_in_vault(w, "far", "v", NULL);
        char value[256];

        bind(w, id, "environment", ENVIRONMENT, "privateKeySecretRef", 0);
        run_sql(w, "CREATE TRIGGER t BEFORE INSERT ON secret_access_events "
                   "BEGIN SELECT RAISE(ABORT, 'no'); END");
        vault_calls.fail_resolve = VAULT_ACCESS_DENIED + 1;
        assert_refused(resolve_as(w, id, &use_env, 0, value, err), ERR_FORBIDDEN,
                       "The vault said no.");
}

/* environment-runtime 7.138, 7.162 */
static void test_removal_tells_the_vault_what_it_was(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_in_vault(w, "Far Key", "v", NULL);
        char sql[256];

        assert_done(secret_remove(w->op, w->rt, id, false, err));
        assert_int_equal(vault_calls.removes, 1);
        assert_string_equal(vault_calls.key, "far-key");
        assert_string_equal(vault_calls.name, "Far Key");
        assert_string_equal(vault_calls.ref, "ref:far-key");
        assert_string_equal(vault_calls.material, "{\"v\":1}");
        assert_int_equal(vault_calls.version, 1);
        assert_int_equal(vault_calls.mode, VAULT_DELETE);
        assert_false(vault_calls.had_config);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
        snprintf(sql, sizeof(sql), "SELECT COUNT(*) FROM company_secrets WHERE id = '%s'",
                 make_in_vault(w, "Far Key", "v", NULL));
        assert_int_equal(sql_number(w, sql), 1);
}

static int count_secret(void *ctx, const struct secret *secret)
{
        (void)secret;
        (*(int *)ctx)++;
        return 0;
}

/* environment-runtime 7.138, 7.163 */
static void test_a_removal_that_fails_can_be_tried_again(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_in_vault(w, "far", "v", NULL);
        int seen = 0;

        vault_calls.fail_remove = VAULT_UNAVAILABLE + 1;
        assert_refused(secret_remove(w->op, w->rt, id, false, err), ERR_BUSY, "The vault said no.");
        assert_string_equal(sql_text(w, "SELECT status FROM company_secrets"), "deleted");
        assert_string_equal(sql_text(w, "SELECT key FROM company_secrets"),
                            arena_printf(w->op->arena, "far__deleted__%s", id));
        assert_string_equal(sql_text(w, "SELECT name FROM company_secrets"),
                            arena_printf(w->op->arena, "far__deleted__%s", id));
        assert_done(secret_list(w->op, w->rt, TEST_COMPANY, count_secret, &seen, err));
        assert_int_equal(seen, 0);
        (void)make_secret(w, "far", "again");
        vault_calls.fail_remove = 0;
        assert_done(secret_remove(w->op, w->rt, id, false, err));
        assert_string_equal(vault_calls.key, "far"); /* the vault knows no other name (H24) */
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 1);
}

/* environment-runtime 7.164 */
static void test_what_the_vault_does_not_have_is_removed(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_in_vault(w, "far", "v", NULL);

        vault_calls.fail_remove = VAULT_UNAVAILABLE + 1;
        assert_refused(secret_remove(w->op, w->rt, id, false, err), ERR_BUSY, "no");
        vault_calls.fail_remove = VAULT_NOT_FOUND + 1;
        assert_done(secret_remove(w->op, w->rt, id, false, err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
}

/* environment-runtime 7.165 */
static void test_a_vault_that_is_off_is_not_asked(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        const char *id = make_in_vault(w, "far", "v", vault);
        struct vault_row row;

        assert_done(vault_disable(w->op, w->rt, vault, &row, err));
        assert_done(secret_remove(w->op, w->rt, id, false, err));
        assert_int_equal(vault_calls.removes, 0);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
}

static const char *soft_deleted(struct secret_world *w)
{
        struct secret s;
        const char *id;

        assert_done(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w, "{\"name\":\"far\",\"provider\":\"aws_secrets_manager\","
                                       "\"managedMode\":\"external_reference\",\"externalRef\":"
                                       "\"arn:x\"}"),
                                &s, err));
        id = s.id;
        assert_done(update_from(w->op, w->rt, id, doc(w, "{\"status\":\"deleted\"}"), &s, err));
        return id;
}

/* environment-runtime 7.139, 7.140 */
static void test_a_deleted_secret_is_not_found(void **state)
{
        struct secret_world *w = *state;
        struct rebind q = { w, soft_deleted(w) };
        struct env_sync e = { .w = w };
        struct secret s;

        e.env = doc(w, "{\"A\":{\"type\":\"secret_ref\",\"secretId\":\"%s\"}}", q.secret);
        assert_refused(store_write(w->op, w->rt->store, bind_again, &q, err), ERR_NOT_FOUND,
                       "Secret not found");
        assert_refused(store_read(w->op, w->rt->store, check_env, &e, err), ERR_NOT_FOUND,
                       "Secret not found");
        assert_refused(update_from(w->op, w->rt, q.secret, doc(w, "{\"name\":\"x\"}"), &s, err),
                       ERR_NOT_FOUND, "Secret not found");
        assert_refused(rotate_from(w->op, w->rt, q.secret, doc(w, "{\"value\":\"x\"}"), &s, err),
                       ERR_NOT_FOUND, "Secret not found");
}

/* environment-runtime 7.143 */
static void test_a_foreign_vault(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, OTHER_COMPANY, "v", false);
        struct secret s;

        assert_refused(create_from(w->op, w->rt, TEST_COMPANY,
                                   doc(w,
                                       "{\"name\":\"x\",\"value\":\"v\",\"provider\":"
                                       "\"aws_secrets_manager\",\"providerConfigId\":\"%s\"}",
                                       vault),
                                   &s, err),
                       ERR_UNPROCESSABLE, "Provider vault must belong to same company");
        assert_refused(create_from(w->op, w->rt, OTHER_COMPANY,
                                   doc(w,
                                       "{\"name\":\"x\",\"value\":\"v\",\"provider\":"
                                       "\"local_encrypted\",\"providerConfigId\":\"%s\"}",
                                       vault),
                                   &s, err),
                       ERR_UNPROCESSABLE, "Provider vault must match the secret provider");
        assert_int_equal(vault_calls.creates, 0);
}

/* environment-runtime 7.145 */
static void test_the_vault_gets_its_configuration(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        const char *id = make_in_vault(w, "far", "v", vault);
        char value[256];
        struct secret s;

        assert_string_equal(vault_calls.config_region, "us-east-1");
        vault_calls.config_region[0] = '\0';
        assert_done(rotate_from(w->op, w->rt, id, doc(w, "{\"value\":\"next\"}"), &s, err));
        assert_string_equal(vault_calls.config_region, "us-east-1");
        assert_int_equal(s.latest_version, 2);
        vault_calls.config_region[0] = '\0';
        bind(w, id, "environment", ENVIRONMENT, "privateKeySecretRef", 0);
        assert_done(resolve_as(w, id, &use_env, 0, value, err));
        assert_string_equal(vault_calls.config_region, "us-east-1");
        assert_string_equal(vault_calls.version_ref, "v2");
}

/* environment-runtime 7.146 */
static void test_a_create_that_cannot_be_stored_is_taken_back(void **state)
{
        struct secret_world *w = *state;
        struct secret s;

        run_sql(w, "CREATE TRIGGER t BEFORE UPDATE OF status ON company_secrets WHEN NEW.status = "
                   "'active' BEGIN SELECT RAISE(ABORT, 'no'); END");
        assert_true(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w, "{\"name\":\"far\",\"value\":\"v\",\"provider\":"
                                       "\"aws_secrets_manager\"}"),
                                &s, &(struct err){ 0 }) < 0);
        assert_int_equal(vault_calls.removes, 1);
        assert_string_equal(vault_calls.key, "far");
        assert_string_equal(vault_calls.ref, "ref:far");
        assert_int_equal(vault_calls.version, 1);
        assert_int_equal(vault_calls.mode, VAULT_DELETE);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
}

/* environment-runtime 7.147 */
static void test_what_cannot_be_taken_back_stays_as_a_handle(void **state)
{
        struct secret_world *w = *state;
        struct secret s;

        run_sql(w, "CREATE TRIGGER t BEFORE UPDATE OF status ON company_secrets WHEN NEW.status = "
                   "'active' BEGIN SELECT RAISE(ABORT, 'no'); END");
        vault_calls.fail_remove = VAULT_UNAVAILABLE + 1;
        assert_true(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w, "{\"name\":\"far\",\"value\":\"v\",\"provider\":"
                                       "\"aws_secrets_manager\"}"),
                                &s, &(struct err){ 0 }) < 0);
        assert_string_equal(sql_text(w, "SELECT status || ':' || external_ref || ':' || "
                                        "reserved_by FROM company_secrets"),
                            "archived:ref:far:abandoned");
        assert_string_equal(sql_text(w, "SELECT status || version FROM company_secret_versions"),
                            "disabled1");
        /* and the sweeper finishes what could not be done (H30) */
        run_sql(w, "DROP TRIGGER t");
        vault_calls.fail_remove = 0;
        run_sql(w, "UPDATE company_secrets SET reserved_by = 'an older instance'");
        assert_done(secret_sweep(w->op, w->rt, err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM activity_log"), 0);
}

/* environment-runtime 7.148 */
static void test_a_rotation_that_cannot_be_stored_is_taken_back(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_in_vault(w, "far", "v", NULL);
        struct secret s;

        run_sql(w, "CREATE TRIGGER t BEFORE UPDATE OF status ON company_secret_versions WHEN "
                   "NEW.status = 'current' BEGIN SELECT RAISE(ABORT, 'no'); END");
        assert_true(rotate_from(w->op, w->rt, id, doc(w, "{\"value\":\"x\"}"), &s,
                                &(struct err){ 0 }) < 0);
        assert_int_equal(vault_calls.removes, 1);
        assert_int_equal(vault_calls.mode, VAULT_ARCHIVE);
        assert_int_equal(vault_calls.version, 2);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_versions"), 1);
        assert_int_equal(sql_number(w, "SELECT latest_version FROM company_secrets"), 1);
}

/* environment-runtime 7.149 */
static void test_a_left_over_version_does_not_block_the_next(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_in_vault(w, "far", "v", NULL);
        struct secret s;

        run_sql(w, "CREATE TRIGGER t BEFORE UPDATE OF status ON company_secret_versions WHEN "
                   "NEW.status = 'current' BEGIN SELECT RAISE(ABORT, 'no'); END");
        vault_calls.fail_remove = VAULT_UNAVAILABLE + 1;
        assert_true(rotate_from(w->op, w->rt, id, doc(w, "{\"value\":\"x\"}"), &s,
                                &(struct err){ 0 }) < 0);
        assert_int_equal(sql_number(w, "SELECT latest_version FROM company_secrets"), 1);
        assert_string_equal(sql_text(w, "SELECT status FROM company_secret_versions WHERE version "
                                        "= 2"),
                            "disabled");
        /* H22 */
        run_sql(w, "DROP TRIGGER t");
        assert_done(rotate_from(w->op, w->rt, id, doc(w, "{\"value\":\"y\"}"), &s, err));
        assert_int_equal(s.latest_version, 3);
        assert_string_equal(sql_text(w, "SELECT group_concat(status) FROM (SELECT * FROM "
                                        "company_secret_versions ORDER BY version)"),
                            "previous,disabled,current");
}

/* environment-runtime 7.150, 7.151, 7.159, 7.160, 7.161 */
static void test_what_an_update_may_not_do(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        const char *id = make_in_vault(w, "far", "v", NULL);
        struct secret s, linked;

        assert_done(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w, "{\"name\":\"linked\",\"provider\":"
                                       "\"aws_secrets_manager\",\"managedMode\":"
                                       "\"external_reference\",\"externalRef\":\"arn:x\"}"),
                                &linked, err));
        assert_refused(update_from(w->op, w->rt, id, doc(w, "{\"providerConfigId\":\"%s\"}", vault),
                                   &s, err),
                       ERR_UNPROCESSABLE, "use rotate() to migrate to a new vault");
        assert_refused(update_from(w->op, w->rt, id, doc(w, "{\"externalRef\":\"x\"}"), &s, err),
                       ERR_UNPROCESSABLE, "Managed secrets cannot override externalRef");
        assert_refused(rotate_from(w->op, w->rt, id,
                                   doc(w, "{\"value\":\"v\",\"externalRef\":\"x\"}"), &s, err),
                       ERR_UNPROCESSABLE, "Managed secrets cannot override externalRef");
        assert_refused(update_from(w->op, w->rt, id, doc(w, "{\"status\":\"deleted\"}"), &s, err),
                       ERR_UNPROCESSABLE,
                       "Managed secrets must be deleted through DELETE /secrets/:id");
        assert_refused(
                update_from(w->op, w->rt, linked.id, doc(w, "{\"externalRef\":\"y\"}"), &s, err),
                ERR_UNPROCESSABLE,
                "External reference secrets cannot be retargeted through generic update");
        assert_refused(update_from(w->op, w->rt, linked.id,
                                   doc(w, "{\"providerConfigId\":\"%s\"}", vault), &s, err),
                       ERR_UNPROCESSABLE,
                       "External reference secrets cannot change provider vault");
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets WHERE "
                                       "provider_config_id IS NOT NULL OR status <> 'active'"),
                         0);
        assert_done(update_from(w->op, w->rt, id, doc(w, "{\"status\":\"disabled\"}"), &s, err));
        assert_refused(rotate_from(w->op, w->rt, id, doc(w, "{\"value\":\"v\"}"), &s, err),
                       ERR_UNPROCESSABLE, "Cannot rotate a non-active secret");
        assert_int_equal(sql_number(w, "SELECT MAX(latest_version) FROM company_secrets"), 1);
}

/* environment-runtime 7.166 */
static void test_only_active_secrets_resolve(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "v");
        char value[256];

        bind(w, id, "environment", ENVIRONMENT, "privateKeySecretRef", 0);
        for (size_t i = 0; i < 2; i++) {
                run_sql(w, i ? "UPDATE company_secrets SET status = 'archived'"
                             : "UPDATE company_secrets SET status = 'disabled'");
                assert_refused(resolve_as(w, id, &use_env, 0, value, err), ERR_UNPROCESSABLE,
                               "Secret is not active");
        }
        run_sql(w, "UPDATE company_secrets SET status = 'active'");
        run_sql(w, "UPDATE company_secret_versions SET revoked_at = 1");
        assert_refused(resolve_as(w, id, &use_env, 0, value, err), ERR_UNPROCESSABLE,
                       "Secret version is not active");
}

/* H26 */
static void test_a_binding_selects_the_version(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "first");
        char value[256];
        struct secret s;

        assert_done(rotate_from(w->op, w->rt, id, doc(w, "{\"value\":\"second\"}"), &s, err));
        bind(w, id, "environment", ENVIRONMENT, "privateKeySecretRef", 1);
        assert_done(resolve_as(w, id, &use_env, 0, value, err));
        assert_string_equal(value, "first");
        assert_refused(resolve_as(w, id, &use_env, 2, value, err), ERR_UNPROCESSABLE,
                       "selects version 1, not 2");
}

/* H26: what is not required is left out; what is fails. */
static void test_optional_variables(void **state)
{
        struct secret_world *w = *state;
        const char *there = make_secret(w, "there", "value"), *off = make_secret(w, "off", "v");
        struct env_sync q = { .w = w };
        struct secret_use use = { .consumer_type = "agent",
                                  .consumer_id = "a1",
                                  .config_path = "env.",
                                  .actor_type = "agent",
                                  .actor_id = "a1" };
        struct secret_env env;

        q.env = doc(w,
                    "{\"P\":\"plain\",\"A\":{\"type\":\"secret_ref\",\"secretId\":\"%s\"},"
                    "\"B\":{\"type\":\"secret_ref\",\"secretId\":\"%s\"}}",
                    there, off);
        assert_done(store_write(w->op, w->rt->store, sync_env, &q, err));
        run_sql(w, "UPDATE company_secrets SET status = 'disabled' WHERE name = 'off'");
        assert_refused(secret_resolve_env(w->op, w->rt, TEST_COMPANY, q.env, &use, &env, err),
                       ERR_UNPROCESSABLE, "variable B (secret \"off\"): Secret is not active");
        run_sql(w, "UPDATE company_secrets SET status = 'active'; UPDATE company_secret_bindings "
                   "SET required = 0 WHERE config_path = 'env.B'; UPDATE company_secret_versions "
                   "SET revoked_at = 1 WHERE secret_id = (SELECT id FROM company_secrets WHERE "
                   "name = 'off')");
        assert_done(secret_resolve_env(w->op, w->rt, TEST_COMPANY, q.env, &use, &env, err));
        assert_int_equal(env.n_vars, 2);
        assert_string_equal(env.vars[0].name, "P");
        assert_false(env.vars[0].is_secret);
        assert_string_equal(env.vars[1].name, "A");
        assert_string_equal(env.vars[1].value.data, "value");
        assert_true(env.vars[1].is_secret);
        assert_int_equal(json_array_size(env.manifest), 2);
        assert_string_equal(json_get_string(json_array_get(env.manifest, 0), "configPath"),
                            "env.A");
        assert_string_equal(json_get_string(json_array_get(env.manifest, 1), "outcome"), "failure");
        secret_env_done(&env);
}

/* H25 */
static void test_events_outlive_the_secret(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_secret(w, "one", "v");
        char value[256];

        bind(w, id, "environment", ENVIRONMENT, "privateKeySecretRef", 0);
        assert_done(resolve_as(w, id, &use_env, 0, value, err));
        assert_refused(secret_remove(w->op, w->rt, id, false, err), ERR_CONFLICT,
                       "Secret is in use");
        assert_done(secret_remove(w->op, w->rt, id, true, err));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secret_bindings"), 0);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM secret_access_events"), 1);
}

struct racer {
        struct secret_world *w;
        const char *id;
        struct arena arena;
        pthread_t thread;
        int result;
};

static void *rotate(void *arg)
{
        struct racer *r = arg;
        struct op op = *r->w->op;
        json_t *body = json_pack("{s:s}", "value", "raced");
        struct err e = { 0 };
        struct secret s;

        op.arena = &r->arena;
        r->result = rotate_from(&op, r->w->rt, r->id, body, &s, &e);
        err_done(&e);
        json_decref(body);
        return NULL;
}

/* H22: each rotation has a number of its own, or lost. */
static void test_rotations_at_once(void **state)
{
        struct secret_world *w = *state;
        struct racer racers[8];
        int64_t won = 0;

        for (size_t outside = 0; outside < 2; outside++) {
                const char *id =
                        outside ? make_in_vault(w, "far", "v", NULL) : make_secret(w, "near", "v");

                won = 0;
                for (size_t i = 0; i < ARRAY_LEN(racers); i++) {
                        racers[i] = (struct racer){ .w = w, .id = id };
                        arena_init(&racers[i].arena);
                        assert_int_equal(
                                pthread_create(&racers[i].thread, NULL, rotate, &racers[i]), 0);
                }
                for (size_t i = 0; i < ARRAY_LEN(racers); i++) {
                        pthread_join(racers[i].thread, NULL);
                        arena_done(&racers[i].arena);
                        assert_true(racers[i].result >= 0 || racers[i].result == ERR_CONFLICT);
                        won += racers[i].result >= 0;
                }
                assert_true(won >= 1);
                assert_int_equal(
                        sql_number(w, arena_printf(w->op->arena,
                                                   "SELECT COUNT(*) FROM company_secret_versions "
                                                   "WHERE secret_id = '%s' AND status = 'previous'",
                                                   id)),
                        won);
                assert_int_equal(
                        sql_number(w, arena_printf(w->op->arena,
                                                   "SELECT COUNT(*) FROM company_secret_versions "
                                                   "WHERE secret_id = '%s' AND status = 'current'",
                                                   id)),
                        1);
        }
}

static void test_keys_are_normalised(void **state)
{
        struct secret_world *w = *state;
        struct secret s;

        assert_done(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w, "{\"name\":\"  My  Key! (A)\",\"value\":\"v\"}"), &s, err));
        assert_string_equal(s.key, "my-key-a");
        assert_refused(create_from(w->op, w->rt, TEST_COMPANY,
                                   doc(w, "{\"name\":\"!!\",\"value\":\"v\"}"), &s, err),
                       ERR_UNPROCESSABLE, "Secret key is required");
        assert_refused(create_from(w->op, w->rt, TEST_COMPANY,
                                   doc(w, "{\"name\":\"MY-key a\",\"value\":\"v\"}"), &s, err),
                       ERR_CONFLICT, "Secret key already exists: my-key-a");
}

int main(void)
{
#define WORLD(test) cmocka_unit_test_setup_teardown(test, secret_world_setup, secret_world_teardown)
        const struct CMUnitTest tests[] = {
                WORLD(test_a_foreign_secret_in_a_variable),
                WORLD(test_the_forms_of_variables),
                WORLD(test_a_path_has_one_binding),
                WORLD(test_usage_names_the_target),
                WORLD(test_only_the_bound_consumer_gets_it),
                WORLD(test_variables_replace_only_their_own_bindings),
                WORLD(test_a_failing_note_does_not_fail_a_resolve),
                WORLD(test_an_external_reference),
                WORLD(test_a_failing_event_does_not_mask_the_error),
                WORLD(test_removal_tells_the_vault_what_it_was),
                WORLD(test_a_removal_that_fails_can_be_tried_again),
                WORLD(test_what_the_vault_does_not_have_is_removed),
                WORLD(test_a_vault_that_is_off_is_not_asked),
                WORLD(test_a_deleted_secret_is_not_found),
                WORLD(test_a_foreign_vault),
                WORLD(test_the_vault_gets_its_configuration),
                WORLD(test_a_create_that_cannot_be_stored_is_taken_back),
                WORLD(test_what_cannot_be_taken_back_stays_as_a_handle),
                WORLD(test_a_rotation_that_cannot_be_stored_is_taken_back),
                WORLD(test_a_left_over_version_does_not_block_the_next),
                WORLD(test_what_an_update_may_not_do),
                WORLD(test_only_active_secrets_resolve),
                WORLD(test_a_binding_selects_the_version),
                WORLD(test_optional_variables),
                WORLD(test_events_outlive_the_secret),
                WORLD(test_rotations_at_once),
                WORLD(test_keys_are_normalised),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
