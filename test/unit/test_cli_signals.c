#include "test.h"

#include <poll.h>
#include <signal.h>

#include "cli/signals.h"

static void test_names(void **state UNUSED)
{
        assert_int_equal(signals_number("SIGTERM"), SIGTERM);
        assert_int_equal(signals_number("term"), SIGTERM);
        assert_int_equal(signals_number("15"), 15);
        assert_int_equal(signals_number("KILL"), SIGKILL);
        assert_int_equal(signals_number(""), 0);
        assert_int_equal(signals_number("0"), 0);
        assert_int_equal(signals_number("-9"), 0);
        assert_int_equal(signals_number("1000"), 0);
        assert_int_equal(signals_number("SIG"), 0);
        assert_int_equal(signals_number("9x"), 0);
        assert_string_equal(signals_name(SIGKILL), "SIGKILL");
        assert_null(signals_name(0));
        assert_null(signals_name(-1));
        assert_null(signals_name(1000));
}

static void test_caught(void **state UNUSED)
{
        struct pollfd p = { .events = POLLIN };

        (void)signal(SIGINT, SIG_DFL); /* whoever started us in the background had it ignored */
        (void)signal(SIGHUP, SIG_IGN); /* as nohup does */
        assert_int_equal(signals_next(), 0);
        assert_int_equal(signals_catch(NULL), 0);
        assert_int_equal(signals_catch(NULL), 0);
        p.fd = signals_fd();
        assert_int_equal(poll(&p, 1, 0), 0);
        raise(SIGHUP);
        raise(SIGTERM);
        raise(SIGINT);
        raise(SIGPIPE);
        assert_int_equal(poll(&p, 1, 0), 1);
        assert_int_equal(signals_next(), SIGTERM);
        assert_int_equal(signals_next(), SIGINT);
        assert_int_equal(signals_next(), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names),
                cmocka_unit_test(test_caught),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
