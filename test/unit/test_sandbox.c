#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/launch.h"
#include "box/sandbox.h"
#include "codec/frame.h"

#define ID   "11111111-2222-4333-8444-555555555555"
#define EXEC "11111111-2222-4333-8444-666666666666"

static struct sandbox_spec plain(void)
{
        return (struct sandbox_spec){ .first_id = 1900000000, .n_ids = 65536 };
}

/* The encoding */

static struct sandbox_spec full(void)
{
        return (struct sandbox_spec){
                .first_id = 2000000,
                .n_ids = 4096,
                .output_dir = "/out",
                .base = { "/top", "/bottom" },
                .n_base = 2,
                .own_users = true,
                .user_id = 33,
                .group_id = 34,
                .working_dir = "/srv",
                .layers = { { "/one", 0, SANDBOX_LAYER_PLACE },
                            { "/two", 77777, SANDBOX_LAYER_UPPER } },
                .n_layers = 2,
                .storage = SANDBOX_STORE_DIR,
                .storage_path = "/store",
                .workspace = SANDBOX_WORK_OVERLAY,
                .workspace_dir = "/work",
                .workspace_path = "/home/agent/work",
                .network = SANDBOX_NET_TUNNEL,
                .nested_sandbox = true,
                .root_inside = true,
                .hostname = "host-1",
                .limits = { 1, 2, 3, 4, 5, 6, 7 },
        };
}

static void test_a_spec_comes_back(void **state)
{
        CLEAN(buf_done) struct buf one = BUF_INIT, two = BUF_INIT;
        CLEAN(cleanup_free) char *store = NULL;
        struct sandbox_spec s = full(), got;

        (void)state;
        sandbox_spec_encode(&s, &one);
        assert_int_equal(sandbox_spec_decode(one.data, one.len, &got, &store, NULL), 0);
        assert_string_equal(got.layers[1].path, "/two");
        assert_int_equal(got.layers[1].first_id, 77777);
        assert_int_equal(got.layers[0].form, SANDBOX_LAYER_PLACE);
        assert_string_equal(got.base[1], "/bottom");
        assert_string_equal(got.working_dir, "/srv");
        assert_int_equal(sandbox_group_id(&got), 34);
        assert_string_equal(got.workspace_path, "/home/agent/work");
        assert_memory_equal(&got.limits, &s.limits, sizeof(s.limits));
        assert_true(got.nested_sandbox && got.root_inside);
        sandbox_spec_encode(&got, &two);
        assert_int_equal(one.len, two.len);
        assert_memory_equal(one.data, two.data, one.len);
}

static void test_every_shorter_spec_is_refused(void **state)
{
        CLEAN(buf_done) struct buf one = BUF_INIT;
        struct sandbox_spec s = full(), got;

        (void)state;
        sandbox_spec_encode(&s, &one);
        for (size_t len = 0; len < one.len; len++) {
                CLEAN(cleanup_free) char *store = NULL;

                assert_true(sandbox_spec_decode(one.data, len, &got, &store, NULL) < 0);
        }
}

static void refuse(const struct sandbox_spec *s, const char *why)
{
        struct err err = { 0 };

        assert_int_equal(sandbox_spec_check(s, &err), ERR_UNPROCESSABLE);
        if (!strstr(err.msg, why))
                fail_msg("'%s' does not say '%s'", err.msg, why);
}

static void test_what_cannot_be(void **state)
{
        static const char *const taken[] = { "/proc",     "/dev/x", "/etc/a",  "/usr",   "/",
                                             "/a/../etc", "/a//b",  "/./proc", "/a/./b", "/x/.." };
        struct sandbox_spec s = plain();

        (void)state;
        assert_int_equal(sandbox_spec_check(&s, NULL), 0);
        for (size_t i = 0; i < ARRAY_LEN(taken); i++) {
                s.workspace_path = taken[i];
                assert_int_equal(sandbox_spec_check(&s, NULL), ERR_UNPROCESSABLE);
        }
        s.workspace_path = "/process";
        assert_int_equal(sandbox_spec_check(&s, NULL), 0);
        s = plain();
        s.first_id = 0;
        refuse(&s, "cannot be given");
        s.first_id = UINT32_MAX - 100;
        refuse(&s, "cannot be given");
        s = plain();
        s.n_ids = SANDBOX_MIN_IDS - 1;
        refuse(&s, "at least");
        s = plain();
        s.root_inside = true;
        refuse(&s, "rootfs");
        s = plain();
        s.hostname = "a.b";
        refuse(&s, "hostname");
        s = plain();
        s.storage_path = "relative";
        refuse(&s, "absolute");
        s = plain();
        s.n_layers = SANDBOX_MAX_LAYERS + 1;
        refuse(&s, "layers");
        s = plain();
        s.working_dir = "/../x";
        refuse(&s, "working directory '/../x' must be plain");
        s = plain();
        s.n_base = SANDBOX_MAX_BASE + 1;
        refuse(&s, "layers in an image");
        s = plain();
        s.user_id = s.n_ids - 1;
        refuse(&s, "cannot be user 65535");
}

static void test_a_report_comes_back(void **state)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct sandbox_report got, r = { .memory = SANDBOX_BY_CGROUP1,
                                         .freeze = SANDBOX_BY_SIGNALS,
                                         .namespaces = "user mnt",
                                         .cgroup = "/sys/fs/cgroup/a b",
                                         .root_id = 1,
                                         .agent_id = 2,
                                         .supervisor_id = 3,
                                         .exec_kill_method = 1,
                                         .seccomp = true };

        (void)state;
        buf_puts(&text, "ready 77 2\nunknown words here\n");
        sandbox_report_encode(&r, &text);
        sandbox_report_decode(buf_str(&text), &got);
        assert_int_equal(got.pid, 77);
        assert_int_equal(got.kill_method, 2);
        assert_int_equal(got.memory, SANDBOX_BY_CGROUP1);
        assert_int_equal(got.freeze, SANDBOX_BY_SIGNALS);
        assert_int_equal(got.cpu, SANDBOX_BY_NOTHING);
        assert_string_equal(got.namespaces, "user mnt");
        assert_string_equal(got.cgroup, "/sys/fs/cgroup/a b");
        assert_int_equal(got.supervisor_id, 3);
        assert_true(got.seccomp && !got.rootless);
}

/* Real ones */

struct world {
        struct op op;
        char base[64], dir[128];
        const char *program;
        struct sandbox_report report;
};

static bool ready_for_real(void)
{
        return getenv("BERTH_BOX_BIN") && geteuid() == 0;
}

static void world_init(struct world *w, const struct sandbox_spec *spec)
{
        struct err err = { 0 };

        *w = (struct world){ .op = { .deadline_ms = OP_NO_DEADLINE },
                             .base = "/tmp/test-sandbox-XXXXXX",
                             .program = getenv("BERTH_BOX_BIN") };
        assert_non_null(mkdtemp(w->base));
        snprintf(w->dir, sizeof(w->dir), "%s/box", w->base);
        if (sandbox_launch(&w->op, w->program, w->dir, ID, spec, &w->report, &err) < 0)
                fail_msg("%s", err.msg);
        assert_true(box_is_alive(w->dir));
}

/* Gone, or dead and only not reaped by the machine's init yet. */
static bool is_dead(int pid)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char path[32];

        snprintf(path, sizeof(path), "/proc/%d/stat", pid);
        return file_read_at(AT_FDCWD, path, 4096, &text, NULL) < 0 ||
               strstr(buf_str(&text), ") Z ") || strstr(buf_str(&text), ") X ");
}

/* Bury, twice: nothing is left, and the second time is fine too. */
static void world_done(struct world *w)
{
        static const char *const none[] = { NULL };
        struct err err = { 0 };

        for (int i = 0; i < 2; i++)
                if (box_bury(&w->op, w->dir, ID, none, &err) < 0)
                        fail_msg("%s", err.msg);
        assert_int_not_equal(access(w->dir, F_OK), 0);
        assert_true(is_dead(w->report.pid));
        if (w->report.cgroup[0])
                assert_int_not_equal(access(w->report.cgroup, F_OK), 0);
        assert_int_equal(rmdir(w->base), 0);
}

/* One command that counts in a file of the workspace, by the bare protocol. */
static int start_counter(const struct world *w)
{
        static const char script[] = "i=0; while :; do i=$((i+1)); echo $i > /workspace/n; done";
        CLEAN(buf_done) struct buf b = BUF_INIT;
        uint8_t id[FRAME_UUID];
        struct frame_out o;
        char answer[4096];
        int fd;

        assert_true(frame_uuid_bytes(EXEC, id));
        assert_int_equal(box_connect(w->dir, &fd, NULL), 0);
        frame_begin(&o, &b, FRAME_HELLO, 0);
        frame_put_blob(&o, "BRTH", 4);
        frame_put_u16(&o, 1);
        frame_put_u16(&o, 1);
        frame_put_uuid(&o, id);
        frame_put_u64(&o, 1);
        frame_end(&o);
        frame_begin(&o, &b, FRAME_START, 1);
        frame_put_uuid(&o, id);
        frame_put_u32(&o, 0);
        frame_put_u64(&o, 0);
        frame_put_u32(&o, 0);
        frame_put_u16(&o, 0);
        frame_put_u16(&o, 0);
        frame_put_str(&o, "", 0);
        frame_put_str(&o, "", 0);
        frame_put_str(&o, "/bin/sh", 7);
        frame_put_u32(&o, 2);
        frame_put_str(&o, "-c", 2);
        frame_put_str(&o, script, strlen(script));
        frame_put_u32(&o, 0);
        frame_end(&o);
        assert_int_equal(write(fd, b.data, b.len), (ssize_t)b.len);
        struct pollfd p = { .fd = fd, .events = POLLIN };

        /* WELCOME, then STARTED. */
        for (size_t len = 0; len < 2 * FRAME_HEADER + 47;) {
                ssize_t n;

                assert_int_equal(poll(&p, 1, 20000), 1);
                n = read(fd, answer, sizeof(answer));
                assert_true(n > 0);
                len += (size_t)n;
        }
        return fd;
}

static long count(const char *folder)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char path[128];

        snprintf(path, sizeof(path), "%s/n", folder);
        (void)file_read_at(AT_FDCWD, path, 64, &text, NULL);
        return strtol(buf_str(&text), NULL, 10);
}

static void wait_until_counting(const char *folder)
{
        long before = count(folder);

        for (int i = 0; i < 4000; i++) {
                if (count(folder) > before + 1)
                        return;
                (void)poll(NULL, 0, 5);
        }
        fail_msg("it does not count");
}

/* Frozen means that not one more step is taken, so two looks with time between them are the same.
 * A file may be empty at the moment of freezing, and is then empty both times. */
static void freeze_and_thaw(const char *work, struct world *w)
{
        struct err err = { 0 };
        long at;

        wait_until_counting(work);
        for (int i = 0; i < 2; i++) { /* again is fine */
                if (sandbox_freeze(&w->op, w->dir, ID, &err) < 0)
                        fail_msg("%s", err.msg);
        }
        at = count(work);
        (void)poll(NULL, 0, 30);
        assert_int_equal(count(work), at);
        assert_int_equal(sandbox_thaw(&w->op, w->dir, ID, &err), 0);
        wait_until_counting(work);
        /* And it is buried as it is, frozen. */
        assert_int_equal(sandbox_freeze(&w->op, w->dir, ID, &err), 0);
}

static void run_frozen(const char *how)
{
        char work[] = "/tmp/test-sandbox-work-XXXXXX", path[160], note[96];
        struct sandbox_spec s = plain();
        struct world w;
        int fd;

        assert_non_null(mkdtemp(work));
        s.workspace = SANDBOX_WORK_BIND;
        s.workspace_dir = work;
        world_init(&w, &s);
        if (streq(how, "signals")) { /* as where there is no cgroup */
                snprintf(path, sizeof(path), "%s/cgroup", w.dir);
                snprintf(note, sizeof(note), "%s/note", w.base);
                assert_int_equal(rename(path, note), 0);
        }
        fd = start_counter(&w);
        freeze_and_thaw(work, &w);
        close(fd);
        if (streq(how, "signals"))
                assert_int_equal(rename(note, path), 0);
        world_done(&w);
        snprintf(path, sizeof(path), "%s/n", work);
        assert_int_equal(unlink(path), 0);
        assert_int_equal(rmdir(work), 0);
}

static void test_freezing_by_cgroup(void **state)
{
        (void)state;
        if (!ready_for_real())
                skip();
        run_frozen("cgroup");
}

static void test_freezing_by_signals(void **state)
{
        (void)state;
        if (!ready_for_real())
                skip();
        run_frozen("signals");
}

static void test_burying_what_was_killed(void **state)
{
        struct sandbox_spec s = plain();
        struct world w;

        (void)state;
        if (!ready_for_real())
                skip();
        s.limits.memory_bytes = (uint64_t)1 << 30;
        s.limits.processes = 100;
        world_init(&w, &s);
        assert_int_equal(kill(w.report.pid, SIGKILL), 0);
        world_done(&w);
}

/* The first cgroup that a sandbox noted gets others in it, deeper than anybody needs. */
static void test_burying_deep_cgroups(void **state)
{
        struct sandbox_spec s = plain();
        char path[8192], first[4096];
        struct world w;
        FILE *note;

        (void)state;
        if (!ready_for_real())
                skip();
        s.limits.memory_bytes = (uint64_t)1 << 30;
        world_init(&w, &s);
        snprintf(path, sizeof(path), "%s/cgroup", w.dir);
        note = fopen(path, "re");
        assert_non_null(note);
        assert_non_null(fgets(first, sizeof(first), note));
        fclose(note);
        first[strcspn(first, "\n")] = '\0';
        snprintf(path, sizeof(path), "%s", first);
        for (int i = 0; i < 12; i++) {
                strncat(path, "/deeper", sizeof(path) - strlen(path) - 1);
                assert_int_equal(mkdir(path, 0755), 0);
        }
        world_done(&w);
        assert_int_equal(access(first, F_OK), -1);
}

static void test_one_that_lives_there_already(void **state)
{
        struct sandbox_spec s = plain();
        struct err err = { 0 };
        struct world w;

        (void)state;
        if (!ready_for_real())
                skip();
        world_init(&w, &s);
        assert_int_equal(sandbox_launch(&w.op, w.program, w.dir, ID, &s, NULL, &err), ERR_LOCKED);
        assert_int_equal(sandbox_freeze(&w.op, "/tmp/nowhere", ID, &err), ERR_NOT_FOUND);
        world_done(&w);
}

static void test_the_reason_is_told(void **state)
{
        struct world w = { .op = { .deadline_ms = OP_NO_DEADLINE } };
        struct sandbox_spec s = plain();
        struct err err = { 0 };

        (void)state;
        if (!ready_for_real())
                skip();
        s.base[0] = "/nonexistent";
        s.n_base = 1;
        assert_int_equal(sandbox_launch(&w.op, getenv("BERTH_BOX_BIN"), "/tmp/test-sandbox-no", ID,
                                        &s, NULL, &err),
                         ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "rootfs /nonexistent"));
        static const char *const none[] = { NULL };

        assert_int_equal(box_bury(&w.op, "/tmp/test-sandbox-no", ID, none, &err), 0);
}

static void test_checks_of_the_machine(void **state)
{
        struct sandbox_check checks[SANDBOX_MAX_CHECKS];
        struct op op = { .deadline_ms = OP_NO_DEADLINE };
        struct err err = { 0 };
        size_t n = 0;

        (void)state;
        if (!ready_for_real())
                skip();
        if (sandbox_checks(&op, getenv("BERTH_BOX_BIN"), 1900000000, 65536, checks, &n, &err) < 0)
                fail_msg("%s", err.msg);
        assert_true(n >= 8);
        assert_string_equal(checks[0].name, "kernel");
        for (size_t i = 0; i < n; i++)
                assert_true(checks[i].ok == !checks[i].fix[0] && checks[i].found[0]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_a_spec_comes_back),
                cmocka_unit_test(test_every_shorter_spec_is_refused),
                cmocka_unit_test(test_what_cannot_be),
                cmocka_unit_test(test_a_report_comes_back),
                cmocka_unit_test(test_freezing_by_cgroup),
                cmocka_unit_test(test_freezing_by_signals),
                cmocka_unit_test(test_burying_what_was_killed),
                cmocka_unit_test(test_burying_deep_cgroups),
                cmocka_unit_test(test_one_that_lives_there_already),
                cmocka_unit_test(test_the_reason_is_told),
                cmocka_unit_test(test_checks_of_the_machine),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
