/* A random walk through the lease engine: operations, each of which may fail, be cancelled, lose an
 * answer or die at any write and any outside effect, with others running in the middle of them.
 * After every step the invariants of engine_fixture.h hold, the living leases are those of a model
 * that only knows what it was answered, and no place does what the transition table does not know.
 * Now and then everything is released and time passes: then nothing may be left.
 *
 *   BERTH_WALK_STEPS=100000 BERTH_WALK_SEED=7 test_lease_walk     for a longer walk, or a found one
 */
#include "engine_fixture.h"
#include "store_read.h"

#include "core/leases/leaks.h"

#define MAX_LEASES 256
#define MAX_PLACES 8192
#define MAX_DEPTH  2

struct known_place {
        char id[UUID_LEN + 1], state[16];
        int64_t epoch;
};

struct walk {
        struct engine e;
        uint64_t random;
        unsigned step, depth;
        bool calm; /* nothing goes wrong */
        char living[MAX_LEASES][UUID_LEN + 1];
        size_t n_living;
        struct known_place *places;
        size_t n_places;
        unsigned acquired, refused, died, nested;
};

static unsigned roll(struct walk *w, unsigned n)
{
        w->random ^= w->random << 13;
        w->random ^= w->random >> 7;
        w->random ^= w->random << 17;
        return (unsigned)((w->random >> 32) % n);
}

static void operate(struct walk *w);

/* What goes wrong */

static struct misdeed go_wrong(struct walk *w)
{
        static const int codes[] = { ERR_PROVIDER, ERR_UNCERTAIN, ERR_TIMEOUT, ERR_CANCELLED };
        struct misdeed m = { 0 };

        if (w->calm)
                return m;
        switch (roll(w, 40)) {
        case 0:
        case 1:
                m.code = ERR_PROVIDER;
                break;
        case 2:
        case 3:
        case 4:
                m.code = codes[1 + roll(w, 3)];
                m.happens = roll(w, 2);
                break;
        case 5:
                m.cancel = true;
                break;
        case 6:
                m.die_before = true;
                break;
        case 7:
                m.die_after = true;
                break;
        default:
                break;
        }
        return m;
}

/* Others at work before the effect: within the time that the operation may take. */
static struct misdeed decide_effect(struct engine *e, enum effect effect, struct op *op,
                                    const struct place *place)
{
        struct walk *w = e->ctx;
        struct misdeed m;

        if (!w->calm && w->depth < MAX_DEPTH && roll(w, 12) == 0)
                operate(w);
        m = go_wrong(w);
        /* Giving up and idling may fail and yet have happened. */
        if (m.code == ERR_PROVIDER && effect != EFFECT_OPEN)
                m.happens = roll(w, 2);
        return m;
}

/* Others at work before the answer, which may take for ever. */
static void after_effect(struct engine *e, enum effect effect, const struct place *place)
{
        struct walk *w = e->ctx;

        if (w->calm || w->depth >= MAX_DEPTH || roll(w, 8) != 0)
                return;
        if (roll(w, 2))
                engine_advance(e, 200);
        operate(w);
        if (!e->dead && roll(w, 2))
                operate(w);
}

static struct misdeed decide_write(struct engine *e, const struct op *op)
{
        struct walk *w = e->ctx;
        struct misdeed m = { 0 };

        if (w->calm)
                return m;
        switch (roll(w, 60)) {
        case 0:
        case 1:
                m.code = ERR_IO;
                break;
        case 2:
                m.die_before = true;
                break;
        case 3:
                m.die_after = true;
                break;
        default:
                break;
        }
        return m;
}

/* The model: which leases live */

static void model_add(struct walk *w, const char *id)
{
        assert_true(w->n_living < MAX_LEASES);
        snprintf(w->living[w->n_living++], UUID_LEN + 1, "%s", id);
}

static void model_remove(struct walk *w, const char *id)
{
        for (size_t i = 0; i < w->n_living; i++) {
                if (streq(w->living[i], id)) {
                        memmove(w->living[i], w->living[--w->n_living], UUID_LEN + 1);
                        return;
                }
        }
}

#define IS_LIVING     "SELECT COUNT(*) FROM environment_leases l WHERE l.id = ?1 AND " LIVING_STATUS
#define LIVING_STATUS "(l.status = 'active' OR l.status = 'retained')"

/* After a crash nobody knows what the last operation came to, and the sweeper ends what is due. */
static void model_forget_ended(struct walk *w)
{
        for (size_t i = w->n_living; i-- > 0;)
                if (engine_count(&w->e, IS_LIVING, w->living[i]) == 0)
                        memmove(w->living[i], w->living[--w->n_living], UUID_LEN + 1);
}

struct living_rows {
        struct walk *w;
        struct arena *arena;
};

static bool is_in_model(const struct walk *w, const char *id)
{
        for (size_t i = 0; i < w->n_living; i++)
                if (streq(w->living[i], id))
                        return true;
        return false;
}

static int read_living(struct db *db, void *arg, struct err *err)
{
        static const char *const environments[] = { ENV_ONCE, ENV_REUSE, ENV_RETAIN, ENV_BLIND };
        struct living_rows *q = arg;
        struct lease *leases;
        int n = 0;

        for (size_t i = 0; n >= 0 && i < ARRAY_LEN(environments); i++) {
                n = leases_living_of_environment(db, environments[i], q->arena, &leases, err);
                for (int at = 0; at < n; at++)
                        if (!is_in_model(q->w, leases[at].id))
                                model_add(q->w, leases[at].id);
        }
        return n;
}

static void model_learn(struct walk *w)
{
        struct arena arena;
        struct living_rows q = { w, &arena };
        struct op op = { .deadline_ms = OP_NO_DEADLINE };

        arena_init(&arena);
        model_forget_ended(w);
        assert_true(store_read(&op, w->e.store, read_living, &q, NULL) >= 0);
        arena_done(&arena);
}

/* Operations */

static void do_acquire(struct walk *w)
{
        static const char *const environments[] = { ENV_ONCE, ENV_REUSE, ENV_REUSE, ENV_RETAIN,
                                                    ENV_BLIND };
        static const char *const runs[] = { NULL, "run-1", "run-2", "run-3" };
        const char *environment = environments[roll(w, ARRAY_LEN(environments))];
        const char *run = runs[roll(w, ARRAY_LEN(runs))];
        char key[32];
        struct lease_record record;
        struct engine_op o;
        bool keyed = roll(w, 4) == 0 && w->depth == 1; /* a second one would wait for the first */
        int r;

        engine_op_init(&o);
        snprintf(key, sizeof(key), "key-%u", roll(w, 50));
        if (keyed && engine_count(&w->e,
                                  "SELECT COUNT(*) FROM places WHERE request_key = ?1 "
                                  "AND state = 'intended'",
                                  key))
                keyed = false; /* left by a crash or a failed write: would wait for the sweeper */
        r = engine_acquire(&w->e, &o, environment, run, keyed ? key : NULL, roll(w, 3) ? 0 : 100000,
                           &record, NULL);
        /* While it closed what could not be resumed, somebody else may have ended it again. */
        if (r >= 0 && !record.existed && engine_count(&w->e, IS_LIVING, record.lease.id) == 1)
                model_add(w, record.lease.id);
        if (r >= 0 && !record.existed)
                w->acquired++;
        if (r < 0)
                w->refused++;
        engine_op_done(&o);
}

static void do_release(struct walk *w)
{
        static const char *const statuses[] = { LEASE_RELEASED, LEASE_RELEASED, LEASE_FAILED,
                                                LEASE_EXPIRED };
        const char *status = statuses[roll(w, ARRAY_LEN(statuses))];
        char id[UUID_LEN + 1];

        if (w->n_living == 0)
                return;
        snprintf(id, sizeof(id), "%s", w->living[roll(w, (unsigned)w->n_living)]);
        if (engine_release(&w->e, id, status) < 0)
                return;
        if (!streq(engine_sql(&w->e, "SELECT status FROM environment_leases WHERE id = ?1", id),
                   LEASE_RETAINED))
                model_remove(w, id);
}

static void do_destroy(struct walk *w)
{
        struct lease_record record;
        struct engine_op o;
        char id[UUID_LEN + 1];

        if (w->n_living == 0)
                return;
        snprintf(id, sizeof(id), "%s", w->living[roll(w, (unsigned)w->n_living)]);
        engine_op_init(&o);
        if (lease_destroy(&o.op, &w->e.rt, id, &record, NULL) >= 0)
                model_remove(w, id);
        engine_op_done(&o);
}

static int note_released(void *ctx, const struct lease_record *record)
{
        struct walk *w = ctx;

        if (!lease_is_living(&record->lease))
                model_remove(w, record->lease.id);
        return 0;
}

static void do_release_run(struct walk *w)
{
        static const char *const runs[] = { "run-1", "run-2", "run-3" };
        struct engine_op o;

        engine_op_init(&o);
        (void)lease_release_run(&o.op, &w->e.rt, runs[roll(w, ARRAY_LEN(runs))],
                                roll(w, 3) ? LEASE_RELEASED : LEASE_FAILED, note_released, w, NULL);
        engine_op_done(&o);
}

static void do_sweep(struct walk *w)
{
        engine_sweep(&w->e);
        if (!w->e.dead)
                model_forget_ended(w);
}

static void operate(struct walk *w)
{
        unsigned what = roll(w, 20);

        w->depth++;
        if (w->depth > 1)
                w->nested++;
        if (w->e.n_world + 4 >= WORLD_MAX || w->n_living + 4 >= MAX_LEASES)
                what = 10;
        if (what < 8)
                do_acquire(w);
        else if (what < 13)
                do_release(w);
        else if (what < 14)
                do_destroy(w);
        else if (what < 15)
                do_release_run(w);
        else
                do_sweep(w);
        w->depth--;
        if (w->depth == 0 && roll(w, 6) == 0)
                engine_advance(&w->e, 70);
}

/* Checking */

static bool reachable(const char *from, const char *to)
{
        const char *seen[16] = { from };
        size_t n = 1;

        for (size_t i = 0; i < n; i++) {
                if (streq(seen[i], to))
                        return true;
                for (const struct transition *t = place_transitions; t->to; t++) {
                        bool known = false;

                        if (!t->from || !streq(t->from, seen[i]))
                                continue;
                        for (size_t j = 0; j < n; j++)
                                known = known || streq(seen[j], t->to);
                        if (!known)
                                seen[n++] = t->to;
                }
        }
        return false;
}

static void broken(const struct walk *w, const char *what)
{
        fail_msg("step %u: %s", w->step, what);
}

static int compare_place(void *ctx, const struct place *p)
{
        struct walk *w = ctx;
        struct known_place *k = NULL;

        for (size_t i = 0; i < w->n_places; i++)
                if (streq(w->places[i].id, p->id))
                        k = &w->places[i];
        if (k && (p->epoch < k->epoch || (p->epoch == k->epoch && !streq(p->state, k->state)) ||
                  !reachable(k->state, p->state)))
                return -1;
        if (!k && w->n_places < MAX_PLACES)
                k = &w->places[w->n_places++];
        if (k) {
                snprintf(k->id, sizeof(k->id), "%s", p->id);
                snprintf(k->state, sizeof(k->state), "%s", p->state);
                k->epoch = p->epoch;
        }
        return 0;
}

static int compare_places(struct db *db, void *arg, struct err *err)
{
        struct arena arena;
        int r;

        arena_init(&arena);
        r = places_living(db, NULL, &arena, compare_place, arg, err);
        arena_done(&arena);
        return r;
}

static void check(struct walk *w)
{
        struct op op = { .deadline_ms = OP_NO_DEADLINE };
        const char *problem = engine_broken_invariant(&w->e);

        if (problem)
                broken(w, problem);
        if (store_read(&op, w->e.store, compare_places, w, NULL) < 0)
                broken(w, "a place moved in a way that the table does not have");
        if (w->e.dead)
                return;
        for (size_t i = 0; i < w->n_living; i++)
                if (engine_count(&w->e, IS_LIVING, w->living[i]) != 1)
                        broken(w, "a lease ended and nobody was told");
        if (engine_count(&w->e, "SELECT COUNT(*) FROM environment_leases l WHERE " LIVING_STATUS,
                         NULL) != (int64_t)w->n_living)
                broken(w, "there is a lease that nobody was given");
}

/* Everybody leaves, and time passes. What cannot be known is an operator's to decide. */
static void settle(struct walk *w)
{
        static const struct actor operator= { .type = ACTOR_BOARD,
                                              .source = SOURCE_LOCAL_IMPLICIT,
                                              .user_id = LOCAL_BOARD_USER,
                                              .is_instance_admin = true };
        bool calm = w->calm;
        struct engine_op o;

        w->calm = true;
        while (w->n_living > 0)
                do_destroy(w);
        for (int i = 0; i < 3; i++) {
                engine_advance(&w->e, 4000);
                engine_sweep(&w->e);
        }
        if (engine_count(&w->e,
                         "SELECT COUNT(*) FROM places WHERE state <> 'gone' AND "
                         "(state <> 'uncertain' OR driver <> 'blind')",
                         NULL) != 0)
                broken(w, engine_sql(&w->e,
                                     "SELECT 'a place stays for ever: ' || state || ' ' || driver "
                                     "FROM places WHERE state <> 'gone' AND "
                                     "(state <> 'uncertain' OR driver <> 'blind')",
                                     NULL));
        while (engine_count(&w->e, "SELECT COUNT(*) FROM places WHERE state = 'uncertain'", NULL)) {
                engine_op_init(&o);
                o.op.actor = &operator;
                assert_int_equal(leaks_close(&o.op, &w->e.rt,
                                             engine_sql(&w->e,
                                                        "SELECT id FROM places WHERE state = "
                                                        "'uncertain'",
                                                        NULL),
                                             false, NULL),
                                 0);
                engine_op_done(&o);
        }
        if (w->e.n_world != 0)
                broken(w, "something was left in the world");
        if (engine_count(&w->e,
                         "SELECT COUNT(*) FROM environment_leases WHERE cleanup_status = 'pending' "
                         "OR cleanup_status = 'failed'",
                         NULL) != 0)
                broken(w, "a lease says that its clean-up is not done");
        engine_exec(&w->e, "DELETE FROM places", NULL);
        engine_exec(&w->e, "DELETE FROM environment_leases", NULL);
        engine_exec(&w->e, "DELETE FROM activity_log", NULL);
        w->n_places = 0;
        w->calm = calm;
}

static void walk(uint64_t seed, unsigned steps)
{
        struct walk *w = xcalloc(1, sizeof(*w));

        engine_start(&w->e);
        w->places = xcalloc(MAX_PLACES, sizeof(*w->places));
        w->random = seed * 0x9e3779b97f4a7c15u + 1;
        w->e.ctx = w;
        w->e.decide_effect = decide_effect;
        w->e.after_effect = after_effect;
        w->e.decide_write = decide_write;
        for (w->step = 0; w->step < steps; w->step++) {
                operate(w);
                check(w);
                if (w->e.dead) {
                        w->died++;
                        engine_restart(&w->e);
                        model_learn(w);
                }
                if (w->step % 60 == 59)
                        settle(w);
        }
        settle(w);
        print_message(
                "seed %llu: %u steps, %u acquired, %u refused, %u within others, %u crashes\n",
                (unsigned long long)seed, steps, w->acquired, w->refused, w->nested, w->died);
        engine_stop(&w->e);
        free(w->places);
        free(w);
}

static unsigned from_environment(const char *name, unsigned fallback)
{
        const char *text = getenv(name);

        return text ? (unsigned)strtoul(text, NULL, 10) : fallback;
}

/* environment-runtime: whatever happens, the record and the world agree. */
static void test_walk(void **state)
{
        unsigned steps = from_environment("BERTH_WALK_STEPS", 600);
        unsigned seed = from_environment("BERTH_WALK_SEED", 0);

        (void)state;
        for (unsigned i = 1; i <= (seed ? 1 : 5); i++) {
                print_message("seed %u\n", seed ? seed : i);
                walk(seed ? seed : i, steps);
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_walk),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
