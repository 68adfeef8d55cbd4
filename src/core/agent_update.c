/* Changing and deleting agents: as much as their variables need. */
#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/agent.h"
#include "core/agent_env.h"
#include "core/audit.h"
#include "store/identity.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id;
        json_t *body;
        struct agent *agent;
};

/* An agent changes itself; others only as CEO or with the right to make agents. */
static int check_changer(struct db *db, const struct request *q, struct err *err)
{
        const struct actor *a = q->op->actor;
        struct agent self;
        int r;

        if (a->type != ACTOR_AGENT)
                return access_manage_agents(db, a, q->agent->company_id, err);
        r = access_company(db, a, q->agent->company_id, true, err);
        if (r < 0 || a->can_create_agents || streq(a->agent_id, q->id))
                return r;
        r = agents_get(db, a->agent_id, q->op->arena, &self, err);
        if (r >= 0 && !streq(self.role, "ceo"))
                r = err_set(err, ERR_FORBIDDEN,
                            "Only CEO or agent creators can modify other agents");
        return r;
}

/* What is to be stored: the members given over those that are there, or only them. *ret is a new
 * reference. */
static int check_update(struct request *q, const json_t *before, json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c;
        json_t *given;
        bool replace;
        int r;

        check_init(&c, q->body);
        if (json_object_get(q->body, "permissions"))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Use /api/agents/:id/permissions for permission changes");
        given = check_record(&c, "adapterConfig", CHECK_OPTIONAL);
        replace = check_bool(&c, "replaceAdapterConfig", CHECK_OPTIONAL, false);
        check_unknown(&c, (const char *[]){ "adapterConfig", "replaceAdapterConfig", NULL });
        r = check_end(&c, err);
        if (r < 0)
                return r;
        *ret = replace && given ? json_object() : json_deep_copy(before);
        if (given)
                json_object_update(*ret, given);
        return 0;
}

static int write_config(struct db *db, struct request *q, const json_t *before, json_t *config,
                        struct err *err)
{
        struct agent *g = q->agent;
        int r = agent_env_check(db, q->op, q->rt, g->company_id, before, config, err);

        if (r < 0)
                return r;
        g->adapter_config = json_to_arena(q->op->arena, config);
        g->updated_at = clock_now_us();
        r = agents_set_adapter_config(db, g->id, g->adapter_config, g->updated_at, err);
        if (r >= 0)
                r = agent_env_bind(db, q->op, g->company_id, g->id, config, err);
        if (r >= 0)
                r = audit(db, q->op, g->company_id, "agent.updated", "agent", g->id,
                          json_pack("{s:[s]}", "changedTopLevelKeys", "adapterConfig"), err);
        return r;
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent *g = q->agent;
        json_t *before = NULL, *config = NULL;
        int r = access_authenticated(q->op->actor, err);

        if (r >= 0)
                r = agents_get(db, q->id, q->op->arena, g, err);
        if (r >= 0)
                r = check_changer(db, q, err);
        if (r >= 0)
                r = json_parse(g->adapter_config, strlen(g->adapter_config), &before, err);
        if (r >= 0)
                r = check_update(q, before, &config, err);
        if (r >= 0)
                r = write_config(db, q, before, config, err);
        json_decref(before);
        json_decref(config);
        return r;
}

int agent_update(struct op *op, struct runtime *rt, const char *id, json_t *body, struct agent *ret,
                 struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .body = body, .agent = ret };
        int r;

        FAULT("agent.update.before");
        r = store_write(op, rt->store, update, &q, err);
        FAULT("agent.update.after");
        return r;
}

static int delete (struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent *g = q->agent;
        int r = agents_get(db, q->id, q->op->arena, g, err);

        if (r >= 0)
                r = access_manage_agents(db, q->op->actor, g->company_id, err);
        if (r >= 0)
                r = agent_env_unbind(db, g->company_id, g->id, err);
        if (r >= 0)
                r = grants_clear(db, g->company_id, "agent", g->id, err);
        if (r >= 0)
                r = memberships_remove(db, g->company_id, "agent", g->id, err);
        if (r >= 0)
                r = agents_delete(db, g->id, err);
        if (r >= 0)
                r = audit(db, q->op, g->company_id, "agent.deleted", "agent", g->id,
                          json_pack("{s:s}", "name", g->name), err);
        return r;
}

int agent_delete(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        struct agent agent;
        struct request q = { .op = op, .rt = rt, .id = id, .agent = &agent };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("agent.delete.before");
        r = store_write(op, rt->store, delete, &q, err);
        FAULT("agent.delete.after");
        return r;
}
