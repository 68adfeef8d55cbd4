#include "test.h"

#include "codec/body.h"

struct thing {
        const char *name, *kind, *note, *owner, *policy;
        int64_t size, seen_at;
        bool open;
};

struct thing_patch {
        struct thing row;
        struct body body;
        json_t *config, *tags, *parts;
        const char *status, *word;
        bool has_name;
};

static void refuse_parts(struct check *c, const struct body_member *m, void *into,
                         struct arena *arena UNUSED)
{
        if (json_array_size(((struct thing_patch *)into)->parts) > 1)
                check_custom(c, m->name, "Too many");
}

static const char *const kinds[] = { "big", "small", NULL };

#define P struct thing_patch
static const struct body_member members[] = {
        BODY_TEXT(P, row.name, "name", .flags = CHECK_REQUIRED, .min = 1, .max = 8),
        BODY_PRESENT(P, has_name, "name", .unnamed = true),
        BODY_WORD(P, row.kind, "kind", kinds),
        BODY_TEXT(P, row.note, "note", .flags = CHECK_NULLABLE),
        BODY_UUID(P, row.owner, "owner", .flags = CHECK_NULLABLE),
        BODY_DOCUMENT(P, row.policy, "policy", .flags = CHECK_NULLABLE),
        BODY_NUMBER(P, row.size, "size", .max = 9),
        BODY_TIME(P, row.seen_at, "seenAt", .flags = CHECK_NULLABLE),
        BODY_FLAG(P, row.open, "open"),
        BODY_OBJECT(P, config, "config"),
        BODY_STRINGS(P, tags, "tags", .min = 1),
        BODY_LIST(P, parts, "parts", .more = refuse_parts),
        BODY_TRIMMED(P, word, "word"),
        BODY_TEXT(P, status, "status", .when = BODY_CHANGING),
};
#undef P
static const struct body_type open_type = BODY_TYPE(members);
static const struct body_type strict_type = BODY_TYPE(members, .is_strict = true);

struct test {
        struct arena arena;
        json_t *json;
        struct thing_patch patch;
};

static int body_setup(void **state)
{
        struct test *t = xcalloc(1, sizeof(*t));

        arena_init(&t->arena);
        *state = t;
        return 0;
}

static int body_teardown(void **state)
{
        struct test *t = *state;

        arena_done(&t->arena);
        json_decref(t->json);
        free(t);
        return 0;
}

static void decode(struct test *t, const struct body_type *type, const char *text, bool creating)
{
        json_decref(t->json);
        t->json = NULL;
        if (text)
                assert_int_equal(json_parse(text, strlen(text), &t->json, NULL), 0);
        t->patch = (struct thing_patch){ .row.kind = "small" };
        t->patch.body = body_decode(type, t->json, creating, &t->arena, &t->patch);
}

static void assert_fault(struct test *t, const char *details)
{
        CLEAN(err_done) struct err err = { 0 };

        /* As often as it is asked for: a write function may be repeated. */
        for (int i = 0; i < 2; i++) {
                assert_int_equal(body_check(&t->patch.body, &err), ERR_INVALID);
                assert_string_equal(err.msg, "Validation error");
                assert_string_equal(err.details, details);
        }
        assert_int_equal(body_check(&t->patch.body, NULL), ERR_INVALID);
}

static void a_new_thing_keeps_its_defaults(void **state)
{
        struct test *t = *state;

        decode(t, &open_type, "{\"name\":\"a\",\"other\":1}", true);
        assert_int_equal(body_check(&t->patch.body, NULL), 0);
        assert_string_equal(t->patch.row.name, "a");
        assert_string_equal(t->patch.row.kind, "small");
        assert_true(t->patch.has_name);
        assert_true(body_has(&open_type, &t->patch.body, "name"));
        assert_false(body_has(&open_type, &t->patch.body, "kind"));
}

static void every_kind_of_member_is_read(void **state)
{
        struct test *t = *state;
        const struct thing *row = &t->patch.row;

        decode(t, &strict_type,
               "{\"name\":\"a\",\"kind\":\"big\",\"note\":\"n\","
               "\"owner\":\"AAAAAAAA-0000-4000-8000-000000000000\",\"policy\":{\"a\":1},"
               "\"size\":9,\"seenAt\":\"1970-01-01T00:00:01.000Z\",\"open\":true,"
               "\"config\":{},\"tags\":[\"x\"],\"parts\":[1],\"word\":\" w \"}",
               true);
        assert_int_equal(body_check(&t->patch.body, NULL), 0);
        assert_string_equal(row->kind, "big");
        assert_string_equal(row->owner, "aaaaaaaa-0000-4000-8000-000000000000");
        assert_string_equal(row->policy, "{\"a\":1}");
        assert_int_equal(row->size, 9);
        assert_int_equal(row->seen_at, 1000000);
        assert_true(row->open);
        assert_true(json_is_object(t->patch.config));
        assert_int_equal(json_array_size(t->patch.tags), 1);
        assert_int_equal(json_array_size(t->patch.parts), 1);
        assert_string_equal(t->patch.word, "w");
}

static void a_change_replaces_what_was_given(void **state)
{
        struct test *t = *state;
        struct thing row = { .name = "old", .note = "old", .size = 3, .seen_at = 5, .open = true };
        CLEAN(cleanup_free) char *names = NULL;

        decode(t, &open_type,
               "{\"status\":\"s\",\"note\":null,\"seenAt\":null,\"open\":false,\"tags\":[]}",
               false);
        assert_int_equal(body_check(&t->patch.body, NULL), 0);
        body_apply(&open_type, &t->patch.body, &t->patch, &row, sizeof(row));
        assert_string_equal(row.name, "old");
        assert_null(row.note);
        assert_int_equal(row.size, 3);
        assert_int_equal(row.seen_at, 0);
        assert_false(row.open);
        assert_string_equal(t->patch.status, "s");
        names = json_to_text(body_names(&open_type, &t->patch.body, &t->arena));
        assert_string_equal(names, "[\"note\",\"open\",\"seenAt\",\"status\",\"tags\"]");
}

static void faults_are_kept_until_they_are_asked_for(void **state)
{
        struct test *t = *state;

        decode(t, &open_type, "{\"parts\":[1,2],\"status\":5}", true);
        assert_fault(t, "[{\"code\":\"invalid_type\",\"expected\":\"string\",\"received\":"
                        "\"undefined\",\"path\":[\"name\"],\"message\":\"Required\"},"
                        "{\"code\":\"custom\",\"path\":[\"parts\"],\"message\":\"Too many\"}]");
        decode(t, &open_type, "{\"seenAt\":\"soon\"}", false);
        assert_fault(t, "[{\"validation\":\"datetime\",\"code\":\"invalid_string\",\"message\":"
                        "\"Invalid datetime\",\"path\":[\"seenAt\"]}]");
        decode(t, &strict_type, "{\"other\":1}", false);
        assert_fault(t, "[{\"code\":\"unrecognized_keys\",\"keys\":[\"other\"],\"path\":[],"
                        "\"message\":\"Unrecognized key(s) in object: 'other'\"}]");
        decode(t, &open_type, NULL, true);
        assert_int_equal(body_check(&t->patch.body, NULL), ERR_INVALID);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(a_new_thing_keeps_its_defaults, body_setup,
                                                body_teardown),
                cmocka_unit_test_setup_teardown(every_kind_of_member_is_read, body_setup,
                                                body_teardown),
                cmocka_unit_test_setup_teardown(a_change_replaces_what_was_given, body_setup,
                                                body_teardown),
                cmocka_unit_test_setup_teardown(faults_are_kept_until_they_are_asked_for,
                                                body_setup, body_teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
