/* Routes of agents: creating, hiring, listing, showing and changing them. */
#include "api/api.h"
#include "api/encode.h"
#include "core/agents/agent.h"
#include "core/companies/erase.h"

static int answer_agent(struct call *c, int r, const struct agent *agent)
{
        if (r >= 0)
                encode_agent(call_json(c), agent, true);
        return r;
}

struct agents_shown {
        struct call *c;
        bool full;
};

static int show_agent(void *ctx, const struct agent *agent)
{
        const struct agents_shown *all = ctx;
        const struct actor *a = &all->c->actor;
        bool self = a->type == ACTOR_AGENT && streq(a->agent_id, agent->id);

        encode_agent(&all->c->json, agent, all->full || self);
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
        CLEAN(store_read_end) struct db *db = NULL;
        struct agents_shown all = { .c = c };
        int r = refuse_query(c, err);

        if (r >= 0)
                r = call_read(c, c->params[0], &db, err);
        if (r >= 0)
                r = agent_may_see_config(db, c->op, c->params[0], "", &all.full, err);
        if (r < 0)
                return r;
        (void)call_list(c);
        return call_list_end(c, agents_list(db, c->params[0], c->op->arena, show_agent, &all, err));
}

static int create_agent(struct call *c, struct err *err)
{
        struct agent_patch patch;
        struct agent agent;

        agent_patch_read(c->op->arena, c->body, true, &patch);
        return answer_agent(c, agent_create(c->op, c->rt, c->params[0], &patch, false, &agent, err),
                            &agent);
}

/* Asking for an agent. There are no approvals as objects of their own: the agent itself waits, and
 * a board user approves it. */
static int hire_agent(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);
        struct agent_patch patch;
        struct agent agent;

        agent_patch_read(c->op->arena, c->body, true, &patch);
        int r = agent_create(c->op, c->rt, c->params[0], &patch, true, &agent, err);
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

static int get_me(struct call *c, struct err *err)
{
        if (c->actor.type != ACTOR_AGENT)
                return err_set(err, ERR_UNAUTHORIZED, "Agent authentication required");
        return answer_detail(c, c->actor.agent_id, err);
}

static int get_agent(struct call *c, struct err *err)
{
        return answer_detail(c, c->params[0], err);
}

static int patch_agent(struct call *c, struct err *err)
{
        struct agent_patch patch;
        struct agent agent;

        agent_patch_read(c->op->arena, c->body, false, &patch);
        return answer_agent(c, agent_update(c->op, c->rt, c->params[0], &patch, &agent, err),
                            &agent);
}

static int patch_permissions(struct call *c, struct err *err)
{
        static const struct body_member members[] = {
                BODY_FLAG(struct agent_rights, can_create_agents, "canCreateAgents",
                          .flags = CHECK_REQUIRED),
                BODY_FLAG(struct agent_rights, can_assign_tasks, "canAssignTasks"),
                BODY_PRESENT(struct agent_rights, has_assign, "canAssignTasks"),
        };
        static const struct body_type type = BODY_TYPE(members, .is_strict = true);
        struct agent_rights rights = { 0 };
        struct agent agent;

        rights.body = body_decode(&type, c->body, true, c->op->arena, &rights);
        int r = agent_set_permissions(c->op, c->rt, c->params[0], &rights, &agent, err);
        return r < 0 ? r : answer_detail(c, c->params[0], err);
}

/* Pause, resume, approve or terminate. */
static int order_agent(struct call *c, struct err *err)
{
        enum agent_order order = (enum agent_order)c->route->arg;
        const char *reason = NULL;
        struct body body = { 0 };
        struct agent agent;

        if (order == AGENT_PAUSE)
                body = call_text(c, "reason", CHECK_NULLABLE, 500, &reason);
        return answer_agent(
                c, agent_obey(c->op, c->rt, c->params[0], order, &body, reason, &agent, err),
                &agent);
}

/* -- Keys ------------------------------------------------------------------------------------- */

static int show_agent_key(void *ctx, const struct agent_key *k)
{
        encode_row(ctx, &agent_key_table, k);
        return 0;
}

static int list_agent_keys(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct agent agent;
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = store_read_begin(c->op, c->rt->store, &db, err);
        if (r >= 0)
                r = agent_load_managed(db, c->op, c->params[0], &agent, err);
        return r < 0 ? r
                     : call_list_end(c, agent_keys_list(db, agent.id, c->op->arena, show_agent_key,
                                                        call_list(c), err));
}

static int create_agent_key(struct call *c, struct err *err)
{
        const char *name = "default";
        struct body body = call_text(c, "name", CHECK_OPTIONAL, 120, &name);
        struct jw *w = call_json(c);
        char token[TOKEN_MAX];
        struct agent_key key;
        int r = agent_key_create(c->op, c->rt, c->params[0], &body, name, &key, token, err);

        if (r >= 0) {
                jw_object(w);
                jw_kstring(w, "id", key.id);
                jw_kstring(w, "name", key.name);
                jw_kraw(w, "scope", "{\"kind\":\"standard\"}");
                jw_kstring(w, "token", token);
                jw_ktime(w, "createdAt", key.created_at);
                jw_object_end(w);
        }
        explicit_bzero(token, sizeof(token));
        return r;
}

static int delete_agent_key(struct call *c, struct err *err)
{
        int r = call_uuid(c, 1, "Key not found", err);

        if (r >= 0)
                r = agent_key_revoke(c->op, c->rt, c->params[0], c->params[1], err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

static int delete_agent(struct call *c, struct err *err)
{
        const char *confirm = call_query(c, "confirm");

        return call_ended(c, confirm ? erase_agent(c->op, c->rt, c->params[0], confirm, err)
                                     : agent_delete(c->op, c->rt, c->params[0], err));
}

const struct route routes_agents[] = {
        { "GET", "/api/companies/:companyId/agents", .fn = list_agents },
        { "POST", "/api/companies/:companyId/agents", .fn = create_agent, .status = 201 },
        { "POST", "/api/companies/:companyId/agent-hires", .fn = hire_agent, .status = 201 },
        { "GET", "/api/agents/me", .fn = get_me },
        { "GET", "/api/agents/:id", .fn = get_agent },
        { "PATCH", "/api/agents/:id", .fn = patch_agent },
        { "DELETE", "/api/agents/:id", .fn = delete_agent },
        { "PATCH", "/api/agents/:id/permissions", .fn = patch_permissions },
        { "POST", "/api/agents/:id/pause", .fn = order_agent, .arg = AGENT_PAUSE,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "POST", "/api/agents/:id/resume", .fn = order_agent, .arg = AGENT_RESUME,
          .flags = ROUTE_BODY_FREE },
        { "POST", "/api/agents/:id/approve", .fn = order_agent, .arg = AGENT_APPROVE,
          .flags = ROUTE_BODY_FREE },
        { "POST", "/api/agents/:id/terminate", .fn = order_agent, .arg = AGENT_TERMINATE,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/agents/:id/keys", .fn = list_agent_keys },
        { "POST", "/api/agents/:id/keys", .fn = create_agent_key, .status = 201,
          .flags = ROUTE_BODY_FREE },
        { "DELETE", "/api/agents/:id/keys/:key", .fn = delete_agent_key },
        { 0 },
};
