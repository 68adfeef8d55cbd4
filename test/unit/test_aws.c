/* The parts of the AWS vault that only compute; test/it/test_aws_vault.py has those that talk. */
#include "test.h"

#include <sodium.h>

#include "secret/aws.h"

static struct arena arena;

static int setup(void **state)
{
        (void)state;
        arena_init(&arena);
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        arena_done(&arena);
        return 0;
}

/* ---- names ---- */

static const char *name_of(const char *prefix, const char *deployment, const char *company,
                           const char *key)
{
        struct aws_settings s = { .prefix = prefix, .deployment_id = deployment };
        struct vault_subject subject = { .company_id = company, .secret_key = key };
        const char *name = NULL;

        assert_int_equal(aws_managed_name(&arena, &s, &subject, &name, NULL), 0);
        return name;
}

static void test_names(void **state)
{
        (void)state;
        assert_string_equal(name_of("paperclip", "prod", "c", "key"), "paperclip/prod/c/key");
        assert_string_equal(name_of(" a b!?c ", "//x//y/", "c", "k_.+=@-1"),
                            "a-b-c/x/y/c/k_.+=@-1");
        assert_string_equal(name_of("/", "prod", "c", "\xc3\xa9t\xc3\xa9"), "prod/c/-t-");
        assert_string_equal(name_of("", " ", "c", "k"), "c/k");
}

static void test_names_need_a_subject(void **state)
{
        struct aws_settings s = { .prefix = "p", .deployment_id = "d" };
        struct vault_subject subject = { .company_id = "c" };
        CLEAN(err_done) struct err e = { 0 };
        const char *name = NULL;

        (void)state;
        assert_int_equal(aws_managed_name(&arena, &s, &subject, &name, &e), ERR_UNPROCESSABLE);
        assert_string_equal(
                e.msg, "AWS Secrets Manager provider requires secret context for managed values");
        assert_int_equal(aws_managed_name(&arena, &s, NULL, &name, NULL), ERR_UNPROCESSABLE);
}

static void test_reference_names(void **state)
{
        (void)state;
        assert_string_equal(aws_reference_name("a/b"), "a/b");
        assert_string_equal(
                aws_reference_name("arn:aws:secretsmanager:us-east-1:1:secret:a/b-AbC123"),
                "a/b-AbC123");
        assert_string_equal(aws_reference_name("ARN:aws-cn:SECRETSMANAGER:::Secret:x:y"), "x:y");
        /* Not of that shape: the text is the name. */
        assert_string_equal(aws_reference_name("arn:aws:s3:us-east-1:1:secret:x"),
                            "arn:aws:s3:us-east-1:1:secret:x");
        assert_string_equal(aws_reference_name("arn::secretsmanager:r:1:secret:x"),
                            "arn::secretsmanager:r:1:secret:x");
        assert_string_equal(aws_reference_name("arn:aws:secretsmanager:r:1:secret:"),
                            "arn:aws:secretsmanager:r:1:secret:");
        assert_string_equal(aws_reference_name("arn:"), "arn:");
}

/* environment-runtime 7.171, 7.177 */
static void test_what_is_managed(void **state)
{
        (void)state;
        assert_true(aws_reference_is_managed("p/d/c/k", "p/d/c/k"));
        assert_true(aws_reference_is_managed("p/d/c/k-AbC123", "p/d/c/k"));
        assert_true(aws_reference_is_managed("arn:aws:secretsmanager:r:1:secret:p/d/c/k-AbC123",
                                             "p/d/c/k"));
        assert_false(aws_reference_is_managed("p/d/c/k-AbC12", "p/d/c/k"));
        assert_false(aws_reference_is_managed("p/d/c/k-AbC1234", "p/d/c/k"));
        assert_false(aws_reference_is_managed("p/d/c/k-AbC_23", "p/d/c/k"));
        assert_false(aws_reference_is_managed("p/d/c/kAbC123", "p/d/c/k"));
        assert_false(aws_reference_is_managed("p/d/other/k", "p/d/c/k"));
        assert_false(aws_reference_is_managed("x/p/d/c/k", "p/d/c/k"));
        assert_false(aws_reference_is_managed("", "p/d/c/k"));
}

static void test_the_first_valid_reference_counts(void **state)
{
        struct aws_settings s = { .prefix = "p", .deployment_id = "d" };
        struct vault_subject subject = { .company_id = "c", .secret_key = "k" };
        const char *const none[2] = { NULL, "" };
        const char *const second[2] = { "elsewhere", "p/d/c/k-AbC123" };
        const char *const bad[2] = { "elsewhere", NULL };
        const char *got = NULL;

        (void)state;
        assert_int_equal(aws_managed_reference(&arena, &s, &subject, none, &got, NULL), 0);
        assert_string_equal(got, "p/d/c/k");
        assert_int_equal(aws_managed_reference(&arena, &s, &subject, second, &got, NULL), 0);
        assert_string_equal(got, "p/d/c/k-AbC123");
        assert_int_equal(aws_managed_reference(&arena, &s, &subject, bad, &got, NULL),
                         ERR_UNPROCESSABLE);
}

/* environment-runtime 7.173 */
static void test_the_namespace(void **state)
{
        struct aws_settings s = { .prefix = "p", .deployment_id = "d" };

        (void)state;
        assert_true(aws_reference_in_namespace(&arena, &s, "p/d"));
        assert_true(aws_reference_in_namespace(&arena, &s, "p/d/"));
        assert_true(aws_reference_in_namespace(&arena, &s, "p/d/c/k"));
        assert_true(
                aws_reference_in_namespace(&arena, &s, "arn:aws:secretsmanager:r:1:secret:p/d/x"));
        assert_false(aws_reference_in_namespace(&arena, &s, "p/dx"));
        assert_false(aws_reference_in_namespace(&arena, &s, "p"));
        assert_false(aws_reference_in_namespace(&arena, &s, "x/p/d/c"));
}

/* ---- settings ---- */

static void test_our_names_come_first(void **state)
{
        (void)state;
        assert_null(aws_env("SECRETS_AWS_TEST"));
        setenv("PAPERCLIP_SECRETS_AWS_TEST", "theirs", 1);
        assert_string_equal(aws_env("SECRETS_AWS_TEST"), "theirs");
        setenv("BERTH_SECRETS_AWS_TEST", " ", 1);
        assert_string_equal(aws_env("SECRETS_AWS_TEST"), "theirs");
        setenv("BERTH_SECRETS_AWS_TEST", "ours", 1);
        assert_string_equal(aws_env("SECRETS_AWS_TEST"), "ours");
        unsetenv("BERTH_SECRETS_AWS_TEST");
        unsetenv("PAPERCLIP_SECRETS_AWS_TEST");
}

static void test_endpoints(void **state)
{
        static const char *const good[] = { "https://a.example.com", "https://a:8443/x/y",
                                            "http://127.0.0.1:4566", "http://localhost/",
                                            "http://[::1]:80/",      "https://10.0.0.1/~x" };
        static const char *const bad[] = { "",
                                           "https://",
                                           "http://10.0.0.1",
                                           "http://localhost.evil.com",
                                           "http://127.0.0.1.evil.com",
                                           "http://127.0.0.1@evil.com",
                                           "https://u:p@a",
                                           "https://a?x",
                                           "https://a/#x",
                                           "https://a/b c",
                                           "https://a/%2e",
                                           "https://a/../b",
                                           "https://a//b",
                                           "file:///etc/passwd",
                                           "a.example.com" };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                if (!aws_endpoint_is_valid(good[i]))
                        fail_msg("%s", good[i]);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (aws_endpoint_is_valid(bad[i]))
                        fail_msg("%s", bad[i]);
        assert_string_equal(aws_endpoint_host(&arena, "https://a:1/b/c"), "a:1");
        assert_string_equal(aws_endpoint_path("https://a:1/b/c"), "/b/c");
        assert_string_equal(aws_endpoint_path("https://a"), "");
}

static void test_regions(void **state)
{
        (void)state;
        assert_true(aws_region_is_valid("us-gov-west-1"));
        assert_false(aws_region_is_valid(""));
        assert_false(aws_region_is_valid("evil.com/"));
        assert_false(aws_region_is_valid("-a"));
        assert_false(aws_region_is_valid("US-EAST-1"));
        assert_string_equal(aws_service_url(&arena, "sts", "eu-west-1"),
                            "https://sts.eu-west-1.amazonaws.com");
        assert_string_equal(aws_service_url(&arena, "secretsmanager", "cn-north-1"),
                            "https://secretsmanager.cn-north-1.amazonaws.com.cn");
}

/* ---- material ---- */

static void test_material(void **state)
{
        struct aws_material m = { "p/d/c/k", "v1", true }, back = { 0 };
        struct vault_material stored = { 0 };

        (void)state;
        aws_material_write(&arena, &m, &stored);
        assert_string_equal(stored.material,
                            "{\"scheme\":\"aws_secrets_manager_v1\",\"secretId\":\"p/d/c/k\","
                            "\"versionId\":\"v1\",\"source\":\"managed\"}");
        assert_int_equal(aws_material_read(&arena, &stored, &back, NULL), 0);
        assert_string_equal(back.secret_id, "p/d/c/k");
        assert_string_equal(back.version_id, "v1");
        assert_true(back.managed);
        m.version_id = NULL;
        m.managed = false;
        aws_material_write(&arena, &m, &stored);
        assert_int_equal(aws_material_read(&arena, &stored, &back, NULL), 0);
        assert_null(back.version_id);
        assert_null(stored.version_ref);
        assert_false(back.managed);
}

/* ---- errors ---- */

static void test_classification(void **state)
{
        (void)state;
        assert_int_equal(aws_classify(400, "ResourceExistsException"), VAULT_CONFLICT);
        assert_int_equal(aws_classify(400, "ResourceNotFoundException"), VAULT_NOT_FOUND);
        assert_int_equal(aws_classify(400, "AccessDeniedException"), VAULT_ACCESS_DENIED);
        assert_int_equal(aws_classify(400, "ExpiredTokenException"), VAULT_ACCESS_DENIED);
        assert_int_equal(aws_classify(400, "ThrottlingException"), VAULT_THROTTLED);
        assert_int_equal(aws_classify(400, "InvalidRequestException"), VAULT_INVALID_REQUEST);
        assert_int_equal(aws_classify(500, "InternalServiceError"), VAULT_ERROR);
        assert_int_equal(aws_classify(503, NULL), VAULT_UNAVAILABLE);
        assert_int_equal(aws_classify(429, NULL), VAULT_THROTTLED);
        assert_int_equal(aws_classify(403, "Unknown"), VAULT_ACCESS_DENIED);
        /* A proxy's 404 must not end a removal. */
        assert_int_equal(aws_classify(404, NULL), VAULT_ERROR);
        assert_int_equal(aws_classify(404, "NotResourceNotFoundException"), VAULT_ERROR);
        assert_int_equal(aws_classify(302, NULL), VAULT_ERROR);
}

static void test_error_types(void **state)
{
        (void)state;
        assert_string_equal(aws_error_type(&arena, "X"), "X");
        assert_string_equal(aws_error_type(&arena, "com.amazonaws.x#Y"), "Y");
        assert_string_equal(aws_error_type(&arena, "Y:http://internal.amazon.com/coral/"), "Y");
        assert_null(aws_error_type(&arena, ""));
        assert_null(aws_error_type(&arena, "a#"));
}

static void test_redaction(void **state)
{
        const char *got;

        (void)state;
        assert_string_equal(aws_redact(&arena, "User: arn:aws:iam::1:user/me, no"),
                            "User: [redacted], no");
        assert_string_equal(aws_redact(&arena, "account 123456789012 key AKIAIOSFODNN7EXAMPLE."),
                            "account [redacted] key [redacted].");
        assert_string_equal(aws_redact(&arena, "Rate exceeded 12345678901"),
                            "Rate exceeded 12345678901");
        got = aws_redact(&arena, "\"arn:aws:x\"");
        assert_string_equal(got, "\"[redacted]\"");
        got = aws_redact(&arena, arena_printf(&arena, "%01000d", 0) + 1);
        assert_string_equal(got, "[redacted]");
        got = aws_redact(&arena, memset(arena_alloc(&arena, 1001), 'x', 1000));
        assert_int_equal(strlen(got), 300);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_names, setup, teardown),
                cmocka_unit_test_setup_teardown(test_names_need_a_subject, setup, teardown),
                cmocka_unit_test_setup_teardown(test_reference_names, setup, teardown),
                cmocka_unit_test_setup_teardown(test_what_is_managed, setup, teardown),
                cmocka_unit_test_setup_teardown(test_the_first_valid_reference_counts, setup,
                                                teardown),
                cmocka_unit_test_setup_teardown(test_the_namespace, setup, teardown),
                cmocka_unit_test_setup_teardown(test_our_names_come_first, setup, teardown),
                cmocka_unit_test_setup_teardown(test_endpoints, setup, teardown),
                cmocka_unit_test_setup_teardown(test_regions, setup, teardown),
                cmocka_unit_test_setup_teardown(test_material, setup, teardown),
                cmocka_unit_test_setup_teardown(test_classification, setup, teardown),
                cmocka_unit_test_setup_teardown(test_error_types, setup, teardown),
                cmocka_unit_test_setup_teardown(test_redaction, setup, teardown),
        };

        return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
