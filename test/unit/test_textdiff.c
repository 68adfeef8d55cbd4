/* The difference of texts: as diff(1) writes it, as short as it can be, and patch(1) and git take
 * it. */
#define _GNU_SOURCE
#include "merge_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "workspace/change_diff.h"
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

/* Changes */

static int diff_all(struct merge_world *w, const struct tree *was, const struct tree *now,
                    struct buf *out)
{
        struct tree_changes changes;
        struct change c;
        int r, shown = 0;

        mock_changes_init(&changes, was, now);
        while ((r = changes.set.next(&changes.set, &c, &w->err)) > 0) {
                r = change_diff(&w->op, &changes.set, &c, w->ws, out, &w->err);
                assert_true(r >= 0);
                shown += r;
        }
        assert_int_equal(r, 0);
        return shown;
}

static void expect_in(const struct buf *b, const char *part)
{
        if (!strstr(buf_str(b), part))
                fail_msg("'%s' is not in:\n%s", part, buf_str(b));
}

/* Not "git diff --no-index": what the output promises is that git takes it. */
static bool git_applies(struct merge_world *w, const struct buf *diff)
{
        char command[2 * SCRATCH_PATH_MAX];
        int fd = openat(w->root_fd, "diff", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

        assert_int_equal(fd_write_all(fd, diff->data, diff->len, NULL), 0);
        close(fd);
        snprintf(command, sizeof(command),
                 "cd %s/ws && GIT_CEILING_DIRECTORIES=/ git apply ../diff", w->root);
        return system(command) == 0; /* NOLINT(cert-env33-c): a test, on its own directory */
}

static void test_changes(void **state)
{
        struct merge_world w;
        struct tree was = { 0 }, now = { 0 }, got = { 0 };
        struct buf out = BUF_INIT;

        (void)state;
        world_init(&w);
        mock_file(&was, "edited", "one\ntwo\nthree\n");
        mock_file(&was, "exec", "x\n");
        mock_file(&was, "gone", "x\ny");
        mock_file(&was, "to-link", "x\n");
        mock_link(&was, "link", "old");
        mock_file(&was, "same", "x\n");
        mock_assign(&now, &was);
        mock_file(&now, "edited", "one\n2\nthree\n");
        mock_find(&now, "exec")->mode = 0755;
        mock_remove(&now, "gone");
        mock_link(&now, "to-link", "target");
        mock_link(&now, "link", "new");
        mock_file(&now, "dir/new \"\xc3\xa4\n", "text\n");
        mock_file(&now, "same", "agreed\n");
        world_set(&w, &was);
        world_write(&w, "same", "agreed\n");
        assert_int_equal(diff_all(&w, &was, &now, &out), 6);
        expect_in(&out, "diff --git a/edited b/edited\n--- a/edited\n+++ b/edited\n"
                        "@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n");
        expect_in(&out, "diff --git a/exec b/exec\nold mode 100644\nnew mode 100755\n");
        expect_in(&out, "deleted file mode 100644\n--- a/gone\n+++ /dev/null\n");
        expect_in(&out, "new file mode 120000\n--- /dev/null\n+++ b/to-link\n");
        expect_in(&out, "--- /dev/null\n+++ \"b/dir/new \\\"\\303\\244\\012\"\t\n");
        assert_null(strstr(buf_str(&out), "agreed"));
        if (git_applies(&w, &out)) {
                world_read(&w, &got);
                mock_assert_equal(&got, &now, "applied by git");
        } else if (system("git --version >/dev/null 2>&1") == 0) { /* NOLINT(cert-env33-c) */
                fail_msg("git does not take it:\n%s", out.data);
        }
        buf_done(&out);
        mock_done(&was);
        mock_done(&now);
        mock_done(&got);
        world_done(&w);
}

/* Links out of the workspace are shown, not followed; what is no text is named. */
static void test_not_shown(void **state)
{
        struct merge_world w;
        struct tree was = { 0 }, now = { 0 };
        struct buf out = BUF_INIT;
        int fd;

        (void)state;
        world_init(&w);
        mock_file(&now, "link", "x\n");
        mock_file(&now, "binary", "x\n");
        mock_file(&now, "pipe", "x\n");
        assert_int_equal(symlinkat("/etc/passwd", w.ws, "link"), 0);
        assert_int_equal(mkfifoat(w.ws, "pipe", 0600), 0);
        fd = openat(w.ws, "binary", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        assert_int_equal(fd_write_all(fd, "a\0b\n", 4, NULL), 0);
        close(fd);
        assert_int_equal(diff_all(&w, &was, &now, &out), 3);
        expect_in(&out, "Binary files a/binary and b/binary differ\n");
        expect_in(&out, "-/etc/passwd\n\\ No newline at end of file\n");
        assert_null(strstr(buf_str(&out), "root:"));
        buf_done(&out);
        mock_done(&now);
        world_done(&w);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_hunks),     cmocka_unit_test(test_shortest),
                cmocka_unit_test(test_far_apart), cmocka_unit_test(test_limits),
                cmocka_unit_test(test_changes),   cmocka_unit_test(test_not_shown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
