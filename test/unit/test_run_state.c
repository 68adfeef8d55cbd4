#include "test.h"

#include "core/runs/run_state.h"

static const char *const steps[] = { STEP_QUEUED,    STEP_PREPARING, STEP_EXECUTING,
                                     STEP_FINISHING, STEP_RELEASING, STEP_DONE };

/* The moves of docs/runs.md; a row for each step that a run can be at, a letter for each that can
 * follow. */
static const char *const moves[][2] = {
        { NULL, "q" },
        { STEP_QUEUED, "pd" },
        { STEP_PREPARING, "per" },
        { STEP_EXECUTING, "pefr" },
        { STEP_FINISHING, "pefr" },
        { STEP_RELEASING, "d" },
        { STEP_DONE, "" },
};

static void test_every_pair(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(moves); i++)
                for (size_t j = 0; j < ARRAY_LEN(steps); j++)
                        assert_int_equal(run_transition_check(moves[i][0], steps[j], NULL),
                                         strchr(moves[i][1], steps[j][0]) ? 0 : ERR_INTERNAL);
}

static void test_a_wrong_move_is_named(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        assert_int_equal(run_transition_check(STEP_DONE, STEP_PREPARING, &e), ERR_INTERNAL);
        assert_string_equal(e.msg, "a run cannot go from done to preparing");
        assert_int_equal(run_transition_check(NULL, STEP_DONE, &e), ERR_INTERNAL);
        assert_string_equal(e.msg, "a run cannot go from nothing to done");
        for (const struct transition *t = run_transitions; t->to; t++)
                assert_true(t->why && *t->why);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_every_pair),
                cmocka_unit_test(test_a_wrong_move_is_named),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
