/* plugin-protocol sections 1.1 and 2.1-2.3: finding, evaluating and summing up a package. */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "plugin/package.h"

#define MANIFEST                                                                                   \
        "{id:'acme.box',apiVersion:1,version:'0.1.0',displayName:'A',description:'d',author:'a',"  \
        "categories:['automation'],capabilities:['environment.drivers.register'],"                 \
        "entrypoints:{worker:'./worker.js'},environmentDrivers:[]}"

struct fixture {
        char dir[SCRATCH_PATH_MAX];
        const char *root;
        struct arena arena;
        struct op op;
        struct plugin_tools tools;
        struct package package;
        struct err err;
};

static bool have_node(void)
{
        return system("node --version >/dev/null 2>&1") == 0;
}

static const char *in(struct fixture *f, const char *name)
{
        return arena_printf(&f->arena, "%s/%s", f->root, name);
}

static void put(struct fixture *f, const char *name, const char *text)
{
        char *path = arena_strdup(&f->arena, in(f, name));

        *strrchr(path, '/') = '\0';
        assert_int_equal(path_make_dirs(path, 0700, NULL), 0);
        assert_int_equal(file_write_at(AT_FDCWD, in(f, name), text, strlen(text), 0600, NULL), 0);
}

static int setup(void **state)
{
        struct fixture *f = xcalloc(1, sizeof(*f));

        assert_true(sodium_init() >= 0);
        make_scratch(f->dir);
        arena_init(&f->arena);
        f->op = (struct op){ .arena = &f->arena, .deadline_ms = OP_NO_DEADLINE };
        f->root = arena_printf(&f->arena, "%s/pkg", f->dir);
        f->tools = (struct plugin_tools){ .node = "node",
                                          .npm = "npm",
                                          .scratch_dir = f->dir,
                                          .fetch_ms = 10000,
                                          .manifest_ms = 20000 };
        put(f, "package.json", "{\"name\":\"acme-box\",\"version\":\"1.2.3\",\"type\":\"module\"}");
        put(f, "worker.js", "");
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(tree_remove(&f->op, f->dir, NULL), 0);
        arena_done(&f->arena);
        err_done(&f->err);
        free(f);
        return 0;
}

static int open_package(struct fixture *f)
{
        err_clear(&f->err);
        return package_open(&f->op, &f->tools, f->root, f->root, &f->package, &f->err);
}

static void refused(struct fixture *f, const char *says)
{
        assert_int_equal(open_package(f), ERR_INVALID);
        if (!strstr(f->err.msg, says))
                fail_msg("%s", f->err.msg);
}

static void test_names_and_versions(void **state)
{
        static const char *const good[] = { "a", "plugin-x", "@acme/plugin-x", "a.b_c~d", "0x" };
        static const char *const bad[] = { "",       "-g",     "--prefix=/", "../x",    "/tmp/x",
                                           "A",      "@a",     "@a/",        "@/a",     "a/b",
                                           "a@1.0",  "a:b",    "file:x",     "a b",     ".hidden",
                                           "@a/b/c", "@-a/-b", "git+ssh",    "http://x" };
        static const char *const good_versions[] = { "1.2.3", "^1.0.0", "latest", ">=1 <2 || 3.x" };
        static const char *const bad_versions[] = { "",         "-1",   "file:../x", "npm:evil@1",
                                                    "../../x",  "a/b",  "1@2",       "1;2",
                                                    "git+ssh:", "\n1.0" };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                if (!package_name_is_valid(good[i]))
                        fail_msg("%s", good[i]);
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (package_name_is_valid(bad[i]))
                        fail_msg("%s", bad[i]);
        for (size_t i = 0; i < ARRAY_LEN(good_versions); i++)
                if (!package_version_is_valid(good_versions[i]))
                        fail_msg("%s", good_versions[i]);
        for (size_t i = 0; i < ARRAY_LEN(bad_versions); i++)
                if (package_version_is_valid(bad_versions[i]))
                        fail_msg("%s", bad_versions[i]);
}

static void test_where_the_manifest_is(void **state)
{
        struct fixture *f = *state;

        refused(f, "does not appear to be a Paperclip plugin (no manifest found).");
        put(f, "package.json",
            "{\"name\":\"x\",\"paperclipPlugin\":{\"manifest\":\"./lib/m.json\"}}");
        put(f, "manifest.js", "export default {}"); /* no second guess */
        refused(f, "Failed to load manifest module at ");
        put(f, "package.json", "{\"name\":\"x\",\"paperclipPlugin\":{\"manifest\":\"../m.json\"}}");
        refused(f, "there is no such file in the package");
        unlink(in(f, "package.json"));
        refused(f, "Missing package.json at ");
        f->root = arena_printf(&f->arena, "%s/nowhere", f->dir);
        refused(f, "Package directory not found after installation: ");
}

/* A manifest that is plain data needs no node. */
static void test_json_manifest_and_worker(void **state)
{
        struct fixture *f = *state;
        static const char manifest[] =
                "{\"id\":\"acme.box\",\"apiVersion\":1,\"version\":\"0.1.0\",\"displayName\":\"A\","
                "\"description\":\"d\",\"author\":\"a\",\"categories\":[\"automation\"],"
                "\"capabilities\":[\"issues.read\"],\"entrypoints\":{\"worker\":\"%s\"}}";

        put(f, "package.json", "{\"name\":\"x\",\"paperclipPlugin\":{\"manifest\":\"./m.json\"}}");
        put(f, "m.json", arena_printf(&f->arena, manifest, "./worker.js"));
        assert_int_equal(open_package(f), 0);
        assert_true(strstr(f->package.entry, "/pkg/worker.js") != NULL);
        assert_null(f->package.npm_version);

        put(f, "m.json", arena_printf(&f->arena, manifest, "./none.js"));
        refused(f, "Worker entrypoint not found for plugin \"acme.box\". Checked: ");
        put(f, "m.json", arena_printf(&f->arena, manifest, "/bin/sh"));
        refused(f, "Worker entrypoint not found");
        /* A neighbour whose name begins alike is not inside. */
        assert_int_equal(mkdir(arena_printf(&f->arena, "%s-evil", f->root), 0700), 0);
        assert_int_equal(file_write_at(AT_FDCWD, arena_printf(&f->arena, "%s-evil/w.js", f->root),
                                       "", 0, 0600, NULL),
                         0);
        put(f, "m.json", arena_printf(&f->arena, manifest, "../pkg-evil/w.js"));
        refused(f, "Worker entrypoint not found");
        assert_int_equal(symlink("../pkg-evil/w.js", in(f, "link.js")), 0);
        put(f, "m.json", arena_printf(&f->arena, manifest, "./link.js"));
        refused(f, "Worker entrypoint not found");
}

static void test_modules(void **state)
{
        struct fixture *f = *state;

        if (!have_node())
                skip();
        put(f, "manifest.js", "console.log('noise'); export default " MANIFEST);
        assert_int_equal(open_package(f), 0);
        assert_string_equal(f->package.name, "acme-box");
        assert_string_equal(f->package.npm_version, "1.2.3");
        assert_string_equal(json_get_string(f->package.manifest, "id"), "acme.box");
        unlink(in(f, "manifest.js"));
        put(f, "package.json", "{\"name\":\"acme-box\"}");
        put(f, "dist/manifest.js", "module.exports = " MANIFEST);
        assert_int_equal(open_package(f), 0);
        put(f, "package.json", "{\"name\":\"acme-box\",\"type\":\"module\"}");
        put(f, "dist/manifest.js", "throw new Error('not today')");
        refused(f, "dist/manifest.js: not today");
        put(f, "dist/manifest.js", "process.exit(7)");
        refused(f, "node ended without an answer (status 7)");
        put(f, "dist/manifest.js", "export default () => 1");
        refused(f, "exports nothing that is data");
        put(f, "dist/manifest.js", "export default {id: 'X'}");
        refused(f, "Invalid plugin manifest: id: ");
}

static void test_hostile_modules(void **state)
{
        struct fixture *f = *state;

        if (!have_node())
                skip();
        f->tools.manifest_ms = 1500;
        put(f, "manifest.js", "for (;;) ;");
        refused(f, "it took longer than 1500 ms");
        f->tools.manifest_ms = 20000;
        put(f, "manifest.js",
            "import fs from 'node:fs'; for (;;) fs.writeSync(1, 'x'.repeat(65536))");
        refused(f, "it printed too much");
        put(f, "manifest.js", "export default {id: 'x'.repeat(1100000)}");
        refused(f, "the manifest is larger than");
        put(f, "manifest.js",
            "if (process.env.PATH || process.env.HOME || process.env.BERTH_DATA) throw 1;"
            "export default " MANIFEST);
        assert_int_equal(open_package(f), 0);
        /* What it starts ends with it. */
        put(f, "manifest.js",
            "import {spawn} from 'node:child_process';"
            "spawn('/bin/sh', ['-c', 'sleep 1000'], {stdio: 'inherit'}); export default " MANIFEST);
        assert_int_equal(open_package(f), 0);
}

static void test_checksum(void **state)
{
        struct fixture *f = *state;
        char first[TREE_CHECKSUM_MAX], second[TREE_CHECKSUM_MAX];

        put(f, ".git/HEAD", "x");
        assert_int_equal(tree_checksum(&f->op, f->root, first, NULL), 0);
        put(f, ".git/HEAD", "y");
        assert_int_equal(tree_checksum(&f->op, f->root, second, NULL), 0);
        assert_string_equal(first, second);
        put(f, "worker.js", " ");
        assert_int_equal(tree_checksum(&f->op, f->root, second, NULL), 0);
        assert_string_not_equal(first, second);
        put(f, "worker.js", "");
        assert_int_equal(tree_checksum(&f->op, f->root, second, NULL), 0);
        assert_string_equal(first, second);
        assert_int_equal(chmod(in(f, "worker.js"), 0700), 0);
        assert_int_equal(tree_checksum(&f->op, f->root, second, NULL), 0);
        assert_string_not_equal(first, second);
        assert_int_equal(symlink("/dev/zero", in(f, "z")), 0); /* not followed */
        assert_int_equal(mkfifo(in(f, "fifo"), 0600), 0);      /* not opened */
        assert_int_equal(tree_checksum(&f->op, f->root, first, NULL), 0);
        assert_string_not_equal(first, second);
        assert_int_equal(tree_checksum(&f->op, in(f, "none"), first, NULL), ERR_NOT_FOUND);
}

/* A link out of the tree is removed, not followed. */
static void test_remove(void **state)
{
        struct fixture *f = *state;
        const char *outside = arena_printf(&f->arena, "%s/outside", f->dir);

        assert_int_equal(mkdir(outside, 0700), 0);
        assert_int_equal(symlink(outside, in(f, "out")), 0);
        put(f, "a/b/c", "x");
        assert_int_equal(tree_remove(&f->op, f->root, NULL), 0);
        assert_int_equal(access(f->root, F_OK), -1);
        assert_int_equal(access(outside, F_OK), 0);
        assert_int_equal(tree_remove(&f->op, f->root, NULL), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names_and_versions),
                TEST(test_where_the_manifest_is),
                TEST(test_json_manifest_and_worker),
                TEST(test_modules),
                TEST(test_hostile_modules),
                TEST(test_checksum),
                TEST(test_remove),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
