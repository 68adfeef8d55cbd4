#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <sys/resource.h>

#include "base/fd.h"
#include "rt/reserve.h"

#define LIMIT 128

static struct rlimit before;

static int lower_limit(void **state)
{
        struct rlimit low;

        (void)state;
        getrlimit(RLIMIT_NOFILE, &before);
        low = (struct rlimit){ LIMIT, before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        reserve_init();
        return 0;
}

static int raise_limit(void **state)
{
        (void)state;
        reserve_done();
        return setrlimit(RLIMIT_NOFILE, &before);
}

/* As many as can be had; how many. */
static unsigned take_all(int *fds)
{
        unsigned n = 0;

        while (n < LIMIT && (fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0)
                n++;
        return n;
}

static void close_all(const int *fds, unsigned n)
{
        while (n > 0)
                close(fds[--n]);
}

/* Nothing new is begun before the last descriptor is gone, and ending something gets more. */
static void test_descriptors(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        unsigned n = 0, loan;
        int fds[LIMIT], more[LIMIT];

        (void)state;
        assert_int_equal(reserve_check(&err), 0);
        assert_int_equal(reserve_borrow(), 0);
        while (reserve_check(&err) == 0) {
                fds[n] = open("/dev/null", O_RDONLY | O_CLOEXEC);
                assert_true(fds[n] >= 0);
                n++;
        }
        assert_int_equal(err.code, ERR_BUSY);
        assert_non_null(strstr(err.msg, "descriptors"));
        n += take_all(fds + n);
        loan = reserve_borrow();
        assert_true(loan > 0);
        assert_int_equal(take_all(more), loan);
        /* They cannot be had back yet: later they are. */
        reserve_return(&loan);
        close_all(more, loan);
        assert_int_equal(reserve_borrow(), LIMIT / 16 - loan);
        close_all(fds, n);
        reserve_refill();
        assert_int_equal(reserve_check(&err), 0);
        n = take_all(fds);
        loan = reserve_borrow();
        assert_int_equal(loan, LIMIT / 16);
        close_all(fds, n);
        reserve_return(&loan);
}

/* The first allocation that fails gets what was held for it, and until that is held again nothing
 * new is begun. */
static void test_memory(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct rlimit unlimited, now;
        void *block;

        (void)state;
        if (getenv("ASAN_OPTIONS") || getenv("TSAN_OPTIONS")) /* has an address space of its own */
                skip();
        assert_false(memory_is_short());
        getrlimit(RLIMIT_AS, &unlimited);
        now = (struct rlimit){ (rlim_t)1 << 20, unlimited.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
        block = xcalloc(1, (size_t)2 << 20);
        assert_int_equal(setrlimit(RLIMIT_AS, &unlimited), 0);
        free(block);
        assert_true(memory_is_short());
        assert_int_equal(reserve_check(&err), ERR_BUSY);
        assert_non_null(strstr(err.msg, "memory"));
        reserve_refill();
        assert_false(memory_is_short());
        assert_int_equal(reserve_check(&err), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_descriptors, lower_limit, raise_limit),
                cmocka_unit_test_setup_teardown(test_memory, lower_limit, raise_limit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
