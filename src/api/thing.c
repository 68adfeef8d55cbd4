/* The table of what the first parameter of a path names, and the lane that a call enters for it. */
#include "api/thing.h"

#include <stdio.h>

#include "core/agents/agent.h"
#include "store/environments.h"
#include "store/leases.h"
#include "store/places.h"
#include "store/secrets.h"
#include "store/vault_configs.h"

struct thing;

struct lane_search {
        struct call *c;
        const struct thing *thing;
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

/* A run has one lease as a rule. */
static int find_by_run(struct db *db, struct lane_search *s, struct err *err)
{
        struct lease *leases;
        int n = leases_active_of_run(db, s->id, s->c->op->arena, &leases, err);

        if (n > 0) {
                s->company_id = leases[0].company_id;
                s->environment_id = leases[0].environment_id;
        }
        return n == 0 ? ERR_NOT_FOUND : n;
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

/* A plugin belongs to the instance. A request to it for a company says so in its body, and counts
 * for that company if the caller may see it. */
static int find_by_plugin(struct db *db, struct lane_search *s, struct err *err UNUSED)
{
        const json_t *body = s->c->body, *context = json_object_get(body, "runContext");
        const char *company_id = json_get_string(context ? context : body, "companyId");

        if (company_id && access_company(db, &s->c->actor, company_id, false, NULL) >= 0)
                s->company_id = company_id;
        return 0;
}

static const struct thing {
        const char *path;
        const char *missing; /* NULL: it has names of its own */
        int (*find)(struct db *db, struct lane_search *s, struct err *err);
        bool is_agent;  /* by id or slug */
        bool is_plugin; /* by id or key; has lanes of its own, and the body says which */
} things[] = {
        { "/api/agents/", .is_agent = true },
        { "/api/board-api-keys/", .missing = "Key not found" },
        { "/api/cli-auth/challenges/", .missing = "CLI auth challenge not found" },
        { "/api/companies/", .missing = "Company not found", .find = find_by_company },
        { "/api/environment-leases/", .missing = "Environment lease not found",
          .find = find_by_lease },
        { "/api/environments/", .missing = "Environment not found", .find = find_by_environment },
        { "/api/execution-workspaces/", .missing = "Execution workspace not found" },
        { "/api/heartbeat-runs/", .missing = "Heartbeat run not found", .find = find_by_run },
        { "/api/places/", .missing = "Place not found", .find = find_by_place },
        { "/api/plugins/", .find = find_by_plugin, .is_plugin = true },
        { "/api/salvages/", .missing = "Salvage not found" },
        { "/api/secret-provider-configs/", .missing = "Provider vault not found",
          .find = find_by_vault },
        { "/api/secrets/", .missing = "Secret not found", .find = find_by_secret },
#ifdef BERTH_FAULTS
        { "/api/test/runs", .find = find_by_plugin, .is_plugin = true },
#endif
};

static const struct thing *thing_of(const struct route *route)
{
        for (size_t i = 0; i < ARRAY_LEN(things); i++)
                if (str_starts(route->pattern, things[i].path))
                        return &things[i];
        return NULL;
}

bool thing_has_lane(const struct route *route)
{
        const struct thing *t = thing_of(route);

        return t && t->find;
}

static int take_agent(struct call *c, struct err *err)
{
        const char *id;
        int r = agent_find(c->op, c->rt, c->params[0], call_query(c, "companyId"), &id, err);

        if (r >= 0)
                c->params[0] = arena_strdup(&c->arena, id);
        return r;
}

int call_check_thing(struct call *c, struct err *err)
{
        const struct thing *t = thing_of(c->route);

        if (!t || c->route->pattern[strlen(t->path)] != ':')
                return 0;
        if (t->is_agent)
                return take_agent(c, err);
        return t->missing ? call_uuid(c, 0, t->missing, err) : 0;
}

/* A caller who may not see the object does not enter its lane: the handler refuses that call, and
 * it must not fill the queue of others. */
static int find_lane(struct lane_search *s, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct call *c = s->c;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        if (r >= 0)
                r = access_authenticated(&c->actor, err);
        if (r >= 0)
                r = s->thing->find(db, s, err);
        if (r >= 0 && s->company_id)
                r = access_company(db, &c->actor, s->company_id, false, err);
        return r;
}

int call_take_lane(struct call *c, struct err *err)
{
        CLEAN(err_done) struct err refused = { 0 };
        struct lane_search s = { .c = c,
                                 .thing = thing_of(c->route),
                                 .id = c->params[0] ? c->params[0] : "" };
        int r = 0;

        if (!s.thing || !s.thing->find)
                return 1; /* it has no lane */
        if (s.thing->is_plugin && c->actor.type != ACTOR_NONE)
                r = call_read_body(c, err);
        if (r >= 0)
                r = op_check(c->op, err);
        if (r >= 0 && find_lane(&s, &refused) < 0)
                return 1; /* the handler says why */
        if (r < 0)
                return r;
        if (!s.company_id)
                s.company_id = c->actor.company_id;
        struct lane_name name =
                lane_name(s.company_id ? s.company_id : c->actor.user_id, s.environment_id);
        if (s.thing->is_plugin)
                snprintf(name.key, sizeof(name.key), "plugin:%s:%s", name.owner, s.id);
        if (pool_take_seat(c->op, LANE_PEERS, &name) ||
            ((c->route->flags & ROUTE_CLOSES) && pool_take_seat(c->op, LANE_CLOSING, &name)))
                return 1;
        c->lane = name;
        return 0;
}
