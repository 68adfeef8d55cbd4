/* How many places an environment wants in advance, and making, finding and discarding them. */
#include "core/leases/stock.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/leases/lease.h"
#include "core/places/place.h"
#include "core/sandboxes/sandbox_host.h"

static int64_t wanted_by(const struct runtime *rt, const struct environment *env)
{
        const struct kind *kind = kind_of_environment(rt, env);
        CLEAN(json_decrefp) json_t *config = NULL;

        if (!kind || !kind->stock_size)
                return 0;
        (void)json_parse(env->config, strlen(env->config), &config, NULL);
        return kind->stock_size(config);
}

static bool is_stock(const struct place *p)
{
        return streq(p->policy, POLICY_STOCK) &&
               (streq(p->state, PLACE_READY) || streq(p->state, PLACE_INTENDED));
}

int stock_find(struct op *op, struct runtime *rt, const struct environment *env,
               const struct kind *kind, const char *config, struct place *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct place *places;
        int n = store_read_begin(op, rt->store, &db, err);

        if (n >= 0)
                n = places_of_environment(db, env->id, op->arena, &places, err);
        for (int i = 0; i < n; i++)
                if (is_stock(&places[i]) && streq(places[i].state, PLACE_READY) &&
                    streq(places[i].driver, kind->driver) &&
                    kind_matches(kind, places[i].config, config)) {
                        *ret = places[i];
                        return 1;
                }
        return MIN(n, 0);
}

void stock_discard(struct op *op, struct runtime *rt, struct place *place)
{
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);

        (void)lease_close_place(&shield, rt, place, "it ended by itself", NULL);
}

void stock_want(struct runtime *rt)
{
        if (rt->sandbox && rt->sandbox->want_stock)
                rt->sandbox->want_stock(rt->sandbox->want_arg);
}

/* Holding */

void stock_hold(struct runtime *rt, struct stock_hold *hold, const char *environment_id)
{
        *hold = (struct stock_hold){ .environment_id = environment_id };
        if (!rt->sandbox)
                return;
        pthread_mutex_lock(&rt->sandbox->holds_lock);
        hold->next = rt->sandbox->holds;
        rt->sandbox->holds = hold;
        pthread_mutex_unlock(&rt->sandbox->holds_lock);
}

void stock_unhold(struct runtime *rt, struct stock_hold *hold)
{
        struct stock_hold **at;

        if (!rt->sandbox)
                return;
        pthread_mutex_lock(&rt->sandbox->holds_lock);
        for (at = &rt->sandbox->holds; *at != hold; at = &(*at)->next)
                ;
        *at = hold->next;
        pthread_mutex_unlock(&rt->sandbox->holds_lock);
}

static bool stock_is_held(struct runtime *rt, const char *environment_id)
{
        const struct stock_hold *hold = NULL;

        if (!rt->sandbox)
                return false;
        pthread_mutex_lock(&rt->sandbox->holds_lock);
        for (hold = rt->sandbox->holds; hold && !streq(hold->environment_id, environment_id);
             hold = hold->next)
                ;
        pthread_mutex_unlock(&rt->sandbox->holds_lock);
        return hold != NULL;
}

/* How many there are for a configuration: all, or those with an id below `before`. */
static int count_stock(struct db *db, const struct kind *kind, const struct environment *env,
                       const char *before, struct arena *arena, int64_t *ret, struct err *err)
{
        struct place *places;
        int n = places_of_environment(db, env->id, arena, &places, err);

        *ret = 0;
        for (int i = 0; i < n; i++)
                *ret += is_stock(&places[i]) && kind_matches(kind, places[i].config, env->config) &&
                        (!before || strcmp(places[i].id, before) < 0);
        return n;
}

int stock_is_wanted(struct db *db, struct runtime *rt, const struct environment *env,
                    const struct place *place, struct arena *arena, bool *ret, struct err *err)
{
        int64_t older;
        int r = count_stock(db, kind_of_place(rt, place), env, place->id, arena, &older, err);

        /* The oldest ones stay when there are more than wanted. */
        *ret = r >= 0 && older < MIN(wanted_by(rt, env), rt->settings.sandbox_pool_max);
        return r;
}

/* Making one */

struct making {
        struct op *op;
        struct runtime *rt;
        const struct environment *env;
        const struct kind *kind;
        struct place place;
        struct provider_lease opened;
};

/* Checked again in the transaction that writes the intent: several threads may make places, and the
 * environment may have changed. 1: nothing is missing. */
static int stock_intend(struct db *db, void *arg, struct err *err)
{
        struct making *m = arg;
        struct environment now;
        int64_t made, all;
        int r = environments_get(db, m->env->id, m->op->arena, &now, err);

        if (r < 0)
                return r == ERR_NOT_FOUND ? 1 : r;
        if (!streq(now.status, "active") || !streq(now.config, m->env->config) ||
            stock_is_held(m->rt, now.id))
                return 1;
        r = count_stock(db, m->kind, &now, NULL, m->op->arena, &made, err);
        if (r >= 0)
                r = places_count_policy(db, POLICY_STOCK, &all, err);
        if (r < 0)
                return r;
        if (made >= wanted_by(m->rt, &now) || all >= m->rt->settings.sandbox_pool_max)
                return 1;
        m->place.next_attempt_at = place_busy_until(m->rt);
        r = place_create(db, m->rt, &m->place, PLACE_INTENDED, err);
        if (r >= 0 && m->kind->claim)
                r = m->kind->claim(db, m->rt, &m->place, m->op->arena, err);
        return r;
}

/* 0: made, 1: none is missing. */
static int stock_make(struct making *m, struct err *err)
{
        struct lease_request nobody = { 0 };
        struct op shield;

        m->place = (struct place){
                .id = arena_strdup(m->op->arena, uuid_new().s),
                .company_id = m->env->company_id,
                .environment_id = m->env->id,
                .driver = m->kind->driver,
                .provider = m->kind->provider,
                .config = m->env->config,
                .policy = POLICY_STOCK,
                .has_world = true,
        };
        m->opened = (struct provider_lease){ 0 };
        FAULT("sandbox.stock_intend.before");
        int r = store_write(m->op, m->rt->store, stock_intend, m, err);
        FAULT("sandbox.stock_intend.after");
        if (r != 0)
                return r;
        r = m->kind->open(m->op, m->rt, &m->place, &nobody, &m->opened, err);
        FAULT("sandbox.stock_open.after");
        if (r < 0) {
                const char *note = arena_strdup(m->op->arena, err->msg);

                shield = op_shield(m->op, m->rt->settings.close_timeout_ms);
                if (r == ERR_UNCERTAIN || r == ERR_TIMEOUT || r == ERR_CANCELLED)
                        (void)lease_close_place(&shield, m->rt, &m->place, note, NULL);
                else
                        (void)place_commit_move(&shield, m->rt, &m->place, PLACE_GONE, note, NULL);
                return r;
        }
        m->place.provider_lease_id = m->opened.id;
        r = place_commit_move(m->op, m->rt, &m->place, PLACE_READY, NULL, err);
        FAULT("sandbox.stock_ready.after");
        if (r < 0) {
                shield = op_shield(m->op, m->rt->settings.close_timeout_ms);
                (void)lease_close_place(&shield, m->rt, &m->place, "could not be recorded", NULL);
        }
        return r;
}

/* Filling */

static unsigned stock_fill_one(struct op *op, struct runtime *rt, const struct environment *env)
{
        CLEAN(err_done) struct err err = { 0 };
        struct making m = { .op = op, .rt = rt, .env = env, .kind = kind_of_environment(rt, env) };
        unsigned made = 0;
        int r = m.kind ? 0 : 1;

        while (r == 0 && op_check(op, NULL) >= 0) {
                r = stock_make(&m, &err);
                if (r == 0)
                        made++;
        }
        if (r < 0 && r != ERR_CANCELLED)
                log_warn("could not make a sandbox in advance", LOG_S("environment", env->id),
                         LOG_S("error", err.msg));
        return made;
}

int stock_fill(struct op *op, struct runtime *rt, unsigned *ret_made, struct err *err)
{
        *ret_made = 0;
        for (const struct kind *const *k = rt->kinds; *k; k++) {
                CLEAN(store_read_end) struct db *db = NULL;
                struct environment *list;
                int n;

                if (!(*k)->stock_size)
                        continue;
                n = store_read_begin(op, rt->store, &db, err);
                if (n >= 0)
                        n = environments_of_driver(db, (*k)->driver, "active", op->arena, &list,
                                                   err);
                store_read_end(&db);
                if (n < 0)
                        return n;
                for (int i = 0; i < n; i++)
                        if (wanted_by(rt, &list[i]) > 0)
                                *ret_made += stock_fill_one(op, rt, &list[i]);
        }
        return 0;
}
