/* Vaults, and taking up what they hold. */
#include "secret_fixture.h"

/* environment-runtime 7.136 */
static void test_there_is_one_default(void **state)
{
        struct secret_world *w = *state;
        const char *first = make_vault(w, TEST_COMPANY, "first", ",\"isDefault\":true");
        const char *second = make_vault(w, TEST_COMPANY, "second", ",\"isDefault\":true");
        struct vault_row row;

        assert_done(vault_get(w->op, w->rt, first, &row, err));
        assert_false(row.is_default);
        assert_done(vault_get(w->op, w->rt, second, &row, err));
        assert_true(row.is_default);
        assert_done(vault_set_default(w->op, w->rt, first, &row, err));
        assert_true(row.is_default);
        assert_done(vault_get(w->op, w->rt, second, &row, err));
        assert_false(row.is_default);
}

/* environment-runtime 7.137 */
static void test_a_disabled_vault_is_no_default(void **state)
{
        struct secret_world *w = *state;
        const char *id = make_vault(w, TEST_COMPANY, "v", "");
        struct vault_row row;

        assert_done(vault_disable(w->op, w->rt, id, &row, err));
        assert_refused(vault_set_default(w->op, w->rt, id, &row, err), ERR_UNPROCESSABLE,
                       "Only ready or warning provider vaults can be default");
        assert_refused(vault_update(w->op, w->rt, id, doc(w, "{\"isDefault\":true}"), &row, err),
                       ERR_UNPROCESSABLE, "Only ready or warning");
}

/* environment-runtime 7.144 */
static void test_google_is_coming_soon(void **state)
{
        struct secret_world *w = *state;
        struct vault_row row;
        struct secret s;

        assert_done(
                vault_create(w->op, w->rt, TEST_COMPANY,
                             doc(w, "{\"provider\":\"gcp_secret_manager\",\"displayName\":\"g\","
                                    "\"config\":{\"projectId\":\"my-project\"}}"),
                             &row, err));
        assert_string_equal(row.status, "coming_soon");
        assert_refused(secret_create(w->op, w->rt, TEST_COMPANY,
                                     doc(w,
                                         "{\"name\":\"x\",\"managedMode\":\"external_reference\","
                                         "\"externalRef\":\"r\",\"provider\":\"gcp_secret_manager\""
                                         ",\"providerConfigId\":\"%s\"}",
                                         row.id),
                                     &s, err),
                       ERR_UNPROCESSABLE, "Provider vault is locked while coming soon");
        assert_refused(
                secret_create(w->op, w->rt, TEST_COMPANY,
                              doc(w, "{\"name\":\"x\",\"value\":\"v\",\"provider\":"
                                     "\"gcp_secret_manager\"}"),
                              &s, err),
                ERR_UNPROCESSABLE,
                "gcp_secret_manager provider is not configured for Paperclip-managed values");
}

static int preview(struct secret_world *w, const char *vault, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        int r = vault_import_preview(w->op, w->rt, TEST_COMPANY,
                                     doc(w,
                                         "{\"providerConfigId\":\"%s\",\"query\":\"prod\","
                                         "\"pageSize\":7}",
                                         vault),
                                     &out, err);

        if (r >= 0)
                *ret = doc(w, "%s", buf_str(&out));
        return r;
}

static json_t *commit(struct secret_world *w, const char *vault, const char *rows)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;

        assert_done(vault_import_commit(
                w->op, w->rt, TEST_COMPANY,
                doc(w, "{\"providerConfigId\":\"%s\",\"secrets\":%s}", vault, rows), &out, err));
        return doc(w, "%s", buf_str(&out));
}

static const char *of(json_t *answer, const char *list, size_t i, const char *member)
{
        const char *text =
                json_get_string(json_array_get(json_object_get(answer, list), i), member);

        return text ? text : "null";
}

static const char *conflict_of(json_t *answer, const char *list, size_t i, const char *member)
{
        json_t *item = json_array_get(json_object_get(answer, list), i);
        const char *text =
                json_get_string(json_array_get(json_object_get(item, "conflicts"), 0), member);

        return text ? text : "null";
}

/* environment-runtime 7.152 */
static void test_a_preview_sorts_candidates(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", "");
        const char *taken = make_secret(w, "prod/taken", "v");
        json_t *answer = commit(w, vault, "[{\"externalRef\":\"arn:linked\",\"name\":\"linked\"}]");
        const char *linked = of(answer, "results", 0, "secretId");

        vault_calls.listing = doc(
                w, "{\"secrets\":[{\"externalRef\":\"arn:linked\",\"name\":\"other\"},"
                   "{\"externalRef\":\"arn:2\",\"name\":\"prod/taken\"},"
                   "{\"externalRef\":\"arn:3\",\"name\":\"prod/ready\",\"providerMetadata\":"
                   "{\"owner\":\"somebody\"}},{\"externalRef\":\"x/arn-4\","
                   "\"providerMetadata\":{\"tagCount\":2,\"tags\":[1]}}],\"nextToken\":\"more\"}");
        assert_done(preview(w, vault, &answer, err));
        assert_string_equal(of(answer, "candidates", 0, "status"), "duplicate");
        assert_string_equal(conflict_of(answer, "candidates", 0, "type"), "exact_reference");
        assert_string_equal(conflict_of(answer, "candidates", 0, "existingSecretId"), linked);
        assert_string_equal(of(answer, "candidates", 1, "status"), "conflict");
        assert_string_equal(conflict_of(answer, "candidates", 1, "message"),
                            "Secret name already exists: prod/taken");
        assert_string_equal(conflict_of(answer, "candidates", 1, "existingSecretId"), taken);
        assert_string_equal(of(answer, "candidates", 2, "status"), "ready");
        assert_string_equal(of(answer, "candidates", 2, "key"), "prod-ready");
        assert_true(json_is_null(json_object_get(
                json_array_get(json_object_get(answer, "candidates"), 2), "providerMetadata")));
        assert_string_equal(of(answer, "candidates", 3, "name"), "arn-4");
        assert_int_equal(json_object_size(json_object_get(
                                 json_array_get(json_object_get(answer, "candidates"), 3),
                                 "providerMetadata")),
                         1);
        assert_string_equal(json_get_string(answer, "nextToken"), "more");
        assert_string_equal(vault_calls.query, "prod");
        assert_int_equal(vault_calls.page_size, 7);
        assert_int_equal(vault_calls.resolves, 0);
}

/* environment-runtime 7.153 */
static void test_a_listing_that_fails(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", "");
        int64_t before = sql_number(w, "SELECT COUNT(*) FROM activity_log");
        struct err e = { 0 };
        json_t *answer;

        vault_calls.fail_list = VAULT_ACCESS_DENIED + 1;
        assert_int_equal(preview(w, vault, &answer, &e), ERR_FORBIDDEN);
        assert_string_equal(e.msg, "The vault said no.");
        assert_string_equal(e.details, "{\"code\":\"access_denied\"}");
        err_done(&e);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM activity_log"), before);
}

/* environment-runtime 7.154, 7.157 */
static void test_an_import(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", "");
        json_t *answer;

        (void)commit(w, vault, "[{\"externalRef\":\"arn:old\",\"name\":\"old\"}]");
        answer =
                commit(w, vault,
                       "[{\"externalRef\":\"arn:old\",\"name\":\"renamed\"},{\"externalRef\":"
                       "\"arn:new\",\"name\":\"new\",\"description\":\"  d  \",\"providerMetadata\""
                       ":{\"a\":1}},{\"externalRef\":\"arn:new\",\"name\":\"newer\"}]");
        assert_string_equal(of(answer, "results", 0, "status"), "skipped");
        assert_string_equal(of(answer, "results", 0, "reason"), "exact_reference_duplicate");
        assert_string_equal(of(answer, "results", 1, "status"), "imported");
        assert_string_equal(of(answer, "results", 2, "reason"), "exact_reference_duplicate");
        assert_int_equal(json_integer_value(json_object_get(answer, "importedCount")), 1);
        assert_int_equal(json_integer_value(json_object_get(answer, "skippedCount")), 2);
        assert_string_equal(sql_text(w, "SELECT description || ':' || status || ':' || "
                                        "managed_mode || ':' || quote(provider_metadata) FROM "
                                        "company_secrets WHERE name = 'new'"),
                            "d:active:external_reference:NULL");
        assert_int_equal(vault_calls.resolves, 0);
}

/* environment-runtime 7.155, 7.156 */
static void test_rows_that_the_provider_refuses(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", "");
        json_t *answer;

        vault_calls.fail_link = VAULT_ACCESS_DENIED + 1;
        answer = commit(w, vault, "[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]");
        assert_string_equal(of(answer, "results", 0, "status"), "error");
        assert_string_equal(of(answer, "results", 0, "reason"), "The vault said no.");
        vault_calls.fail_link = 0;
        vault_calls.refuse_ref = "managed/x";
        answer = commit(w, vault, "[{\"externalRef\":\"managed/x\"}]");
        assert_string_equal(of(answer, "results", 0, "status"), "error");
        assert_string_equal(conflict_of(answer, "results", 0, "type"), "provider_guardrail");
        vault_calls.listing = doc(w, "{\"secrets\":[{\"externalRef\":\"managed/x\",\"name\":\"x\","
                                     "\"providerMetadata\":{\"account\":\"123\"}}]}");
        assert_done(preview(w, vault, &answer, err));
        assert_string_equal(of(answer, "candidates", 0, "status"), "conflict");
        assert_string_equal(conflict_of(answer, "candidates", 0, "type"), "provider_guardrail");
        assert_null(strstr(json_to_arena(w->op->arena, answer), "123"));
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
}

/* environment-runtime 7.141, 7.142 */
static void test_deleted_references_do_not_count(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", "");
        json_t *answer = commit(w, vault, "[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]");
        struct secret s;

        assert_done(secret_update(w->op, w->rt, of(answer, "results", 0, "secretId"),
                                  doc(w, "{\"status\":\"deleted\"}"), false, &s, err));
        vault_calls.listing =
                doc(w, "{\"secrets\":[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]}");
        assert_done(preview(w, vault, &answer, err));
        assert_string_equal(of(answer, "candidates", 0, "status"), "ready");
        answer = commit(w, vault, "[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]");
        assert_string_equal(of(answer, "results", 0, "status"), "imported");
}

/* environment-runtime 7.158 */
static void test_a_preview_needs_a_vault_that_works(void **state)
{
        struct secret_world *w = *state;
        const char *foreign = make_vault(w, OTHER_COMPANY, "v", "");
        const char *vault = make_vault(w, TEST_COMPANY, "v", "");
        struct vault_row row;
        json_t *answer;

        assert_refused(preview(w, foreign, &answer, err), ERR_UNPROCESSABLE,
                       "Provider vault must belong to same company");
        assert_done(vault_disable(w->op, w->rt, vault, &row, err));
        assert_refused(preview(w, vault, &answer, err), ERR_UNPROCESSABLE,
                       "Provider vault is disabled");
        assert_int_equal(vault_calls.lists, 0);
}

int main(void)
{
#define WORLD(test) cmocka_unit_test_setup_teardown(test, secret_world_setup, secret_world_teardown)
        const struct CMUnitTest tests[] = {
                WORLD(test_there_is_one_default),
                WORLD(test_a_disabled_vault_is_no_default),
                WORLD(test_google_is_coming_soon),
                WORLD(test_a_preview_sorts_candidates),
                WORLD(test_a_listing_that_fails),
                WORLD(test_an_import),
                WORLD(test_rows_that_the_provider_refuses),
                WORLD(test_deleted_references_do_not_count),
                WORLD(test_a_preview_needs_a_vault_that_works),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
