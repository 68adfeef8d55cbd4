/* Random trees, edited at random on both sides, merged and compared with a model of the merge that
 * works on trees in memory. Every round also says beforehand what it would do, is done twice, and
 * may leave nothing of its own behind.
 *
 *   BERTH_WALK_ROUNDS=10000 BERTH_WALK_SEED=7 test_merge_walk     for more, or a found one
 */
#define _GNU_SOURCE
#include "merge_fixture.h"

#include <fcntl.h>
#include <sys/stat.h>

#define ROUNDS 500

static uint64_t state, seed;
static struct merge_report total; /* that it is not about nothing */

static unsigned roll(unsigned n)
{
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        return (unsigned)((state >> 32) % n);
}

static uint64_t setting(const char *name, uint64_t otherwise)
{
        const char *text = getenv(name);

        return text ? strtoull(text, NULL, 10) : otherwise;
}

/* Trees and edits */

static const char *random_path(char ret[64])
{
        static const char *const names[] = { "a", "b", "c", "d e", "\xff\n", "skip" };
        unsigned parts = 1 + roll(3);
        int len = 0;

        for (unsigned i = 0; i < parts; i++)
                len += snprintf(ret + len, 64 - (size_t)len, "%s%s", i > 0 ? "/" : "",
                                names[roll(ARRAY_LEN(names))]);
        return ret;
}

static void random_put(struct tree *t)
{
        static const char *const texts[] = { "", "one", "two", "six", "a longer text\nof lines\n" };
        static const char *const targets[] = { "a", "../b", "/etc/passwd", "nowhere" };
        static const uint32_t modes[] = { 0644, 0664, 0755, 0600, 0444, 0777, 0640 };
        char path[64];

        random_path(path);
        switch (roll(6)) {
        case 0:
                mock_dir(t, path);
                break;
        case 1:
                mock_link(t, path, targets[roll(ARRAY_LEN(targets))]);
                break;
        default:
                mock_put(t, path, TREE_FILE, modes[roll(ARRAY_LEN(modes))],
                         texts[roll(ARRAY_LEN(texts))]);
        }
}

static void random_edit(struct tree *t)
{
        struct node *n = t->n > 0 ? &t->nodes[roll((unsigned)t->n)] : NULL;
        char path[64];

        switch (n ? roll(6) : 5) {
        case 0:
                mock_remove(t, n->path);
                break;
        case 1:
                if (n->kind == TREE_FILE)
                        n->mode ^= roll(2) ? 0100 : 0022;
                break;
        case 2:
                if (n->kind == TREE_FILE) {
                        free(n->text);
                        n->text = xstrdup(roll(2) ? "eins" : "zwei");
                }
                break;
        case 3:
                snprintf(path, sizeof(path), "%.60s", n->path);
                mock_put(t, path, roll(2) ? TREE_FILE : TREE_LINK, 0644, "turned");
                break;
        default:
                random_put(t);
        }
}

static void edit(struct tree *t, unsigned n)
{
        while (n-- > 0)
                random_edit(t);
}

/* The model */

struct model {
        const struct tree *was, *now;
        struct tree ours; /* becomes what is expected */
        const struct tree *before;
        uint32_t umask;
        bool by_time;
        size_t conflicts;
};

static bool is_excluded(const char *path)
{
        return str_starts(path, "skip") || strstr(path, "/skip");
}

static bool same_thing(const struct node *a, const struct node *b)
{
        return a && b && a->kind == b->kind && (a->kind == TREE_DIR || streq(a->text, b->text));
}

static bool by_umask(const struct model *m, uint32_t from, uint32_t to)
{
        return from == to || (from & ~m->umask) == to;
}

static const struct node *was_node(const struct model *m, const char *path)
{
        const struct node *was = mock_find(m->was, path), *ours = mock_find(m->before, path);

        if (!m->by_time)
                return was;
        if (ours && ours->kind == TREE_DIR)
                return ours;
        return was && ours && same_thing(was, ours) && was->mode == ours->mode ? ours : NULL;
}

static void keep_aside(struct model *m, const char *path)
{
        char *from = xstrdup(path), *to = xasprintf("%s.berth-local-" STAMP, path);

        mock_move(&m->ours, from, to);
        m->conflicts++;
        free(from);
        free(to);
}

static bool is_empty(const struct tree *t, const char *path)
{
        for (size_t i = 0; i < t->n; i++)
                if (str_starts(t->nodes[i].path, path) && t->nodes[i].path[strlen(path)] == '/')
                        return false;
        return true;
}

static const struct node *ours_at(const struct model *m, const char *path)
{
        return mock_find(&m->ours, path);
}

static void model_delete(struct model *m, const struct node *gone)
{
        const struct node *ours = ours_at(m, gone->path), *was = was_node(m, gone->path);

        if (!same_thing(ours, was))
                return;
        if (ours->kind == TREE_FILE && !by_umask(m, ours->mode, was->mode))
                return;
        if (ours->kind == TREE_DIR && !is_empty(&m->ours, gone->path))
                return;
        mock_remove(&m->ours, gone->path);
}

static void clear_the_way(struct model *m, const char *path)
{
        for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                char *part = xstrndup(path, (size_t)(slash - path));
                const struct node *n = ours_at(m, part);

                if (n && n->kind != TREE_DIR)
                        keep_aside(m, part);
                free(part);
        }
}

static uint32_t model_mode(const struct model *m, const struct node *was, const struct node *ours,
                           const struct node *now)
{
        if (was && ours && was->kind == TREE_FILE && ours->kind == TREE_FILE &&
            by_umask(m, was->mode, now->mode))
                return ours->mode;
        return now->mode | 0400;
}

static void model_put(struct model *m, const struct node *now)
{
        const struct node *ours = ours_at(m, now->path), *was = was_node(m, now->path);
        uint32_t mode = model_mode(m, was, ours, now);

        if (same_thing(was, now)) { /* the mode alone */
                if (same_thing(ours, now) && by_umask(m, ours->mode, was->mode) &&
                    !by_umask(m, was->mode, now->mode))
                        mock_put(&m->ours, now->path, now->kind, now->mode | 0400, now->text);
                return;
        }
        if (same_thing(ours, now)) {
                if (was && was->kind == TREE_FILE && now->kind == TREE_FILE &&
                    by_umask(m, ours->mode, was->mode) && !by_umask(m, was->mode, now->mode))
                        mock_put(&m->ours, now->path, now->kind, now->mode | 0400, now->text);
                return;
        }
        clear_the_way(m, now->path);
        ours = ours_at(m, now->path);
        if (ours && ours->kind == TREE_DIR) {
                if (!is_empty(&m->ours, now->path))
                        keep_aside(m, now->path);
        } else if (ours && !same_thing(ours, was)) {
                keep_aside(m, now->path);
        }
        mock_put(&m->ours, now->path, now->kind, mode, now->text);
}

static bool differs(const struct node *was, const struct node *now)
{
        return !was || !same_thing(was, now) || (was->kind == TREE_FILE && was->mode != now->mode);
}

static void model_merge(struct model *m)
{
        for (size_t i = m->was->n; i-- > 0;) {
                const struct node *n = &m->was->nodes[i];

                if (!mock_find(m->now, n->path) && !is_excluded(n->path))
                        model_delete(m, n);
        }
        for (size_t i = 0; i < m->now->n; i++) {
                const struct node *n = &m->now->nodes[i];

                if (differs(mock_find(m->was, n->path), n) && !is_excluded(n->path))
                        model_put(m, n);
        }
}

/* A round */

struct round {
        struct merge_world *w;
        struct tree was, ours, now, got;
        bool by_time, by_bundle;
};

static int merge(struct round *r)
{
        struct tree_changes changes;

        if (!r->by_time)
                return world_merge(r->w, &r->was, &r->now, r->by_bundle);
        mock_changes_init(&changes, &r->was, &r->now);
        changes.by_time = true;
        changes.ours = &r->ours;
        memset(&r->w->report, 0, sizeof(r->w->report));
        return merge_apply(&r->w->op, r->w->ws, &changes.set, &r->w->options, &r->w->report,
                           &r->w->err);
}

static void must_merge(struct round *r)
{
        if (merge(r) < 0)
                fail_msg("merge: %s", r->w->err.msg);
}

static void check_report(struct round *r)
{
        struct stat st;

        for (const struct merge_conflict *c = r->w->report.conflicts; c; c = c->next)
                assert_int_equal(fstatat(r->w->ws, c->kept, &st, AT_SYMLINK_NOFOLLOW), 0);
        assert_int_equal(stat(r->w->lock, &st), 0);
        assert_int_equal(st.st_size, 0);
}

static void count_round(const struct merge_report *did)
{
        total.added += did->added;
        total.changed += did->changed;
        total.deleted += did->deleted;
        total.left += did->left;
        total.n_conflicts += did->n_conflicts;
}

static void check_round(struct round *r, const struct model *m)
{
        struct merge_report would, *did = &r->w->report;

        r->w->options.dry_run = true;
        must_merge(r);
        would = *did;
        world_read(r->w, &r->got);
        mock_assert_equal(&r->got, &r->ours, "after a dry run");
        r->w->options.dry_run = false;

        must_merge(r);
        world_read(r->w, &r->got);
        mock_assert_equal(&r->got, &m->ours, "merged");
        assert_int_equal(did->n_conflicts, m->conflicts);
        check_report(r);
        count_round(did);
        assert_int_equal(would.added, did->added);
        assert_int_equal(would.changed, did->changed);
        assert_int_equal(would.deleted, did->deleted);
        assert_int_equal(would.left, did->left);
        assert_int_equal(would.bytes, did->bytes);
        assert_int_equal(would.n_conflicts, did->n_conflicts);

        must_merge(r);
        assert_int_equal(did->added + did->changed + did->deleted + did->n_conflicts, 0);
        world_read(r->w, &r->got);
        mock_assert_equal(&r->got, &m->ours, "merged again");
}

static void apply_umask(struct tree *t, uint32_t umask)
{
        for (size_t i = 0; i < t->n; i++)
                if (t->nodes[i].kind == TREE_FILE)
                        t->nodes[i].mode &= ~umask;
}

static void make_trees(struct round *r, uint32_t umask)
{
        for (unsigned n = roll(24); n > 0; n--)
                random_put(&r->was);
        mock_assign(&r->ours, &r->was);
        mock_assign(&r->now, &r->was);
        if (roll(4) == 0) { /* both do the same, and then something else */
                uint64_t before = state;
                unsigned n = roll(4);

                edit(&r->ours, n);
                state = before;
                (void)roll(4);
                edit(&r->now, n);
        }
        edit(&r->ours, roll(8));
        edit(&r->now, roll(10));
        if (roll(3) == 0)
                apply_umask(&r->now, umask);
}

static void one_round(struct merge_world *w)
{
        static const uint32_t umasks[] = { 022, 0, 077, 002 };
        static const char *const patterns[] = { "*/skip", NULL };
        static const struct excludes excludes = { .patterns = patterns };
        struct round r = { .w = w, .by_time = roll(3) == 0, .by_bundle = roll(4) == 0 };
        struct model m = { 0 };

        w->options.umask = umasks[roll(ARRAY_LEN(umasks))];
        w->options.excludes = &excludes;
        make_trees(&r, w->options.umask);
        m = (struct model){
                .was = &r.was,
                .now = &r.now,
                .before = &r.ours,
                .umask = w->options.umask,
                .by_time = r.by_time,
        };
        mock_assign(&m.ours, &r.ours);
        model_merge(&m);
        world_set(w, &r.ours);
        check_round(&r, &m);
        mock_done(&r.was);
        mock_done(&r.ours);
        mock_done(&r.now);
        mock_done(&r.got);
        mock_done(&m.ours);
}

static void test_walk(void **unused)
{
        uint64_t rounds = setting("BERTH_WALK_ROUNDS", ROUNDS), end;
        struct merge_world w;

        (void)unused;
        seed = setting("BERTH_WALK_SEED", 1);
        end = seed + rounds;
        world_init(&w);
        for (; seed < end; seed++) {
                state = seed * 0x9e3779b97f4a7c15u + 1;
                for (int warm = 0; warm < 8; warm++)
                        (void)roll(2);
                one_round(&w);
        }
        world_done(&w);
        print_message("%llu rounds: %llu added, %llu changed, %llu deleted, %llu left, %zu kept\n",
                      (unsigned long long)rounds, (unsigned long long)total.added,
                      (unsigned long long)total.changed, (unsigned long long)total.deleted,
                      (unsigned long long)total.left, total.n_conflicts);
        if (rounds >= ROUNDS)
                assert_true(total.added > rounds && total.changed > rounds / 2 &&
                            total.deleted > rounds / 2 && total.left > rounds / 10 &&
                            total.n_conflicts > rounds / 5);
        seed = 0;
}

static int say_seed(void **unused)
{
        (void)unused;
        if (seed)
                print_message("again with BERTH_WALK_ROUNDS=1 BERTH_WALK_SEED=%llu\n",
                              (unsigned long long)seed);
        return 0;
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_teardown(test_walk, say_seed),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
