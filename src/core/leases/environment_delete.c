/* Deleting an environment, and the report of what that would touch. No place that exists in the
 * world is forgotten: with living places the delete is refused, or gives them up first when told
 * to. Nor does a record that points at the environment lose it: such records are moved when told
 * to. */
#include "core/leases/environment_delete.h"
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/environments/env_move.h"
#include "core/environments/env_secrets.h"
#include "core/environments/environment.h"
#include "core/leases/lease.h"
#include "core/leases/stock.h"
#include "core/places/place.h"

#define PLACE_POLL_MS 20

struct deletion {
        struct op *op;
        struct runtime *rt;
        const char *id;
        const char *move_to; /* NULL: nothing is moved */
        struct environment *env;
        struct environment_references refs;
        struct env_secrets secrets;
};

static int load_with_references(struct db *db, struct deletion *d, struct err *err)
{
        int r = environment_get_managed(db, d->op, d->id, d->env, err);

        return r < 0 ? r : environments_references(db, d->env, &d->refs, err);
}

static int read_with_references(struct deletion *d, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(d->op, d->rt->store, &db, err);

        return r < 0 ? r : load_with_references(db, d, err);
}

static bool is_managed_local(const struct runtime *rt, const struct environment *env)
{
        const struct kind *kind = kind_of_driver(rt, env->driver);
        CLEAN(json_decrefp) json_t *metadata = NULL;

        if (!kind || !kind->is_managed || !env->metadata)
                return false;
        (void)json_parse(env->metadata, strlen(env->metadata), &metadata, NULL);
        return json_is_true(json_object_get(metadata, "managedByPaperclip"));
}

/* Why the environment itself prevents the delete: it is the managed one, or has living places. */
static json_t *blocking_reasons(const struct deletion *d)
{
        const struct environment_references *r = &d->refs;
        json_t *list = json_array();

        if (is_managed_local(d->rt, d->env))
                json_array_append_new(list, json_string("managed_local"));
        if (r->active_leases > 0 || r->living_places > r->idle_places + r->closing_places)
                json_array_append_new(list, json_string("active_lease"));
        if (r->idle_places > 0)
                json_array_append_new(list, json_string("reusable_sandbox_lease"));
        if (r->closing_places > 0)
                json_array_append_new(list, json_string("pending_sandbox_cleanup"));
        return list;
}

static int environment_remove(struct db *db, void *arg, struct err *err)
{
        struct deletion *d = arg;
        int r = load_with_references(db, d, err);

        if (r < 0)
                return r;
        json_t *blocked = blocking_reasons(d);
        if (json_array_size(blocked) > 0) {
                json_t *details = json_pack("{s:o}", "deleteBlockedReasons", blocked);

                r = err_set(err, ERR_CONFLICT,
                            is_managed_local(d->rt, d->env)
                                    ? "Environment \"%s\" belongs to its company and cannot be "
                                      "deleted; "
                                      "archive it instead."
                                    : "Environment \"%s\" still has living leases or sandboxes. "
                                      "Release "
                                      "them first, or delete with closeLeases=true.",
                            d->env->name);
                err_details(err, json_to_text(details));
                json_decref(details);
                return r;
        }
        json_decref(blocked);
        if (d->refs.pointing > 0)
                r = d->move_to ? env_move(db, d->rt, d->op, d->env, &d->refs, d->move_to, err)
                               : env_move_refuse(d->env, &d->refs, "deleted", err);
        if (r >= 0)
                r = environments_clear_bindings(db, d->env, err);
        if (r >= 0)
                r = env_secrets_remove(db, d->op, d->rt, d->env, &d->secrets, err);
        if (r >= 0)
                r = audit(db, d->op, d->env->company_id, "environment.deleted", "environment",
                          d->env->id,
                          json_pack("{s:s, s:s, s:s}", "name", d->env->name, "driver",
                                    d->env->driver, "status", d->env->status),
                          err);
        return r < 0 ? r : environments_delete(db, d->id, err);
}

static int delete_row(struct deletion *d, struct err *err)
{
        FAULT("environment.delete.before");
        int r = store_write(d->op, d->rt->store, environment_remove, d, err);
        FAULT("environment.delete.after");
        return r;
}

/* Giving up living places */

struct living {
        struct op *op;
        struct runtime *rt;
        const char *environment_id;
        struct place *places; /* the idle ones, now `closing` */
        int n_places;
        bool is_moving; /* this process works on a place: its state will change soon */
};

/* Idle places of the environment go from ready to closing in one transaction. Places that a lease
 * or the pool is just opening, and those that the sweeper is just closing, are left to them. */
static int environment_retire_places(struct db *db, void *arg, struct err *err)
{
        struct living *l = arg;
        int n = places_of_environment(db, l->environment_id, l->op->arena, &l->places, err);

        l->n_places = 0;
        l->is_moving = false;
        for (int i = 0; i < n; i++) {
                struct place *place = &l->places[i];
                int r;

                if (!streq(place->state, PLACE_READY)) {
                        bool is_stuck = streq(place->state, PLACE_UNCERTAIN) ||
                                        (streq(place->state, PLACE_CLOSING) && place->attempts > 0);

                        l->is_moving = l->is_moving || (!is_stuck && place_is_ours(l->rt, place));
                        continue;
                }
                place->next_attempt_at = place_closing_until(l->rt);
                r = place_move(db, l->rt, place, PLACE_CLOSING, err);
                if (r < 0)
                        return r;
                l->places[l->n_places++] = *place;
        }
        return n;
}

/* One pass: leased places are released, idle places are closed. */
static int give_up_what_is_there(struct living *l, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct lease_record ignored;
        struct lease *leases;
        int n, r = store_read_begin(l->op, l->rt->store, &db, err);

        n = r < 0 ? r
                  : leases_living_of_environment(db, l->environment_id, l->op->arena, &leases, err);
        store_read_end(&db);
        r = MIN(n, 0);
        for (int i = 0; r >= 0 && i < n; i++)
                r = lease_release(l->op, l->rt, leases[i].id, LEASE_EXPIRED, &ignored, err);
        FAULT("environment.retire.before");
        if (r >= 0)
                r = store_write(l->op, l->rt->store, environment_retire_places, l, err);
        FAULT("environment.retire.after");
        for (int i = 0; r >= 0 && i < l->n_places; i++)
                r = lease_finish_closing(l->op, l->rt, &l->places[i], err);
        return r;
}

/* A place that is being opened is waited for, until it is leased or idle and the next pass gives it
 * up. */
static int give_up_all(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        struct living l = { .op = op, .rt = rt, .environment_id = id };
        int64_t until_ms = clock_mono_ms() + 2 * rt->settings.close_timeout_ms;
        int r;

        do
                r = give_up_what_is_there(&l, err);
        while (r >= 0 && l.is_moving && clock_mono_ms() < until_ms &&
               (r = op_wait_fd(op, -1, 0, PLACE_POLL_MS, err)) >= 0);
        return r;
}

/* The pool makes no more places meanwhile. If places are left in the end, environment_remove()
 * refuses. */
static int give_up_and_delete(struct deletion *d, struct err *err)
{
        struct stock_hold hold;
        int r;

        stock_hold(d->rt, &hold, d->id);
        r = give_up_all(d->op, d->rt, d->id, err);
        if (r >= 0)
                r = delete_row(d, err);
        stock_unhold(d->rt, &hold);
        return r;
}

int environment_give_up(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        struct stock_hold hold;
        int r;

        stock_hold(rt, &hold, id);
        r = give_up_all(op, rt, id, err);
        stock_unhold(rt, &hold);
        return r;
}

int environment_delete(struct op *op, struct runtime *rt, const char *id, bool close_leases,
                       const char *move_to, struct environment *ret, struct err *err)
{
        struct deletion d = { .op = op, .rt = rt, .id = id, .move_to = move_to, .env = ret };
        int r = read_with_references(&d, err);

        if (r >= 0 && d.refs.pointing > 0 && !move_to && !is_managed_local(rt, ret))
                r = env_move_refuse(ret, &d.refs, "deleted", err);
        if (r < 0)
                return r;
        r = close_leases && !is_managed_local(rt, ret) ? give_up_and_delete(&d, err)
                                                       : delete_row(&d, err);
        if (r < 0)
                env_secrets_abandon(op, &d.secrets);
        else
                env_secrets_finish(op, rt, &d.secrets);
        for (const struct kind *const *k = rt->kinds; r >= 0 && *k; k++)
                if ((*k)->forget_environment)
                        (*k)->forget_environment(rt, ret->id);
        return r;
}

int environment_blast_radius(struct op *op, struct runtime *rt, const char *id,
                             struct blast_radius *ret, struct err *err)
{
        struct environment env;
        struct deletion d = { .op = op, .rt = rt, .id = id, .env = &env };
        int r = read_with_references(&d, err);

        if (r < 0)
                return r;
        *ret = (struct blast_radius){ .refs = d.refs,
                                      .is_managed_local = is_managed_local(rt, &env),
                                      .blocked = blocking_reasons(&d) };
        env_move_reasons(&d.refs, ret->blocked);
        return 0;
}
