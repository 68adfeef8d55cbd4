/* Routes of agents: creating, hiring, listing, showing and changing them. */
#include "api/api.h"
#include "api/encode.h"
#include "core/agents/agent.h"

static int answer_agent(struct call *c, int r, const struct agent *agent)
{
        if (r >= 0)
                encode_agent(call_json(c), agent, true);
        return r;
}

static int show(void *ctx, const struct agent *agent, bool full)
{
        encode_agent(ctx, agent, full);
        return 0;
}

/* The names of all parameters, so that the caller knows what was ignored. */
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
        int r = refuse_query(c, err);

        return r < 0 ? r
                     : call_list_end(
                               c, agent_list(c->op, c->rt, c->params[0], show, call_list(c), err));
}

static int create(struct call *c, struct err *err)
{
        struct agent agent;

        return answer_agent(c, agent_create(c->op, c->rt, c->params[0], c->body, &agent, err),
                            &agent);
}

/* Asking for an agent. There are no approvals as objects of their own: the agent itself waits, and
 * a board user approves it. */
static int hire(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);
        struct agent agent;
        int r = agent_hire(c->op, c->rt, c->params[0], c->body, &agent, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_key(w, "agent");
        encode_agent(w, &agent, true);
        jw_knull(w, "approval");
        jw_object_end(w);
        return 0;
}

static int answer_detail(struct call *c, const char *id, struct err *err)
{
        struct agent_detail detail;
        int r = agent_get_detail(c->op, c->rt, id, &detail, err);

        if (r >= 0)
                encode_agent_detail(call_json(c), &detail);
        return r;
}

static int me(struct call *c, struct err *err)
{
        if (c->actor.type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        return answer_detail(c, c->actor.agent_id, err);
}

static int get(struct call *c, struct err *err)
{
        return answer_detail(c, c->params[0], err);
}

static int patch(struct call *c, struct err *err)
{
        struct agent agent;

        return answer_agent(c, agent_update(c->op, c->rt, c->params[0], c->body, &agent, err),
                            &agent);
}

static int patch_permissions(struct call *c, struct err *err)
{
        struct agent agent;
        int r = agent_set_permissions(c->op, c->rt, c->params[0], c->body, &agent, err);

        return r < 0 ? r : answer_detail(c, c->params[0], err);
}

static int pause_agent(struct call *c, struct err *err)
{
        struct agent agent;

        return answer_agent(c, agent_pause(c->op, c->rt, c->params[0], c->body, &agent, err),
                            &agent);
}

static int resume(struct call *c, struct err *err)
{
        struct agent agent;

        return answer_agent(c, agent_resume(c->op, c->rt, c->params[0], &agent, err), &agent);
}

static int approve(struct call *c, struct err *err)
{
        struct agent agent;

        return answer_agent(c, agent_approve(c->op, c->rt, c->params[0], &agent, err), &agent);
}

static int terminate(struct call *c, struct err *err)
{
        struct agent agent;

        return answer_agent(c, agent_terminate(c->op, c->rt, c->params[0], &agent, err), &agent);
}

static int delete_key(struct call *c, struct err *err)
{
        int r = call_uuid(c, 1, "Key not found", err);

        if (r >= 0)
                r = agent_key_revoke(c->op, c->rt, c->params[0], c->params[1], err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

const struct route routes_agents[] = {
        { "GET", "/api/companies/:companyId/agents", .fn = list_agents },
        { "POST", "/api/companies/:companyId/agents", .fn = create, .status = 201 },
        { "POST", "/api/companies/:companyId/agent-hires", .fn = hire, .status = 201 },
        { "GET", "/api/agents/me", .fn = me },
        { "GET", "/api/agents/:id", .fn = get },
        { "PATCH", "/api/agents/:id", .fn = patch },
        { "DELETE", "/api/agents/:id", .end_of = agent_delete },
        { "PATCH", "/api/agents/:id/permissions", .fn = patch_permissions },
        { "POST", "/api/agents/:id/pause", .fn = pause_agent,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "POST", "/api/agents/:id/resume", .fn = resume, .flags = ROUTE_BODY_FREE },
        { "POST", "/api/agents/:id/approve", .fn = approve, .flags = ROUTE_BODY_FREE },
        { "POST", "/api/agents/:id/terminate", .fn = terminate,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/agents/:id/keys", .write_of = agent_key_list },
        { "POST", "/api/agents/:id/keys", .take_of = agent_key_create, .status = 201,
          .flags = ROUTE_BODY_FREE },
        { "DELETE", "/api/agents/:id/keys/:key", .fn = delete_key },
        { 0 },
};
