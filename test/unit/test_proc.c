#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "rt/proc.h"

#define HOUR_MS INT64_C(3600000)

static const char *const no_env[] = { NULL };

static struct op op_for_ever(void)
{
        return (struct op){ .deadline_ms = OP_NO_DEADLINE };
}

static struct proc spawn(struct proc_spec spec)
{
        struct proc p = PROC_INIT;
        struct err err = { 0 };

        if (proc_spawn(&spec, &p, &err) < 0)
                fail_msg("%s", err.msg);
        assert_true(p.pid > 0 && p.pidfd >= 0);
        return p;
}

/* The specification of `sh -c script`, with nothing else. */
#define SHELL(script_)                                                                             \
        {                                                                                          \
                .path = "/bin/sh", .argv = (const char *const[]){ "sh", "-c", script_, NULL },     \
                .env = no_env, .fd_in = -1, .fd_out = -1, .fd_err = -1                             \
        }

static struct proc_status wait_for(struct proc *p)
{
        struct op op = op_for_ever();
        struct proc_status status = { 99, 99 };

        assert_int_equal(proc_wait(&op, p, &status, NULL), 0);
        assert_int_equal(p->pid, -1);
        assert_int_equal(p->pidfd, -1);
        return status;
}

/* What a command writes to its standard output. */
static void output_of(struct proc_spec spec, struct buf *ret)
{
        struct proc p;
        char chunk[4096];
        ssize_t n;
        int fds[2];

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        spec.fd_out = fds[1];
        p = spawn(spec);
        close(fds[1]);
        while ((n = read(fds[0], chunk, sizeof(chunk))) > 0)
                buf_append(ret, chunk, (size_t)n);
        close(fds[0]);
        assert_int_equal(wait_for(&p).exit_code, 0);
}

static void test_exit_codes_and_signals(void **state)
{
        struct proc_spec good = SHELL("exit 0"), bad = SHELL("exit 255"),
                         dead = SHELL("kill -9 $$");
        struct proc p = spawn(good);
        struct proc_status s = wait_for(&p);

        (void)state;
        assert_int_equal(s.exit_code, 0);
        assert_int_equal(s.signal, 0);
        p = spawn(bad);
        s = wait_for(&p);
        assert_int_equal(s.exit_code, 255);
        assert_int_equal(s.signal, 0);
        p = spawn(dead);
        s = wait_for(&p);
        assert_int_equal(s.exit_code, -1);
        assert_int_equal(s.signal, SIGKILL);
}

static void test_environment_is_exactly_what_was_given(void **state)
{
        struct proc_spec spec = {
                .path = "/usr/bin/env",
                .argv = (const char *const[]){ "env", NULL },
                .env = (const char *const[]){ "ONE=1", "TWO=two words", NULL },
                .fd_in = -1,
                .fd_err = -1,
        };
        CLEAN(buf_done) struct buf out = BUF_INIT;

        (void)state;
        assert_int_equal(setenv("BERTH_TEST_SECRET", "x", 1), 0);
        output_of(spec, &out);
        assert_string_equal(buf_str(&out), "ONE=1\nTWO=two words\n");
        spec.env = no_env;
        buf_done(&out);
        output_of(spec, &out);
        assert_int_equal(out.len, 0);
        unsetenv("BERTH_TEST_SECRET");
}

/* The child's own look at its descriptors adds the one it reads the directory with. */
static void test_descriptors_do_not_leak(void **state)
{
        struct proc_spec spec = SHELL("for f in /proc/self/fd/*; do echo \"${f##*/}\"; done");
        CLEAN(buf_done) struct buf out = BUF_INIT;
        struct proc held = spawn((struct proc_spec)SHELL("exec sleep 1000"));
        int more[2];

        (void)state;
        assert_int_equal(pipe2(more, O_CLOEXEC), 0);
        output_of(spec, &out);
        assert_string_equal(buf_str(&out), "0\n1\n2\n3\n");
        close(more[0]);
        close(more[1]);
        assert_int_equal(proc_kill(&held, SIGKILL, NULL), 0);
        wait_for(&held);
}

static void test_standard_descriptors(void **state)
{
        struct proc_spec spec = SHELL("cat; readlink /proc/self/fd/2");
        CLEAN(buf_done) struct buf out = BUF_INIT;
        int fds[2];

        (void)state;
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        assert_int_equal(write(fds[1], "given\n", 6), 6);
        close(fds[1]);
        spec.fd_in = fds[0];
        spec.env = (const char *const[]){ "PATH=/usr/bin:/bin", NULL };
        output_of(spec, &out);
        assert_string_equal(buf_str(&out), "given\n/dev/null\n");
        close(fds[0]);
        /* Without one, there is nothing to read. */
        spec.fd_in = -1;
        buf_done(&out);
        output_of(spec, &out);
        assert_string_equal(buf_str(&out), "/dev/null\n");
}

static void test_both_outputs_into_one_pipe(void **state)
{
        struct proc_spec spec = SHELL("echo out; echo err >&2");
        char text[16] = "";
        struct proc p;
        int fds[2];

        (void)state;
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        spec.fd_out = spec.fd_err = fds[1];
        p = spawn(spec);
        wait_for(&p);
        assert_int_equal(read(fds[0], text, sizeof(text)), 8);
        assert_string_equal(text, "out\nerr\n");
        close(fds[0]);
        close(fds[1]);
}

static void test_directory(void **state)
{
        struct proc_spec spec = SHELL("pwd");
        CLEAN(buf_done) struct buf out = BUF_INIT;
        struct proc p = PROC_INIT;

        (void)state;
        spec.cwd = "/usr/bin";
        output_of(spec, &out);
        assert_string_equal(buf_str(&out), "/usr/bin\n");
        spec.cwd = "/nonexistent/directory";
        assert_true(proc_spawn(&spec, &p, NULL) < 0);
        assert_int_equal(p.pid, -1);
}

static void test_missing_and_forbidden_programs(void **state)
{
        struct proc_spec spec = SHELL("");
        struct proc p = PROC_INIT;
        struct err err = { 0 };

        (void)state;
        spec.path = "/nonexistent/program";
        assert_int_equal(proc_spawn(&spec, &p, &err), ERR_NOT_FOUND);
        assert_non_null(strstr(err.msg, "/nonexistent/program"));
        spec.path = "no-such-program-anywhere";
        assert_int_equal(proc_spawn(&spec, &p, &err), ERR_NOT_FOUND);
        spec.path = "/etc/passwd";
        assert_true(proc_spawn(&spec, &p, &err) < 0);
        assert_int_equal(p.pid, -1);
        assert_int_equal(p.pidfd, -1);
        /* Nothing was left to be waited for. */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_signals_are_as_new(void **state)
{
        struct proc_spec spec = SHELL("while read -r k v; do case $k in SigBlk:|SigIgn:) echo $v;; "
                                      "esac; done </proc/self/status");
        unsigned long long blocked, ignored;
        CLEAN(buf_done) struct buf out = BUF_INIT;
        sigset_t set, old;

        (void)state;
        sigemptyset(&set);
        sigaddset(&set, SIGTERM);
        sigaddset(&set, SIGUSR1);
        pthread_sigmask(SIG_BLOCK, &set, &old);
        signal(SIGPIPE, SIG_IGN);
        output_of(spec, &out);
        signal(SIGPIPE, SIG_DFL);
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        assert_int_equal(sscanf(buf_str(&out), "%llx %llx", &blocked, &ignored), 2);
        assert_int_equal(blocked, 0);
        /* glibc ignores the two that it uses itself, 32 and 33, in every child. */
        assert_int_equal(ignored & ~(3ULL << 31), 0);
}

static void test_session(void **state)
{
        struct proc_spec spec = SHELL("exec sleep 1000");
        struct proc p;

        (void)state;
        spec.env = (const char *const[]){ "PATH=/usr/bin:/bin", NULL };
        p = spawn(spec);
        assert_int_equal(getsid(p.pid), getsid(0));
        proc_kill(&p, SIGKILL, NULL);
        wait_for(&p);
        spec.new_session = true;
        p = spawn(spec);
        assert_int_equal(getsid(p.pid), p.pid);
        proc_kill(&p, SIGKILL, NULL);
        wait_for(&p);
}

static void test_kill(void **state)
{
        struct proc_spec spec = SHELL("exec sleep 1000"), ended = SHELL("exit 3");
        struct op op = op_for_ever();
        struct proc p = spawn(spec);
        struct proc_status s;

        (void)state;
        assert_int_equal(proc_kill(&p, 0, NULL), 0);
        assert_int_equal(proc_kill(&p, SIGTERM, NULL), 0);
        s = wait_for(&p);
        assert_int_equal(s.signal, SIGTERM);
        /* One that ended by itself keeps its own status. */
        p = spawn(ended);
        assert_int_equal(op_wait_fd(&op, p.pidfd, 1 /* POLLIN */, -1, NULL), 1);
        assert_int_equal(proc_kill(&p, SIGKILL, NULL), 0);
        assert_int_equal(wait_for(&p).exit_code, 3);
}

static void test_wait_that_ends_early_leaves_the_process(void **state)
{
        struct proc_spec spec = SHELL("exec sleep 1000");
        struct proc p = spawn(spec);
        struct op_cancel cancel;
        struct op op = { .deadline_ms = clock_mono_ms() + 1, .cancel = &cancel };
        struct proc_status s;

        (void)state;
        assert_int_equal(op_cancel_init(&cancel, NULL), 0);
        assert_int_equal(proc_wait(&op, &p, &s, NULL), ERR_TIMEOUT);
        assert_int_equal(kill(p.pid, 0), 0);
        op.deadline_ms = OP_NO_DEADLINE;
        op_cancel_set(&cancel);
        assert_int_equal(proc_wait(&op, &p, &s, NULL), ERR_CANCELLED);
        assert_int_equal(kill(p.pid, 0), 0);
        assert_int_equal(proc_kill(&p, SIGKILL, NULL), 0);
        assert_int_equal(wait_for(&p).signal, SIGKILL);
        op_cancel_done(&cancel);
}

struct watched {
        struct proc_watch watch;
        struct proc_status status;
        int calls;
};

static void note_exit(struct proc_watch *w, const struct proc_status *status)
{
        struct watched *x = container_of(w, struct watched, watch);

        x->status = *status;
        x->calls++;
}

static void test_watch(void **state)
{
        struct proc_spec specs[] = { SHELL("exit 7"), SHELL("exec sleep 1000"), SHELL("exit 0") };
        struct watched w[3] = { 0 };
        uv_loop_t loop;

        (void)state;
        assert_int_equal(uv_loop_init(&loop), 0);
        for (int i = 0; i < 3; i++) {
                struct proc p = spawn(specs[i]);

                if (i == 1)
                        assert_int_equal(proc_kill(&p, SIGTERM, NULL), 0);
                assert_int_equal(proc_watch_start(&w[i].watch, &loop, &p, note_exit, NULL), 0);
                assert_int_equal(p.pidfd, -1);
        }
        assert_int_equal(uv_run(&loop, UV_RUN_DEFAULT), 0);
        for (int i = 0; i < 3; i++)
                assert_int_equal(w[i].calls, 1);
        assert_int_equal(w[0].status.exit_code, 7);
        assert_int_equal(w[1].status.exit_code, -1);
        assert_int_equal(w[1].status.signal, SIGTERM);
        assert_int_equal(w[2].status.exit_code, 0);
        /* Reaped, and nothing of the watch is left in the loop. */
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
        assert_int_equal(uv_loop_close(&loop), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_exit_codes_and_signals),
                cmocka_unit_test(test_environment_is_exactly_what_was_given),
                cmocka_unit_test(test_descriptors_do_not_leak),
                cmocka_unit_test(test_standard_descriptors),
                cmocka_unit_test(test_both_outputs_into_one_pipe),
                cmocka_unit_test(test_directory),
                cmocka_unit_test(test_missing_and_forbidden_programs),
                cmocka_unit_test(test_signals_are_as_new),
                cmocka_unit_test(test_session),
                cmocka_unit_test(test_kill),
                cmocka_unit_test(test_wait_that_ends_early_leaves_the_process),
                cmocka_unit_test(test_watch),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
