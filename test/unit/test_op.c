/* threads: operations that another thread cancels. */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "rt/op.h"

#define HOUR_MS INT64_C(3600000)

static struct op make_op(struct op_cancel *cancel, int64_t deadline_ms)
{
        return (struct op){ .deadline_ms = deadline_ms, .cancel = cancel };
}

static void test_check(void **state)
{
        struct op_cancel cancel;
        struct err err = { 0 };
        struct op op = make_op(&cancel, OP_NO_DEADLINE);

        (void)state;
        assert_int_equal(op_cancel_init(&cancel, &err), 0);
        assert_int_equal(op_check(&op, &err), 0);
        op.deadline_ms = clock_mono_ms() + HOUR_MS;
        assert_int_equal(op_check(&op, &err), 0);
        op.deadline_ms = clock_mono_ms();
        assert_int_equal(op_check(&op, &err), ERR_TIMEOUT);
        assert_int_equal(err.code, ERR_TIMEOUT);
        /* Who cancelled wants to hear that, not that time ran out as well. */
        op_cancel_set(&cancel);
        assert_int_equal(op_check(&op, &err), ERR_CANCELLED);
        assert_int_equal(op_check(&op, NULL), ERR_CANCELLED);
        op_cancel_done(&cancel);
}

static void test_time_left(void **state)
{
        struct op op = make_op(NULL, OP_NO_DEADLINE);
        int64_t left;

        (void)state;
        assert_int_equal(op_time_left(&op, 1234), 1234);
        assert_int_equal(op_time_left(&op, -1), -1);
        op.deadline_ms = clock_mono_ms() + HOUR_MS;
        assert_int_equal(op_time_left(&op, 1234), 1234);
        left = op_time_left(&op, -1);
        assert_true(left > 0 && left <= HOUR_MS);
        op.deadline_ms = clock_mono_ms() - 5;
        assert_int_equal(op_time_left(&op, 1234), 0);
        assert_int_equal(op_time_left(&op, -1), 0);
}

static void test_shield_is_deaf_and_has_its_own_time(void **state)
{
        struct op_cancel cancel;
        struct arena arena;
        struct op op = make_op(&cancel, clock_mono_ms() - 1), shield;

        (void)state;
        arena_init(&arena);
        op.arena = &arena;
        op.run_id = "run";
        assert_int_equal(op_cancel_init(&cancel, NULL), 0);
        op_cancel_set(&cancel);
        shield = op_shield(&op, HOUR_MS);
        assert_int_equal(op_check(&shield, NULL), 0);
        assert_true(op_time_left(&shield, -1) > 0);
        assert_ptr_equal(shield.arena, &arena);
        assert_string_equal(shield.run_id, "run");
        assert_int_equal(op_check(&op, NULL), ERR_CANCELLED);
        /* A shield ends as well: giving up must not take for ever. */
        shield = op_shield(&op, 0);
        assert_int_equal(op_check(&shield, NULL), ERR_TIMEOUT);
        op_cancel_done(&cancel);
        arena_done(&arena);
}

static void test_cancel_can_be_used_again(void **state)
{
        struct op_cancel cancel;
        struct op op = make_op(&cancel, OP_NO_DEADLINE);
        struct pollfd p;

        (void)state;
        assert_int_equal(op_cancel_init(&cancel, NULL), 0);
        p = (struct pollfd){ .fd = cancel.fd, .events = POLLIN };
        for (int i = 0; i < 3; i++) {
                assert_int_equal(poll(&p, 1, 0), 0);
                op_cancel_set(&cancel);
                op_cancel_set(&cancel);
                assert_int_equal(poll(&p, 1, 0), 1);
                assert_int_equal(op_check(&op, NULL), ERR_CANCELLED);
                op_cancel_reset(&cancel);
                assert_int_equal(op_check(&op, NULL), 0);
        }
        /* Resetting what is not set must not wait. */
        op_cancel_reset(&cancel);
        op_cancel_done(&cancel);
        op_cancel_done(&cancel);
}

static void test_wait_sees_a_ready_descriptor(void **state)
{
        struct op op = make_op(NULL, OP_NO_DEADLINE);
        int fds[2];

        (void)state;
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        assert_int_equal(op_wait_fd(&op, fds[1], POLLOUT, -1, NULL), 1);
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, 0, NULL), 0);
        assert_int_equal(write(fds[1], "x", 1), 1);
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, -1, NULL), 1);
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, HOUR_MS, NULL), 1);
        /* A limit of nothing is a look, not a refusal to look. */
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, 0, NULL), 1);
        /* The other end's closing is an event too: waiting on would be for ever. */
        assert_int_equal(read(fds[0], (char[1]){ 0 }, 1), 1);
        close(fds[1]);
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, -1, NULL), 1);
        close(fds[0]);
}

static void test_wait_ends_with_limit_and_deadline(void **state)
{
        struct op op = make_op(NULL, OP_NO_DEADLINE);
        struct err err = { 0 };
        int fds[2];
        int64_t began;

        (void)state;
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        began = clock_mono_ms();
        assert_int_equal(op_wait_fd(&op, -1, 0, 5, &err), 0);
        assert_true(clock_mono_ms() >= began + 5);
        op.deadline_ms = clock_mono_ms() + 5;
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, -1, &err), ERR_TIMEOUT);
        op.deadline_ms = clock_mono_ms() + 5;
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, HOUR_MS, &err), ERR_TIMEOUT);
        /* An operation that is over does nothing more, even if there is something to read. */
        assert_int_equal(write(fds[1], "x", 1), 1);
        assert_int_equal(op_wait_fd(&op, fds[0], POLLIN, -1, &err), ERR_TIMEOUT);
        close(fds[0]);
        close(fds[1]);
}

struct waiter {
        struct op_cancel cancel;
        int result;
};

static void *wait_for_ever(void *arg)
{
        struct waiter *w = arg;
        struct op op = make_op(&w->cancel, OP_NO_DEADLINE);

        w->result = op_wait_fd(&op, -1, 0, -1, NULL);
        return NULL;
}

static void test_cancel_from_another_thread_ends_a_wait(void **state)
{
        (void)state;
        for (int i = 0; i < 50; i++) {
                struct waiter w = { .result = 1 };
                pthread_t thread;

                assert_int_equal(op_cancel_init(&w.cancel, NULL), 0);
                assert_int_equal(pthread_create(&thread, NULL, wait_for_ever, &w), 0);
                op_cancel_set(&w.cancel);
                pthread_join(thread, NULL);
                assert_int_equal(w.result, ERR_CANCELLED);
                op_cancel_done(&w.cancel);
        }
}

/* Only the code reaches whoever waits for the work of another thread: it says that this passes. */
static void test_no_descriptor_for_a_cancel(void **state)
{
        struct rlimit before, none;
        struct op_cancel cancel;
        struct err err = { 0 };
        int r;

        (void)state;
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        none = (struct rlimit){ 0, before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
        r = op_cancel_init(&cancel, &err);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_true(r < 0);
        assert_true(err_info(r)->is_transient);
        err_done(&err);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_check),
                cmocka_unit_test(test_time_left),
                cmocka_unit_test(test_shield_is_deaf_and_has_its_own_time),
                cmocka_unit_test(test_cancel_can_be_used_again),
                cmocka_unit_test(test_wait_sees_a_ready_descriptor),
                cmocka_unit_test(test_wait_ends_with_limit_and_deadline),
                cmocka_unit_test(test_cancel_from_another_thread_ends_a_wait),
                cmocka_unit_test(test_no_descriptor_for_a_cancel),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
