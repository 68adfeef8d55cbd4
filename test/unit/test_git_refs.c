#include "test.h"

#include "codec/git_refs.h"

#define OID   "0123456789abcdef0123456789abcdef01234567"
#define OTHER "abcdefabcdefabcdefabcdefabcdefabcdefabcd"

/* Names that some file system takes for another. */
static void test_parts(void **state)
{
        static const char *const git[] = { ".git",
                                           ".GIT",
                                           ".Git",
                                           ".git.",
                                           ".git . ",
                                           "git~1",
                                           "GIT~1",
                                           ".g\xe2\x80\x8cit",
                                           "\xef\xbb\xbf.git",
                                           ".gi\xc2\xadt" };
        static const char *const other[] = { "git",    ".gita",       ".gi",      ".g\xc3\xaft",
                                             ".git~1", "git~2",       ".g\xffit", "",
                                             "...",    "\xe2\x80\x8c" };

        for (size_t i = 0; i < ARRAY_LEN(git); i++)
                if (!git_part_is(git[i], strlen(git[i]), ".git"))
                        fail_msg("%s is not taken for .git", git[i]);
        for (size_t i = 0; i < ARRAY_LEN(other); i++)
                if (git_part_is(other[i], strlen(other[i]), ".git"))
                        fail_msg("%s is taken for .git", other[i]);
        assert_true(git_part_is("hoo\xe2\x84\xaa\xc5\xbf/x", 8, "hooks"));
        assert_true(git_part_is("CONFIG/x", 6, "config"));
        assert_false(git_part_is("config", 6, "config.worktree"));
}

static void test_names(void **state)
{
        const char *const good[] = { "refs/heads/main",       "refs/heads/a/b.c",
                                     "refs/tags/v1.0-rc_2+x", "refs/heads/fix/#12",
                                     "refs/heads/\xc3\xbc",   "refs/heads/@x" };
        const char *const bad[] = {
                "",
                "HEAD",
                "main",
                "heads/main",
                "refs/heads/",
                "refs/heads//a",
                "refs/heads/a/",
                "refs/heads/.a",
                "refs/heads/a.",
                "refs/heads/a..b",
                "refs/heads/a.lock",
                "refs/heads/a.lock/b",
                "refs/../config",
                "refs/heads/-a",
                "refs/heads/a b",
                "refs/heads/a\nb",
                "refs/heads/a\x7f",
                "refs/heads/a~1",
                "refs/heads/a^",
                "refs/heads/a:b",
                "refs/heads/a?",
                "refs/heads/a*",
                "refs/heads/a[b",
                "refs/heads/a\\b",
                "refs/heads/a@{b",
                "refs/heads/@",
                "refs/heads/a$b",
                "refs/heads/a;b",
        };
        char longest[GIT_NAME_MAX + 2];

        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                assert_true(git_ref_name_ok(good[i]));
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (git_ref_name_ok(bad[i]))
                        fail_msg("%s", bad[i]);
        memset(longest, 'a', sizeof(longest));
        memcpy(longest, "refs/", 5);
        longest[GIT_NAME_MAX + 1] = '\0';
        assert_false(git_ref_name_ok(longest));
        longest[GIT_NAME_MAX] = '\0';
        assert_true(git_ref_name_ok(longest));
}

static bool head(const char *text, struct git_ref *ret)
{
        return git_parse_head(text, strlen(text), ret);
}

static void test_head(void **state)
{
        struct git_ref ref;

        assert_true(head("ref: refs/heads/main\n", &ref));
        assert_string_equal(ref.name, "refs/heads/main");
        assert_string_equal(ref.oid, "");
        assert_true(head(OID "\n", &ref));
        assert_string_equal(ref.name, "");
        assert_string_equal(ref.oid, OID);
        assert_true(head(OID, &ref));
        assert_false(head("", &ref));
        assert_false(head("ref: ", &ref));
        assert_false(head("ref: refs/tags/x\n", &ref));
        assert_false(head("ref: ../config\n", &ref));
        assert_false(head(OID "\n\n", &ref));
        assert_false(head("0123456789ABCDEF0123456789abcdef01234567\n", &ref));
        assert_false(git_parse_head("ref: refs/heads/a\0b\n", 20, &ref));
}

static void test_packed(void **state)
{
        static const char text[] =
                "# pack-refs with: peeled\n" OID " refs/heads/a\n^" OTHER "\nnonsense\n" OTHER
                " refs/heads/../x\n" OTHER "  refs/heads/x\n\n" OTHER " refs/tags/v";
        struct git_ref ref;
        size_t at = 0;

        assert_true(git_packed_next(text, sizeof(text) - 1, &at, &ref));
        assert_string_equal(ref.name, "refs/heads/a");
        assert_string_equal(ref.oid, OID);
        assert_true(git_packed_next(text, sizeof(text) - 1, &at, &ref));
        assert_string_equal(ref.name, "refs/tags/v");
        assert_string_equal(ref.oid, OTHER);
        assert_false(git_packed_next(text, sizeof(text) - 1, &at, &ref));
        at = 0;
        assert_false(git_packed_next("", 0, &at, &ref));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_parts),
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_head),
                cmocka_unit_test(test_packed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
