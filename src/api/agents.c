#include "api/api.h"
#include "api/encode.h"
#include "core/agent.h"

#define MISSING         "Agent not found"
#define MISSING_COMPANY "Company not found"

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

static int list_agents(struct call *c, struct err *err)
{
        const char *company;
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0 && *c->query) {
                size_t n = strcspn(c->query, "=&");

                r = err_set(err, ERR_INVALID, "Unsupported query parameter: %.*s", (int)MIN(n, 64),
                            c->query);
        }
        if (r < 0)
                return r;
        jw_init(&w, &c->out);
        jw_array(&w);
        r = agent_list(c->op, c->rt, company, show, &w, err);
        jw_array_end(&w);
        return r;
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

static int me(struct call *c, struct err *err)
{
        struct agent agent;
        bool full;
        int r;

        if (c->actor.type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        r = agent_get(c->op, c->rt, c->actor.agent_id, &agent, &full, err);
        return r < 0 ? r : encode_one(c, &agent, full);
}

static int get(struct call *c, struct err *err)
{
        struct agent agent;
        const char *id;
        bool full;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = agent_get(c->op, c->rt, id, &agent, &full, err);
        return r < 0 ? r : encode_one(c, &agent, full);
}

static int patch(struct call *c, struct err *err)
{
        struct agent agent;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = agent_update(c->op, c->rt, id, c->body, &agent, err);
        return r < 0 ? r : encode_one(c, &agent, true);
}

static int delete (struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

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
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = agent_set_permissions(c->op, c->rt, id, c->body, &agent, err);
        return r < 0 ? r : encode_one(c, &agent, true);
}

static int list_keys(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : agent_key_list(c->op, c->rt, id, &c->out, err);
}

static int create_key(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        c->status = 201;
        return r < 0 ? r : agent_key_create(c->op, c->rt, id, c->body, &c->out, err);
}

static int delete_key(struct call *c, struct err *err)
{
        const char *id, *key;
        int r = call_uuid(c, 0, MISSING, &id, err);

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
        { "GET", "/api/agents/me", me, 0 },
        { "GET", "/api/agents/:id", get, 0 },
        { "PATCH", "/api/agents/:id", patch, 0 },
        { "DELETE", "/api/agents/:id", delete, 0 },
        { "PATCH", "/api/agents/:id/permissions", patch_permissions, 0 },
        { "GET", "/api/agents/:id/keys", list_keys, 0 },
        { "POST", "/api/agents/:id/keys", create_key, ROUTE_BODY_FREE },
        { "DELETE", "/api/agents/:id/keys/:key", delete_key, 0 },
        { NULL, NULL, NULL, 0 },
};
