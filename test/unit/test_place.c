#include "engine_fixture.h"
#include "store_read.h"

#include "base/clock.h"

static const char *const states[] = { PLACE_INTENDED, PLACE_READY,     PLACE_HELD,
                                      PLACE_CLOSING,  PLACE_UNCERTAIN, PLACE_GONE };

/* The table, written down a second time: whoever changes one has to think about the other, and
 * about the model in test/model. Rows are `from`, columns `to`, both in the order of `states`. */
static const char *const allowed[] = {
        ".RHCUG", /* intended */
        "..HC..", /* ready */
        ".RHC..", /* held */
        "...C.G", /* closing */
        "...C.G", /* uncertain */
        "......", /* gone */
};

static bool is_allowed(size_t from, size_t to)
{
        return allowed[from][to] != '.';
}

static void test_the_table(void **state)
{
        size_t n = 0, counted = 0;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(states); i++) {
                bool born = i == 0 || i == 2; /* intended, held */

                assert_int_equal(place_transition_check(NULL, states[i], NULL),
                                 born ? 0 : ERR_INTERNAL);
                counted += born;
                for (size_t j = 0; j < ARRAY_LEN(states); j++) {
                        assert_int_equal(place_transition_check(states[i], states[j], NULL),
                                         is_allowed(i, j) ? 0 : ERR_INTERNAL);
                        counted += is_allowed(i, j);
                }
        }
        assert_int_equal(place_transition_check("nonsense", PLACE_HELD, NULL), ERR_INTERNAL);
        for (const struct transition *t = place_transitions; t->to; t++, n++)
                assert_true(t->why && *t->why);
        assert_int_equal(n, counted);
}

struct move {
        struct engine *e;
        struct place place;
        const char *to;
        struct arena *arena;
};

static int create(struct db *db, void *arg, struct err *err)
{
        struct move *m = arg;

        return place_create(db, &m->e->rt, &m->place, m->to, err);
}

static int insert(struct db *db, void *arg, struct err *err)
{
        return places_insert(db, &((struct move *)arg)->place, err);
}

static int move(struct db *db, void *arg, struct err *err)
{
        struct move *m = arg;

        return place_move(db, &m->e->rt, &m->place, m->to, err);
}

static int reread(struct db *db, void *arg, struct err *err)
{
        struct move *m = arg;

        return places_get(db, m->place.id, m->arena, &m->place, err);
}

static struct place a_place(const char *id)
{
        return (struct place){ .id = id,
                               .company_id = "c1",
                               .environment_id = ENV_REUSE,
                               .driver = "listed",
                               .config = "{}",
                               .policy = POLICY_REUSE_ENVIRONMENT,
                               .has_world = true };
}

struct fixture {
        struct engine e;
        struct arena arena;
        struct op op;
};

static int setup(void **state)
{
        struct fixture *f = xcalloc(1, sizeof(*f));

        engine_start(&f->e);
        arena_init(&f->arena);
        f->op = (struct op){ .arena = &f->arena, .deadline_ms = OP_NO_DEADLINE };
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;

        engine_stop(&f->e);
        arena_done(&f->arena);
        free(f);
        return 0;
}

static void test_create(void **state)
{
        struct fixture *f = *state;
        struct move m = { &f->e, a_place("p1"), PLACE_READY, &f->arena };

        assert_int_equal(store_write(&f->op, f->e.store, create, &m, NULL), ERR_INTERNAL);
        m.to = PLACE_INTENDED;
        assert_int_equal(store_write(&f->op, f->e.store, create, &m, NULL), 0);
        assert_int_equal(m.place.epoch, 1);
        assert_true(place_is_ours(&f->e.rt, &m.place));
        assert_int_equal(store_read(&f->op, f->e.store, reread, &m, NULL), 0);
        assert_string_equal(m.place.state, PLACE_INTENDED);
        assert_string_equal(m.place.owner_node, f->e.rt.node.id.s);
        assert_string_equal(m.place.owner_instance, f->e.rt.node.instance.s);
        assert_true(m.place.created_at > 0 && m.place.updated_at == m.place.created_at);
        assert_int_equal(store_write(&f->op, f->e.store, create, &m, NULL), ERR_CONFLICT);
        assert_int_equal(store_read(&f->op, f->e.store, reread, &m, NULL), 0);
        engine_restart(&f->e);
        assert_false(place_is_ours(&f->e.rt, &m.place));
}

/* Every move of the table works, and none else; a move that is refused changes nothing. */
static void test_moves(void **state)
{
        struct fixture *f = *state;

        for (size_t i = 0; i < ARRAY_LEN(states); i++) {
                for (size_t j = 0; j < ARRAY_LEN(states); j++) {
                        const char *id = arena_strdup(&f->arena, uuid_new().s);
                        struct move m = { &f->e, a_place(id), states[j], &f->arena };
                        int r;

                        m.place.state = states[i];
                        m.place.epoch = 5;
                        m.place.owner_node = f->e.rt.node.id.s;
                        m.place.owner_boot = m.place.owner_instance = "other";
                        assert_int_equal(store_write(&f->op, f->e.store, insert, &m, NULL), 1);
                        r = store_write(&f->op, f->e.store, move, &m, NULL);
                        assert_int_equal(r, is_allowed(i, j) ? 0 : ERR_INTERNAL);
                        assert_int_equal(m.place.epoch, r < 0 ? 5 : 6);
                        assert_int_equal(store_read(&f->op, f->e.store, reread, &m, NULL), 0);
                        assert_string_equal(m.place.state, r < 0 ? states[i] : states[j]);
                        assert_int_equal(m.place.epoch, r < 0 ? 5 : 6);
                        assert_int_equal(place_is_ours(&f->e.rt, &m.place), r >= 0);
                }
        }
}

/* What another node has in the world stays as it is: its record may end, or is taken over first. */
static void test_a_place_of_another_node(void **state)
{
        struct fixture *f = *state;
        struct move m = { &f->e, a_place("p1"), PLACE_CLOSING, &f->arena };
        struct err err = { 0 };

        m.place.state = PLACE_UNCERTAIN;
        m.place.epoch = 5;
        m.place.owner_node = m.place.owner_boot = m.place.owner_instance = "other";
        assert_int_equal(store_write(&f->op, f->e.store, insert, &m, NULL), 1);
        assert_true(place_is_foreign(&f->e.rt, &m.place));
        assert_int_equal(store_write(&f->op, f->e.store, move, &m, &err), ERR_CONFLICT);
        assert_non_null(strstr(err.msg, "node other"));
        assert_int_equal(store_read(&f->op, f->e.store, reread, &m, NULL), 0);
        assert_string_equal(m.place.state, PLACE_UNCERTAIN);
        assert_int_equal(m.place.epoch, 5);
        place_take_over(&f->e.rt, &m.place);
        assert_int_equal(store_write(&f->op, f->e.store, move, &m, NULL), 0);
        assert_false(place_is_foreign(&f->e.rt, &m.place));

        m.place = a_place("p2");
        m.place.state = PLACE_UNCERTAIN;
        m.place.owner_node = m.place.owner_boot = m.place.owner_instance = "other";
        m.to = PLACE_GONE;
        assert_int_equal(store_write(&f->op, f->e.store, insert, &m, NULL), 1);
        assert_int_equal(store_write(&f->op, f->e.store, move, &m, NULL), 0);
        err_done(&err);
}

static void test_who_comes_second_changes_nothing(void **state)
{
        struct fixture *f = *state;
        struct move first = { &f->e, a_place("p1"), PLACE_HELD, &f->arena }, second, third;
        struct err err = { 0 };

        assert_int_equal(store_write(&f->op, f->e.store, create, &first, NULL), 0);
        second = third = first;
        first.place.note = "first";
        assert_int_equal(store_write(&f->op, f->e.store, move, &first, NULL), 0);
        second.to = PLACE_CLOSING;
        second.place.note = "second";
        assert_int_equal(store_write(&f->op, f->e.store, move, &second, &err), ERR_CONFLICT);
        assert_int_equal(second.place.epoch, 1);
        assert_string_equal(second.place.state, PLACE_HELD);
        /* The same state again, but in an epoch that is over. */
        third.to = PLACE_HELD;
        assert_int_equal(store_write(&f->op, f->e.store, move, &third, &err), ERR_CONFLICT);
        assert_int_equal(store_read(&f->op, f->e.store, reread, &first, NULL), 0);
        assert_string_equal(first.place.state, PLACE_HELD);
        assert_string_equal(first.place.note, "first");
        assert_int_equal(first.place.epoch, 2);
        second.place.id = "none";
        assert_int_equal(store_write(&f->op, f->e.store, move, &second, &err), ERR_CONFLICT);
}

static void test_pauses_grow(void **state)
{
        (void)state;
        assert_int_equal(place_retry_pause(0), US_PER_S);
        assert_int_equal(place_retry_pause(1), US_PER_S);
        assert_int_equal(place_retry_pause(2), 2 * US_PER_S);
        assert_int_equal(place_retry_pause(9), 256 * US_PER_S);
        assert_int_equal(place_retry_pause(10), 300 * US_PER_S);
        assert_int_equal(place_retry_pause(INT64_MAX), 300 * US_PER_S);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_the_table),
                cmocka_unit_test_setup_teardown(test_create, setup, teardown),
                cmocka_unit_test_setup_teardown(test_moves, setup, teardown),
                cmocka_unit_test_setup_teardown(test_a_place_of_another_node, setup, teardown),
                cmocka_unit_test_setup_teardown(test_who_comes_second_changes_nothing, setup,
                                                teardown),
                cmocka_unit_test(test_pauses_grow),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
