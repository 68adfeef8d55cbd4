/* Trees of assets, and the skills that they are made of. */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "core/assets/asset_tree.h"
#include "core/assets/skill.h"
#include "core/exec/exec_transfer.h"

struct scene {
        struct arena arena;
        struct op op;
        char root[SCRATCH_PATH_MAX];
};

static const char *at(struct scene *s, const char *path)
{
        return arena_printf(&s->arena, "%s/%s", s->root, path);
}

static void put(struct scene *s, const char *path, const char *text, mode_t mode)
{
        const char *full = at(s, path);
        const char *dir = arena_strndup(&s->arena, full, (size_t)(strrchr(full, '/') - full));

        assert_int_equal(path_make_dirs(dir, 0755, NULL), 0);
        assert_int_equal(file_write_at(AT_FDCWD, full, text, strlen(text), mode, NULL), 0);
        assert_int_equal(chmod(full, mode), 0);
}

static void put_link(struct scene *s, const char *path, const char *target)
{
        assert_int_equal(symlink(target, at(s, path)), 0);
}

static int set_up(void **state)
{
        struct scene *s = xcalloc(1, sizeof(*s));

        arena_init(&s->arena);
        s->op = (struct op){ .arena = &s->arena, .deadline_ms = OP_NO_DEADLINE };
        make_scratch(s->root);
        put(s, "from/SKILL.md", "told\n", 0644);
        put(s, "from/bin/tool", "#!/bin/sh\n", 0755);
        put(s, "from/._junk", "x", 0644);
        put(s, "from/node_modules/x", "x", 0644);
        *state = s;
        return 0;
}

static int tear_down(void **state)
{
        struct scene *s = *state;

        assert_int_equal(asset_tree_remove(s->root, NULL), 0);
        assert_int_not_equal(access(s->root, F_OK), 0);
        arena_done(&s->arena);
        free(s);
        return 0;
}

/* Of "from" into a fresh directory `to`; NULL: only the key. */
static int copy(struct scene *s, const char *to, bool follow, char key[ASSET_KEY_LEN + 1],
                struct err *err)
{
        static const char *const exclude[] = { "node_modules", NULL };
        CLEAN(asset_tree_done) struct asset_tree t = { .fd = -1 };
        int r;

        assert_int_equal(asset_tree_init(&t, &s->op, to ? at(s, to) : NULL, NULL), 0);
        r = asset_tree_add_dir(&t, at(s, "from"), "in/it", follow, exclude, err);
        if (r >= 0 && key)
                asset_tree_key(&t, key);
        return r;
}

static void check_file(struct scene *s, const char *path, mode_t mode, const char *text)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct stat st;

        assert_int_equal(lstat(at(s, path), &st), 0);
        assert_int_equal(st.st_mode, S_IFREG | mode);
        assert_int_equal(file_read_at(AT_FDCWD, at(s, path), 100, &b, NULL), 0);
        assert_string_equal(buf_str(&b), text);
}

/* remote-execution 8.11, 8.70 */
static void test_links_that_are_followed(void **state)
{
        struct scene *s = *state;
        struct stat st;

        put_link(s, "from/alias.md", "bin/../SKILL.md");
        put_link(s, "from/tools", "bin");
        put_link(s, "there", "from");
        assert_int_equal(copy(s, "to", true, NULL, NULL), 0);
        check_file(s, "to/in/it/SKILL.md", 0600, "told\n");
        check_file(s, "to/in/it/alias.md", 0600, "told\n");
        check_file(s, "to/in/it/bin/tool", 0700, "#!/bin/sh\n");
        check_file(s, "to/in/it/tools/tool", 0700, "#!/bin/sh\n");
        assert_int_equal(stat(at(s, "to/in/it"), &st), 0);
        assert_int_equal(st.st_mode, S_IFDIR | 0700);
        assert_int_not_equal(access(at(s, "to/in/it/._junk"), F_OK), 0);
        assert_int_not_equal(access(at(s, "to/in/it/node_modules"), F_OK), 0);
}

static void test_links_that_stay_links(void **state)
{
        struct scene *s = *state;
        char target[64] = "";

        put_link(s, "from/out", "/etc/passwd");
        put_link(s, "from/gone", "nowhere");
        assert_int_equal(copy(s, "to", false, NULL, NULL), 0);
        assert_int_equal(readlink(at(s, "to/in/it/out"), target, sizeof(target) - 1), 11);
        assert_string_equal(target, "/etc/passwd");
}

static void check_fails(struct scene *s, const char *to, int code, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };

        assert_int_equal(copy(s, to, true, NULL, &e), code);
        assert_string_equal(e.msg, expected);
}

/* An agent may have written what is in a skill: nothing else of this machine is its to read. */
static void test_links_that_lead_out(void **state)
{
        struct scene *s = *state;

        put(s, "secret", "x", 0600);
        put_link(s, "from/z", "/etc/passwd");
        check_fails(s, "to1", ERR_UNPROCESSABLE, "z leads out of its directory");
        assert_int_equal(unlink(at(s, "from/z")), 0);
        put_link(s, "from/bin/z", "../../secret");
        check_fails(s, "to2", ERR_UNPROCESSABLE, "bin/z leads out of its directory");
        assert_int_equal(unlink(at(s, "from/bin/z")), 0);
        put_link(s, "from/z", "gone");
        check_fails(s, "to3", ERR_UNPROCESSABLE, "z cannot be read");
        assert_int_equal(unlink(at(s, "from/z")), 0);
        put_link(s, "from/z", "z");
        check_fails(s, "to4", ERR_UNPROCESSABLE, "z leads out of its directory");
}

/* A pipe would keep us waiting. */
static void test_what_is_no_file(void **state)
{
        struct scene *s = *state;

        assert_int_equal(mkfifo(at(s, "from/pipe"), 0600), 0);
        assert_int_equal(copy(s, "to", true, NULL, NULL), 0);
        assert_int_not_equal(access(at(s, "to/in/it/pipe"), F_OK), 0);
        assert_int_equal(access(at(s, "to/in/it/SKILL.md"), F_OK), 0);
}

static void test_too_much(void **state)
{
        struct scene *s = *state;
        CLEAN(err_done) struct err e = { 0 };

        put_link(s, "from/a", ".");
        put_link(s, "from/b", ".");
        assert_int_equal(copy(s, NULL, true, NULL, &e), ERR_TOO_LARGE);
        assert_int_equal(unlink(at(s, "from/a")), 0);
        assert_int_equal(unlink(at(s, "from/b")), 0);
        put(s, "from/big", "", 0600);
        assert_int_equal(truncate(at(s, "from/big"), (off_t)ASSET_BYTES_MAX + 1), 0);
        check_fails(s, NULL, ERR_TOO_LARGE, "there are more than 256 MiB");
}

/* Each directory leads into the next one by many ways: few files, and no end of visits. */
static void test_too_many_ways(void **state)
{
        struct scene *s = *state;

        for (int i = 0; i < 4; i++) {
                put(s, arena_printf(&s->arena, "from/d%d/._junk", i + 1), "x", 0600);
                put(s, arena_printf(&s->arena, "from/d%d/._junk", i), "x", 0600);
                for (int k = 0; k < 20; k++)
                        put_link(s, arena_printf(&s->arena, "from/d%d/l%d", i, k),
                                 arena_printf(&s->arena, "../d%d", i + 1));
        }
        check_fails(s, NULL, ERR_TOO_LARGE, "there are more than 20000 files and directories");
}

static void test_out_of_time(void **state)
{
        struct scene *s = *state;
        static const char *const all[] = { "SKILL.md", "bin", "node_modules", NULL };
        CLEAN(asset_tree_done) struct asset_tree t = { .fd = -1 };

        assert_int_equal(mkdir(at(s, "from/empty"), 0700), 0);
        s->op.deadline_ms = 0;
        assert_int_equal(asset_tree_init(&t, &s->op, NULL, NULL), 0);
        assert_int_equal(asset_tree_add_dir(&t, at(s, "from"), "", true, all, NULL), ERR_TIMEOUT);
}

/* The same for the same content, wherever it is counted; another for any other. */
static void test_the_key(void **state)
{
        struct scene *s = *state;
        char here[ASSET_KEY_LEN + 1], counted[ASSET_KEY_LEN + 1], other[ASSET_KEY_LEN + 1];

        assert_int_equal(copy(s, "to", true, here, NULL), 0);
        assert_int_equal(copy(s, NULL, true, counted, NULL), 0);
        assert_string_equal(here, counted);
        put(s, "from/SKILL.md", "Told\n", 0644);
        assert_int_equal(copy(s, NULL, true, other, NULL), 0);
        assert_string_not_equal(here, other);
        put(s, "from/SKILL.md", "told\n", 0755);
        assert_int_equal(copy(s, NULL, true, other, NULL), 0);
        assert_string_not_equal(here, other);
        put(s, "from/SKILL.md", "told\n", 0600);
        assert_int_equal(copy(s, NULL, true, other, NULL), 0);
        assert_string_equal(here, other);
}

static void test_single_files(void **state)
{
        struct scene *s = *state;
        CLEAN(asset_tree_done) struct asset_tree t = { .fd = -1 };

        put_link(s, "link", "from/SKILL.md");
        assert_int_equal(asset_tree_init(&t, &s->op, at(s, "to"), NULL), 0);
        assert_int_equal(asset_tree_add_file(&t, at(s, "link"), "a/b", true, NULL), 1);
        assert_int_equal(asset_tree_add_file(&t, at(s, "gone"), "c", true, NULL), 0);
        assert_int_equal(asset_tree_add_file(&t, at(s, "link"), "d", false, NULL), 0);
        assert_int_equal(asset_tree_add_file(&t, at(s, "from"), "e", true, NULL),
                         ERR_UNPROCESSABLE);
        assert_int_equal(asset_tree_add_text(&t, "a/t", "text", NULL), 0);
        assert_int_equal(asset_tree_add_link(&t, "/x", "a/l", NULL), 0);
        check_file(s, "to/a/b", 0600, "told\n");
        check_file(s, "to/a/t", 0600, "text");
        assert_int_not_equal(access(at(s, "to/d"), F_OK), 0);
        assert_int_equal(t.files, 3);
}

/* Skills */

static const char *description(struct scene *s, const char *text)
{
        return skill_description(&s->arena, text, strlen(text));
}

static void test_descriptions(void **state)
{
        struct scene *s = *state;

        assert_string_equal(description(s, "---\ndescription: a: b \n---\n"), "a: b");
        assert_string_equal(description(s, "---\r\nname: x\r\ndescription: \"a\"\r\n"), "a");
        assert_string_equal(description(s, "---\ndescription: '\n"), "'");
        assert_null(description(s, "---\n---\ndescription: a\n"));
        assert_null(description(s, "description: a\n"));
        assert_null(description(s, "---\ndescription:\n---\n"));
        assert_null(description(s, "---\ndescription: \xff\n---\n"));
        assert_null(description(s, "---"));
        assert_null(description(s, ""));
}

static void test_which_skills(void **state)
{
        struct scene *s = *state;
        json_t *some =
                json_pack("{s:{s:[s, s]}}", "paperclipSkillSync", "desiredSkills", "o/r/b", "gone");
        json_t *any = json_object();
        struct skill_list list;

        assert_int_equal(skill_list(&s->arena, s->root, "c", &list, NULL), 0);
        assert_int_equal(list.n, 0);
        put(s, "skills/b/SKILL.md", "x", 0600);
        put(s, "skills/a/SKILL.md", "x", 0600);
        put(s, "skills/no/README.md", "x", 0600);
        put(s, "companies/c/skills/a/SKILL.md", "x", 0600);
        put(s, "companies/d/skills/z/SKILL.md", "x", 0600);
        put(s, "skills/out/x", "x", 0600);
        put_link(s, "skills/out/SKILL.md", "/etc/passwd");
        put_link(s, "skills/linked", "../from");
        assert_int_equal(skill_list(&s->arena, s->root, "c", &list, NULL), 0);
        assert_int_equal(list.n, 3);
        assert_string_equal(list.at[0].name, "a");
        assert_true(list.at[0].is_company);
        assert_string_equal(list.at[1].name, "b");
        assert_string_equal(list.at[2].name, "linked");
        assert_ptr_equal(skill_find(&list, "x/y/b"), &list.at[1]);
        assert_null(skill_find(&list, "gone"));
        assert_true(skill_is_wanted(any, "a"));
        assert_true(skill_is_wanted(some, "b"));
        assert_false(skill_is_wanted(some, "a"));
        json_decref(some);
        json_decref(any);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* The same where only commands run: its exit status, 0 or 1. */
static int run_script(struct scene *s, const char *dir)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        buf_puts(&b, "exec 2>/dev/null; set -e\n");
        runtime_script(&b, at(s, dir));
        return system(buf_str(&b)) != 0; /* NOLINT(cert-env33-c): a test's own words */
}

static void test_a_link_in_the_way(void **state)
{
        struct scene *s = *state;

        put(s, "theirs/file", "x", 0644);
        put(s, "work/.paperclip-runtime/it's/file", "x", 0644);
        put_link(s, "work/.paperclip-runtime/x", "../../theirs");
        put_link(s, "linked", "work");
        assert_int_equal(run_script(s, "work/.paperclip-runtime/it's/asset"), 0);
        assert_int_equal(access(at(s, "work/.paperclip-runtime/.gitignore"), F_OK), 0);
        assert_int_equal(run_script(s, "linked/.paperclip-runtime/it's"), 0);
        assert_int_equal(run_script(s, "host/.paperclip-runtime/runs/1/.paperclip-runtime/x"), 0);
        assert_int_not_equal(access(at(s, "host/.paperclip-runtime/.gitignore"), F_OK), 0);
        assert_int_equal(
                access(at(s, "host/.paperclip-runtime/runs/1/.paperclip-runtime/.gitignore"), F_OK),
                0);
        assert_int_equal(run_script(s, "linked/x"), 0);
        assert_int_equal(run_script(s, "work/.paperclip-runtime/x"), 1);
        assert_int_equal(run_script(s, "work/.paperclip-runtime/x/asset"), 1);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_links_that_are_followed),
                TEST(test_links_that_stay_links),
                TEST(test_links_that_lead_out),
                TEST(test_what_is_no_file),
                TEST(test_too_much),
                TEST(test_too_many_ways),
                TEST(test_out_of_time),
                TEST(test_the_key),
                TEST(test_single_files),
                TEST(test_descriptions),
                TEST(test_which_skills),
                TEST(test_a_link_in_the_way),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
