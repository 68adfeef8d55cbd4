/* Decides which callers may run things on this machine, and which runs may come to it. */
#include "core/environments/host_use.h"

#include "core/adapters/adapter_descriptor.h"
#include "core/environments/env_default.h"
#include "core/kinds/kind.h"

int host_use_check_config(const struct runtime *rt, const struct actor *actor, const char *driver,
                          const json_t *before, const json_t *config, struct err *err)
{
        const struct kind *kind = kind_of_driver(rt, driver);

        if (!kind || !kind->reaches_host || !kind->reaches_host(config) ||
            (before && kind->reaches_host(before)) || access_may_use_host(rt, actor))
                return 0;
        return err_set(err, ERR_FORBIDDEN,
                       "network \"host\" reaches what listens on this machine only, which takes an "
                       "instance admin. Use \"allowlist\"; or the operator lets owners use it with "
                       "local_for_owners = true (berth.toml(5)).");
}

int host_use_check(const struct runtime *rt, const struct actor *actor, const char *driver,
                   struct err *err)
{
        if (!kind_runs_on_host(rt, driver) || actor->type != ACTOR_BOARD ||
            access_may_use_host(rt, actor))
                return 0;
        return err_set(err, ERR_FORBIDDEN,
                       "Environments of the kind \"%s\" run commands on this machine, as the user "
                       "that the daemon runs as, which takes an instance admin. Choose a sandbox; "
                       "or the operator lets owners use it with local_for_owners = true "
                       "(berth.toml(5)).",
                       driver);
}

/* The environment that an agent works in when nothing else is chosen; its id is NULL without
 * one. */
static int agent_own_environment(struct db *db, struct arena *arena, const struct agent *g,
                                 struct environment *ret, struct err *err)
{
        const char *id = g->default_environment_id;
        int r = id ? 0 : env_default_get(db, g->company_id, arena, &id, err);

        *ret = (struct environment){ 0 };
        if (r < 0 || !id)
                return r;
        r = environments_get(db, id, arena, ret, err);
        if (r == ERR_NOT_FOUND) { /* its runs fail */
                err_clear(err);
                *ret = (struct environment){ 0 };
                return 0;
        }
        return r;
}

static bool same_text(const char *a, const char *b)
{
        return a == b || (a && b && streq(a, b));
}

/* Whether both run the same things in the same environment. */
static bool runs_the_same(const struct agent *a, const struct agent *b)
{
        return a && same_text(a->adapter_type, b->adapter_type) &&
               same_text(a->adapter_config, b->adapter_config) &&
               same_text(a->default_environment_id, b->default_environment_id);
}

int host_use_check_agent(struct db *db, struct runtime *rt, const struct op *op,
                         const struct agent *before, const struct agent *g, struct err *err)
{
        const struct adapter_descriptor *d = adapter_find(g->adapter_type);
        struct environment env;

        if (runs_the_same(before, g) || (d && d->is_http))
                return 0;
        int r = agent_own_environment(db, op->arena, g, &env, err);
        if (r < 0 || !env.id)
                return r;
        r = host_use_check(rt, op->actor, env.driver, err);
        return r < 0 ? err_wrap(err, r, "Agent \"%s\" works in \"%s\"", g->name, env.name) : r;
}

/* Whether work may be moved from one kind of place to another: not to a kind that is less separated
 * from this machine. A kind that is not registered counts as the most separated one. */
static bool may_move(const struct kind *from, const struct kind *to)
{
        if (to && to->isolated)
                return true;
        return from && !from->isolated && (from->runs_on_host || (to && !to->runs_on_host));
}

int host_use_check_run(struct db *db, struct runtime *rt, struct arena *arena,
                       const struct agent *g, const struct environment *env, struct err *err)
{
        struct environment own;
        int r = agent_own_environment(db, arena, g, &own, err);

        if (r < 0 || (own.id && streq(own.id, env->id)) ||
            may_move(own.id ? kind_of_environment(rt, &own) : NULL, kind_of_environment(rt, env)))
                return r;
        return err_set(err, ERR_FORBIDDEN,
                       "Environment \"%s\" (%s) is not isolated, and agent \"%s\" does not work "
                       "there by itself: an issue, a project or a workspace alone does not move an "
                       "agent out of its own environment to one that is less isolated. To let it "
                       "work there, a board user chooses the environment for the agent "
                       "(berth agent update '%s' --environment '%s').",
                       env->name, env->driver, g->name, g->name, env->name);
}

/* Isolation */

int agent_environment_is_isolated(struct db *db, const struct runtime *rt, struct arena *arena,
                                  const char *company_id, const char *environment_id, bool *ret,
                                  struct err *err)
{
        struct environment env;
        int r = 0;

        *ret = false;
        if (!environment_id)
                r = env_default_get(db, company_id, arena, &environment_id, err);
        if (r < 0 || !environment_id)
                return r; /* no environment: nothing runs, and the next default may be the host */
        r = environments_get(db, environment_id, arena, &env, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r >= 0)
                *ret = streq(env.company_id, company_id) && kind_is_isolated(rt, &env);
        return r;
}

int agent_place_is_isolated(struct db *db, const struct runtime *rt, struct arena *arena,
                            const struct agent *agent, bool *ret, struct err *err)
{
        const struct adapter_descriptor *d = adapter_find(agent->adapter_type);

        *ret = false;
        if (!d || d->is_http)
                return 0;
        return agent_environment_is_isolated(db, rt, arena, agent->company_id,
                                             agent->default_environment_id, ret, err);
}
