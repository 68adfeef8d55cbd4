#include "test.h"

#include "core/places/place_state.h"

static const char *const states[] = { PLACE_INTENDED, PLACE_READY, PLACE_HELD,
                                      PLACE_CLOSING,  PLACE_GONE,  PLACE_UNCERTAIN };

/* The moves of the design, one row per state it starts from. */
static const struct {
        const char *from, *to;
} allowed[] = {
        { NULL, PLACE_INTENDED },
        { NULL, PLACE_HELD },
        { PLACE_INTENDED, PLACE_HELD },
        { PLACE_INTENDED, PLACE_CLOSING },
        { PLACE_INTENDED, PLACE_READY },
        { PLACE_INTENDED, PLACE_GONE },
        { PLACE_INTENDED, PLACE_UNCERTAIN },
        { PLACE_READY, PLACE_HELD },
        { PLACE_READY, PLACE_CLOSING },
        { PLACE_HELD, PLACE_HELD },
        { PLACE_HELD, PLACE_READY },
        { PLACE_HELD, PLACE_CLOSING },
        { PLACE_CLOSING, PLACE_CLOSING },
        { PLACE_CLOSING, PLACE_GONE },
        { PLACE_UNCERTAIN, PLACE_CLOSING },
        { PLACE_UNCERTAIN, PLACE_GONE },
};

static bool is_allowed(const char *from, const char *to)
{
        for (size_t i = 0; i < ARRAY_LEN(allowed); i++)
                if (streq(allowed[i].to, to) &&
                    (from ? allowed[i].from && streq(allowed[i].from, from) : !allowed[i].from))
                        return true;
        return false;
}

static void test_every_pair(void **state)
{
        (void)state;
        for (size_t i = 0; i <= ARRAY_LEN(states); i++) {
                const char *from = i < ARRAY_LEN(states) ? states[i] : NULL;

                for (size_t j = 0; j < ARRAY_LEN(states); j++)
                        assert_int_equal(place_transition_check(from, states[j], NULL),
                                         is_allowed(from, states[j]) ? 0 : ERR_INTERNAL);
        }
}

static void test_a_wrong_move_is_named(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        assert_int_equal(place_transition_check(PLACE_GONE, PLACE_HELD, &e), ERR_INTERNAL);
        assert_string_equal(e.msg, "a place cannot go from gone to held");
        assert_int_equal(place_transition_check(NULL, PLACE_GONE, &e), ERR_INTERNAL);
        assert_string_equal(e.msg, "a place cannot go from nothing to gone");
        assert_int_equal(place_transition_check("limbo", PLACE_GONE, &e), ERR_INTERNAL);
}

/* Nothing leaves gone, nothing but the end follows closing, and every state leads to gone. */
static void test_shape_of_the_table(void **state)
{
        bool ends[ARRAY_LEN(states)] = { false };
        bool grew = true;

        (void)state;
        for (const struct transition *t = place_transitions; t->to; t++) {
                assert_true(t->why && *t->why);
                if (!t->from)
                        continue;
                assert_string_not_equal(t->from, PLACE_GONE);
                if (streq(t->from, PLACE_CLOSING))
                        assert_true(streq(t->to, PLACE_CLOSING) || streq(t->to, PLACE_GONE));
        }
        ends[4] = true; /* gone */
        while (grew) {
                grew = false;
                for (size_t i = 0; i < ARRAY_LEN(states); i++)
                        for (size_t j = 0; j < ARRAY_LEN(states); j++)
                                if (!ends[i] && ends[j] &&
                                    place_transition_check(states[i], states[j], NULL) == 0)
                                        ends[i] = grew = true;
        }
        for (size_t i = 0; i < ARRAY_LEN(states); i++)
                assert_true(ends[i]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_every_pair),
                cmocka_unit_test(test_a_wrong_move_is_named),
                cmocka_unit_test(test_shape_of_the_table),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
