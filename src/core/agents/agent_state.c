/* The state that an agent keeps between its runs. */
#include "base/clock.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/agents/agent.h"

struct request {
        struct op *op;
        const char *id;
        json_t *body; /* NULL: only read */
        struct agent_runtime_state *state;
};

/* An agent that never ran has an empty state. */
static int load(struct db *db, struct request *q, const struct agent *g, struct err *err)
{
        int r = agent_runtime_state_get(db, g->id, q->op->arena, q->state, err);

        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        *q->state = (struct agent_runtime_state){
                .agent_id = g->id,
                .company_id = g->company_id,
                .adapter_type = g->adapter_type,
                .state_json = "{}",
                .created_at = g->created_at,
                .updated_at = g->created_at,
        };
        return 0;
}

static int check_task(struct request *q, const char **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };

        check_init(&c, q->body);
        *ret = arena_strtrim(q->op->arena, check_string(&c, "taskKey", CHECK_NULLABLE, 1, 500));
        return check_end(&c, err);
}

static int reset(struct db *db, struct request *q, const struct agent *g, struct err *err)
{
        const char *task;
        int r = check_task(q, &task, err);

        if (r >= 0)
                r = agent_runtime_state_reset(db, g->id, task, clock_now_us(), err);
        if (r >= 0)
                r = audit(db, q->op, g->company_id, "agent.runtime_session_reset", "agent", g->id,
                          json_pack("{s:s?}", "taskKey", task), err);
        return r;
}

static int work(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent g;
        int r = agents_get(db, q->id, q->op->arena, &g, err);

        if (r >= 0)
                r = access_manage_agents(db, q->op->actor, g.company_id, err);
        if (r >= 0 && q->body)
                r = reset(db, q, &g, err);
        return r < 0 ? r : load(db, q, &g, err);
}

int agent_state_get(struct op *op, struct runtime *rt, const char *id,
                    struct agent_runtime_state *ret, struct err *err)
{
        struct request q = { .op = op, .id = id, .state = ret };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_read(op, rt->store, work, &q, err);
}

int agent_state_reset(struct op *op, struct runtime *rt, const char *id, json_t *body,
                      struct agent_runtime_state *ret, struct err *err)
{
        struct request q = { .op = op, .id = id, .body = body, .state = ret };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_write(op, rt->store, work, &q, err);
}

struct listing {
        struct op *op;
        const char *id;
        agent_task_session_fn fn;
        void *ctx;
};

static int list_sessions(struct db *db, void *arg, struct err *err)
{
        struct listing *q = arg;
        struct agent g;
        int r = agents_get(db, q->id, q->op->arena, &g, err);

        if (r >= 0)
                r = access_manage_agents(db, q->op->actor, g.company_id, err);
        return r < 0 ? r : agent_task_sessions_list(db, g.id, q->op->arena, q->fn, q->ctx, err);
}

int agent_task_sessions(struct op *op, struct runtime *rt, const char *id, agent_task_session_fn fn,
                        void *ctx, struct err *err)
{
        struct listing q = { op, id, fn, ctx };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_read(op, rt->store, list_sessions, &q, err);
}
