/* Files through a plugin: by its own verbs, and by plain commands. The worker is a real process,
 * test/workers/runner.py, whose sandboxes are directories. */
#define _GNU_SOURCE
#include "runtime.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"
#include "core/kinds/plugin/plugin_capabilities.h"
#include "core/kinds/plugin/plugin_sync.h"
#include "core/kinds/plugin/plugin_transfer.h"
#include "core/plugins/plugin_registry.h"
#include "plugin/env.h"

#define ID "11111111-1111-4111-8111-111111111111"

static struct {
        struct test_runtime *base;
        struct op *op;
        struct runtime *rt;
        char plugins[SCRATCH_PATH_MAX];
        json_t *driver;
        struct lease row;
        struct plugin_lease lease;
        const char *there; /* the sandbox's directory */
        json_t *said;      /* what the provider answered to acquire */
} t;

static const char *print(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static const char *print(const char *fmt, ...)
{
        char *text;
        va_list ap;
        const char *kept;

        va_start(ap, fmt);
        assert_true(vasprintf(&text, fmt, ap) >= 0);
        va_end(ap);
        kept = arena_strdup(t.op->arena, text);
        free(text);
        return kept;
}

static const char *private_dir(void)
{
        return print("%s/private/" ID, t.plugins);
}

static void start_worker(void)
{
        json_t *manifest = json_pack("{s:s, s:i}", "id", "acme.runner", "apiVersion", 1);
        struct plugin_env_spec env = { .plugin_id = ID, .plugin_key = "acme.runner" };
        CLEAN(err_done) struct err err = { 0 };
        char root[4096];
        struct worker_spec spec = {
                .plugin_id = ID,
                .plugin_key = "acme.runner",
                .entry = RUNNER_WORKER,
                .root = realpath(RUNNER_WORKER "/..", root) ? root : "/",
                .manifest = manifest,
                .env = plugin_env(&env, t.op->arena),
                .private_dir = private_dir(),
        };

        if (plugin_host_start(t.op, plugin_registry_host(t.rt->plugins), &spec, &err) < 0)
                fail_msg("%s", err.msg);
        json_decref(manifest);
}

static void take_lease(void)
{
        struct plugin_call call = {
                .plugin_id = ID,
                .method = "environmentAcquireLease",
                .params = json_pack("{s:s}", "runId", "r"),
        };

        assert_int_equal(
                plugin_call(t.op, plugin_registry_host(t.rt->plugins), &call, &t.said, NULL), 0);
        json_decref((json_t *)call.params);
        t.row = (struct lease){ .id = ID,
                                .policy = "ephemeral",
                                .provider_lease_id = json_get_string(t.said, "providerLeaseId") };
        t.driver = json_pack("{s:{s:b}}", "sandboxCapabilities", "nativeSyncIn", 1);
        t.lease = (struct plugin_lease){
                .lease = &t.row,
                .target = { .plugin_id = ID,
                            .plugin_key = "acme.runner",
                            .driver_key = "acme",
                            .driver = t.driver,
                            .is_sandbox = true },
                .scope = { .company_id = TEST_COMPANY, .environment_id = ID },
                .config = json_object(),
                .metadata = json_get_object(t.said, "metadata"),
        };
        json_object_set_new(t.lease.metadata, "pluginId", json_string(ID));
        t.there = json_get_string(t.lease.metadata, "remoteCwd");
}

static int setup(void **state)
{
        struct plugin_registry_config config;

        memset(&t, 0, sizeof(t));
        t.base = test_runtime_new(NULL);
        t.op = &t.base->op;
        t.rt = &t.base->rt;
        snprintf(t.plugins, sizeof(t.plugins), "%.*s/plugins", (int)sizeof(t.plugins) - 16,
                 t.base->dir);
        t.rt->settings.plugin_dir = t.plugins;
        t.rt->data_dir = t.base->dir;
        config = (struct plugin_registry_config){ .rt = t.rt };
        assert_int_equal(plugin_registry_new(&config, &t.rt->plugins, NULL), 0);
        assert_int_equal(plugin_registry_recover(t.op, t.rt->plugins, NULL), 0);
        start_worker();
        take_lease();
        return 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
        return remove(path);
}

static int teardown(void **state)
{
        (void)plugin_host_stop_all(t.op, plugin_registry_host(t.rt->plugins), NULL);
        plugin_registry_free(t.rt->plugins);
        json_decref(t.lease.config);
        json_decref(t.driver);
        json_decref(t.said);
        (void)nftw(t.plugins, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        test_runtime_free(t.base);
        return 0;
}

static void write_at(const struct plugin_sync *sync, const char *here, const char *text)
{
        CLEAN(cleanup_fd) int fd = -1;

        assert_int_equal(plugin_sync_open(sync, here, O_WRONLY | O_CREAT, &fd, NULL), 0);
        assert_int_equal(fd_write_all(fd, text, strlen(text), NULL), 0);
}

static void write_file(const char *path, const char *text)
{
        assert_int_equal(file_write_at(AT_FDCWD, path, text, strlen(text), 0600, NULL), 0);
}

static void assert_text(int fd, const char *text)
{
        char got[256] = "";

        assert_true(fd >= 0 && read(fd, got, sizeof(got) - 1) >= 0);
        assert_string_equal(got, text);
}

static void assert_file(const char *path, const char *text)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY);

        assert_text(fd, text);
}

/* The last call that the worker got. The document lives in the operation's arena. */
static void unref(void *v)
{
        json_decref(v);
}

static json_t *last_call(void)
{
        CLEAN(buf_done) struct buf calls = BUF_INIT;
        json_t *call = NULL;
        char *line;

        assert_int_equal(
                file_read_at(AT_FDCWD, print("%s/calls", private_dir()), 1 << 24, &calls, NULL), 0);
        calls.data[--calls.len] = '\0';
        line = strrchr(calls.data, '\n');
        assert_int_equal(json_parse(line ? line + 1 : calls.data,
                                    strlen(line ? line + 1 : calls.data), &call, NULL),
                         0);
        arena_defer(t.op->arena, unref, call);
        return call;
}

static void behave(const char *json)
{
        write_file(print("%s/behave", private_dir()), json);
}

/* -- In and out -- */

static void test_in(void **state)
{
        const char *const excludes[] = { "skip*", NULL };
        struct plugin_sync_file files[] = {
                { .here = "one",
                  .there = print("%s/sub/one", t.there),
                  .has_mode = true,
                  .mode = 0640 },
                { .here = "tree",
                  .there = print("%s/tree", t.there),
                  .is_directory = true,
                  .exclude = excludes },
        };
        struct plugin_sync_command commands[] = {
                { .command = "cat a > copy", .cwd = print("%s/tree", t.there), .timeout_ms = 5000 },
                { .command = "echo 'it ran' >> copy", .cwd = print("%s/tree", t.there) },
        };
        struct plugin_sync_operation operations[] = {
                { .files = files, .n_files = 1 },
                { .files = files + 1, .n_files = 1, .commands = commands, .n_commands = 2 },
        };
        CLEAN(err_done) struct err err = { 0 };
        struct plugin_sync sync;
        struct stat st;
        json_t *sent;

        assert_true(plugin_sync_is_native(t.rt, &t.lease));
        assert_int_equal(plugin_sync_begin(t.op, t.rt, &t.lease, &sync, NULL), 0);
        write_at(&sync, "one", "first");
        write_at(&sync, "tree/a", "a\n");
        write_at(&sync, "tree/deep/er/b", "bb");
        write_at(&sync, "tree/skipped", "no");
        if (plugin_sync_in(t.op, t.rt, &sync, t.there, operations, 2, &err) < 0)
                fail_msg("%s", err.msg);
        assert_int_equal(operations[0].files_transferred, 1);
        assert_int_equal(operations[0].bytes_transferred, 5);
        assert_int_equal(operations[1].files_transferred, 2);
        assert_int_equal(operations[1].bytes_transferred, 4);
        assert_file(files[0].there, "first");
        assert_true(stat(files[0].there, &st) == 0 && (st.st_mode & 0777) == 0640);
        assert_file(print("%s/tree/copy", t.there), "a\nit ran\n");
        assert_file(print("%s/tree/deep/er/b", t.there), "bb");
        assert_true(access(print("%s/tree/skipped", t.there), F_OK) < 0);

        sent = json_object_get(json_object_get(last_call(), "params"), "operations");
        assert_string_equal(json_get_string(json_array_get(sent, 0), "operationId"), "sync-op-1");
        assert_string_equal(json_get_string(json_array_get(sent, 1), "operationId"), "sync-op-2");
        assert_null(json_object_get(json_array_get(sent, 0), "postUploadCommands"));
        plugin_sync_end(t.op, &sync);
        assert_true(access(sync.path, F_OK) < 0);
}

static void test_out(void **state)
{
        struct plugin_sync_file files[] = {
                { .here = "one", .there = print("%s/one", t.there) },
                { .here = "tree", .there = print("%s/tree", t.there), .is_directory = true },
        };
        struct plugin_sync_operation operation = { .files = files, .n_files = 2 };
        CLEAN(cleanup_fd) int one = -1, inner = -1;
        struct plugin_sync sync;

        write_file(files[0].there, "result");
        assert_int_equal(path_make_dirs(print("%s/tree/x", t.there), 0700, NULL), 0);
        write_file(print("%s/tree/x/y", t.there), "inner");
        assert_int_equal(plugin_sync_begin(t.op, t.rt, &t.lease, &sync, NULL), 0);
        assert_int_equal(plugin_sync_out(t.op, t.rt, &sync, t.there, &operation, 1, NULL), 0);
        assert_int_equal(operation.files_transferred, 2);
        assert_int_equal(plugin_sync_open(&sync, "one", O_RDONLY, &one, NULL), 0);
        assert_text(one, "result");
        assert_int_equal(plugin_sync_open(&sync, "tree/x/y", O_RDONLY, &inner, NULL), 0);
        assert_text(inner, "inner");
        plugin_sync_end(t.op, &sync);
}

/* What lands here is the worker's doing. */
static void test_links_are_not_followed(void **state)
{
        struct plugin_sync sync;
        int fd = -1;

        write_file(print("%s/secret", t.base->dir), "secret");
        assert_int_equal(plugin_sync_begin(t.op, t.rt, &t.lease, &sync, NULL), 0);
        assert_int_equal(symlinkat(print("%s/secret", t.base->dir), sync.fd, "link"), 0);
        assert_int_equal(symlinkat(t.base->dir, sync.fd, "dir"), 0);
        assert_int_equal(symlinkat("..", sync.fd, "up"), 0);
        write_at(&sync, "file", "x");
        assert_int_equal(symlinkat("file", sync.fd, "inside"), 0);
        assert_int_equal(mkfifoat(sync.fd, "fifo", 0600), 0);
        assert_int_equal(mkdirat(sync.fd, "real", 0700), 0);
        assert_int_equal(plugin_sync_open(&sync, "link", O_RDONLY, &fd, NULL), ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "inside", O_RDONLY, &fd, NULL), ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "dir/secret", O_RDONLY, &fd, NULL), ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "up/calls", O_RDONLY, &fd, NULL), ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "../calls", O_RDONLY, &fd, NULL), ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "/etc/passwd", O_RDONLY, &fd, NULL),
                         ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "fifo", O_RDONLY, &fd, NULL), ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "real", O_RDONLY, &fd, NULL), ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "none", O_RDONLY, &fd, NULL), ERR_NOT_FOUND);
        /* nor written through, and what is there already is not taken for ours */
        assert_true(plugin_sync_open(&sync, "file", O_WRONLY | O_CREAT, &fd, NULL) < 0);
        assert_true(plugin_sync_open(&sync, "link", O_WRONLY | O_CREAT, &fd, NULL) < 0);
        assert_int_equal(plugin_sync_open(&sync, "dir/new", O_WRONLY | O_CREAT, &fd, NULL),
                         ERR_FORBIDDEN);
        assert_int_equal(plugin_sync_open(&sync, "dir/a/b/new", O_WRONLY | O_CREAT, &fd, NULL),
                         ERR_FORBIDDEN);
        assert_true(access(print("%s/new", t.base->dir), F_OK) < 0);
        assert_true(access(print("%s/a", t.base->dir), F_OK) < 0);
        assert_file(print("%s/secret", t.base->dir), "secret");
        /* and removing them removes the links */
        plugin_sync_end(t.op, &sync);
        assert_file(print("%s/secret", t.base->dir), "secret");
        assert_int_equal(unlink(print("%s/secret", t.base->dir)), 0);
        assert_int_equal(fd, -1);
}

/* -- Refusals -- */

static void refuse(struct plugin_sync_file file, const struct plugin_sync_command *command, bool in,
                   const char *text)
{
        struct plugin_sync_operation operation = {
                .files = &file, .n_files = 1, .commands = command, .n_commands = command ? 1 : 0
        };
        CLEAN(err_done) struct err err = { 0 };
        struct plugin_sync sync;

        assert_int_equal(plugin_sync_begin(t.op, t.rt, &t.lease, &sync, NULL), 0);
        assert_int_equal((in ? plugin_sync_in : plugin_sync_out)(t.op, t.rt, &sync, t.there,
                                                                 &operation, 1, &err),
                         ERR_INVALID);
        assert_true(strncmp(err.msg, text, strlen(text)) == 0);
        assert_string_equal(json_get_string(last_call(), "method"), "environmentAcquireLease");
        plugin_sync_end(t.op, &sync);
}

static void test_confinement(void **state)
{
        const char *fine = print("%s/x", t.there);
        struct plugin_sync_command command = { .command = "true" };
        struct plugin_sync_file dir = { .here = ".",
                                        .there = print("%s/d", t.there),
                                        .is_directory = true };

        refuse((struct plugin_sync_file){ .here = "../calls", .there = fine }, NULL, true,
               "sync operation source path is not a confined absolute path: ");
        refuse((struct plugin_sync_file){ .here = "/etc/passwd", .there = fine }, NULL, true,
               "sync operation source path escapes its confinement root: /etc/passwd");
        refuse((struct plugin_sync_file){ .here = "a/..", .there = fine }, NULL, false,
               "sync operation target path is not a confined absolute path: ");
        refuse((struct plugin_sync_file){ .here = "/tmp/x", .there = fine }, NULL, false,
               "sync operation target path escapes its confinement root: /tmp/x");
        refuse((struct plugin_sync_file){ .here = "x", .there = "relative" }, NULL, true,
               "sync operation target path is not a confined absolute path: relative");
        refuse((struct plugin_sync_file){ .here = "x", .there = print("%s/../y", t.there) }, NULL,
               true, "sync operation target path is not a confined absolute path: ");
        refuse((struct plugin_sync_file){ .here = "x", .there = "/etc/cron.d/x" }, NULL, true,
               "sync operation target path escapes its confinement root: /etc/cron.d/x");
        refuse((struct plugin_sync_file){ .here = "x", .there = print("%sx/y", t.there) }, NULL,
               true, "sync operation target path escapes its confinement root: ");
        refuse((struct plugin_sync_file){ .here = "x", .there = "/etc/shadow" }, NULL, false,
               "sync operation source path escapes its confinement root: /etc/shadow");
        command.cwd = "here";
        refuse(dir, &command, true,
               "post-upload command cwd is not a confined absolute path: here");
        command.cwd = print("%s/d/../..", t.there);
        refuse(dir, &command, true, "post-upload command cwd is not a confined absolute path: ");
        command.cwd = t.there;
        refuse(dir, &command, true, "post-upload command cwd escapes its confinement root: ");
}

static void test_answers(void **state)
{
        static const char *const bad[] = {
                "null",
                "7",
                "{}",
                "{\"operations\":[]}",
                "{\"operations\":[7]}",
                "{\"operations\":[{\"operationId\":\"sync-op-1\"}]}",
                "{\"operations\":[{\"operationId\":\"sync-op-2\",\"filesTransferred\":1,"
                "\"bytesTransferred\":1}]}",
                "{\"operations\":[{\"operationId\":\"sync-op-1\",\"filesTransferred\":-1,"
                "\"bytesTransferred\":1}]}",
                "{\"operations\":[{\"operationId\":\"sync-op-1\",\"filesTransferred\":1,"
                "\"bytesTransferred\":\"1\"}]}",
        };
        struct plugin_sync_file file = { .here = "x", .there = print("%s/x", t.there) };
        struct plugin_sync_operation operation = { .files = &file, .n_files = 1 };
        CLEAN(err_done) struct err err = { 0 };
        struct plugin_sync sync;

        assert_int_equal(plugin_sync_begin(t.op, t.rt, &t.lease, &sync, NULL), 0);
        write_at(&sync, "x", "x");
        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                behave(print("{\"environmentSyncIn\":{\"result\":%s}}", bad[i]));
                assert_int_equal(plugin_sync_in(t.op, t.rt, &sync, t.there, &operation, 1, &err),
                                 ERR_PROVIDER);
                assert_non_null(strstr(err.msg, "no result of a sync"));
        }
        behave("{}");
        file.here = "not-there";
        assert_int_equal(plugin_sync_in(t.op, t.rt, &sync, t.there, &operation, 1, &err),
                         ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "No such file"));
        plugin_sync_end(t.op, &sync);
}

static void test_leftovers(void **state)
{
        const char *mine = print("%s/keep", private_dir());
        struct plugin_sync sync;

        assert_int_equal(plugin_sync_begin(t.op, t.rt, &t.lease, &sync, NULL), 0);
        write_at(&sync, "deep/x", "x");
        write_file(mine, "keep");
        plugin_registry_remove_syncs(t.op, plugin_registry_private_dir(t.rt->plugins));
        assert_true(access(sync.path, F_OK) < 0);
        assert_file(mine, "keep");
        plugin_sync_end(t.op, &sync);
}

/* -- Capabilities -- */

static bool in_list(void *ctx, const char *method)
{
        return strstr(ctx, method) != NULL;
}

/* What is effective, as the letters of the table's order. */
static const char *effective(const char *methods, const char *driver_json, const char *policy,
                             const char *metadata_json, bool resolved, bool same)
{
        json_t *driver = json_loads(driver_json, 0, NULL);
        json_t *metadata = json_loads(metadata_json, 0, NULL);
        struct plugin_capabilities c =
                plugin_capabilities_effective(&(struct plugin_capability_facts){
                        .supports = in_list,
                        .ctx = (void *)methods,
                        .driver = driver,
                        .lease_policy = policy,
                        .lease_metadata = metadata,
                        .config_is_resolved = resolved,
                        .is_same_plugin = same,
                });
        char letters[N_CAPABILITIES + 1] = "";

        for (int i = 0; i < N_CAPABILITIES; i++)
                letters[i] = c.has[i] ? "riopxncd"[i] : '-';
        letters[N_CAPABILITIES] = '\0';
        json_decref(driver);
        json_decref(metadata);
        return print("%s", letters);
}

#define ALL                                                                                         \
        "environmentResumeLease environmentReleaseLease environmentDestroyLease environmentSyncIn " \
        "environmentSyncOut environmentExecute duplexChannelOpen"
#define REUSE "reuse_by_environment"
#define YES                                                                                        \
        "{\"sandboxCapabilities\":{\"reusableLeases\":true,\"incrementalSessionOutput\":true,"     \
        "\"concurrentSyncOperations\":true,\"duplexCommandStream\":true}}"

static void test_capabilities(void **state)
{
        /* silence of the manifest: yes for some, no for those that have to be declared */
        assert_string_equal(effective(ALL, "{}", REUSE, "{}", true, true), "-iopx---");
        assert_string_equal(effective(ALL, YES, REUSE, "{}", true, true), "riopxncd");
        assert_string_equal(effective("environmentExecute", YES, REUSE, "{}", true, true),
                            "---pxn--");
        assert_string_equal(
                effective("environmentSyncIn environmentExecute", YES, REUSE, "{}", true, true),
                "-i-pxn--");
        assert_string_equal(effective("", YES, REUSE, "{}", true, true), "--------");
        /* declared as missing */
        assert_string_equal(
                effective(ALL,
                          "{\"sandboxCapabilities\":{\"nativeSyncIn\":false,"
                          "\"nativeSyncOut\":false,\"independentControlCommands\":false}}",
                          REUSE, "{}", true, true),
                "---p----");
        /* the older way to declare reuse, and the newer one wins */
        assert_string_equal(
                effective(ALL, "{\"supportsReusableLeases\":true}", REUSE, "{}", true, true),
                "riopx---");
        assert_string_equal(effective(ALL,
                                      "{\"supportsReusableLeases\":true,"
                                      "\"sandboxCapabilities\":{\"reusableLeases\":false}}",
                                      REUSE, "{}", true, true),
                            "-iopx---");
        /* narrowed by the lease */
        assert_string_equal(effective(ALL, YES, "ephemeral", "{}", true, true), "-iopxncd");
        assert_string_equal(effective(ALL, YES, NULL, "{}", true, true), "-iopxncd");
        assert_string_equal(effective(ALL, YES, REUSE, "{\"backend\":\"job\"}", true, true),
                            "r--pxn-d");
        assert_string_equal(effective(ALL, YES, REUSE, "{\"backend\":\"pod\"}", true, true),
                            "riopxncd");
        assert_string_equal(
                effective(ALL, YES, REUSE, "{\"nativeFileSyncUnsupported\":true}", true, true),
                "r--pxn-d");
        assert_string_equal(effective(ALL, YES, REUSE, "{}", false, true), "rio-x-c-");
        assert_string_equal(effective(ALL, YES, REUSE, "{}", true, false), "--------");
}

static void test_capabilities_as_json(void **state)
{
        struct plugin_capabilities c = { .has = { [CAPABILITY_NATIVE_SYNC_IN] = true } }, back;
        json_t *v = plugin_capabilities_to_json(&c);

        assert_int_equal(json_object_size(v), N_CAPABILITIES);
        back = plugin_capabilities_from_json(v);
        assert_memory_equal(&c, &back, sizeof(c));
        json_object_set_new(v, "nativeSyncIn", json_integer(1));
        json_object_del(v, "reusableLeases");
        back = plugin_capabilities_from_json(v);
        assert_false(back.has[CAPABILITY_NATIVE_SYNC_IN]);
        json_decref(v);
        back = plugin_capabilities_from_json(NULL);
        assert_false(back.has[CAPABILITY_PERSISTENT_SESSIONS]);
}

static void test_native_or_not(void **state)
{
        json_object_set_new(t.lease.metadata, "backend", json_string("job"));
        assert_false(plugin_sync_is_native(t.rt, &t.lease));
        json_object_del(t.lease.metadata, "backend");
        assert_true(plugin_sync_is_native(t.rt, &t.lease));
        json_object_set_new(t.lease.metadata, "pluginId", json_string("other"));
        assert_false(plugin_sync_is_native(t.rt, &t.lease));
        json_object_set_new(t.lease.metadata, "pluginId", json_string(ID));
        json_object_set_new(json_object_get(t.driver, "sandboxCapabilities"), "nativeSyncOut",
                            json_false());
        assert_false(plugin_sync_is_native(t.rt, &t.lease));
}

/* -- By plain commands -- */

/* remote-execution 8.3, 8.6, 8.7: no command has input, all run in /, nested directories are made
 */
static void test_by_commands(void **state)
{
        CLEAN(buf_done) struct buf calls = BUF_INIT;
        CLEAN(cleanup_fd) int in = memfd_create("in", 0), out = memfd_create("out", 0);
        const char *path = print("%s/.paperclip-runtime/codex/workspace-upload.tar", t.there);
        struct plugin_transfer plugin;
        struct exec_transfer transfer;
        uint64_t size = 0;
        char *bytes = arena_alloc(t.op->arena, 200001), *back;
        char *line, *rest;
        size_t n = 0;

        for (size_t i = 0; i < 200000; i++)
                bytes[i] = (char)(i * i >> 3);
        assert_int_equal(fd_write_all(in, bytes, 200000, NULL), 0);
        assert_true(lseek(in, 0, SEEK_SET) == 0);
        plugin_transfer_init(&plugin, t.rt, &t.lease, &transfer);
        assert_int_equal(exec_transfer_write(t.op, &transfer, path, in, 0600, NULL), 0);
        assert_int_equal(exec_transfer_run(t.op, &transfer,
                                           print("cp '%s' '%s/nested'", path, t.there), 0, NULL),
                         0);
        assert_int_equal(exec_transfer_read(t.op, &transfer, print("%s/nested", t.there), 1 << 20,
                                            out, &size, NULL),
                         0);
        assert_int_equal(size, 200000);
        back = arena_alloc(t.op->arena, 200001);
        assert_int_equal(pread(out, back, 200000, 0), 200000);
        assert_memory_equal(back, bytes, 200000);
        assert_int_equal(exec_transfer_remove(t.op, &transfer, path, NULL), 0);
        assert_true(access(path, F_OK) < 0);

        assert_int_equal(
                file_read_at(AT_FDCWD, print("%s/calls", private_dir()), 1 << 24, &calls, NULL), 0);
        for (line = strtok_r(calls.data, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
                json_t *call = NULL, *params;

                assert_int_equal(json_parse(line, strlen(line), &call, NULL), 0);
                params = json_object_get(call, "params");
                if (streq(json_get_string(call, "method"), "environmentExecute")) {
                        assert_string_equal(json_get_string(params, "cwd"), "/");
                        assert_null(json_object_get(params, "stdin"));
                        assert_string_equal(json_get_string(params, "command"), "sh");
                        n++;
                }
                json_decref(call);
        }
        assert_int_equal(n, 2 + 3 + 1 + 2 + 1);
}

static void test_commands_that_fail(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct plugin_transfer plugin;
        struct exec_transfer transfer;
        json_t *schema;

        plugin_transfer_init(&plugin, t.rt, &t.lease, &transfer);
        assert_int_equal(exec_transfer_run(t.op, &transfer, "echo no >&2; exit 5", 0, &err),
                         ERR_PROVIDER);
        assert_string_equal(err.msg, "echo no >&2; exit 5 failed with exit code 5: no");
        assert_int_equal(exec_transfer_run(t.op, &transfer, "exec sleep 1000", 50, &err),
                         ERR_PROVIDER);
        assert_string_equal(err.msg, "exec sleep 1000 failed with exit code null");
        json_object_set_new(t.lease.config, "apiKey", json_string("tok_verysecret"));
        t.lease.scope.environment_id = "unsaved"; /* whose secrets stand in clear */
        schema = json_pack("{s:{s:{s:s}}}", "properties", "apiKey", "format", "secret-ref");
        t.lease.target.schema = schema;
        assert_int_equal(exec_transfer_run(t.op, &transfer,
                                           "printf 'tok_very%s' secret >&2; exit 1", 0, &err),
                         ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "failed with exit code 1: ***REDACTED***"));
        json_decref(schema);
        t.lease.target.schema = NULL;
        behave("{\"environmentExecute\":{\"result\":{\"exitCode\":\"0\"}}}");
        assert_int_equal(exec_transfer_run(t.op, &transfer, ":", 0, &err), ERR_UNCERTAIN);
        behave("{\"environmentExecute\":{\"error\":{\"code\":-32002,\"message\":\"gone\"}}}");
        assert_int_equal(exec_transfer_run(t.op, &transfer, ":", 0, &err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "gone"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_in),
                TEST(test_out),
                TEST(test_links_are_not_followed),
                TEST(test_confinement),
                TEST(test_answers),
                TEST(test_leftovers),
                TEST(test_capabilities),
                TEST(test_capabilities_as_json),
                TEST(test_native_or_not),
                TEST(test_by_commands),
                TEST(test_commands_that_fail),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
