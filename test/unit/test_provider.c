#include "test.h"

#include "core/kinds/sandbox.h"

extern const struct kind kind_fake;

static const struct runtime kinds = { .kinds = builtin_kinds };

static json_t *parse(const char *text)
{
        json_t *doc = NULL;

        assert_int_equal(json_parse(text, strlen(text), &doc, NULL), 0);
        return doc;
}

static bool matches(const char *recorded, const char *config)
{
        json_t *have = parse(recorded), *want = parse(config);
        bool same = sandbox_config_matches(have, want);

        json_decref(have);
        json_decref(want);
        return same;
}

#define FAKE(image) "{\"provider\":\"fake\",\"image\":\"" image "\",\"reuseLease\":true}"

/* environment-runtime 7.2, 7.108 */
static void test_fake_matches_by_image(void **state)
{
        (void)state;
        assert_true(matches(FAKE("ubuntu:24.04"), FAKE("ubuntu:24.04")));
        assert_false(matches(FAKE("debian:12"), FAKE("ubuntu:24.04")));
        assert_false(matches("{\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":"
                             "false}",
                             FAKE("ubuntu:24.04")));
        assert_false(
                matches("{\"image\":\"ubuntu:24.04\",\"reuseLease\":true}", FAKE("ubuntu:24.04")));
}

#define PROVIDED(rest) "{\"provider\":\"fake-plugin\",\"reuseLease\":true" rest "}"

/* environment-runtime 7.1, 7.108 */
static void test_provided_matches_every_member(void **state)
{
        const char *config = PROVIDED(",\"image\":\"template-b\",\"timeoutMs\":450000,\"apiKey\":"
                                      "\"22222222-2222-4222-8222-222222222222\"");

        (void)state;
        assert_true(matches(config, config));
        assert_false(matches(PROVIDED(",\"image\":\"template-a\",\"timeoutMs\":450000,\"apiKey\":"
                                      "\"22222222-2222-4222-8222-222222222222\""),
                             config));
        /* another secret is another sandbox, though its value may be the same */
        assert_false(matches(PROVIDED(",\"image\":\"template-b\",\"timeoutMs\":450000,\"apiKey\":"
                                      "\"33333333-3333-4333-8333-333333333333\""),
                             config));
        /* what is not recorded does not match */
        assert_false(matches(PROVIDED(",\"image\":\"template-b\",\"apiKey\":"
                                      "\"22222222-2222-4222-8222-222222222222\""),
                             config));
        /* what is recorded besides does not matter */
        assert_true(matches(PROVIDED(",\"image\":\"template-b\",\"timeoutMs\":450000,\"apiKey\":"
                                     "\"22222222-2222-4222-8222-222222222222\",\"sandboxId\":"
                                     "\"s-1\",\"driver\":\"sandbox\""),
                            config));
        assert_false(matches("{\"provider\":\"other\",\"reuseLease\":true}", PROVIDED("")));
        assert_true(matches(PROVIDED(",\"o\":{\"a\":1,\"b\":[2]}"),
                            PROVIDED(",\"o\":{\"b\":[2],\"a\":1}")));
        assert_false(matches(PROVIDED(",\"o\":{\"a\":1}"), PROVIDED(",\"o\":{\"a\":\"1\"}")));
}

static void assert_from_metadata(const char *metadata, const char *strict, const char *loose)
{
        json_t *doc = parse(metadata);
        json_t *s = sandbox_config_from_metadata_strict(doc);
        json_t *l = sandbox_config_from_metadata_loose(&kinds, doc);
        json_t *want_s = strict ? parse(strict) : NULL, *want_l = loose ? parse(loose) : NULL;

        assert_true(want_s ? json_equal(s, want_s) : s == NULL);
        assert_true(want_l ? json_equal(l, want_l) : l == NULL);
        json_decref(doc);
        json_decref(s);
        json_decref(l);
        json_decref(want_s);
        json_decref(want_l);
}

/* environment-runtime 7.109 */
static void test_fake_from_metadata(void **state)
{
        (void)state;
        assert_from_metadata("{\"driver\":\"sandbox\",\"executionWorkspaceMode\":null,"
                             "\"provider\":\"fake\",\"image\":\"ubuntu:24.04\",\"reuseLease\":true,"
                             "\"resumedLease\":true}",
                             FAKE("ubuntu:24.04"), FAKE("ubuntu:24.04"));
        /* anything but true is false */
        assert_from_metadata("{\"provider\":\"fake\",\"image\":\"i\",\"reuseLease\":\"true\"}",
                             "{\"provider\":\"fake\",\"image\":\"i\",\"reuseLease\":false}",
                             "{\"provider\":\"fake\",\"image\":\"i\",\"reuseLease\":false}");
        assert_from_metadata("{\"provider\":\"fake\",\"image\":7}", NULL, NULL);
        assert_from_metadata("{\"provider\":\"fake\"}", NULL, NULL);
        assert_from_metadata("{\"image\":\"i\"}", NULL, NULL);
        assert_from_metadata("{\"provider\":5,\"image\":\"i\"}", NULL, NULL);
}

/* environment-runtime 7.110 */
static void test_provided_from_metadata(void **state)
{
        const char *metadata = "{\"driver\":\"sandbox\",\"provider\":\"secure-plugin\",\"apiKey\":"
                               "\"22222222-2222-4222-8222-222222222222\",\"timeoutMs\":1234,"
                               "\"reuseLease\":true}";

        (void)state;
        assert_from_metadata(metadata, NULL, metadata);
        assert_from_metadata("{\"provider\":\"secure-plugin\"}", NULL,
                             "{\"provider\":\"secure-plugin\",\"reuseLease\":false}");
}

/* environment-runtime 7.104 */
static void test_registry(void **state)
{
        (void)state;
        assert_ptr_equal(kind_of_provider(&kinds, "fake"), &kind_fake);
        assert_null(kind_of_provider(&kinds, "fake-plugin"));
        assert_null(kind_of_provider(&kinds, "Fake"));
        assert_null(kind_of_provider(&kinds, ""));
}

/* environment-runtime 7.106 */
static void test_unknown_provider(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        const struct kind *p = NULL;

        (void)state;
        assert_int_equal(sandbox_builtin(&kinds, "fake-plugin", &p, &e), ERR_UNPROCESSABLE);
        assert_string_equal(
                e.msg,
                "Sandbox provider \"fake-plugin\" is not registered as a built-in provider.");
        assert_null(p);
}

/* The fake provider itself, with nothing behind it */

struct fixture {
        struct arena arena;
        struct op op;
        struct runtime rt;
        struct place place;
};

static void begin(struct fixture *f, const char *config)
{
        *f = (struct fixture){ .place = { .id = "p-1",
                                          .environment_id = "env-1",
                                          .provider = "fake",
                                          .config = config } };
        arena_init(&f->arena);
        f->op = (struct op){ .arena = &f->arena, .deadline_ms = OP_NO_DEADLINE };
}

/* environment-runtime 7.105 */
static void test_fake_probe_echoes(void **state)
{
        struct probe_target target = { "", NULL };
        struct probe_result got = { .details = json_object() };
        json_t *config = parse(FAKE("debian:12"));
        struct fixture f;

        (void)state;
        begin(&f, "{}");
        assert_int_equal(kind_fake.probe(&f.op, &f.rt, &target, config, &got, NULL), 0);
        assert_true(got.ok);
        assert_string_equal(buf_str(&got.summary),
                            "Fake sandbox provider is ready for image debian:12.");
        assert_true(json_equal(got.details, config));
        json_decref(config);
        json_decref(got.details);
        buf_done(&got.summary);
        arena_done(&f.arena);
}

/* environment-runtime 7.107 */
static void test_fake_reuse_keeps_the_id(void **state)
{
        struct provider_lease first = { 0 }, again = { 0 };
        struct lease_request req = { .run_id = "run-1" };
        json_t *metadata = json_object();
        struct fixture f;

        (void)state;
        begin(&f, FAKE("ubuntu:24.04"));
        assert_int_equal(kind_fake.open(&f.op, &f.rt, &f.place, &req, &first, NULL), 0);
        assert_string_equal(first.id, "sandbox://fake/env-1");
        kind_fake.describe(&f.place, &first, false, metadata);
        assert_null(json_object_get(metadata, "resumedLease"));

        f.place.provider_lease_id = first.id;
        assert_int_equal(kind_fake.resume(&f.op, &f.rt, &f.place, &req, &again, NULL), 0);
        assert_string_equal(again.id, first.id);
        kind_fake.describe(&f.place, &again, true, metadata);
        assert_true(json_is_true(json_object_get(metadata, "resumedLease")));
        assert_string_equal(json_get_string(metadata, "image"), "ubuntu:24.04");
        json_decref(metadata);
        arena_done(&f.arena);
}

/* environment-runtime 7.111 */
static void test_fake_close_does_nothing(void **state)
{
        struct fixture f;

        (void)state;
        begin(&f, FAKE("ubuntu:24.04"));
        assert_int_equal(kind_fake.close(&f.op, &f.rt, &f.place, NULL), 0);
        assert_int_equal(kind_fake.close(&f.op, &f.rt, &f.place, NULL), 0);
        arena_done(&f.arena);
}

static void test_fake_refuses_the_config_of_others(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        struct provider_lease ret = { 0 };
        struct lease_request req = { 0 };
        struct fixture f;

        (void)state;
        begin(&f, "{\"provider\":\"other\"}");
        assert_int_equal(kind_fake.open(&f.op, &f.rt, &f.place, &req, &ret, &e), ERR_UNPROCESSABLE);
        assert_string_equal(e.msg, "Sandbox provider \"fake\" received config for provider "
                                   "\"other\".");
        arena_done(&f.arena);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_fake_matches_by_image),
                cmocka_unit_test(test_provided_matches_every_member),
                cmocka_unit_test(test_fake_from_metadata),
                cmocka_unit_test(test_provided_from_metadata),
                cmocka_unit_test(test_registry),
                cmocka_unit_test(test_unknown_provider),
                cmocka_unit_test(test_fake_probe_echoes),
                cmocka_unit_test(test_fake_reuse_keeps_the_id),
                cmocka_unit_test(test_fake_close_does_nothing),
                cmocka_unit_test(test_fake_refuses_the_config_of_others),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
