#include "api/api.h"
#include "api/encode.h"
#include "core/agents/agent.h"

#define MISSING_COMPANY "Company not found"

int call_agent(struct call *c, const char **ret_id, struct err *err)
{
        return agent_find(c->op, c->rt, c->params[0], call_query(c, "companyId"), ret_id, err);
}

static int encode_one(struct call *c, const struct agent *agent, bool full)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_agent(&w, agent, full);
        return 0;
}

static int show(void *ctx, const struct agent *agent, bool full)
{
        encode_agent(ctx, agent, full);
        return 0;
}

/* The names of all parameters, so that whoever sent them knows what was ignored. */
static int refuse_query(struct call *c, struct err *err)
{
        const char *names = "";
        int n = 0;

        for (const char *at = c->query; *at; n++) {
                size_t name = strcspn(at, "=&");

                names = arena_printf(&c->arena, "%s%s%.*s", names, n ? ", " : "",
                                     (int)MIN(name, 64), at);
                at += strcspn(at, "&");
                at += *at == '&';
        }
        return n == 0 ? 0
                      : err_set(err, ERR_INVALID, "Unsupported query parameter%s: %s",
                                n > 1 ? "s" : "", names);
}

static int list_agents(struct call *c, struct err *err)
{
        const char *company;
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = refuse_query(c, err);
        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, agent_list(c->op, c->rt, company, show, &w, err));
}

static int create(struct call *c, struct err *err)
{
        struct agent agent;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = agent_create(c->op, c->rt, company, c->body, &agent, err);
        c->status = 201;
        return r < 0 ? r : encode_one(c, &agent, true);
}

/* Asking for an agent. There are no approvals as things of their own: the agent itself waits, and
 * somebody of the board approves it. */
static int hire(struct call *c, struct err *err)
{
        struct agent agent;
        const char *company;
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = agent_hire(c->op, c->rt, company, c->body, &agent, err);
        if (r < 0)
                return r;
        c->status = 201;
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_key(&w, "agent");
        encode_agent(&w, &agent, true);
        jw_knull(&w, "approval");
        jw_object_end(&w);
        return 0;
}

static int encode_detail(struct call *c, const char *id, struct err *err)
{
        struct agent_detail detail;
        struct jw w;
        int r = agent_get_detail(c->op, c->rt, id, &detail, err);

        jw_init(&w, &c->out);
        if (r >= 0)
                encode_agent_detail(&w, &detail);
        return r;
}

static int me(struct call *c, struct err *err)
{
        if (c->actor.type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        return encode_detail(c, c->actor.agent_id, err);
}

static int get(struct call *c, struct err *err)
{
        const char *id;
        int r = call_agent(c, &id, err);

        return r < 0 ? r : encode_detail(c, id, err);
}

static int patch(struct call *c, struct err *err)
{
        struct agent agent;
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_update(c->op, c->rt, id, c->body, &agent, err);
        return r < 0 ? r : encode_one(c, &agent, true);
}

static int delete (struct call *c, struct err *err)
{
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_delete(c->op, c->rt, id, err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

static int patch_permissions(struct call *c, struct err *err)
{
        struct agent agent;
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_set_permissions(c->op, c->rt, id, c->body, &agent, err);
        return r < 0 ? r : encode_detail(c, id, err);
}

static int pause_agent(struct call *c, struct err *err)
{
        struct agent agent;
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_pause(c->op, c->rt, id, c->body, &agent, err);
        return r < 0 ? r : encode_one(c, &agent, true);
}

static int move(struct call *c,
                int (*fn)(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                          struct err *err),
                struct err *err)
{
        struct agent agent;
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = fn(c->op, c->rt, id, &agent, err);
        return r < 0 ? r : encode_one(c, &agent, true);
}

static int resume(struct call *c, struct err *err)
{
        return move(c, agent_resume, err);
}

static int approve(struct call *c, struct err *err)
{
        return move(c, agent_approve, err);
}

static int terminate(struct call *c, struct err *err)
{
        return move(c, agent_terminate, err);
}

static int list_keys(struct call *c, struct err *err)
{
        const char *id;
        int r = call_agent(c, &id, err);

        return r < 0 ? r : agent_key_list(c->op, c->rt, id, &c->out, err);
}

static int create_key(struct call *c, struct err *err)
{
        const char *id;
        int r = call_agent(c, &id, err);

        c->status = 201;
        return r < 0 ? r : agent_key_create(c->op, c->rt, id, c->body, &c->out, err);
}

static int delete_key(struct call *c, struct err *err)
{
        const char *id, *key;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = call_uuid(c, 1, "Key not found", &key, err);
        if (r >= 0)
                r = agent_key_revoke(c->op, c->rt, id, key, err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

const struct route routes_agents[] = {
        { "GET", "/api/companies/:companyId/agents", list_agents, 0 },
        { "POST", "/api/companies/:companyId/agents", create, 0 },
        { "POST", "/api/companies/:companyId/agent-hires", hire, 0 },
        { "GET", "/api/agents/me", me, 0 },
        { "GET", "/api/agents/:id", get, 0 },
        { "PATCH", "/api/agents/:id", patch, 0 },
        { "DELETE", "/api/agents/:id", delete, 0 },
        { "PATCH", "/api/agents/:id/permissions", patch_permissions, 0 },
        { "POST", "/api/agents/:id/pause", pause_agent, ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "POST", "/api/agents/:id/resume", resume, ROUTE_BODY_FREE },
        { "POST", "/api/agents/:id/approve", approve, ROUTE_BODY_FREE },
        { "POST", "/api/agents/:id/terminate", terminate, ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/agents/:id/keys", list_keys, 0 },
        { "POST", "/api/agents/:id/keys", create_key, ROUTE_BODY_FREE },
        { "DELETE", "/api/agents/:id/keys/:key", delete_key, 0 },
        { NULL, NULL, NULL, 0 },
};
