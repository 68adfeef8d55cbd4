/* Functions that all parts of the engine need: tasks, steps, and announcements. */
#include "core/runs/run_internal.h"

#include "base/clock.h"
#include "core/runs/run_state.h"
#include "store/companies.h"

/* -- Events ------------------------------------------------------------------------------------ */

static json_t *iso_or_null(int64_t us)
{
        char text[ISO_TIME_LEN + 1];

        if (!us)
                return json_null();
        clock_iso(us, text);
        return json_string(text);
}

void run_announce_status(struct db *db, const struct run *run)
{
        db_announce(db, run->company_id, "heartbeat.run.status",
                    json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:s?, s:o, s:o}", "runId", run->id,
                              "agentId", run->agent_id, "status", run->status, "invocationSource",
                              run->invocation_source, "triggerDetail", run->trigger_detail, "error",
                              run->error, "errorCode", run->error_code, "startedAt",
                              iso_or_null(run->started_at), "finishedAt",
                              iso_or_null(run->finished_at)));
}

void run_announce_agent(struct db *db, const struct run *run, const char *status)
{
        db_announce(db, run->company_id, "agent.status",
                    json_pack("{s:s, s:s, s:s?, s:o}", "agentId", run->agent_id, "status", status,
                              "outcome", run->finished_at ? run->status : NULL, "lastHeartbeatAt",
                              iso_or_null(run->finished_at ? run->finished_at : 0)));
}

int run_rows_add(void *ctx, const struct run *row)
{
        struct run_rows *rows = ctx;

        rows->at = arena_more(rows->arena, rows->at, rows->n, &rows->room, sizeof(*rows->at));
        rows->at[rows->n++] = *row;
        return 0;
}

/* -- Tasks ------------------------------------------------------------------------------------- */

static void drop_json(void *arg)
{
        json_decref(arg);
}

json_t *run_keep(struct arena *arena, json_t *take_value)
{
        if (take_value)
                arena_defer(arena, drop_json, take_value);
        return take_value;
}

json_t *run_parse(struct arena *arena, const char *text)
{
        json_t *value = NULL;

        if (!text || json_parse(text, strlen(text), &value, NULL) < 0 || !json_is_object(value)) {
                json_decref(value);
                value = json_object();
        }
        return run_keep(arena, value);
}

int run_task_load(struct op *op, struct runtime *rt, const char *id, struct run_task *ret,
                  struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct company company;
        int r = store_read_begin(op, rt->store, &db, err);

        *ret = (struct run_task){ .rt = rt, .own = *op };
        ret->op = &ret->own;
        if (r >= 0)
                r = runs_get(db, id, op->arena, &ret->run, err);
        if (r >= 0)
                r = agents_get(db, ret->run.agent_id, op->arena, &ret->agent, err);
        if (r >= 0)
                r = companies_get(db, ret->run.company_id, op->arena, &company, err);
        if (r < 0)
                return r;
        ret->company_name = company.name;
        ret->actor = (struct actor){
                .type = ACTOR_AGENT,
                .source = SOURCE_SYSTEM,
                .agent_id = ret->agent.id,
                .company_id = ret->agent.company_id,
        };
        ret->own.actor = &ret->actor;
        ret->own.run_id = ret->run.id;
        ret->config = run_parse(op->arena, ret->agent.adapter_config);
        ret->context = run_parse(op->arena, ret->run.context_snapshot);
        return 0;
}

int run_task_refresh(struct run_task *t, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct op op = run_note_op(t);
        int r = store_read_begin(&op, t->rt->store, &db, err);

        return r < 0 ? r : runs_get(db, t->run.id, t->op->arena, &t->run, err);
}

int run_task_execution(struct run_task *t, const char *key, struct execution *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        if (r < 0)
                return r;
        return key ? executions_by_key(db, t->run.lease_id, key, t->op->arena, ret, err)
                   : executions_get(db, t->run.execution_id, t->op->arena, ret, err);
}

int run_task_lease(struct run_task *t, struct err *err)
{
        int r;

        if (!t->run.lease_id)
                return err_set(err, ERR_NOT_FOUND, "The run has no lease.");
        r = lease_load(t->op, t->rt, t->run.lease_id, &t->record, err);
        return r < 0 ? r : lease_kind(t->rt, &t->record, &t->kind, err);
}

struct op run_note_op(const struct run_task *t)
{
        struct op op = op_shield(t->op, RUN_NOTE_MS);

        op.actor = t->op->actor;
        op.run_id = t->op->run_id;
        return op;
}

struct step {
        struct run_task *t;
        const char *from, *to;
        int (*with)(struct db *db, struct run_task *t, struct err *err);
        struct run now;
};

static int run_step_in(struct db *db, void *arg, struct err *err)
{
        struct step *s = arg;
        int r = run_transition_check(s->from, s->to, err);

        if (r >= 0)
                r = runs_step(db, &s->t->run, s->from, s->to, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "Somebody else works on the run.");
        if (r >= 0 && s->with)
                r = s->with(db, s->t, err);
        return r < 0 ? r : runs_get(db, s->t->run.id, s->t->op->arena, &s->now, err);
}

int run_step(struct run_task *t, const char *from, const char *to,
             int (*with)(struct db *db, struct run_task *t, struct err *err), struct err *err)
{
        struct step s = { .t = t, .from = from, .to = to, .with = with };
        struct op op = run_note_op(t);
        int r;

        t->run.owner = t->rt->node.instance.s;
        t->run.context_snapshot = json_to_arena(t->op->arena, t->context);
        t->run.updated_at = clock_now_us();
        r = store_write(&op, t->rt->store, run_step_in, &s, err);
        if (r >= 0)
                t->run = s.now;
        return r;
}
