/* plugin-protocol section 2.3 */
#include "test.h"

#include "core/plugins/plugin_state.h"

/* Which statuses may follow, as the specification lists them. */
static const struct {
        const char *from, *to;
} moves[] = {
        { "installed", "ready error uninstalled" },
        { "ready", "ready disabled error upgrade_pending uninstalled" },
        { "disabled", "ready uninstalled" },
        { "error", "ready uninstalled" },
        { "upgrade_pending", "ready error uninstalled" },
        { "uninstalled", "installed" },
};

static bool is_listed(const char *from, const char *to)
{
        for (size_t i = 0; i < ARRAY_LEN(moves); i++) {
                const char *at = strstr(moves[i].to, to);

                if (!streq(moves[i].from, from))
                        continue;
                for (; at; at = strstr(at + 1, to))
                        if ((at == moves[i].to || at[-1] == ' ') &&
                            (at[strlen(to)] == ' ' || !at[strlen(to)]))
                                return true;
        }
        return false;
}

static void test_every_pair(void **state)
{
        (void)state;
        for (const char *const *from = plugin_statuses; *from; from++)
                for (const char *const *to = plugin_statuses; *to; to++)
                        assert_int_equal(plugin_transition_check(*from, *to, "k", NULL),
                                         is_listed(*from, *to) ? 0 : ERR_INVALID);
}

static void test_a_wrong_move_is_named(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        assert_int_equal(plugin_transition_check("disabled", "error", "acme.box", &e), ERR_INVALID);
        assert_string_equal(e.msg, "Invalid lifecycle transition: disabled \u2192 error for plugin "
                                   "acme.box");
}

static void test_who_runs(void **state)
{
        (void)state;
        assert_true(plugin_status_runs(PLUGIN_READY));
        assert_true(plugin_status_runs(PLUGIN_UPGRADE_PENDING));
        assert_false(plugin_status_runs(PLUGIN_INSTALLED));
        assert_false(plugin_status_runs(PLUGIN_ERROR));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_every_pair),
                cmocka_unit_test(test_a_wrong_move_is_named),
                cmocka_unit_test(test_who_runs),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
