/* What a pass of the sweeper does with each lease and place, and how deadlines follow the clock. */
#include "core/leases/sweeper.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/leases/lease.h"
#include "core/leases/stock.h"
#include "core/places/place.h"
#include "core/workspaces/workspace.h"

/* Less is the usual correction of a clock, and too little to move deadlines for. */
#define CLOCK_JUMP_US (10 * US_PER_S)

/* What one pass found, copied out of its snapshot: the work is done afterwards, row by row. */
struct findings {
        struct op *op;
        struct runtime *rt;
        const char *environment_id; /* NULL: all */
        struct sweep_list *list;    /* only look: where something is due; NULL: do it */
        int64_t now;
        struct place *places;
        size_t n_places;
        struct due_lease {
                const char *id, *status, *environment_id, *company_id;
        } * leases;
        size_t n_leases;
        const char *status; /* for the leases being collected */
        const struct place *dead;
};

static bool is_meant(const struct findings *f, const char *environment_id)
{
        return !f->environment_id ||
               streq(f->environment_id, environment_id ? environment_id : SWEEP_NOWHERE);
}

/* Note that something is due there. True: the pass only looks, so nothing more is to do. */
static bool only_looks(struct findings *f, const char *environment_id, const char *company_id)
{
        if (f->list)
                sweep_list_add(f->list, environment_id, company_id);
        return f->list != NULL;
}

static int add_lease(void *ctx, const struct lease *lease)
{
        struct findings *f = ctx;

        if (!is_meant(f, lease->environment_id))
                return 0;
        f->leases = xrealloc(f->leases, (f->n_leases + 1) * sizeof(*f->leases));
        f->leases[f->n_leases++] = (struct due_lease){ lease->id, f->status, lease->environment_id,
                                                       lease->company_id };
        return 0;
}

static int add_place(void *ctx, const struct place *place)
{
        struct findings *f = ctx;

        if (!is_meant(f, place->environment_id))
                return 0;
        f->places = xrealloc(f->places, (f->n_places + 1) * sizeof(*f->places));
        f->places[f->n_places++] = *place;
        return 0;
}

static int look(struct db *db, void *arg, struct err *err)
{
        struct findings *f = arg;
        int r;

        f->status = LEASE_EXPIRED;
        r = leases_expired(db, f->now, f->op->arena, add_lease, f, err);
        f->status = LEASE_RELEASED;
        if (r >= 0)
                r = leases_of_ended_runs(db, false, f->op->arena, add_lease, f, err);
        f->status = LEASE_FAILED;
        if (r >= 0)
                r = leases_of_ended_runs(db, true, f->op->arena, add_lease, f, err);
        if (r >= 0 && f->environment_id && *f->environment_id)
                r = places_of_environment(db, f->environment_id, f->op->arena, add_place, f, err);
        else if (r >= 0)
                r = places_living(db, NULL, f->op->arena, add_place, f, err);
        return r;
}

static int leases_of_dead(struct db *db, void *arg, struct err *err)
{
        struct findings *f = arg;

        return leases_living_of_place(db, f->dead->id, f->op->arena, add_lease, f, err);
}

/* No operation works on the place: its owner is an earlier instance of this node, or its window is
 * over. */
static bool is_abandoned(const struct findings *f, const struct place *p)
{
        if (!place_is_ours(f->rt, p))
                return streq(p->owner_node, f->rt->node.id.s);
        return p->next_attempt_at && p->next_attempt_at <= f->now;
}

/* Moves, each re-reading what it depends on */

struct step {
        struct findings *f;
        const struct op *op; /* the work that follows */
        struct place *place;
        const char *to;
        const char *note;
        bool still_true; /* out: the condition held */
};

/* To another state, whatever happened around it. */
static int move(struct db *db, void *arg, struct err *err)
{
        struct step *s = arg;

        if (s->note)
                s->place->note = s->note;
        if (streq(s->to, PLACE_CLOSING))
                s->place->next_attempt_at = place_closing_until(s->f->rt);
        return place_move(db, s->f->rt, s->place, s->to, err);
}

/* A held place with a living lease is in use; checked in the same transaction as the move. */
static int take_unused(struct db *db, void *arg, struct err *err)
{
        struct step *s = arg;
        int64_t living;
        int r = leases_count_living(db, s->place->id, NULL, &living, err);

        if (r < 0)
                return r;
        s->still_true = living == 0;
        if (!s->still_true)
                return 0;
        s->place->next_attempt_at = place_closing_until(s->f->rt);
        return place_move(db, s->f->rt, s->place, s->to, err);
}

/* The time that one place may take. A stop of the daemon ends it as well. */
static struct op limited_op(const struct findings *f)
{
        struct op limited = *f->op;

        limited.deadline_ms =
                MIN(limited.deadline_ms, clock_mono_ms() + f->rt->settings.close_timeout_ms);
        return limited;
}

/* A lost race means that another operation made progress. */
static int try_move(struct findings *f, const struct op *op, struct place *place, const char *to,
                    const char *note)
{
        CLEAN(err_done) struct err err = { 0 };
        struct step s = { .f = f, .op = op, .place = place, .to = to, .note = note };
        int r;

        FAULT("sweep.move.before");
        r = store_write(f->op, f->rt->store, move, &s, &err);
        FAULT("sweep.move.after");
        if (r < 0 && r != ERR_CONFLICT)
                log_warn("could not take up a place", LOG_S("place", place->id),
                         LOG_S("error", err.msg));
        return r;
}

static void close_place(struct findings *f, struct place *place, const char *note,
                        struct sweep_result *res)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op limited = limited_op(f);

        if (only_looks(f, place->environment_id, place->company_id))
                return;
        if (try_move(f, &limited, place, PLACE_CLOSING, note) < 0)
                return;
        if (lease_finish_closing(&limited, f->rt, place, &err) >= 0) {
                res->closed++;
                return;
        }
        res->failed++;
        log_warn("a place could not be closed; it will be tried again", LOG_S("place", place->id),
                 LOG_S("driver", place->driver), LOG_I("attempts", place->attempts),
                 LOG_S("error", err.msg));
}

/* By state */

static void heal_intended(struct findings *f, struct place *place, struct sweep_result *res)
{
        if (!is_abandoned(f, place))
                return;
        if (kind_can_find(f->rt, place))
                close_place(f, place, "left behind while it was opened", res);
        else if (!only_looks(f, place->environment_id, place->company_id))
                (void)try_move(f, f->op, place, PLACE_UNCERTAIN,
                               "left behind while the provider was asked to open it");
}

static void end_lease(struct findings *f, const struct due_lease *due, struct sweep_result *res)
{
        CLEAN(err_done) struct err err = { 0 };
        struct lease_record record;
        int r;

        if (only_looks(f, due->environment_id, due->company_id))
                return;
        r = lease_release(f->op, f->rt, due->id, due->status, &record, &err);
        if (r < 0) {
                log_warn("could not end a lease", LOG_S("lease", due->id), LOG_S("error", err.msg));
                res->failed++;
        } else if (streq(due->status, LEASE_EXPIRED)) {
                res->expired++;
                atomic_fetch_add(&f->rt->counters.leases_expired, 1);
        } else {
                res->released++;
        }
}

/* The place of these leases is gone. Only for a place at rest: work under way belongs to its
 * operation. */
static void end_leases_of_dead(struct findings *f, struct place *place, struct sweep_result *res)
{
        size_t first = f->n_leases;

        if (place->next_attempt_at || !streq(place->owner_node, f->rt->node.id.s) ||
            !kind_is_dead(f->rt, place) || only_looks(f, place->environment_id, place->company_id))
                return;
        log_warn("a sandbox has ended by itself", LOG_S("place", place->id));
        f->status = LEASE_FAILED;
        f->dead = place;
        if (store_read(f->op, f->rt->store, leases_of_dead, f, NULL) < 0)
                return;
        for (size_t i = first; i < f->n_leases; i++)
                end_lease(f, &f->leases[i], res);
        f->n_leases = first;
}

static void heal_held(struct findings *f, struct place *place, struct sweep_result *res)
{
        CLEAN(err_done) struct err err = { 0 };
        bool reusable = streq(place->policy, POLICY_REUSE_ENVIRONMENT);
        struct op limited = limited_op(f);
        struct step s = {
                .f = f,
                .op = &limited,
                .place = place,
                .to = reusable ? PLACE_HELD : PLACE_CLOSING,
        };
        int r;

        end_leases_of_dead(f, place, res);
        if (!is_abandoned(f, place) || only_looks(f, place->environment_id, place->company_id))
                return;
        FAULT("sweep.unused.before");
        r = store_write(f->op, f->rt->store, take_unused, &s, &err);
        FAULT("sweep.unused.after");
        if (r < 0 || !s.still_true)
                return;
        r = reusable ? lease_finish_parking(&limited, f->rt, place, &err)
                     : lease_finish_closing(&limited, f->rt, place, &err);
        if (r < 0)
                res->failed++;
        else if (reusable)
                res->parked++;
        else
                res->closed++;
}

static void heal_closing(struct findings *f, struct place *place, struct sweep_result *res)
{
        bool due = place->next_attempt_at <= f->now;

        if (due && workspace_is_busy(f->op, f->rt, place->id))
                return; /* its changes are being saved, which may take long */
        if (due || (!place_is_ours(f->rt, place) && is_abandoned(f, place)))
                close_place(f, place, NULL, res);
}

/* An uncertain place that its kind can find by our tag is settled by closing it: closing what is
 * not there succeeds. */
static void heal_uncertain(struct findings *f, struct place *place, struct sweep_result *res)
{
        if (kind_can_find(f->rt, place) && place->next_attempt_at <= f->now)
                close_place(f, place, NULL, res);
}

struct wanted {
        struct findings *f;
        const struct place *place;
        bool yes;
};

/* Whether the environment is still there, active, and would still take this place. */
static int ask_wanted(struct db *db, void *arg, struct err *err)
{
        struct wanted *q = arg;
        const struct kind *kind = kind_of_place(q->f->rt, q->place);
        struct environment env;
        int r = environments_get(db, q->place->environment_id, q->f->op->arena, &env, err);

        if (r >= 0 && streq(q->place->policy, POLICY_STOCK)) {
                r = stock_is_wanted(db, q->f->rt, &env, q->place, q->f->op->arena, &q->yes, err);
                q->yes = q->yes && kind_matches(kind, q->place->config, env.config) &&
                         streq(env.status, "active");
                return r;
        }
        q->yes = r >= 0 && kind && streq(env.status, "active") &&
                 streq(env.driver, q->place->driver) &&
                 kind_matches(kind, q->place->config, env.config);
        return r == ERR_NOT_FOUND ? 0 : r;
}

static void heal_ready(struct findings *f, struct place *place, struct sweep_result *res)
{
        struct wanted q = { .f = f, .place = place, .yes = true };
        bool over = place->deadline_at && place->deadline_at <= f->now;

        if (kind_is_dead(f->rt, place)) {
                close_place(f, place, "it ended by itself", res);
                return;
        }
        if (!over && store_read(f->op, f->rt->store, ask_wanted, &q, NULL) < 0)
                return;
        if (over || !q.yes)
                close_place(f, place, over ? "idle for too long" : "no longer wanted", res);
}

static void heal_place(struct findings *f, struct place *place, struct sweep_result *res)
{
        if (place_is_foreign(f->rt, place))
                return;
        if (streq(place->state, PLACE_INTENDED))
                heal_intended(f, place, res);
        else if (streq(place->state, PLACE_HELD))
                heal_held(f, place, res);
        else if (streq(place->state, PLACE_CLOSING))
                heal_closing(f, place, res);
        else if (streq(place->state, PLACE_UNCERTAIN))
                heal_uncertain(f, place, res);
        else if (streq(place->state, PLACE_READY))
                heal_ready(f, place, res);
}

static int sweep_findings(struct findings *f, struct sweep_result *res, struct err *err)
{
        int r;

        f->now = clock_steady_us();
        r = store_read(f->op, f->rt->store, look, f, err);
        for (size_t i = 0; r >= 0 && i < f->n_leases; i++) {
                end_lease(f, &f->leases[i], res);
                r = op_check(f->op, err);
        }
        for (size_t i = 0; r >= 0 && i < f->n_places; i++) {
                heal_place(f, &f->places[i], res);
                r = op_check(f->op, err);
        }
        free(f->leases);
        free(f->places);
        return r;
}

int sweep_look(struct op *op, struct runtime *rt, struct sweep_list *list, struct err *err)
{
        struct findings f = { .op = op, .rt = rt, .list = list };
        struct sweep_result nothing = { 0 };

        return sweep_findings(&f, &nothing, err);
}

int sweep(struct op *op, struct runtime *rt, const char *environment_id, struct sweep_result *ret,
          struct err *err)
{
        struct findings f = { .op = op, .rt = rt, .environment_id = environment_id };

        *ret = (struct sweep_result){ 0 };
        return sweep_findings(&f, ret, err);
}

struct jump {
        int64_t delta_us;
        bool followed; /* our clock was moved */
};

/* Our clock moves in the same transaction as the rows, so that a deadline is written before both or
 * after both. */
static int shift(struct db *db, void *arg, struct err *err)
{
        struct jump *j = arg;
        int r = leases_shift_expiry(db, j->delta_us, err);

        if (r >= 0)
                r = places_shift_times(db, j->delta_us, err);
        if (r >= 0) {
                clock_steady_add(j->delta_us);
                j->followed = true;
        }
        return r;
}

int sweep_follow_clock(struct op *op, struct runtime *rt, int64_t *ret_jump_us, struct err *err)
{
        struct jump j = { .delta_us = clock_steady_lag_us() };
        int r;

        *ret_jump_us = 0;
        if (j.delta_us <= CLOCK_JUMP_US && j.delta_us >= -CLOCK_JUMP_US) {
                clock_steady_add(j.delta_us);
                return 0;
        }
        r = store_write(op, rt->store, shift, &j, err);
        if (r >= 0)
                *ret_jump_us = j.delta_us;
        else if (j.followed)
                clock_steady_add(-j.delta_us);
        return r;
}
