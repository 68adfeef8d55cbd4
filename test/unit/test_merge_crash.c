/* A merge is killed at every crash point that it passes, each time that it passes it. After each,
 * every path holds what it held before or what it holds in the end, and nothing of ours is lost;
 * then the merge is done again and comes to the same end, with every conflict kept once and
 * reported. The same with two crashes in a row. */
#define _GNU_SOURCE
#include "merge_fixture.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"

#define MAX_POINTS 256
#define KEPT(name) name ".berth-local-" STAMP

struct scene {
        struct merge_world w;
        struct tree was, ours, now, want, got;
        char points[MAX_POINTS][64];
        size_t n_points;
        size_t conflicts;
};

/* Every rule has its part. */
static void make_scene(struct scene *s)
{
        struct tree *was = &s->was, *ours = &s->ours, *now = &s->now, *want = &s->want;

        mock_file(was, "conflict", "was");
        mock_file(was, "deleted/a", "was");
        mock_file(was, "deleted/sub/b", "was");
        mock_file(was, "edited", "was");
        mock_file(was, "exec", "was");
        mock_link(was, "link", "was");
        mock_file(was, "tofile/a", "was");
        mock_file(was, "tofile-full/a", "was");
        mock_file(was, "todir", "was");
        mock_file(was, "todir-edited", "was");
        mock_file(was, "parent/f", "was");
        mock_assign(ours, was);
        mock_assign(now, was);

        mock_file(ours, "conflict", "ours");
        mock_file(ours, "only-ours", "ours");
        mock_file(ours, "tofile-full/ours", "ours");
        mock_file(ours, "todir-edited", "ours");
        mock_link(ours, "parent", "elsewhere");

        mock_file(now, "conflict", "theirs");
        mock_remove(now, "deleted");
        mock_file(now, "edited", "theirs");
        mock_find(now, "exec")->mode = 0755;
        mock_link(now, "link", "theirs");
        mock_file(now, "new/deep/f", "theirs");
        mock_file(now, "tofile", "theirs");
        mock_file(now, "tofile-full", "theirs");
        mock_file(now, "todir/f", "theirs");
        mock_file(now, "todir-edited/f", "theirs");
        mock_file(now, "parent/f", "theirs");

        mock_assign(want, now);
        mock_file(want, "only-ours", "ours");
        mock_file(want, KEPT("conflict"), "ours");
        mock_file(want, KEPT("tofile-full") "/ours", "ours");
        mock_file(want, KEPT("todir-edited"), "ours");
        mock_link(want, KEPT("parent"), "elsewhere");
        s->conflicts = 4;
}

static void setup_scene(struct scene *s)
{
        memset(s, 0, sizeof(*s));
        world_init(&s->w);
        make_scene(s);
}

static void done_scene(struct scene *s)
{
        world_done(&s->w);
        mock_done(&s->was);
        mock_done(&s->ours);
        mock_done(&s->now);
        mock_done(&s->want);
        mock_done(&s->got);
}

/* The merge in a process that may die; true when it did. */
static bool merge_in_child(struct scene *s, const char *variable, const char *value)
{
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                setenv(variable, value, 1);
                _exit(world_merge(&s->w, &s->was, &s->now, false) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (WIFEXITED(status))
                assert_int_equal(WEXITSTATUS(status), 0);
        return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

/* name:1, name:2 ... for each time that the merge passes it. */
static void find_points(struct scene *s)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        char trace[SCRATCH_PATH_MAX + 16], *save = NULL, *all;

        snprintf(trace, sizeof(trace), "%s/trace", s->w.root);
        world_set(&s->w, &s->ours);
        assert_false(merge_in_child(s, "BERTH_FAULT_TRACE", trace));
        assert_int_equal(file_read_at(AT_FDCWD, trace, 1 << 20, &b, NULL), 0);
        all = xstrdup(b.data);
        for (char *name = strtok_r(all, "\n", &save); name; name = strtok_r(NULL, "\n", &save)) {
                unsigned times = 1;

                assert_true(s->n_points < MAX_POINTS);
                for (size_t i = 0; i < s->n_points; i++)
                        if (str_starts(s->points[i], name) && s->points[i][strlen(name)] == ':')
                                times++;
                snprintf(s->points[s->n_points++], 64, "%.56s:%u", name, times);
        }
        free(all);
}

static bool equal_node(const struct node *a, const struct node *b)
{
        return a && b && a->kind == b->kind &&
               (a->kind == TREE_DIR || (streq(a->text, b->text) && a->mode == b->mode));
}

/* Old or new; what is on its way from one kind to another, or to its other name, may be away for
 * the moment. What is neither is a temporary file. */
static void check_torn(struct scene *s, const char *point)
{
        world_read(&s->w, &s->got);
        for (size_t i = 0; i < s->got.n; i++) {
                const struct node *n = &s->got.nodes[i];

                if (strstr(n->path, ".berth-tmp-"))
                        continue;
                if (!equal_node(n, mock_find(&s->ours, n->path)) &&
                    !equal_node(n, mock_find(&s->want, n->path)) &&
                    !str_starts(n->path, KEPT("tofile-full"))) {
                        mock_print(&s->got, point);
                        fail_msg("%s: %s is neither old nor new", point, n->path);
                }
        }
        for (size_t i = 0; i < s->ours.n; i++) {
                const struct node *ours = &s->ours.nodes[i];
                bool is_file_in_both = ours->kind == TREE_FILE;
                const struct node *want = mock_find(&s->want, ours->path);

                is_file_in_both = is_file_in_both && want && want->kind == TREE_FILE;
                if (is_file_in_both && !mock_find(&s->got, ours->path))
                        fail_msg("%s: %s is away", point, ours->path);
        }
}

/* What was ours alone is somewhere at every moment. */
static void check_ours(struct scene *s, const char *point)
{
        unsigned found = 0;

        for (size_t i = 0; i < s->got.n; i++)
                if (s->got.nodes[i].text && (streq(s->got.nodes[i].text, "ours") ||
                                             streq(s->got.nodes[i].text, "elsewhere")))
                        found++;
        if (found < 5)
                fail_msg("%s: something of ours is lost", point);
}

static void finish(struct scene *s, const char *point)
{
        struct stat st;

        if (world_merge(&s->w, &s->was, &s->now, false) < 0)
                fail_msg("%s: again: %s", point, s->w.err.msg);
        world_read(&s->w, &s->got);
        mock_assert_equal(&s->got, &s->want, point);
        assert_int_equal(stat(s->w.lock, &st), 0);
        assert_int_equal(st.st_size, 0);
}

static bool is_past_the_end(const char *point)
{
        return str_starts(point, "workspace.merge.end");
}

static void test_each(void **state)
{
        struct scene s;

        (void)state;
        setup_scene(&s);
        find_points(&s);
        assert_true(s.n_points > 40);
        for (size_t i = 0; i < s.n_points; i++) {
                world_set(&s.w, &s.ours);
                assert_true(merge_in_child(&s, "BERTH_CRASH_AT", s.points[i]));
                check_torn(&s, s.points[i]);
                check_ours(&s, s.points[i]);
                finish(&s, s.points[i]);
                if (!is_past_the_end(s.points[i]) && s.w.report.n_conflicts != s.conflicts)
                        fail_msg("%s: %zu conflicts reported", s.points[i], s.w.report.n_conflicts);
        }
        done_scene(&s);
}

/* The second time it is another time of day: what was kept has its name already. */
static void test_twice(void **state)
{
        struct scene s;

        (void)state;
        setup_scene(&s);
        find_points(&s);
        for (size_t i = 0; i < s.n_points; i++) {
                const char *second = s.points[(i * 7 + 3) % s.n_points];

                world_set(&s.w, &s.ours);
                assert_true(merge_in_child(&s, "BERTH_CRASH_AT", s.points[i]));
                (void)merge_in_child(&s, "BERTH_CRASH_AT", second);
                check_torn(&s, second);
                check_ours(&s, second);
                finish(&s, s.points[i]);
        }
        done_scene(&s);
}

/* A merge that died between the second name and the rename, done again under another stamp. */
static void test_another_stamp(void **state)
{
        struct scene s;

        (void)state;
        setup_scene(&s);
        for (unsigned times = 1; times <= 4; times++) {
                char point[64];

                snprintf(point, sizeof(point), "workspace.merge.aside.after:%u", times);
                world_set(&s.w, &s.ours);
                assert_true(merge_in_child(&s, "BERTH_CRASH_AT", point));
                s.w.options.stamp = "20991231T235959Z";
                assert_int_equal(world_merge(&s.w, &s.was, &s.now, false), 0);
                s.w.options.stamp = STAMP;
                assert_int_equal(s.w.report.n_conflicts, s.conflicts);
                world_read(&s.w, &s.got);
                assert_int_equal(s.got.n, s.want.n);
        }
        done_scene(&s);
}

/* What a dead merge left is removed by the next one, whatever that one is about. */
static void test_leftovers(void **state)
{
        struct tree none = { 0 };
        struct scene s;

        (void)state;
        setup_scene(&s);
        world_set(&s.w, &s.ours);
        assert_true(merge_in_child(&s, "BERTH_CRASH_AT", "workspace.merge.synced"));
        assert_int_equal(world_merge(&s.w, &none, &none, false), 0);
        world_read(&s.w, &s.got);
        for (size_t i = 0; i < s.got.n; i++)
                assert_null(strstr(s.got.nodes[i].path, ".berth-tmp-"));
        done_scene(&s);
}

/* After a power cut all but the first record may be lost: it looks for temporary files wherever it
 * works, and sees by itself that a file has its second name already. */
static void test_without_a_list(void **state)
{
        struct scene s;

        (void)state;
        setup_scene(&s);
        find_points(&s);
        for (size_t i = 0; i < s.n_points; i++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;

                world_set(&s.w, &s.ours);
                assert_true(merge_in_child(&s, "BERTH_CRASH_AT", s.points[i]));
                assert_int_equal(file_read_at(AT_FDCWD, s.w.lock, 1 << 20, &b, NULL), 0);
                if (b.len > 0)
                        assert_int_equal(truncate(s.w.lock, (off_t)strlen(b.data) + 1), 0);
                finish(&s, s.points[i]);
        }
        done_scene(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_each),           cmocka_unit_test(test_twice),
                cmocka_unit_test(test_another_stamp),  cmocka_unit_test(test_leftovers),
                cmocka_unit_test(test_without_a_list),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
