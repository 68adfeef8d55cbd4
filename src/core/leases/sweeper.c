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

/* One pass: what it found is copied out of its snapshot, and the work is done afterwards, row by
 * row. */
struct pass {
        struct op *op;
        struct runtime *rt;
        const char *environment_id; /* NULL: all */
        struct sweep_list *list;    /* only look: where something is due; NULL: do it */
        int64_t now;
        struct sweep_result *res;
};

static bool is_meant(const struct pass *f, const char *environment_id)
{
        return !f->environment_id ||
               streq(f->environment_id, environment_id ? environment_id : SWEEP_NOWHERE);
}

/* Note that something is due there. True: the pass only looks, so nothing more is to do. */
static bool only_looks(const struct pass *f, const char *environment_id, const char *company_id)
{
        if (f->list)
                sweep_list_add(f->list, environment_id, company_id);
        return f->list != NULL;
}

/* No operation works on the place: its owner is an earlier instance of this node, or its window is
 * over. */
static bool is_abandoned(const struct pass *f, const struct place *p)
{
        if (!place_is_ours(f->rt, p))
                return streq(p->owner_node, f->rt->node.id.s);
        return p->next_attempt_at && p->next_attempt_at <= f->now;
}

/* Moves, each re-reading what it depends on */

struct unused {
        struct runtime *rt;
        struct place *place;
        const char *to;
        bool is_unused; /* out */
};

/* A held place with a living lease is in use; checked in the same transaction as the move. */
static int sweep_take_unused(struct db *db, void *arg, struct err *err)
{
        struct unused *u = arg;
        int64_t living;
        int r = leases_count_living(db, u->place->id, NULL, &living, err);

        u->is_unused = r >= 0 && living == 0;
        if (!u->is_unused)
                return r;
        db_keep(db, u->place, sizeof(*u->place));
        u->place->next_attempt_at = place_closing_until(u->rt);
        return place_move(db, u->rt, u->place, u->to, err);
}

/* The time that one place may take. A stop of the daemon ends it as well. */
static struct op limited_op(const struct pass *f)
{
        struct op limited = *f->op;

        limited.deadline_ms =
                MIN(limited.deadline_ms, clock_mono_ms() + f->rt->settings.close_timeout_ms);
        return limited;
}

/* A lost race means that another operation made progress. */
static int sweep_move(const struct pass *f, struct place *place, const char *to, const char *note)
{
        CLEAN(err_done) struct err err = { 0 };

        FAULT("sweep.move.before");
        int r = place_commit_move(f->op, f->rt, place, to, note, &err);
        FAULT("sweep.move.after");
        if (r < 0 && r != ERR_CONFLICT)
                log_warn("could not take up a place", LOG_S("place", place->id),
                         LOG_S("error", err.msg));
        return r;
}

static void close_place(const struct pass *f, struct place *place, const char *note)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op limited = limited_op(f);

        if (only_looks(f, place->environment_id, place->company_id))
                return;
        if (sweep_move(f, place, PLACE_CLOSING, note) < 0)
                return;
        if (lease_finish_closing(&limited, f->rt, place, &err) >= 0) {
                f->res->closed++;
                return;
        }
        f->res->failed++;
        log_warn("a place could not be closed; it will be tried again", LOG_S("place", place->id),
                 LOG_S("driver", place->driver), LOG_I("attempts", place->attempts),
                 LOG_S("error", err.msg));
}

static void end_lease(const struct pass *f, const struct lease *lease, const char *status)
{
        CLEAN(err_done) struct err err = { 0 };
        struct lease_record record;

        if (only_looks(f, lease->environment_id, lease->company_id))
                return;
        if (lease_release(f->op, f->rt, lease->id, status, &record, &err) < 0) {
                log_warn("could not end a lease", LOG_S("lease", lease->id),
                         LOG_S("error", err.msg));
                f->res->failed++;
        } else if (streq(status, LEASE_EXPIRED)) {
                f->res->expired++;
                atomic_fetch_add(&f->rt->counters.leases_expired, 1);
        } else {
                f->res->released++;
        }
}

/* By state */

static void heal_intended(const struct pass *f, struct place *place)
{
        if (!is_abandoned(f, place))
                return;
        if (kind_can_find(f->rt, place))
                close_place(f, place, "left behind while it was opened");
        else if (!only_looks(f, place->environment_id, place->company_id))
                (void)sweep_move(f, place, PLACE_UNCERTAIN,
                                 "left behind while the provider was asked to open it");
}

/* The place of these leases is gone. Only for a place at rest: work under way belongs to its
 * operation. */
static void end_leases_of_dead(const struct pass *f, struct place *place)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct lease *leases;

        if (place->next_attempt_at || !streq(place->owner_node, f->rt->node.id.s) ||
            !kind_is_dead(f->rt, place) || only_looks(f, place->environment_id, place->company_id))
                return;
        log_warn("a sandbox has ended by itself", LOG_S("place", place->id));
        int n = store_read_begin(f->op, f->rt->store, &db, NULL);
        if (n >= 0)
                n = leases_living_of_place(db, place->id, f->op->arena, &leases, NULL);
        store_read_end(&db);
        for (int i = 0; i < n; i++)
                end_lease(f, &leases[i], LEASE_FAILED);
}

static void heal_held(const struct pass *f, struct place *place)
{
        CLEAN(err_done) struct err err = { 0 };
        bool reusable = streq(place->policy, POLICY_REUSE_ENVIRONMENT);
        struct op limited = limited_op(f);
        struct unused u = { f->rt, place, reusable ? PLACE_HELD : PLACE_CLOSING, false };

        end_leases_of_dead(f, place);
        if (!is_abandoned(f, place) || only_looks(f, place->environment_id, place->company_id))
                return;
        FAULT("sweep.unused.before");
        int r = store_write(f->op, f->rt->store, sweep_take_unused, &u, &err);
        FAULT("sweep.unused.after");
        if (r < 0 || !u.is_unused)
                return;
        r = reusable ? lease_finish_parking(&limited, f->rt, place, &err)
                     : lease_finish_closing(&limited, f->rt, place, &err);
        if (r < 0)
                f->res->failed++;
        else if (reusable)
                f->res->parked++;
        else
                f->res->closed++;
}

static void heal_closing(const struct pass *f, struct place *place)
{
        bool due = place->next_attempt_at <= f->now;

        if (due && workspace_is_busy(f->op, f->rt, place->id))
                return; /* its changes are being saved, which may take long */
        if (due || (!place_is_ours(f->rt, place) && is_abandoned(f, place)))
                close_place(f, place, NULL);
}

/* An uncertain place that its kind can find by our tag is settled by closing it: closing what is
 * not there succeeds. */
static void heal_uncertain(const struct pass *f, struct place *place)
{
        if (kind_can_find(f->rt, place) && place->next_attempt_at <= f->now)
                close_place(f, place, NULL);
}

/* Whether the environment is still there, active, and would still take this place. */
static int is_wanted(const struct pass *f, const struct place *place, bool *ret)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct kind *kind = kind_of_place(f->rt, place);
        struct environment env;
        int r = store_read_begin(f->op, f->rt->store, &db, NULL);

        *ret = false;
        if (r < 0)
                return r;
        r = environments_get(db, place->environment_id, f->op->arena, &env, NULL);
        if (r < 0)
                return r == ERR_NOT_FOUND ? 0 : r;
        if (streq(place->policy, POLICY_STOCK))
                r = stock_is_wanted(db, f->rt, &env, place, f->op->arena, ret, NULL);
        else
                *ret = kind && streq(env.driver, place->driver);
        *ret = *ret && streq(env.status, "active") && kind_matches(kind, place->config, env.config);
        return r;
}

static void heal_ready(const struct pass *f, struct place *place)
{
        bool over = place->deadline_at && place->deadline_at <= f->now, wanted;

        if (kind_is_dead(f->rt, place))
                close_place(f, place, "it ended by itself");
        else if (over)
                close_place(f, place, "idle for too long");
        else if (is_wanted(f, place, &wanted) >= 0 && !wanted)
                close_place(f, place, "no longer wanted");
}

static const struct {
        const char *state;
        void (*heal)(const struct pass *f, struct place *place);
} heal_by_state[] = {
        { PLACE_INTENDED, heal_intended }, { PLACE_HELD, heal_held },
        { PLACE_CLOSING, heal_closing },   { PLACE_UNCERTAIN, heal_uncertain },
        { PLACE_READY, heal_ready },
};

/* Leases first, then places; each kind of lease that is due ends with a status of its own. */
static int sweep_pass(struct pass *f, struct err *err)
{
        static const char *const statuses[] = { LEASE_EXPIRED, LEASE_RELEASED, LEASE_FAILED };
        CLEAN(store_read_end) struct db *db = NULL;
        struct lease *due[ARRAY_LEN(statuses)] = { NULL };
        struct place *places = NULL;
        int n_due[ARRAY_LEN(statuses)] = { 0 }, n_places = 0, r;
        struct arena *a = f->op->arena;
        bool is_one = f->environment_id && *f->environment_id;

        f->now = clock_steady_us();
        r = store_read_begin(f->op, f->rt->store, &db, err);
        if (r >= 0)
                r = n_due[0] = leases_expired(db, f->now, a, &due[0], err);
        if (r >= 0)
                r = n_due[1] = leases_of_ended_runs(db, false, a, &due[1], err);
        if (r >= 0)
                r = n_due[2] = leases_of_ended_runs(db, true, a, &due[2], err);
        if (r >= 0)
                r = n_places = places_of_environment(db, is_one ? f->environment_id : NULL, a,
                                                     &places, err);
        store_read_end(&db);
        for (size_t k = 0; k < ARRAY_LEN(statuses); k++)
                for (int i = 0; r >= 0 && i < n_due[k]; i++) {
                        if (!is_meant(f, due[k][i].environment_id))
                                continue;
                        end_lease(f, &due[k][i], statuses[k]);
                        r = op_check(f->op, err);
                }
        for (int i = 0; r >= 0 && i < n_places; i++) {
                if (!is_meant(f, places[i].environment_id))
                        continue;
                for (size_t k = 0; k < ARRAY_LEN(heal_by_state); k++)
                        if (streq(places[i].state, heal_by_state[k].state) &&
                            !place_is_foreign(f->rt, &places[i])) {
                                heal_by_state[k].heal(f, &places[i]);
                                break; /* its state is another one now */
                        }
                r = op_check(f->op, err);
        }
        return MIN(r, 0);
}

int sweep_look(struct op *op, struct runtime *rt, struct sweep_list *list, struct err *err)
{
        struct sweep_result nothing = { 0 };
        struct pass f = { .op = op, .rt = rt, .list = list, .res = &nothing };

        return sweep_pass(&f, err);
}

int sweep(struct op *op, struct runtime *rt, const char *environment_id, struct sweep_result *ret,
          struct err *err)
{
        struct pass f = { .op = op, .rt = rt, .environment_id = environment_id, .res = ret };

        *ret = (struct sweep_result){ 0 };
        return sweep_pass(&f, err);
}

struct jump {
        int64_t delta_us;
        bool followed; /* our clock was moved */
};

/* Our clock moves in the same transaction as the rows, so that a deadline is written before both or
 * after both. */
static int sweep_shift_times(struct db *db, void *arg, struct err *err)
{
        struct jump *j = arg;
        int r = leases_shift_expiry(db, j->delta_us, err);

        if (r >= 0)
                r = places_shift_times(db, j->delta_us, err);
        if (r >= 0 && !j->followed) { /* when the transaction is run once more, it has moved */
                clock_steady_add(j->delta_us);
                j->followed = true;
        }
        return r;
}

int sweep_follow_clock(struct op *op, struct runtime *rt, int64_t *ret_jump_us, struct err *err)
{
        struct jump j = { .delta_us = clock_steady_lag_us() };

        *ret_jump_us = 0;
        if (j.delta_us <= CLOCK_JUMP_US && j.delta_us >= -CLOCK_JUMP_US) {
                clock_steady_add(j.delta_us);
                return 0;
        }
        int r = store_write(op, rt->store, sweep_shift_times, &j, err);
        if (r >= 0)
                *ret_jump_us = j.delta_us;
        else if (j.followed)
                clock_steady_add(-j.delta_us);
        return r;
}
