/* The difference of texts: as diff(1) writes it, as short as it can be, and patch(1) and git take
 * it. */
#define _GNU_SOURCE
#include "test.h"

#include "base/buf.h"
#include "workspace/textdiff.h"

static char *diff_of(const char *was, const char *now)
{
        struct textdiff_side a = { was, strlen(was) }, b = { now, strlen(now) };
        struct buf out = BUF_INIT;

        assert_int_equal(textdiff(&a, &b, &out), streq(was, now) ? 0 : 1);
        buf_append(&out, "", 0);
        return out.data ? buf_take(&out) : xstrdup("");
}

static void expect(const char *was, const char *now, const char *want)
{
        char *got = diff_of(was, now);

        assert_string_equal(got, want);
        free(got);
}

static void test_hunks(void **state)
{
        (void)state;
        expect("", "", "");
        expect("a\nb\n", "a\nb\n", "");
        expect("", "a\n", "@@ -0,0 +1 @@\n+a\n");
        expect("a\n", "", "@@ -1 +0,0 @@\n-a\n");
        expect("a\nb\nc\n", "a\nx\nc\n", "@@ -1,3 +1,3 @@\n a\n-b\n+x\n c\n");
        expect("a", "a\n", "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+a\n");
        expect("1\n2\n3\n4\n5\n6\n7\n8\n9\n", "1\n2\n3\n4\nx\n5\n6\n7\n8\n9\n",
               "@@ -2,6 +2,7 @@\n 2\n 3\n 4\n+x\n 5\n 6\n 7\n");
        /* six equal lines between two changes: one hunk; seven: two */
        expect("a\n1\n2\n3\n4\n5\n6\nb\n", "A\n1\n2\n3\n4\n5\n6\nB\n",
               "@@ -1,8 +1,8 @@\n-a\n+A\n 1\n 2\n 3\n 4\n 5\n 6\n-b\n+B\n");
        expect("a\n1\n2\n3\n4\n5\n6\n7\nb\n", "A\n1\n2\n3\n4\n5\n6\n7\nB\n",
               "@@ -1,4 +1,4 @@\n-a\n+A\n 1\n 2\n 3\n@@ -6,4 +6,4 @@\n 5\n 6\n 7\n-b\n+B\n");
}

/* Read back what a difference does to a text. */
static char *apply(const char *was, const char *diff, unsigned *ret_edits)
{
        struct buf out = BUF_INIT;
        const char *at = was;
        size_t line = 1;

        *ret_edits = 0;
        while (*diff) {
                size_t from, len = strcspn(diff, "\n") + 1;
                const char *end;

                if (*diff == '@') {
                        unsigned n = 1;

                        assert_true(sscanf(diff, "@@ -%zu,%u", &from, &n) >= 1);
                        from += n == 0; /* behind that line */
                        while (line < from) {
                                end = strchr(at, '\n') + 1;
                                buf_append(&out, at, (size_t)(end - at));
                                at = end;
                                line++;
                        }
                } else if (*diff == '+') {
                        buf_append(&out, diff + 1, len - 1);
                        (*ret_edits)++;
                } else if (*diff != '\\') {
                        end = strchr(at, '\n') + 1;
                        assert_memory_equal(at, diff + 1, (size_t)(end - at));
                        if (*diff == ' ')
                                buf_append(&out, at, (size_t)(end - at));
                        else
                                (*ret_edits)++;
                        at = end;
                        line++;
                }
                diff += len;
        }
        buf_puts(&out, at);
        return buf_take(&out);
}

/* The plain way, for short texts: the longest common subsequence. */
static unsigned shortest(const char *a, const char *b)
{
        static unsigned lcs[64][64];
        size_t n = strlen(a) / 2, m = strlen(b) / 2;

        memset(lcs, 0, sizeof(lcs));
        for (size_t i = n; i-- > 0;)
                for (size_t j = m; j-- > 0;)
                        lcs[i][j] = a[2 * i] == b[2 * j] ? lcs[i + 1][j + 1] + 1
                                                         : MAX(lcs[i + 1][j], lcs[i][j + 1]);
        return (unsigned)(n + m) - 2 * lcs[0][0];
}

static void random_lines(char ret[128], unsigned *seed)
{
        unsigned n = (unsigned)rand_r(seed) % 40, kinds = 1 + (unsigned)rand_r(seed) % 6;

        for (unsigned i = 0; i < n; i++) {
                ret[2 * i] = (char)('a' + (unsigned)rand_r(seed) % kinds);
                ret[2 * i + 1] = '\n';
        }
        ret[2 * n] = '\0';
}

static void test_shortest(void **state)
{
        unsigned seed = 1;

        (void)state;
        for (int i = 0; i < 5000; i++) {
                char was[128], now[128], *diff, *again;
                unsigned edits;

                random_lines(was, &seed);
                random_lines(now, &seed);
                diff = diff_of(was, now);
                again = apply(was, diff, &edits);
                assert_string_equal(again, now);
                assert_int_equal(edits, shortest(was, now));
                free(diff);
                free(again);
        }
}

/* Far apart, and long: still right, within its bounds. */
static void test_far_apart(void **state)
{
        struct buf a = BUF_INIT, b = BUF_INIT;
        char *diff, *again;
        unsigned edits;

        (void)state;
        for (int i = 0; i < 5000; i++) {
                buf_appendf(&a, "%d\n", i);
                buf_appendf(&b, "%d\n", i % 7 == 0 ? -i : i * 3);
        }
        diff = diff_of(a.data, b.data);
        again = apply(a.data, diff, &edits);
        assert_string_equal(again, b.data);
        free(diff);
        free(again);
        buf_done(&a);
        buf_done(&b);
}

static void test_limits(void **state)
{
        size_t len = TEXTDIFF_MAX_BYTES;
        char *text = xcalloc(1, len + 2);
        struct textdiff_side a = { text, len }, none = { "", 0 };
        struct buf out = BUF_INIT;

        (void)state;
        memset(text, 'x', len + 1);
        for (size_t i = 9; i < len; i += 10)
                text[i] = '\n';
        assert_true(textdiff_is_text(&a));
        a.len++;
        assert_false(textdiff_is_text(&a));
        a.len--;
        assert_int_equal(textdiff(&none, &a, &out), 1);
        assert_in_range(out.len, TEXTDIFF_MAX_OUTPUT - 100, TEXTDIFF_MAX_OUTPUT + 200);
        assert_non_null(strstr(buf_str(&out), "\\ The rest of the difference is left out\n"));
        text[5] = '\0';
        assert_false(textdiff_is_text(&a));
        buf_done(&out);
        free(text);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_hunks),
                cmocka_unit_test(test_shortest),
                cmocka_unit_test(test_far_apart),
                cmocka_unit_test(test_limits),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
