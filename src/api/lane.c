/* The table of what a route's first parameter names, and how the lane is found by it. Whoever may
 * not see the thing is not put into its lane: the handler refuses that call, and it must not fill
 * the queue of others. */
#include "api/lane.h"

#include <stdio.h>

#include "store/environments.h"
#include "store/leases.h"
#include "store/places.h"
#include "store/secrets.h"
#include "store/vault_configs.h"

struct lane_search {
        struct call *c;
        const char *id;         /* of the first parameter */
        const char *company_id; /* NULL: of the instance */
        const char *environment_id;
};

static int find_by_environment(struct db *db, struct lane_search *s, struct err *err)
{
        struct environment env;
        int r = environments_get(db, s->id, s->c->op->arena, &env, err);

        if (r >= 0) {
                s->company_id = env.company_id;
                s->environment_id = env.id;
        }
        return r;
}

static int find_by_lease(struct db *db, struct lane_search *s, struct err *err)
{
        struct lease lease;
        int r = leases_get(db, s->id, s->c->op->arena, &lease, err);

        if (r >= 0) {
                s->company_id = lease.company_id;
                s->environment_id = lease.environment_id;
        }
        return r;
}

static int take_first_lease(void *ctx, const struct lease *lease)
{
        struct lane_search *s = ctx;

        if (!s->environment_id) {
                s->company_id = lease->company_id;
                s->environment_id = lease->environment_id;
        }
        return 0;
}

/* A run has one lease as a rule. */
static int find_by_run(struct db *db, struct lane_search *s, struct err *err)
{
        int r = leases_active_of_run(db, s->id, s->c->op->arena, take_first_lease, s, err);

        return r >= 0 && !s->company_id ? ERR_NOT_FOUND : r;
}

static int find_by_place(struct db *db, struct lane_search *s, struct err *err)
{
        struct place place;
        int r = places_get(db, s->id, s->c->op->arena, &place, err);

        if (r >= 0) {
                s->company_id = place.company_id;
                s->environment_id = place.environment_id;
        }
        return r;
}

static int find_by_secret(struct db *db, struct lane_search *s, struct err *err)
{
        struct secret secret;
        int r = secrets_get(db, s->id, s->c->op->arena, &secret, err);

        if (r >= 0)
                s->company_id = secret.company_id;
        return r;
}

static int find_by_vault(struct db *db, struct lane_search *s, struct err *err)
{
        struct vault_row row;
        int r = vault_configs_get(db, s->id, s->c->op->arena, &row, err);

        if (r >= 0)
                s->company_id = row.company_id;
        return r;
}

static int find_by_company(struct db *db UNUSED, struct lane_search *s, struct err *err UNUSED)
{
        s->company_id = s->id;
        return 0;
}

/* A plugin belongs to the instance. What is asked of it for a company says so in its body, and
 * counts for that company if the caller may see it. */
static int find_by_plugin(struct db *db, struct lane_search *s, struct err *err UNUSED)
{
        const json_t *body = s->c->body, *context = json_object_get(body, "runContext");
        const char *company_id = json_get_string(context ? context : body, "companyId");

        if (company_id && access_company(db, &s->c->actor, company_id, false, NULL) >= 0)
                s->company_id = company_id;
        return 0;
}

static const struct {
        unsigned flag;
        int (*find)(struct db *db, struct lane_search *s, struct err *err);
} finders[] = {
        { ROUTE_OF_ENVIRONMENT, find_by_environment },
        { ROUTE_OF_LEASE, find_by_lease },
        { ROUTE_OF_RUN, find_by_run },
        { ROUTE_OF_PLACE, find_by_place },
        { ROUTE_OF_SECRET, find_by_secret },
        { ROUTE_OF_VAULT, find_by_vault },
        { ROUTE_OF_COMPANY, find_by_company },
        { ROUTE_OF_PLUGIN, find_by_plugin },
};

static int find_lane(struct lane_search *s, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct call *c = s->c;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        if (r >= 0)
                r = access_authenticated(&c->actor, err);
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(finders); i++)
                if (c->route->flags & finders[i].flag)
                        r = finders[i].find(db, s, err);
        if (r >= 0 && s->company_id)
                r = access_company(db, &c->actor, s->company_id, false, err);
        return r;
}

int call_take_lane(struct call *c, struct err *err)
{
        CLEAN(err_done) struct err refused = { 0 };
        struct lane_name name;
        struct lane_search s = { .c = c, .id = c->params[0] ? c->params[0] : "" };
        int r = op_check(c->op, err);

        if (r >= 0 && find_lane(&s, &refused) < 0)
                return 1; /* the handler says why */
        if (r < 0)
                return r;
        if (!s.company_id)
                s.company_id = c->actor.company_id;
        name = lane_name(s.company_id ? s.company_id : c->actor.user_id, s.environment_id);
        if (c->route->flags & ROUTE_OF_PLUGIN)
                snprintf(name.key, sizeof(name.key), "plugin:%s:%s", name.owner, s.id);
        if (pool_take_seat(c->op, LANE_PEERS, &name) ||
            ((c->route->flags & ROUTE_CLOSES) && pool_take_seat(c->op, LANE_CLOSING, &name)))
                return 1;
        c->lane = name;
        return 0;
}
