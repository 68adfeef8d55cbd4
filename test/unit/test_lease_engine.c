/* The lease engine, one situation at a time; test_lease_walk.c mixes them. */
#include "base/clock.h"
#include "engine_fixture.h"

struct script {
        struct misdeed effect[EFFECTS]; /* for the next call of its kind */
        struct misdeed write;
        unsigned write_in; /* ... the write after so many; 0: none */
        void (*meanwhile)(struct engine *e);
        enum effect meanwhile_in;
        bool meanwhile_after; /* after the effect, before the answer */
};

static void run_meanwhile(struct engine *e)
{
        struct script *s = e->ctx;
        void (*meanwhile)(struct engine *) = s->meanwhile;

        s->meanwhile = NULL;
        meanwhile(e);
}

static struct misdeed decide_effect(struct engine *e, enum effect effect, struct op *op,
                                    const struct place *place)
{
        struct script *s = e->ctx;
        struct misdeed m = s->effect[effect];

        s->effect[effect] = (struct misdeed){ 0 };
        if (s->meanwhile && s->meanwhile_in == effect && !s->meanwhile_after)
                run_meanwhile(e);
        return m;
}

static void after_effect(struct engine *e, enum effect effect, const struct place *place)
{
        struct script *s = e->ctx;

        if (s->meanwhile && s->meanwhile_in == effect && s->meanwhile_after)
                run_meanwhile(e);
}

static struct misdeed decide_write(struct engine *e, const struct op *op)
{
        struct script *s = e->ctx;

        return s->write_in && --s->write_in == 0 ? s->write : (struct misdeed){ 0 };
}

struct fixture {
        struct engine e;
        struct script script;
        struct engine_op o;
        struct lease_record record;
        struct err err;
};

static int setup(void **state)
{
        struct fixture *f = xcalloc(1, sizeof(*f));

        engine_start(&f->e);
        engine_op_init(&f->o);
        f->e.ctx = &f->script;
        f->e.decide_effect = decide_effect;
        f->e.after_effect = after_effect;
        f->e.decide_write = decide_write;
        *state = f;
        return 0;
}

static int teardown(void **state)
{
        struct fixture *f = *state;
        const char *broken = engine_broken_invariant(&f->e);

        if (broken)
                fail_msg("%s", broken);
        err_done(&f->err);
        engine_op_done(&f->o);
        engine_stop(&f->e);
        free(f);
        return 0;
}

static int acquire(struct fixture *f, const char *environment, const char *run, const char *key)
{
        return engine_acquire(&f->e, &f->o, environment, run, key, 0, &f->record, &f->err);
}

/* State of the one place, or of that of the record. */
static const char *place_state(struct fixture *f, const char *id)
{
        return id ? engine_sql(&f->e, "SELECT state FROM places WHERE id = ?1", id)
                  : engine_sql(&f->e, "SELECT state FROM places ORDER BY created_at DESC, id DESC",
                               NULL);
}

static const char *lease_value(struct fixture *f, const char *sql)
{
        return engine_sql(&f->e, sql, f->record.lease.id);
}

#define STATUS  "SELECT status FROM environment_leases WHERE id = ?1"
#define CLEANUP "SELECT cleanup_status FROM environment_leases WHERE id = ?1"
#define PLACES  "SELECT COUNT(*) FROM places WHERE state <> 'gone'"
#define LEASES  "SELECT COUNT(*) FROM environment_leases"

static void test_acquire_and_release(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), 0);
        assert_string_equal(place_state(f, f->record.lease.place_id), PLACE_HELD);
        assert_int_equal(f->e.n_world, 1);
        assert_string_equal(f->record.lease.status, LEASE_ACTIVE);
        assert_int_equal(f->record.lease.expires_at, 0);
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        assert_string_equal(lease_value(f, STATUS), LEASE_RELEASED);
        assert_string_equal(lease_value(f, CLEANUP), "success");
        assert_string_equal(place_state(f, f->record.lease.place_id), PLACE_GONE);
        assert_int_equal(f->e.n_world, 0);
        /* Whoever ends it second changes nothing. */
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_FAILED), 0);
        assert_string_equal(lease_value(f, STATUS), LEASE_RELEASED);
        assert_int_equal(f->e.calls[EFFECT_CLOSE], 1);
        assert_int_equal(f->e.rt.counters.leases_released, 1);
}

static void test_nobody_to_end_it_means_a_time(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_ONCE, NULL, NULL), 0);
        assert_true(f->record.lease.expires_at > 0);
        engine_sweep(&f->e);
        assert_string_equal(lease_value(f, STATUS), LEASE_ACTIVE);
        engine_advance(&f->e, 901);
        engine_sweep(&f->e);
        assert_string_equal(lease_value(f, STATUS), LEASE_EXPIRED);
        assert_int_equal(f->e.n_world, 0);
}

static void test_open_that_fails(void **state)
{
        struct fixture *f = *state;

        f->script.effect[EFFECT_OPEN].code = ERR_PROVIDER;
        assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), ERR_PROVIDER);
        assert_string_equal(f->err.msg, "told to fail");
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_int_equal(engine_count(&f->e, LEASES, NULL), 0);
        assert_int_equal(f->e.calls[EFFECT_CLOSE], 0);
}

static void open_whose_answer_is_lost(struct fixture *f, int code, bool happens)
{
        f->script.effect[EFFECT_OPEN] = (struct misdeed){ .code = code, .happens = happens };
        assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), code);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_int_equal(f->e.n_world, 0);
        /* Nobody can list what this one has: only an operator can know. */
        f->script.effect[EFFECT_OPEN] = (struct misdeed){ .code = code, .happens = happens };
        assert_int_equal(acquire(f, ENV_BLIND, "run", NULL), code);
        assert_string_equal(place_state(f, NULL), PLACE_UNCERTAIN);
        assert_int_equal(f->e.n_world, happens);
        engine_advance(&f->e, 10000);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_UNCERTAIN);
        assert_int_equal(engine_count(&f->e, LEASES, NULL), 0);
        f->e.n_world = 0;
        engine_exec(&f->e, "DELETE FROM places", NULL);
}

static void test_open_whose_answer_is_lost(void **state)
{
        static const int codes[] = { ERR_UNCERTAIN, ERR_TIMEOUT, ERR_CANCELLED };

        for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
                open_whose_answer_is_lost(*state, codes[i], false);
                open_whose_answer_is_lost(*state, codes[i], true);
        }
}

static void test_cancelled_while_the_provider_worked(void **state)
{
        struct fixture *f = *state;

        f->script.effect[EFFECT_OPEN].cancel = true;
        assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), ERR_CANCELLED);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_int_equal(f->e.n_world, 0);
        assert_int_equal(engine_count(&f->e, LEASES, NULL), 0);
}

static void archive_everything(struct engine *e)
{
        engine_exec(e, "UPDATE environments SET status = 'archived'", NULL);
}

static void test_archived_while_the_provider_worked(void **state)
{
        struct fixture *f = *state;

        f->script.meanwhile = archive_everything;
        f->script.meanwhile_in = EFFECT_OPEN;
        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), ERR_UNPROCESSABLE);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_int_equal(f->e.n_world, 0);
        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), ERR_UNPROCESSABLE);
        assert_int_equal(f->e.calls[EFFECT_OPEN], 1);
}

/* A write of an acquire fails: the intent (1), the lease (2), and in the undoing (2, then 3). */
static void test_writes_that_fail(void **state)
{
        struct fixture *f = *state;

        for (unsigned i = 1; i <= 2; i++) {
                f->script.write_in = i;
                f->script.write.code = ERR_IO;
                assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), ERR_IO);
                assert_int_equal(engine_count(&f->e, PLACES, NULL), 0);
                assert_int_equal(f->e.n_world, 0);
        }
        /* The undoing cannot be written either: the sweeper finds it once nobody works on it. */
        f->script.effect[EFFECT_OPEN].code = ERR_PROVIDER;
        f->script.write_in = 2;
        assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), ERR_PROVIDER);
        assert_string_equal(place_state(f, NULL), PLACE_INTENDED);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_INTENDED);
        engine_advance(&f->e, 4000);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
}

/* The daemon dies at each write and each effect of an acquire, before and after. */
static void test_death_while_acquiring(void **state)
{
        struct fixture *f = *state;

        for (unsigned at = 0; at < 6; at++) {
                f->script = (struct script){ 0 };
                if (at < 2)
                        f->script.effect[EFFECT_OPEN] =
                                (struct misdeed){ .die_before = !at, .die_after = at };
                else
                        f->script.write =
                                (struct misdeed){ .die_before = !(at % 2), .die_after = at % 2 };
                f->script.write_in = at < 2 ? 0 : at / 2;
                assert_true(acquire(f, ENV_ONCE, "run", NULL) < 0);
                assert_true(f->e.dead);
                assert_null(engine_broken_invariant(&f->e));
                engine_restart(&f->e);
                engine_sweep(&f->e);
                if (at == 5) { /* the lease was committed; its holder may still ask for it */
                        assert_int_equal(engine_count(&f->e, LEASES, NULL), 1);
                        assert_int_equal(f->e.n_world, 1);
                } else {
                        assert_int_equal(engine_count(&f->e, PLACES, NULL), 0);
                        assert_int_equal(f->e.n_world, 0);
                }
        }
}

static void test_close_that_fails_is_tried_again(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), 0);
        f->script.effect[EFFECT_CLOSE].code = ERR_PROVIDER;
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        assert_string_equal(lease_value(f, STATUS), LEASE_RELEASED);
        assert_string_equal(lease_value(f, CLEANUP), "failed");
        assert_string_equal(place_state(f, NULL), PLACE_CLOSING);
        assert_int_equal(engine_count(&f->e, "SELECT attempts FROM places", NULL), 1);
        assert_string_equal(engine_sql(&f->e, "SELECT note FROM places", NULL), "told to fail");
        engine_sweep(&f->e); /* not yet */
        assert_string_equal(place_state(f, NULL), PLACE_CLOSING);
        engine_advance(&f->e, 2);
        f->script.effect[EFFECT_CLOSE].code = ERR_PROVIDER;
        engine_sweep(&f->e);
        assert_int_equal(engine_count(&f->e, "SELECT attempts FROM places", NULL), 2);
        engine_advance(&f->e, 3);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_string_equal(lease_value(f, CLEANUP), "success");
        assert_int_equal(f->e.n_world, 0);
}

static void test_reuse(void **state)
{
        struct fixture *f = *state;
        const char *place;

        assert_int_equal(acquire(f, ENV_REUSE, "run-1", NULL), 0);
        place = f->record.lease.place_id;
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        assert_string_equal(place_state(f, place), PLACE_READY);
        assert_int_equal(acquire(f, ENV_REUSE, "run-2", NULL), 0);
        assert_string_equal(f->record.lease.place_id, place);
        assert_int_equal(f->e.calls[EFFECT_OPEN], 1);
        assert_int_equal(f->e.calls[EFFECT_RESUME], 1);
        assert_int_equal(f->e.rt.counters.leases_reused, 1);
        /* Another run's place is busy; the same run's is joined. */
        assert_int_equal(acquire(f, ENV_REUSE, "run-3", NULL), 0);
        assert_string_not_equal(f->record.lease.place_id, place);
        assert_int_equal(acquire(f, ENV_REUSE, "run-2", NULL), 0);
        assert_string_equal(f->record.lease.place_id, place);
        /* It stays held until the last one leaves. */
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        assert_string_equal(place_state(f, place), PLACE_HELD);
        /* A failed lease does not leave its place to others. */
        assert_int_equal(engine_release(&f->e,
                                        engine_sql(&f->e,
                                                   "SELECT id FROM environment_leases WHERE "
                                                   "place_id = ?1 AND status = 'active'",
                                                   place),
                                        LEASE_FAILED),
                         0);
        assert_string_equal(place_state(f, place), PLACE_GONE);
}

static void test_idle_places_go_in_the_end(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), 0);
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        engine_advance(&f->e, 590);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_READY);
        engine_advance(&f->e, 20);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        /* At once when nobody wants it any more. */
        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), 0);
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        engine_exec(&f->e, "UPDATE environments SET config = 'changed'", NULL);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_int_equal(f->e.n_world, 0);
}

static void test_what_cannot_be_resumed_goes(void **state)
{
        struct fixture *f = *state;
        const char *first;

        assert_int_equal(acquire(f, ENV_REUSE, "run-1", NULL), 0);
        first = f->record.lease.place_id;
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        f->script.effect[EFFECT_RESUME].code = ERR_PROVIDER;
        assert_int_equal(acquire(f, ENV_REUSE, "run-2", NULL), 0);
        assert_string_not_equal(f->record.lease.place_id, first);
        assert_string_equal(place_state(f, first), PLACE_GONE);
        assert_int_equal(f->e.n_world, 1);
}

static void test_park_that_fails_closes(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), 0);
        f->script.effect[EFFECT_PARK].code = ERR_PROVIDER;
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        assert_string_equal(lease_value(f, CLEANUP), "failed");
        assert_string_equal(place_state(f, NULL), PLACE_CLOSING);
        engine_advance(&f->e, 2);
        engine_sweep(&f->e);
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_string_equal(lease_value(f, CLEANUP), "success");
}

static void acquire_in_the_same_run(struct engine *e)
{
        struct lease_record record;
        struct engine_op o;

        engine_op_init(&o);
        assert_int_equal(engine_acquire(e, &o, ENV_REUSE, "run", NULL, 0, &record, NULL), 0);
        engine_op_done(&o);
}

/* The place of the ended lease is about to be parked: it is nobody's to join. */
static void test_acquire_while_the_last_lease_parks(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), 0);
        f->script.meanwhile = acquire_in_the_same_run;
        f->script.meanwhile_in = EFFECT_PARK;
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        assert_string_equal(place_state(f, f->record.lease.place_id), PLACE_READY);
        assert_int_equal(f->e.n_world, 2);
}

static void release_all(struct engine *e)
{
        while (engine_count(e, LEASES " WHERE status = 'active'", NULL))
                assert_int_equal(
                        engine_release(e,
                                       engine_sql(e,
                                                  "SELECT id FROM environment_leases WHERE "
                                                  "status = 'active'",
                                                  NULL),
                                       LEASE_RELEASED),
                        0);
}

/* Who joins does not move the place: when it is parked meanwhile, it is taken up again. */
static void test_release_while_another_joins(void **state)
{
        struct fixture *f = *state;
        const char *place;

        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), 0);
        place = f->record.lease.place_id;
        f->script.meanwhile = release_all;
        f->script.meanwhile_in = EFFECT_RESUME;
        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), 0);
        assert_string_equal(f->record.lease.place_id, place);
        assert_string_equal(place_state(f, place), PLACE_HELD);
        assert_true(engine_find(&f->e, place)->in_use);
        assert_int_equal(f->e.calls[EFFECT_PARK], 1);
}

static void sweep_late_and_claim(struct engine *e)
{
        engine_advance(e, 10000);
        engine_sweep(e);
        acquire_in_the_same_run(e);
}

/* The provider took so long that the sweeper wrote the attempt off; another run has the place. */
static void test_resume_that_comes_too_late(void **state)
{
        struct fixture *f = *state;
        const char *place;

        assert_int_equal(acquire(f, ENV_REUSE, "run-1", NULL), 0);
        place = f->record.lease.place_id;
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_RELEASED), 0);
        f->script.meanwhile = sweep_late_and_claim;
        f->script.meanwhile_in = EFFECT_RESUME;
        f->script.meanwhile_after = true;
        assert_int_equal(acquire(f, ENV_REUSE, "run-2", NULL), 0);
        assert_string_not_equal(f->record.lease.place_id, place);
        assert_string_equal(place_state(f, place), PLACE_HELD);
        assert_true(engine_find(&f->e, place)->in_use);
        assert_int_equal(engine_count(&f->e, LEASES " WHERE status = 'active'", NULL), 2);
}

static void sweep_late(struct engine *e)
{
        engine_advance(e, 10000);
        engine_sweep(e);
}

static void test_open_that_comes_too_late(void **state)
{
        struct fixture *f = *state;

        for (int after = 0; after < 2; after++) {
                f->script.meanwhile = sweep_late;
                f->script.meanwhile_in = EFFECT_OPEN;
                f->script.meanwhile_after = after;
                assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), ERR_CONFLICT);
                assert_string_equal(place_state(f, NULL), PLACE_GONE);
                assert_int_equal(f->e.n_world, 0);
        }
}

static void test_idempotency_key(void **state)
{
        struct fixture *f = *state;
        const char *first;

        assert_int_equal(acquire(f, ENV_ONCE, "run", "key"), 0);
        first = f->record.lease.id;
        assert_false(f->record.existed);
        assert_true(acquire(f, ENV_ONCE, "run", "key") >= 0);
        assert_true(f->record.existed);
        assert_string_equal(f->record.lease.id, first);
        assert_int_equal(f->e.n_world, 1);
        assert_true(acquire(f, ENV_ONCE, "run", "other") >= 0);
        assert_string_not_equal(f->record.lease.id, first);
        /* Its answer stays the same when the lease has ended. */
        assert_int_equal(engine_release(&f->e, first, LEASE_RELEASED), 0);
        assert_true(acquire(f, ENV_ONCE, "run", "key") >= 0);
        assert_string_equal(f->record.lease.id, first);
        assert_string_equal(f->record.lease.status, LEASE_RELEASED);
        /* A failed attempt does not use the key up. */
        f->script.effect[EFFECT_OPEN].code = ERR_PROVIDER;
        assert_int_equal(acquire(f, ENV_ONCE, "run", "third"), ERR_PROVIDER);
        assert_int_equal(acquire(f, ENV_ONCE, "run", "third"), 0);
        assert_false(f->record.existed);
}

static void acquire_with_the_key(struct engine *e)
{
        struct lease_record record;
        struct engine_op o;

        engine_op_init(&o);
        assert_int_equal(engine_acquire(e, &o, ENV_REUSE, "run", "key", 0, &record, NULL), 0);
        engine_op_done(&o);
}

/* Both claim an idle place; the second to bind finds the first's lease and gives its own back. */
static void test_one_key_twice_at_the_same_time(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_REUSE, "a", NULL), 0);
        assert_int_equal(acquire(f, ENV_REUSE, "b", NULL), 0);
        release_all(&f->e);
        f->script.meanwhile = acquire_with_the_key;
        f->script.meanwhile_in = EFFECT_RESUME;
        assert_int_equal(acquire(f, ENV_REUSE, "run", "key"), 0);
        assert_true(f->record.existed);
        assert_int_equal(engine_count(&f->e, LEASES " WHERE status = 'active'", NULL), 1);
        assert_int_equal(engine_count(&f->e, PLACES " AND state = 'ready'", NULL), 1);
}

static void test_key_of_an_attempt_under_way_waits_no_longer_than_it_may(void **state)
{
        struct fixture *f = *state;

        f->script.effect[EFFECT_OPEN].die_after = true;
        assert_true(acquire(f, ENV_ONCE, "run", "key") < 0);
        engine_restart(&f->e);
        op_cancel_set(&f->o.cancel);
        assert_int_equal(acquire(f, ENV_ONCE, "run", "key"), ERR_CANCELLED);
        op_cancel_reset(&f->o.cancel);
        engine_sweep(&f->e);
        assert_int_equal(acquire(f, ENV_ONCE, "run", "key"), 0);
        assert_int_equal(f->e.n_world, 1);
}

static void test_retained_on_failure(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_RETAIN, "run", NULL), 0);
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_FAILED), 0);
        assert_string_equal(lease_value(f, STATUS), LEASE_RETAINED);
        assert_string_equal(
                lease_value(f, "SELECT released_at FROM environment_leases WHERE id = ?1"), "-");
        assert_string_equal(place_state(f, NULL), PLACE_HELD);
        engine_advance(&f->e, 100000);
        engine_sweep(&f->e);
        assert_int_equal(f->e.n_world, 1);
        assert_int_equal(engine_release(&f->e, f->record.lease.id, LEASE_FAILED), 0);
        assert_string_equal(lease_value(f, STATUS), LEASE_FAILED);
        assert_int_equal(f->e.n_world, 0);
}

static void test_destroy(void **state)
{
        struct fixture *f = *state;

        assert_int_equal(acquire(f, ENV_REUSE, "run", NULL), 0);
        assert_int_equal(lease_destroy(&f->o.op, &f->e.rt, f->record.lease.id, &f->record, NULL),
                         0);
        assert_string_equal(f->record.lease.status, LEASE_FAILED);
        assert_string_equal(f->record.lease.failure_reason, "failed");
        assert_string_equal(place_state(f, NULL), PLACE_GONE);
        assert_int_equal(lease_destroy(&f->o.op, &f->e.rt, "none", &f->record, NULL),
                         ERR_NOT_FOUND);
}

static int count_released(void *ctx, const struct lease_record *record)
{
        assert_string_equal(record->lease.status, LEASE_RELEASED);
        ++*(int *)ctx;
        return 0;
}

static void test_release_of_a_run_goes_on_past_a_failure(void **state)
{
        struct fixture *f = *state;
        int n = 0;

        for (int i = 0; i < 3; i++)
                assert_int_equal(acquire(f, ENV_ONCE, "run", NULL), 0);
        assert_int_equal(acquire(f, ENV_ONCE, "other", NULL), 0);
        f->script.write.code = ERR_IO;
        f->script.write_in = 1;
        f->script.effect[EFFECT_CLOSE].code = ERR_PROVIDER;
        assert_int_equal(lease_release_run(&f->o.op, &f->e.rt, "run", LEASE_RELEASED,
                                           count_released, &n, &f->err),
                         ERR_IO);
        assert_int_equal(n, 2);
        assert_int_equal(engine_count(&f->e, LEASES " WHERE status = 'active'", NULL), 2);
        assert_int_equal(engine_count(&f->e, LEASES " WHERE cleanup_status = 'failed'", NULL), 1);
        n = 0;
        assert_int_equal(lease_release_run(&f->o.op, &f->e.rt, "run", LEASE_RELEASED,
                                           count_released, &n, &f->err),
                         0);
        assert_int_equal(n, 1);
}

static void test_renew(void **state)
{
        struct fixture *f = *state;
        int64_t first;

        assert_int_equal(acquire(f, ENV_ONCE, NULL, NULL), 0);
        first = f->record.lease.expires_at;
        assert_true(lease_renew(&f->o.op, &f->e.rt, f->record.lease.id, 5000000, &f->record,
                                NULL) >= 0);
        assert_true(f->record.lease.expires_at > first);
        engine_advance(&f->e, 5001);
        assert_int_equal(
                lease_renew(&f->o.op, &f->e.rt, f->record.lease.id, 5000000, &f->record, NULL),
                ERR_CONFLICT);
}

static void test_clock_that_was_set(void **state)
{
        struct fixture *f = *state;
        int64_t first, jump;

        assert_int_equal(acquire(f, ENV_ONCE, NULL, NULL), 0);
        first = f->record.lease.expires_at;
        clock_steady_add(-INT64_C(5000) * US_PER_S); /* the wall clock is ahead: it was set */
        assert_true(sweep_follow_clock(&f->o.op, &f->e.rt, &jump, NULL) >= 0);
        assert_int_equal((jump + US_PER_S / 2) / US_PER_S, 5000);
        engine_sweep(&f->e);
        assert_string_equal(lease_value(f, STATUS), LEASE_ACTIVE);
        assert_true(
                strtoll(lease_value(f, "SELECT expires_at FROM environment_leases WHERE id = ?1"),
                        NULL, 10) >= first + INT64_C(4999) * US_PER_S);
}

#define ENGINE_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                ENGINE_TEST(test_acquire_and_release),
                ENGINE_TEST(test_nobody_to_end_it_means_a_time),
                ENGINE_TEST(test_open_that_fails),
                ENGINE_TEST(test_open_whose_answer_is_lost),
                ENGINE_TEST(test_cancelled_while_the_provider_worked),
                ENGINE_TEST(test_archived_while_the_provider_worked),
                ENGINE_TEST(test_writes_that_fail),
                ENGINE_TEST(test_death_while_acquiring),
                ENGINE_TEST(test_close_that_fails_is_tried_again),
                ENGINE_TEST(test_reuse),
                ENGINE_TEST(test_idle_places_go_in_the_end),
                ENGINE_TEST(test_what_cannot_be_resumed_goes),
                ENGINE_TEST(test_park_that_fails_closes),
                ENGINE_TEST(test_acquire_while_the_last_lease_parks),
                ENGINE_TEST(test_release_while_another_joins),
                ENGINE_TEST(test_resume_that_comes_too_late),
                ENGINE_TEST(test_open_that_comes_too_late),
                ENGINE_TEST(test_idempotency_key),
                ENGINE_TEST(test_one_key_twice_at_the_same_time),
                ENGINE_TEST(test_key_of_an_attempt_under_way_waits_no_longer_than_it_may),
                ENGINE_TEST(test_retained_on_failure),
                ENGINE_TEST(test_destroy),
                ENGINE_TEST(test_release_of_a_run_goes_on_past_a_failure),
                ENGINE_TEST(test_renew),
                ENGINE_TEST(test_clock_that_was_set),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
