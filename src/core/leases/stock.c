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

/* Finding */

struct search {
        struct op *op;
        const struct environment *env;
        const struct kind *kind;
        const char *config;
        struct place *place;
        bool found;
};

static int consider(void *ctx, const struct place *p)
{
        struct search *s = ctx;

        if (s->found || !is_stock(p) || !streq(p->state, PLACE_READY) ||
            !streq(p->driver, s->kind->driver) || !kind_matches(s->kind, p->config, s->config))
                return 0;
        *s->place = *p;
        s->found = true;
        return 0;
}

static int find(struct db *db, void *arg, struct err *err)
{
        struct search *s = arg;

        s->found = false;
        return places_of_environment(db, s->env->id, s->op->arena, consider, s, err);
}

int stock_find(struct op *op, struct runtime *rt, const struct environment *env,
               const struct kind *kind, const char *config, struct place *ret, struct err *err)
{
        struct search s = { op, env, kind, config, ret, false };
        int r = store_read(op, rt->store, find, &s, err);

        return r < 0 ? r : s.found;
}

/* Moving */

struct stock_move {
        struct runtime *rt;
        struct place *place;
        const char *state, *note;
};

static int move(struct db *db, void *arg, struct err *err)
{
        struct stock_move *m = arg;

        if (m->note)
                m->place->note = m->note;
        m->place->next_attempt_at = streq(m->state, PLACE_CLOSING) ? place_closing_until(m->rt) : 0;
        return place_move(db, m->rt, m->place, m->state, err);
}

static int move_to(struct op *op, struct runtime *rt, struct place *place, const char *state,
                   const char *note, struct err *err)
{
        struct stock_move m = { rt, place, state, note };

        return store_write(op, rt->store, move, &m, err);
}

void stock_discard(struct op *op, struct runtime *rt, struct place *place)
{
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);

        if (move_to(&shield, rt, place, PLACE_CLOSING, "it ended by itself", NULL) >= 0)
                (void)lease_finish_closing(&shield, rt, place, NULL);
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

static bool is_held(struct runtime *rt, const char *environment_id)
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

/* Counting */

struct count {
        const struct kind *kind;
        const char *config, *before; /* NULL: all */
        int64_t n;
};

static int count_one(void *ctx, const struct place *p)
{
        struct count *c = ctx;

        if (is_stock(p) && kind_matches(c->kind, p->config, c->config) &&
            (!c->before || strcmp(p->id, c->before) < 0))
                c->n++;
        return 0;
}

int stock_is_wanted(struct db *db, struct runtime *rt, const struct environment *env,
                    const struct place *place, struct arena *arena, bool *ret, struct err *err)
{
        struct count c = { kind_of_place(rt, place), env->config, place->id, 0 };
        int r = places_of_environment(db, env->id, arena, count_one, &c, err);

        /* The oldest ones stay when there are more than wanted. */
        *ret = r >= 0 && c.n < MIN(wanted_by(rt, env), rt->settings.sandbox_pool_max);
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
static int intend(struct db *db, void *arg, struct err *err)
{
        struct making *m = arg;
        struct count c = { m->kind, m->env->config, NULL, 0 };
        struct environment now;
        int64_t all;
        int r = environments_get(db, m->env->id, m->op->arena, &now, err);

        if (r < 0)
                return r == ERR_NOT_FOUND ? 1 : r;
        if (!streq(now.status, "active") || !streq(now.config, m->env->config) ||
            is_held(m->rt, now.id))
                return 1;
        r = places_of_environment(db, now.id, m->op->arena, count_one, &c, err);
        if (r >= 0)
                r = places_count_policy(db, POLICY_STOCK, &all, err);
        if (r < 0)
                return r;
        if (c.n >= wanted_by(m->rt, &now) || all >= m->rt->settings.sandbox_pool_max)
                return 1;
        m->place.next_attempt_at = place_busy_until(m->rt);
        r = place_create(db, m->rt, &m->place, PLACE_INTENDED, err);
        if (r >= 0 && m->kind->claim)
                r = m->kind->claim(db, m->rt, &m->place, m->op->arena, err);
        return r;
}

static void undo(struct making *m, int code, const struct err *cause)
{
        struct op shield = op_shield(m->op, m->rt->settings.close_timeout_ms);
        bool unknown = code == ERR_UNCERTAIN || code == ERR_TIMEOUT || code == ERR_CANCELLED;
        const char *note = arena_strdup(m->op->arena, cause->msg);

        if (!unknown)
                (void)move_to(&shield, m->rt, &m->place, PLACE_GONE, note, NULL);
        else if (move_to(&shield, m->rt, &m->place, PLACE_CLOSING, note, NULL) >= 0)
                (void)lease_finish_closing(&shield, m->rt, &m->place, NULL);
}

/* The place exists, but could not be recorded as ready: it is closed again. */
static void undo_ready(struct making *m)
{
        struct op shield = op_shield(m->op, m->rt->settings.close_timeout_ms);

        if (move_to(&shield, m->rt, &m->place, PLACE_CLOSING, "could not be recorded", NULL) >= 0)
                (void)lease_finish_closing(&shield, m->rt, &m->place, NULL);
}

/* 0: made, 1: none is missing. */
static int make_one(struct making *m, struct err *err)
{
        struct lease_request nobody = { 0 };
        int r;

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
        r = store_write(m->op, m->rt->store, intend, m, err);
        FAULT("sandbox.stock_intend.after");
        if (r != 0)
                return r;
        r = m->kind->open(m->op, m->rt, &m->place, &nobody, &m->opened, err);
        FAULT("sandbox.stock_open.after");
        if (r < 0) {
                undo(m, r, err);
                return r;
        }
        m->place.provider_lease_id = m->opened.id;
        r = move_to(m->op, m->rt, &m->place, PLACE_READY, NULL, err);
        FAULT("sandbox.stock_ready.after");
        if (r < 0)
                undo_ready(m);
        return r;
}

/* Filling */

struct wishes {
        struct op *op;
        struct runtime *rt;
        struct environment *list;
        size_t n;
};

static int add_wish(void *ctx, const struct environment *env)
{
        struct wishes *w = ctx;

        if (wanted_by(w->rt, env) <= 0)
                return 0;
        w->list = xrealloc(w->list, (w->n + 1) * sizeof(*w->list));
        w->list[w->n++] = *env;
        return 0;
}

static int read_wishes(struct db *db, void *arg, struct err *err)
{
        struct wishes *w = arg;
        int r = 0;

        w->n = 0;
        for (const struct kind *const *k = w->rt->kinds; r >= 0 && *k; k++)
                if ((*k)->stock_size)
                        r = environments_of_driver(db, (*k)->driver, "active", w->op->arena,
                                                   add_wish, w, err);
        return r;
}

static unsigned fill_one(struct op *op, struct runtime *rt, const struct environment *env)
{
        CLEAN(err_done) struct err err = { 0 };
        struct making m = { .op = op, .rt = rt, .env = env, .kind = kind_of_environment(rt, env) };
        unsigned made = 0;
        int r = m.kind ? 0 : 1;

        while (r == 0 && op_check(op, NULL) >= 0) {
                r = make_one(&m, &err);
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
        struct wishes w = { .op = op, .rt = rt };
        int r = store_read(op, rt->store, read_wishes, &w, err);

        *ret_made = 0;
        for (size_t i = 0; r >= 0 && i < w.n; i++)
                *ret_made += fill_one(op, rt, &w.list[i]);
        free(w.list);
        return r;
}
