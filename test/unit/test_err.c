#include "test.h"

#include <errno.h>

#include "base/err.h"

static void test_set_returns_the_code_and_replaces(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        err_details(&e, xstrdup("{}"));
        assert_int_equal(err_set(&e, ERR_NOT_FOUND, "Lease %d not found", 7), ERR_NOT_FOUND);
        assert_int_equal(e.code, ERR_NOT_FOUND);
        assert_string_equal(e.msg, "Lease 7 not found");
        assert_null(e.details);
        assert_int_equal(err_set(NULL, ERR_BUSY, "nobody listens"), ERR_BUSY);
}

static void test_arguments_may_point_into_the_error(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        err_set(&e, ERR_IO, "first");
        err_set(&e, ERR_PROVIDER, "then: %s", e.msg);
        assert_string_equal(e.msg, "then: first");
        err_sys(&e, ERR_PROVIDER, EPERM, "%s", e.msg);
        assert_string_equal(e.msg, "then: first: Operation not permitted");
        err_wrap(&e, ERR_PROVIDER, "[%.4s]", e.msg);
        assert_string_equal(e.msg, "[then]: then: first: Operation not permitted");
}

static void test_wrap_keeps_text_and_details(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        err_set(&e, ERR_TIMEOUT, "no answer");
        err_details(&e, xstrdup("[1]"));
        assert_int_equal(err_wrap(&e, ERR_PROVIDER, "probe '%s'", "x"), ERR_PROVIDER);
        assert_string_equal(e.msg, "probe 'x': no answer");
        assert_string_equal(e.details, "[1]");
        err_clear(&e);
        err_wrap(&e, ERR_PROVIDER, "alone");
        assert_string_equal(e.msg, "alone");
}

static void test_sys_names_the_reason(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        assert_int_equal(err_sys(&e, ERR_INTERNAL, ENOENT, "open %s", "f"), ERR_INTERNAL);
        assert_string_equal(e.msg, "open f: No such file or directory");
        assert_int_equal(err_sys(&e, ERR_INTERNAL, ENOSPC, "write"), ERR_IO);
        assert_int_equal(err_sys(&e, ERR_INTERNAL, EDQUOT, "write"), ERR_IO);
        assert_int_equal(err_sys(NULL, ERR_INTERNAL, EIO, "write"), ERR_IO);
}

/* 1023 bytes fit; one more is cut, and never inside a character. */
static void test_long_texts_are_cut_at_a_character(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        char text[1100];

        (void)state;
        memset(text, 'a', sizeof(text));
        text[1023] = '\0';
        err_set(&e, ERR_INVALID, "%s", text);
        assert_string_equal(e.msg, text);

        memcpy(text + 1021, "\xe2\x82\xac", 4); /* the euro sign would end at byte 1024 */
        err_set(&e, ERR_INVALID, "%s", text);
        assert_int_equal(strlen(e.msg), 1021);
        memcpy(text + 1020, "\xe2\x82\xac", 4); /* and here it just fits */
        err_set(&e, ERR_INVALID, "%sz", text);
        assert_int_equal(strlen(e.msg), 1023);
        assert_memory_equal(e.msg + 1020, "\xe2\x82\xac", 3);

        err_set(&e, ERR_INVALID, "%s", "\xf0\x9f\x98\x80");
        memset(text, 'a', 1019);
        text[1019] = '\0';
        err_wrap(&e, ERR_INVALID, "%s", text); /* leaves 2 bytes after ": " */
        assert_int_equal(strlen(e.msg), 1021);
}

static void test_move(void **state)
{
        CLEAN(err_done) struct err from = { 0 }, to = { 0 };

        (void)state;
        err_set(&from, ERR_BUSY, "full");
        err_details(&from, xstrdup("1"));
        err_details(&to, xstrdup("2"));
        err_move(&to, &from);
        assert_int_equal(to.code, ERR_BUSY);
        assert_string_equal(to.details, "1");
        assert_int_equal(from.code, 0);
        assert_null(from.details);
        err_move(NULL, &to);
        assert_null(to.details);
}

/* What may pass: by the code, else by the errno, else by whoever made the error. */
static void test_what_may_pass(void **state)
{
        CLEAN(err_done) struct err err = { 0 };

        (void)state;
        (void)err_set(&err, ERR_BUSY, "full");
        assert_true(err.is_transient);
        (void)err_wrap(&err, ERR_PROVIDER, "the provider");
        assert_true(err.is_transient);
        (void)err_set(&err, ERR_UNPROCESSABLE, "no");
        assert_false(err.is_transient);
        (void)err_wrap(&err, ERR_UNCERTAIN, "the provider");
        assert_false(err.is_transient);
        err_mark_transient(&err);
        assert_true(err.is_transient);
        err_clear(&err);
        assert_false(err.is_transient);
        (void)err_sys(&err, ERR_PROVIDER, EMFILE, "open");
        assert_true(err.is_transient);
        (void)err_sys(&err, ERR_INVALID, ENOSPC, "write");
        assert_true(err.is_transient);
        (void)err_sys(&err, ERR_IO, EACCES, "mkdir");
        assert_false(err.is_transient);
        (void)err_sys(&err, ERR_BUSY, ECONNREFUSED, "connect");
        assert_true(err.is_transient);
        (void)err_set(&err, ERR_IO, "the database is full");
        assert_true(err.is_transient);
        err_mark_transient(NULL);
}

static void test_every_code_has_a_meaning(void **state)
{
        (void)state;
        for (int code = ERR_INTERNAL; code >= ERR_THROTTLED; code--) {
                const struct err_info *info = err_info(code);

                assert_non_null(info->name);
                assert_in_range(info->http_status, 400, 504);
                assert_in_range(info->exit_status, 1, 5);
                if (code != ERR_INTERNAL)
                        assert_ptr_not_equal(info, err_info(ERR_INTERNAL));
        }
        assert_int_equal(err_info(ERR_UNPROCESSABLE)->http_status, 422);
        assert_int_equal(err_info(ERR_USAGE)->exit_status, 2);
        assert_ptr_equal(err_info(0), err_info(ERR_INTERNAL));
        assert_ptr_equal(err_info(ERR_THROTTLED - 1), err_info(ERR_INTERNAL));
        assert_ptr_equal(err_info(5), err_info(ERR_INTERNAL));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_set_returns_the_code_and_replaces),
                cmocka_unit_test(test_arguments_may_point_into_the_error),
                cmocka_unit_test(test_wrap_keeps_text_and_details),
                cmocka_unit_test(test_sys_names_the_reason),
                cmocka_unit_test(test_long_texts_are_cut_at_a_character),
                cmocka_unit_test(test_move),
                cmocka_unit_test(test_what_may_pass),
                cmocka_unit_test(test_every_code_has_a_meaning),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
