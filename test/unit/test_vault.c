/* Vaults, and taking up what they hold. */
#include "secret_fixture.h"

/* environment-runtime 7.136 */
static void test_there_is_one_default(void **state)
{
        struct secret_world *w = *state;
        const char *first = make_vault(w, TEST_COMPANY, "first", true);
        const char *second = make_vault(w, TEST_COMPANY, "second", true);
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
        const char *id = make_vault(w, TEST_COMPANY, "v", false);
        struct vault_change make_default = { .has_default = true, .is_default = true };
        struct vault_row row;

        assert_done(vault_disable(w->op, w->rt, id, &row, err));
        assert_refused(vault_set_default(w->op, w->rt, id, &row, err), ERR_UNPROCESSABLE,
                       "Only ready or warning provider vaults can be default");
        assert_refused(vault_update(w->op, w->rt, id, &make_default, &row, err), ERR_UNPROCESSABLE,
                       "Only ready or warning");
}

/* environment-runtime 7.144 */
static void test_google_is_coming_soon(void **state)
{
        struct secret_world *w = *state;
        struct vault_spec spec = { .provider = VAULT_GCP,
                                   .display_name = "g",
                                   .config = "{\"projectId\":\"my-project\"}" };
        struct vault_row row;
        struct secret s;

        spec.status = vault_first_status(spec.provider);
        assert_done(vault_create(w->op, w->rt, TEST_COMPANY, &spec, &row, err));
        assert_string_equal(row.status, "coming_soon");
        assert_refused(create_from(w->op, w->rt, TEST_COMPANY,
                                   doc(w,
                                       "{\"name\":\"x\",\"managedMode\":\"external_reference\","
                                       "\"externalRef\":\"r\",\"provider\":\"gcp_secret_manager\""
                                       ",\"providerConfigId\":\"%s\"}",
                                       row.id),
                                   &s, err),
                       ERR_UNPROCESSABLE, "Provider vault is locked while coming soon");
        assert_refused(
                create_from(w->op, w->rt, TEST_COMPANY,
                            doc(w, "{\"name\":\"x\",\"value\":\"v\",\"provider\":"
                                   "\"gcp_secret_manager\"}"),
                            &s, err),
                ERR_UNPROCESSABLE,
                "gcp_secret_manager provider is not configured for Paperclip-managed values");
}

static int preview(struct secret_world *w, const char *vault, struct vault_imports *ret,
                   struct err *err)
{
        struct vault_page page = { .query = "prod", .page_size = 7 };

        return vault_import_preview(w->op, w->rt, TEST_COMPANY, vault, &page, ret, err);
}

static struct vault_imports commit(struct secret_world *w, const char *vault, const char *rows)
{
        json_t *list = json_object_get(doc(w, "{\"rows\":%s}", rows), "rows"), *row;
        struct vault_imports m = { .config_id = vault, .n = json_array_size(list) };
        size_t i;

        m.list = arena_alloc(w->op->arena, m.n * sizeof(*m.list));
        json_array_foreach(list, i, row)
        {
                const char *name = json_get_string(row, "name");

                m.list[i].ref = json_get_string(row, "externalRef");
                m.list[i].name = name ? name : vault_name_of(m.list[i].ref);
                m.list[i].description = json_get_string(row, "description");
        }
        assert_done(vault_import_commit(w->op, w->rt, TEST_COMPANY, &m, err));
        return m;
}

/* environment-runtime 7.152 */
static void test_a_preview_sorts_candidates(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        const char *taken = make_secret(w, "prod/taken", "v");
        struct vault_imports answer =
                commit(w, vault, "[{\"externalRef\":\"arn:linked\",\"name\":\"linked\"}]");
        const char *linked = answer.list[0].secret_id;

        vault_calls.listing = doc(
                w, "{\"secrets\":[{\"externalRef\":\"arn:linked\",\"name\":\"other\"},"
                   "{\"externalRef\":\"arn:2\",\"name\":\"prod/taken\"},"
                   "{\"externalRef\":\"arn:3\",\"name\":\"prod/ready\",\"providerMetadata\":"
                   "{\"owner\":\"somebody\"}},{\"externalRef\":\"x/arn-4\","
                   "\"providerMetadata\":{\"tagCount\":2,\"tags\":[1]}}],\"nextToken\":\"more\"}");
        assert_done(preview(w, vault, &answer, err));
        assert_string_equal(answer.list[0].status, "duplicate");
        assert_string_equal(answer.list[0].same_reference, linked);
        assert_string_equal(answer.list[1].status, "conflict");
        assert_string_equal(answer.list[1].same_name, taken);
        assert_string_equal(answer.list[2].status, "ready");
        assert_string_equal(answer.list[2].key, "prod-ready");
        assert_null(answer.list[2].metadata);
        assert_string_equal(answer.list[3].name, "arn-4");
        assert_string_equal(answer.list[3].metadata, "{\"tagCount\":2}");
        assert_string_equal(answer.next_token, "more");
        assert_string_equal(vault_calls.query, "prod");
        assert_int_equal(vault_calls.page_size, 7);
        assert_int_equal(vault_calls.resolves, 0);
}

/* environment-runtime 7.153 */
static void test_a_listing_that_fails(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        int64_t before = sql_number(w, "SELECT COUNT(*) FROM activity_log");
        struct err e = { 0 };
        struct vault_imports answer;

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
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        struct vault_imports answer;

        (void)commit(w, vault, "[{\"externalRef\":\"arn:old\",\"name\":\"old\"}]");
        answer = commit(w, vault,
                        "[{\"externalRef\":\"arn:old\",\"name\":\"renamed\"},{\"externalRef\":"
                        "\"arn:new\",\"name\":\"new\",\"description\":\"d\",\"providerMetadata\""
                        ":{\"a\":1}},{\"externalRef\":\"arn:new\",\"name\":\"newer\"}]");
        assert_string_equal(answer.list[0].status, "skipped");
        assert_string_equal(answer.list[0].reason, "exact_reference_duplicate");
        assert_string_equal(answer.list[1].status, "imported");
        assert_string_equal(answer.list[2].reason, "exact_reference_duplicate");
        assert_string_equal(sql_text(w, "SELECT json_extract(details, '$.importedCount') || ':' || "
                                        "json_extract(details, '$.skippedCount') FROM "
                                        "activity_log ORDER BY rowid DESC LIMIT 1"),
                            "1:2");
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
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        struct vault_imports answer;

        vault_calls.fail_link = VAULT_ACCESS_DENIED + 1;
        answer = commit(w, vault, "[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]");
        assert_string_equal(answer.list[0].status, "error");
        assert_string_equal(answer.list[0].reason, "The vault said no.");
        vault_calls.fail_link = 0;
        vault_calls.refuse_ref = "managed/x";
        answer = commit(w, vault, "[{\"externalRef\":\"managed/x\"}]");
        assert_string_equal(answer.list[0].status, "error");
        assert_non_null(answer.list[0].refusal);
        vault_calls.listing = doc(w, "{\"secrets\":[{\"externalRef\":\"managed/x\",\"name\":\"x\","
                                     "\"providerMetadata\":{\"account\":\"123\"}}]}");
        assert_done(preview(w, vault, &answer, err));
        assert_string_equal(answer.list[0].status, "conflict");
        assert_non_null(answer.list[0].refusal);
        assert_null(answer.list[0].metadata);
        assert_int_equal(sql_number(w, "SELECT COUNT(*) FROM company_secrets"), 0);
}

/* environment-runtime 7.141, 7.142 */
static void test_deleted_references_do_not_count(void **state)
{
        struct secret_world *w = *state;
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        struct vault_imports answer =
                commit(w, vault, "[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]");
        struct secret s;

        assert_done(update_from(w->op, w->rt, answer.list[0].secret_id,
                                doc(w, "{\"status\":\"deleted\"}"), &s, err));
        vault_calls.listing =
                doc(w, "{\"secrets\":[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]}");
        assert_done(preview(w, vault, &answer, err));
        assert_string_equal(answer.list[0].status, "ready");
        answer = commit(w, vault, "[{\"externalRef\":\"arn:1\",\"name\":\"one\"}]");
        assert_string_equal(answer.list[0].status, "imported");
}

/* environment-runtime 7.158 */
static void test_a_preview_needs_a_vault_that_works(void **state)
{
        struct secret_world *w = *state;
        const char *foreign = make_vault(w, OTHER_COMPANY, "v", false);
        const char *vault = make_vault(w, TEST_COMPANY, "v", false);
        struct vault_row row;
        struct vault_imports answer;

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
