/* Whom a comment names, and how much of it is looked at. */
#include "test.h"

#include "base/buf.h"
#include "core/issues/issue_wake.h"
#include "store/agents.h"

static const struct agent agents[] = {
        { .id = "00000000-0000-4000-8000-00000000000a", .name = "Ada", .url_key = "ada" },
        { .id = "00000000-0000-4000-8000-00000000000b", .name = "Bob Long", .url_key = "bob-long" },
        { .id = "00000000-0000-4000-8000-00000000000c", .name = "Bob", .url_key = "bob" },
};

/* A letter for each that is named. */
static const char *named(const char *text)
{
        static char letters[ARRAY_LEN(agents) + 1];
        bool is_named[ARRAY_LEN(agents)] = { 0 };
        struct issue_mentions m = { agents, ARRAY_LEN(agents), is_named };
        size_t n = 0;

        issue_find_mentions(text, &m);
        for (size_t i = 0; i < ARRAY_LEN(agents); i++)
                if (is_named[i])
                        letters[n++] = (char)('a' + i);
        letters[n] = '\0';
        return letters;
}

static void test_names(void **state UNUSED)
{
        assert_string_equal(named("nobody"), "");
        assert_string_equal(named("@ada, @BOB: (@bob-long)"), "abc");
        assert_string_equal(named("@bob long"), "b");
        assert_string_equal(named("x@ada.org @adam @ ada @"), "");
        assert_string_equal(named("[A](agent://00000000-0000-4000-8000-00000000000a)"), "a");
        assert_string_equal(named("agent://00000000-0000-4000-8000-00000000000a1"), "");
}

/* The text n times, then `last`. */
static const char *repeated(struct buf *b, const char *text, unsigned n, const char *last)
{
        buf_clear(b);
        for (unsigned i = 0; i < n; i++)
                buf_puts(b, text);
        buf_puts(b, last);
        return buf_str(b);
}

static void test_only_so_many_count(void **state UNUSED)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        static const char id[] = "agent://00000000-0000-4000-8000-00000000000b";

        assert_string_equal(named(repeated(&b, "@x ", ISSUE_MENTIONS_MAX - 1, "@ada")), "a");
        assert_string_equal(named(repeated(&b, "@x ", ISSUE_MENTIONS_MAX, "@ada")), "");
        assert_string_equal(named(repeated(&b, "@@", 1 << 20, " @ada")), "");
        assert_string_equal(named(repeated(&b, "agent://", ISSUE_MENTIONS_MAX - 1, id)), "b");
        assert_string_equal(named(repeated(&b, "agent://", ISSUE_MENTIONS_MAX, id)), "");
        /* What can be no mention costs nothing and counts for nothing. */
        assert_string_equal(named(repeated(&b, "a@x.org @ ", 1000, "@ada")), "a");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_only_so_many_count),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
