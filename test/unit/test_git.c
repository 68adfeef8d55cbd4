#define _GNU_SOURCE
#include "merge_fixture.h"

#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "rt/become.h"
#include "workspace/git.h"

/* ws/ is the host's repository, box/ the copy of it in which somebody else works: whatever a script
 * does there is what a place could bring home. */

struct world {
        struct merge_world m;
        char scratch[SCRATCH_PATH_MAX + 16];
        struct git_report report;
};

/* Runs a script at the root of the world, with git as an ordinary user has it. */
static int try_sh(struct world *w, const char *script)
{
        static const char before[] =
                "set -e; export HOME=$PWD GIT_CONFIG_NOSYSTEM=1 GIT_AUTHOR_NAME=me "
                "GIT_AUTHOR_EMAIL=me@x GIT_COMMITTER_NAME=me GIT_COMMITTER_EMAIL=me@x; ";
        CLEAN(cleanup_free) char *all = xasprintf("%s%s", before, script);
        int status;
        pid_t pid = fork();

        if (pid == 0) {
                if (chdir(w->m.root) == 0)
                        execl("/bin/sh", "sh", "-c", all, (char *)NULL);
                _exit(127);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        return status;
}

static void sh(struct world *w, const char *script)
{
        if (try_sh(w, script) != 0)
                fail_msg("failed: %s", script);
}

/* What a command prints, without the newline; in the world's arena. */
static const char *out(struct world *w, const char *script)
{
        CLEAN(cleanup_free) char *all = xasprintf("{ %s; } > out", script);
        CLEAN(buf_done) struct buf b = BUF_INIT;

        sh(w, all);
        assert_int_equal(file_read_at(w->m.root_fd, "out", 1 << 20, &b, NULL), 0);
        while (b.len > 0 && b.data[b.len - 1] == '\n')
                b.data[--b.len] = '\0';
        return arena_strdup(&w->m.arena, buf_str(&b));
}

#define assert_out(w, script, expected) assert_string_equal(out(w, script), expected)

static int setup(void **state)
{
        struct world *w = xcalloc(1, sizeof(*w));

        world_init(&w->m);
        snprintf(w->scratch, sizeof(w->scratch), "%s/scratch", w->m.root);
        *state = w;
        return 0;
}

static int teardown(void **state)
{
        struct world *w = *state;

        world_done(&w->m);
        free(w);
        return 0;
}

/* Staging */

static void save_base(struct world *w)
{
        struct scan *s;
        int fd = openat(w->m.ws, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        assert_int_equal(scan_open(fd, NULL, &s, NULL), 0);
        assert_int_equal(manifest_write(w->m.root_fd, "base", scan_source(s), NULL, NULL, NULL), 0);
        scan_close(s);
}

static void stage(struct world *w)
{
        save_base(w);
        sh(w, "rm -rf box; cp -a ws box");
}

static void make_repository(struct world *w)
{
        sh(w, "cd ws; git init -q -b main; echo 1 > a; echo 1 > b; git add .; git commit -qm one");
        stage(w);
}

/* What is different in box/ */

struct box_changes {
        struct change_set set;
        struct world *w;
        struct change *list;
        size_t n, at;
        int box;
};

static int add_change(void *ctx, const struct tree_entry *was, const struct tree_entry *now,
                      struct err *err)
{
        struct box_changes *b = ctx;
        struct arena *a = &b->w->m.arena;
        struct change *c;

        b->list = xrealloc(b->list, (b->n + 1) * sizeof(*b->list));
        c = &b->list[b->n++];
        *c = (struct change){ .is_delete = !now, .has_was = was != NULL };
        if (was)
                c->was = *was;
        if (now)
                c->now = *now;
        else if (was)
                c->now.path = was->path;
        c->now.path = arena_strdup(a, c->now.path);
        c->now.target = arena_strdup(a, c->now.target);
        c->was.path = c->now.path;
        c->was.target = arena_strdup(a, c->was.target);
        return 0;
}

static int box_next(struct change_set *s, struct change *ret, struct err *err)
{
        struct box_changes *b = container_of(s, struct box_changes, set);

        if (b->at == b->n)
                return 0;
        *ret = b->list[b->at++];
        return 1;
}

static int box_open(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        struct box_changes *b = container_of(s, struct box_changes, set);

        *ret_fd = openat(b->box, c->now.path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
        return *ret_fd < 0 ? err_set(err, ERR_IO, "open %s", c->now.path) : 0;
}

static void collect(struct world *w, struct box_changes *b)
{
        struct manifest_file *base;
        struct scan *now;

        *b = (struct box_changes){ .set = { box_next, box_open, NULL }, .w = w };
        b->box = openat(w->m.root_fd, "box", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(manifest_open(w->m.root_fd, "base", &base, NULL), 0);
        assert_int_equal(scan_open(dup(b->box), NULL, &now, NULL), 0);
        assert_int_equal(tree_diff(manifest_source(base), scan_source(now), add_change, b, NULL),
                         0);
        scan_close(now);
        manifest_close(base);
}

/* Files and commits, as core does it. */
static int restore(struct world *w)
{
        char path[SCRATCH_PATH_MAX + 16];
        CLEAN(cleanup_free) char *program = realpath("/proc/self/exe", NULL);
        const struct git_options options = { .workspace = path,
                                             .program = program,
                                             .stamp = STAMP };
        struct git_import *g;
        struct box_changes b;
        struct change left;
        int r;

        snprintf(path, sizeof(path), "%s/ws", w->m.root);
        collect(w, &b);
        assert_int_equal(git_import_new(&w->m.op, w->m.ws, w->scratch, &g, &w->m.err), 0);
        r = merge_apply(&w->m.op, w->m.ws, git_import_filter(g, &b.set), &w->m.options,
                        &w->m.report, &w->m.err);
        assert_int_equal(r, 0);
        assert_int_equal(box_next(&b.set, &left, NULL), 0);
        r = git_import_apply(g, &options, &w->report, &w->m.err);
        git_import_free(g);
        close(b.box);
        free(b.list);
        return r;
}

static void restored(struct world *w)
{
        if (restore(w) < 0)
                fail_msg("%s", w->m.err.msg);
}

/* The repository is whole, and has nothing in it that nobody asked for. */
static void assert_sound(struct world *w)
{
        sh(w, "cd ws && git fsck --full --strict --no-dangling");
        sh(w, "! find . -name 'PWNED*' | grep .");
}

static const char *kept_as(const struct world *w, const char *name)
{
        for (const struct git_kept *k = w->report.kept; k; k = k->next)
                if (streq(k->name, name))
                        return k->here;
        return "nothing";
}

/* Tests: section 4.6 of the specification of remote execution. */

/* The round trip with commits and what was not committed. */
static void test_commits_come_home(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; echo new > c; git add .; git commit -qm two; echo dirty > b");
        restored(w);
        assert_string_equal(w->report.head, out(w, "cd box; git rev-parse HEAD"));
        assert_out(w, "cd ws; git rev-parse HEAD", w->report.head);
        assert_out(w, "cd ws; git symbolic-ref HEAD", "refs/heads/main");
        assert_out(w, "cd ws; git status --porcelain", " M b");
        assert_out(w, "cat ws/b", "dirty");
        assert_false(w->report.merged || w->report.index_stale || w->report.refused);
        assert_null(w->report.note);
        assert_sound(w);
        /* Again: nothing is left to do. */
        restored(w);
        assert_null(w->report.head);
        assert_null(w->report.note);
}

static void test_files_alone(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git add a; git status > /dev/null");
        restored(w);
        assert_null(w->report.head);
        assert_null(w->report.kept);
        assert_out(w, "cd ws; git status --porcelain", " M a");
        sh(w, "! test -e scratch/repo");
}

/* Without a place to put them commits are passed over, and files are not. */
static void test_only_filter(void **state)
{
        struct world *w = *state;
        struct git_import *g;
        struct box_changes b;
        struct change_set *files;
        struct change c;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two");
        collect(w, &b);
        assert_int_equal(git_import_new(&w->m.op, w->m.ws, NULL, &g, NULL), 0);
        files = git_import_filter(g, &b.set);
        assert_int_equal(files->next(files, &c, NULL), 1);
        assert_string_equal(c.now.path, "a");
        assert_int_equal(files->next(files, &c, NULL), 0);
        git_import_free(g);
        close(b.box);
        free(b.list);
        sh(w, "! test -e scratch");
}

/* Both sides have commits. */
static void test_diverged(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; echo 1 > c; git add .; git commit -qm theirs");
        sh(w, "cd ws; echo 2 > b; echo 1 > d; git add .; git commit -qm ours");
        restored(w);
        assert_true(w->report.merged);
        assert_null(w->report.conflict_ref);
        assert_out(w, "cd ws; git log -1 --format='%s|%an|%ae' | sed 's/merge [0-9a-f]*/merge/'",
                   "Paperclip SSH sync merge|Paperclip|noreply@paperclip.ing");
        assert_string_equal(out(w, "cd ws; git log -1 --format=%s | cut -c26-"),
                            out(w, "cd box; git rev-parse HEAD | cut -c1-12"));
        assert_out(w, "cd ws; git log --format=%s HEAD^1 HEAD^2 | sort | xargs", "one ours theirs");
        assert_out(w, "cd ws; cat a b c d | xargs", "2 2 1 1");
        assert_out(w, "cd ws; git status --porcelain", "");
        assert_sound(w);
}

static void test_conflict(void **state)
{
        struct world *w = *state;
        const char *ours;

        make_repository(w);
        sh(w, "cd box; echo theirs > a; git commit -qam theirs");
        sh(w, "cd ws; echo ours > a; git commit -qam ours");
        ours = out(w, "cd ws; git rev-parse HEAD");
        restored(w);
        assert_string_equal(w->report.conflict_ref, "refs/berth/conflict/" STAMP);
        assert_non_null(w->report.note);
        assert_null(w->report.head);
        assert_out(w, "cd ws; git rev-parse HEAD", ours);
        assert_string_equal(out(w, "cd ws; git rev-parse refs/berth/conflict/" STAMP),
                            out(w, "cd box; git rev-parse HEAD"));
        assert_out(w, "cat ws/a ws/a.berth-local-* | xargs", "theirs ours");
        assert_sound(w);
}

static void test_what_is_staged_stays(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two");
        sh(w, "cd ws; echo staged > s; git add s");
        restored(w);
        assert_out(w, "cd ws; git status --porcelain", "A  s");
        assert_false(w->report.index_stale);
        /* In the way of what came: nothing is lost, and it is said. */
        sh(w, "rm -rf scratch");
        stage(w);
        sh(w, "cd box; echo 3 > a; git commit -qam three");
        sh(w, "cd ws; echo mine > a; git add a; echo 2 > a");
        restored(w);
        assert_true(w->report.index_stale);
        assert_non_null(w->report.head);
        assert_out(w, "cd ws; git show :a", "mine");
}

/* Somebody is at the index, or it is something else: it stays as it is. */
static void test_index_in_use(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two; cd ../ws/.git; touch index.lock");
        restored(w);
        assert_true(w->report.index_stale);
        assert_non_null(w->report.head);
        sh(w, "cd ws; rm .git/index.lock; git reset -q; git diff --quiet HEAD; rm -rf ../scratch");
        stage(w);
        sh(w,
           "cd box; echo 3 > a; git commit -qam three; cd ../ws/.git; mv index i; ln -s i index");
        restored(w);
        assert_true(w->report.index_stale);
        assert_out(w, "cd ws/.git; readlink index; ls index*", "i\nindex");
}

static void test_packed(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two; git branch side; git tag -am v1 v1; "
              "git pack-refs --all; git gc -q --prune=now");
        sh(w, "! find box/.git/objects -type f -path '*/[0-9a-f][0-9a-f]/*' | grep .");
        restored(w);
        assert_string_equal(w->report.head, out(w, "cd box; git rev-parse HEAD"));
        assert_out(w, "cd ws; git status --porcelain", "");
        assert_string_equal(out(w, "cd ws; git rev-parse v1 side"),
                            out(w, "cd box; git rev-parse v1 side"));
        /* Not the whole history again, only what is new. */
        assert_out(w, "cd ws; git count-objects -v | grep in-pack", "in-pack: 4");
        assert_sound(w);
}

/* A line of packed-refs that is older than the ref's own file is no news. */
static void test_stale_packed_lines(void **state)
{
        struct world *w = *state;
        const char *head;

        sh(w, "cd ws; git init -q -b main; echo 1 > a; git add .; git commit -qm one; "
              "git branch gone; git pack-refs --all; git commit -q --amend -m other");
        head = out(w, "cd ws; git rev-parse HEAD");
        stage(w);
        sh(w, "cd box; git branch -q -D gone");
        restored(w);
        assert_null(w->report.head);
        assert_null(w->report.kept);
        assert_out(w, "cd ws; git rev-parse HEAD", head);
}

static void test_branches_and_tags(void **state)
{
        struct world *w = *state;

        sh(w, "cd ws; git init -q -b main; echo 1 > a; git add .; git commit -qm one; "
              "git branch ahead; git branch both; git tag t");
        stage(w);
        sh(w, "cd box; git checkout -q -b new; echo n > n; git add n; git commit -qm new; "
              "git checkout -q ahead; echo h > h; git add h; git commit -qm ahead; "
              "git checkout -q both; echo x > x; git add x; git commit -qm both; "
              "git tag -f t 2> /dev/null; git tag 'odd#1'; git checkout -q main");
        sh(w, "cd ws; git checkout -q both; echo y > y; git add y; git commit -qm mine; "
              "git checkout -q main");
        restored(w);
        assert_null(w->report.head);
        assert_string_equal(out(w, "cd ws; git rev-parse new ahead odd#1 refs/berth/" STAMP
                                   "/heads/both "
                                   "refs/berth/" STAMP "/tags/t"),
                            out(w, "cd box; git rev-parse new ahead odd#1 both t"));
        assert_out(w, "cd ws; git log -1 --format=%s both", "mine");
        assert_out(w, "cd ws; git log -1 --format=%s t", "one");
        assert_string_equal(kept_as(w, "refs/heads/new"), "refs/heads/new");
        assert_string_equal(kept_as(w, "refs/heads/ahead"), "refs/heads/ahead");
        assert_string_equal(kept_as(w, "refs/heads/both"), "refs/berth/" STAMP "/heads/both");
        assert_string_equal(kept_as(w, "refs/tags/t"), "refs/berth/" STAMP "/tags/t");
        assert_string_equal(kept_as(w, "refs/tags/odd#1"), "refs/tags/odd#1");
        assert_sound(w);
}

/* A name that has no room here is kept aside, and does not keep the others away. */
static void test_names_in_the_way(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; git branch topic/one; git branch other");
        sh(w, "cd ws; git branch topic");
        restored(w);
        assert_string_equal(kept_as(w, "refs/heads/topic/one"),
                            "refs/berth/" STAMP "/heads/topic/one");
        assert_string_equal(kept_as(w, "refs/heads/other"), "refs/heads/other");
        assert_sound(w);
}

/* Another branch that was only looked at is not merged into ours; work done on one is not lost. */
static void test_on_another_branch(void **state)
{
        struct world *w = *state;

        sh(w, "cd ws; git init -q -b main; echo 1 > a; git add .; git commit -qm one; "
              "git checkout -q -b old; echo o > o; git add o; git commit -qm old; "
              "git checkout -q main; echo 2 > a; git commit -qam two");
        stage(w);
        sh(w, "cd box; git checkout -q old");
        restored(w);
        assert_null(w->report.head);
        assert_out(w, "cd ws; git log -1 --format=%s", "two");
        sh(w, "cd box; git checkout -q --detach");
        restored(w);
        assert_null(w->report.head);
        sh(w, "cd box; git checkout -q old; echo 2 > o; git commit -qam older");
        restored(w);
        assert_null(w->report.head);
        assert_out(w, "cd ws; git log -1 --format=%s; git log -1 --format=%s old", "two\nolder");
        sh(w, "cd box; git checkout -q main; git checkout -q -b work; echo w > w; git add w; "
              "git commit -qm work");
        sh(w, "rm -rf scratch");
        restored(w);
        assert_out(w, "cd ws; git log -1 --format=%s", "work");
        assert_out(w, "cd ws; git log -1 --format=%s work", "work");
        assert_out(w, "cd ws; git symbolic-ref HEAD", "refs/heads/main");
}

static void test_detached(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd ws; git checkout -q --detach");
        stage(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two");
        restored(w);
        assert_string_equal(w->report.head, out(w, "cd box; git rev-parse HEAD"));
        assert_out(w, "cd ws; git rev-parse HEAD", w->report.head);
        assert_out(w, "cd ws; git log -1 --format=%s main", "one");
        assert_out(w, "cd ws; git status --porcelain", "");
}

static void test_first_commit(void **state)
{
        struct world *w = *state;

        sh(w, "cd ws; git init -q -b main");
        stage(w);
        sh(w, "cd box; echo 1 > a; git add .; git commit -qm first");
        restored(w);
        assert_string_equal(w->report.head, out(w, "cd box; git rev-parse HEAD"));
        assert_out(w, "cd ws; git status --porcelain", "");
        assert_sound(w);
}

static void test_shallow(void **state)
{
        struct world *w = *state;

        sh(w, "git init -q -b main up; cd up; for i in 1 2 3; do echo $i > a; git add a; "
              "git commit -qm $i; done; cd ..; rmdir ws; git clone -q --depth 1 file://$PWD/up ws");
        close(w->m.ws);
        w->m.ws = openat(w->m.root_fd, "ws", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        stage(w);
        sh(w, "cd box; echo 4 > a; git commit -qam four");
        restored(w);
        assert_out(w, "cd ws; git log --format=%s | xargs", "four 3");
        assert_out(w, "cd ws; git status --porcelain", "");
}

/* Directories of any name that git takes for a repository */

/* `do_evil lib`: what a place could write into the git directory lib. */
#define EVIL                                                                                       \
        "do_evil() { printf '[core]\\n\\tbare = false\\n\\tworktree = .\\n"                        \
        "\\tfsmonitor = touch %s/PWNED; false\\n' \"$HOME\" > $1; }; "

/* As somebody on the host would find out: git is run in every directory. */
static void assert_harmless(struct world *w)
{
        sh(w, "find ws -type d | while read d; do (cd $d; git status > /dev/null 2>&1 || :); done; "
              "! test -e PWNED");
}

static void test_bare_repository_comes_home(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w,
           EVIL "cd box; mkdir deep; git clone -q --bare . deep/lib; do_evil deep/lib/config; "
                "cp deep/lib/config deep/lib/config.worktree; "
                "printf '#!/bin/sh\\ntouch %s/PWNED\\n' \"$HOME\" > deep/lib/hooks/pre-commit; "
                "chmod +x deep/lib/hooks/pre-commit; echo /etc > deep/lib/objects/info/alternates; "
                "mkdir deep/lib/rebase-merge; echo 'exec touch PWNED' "
                "> deep/lib/rebase-merge/git-rebase-todo; ln -s /etc deep/lib/logs; "
                "mkdir -p deep/lib/x/.git; do_evil deep/lib/x/.git/config");
        restored(w);
        assert_harmless(w);
        assert_out(w,
                   "cd ws/deep/lib; ls -d config* hooks rebase-merge objects/info/alternates "
                   "x/.git/config logs 2> /dev/null || :",
                   "");
        /* Its commits are there all the same. */
        assert_out(w, "git -C ws/deep/lib log --format=%s main", "one");
        assert_true(w->report.refused >= 6);
        assert_true(str_starts(w->report.first_refused, "deep/lib/"));
        assert_sound(w);
}

/* A workspace that is a repository itself, without a `.git`. */
static void test_bare_repository_of_the_host(void **state)
{
        struct world *w = *state;
        const char *before;

        sh(w, "cd ws; git init -q --bare -b main .; mkdir inner; git init -q --bare inner");
        stage(w);
        before = out(w, "cat ws/config ws/inner/config");
        sh(w,
           EVIL "cd box; do_evil config; do_evil inner/config; do_evil inner/hooks/post-checkout; "
                "echo x > inner/description; ln -s /etc/hosts refs/heads/link");
        restored(w);
        assert_out(w, "cat ws/config ws/inner/config", before);
        assert_out(w, "cat ws/inner/description", "x");
        assert_int_equal(w->report.refused, 4);
        assert_harmless(w);
}

/* Neither side has a whole one. */
static void test_repository_made_of_both_sides(void **state)
{
        struct world *w = *state;

        sh(w, EVIL
           "cd ws; mkdir -p a/refs b c d; do_evil a/config; echo 'ref: refs/heads/x' > b/HEAD; "
           "do_evil c/config; mkdir c/objects; echo ../a > d/commondir");
        stage(w);
        sh(w,
           EVIL "mkdir ws/c/refs ws/b/refs; cd box; "
                "echo 'ref: refs/heads/x' > a/HEAD; mkdir a/objects; " /* completes a */
                "do_evil b/config; mkdir b/objects; "                  /* b has a HEAD */
                "ln -s refs/heads/x c/HEAD; "                          /* the old kind of HEAD */
                "echo 'ref: refs/heads/x' > d/HEAD; "                  /* a worktree's */
                "mkdir -p e/objects e/refs; echo 'ref: refs/heads/x' > e/head; do_evil e/Config; "
                "echo plain > a/config.txt");
        restored(w);
        assert_out(w,
                   "cd ws; ls -d a/HEAD a/objects b/HEAD b/config c/HEAD d/HEAD 2> /dev/null || :",
                   "a/HEAD\nb/HEAD");
        assert_out(w, "cat ws/a/config.txt", "plain");
        /* On a file system that folds case e would be one: its last part stays away. */
        assert_out(w, "cd ws/e; ls | xargs", "Config head objects");
        assert_harmless(w);
        /* What an earlier restore brought is the host's now: a mark that comes later counts too. */
        stage(w);
        sh(w, "cd box; mkdir -p a/objects");
        restored(w);
        sh(w, "! test -e ws/a/objects");
        assert_harmless(w);
}

/* Names under which git writes (or reads what it then follows) in a git directory. */
#define WRITTEN                                                                                     \
        "COMMIT_EDITMSG FETCH_HEAD HEAD.lock ORIG_HEAD MERGE_HEAD MERGE_MSG MERGE_MODE SQUASH_MSG " \
        "AUTO_MERGE CHERRY_PICK_HEAD REVERT_HEAD REBASE_HEAD BISECT_LOG BISECT_START "              \
        "NOTES_EDITMSG NOTES_MERGE_WORKTREE NOTES_MERGE_WORKTREE/x config.lock description "        \
        "gc.log gc.pid index index.lock info info/exclude info/refs info/sparse-checkout lfs/tmp "  \
        "logs logs/HEAD logs/refs logs/refs/heads logs/refs/heads/main objects objects/ab "         \
        "objects/info objects/info/packs objects/info/commit-graphs objects/pack "                  \
        "objects/pack/tmp_pack packed-refs packed-refs.lock packed-refs.new refs refs/heads "       \
        "refs/heads/main refs/heads/main.lock refs/remotes/origin/main refs/stash refs/tags "       \
        "shallow shallow.lock "

/* For each of those names a directory: do_links TREE puts the link into it, do_marks TREE NAMES
 * what makes it a repository. */
#define LINKS                                                                                      \
        "names='" WRITTEN "'; folder() { echo d-$1 | tr / +; }; "                                  \
        "do_links() { for n in $names; do d=$1/$(folder $n); mkdir -p $d/$(dirname $n); "          \
        "  test -e $d/$n || ln -s $HOME/far $d/$n; done; }; "                                      \
        "do_marks() { for n in $names; do d=$1/$(folder $n); mkdir -p $d; for m in $2; do "        \
        "  test -L $d/$m && continue; "                                                            \
        "  case $m in HEAD) echo ref: refs/heads/main > $d/HEAD;; *) mkdir -p $d/$m; esac; done; " \
        "  done; }; "

/* No directory is both: one that git takes for a repository, and one with a link in it. */
static void assert_no_links_in_repositories(struct world *w)
{
        assert_out(w,
                   "cd ws; for d in *; do test $(git -C $d rev-parse --absolute-git-dir 2> "
                   "/dev/null || echo none) = $PWD/$d || continue; find $d -type l; done",
                   "");
        sh(w, "! test -e far/PWNED");
}

/* Whichever part comes first, and with which restore. */
static void test_links_under_names_that_git_writes(void **state)
{
        static const struct {
                const char *host, *first, *second;
        } orders[] = {
                { ":", "do_links box; do_marks box 'HEAD objects refs'", ":" },
                { ":", "do_links box", "do_marks box 'HEAD objects refs'" },
                { ":", "do_links box; do_marks box 'objects refs'", "do_marks box HEAD" },
                { ":", "do_links box; do_marks box 'HEAD refs'", "do_marks box objects" },
                { ":", "do_marks box 'HEAD objects'", "do_links box; do_marks box refs" },
                { ":", "do_marks box 'HEAD objects refs'", "do_links box" },
                { "do_marks ws 'objects refs'", "do_links box; do_marks box HEAD", ":" },
                { "do_marks ws HEAD", "do_links box", "do_marks box 'objects refs'" },
                { "do_links ws", "do_marks box 'HEAD objects refs'", ":" },
                { "do_links ws; do_marks ws HEAD", "do_marks box 'objects refs'", ":" },
        };
        struct world *w = *state;

        for (size_t i = 0; i < ARRAY_LEN(orders); i++) {
                const char *const steps[] = { orders[i].host, orders[i].first, orders[i].second };

                sh(w, "rm -rf far; mkdir far; find ws -mindepth 1 -delete");
                for (size_t k = 0; k < ARRAY_LEN(steps); k++) {
                        CLEAN(cleanup_free) char *script = xasprintf("%s%s", LINKS, steps[k]);

                        sh(w, script);
                        if (k > 0)
                                restored(w);
                        stage(w);
                }
                assert_no_links_in_repositories(w);
        }
}

/* A link that comes after HEAD stays away alone; the repository comes without it. */
static void test_a_repository_comes_without_its_links(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; git clone -q --bare . lib; cd lib; ln -s /etc ORIG_HEAD; ln -s /etc logs; "
              "ln -s /etc objects/zz; ln -s /etc/passwd refs/heads/link; mkdir work; "
              "ln -s /etc work/link");
        restored(w);
        assert_out(w, "git --git-dir=ws/lib log --format=%s main", "one");
        assert_out(w, "find ws/lib -type l", "");
}

/* A project may have a file HEAD, and links in its folders. */
static void test_links_beside_a_head(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo about > HEAD; mkdir -p bin docs; ln -s ../a bin/tool; "
              "ln -s ../b docs/b; mkdir objects");
        restored(w);
        assert_int_equal(w->report.refused, 0);
        assert_out(w, "cd ws; readlink bin/tool docs/b; cat HEAD", "../a\n../b\nabout");
}

/* git checks no path of an index that it reads: `git checkout -- .` would write it, hooks too. */
static void test_an_index_with_paths_elsewhere(void **state)
{
        static const char *const paths[] = {
                ".git/hooks/post-checkout",
                "../outside",
                "sub/../../outside",
                "a/.GIT/config",
        };
        struct world *w = *state;

        for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
                CLEAN(cleanup_free)
                char *script = xasprintf(
                        "rm -rf ws/* box outside; mkdir ws/sub; cd ws/sub; git init -q -b main; "
                        "echo 1 > a; git add a; git commit -qm 1; cd ../..; cp -a ws box; cd "
                        "box/sub; o=$(printf '#!/bin/sh\ntouch %%s/PWNED\n' $HOME | "
                        "git hash-object -w --stdin); git update-index --add --cacheinfo "
                        "100755,$o,%.*s; sed -i s@%.*s@%s@ .git/index; mkdir ../fresh; "
                        "cp -a .git ../fresh/",
                        (int)strlen(paths[i]), "################################", /* as long */
                        (int)strlen(paths[i]), "################################", paths[i]);

                sh(w, "mkdir -p ws/sub");
                stage(w);
                sh(w, script);
                sh(w, "cd box/sub; git ls-files -s | grep -c . | grep 2");
                /* what was staged is what the host has */
                sh(w, "cp -a box box.new");
                stage(w);
                sh(w, "rm -rf box; mv box.new box");
                restored(w);
                sh(w, "for d in sub fresh; do (cd ws/$d; git checkout -q -- . || :; git status) > "
                      "/dev/null 2>&1; done; ! test -e PWNED; ! test -e outside; ! test -e "
                      "ws/outside; ! test -e ws/sub/.git/hooks/post-checkout");
                assert_true(w->report.refused >= 2);
        }
}

/* Whatever version and extensions git writes by itself is taken. */
static void test_an_index_of_gits_own(void **state)
{
        static const char *const kinds[] = { "--index-version 2", "--index-version 4",
                                             "--skip-worktree a", "--untracked-cache" };
        struct world *w = *state;

        sh(w, "mkdir ws/sub; cd ws/sub; git init -q -b main; echo 1 > a; echo 1 > ab; git add .; "
              "git commit -qm 1");
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
                CLEAN(cleanup_free)
                char *script = xasprintf("cd box/sub; date +%%N >> ab; git update-index %s; "
                                         "git status > /dev/null; git commit -qam more",
                                         kinds[i]);

                stage(w);
                sh(w, script);
                restored(w);
                assert_int_equal(w->report.refused, 0);
                assert_out(
                        w,
                        "cd ws/sub; cmp .git/index ../../box/sub/.git/index; git status --porcelain",
                        "");
        }
}

/* What git would show instead of an object, and files that git would read: no way brings them. */
static void test_other_ways_to_lie_to_git(void **state)
{
        struct world *w = *state;

        sh(w,
           "mkdir ws/sub; cd ws/sub; git init -q -b main; echo 1 > a; git add a; git commit -qm 1");
        stage(w);
        sh(w, "echo secret > far; cd box/sub; echo 2 > a; git commit -qam 2; "
              "git replace HEAD HEAD^ 2> /dev/null; git pack-refs --all; "
              "i=1111111111111111111111111111111111111111; mkdir -p .git/rr-cache/$i; "
              "echo x > .git/rr-cache/$i/preimage; printf \"$i\\t../../far\\0\" > .git/MERGE_RR; "
              "mkdir .git/reftable; echo x > .git/reftable/tables.list; "
              "mkdir -p .git/refs/replace; echo x > .git/refs/replace/x; "
              "git rev-parse HEAD > .git/info/grafts");
        restored(w);
        sh(w, "cd ws/sub/.git; ! test -e rr-cache; ! test -e MERGE_RR; ! test -e reftable; "
              "! test -e packed-refs; ! test -e refs/replace; ! test -e info/grafts");
        sh(w, "cd ws/sub; echo 3 > a; git commit -qam 3; ! grep -r secret .");
}

/* What only looks like it comes as everywhere. */
static void test_what_is_no_repository(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; mkdir -p app/config app/hooks app/objects app/refs app/head app/modules; "
              "touch app/config/x app/hooks/y app/objects/z app/refs/r app/head/h app/modules/m; "
              "ln -s config/x app/link; mkdir docs; echo about > docs/HEAD; echo x > docs/objects");
        restored(w);
        assert_int_equal(w->report.refused, 0);
        assert_out(w, "diff -r box ws --exclude=.git; cat ws/docs/HEAD", "about");
}

/* Nothing in the place's repository is run or taken over but commits. */
static void test_hostile_repository(void **state)
{
        struct world *w = *state;
        const char *before;

        make_repository(w);
        before = out(w, "cd ws/.git; cat config; ls hooks info");
        sh(w,
           "cd box; echo 2 > a; git commit -qam two; cd .git; "
           "for h in reference-transaction post-index-change pre-commit post-checkout; do "
           "  printf '#!/bin/sh\\ntouch %s/PWNED-hook\\n' \"$HOME\" > hooks/$h; chmod +x hooks/$h; "
           "done; "
           "printf '[core]\\nfsmonitor = touch %s/PWNED-monitor\\nhooksPath = hooks\\n"
           "[filter \"x\"]\\nclean = touch %s/PWNED-clean\\n' $HOME $HOME >> config; "
           "echo '* filter=x' > info/attributes; mkdir -p objects/info modules/m worktrees/w; "
           "echo /etc > objects/info/alternates; touch modules/m/config worktrees/w/gitdir; "
           "mkdir -p refs/replace; cp refs/heads/main refs/replace/$(cat refs/heads/main); "
           "ln -s /etc/passwd refs/heads/link; echo ../../config > commondir; "
           "ln -s hooks HOOKS; ln -s /etc more");
        sh(w, "mkdir box/.GIT; echo x > box/.GIT/config");
        restored(w);
        assert_string_equal(w->report.head, out(w, "cd box; git -c core.fsmonitor=false "
                                                   "-c core.hooksPath=/dev/null rev-parse main "
                                                   "2> /dev/null || cat .git/refs/heads/main"));
        assert_true(w->report.refused >= 10);
        assert_out(w, "cd ws/.git; cat config; ls hooks info", before);
        sh(w, "cd ws; ! test -e .GIT; cd .git; ! test -e commondir; ! test -e more; "
              "! test -e refs/replace; ! test -e refs/heads/link; ! test -e modules; "
              "! test -e worktrees; ! test -e objects/info/alternates");
        assert_out(w, "cd ws; git status --porcelain", "");
        assert_sound(w);
}

/* In repositories further down files come, without what git would run. */
static void test_nested_repositories(void **state)
{
        struct world *w = *state;

        sh(w,
           "mkdir ws/sub; cd ws/sub; git init -q -b main; echo 1 > a; git add a; git commit -qm 1");
        stage(w);
        sh(w, "cd box/sub; echo 2 > a; git commit -qam 2; echo '[core]' >> .git/config; "
              "echo x > .git/hooks/pre-commit; git init -q ../fresh; mkdir ../evil; "
              "echo 'gitdir: ../x' > ../evil/.git");
        restored(w);
        assert_out(w, "cd ws/sub; git log -1 --format=%s; git status --porcelain", "2");
        sh(w, "cd ws; ! test -e sub/.git/hooks/pre-commit; ! grep -c '^.core.$' sub/.git/config | "
              "grep 2; test -e fresh/.git/HEAD; ! test -e fresh/.git/config; ! test -e evil/.git");
        assert_true(w->report.refused >= 4);
}

static void test_repository_made_there(void **state)
{
        struct world *w = *state;

        sh(w, "echo 1 > ws/a");
        stage(w);
        sh(w, "cd box; git init -q -b main; git add .; git commit -qm first");
        restored(w);
        assert_out(w, "cd ws; git log --format=%s; git status --porcelain", "first");
        sh(w, "! test -e ws/.git/config; ! test -e ws/.git/hooks");
}

/* git is not run on what the place wrote: what comes of it afterwards are files, too. */
static void test_repository_made_there_is_never_run(void **state)
{
        struct world *w = *state;

        sh(w, "mkdir far; echo 1 > ws/a");
        stage(w);
        sh(w, "cd box; git init -q -b main; git add .; git commit -qm first; "
              "rm -r .git/logs; ln -s $HOME/far .git/logs; ln -s /etc .git/objects/more");
        restored(w);
        assert_true(w->report.refused >= 2);
        sh(w, "cd ws/.git; ! test -L logs; ! test -L objects/more");
        assert_int_equal(git_kind(w->m.ws), GIT_NONE);
        sh(w, "ln -s $HOME/far ws/.git/logs");
        stage(w);
        sh(w, "cd box; echo 2 > a; git commit -qam second; git branch other");
        sh(w, "rm -rf far/*");
        restored(w);
        assert_null(w->report.head);
        assert_out(w, "ls far", "");
        assert_out(w, "cd ws; git log -1 --format=%s other", "second");
        sh(w, "! test -e scratch/repo");
}

/* A link where git keeps refs or their logs: nothing is written where it leads, or given away. */
static void test_links_in_the_repository(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "mkdir -p far/deep; echo mine > far/branch; echo mine > far/main; "
              "rm -r ws/.git/logs/refs/heads; ln -s $HOME/far ws/.git/logs/refs/heads; "
              "ln -s $HOME/far/deep ws/.git/refs/heads/deep");
        stage(w);
        sh(w, "cd box; rm .git/logs/refs/heads .git/refs/heads/deep; git branch branch; "
              "git checkout -q -b deep/er; echo 2 > a; git commit -qam two; "
              "git branch -f main; git branch -f branch");
        if (geteuid() == 0)
                sh(w, "chown -R 65534:65534 ws; git config --global --add safe.directory '*'");
        restored(w);
        assert_out(w, "cat far/branch far/main; ls far/deep", "mine\nmine");
        assert_out(w, "find far ! -uid $(id -u)", "");
        assert_non_null(w->report.note);
        assert_out(w, "cat ws/a", "2");
}

/* git says which line it cannot read, and reads with the daemon's rights: of a file of somebody
 * else, behind a link in the host's repository, nothing is told. Nothing waits for a pipe either.
 */
static void test_links_to_what_others_may_not_read(void **state)
{
        static const char *const names[] = { "HEAD", "config", "packed-refs", "shallow",
                                             "objects/info/alternates" };
        static const char *const kinds[] = { "ln -s $HOME/far", "mkfifo" };
        struct world *w = *state;

        for (size_t i = 0; i < ARRAY_LEN(names) * ARRAY_LEN(kinds); i++) {
                CLEAN(cleanup_free)
                char *script = xasprintf("rm -f ws/.git/%s; %s ws/.git/%s", names[i / 2],
                                         kinds[i % 2], names[i / 2]);
                const char *told;
                int r;

                sh(w, "rm -rf ws/.git ws/* scratch; echo 'root:hash:1' > far; echo x:y >> far");
                make_repository(w);
                sh(w, "cd box; echo 2 > a; git commit -qam two; echo 1 > .git/refs/heads/x");
                sh(w, script);
                r = restore(w);
                assert_true(r < 0 || w->report.note);
                told = r < 0 ? w->m.err.msg : w->report.note;
                if (strstr(told, "hash") || strstr(told, "x:y"))
                        fail_msg("%s: %s", script, told);
                err_clear(&w->m.err);
                assert_null(w->report.head);
                assert_out(w, "cat ws/a", "2"); /* files come all the same */
        }
}

/* Programs that the host's own configuration names are not run: it may be somebody's who has less
 * rights than the daemon has. */
static void test_programs_in_the_hosts_configuration(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w,
           "cd ws; mkdir ../hooks; "
           "for h in reference-transaction post-index-change update post-update; do "
           "  printf '#!/bin/sh\ntouch %s/PWNED-%s\n' $HOME $h > ../hooks/$h; "
           "  chmod +x ../hooks/$h; cp ../hooks/$h .git/hooks/; done; "
           "p=\"touch $HOME/PWNED\"; git config core.hooksPath $HOME/hooks; "
           "for k in core.fsmonitor core.pager core.editor core.sshCommand core.askPass "
           "  core.alternateRefsCommand core.gitProxy diff.external diff.x.textconv "
           "  filter.x.clean filter.x.smudge merge.x.driver gpg.program credential.helper "
           "  pager.for-each-ref pager.update-ref pager.rev-parse remote.origin.uploadpack; do "
           "  git config $k \"$p-$k\"; done; "
           "git config alias.for-each-ref \"!$p-alias\"; echo '* filter=x diff=x merge=x' > attr; "
           "git config core.attributesFile $PWD/attr; cp attr .git/info/attributes; "
           "git config remote.origin.url \"ext::$p-ext\"; git config remote.origin.promisor true; "
           "git config extensions.partialClone origin; git config commit.gpgSign true");
        sh(w, "cd box; echo 2 > a; git commit -qam two; git branch side");
        sh(w, "git -c core.hooksPath=/dev/null -c core.fsmonitor=false --git-dir=ws/.git "
              "update-ref refs/heads/main $(git -C ws -c core.fsmonitor=false -c gpg.program=true "
              "commit-tree --no-gpg-sign -p main -m ours main^{tree}); rm -f PWNED*");
        restored(w);
        assert_true(w->report.merged);
        sh(w, "ls; ! ls | grep PWNED");
}

static void test_git_elsewhere(void **state)
{
        struct world *w = *state;

        sh(w, "git init -q -b main main; cd main; echo 1 > a; git add a; git commit -qm one; "
              "rmdir ../ws; git worktree add -q ../ws -b side");
        close(w->m.ws);
        w->m.ws = openat(w->m.root_fd, "ws", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(git_kind(w->m.ws), GIT_ELSEWHERE);
        stage(w);
        sh(w, "cd box; rm .git; git init -q -b main; echo 2 > a; git add .; git commit -qm two");
        restored(w);
        assert_true(w->report.refused > 0);
        assert_non_null(w->report.note);
        assert_out(w, "cd ws; git log -1 --format=%s; cat a", "one\n2");
}

static void test_dot_git_replaced(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; rm -rf .git; ln -s /etc .git");
        restored(w);
        assert_null(w->report.head);
        assert_true(w->report.refused > 0);
        assert_string_equal(w->report.first_refused, ".git");
        assert_out(w, "cd ws; git status --porcelain", " M a");
        assert_sound(w);
}

static void assert_refused(struct world *w)
{
        restored(w);
        assert_null(w->report.head);
        assert_non_null(w->report.note);
        assert_out(w, "cd ws; git log -1 --format=%s; git for-each-ref | wc -l", "one\n1");
        assert_out(w, "cat ws/a", "2"); /* files come all the same */
        assert_sound(w);
        sh(w, "rm -rf scratch box; git -C ws checkout -q .");
        stage(w);
}

/* OBJECT is the loose file of what `rev` names. */
#define OBJECT(rev) "$(git rev-parse " rev " | sed 's#^..#.git/objects/&/#')"

static void test_bad_objects(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two; f=" OBJECT("HEAD:a") "; chmod u+w $f; "
                                                                             "echo garbage > $f");
        assert_refused(w);
        /* a good object under the name of another */
        sh(w,
           "cd box; echo 2 > a; git commit -qam two; f=" OBJECT(
                   "HEAD:a") "; chmod u+w $f; "
                             "echo other > o; cp $(git hash-object -w o | sed 's#^..#.git/objects/&/#') $f; rm o");
        assert_refused(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two; rm -f " OBJECT("HEAD:a"));
        assert_refused(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two; rm -f " OBJECT("HEAD^{tree}"));
        assert_refused(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two; git gc -q --prune=now; "
              "f=$(ls .git/objects/pack/*.pack); chmod u+w $f; "
              "printf XXXXXXXX | dd of=$f bs=1 seek=60 conv=notrunc 2> /dev/null");
        assert_refused(w);
        /* a tree that would write into .git */
        sh(w, "cd box; echo 2 > a; b=$(git hash-object -w a); "
              "t=$(printf '100644 blob %s\tconfig\n' $b | git mktree); "
              "t=$(printf '040000 tree %s\t.git\n' $t | git mktree); "
              "git update-ref refs/heads/main $(git commit-tree -p HEAD -m evil $t)");
        assert_refused(w);
}

/* Refs that make no sense are no refs. */
static void test_bad_refs(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w,
           "cd box/.git; echo 2 > ../a; head -c 100000 /dev/zero > HEAD; "
           "head -c 100000 /dev/zero | tr '\\0' 'a' > refs/heads/huge; "
           "head -c 9000000 /dev/urandom > packed-refs; echo x > refs/heads/short; "
           "for n in -x .x x.lock 'a b' 'a;b' 'a$b'; do cp refs/heads/main \"refs/heads/$n\"; done; "
           "echo 0123456789012345678901234567890123456789 > refs/heads/nothing; "
           "git -C ../../ws rev-parse HEAD^{tree} > refs/heads/tree");
        restored(w);
        assert_null(w->report.head);
        assert_null(w->report.kept);
        assert_out(w, "cd ws; git for-each-ref | wc -l", "1");
        sh(w,
           "cd box/.git; printf '%s refs/heads/../../config\\n%s refs/heads/fine\\ngarbage\\n%s' "
           "$(cat refs/heads/main) $(cat refs/heads/main) $(cat refs/heads/main) > packed-refs");
        restored(w);
        assert_string_equal(w->report.kept->here, "refs/heads/fine");
        assert_null(w->report.kept->next);
        assert_sound(w);
}

static void test_too_many_refs(void **state)
{
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; i=0; while [ $i -lt 2100 ]; do cp .git/refs/heads/main .git/refs/heads/n$i; "
              "i=$((i+1)); done");
        restored(w);
        assert_string_equal(w->report.note, "100 branches and tags too many");
        assert_out(w, "cd ws; git for-each-ref | wc -l", "2001");
}

/* The host's own hooks are for its people, not for us; its branch may move while we work. */
static void test_the_host_works_on(void **state)
{
        struct world *w = *state;
        char path[2 * SCRATCH_PATH_MAX + 64];
        const char *old = getenv("PATH");

        make_repository(w);
        sh(w, "cd ws/.git/hooks; for h in reference-transaction post-index-change; do "
              "printf '#!/bin/sh\\ntouch %s/PWNED\\n' \"$HOME\" > $h; chmod +x $h; done");
        sh(w, "cd box; echo 2 > a; git commit -qam theirs");
        /* A git that commits here just before our first move. */
        sh(w,
           "mkdir bin; printf '#!/bin/sh\\ncase \"$*\" in *update-ref*) "
           "if ! test -e %s/once; then touch %s/once; (cd %s/ws; unset GIT_DIR; echo 2 > b; "
           "/usr/bin/git -c core.hooksPath=/dev/null -c user.name=x -c user.email=x@x "
           "commit -qam ours); fi;; esac\\nexec /usr/bin/git \"$@\"\\n' $HOME $HOME $HOME > bin/git; "
           "chmod +x bin/git");
        snprintf(path, sizeof(path), "%s/bin:%s", w->m.root, old);
        setenv("PATH", path, 1);
        restored(w);
        setenv("PATH", strchr(path, ':') + 1, 1);
        assert_true(w->report.merged);
        sh(w, "rm -r ws/.git/hooks; test -e once");
        assert_out(w, "cd ws; git log --format=%s HEAD^1 HEAD^2 | sort | xargs", "one ours theirs");
        assert_out(w, "cd ws; git status --porcelain", "");
        assert_sound(w);
}

/* Killed anywhere and done again, it comes to the same end. */
static void test_crashes(void **state)
{
        static const char *const points[] = {
                "workspace.git.objects.before", "workspace.git.objects.after",
                "workspace.git.ref.before",     "workspace.git.ref.after",
                "workspace.git.index.before",   "workspace.git.index.locked",
                "workspace.git.index.after"
        };
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam theirs");
        sh(w, "cd ws; echo 2 > b; git commit -qam ours; cp -a .git ../saved");
        for (size_t i = 0; i < ARRAY_LEN(points); i++) {
                int status;
                pid_t pid;

                sh(w, "rm -rf ws/.git scratch; cp -a saved ws/.git; cd ws; git checkout -q .");
                pid = fork();
                if (pid == 0) {
                        setenv("BERTH_CRASH_AT", points[i], 1);
                        (void)restore(w);
                        _exit(0);
                }
                assert_int_equal(waitpid(pid, &status, 0), pid);
                if (!WIFSIGNALED(status))
                        fail_msg("%s was not reached", points[i]);
                restored(w);
                assert_out(w, "cd ws; git log --format=%s HEAD^1 HEAD^2 | sort | xargs",
                           "one ours theirs");
                assert_out(w, "cd ws; git status --porcelain; ls .git/index*", ".git/index");
                assert_out(w, "cd ws; git log --merges --format=%s | wc -l", "1");
                assert_sound(w);
        }
}

/* Files come without it. */
static void test_no_git(void **state)
{
        CLEAN(cleanup_free) char *old = xstrdup(getenv("PATH"));
        struct world *w = *state;

        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam two");
        setenv("PATH", "/nonexistent", 1);
        restored(w);
        setenv("PATH", old, 1);
        assert_null(w->report.head);
        assert_non_null(w->report.note);
        assert_out(w, "cat ws/a", "2");
}

/* A repository of somebody else, that a daemon of root's has for a workspace. */
#define OWNER "65534"

static void give_repository_away(struct world *w)
{
        sh(w, "chown -R " OWNER ":" OWNER " ws; chmod 711 .; "
              "git config --global --add safe.directory '*'");
        w->m.options.set_owner = true;
}

/* A daemon of root's leaves no files of root's in a repository of somebody else. */
static void test_owner(void **state)
{
        struct world *w = *state;

        if (geteuid() != 0)
                skip();
        make_repository(w);
        sh(w, "cd box; echo 2 > a; git commit -qam theirs; git branch deep/er/branch; "
              "git pack-refs --all; git gc -q");
        sh(w, "cd ws; echo 2 > b; git commit -qam ours");
        give_repository_away(w);
        restored(w);
        assert_null(w->report.note);
        assert_true(w->report.merged);
        assert_false(w->report.index_stale);
        assert_out(w, "find ws -user 0 -o -name 'berth*'", "");
        assert_out(w, "cd ws; git log --format=%s HEAD^1 HEAD^2 | sort | xargs", "one ours theirs");
        assert_out(w, "cd ws; git status --porcelain; git rev-parse -q --verify deep/er/branch >&2",
                   "");
        assert_sound(w);
}

/* git has its rights alone: whatever he puts into its way, also after everything was looked at,
 * leads git to nothing of root's. */
static void test_owner_points_elsewhere(void **state)
{
        static const char *const traps[] = {
                /* refs, logs and objects are written through a link */
                "mv -T refs/heads refs/aside && ln -s $far/refs/heads refs/heads",
                "mv -T logs aside && ln -s $far/logs logs",
                "mv -T objects/pack objects/aside && ln -s $far/objects/pack objects/pack",
                /* another repository altogether */
                "echo $far > commondir",
                "cd ..; mv -T .git aside && ln -s $far .git",
        };
        static const char look[] = "cd far/.git; find . -type f | sort | xargs ls -ln --full-time";
        struct world *w = *state;

        if (geteuid() != 0)
                skip();
        for (size_t i = 0; i < ARRAY_LEN(traps); i++) {
                CLEAN(cleanup_free) char *old = xstrdup(getenv("PATH"));
                CLEAN(cleanup_free) char *path = xasprintf("%s/bin:%s", w->m.root, old);
                CLEAN(cleanup_free)
                char *spring = xasprintf("cat > bin/spring <<'E'\n%s\nE", traps[i]);
                const char *before;

                sh(w, "rm -rf ws/* ws/.git far box scratch bin; mkdir bin");
                make_repository(w);
                sh(w, "cp -a ws far; chmod 700 far; cd box; git branch side; git checkout -qb new; "
                      "echo 2 > a; git commit -qam two");
                sh(w, spring);
                sh(w, "cat > bin/git <<E\n#!/bin/sh\n"
                      "(cd $PWD/ws/.git && far=$PWD/far/.git setpriv --reuid=" OWNER
                      " sh -e $PWD/bin/spring) < /dev/null > /dev/null 2>&1\n"
                      "exec $(command -v git) \"\\$@\"\nE\nchmod 755 bin/*");
                give_repository_away(w);
                before = out(w, look);
                setenv("PATH", path, 1);
                (void)restore(w);
                setenv("PATH", old, 1);
                err_clear(&w->m.err);
                assert_out(w, look, before);
                assert_out(w, "cat ws/a", "2"); /* files come all the same */
        }
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(int argc, char **argv)
{
        const struct CMUnitTest tests[] = {
                TEST(test_commits_come_home),
                TEST(test_files_alone),
                TEST(test_only_filter),
                TEST(test_diverged),
                TEST(test_conflict),
                TEST(test_what_is_staged_stays),
                TEST(test_index_in_use),
                TEST(test_packed),
                TEST(test_stale_packed_lines),
                TEST(test_branches_and_tags),
                TEST(test_names_in_the_way),
                TEST(test_on_another_branch),
                TEST(test_detached),
                TEST(test_first_commit),
                TEST(test_shallow),
                TEST(test_hostile_repository),
                TEST(test_bare_repository_comes_home),
                TEST(test_bare_repository_of_the_host),
                TEST(test_repository_made_of_both_sides),
                TEST(test_links_under_names_that_git_writes),
                TEST(test_a_repository_comes_without_its_links),
                TEST(test_links_beside_a_head),
                TEST(test_an_index_with_paths_elsewhere),
                TEST(test_an_index_of_gits_own),
                TEST(test_other_ways_to_lie_to_git),
                TEST(test_what_is_no_repository),
                TEST(test_nested_repositories),
                TEST(test_repository_made_there),
                TEST(test_repository_made_there_is_never_run),
                TEST(test_links_in_the_repository),
                TEST(test_links_to_what_others_may_not_read),
                TEST(test_programs_in_the_hosts_configuration),
                TEST(test_git_elsewhere),
                TEST(test_dot_git_replaced),
                TEST(test_bad_objects),
                TEST(test_bad_refs),
                TEST(test_too_many_refs),
                TEST(test_the_host_works_on),
                TEST(test_crashes),
                TEST(test_no_git),
                TEST(test_owner),
                TEST(test_owner_points_elsewhere),
        };

        if (become_is_trampoline(argv[0]))
                return become_main(argc, argv);
        return cmocka_run_group_tests(tests, NULL, NULL);
}
