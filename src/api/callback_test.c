/* Runs for tests of callbacks: a row that says `running`, and its channel, without a command. Only
 * the build with crash points knows these routes (BERTH_FAULTS); in the product there are none.
 *
 *   POST /api/test/runs           {leaseId, agentId[, runId, port]} -> {runId, url, key, mode,
 * port} POST /api/test/runs/:id/end   {status}: the row, then the channel POST
 * /api/test/runs/:id/close the channel only GET  /api/test/runs/:id       {count} */
#include "api/api.h"

#ifdef BERTH_FAULTS
#include "base/clock.h"
#include "core/callbacks/callback.h"
#include "store/agents.h"

struct test_run {
        struct call *c;
        struct run run;
        const char *status;
};

static int insert_run(struct db *db, void *arg, struct err *err)
{
        struct test_run *t = arg;
        struct agent agent;
        int r = agents_get(db, t->run.agent_id, t->c->op->arena, &agent, err);

        if (r < 0)
                return r;
        t->run.company_id = agent.company_id;
        return runs_insert(db, &t->run, err);
}

static int make_run(struct test_run *t, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct call *c = t->c;
        const char *id = json_get_string(c->body, "runId");
        int r;

        t->run = (struct run){ .id = id,
                               .agent_id = json_get_string(c->body, "agentId"),
                               .invocation_source = "on_demand",
                               .status = RUN_RUNNING,
                               .step = STEP_DONE, /* the engine leaves it alone */
                               .exit_code = -1,
                               .created_at = clock_now_us(),
                               .updated_at = clock_now_us() };
        if (id) {
                r = store_read_begin(c->op, c->rt->store, &db, err);
                if (r >= 0)
                        r = runs_get(db, id, c->op->arena, &t->run, err);
                t->run.callback_port = json_integer_value(json_object_get(c->body, "port"));
                return r;
        }
        t->run.id = arena_strdup(c->op->arena, uuid_new().s);
        return store_write(c->op, c->rt->store, insert_run, t, err);
}

static int post_run(struct call *c, struct err *err)
{
        struct test_run t = { .c = c };
        struct callback_address address;
        struct lease_record record;
        int r = lease_load(c->op, c->rt, json_get_string(c->body, "leaseId"), &record, err);

        if (r >= 0)
                r = make_run(&t, err);
        if (r >= 0)
                r = callback_open(c->op, c->rt, &t.run, &record, &address, err);
        if (r < 0)
                return r;
        c->status = 201;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "runId", t.run.id);
        jw_kstring(w, "url", address.url);
        jw_kstring(w, "key", address.key);
        jw_kstring(w, "mode", address.mode);
        jw_kint(w, "port", address.port);
        jw_object_end(w);
        return 0;
}

static int end_run(struct db *db, void *arg, struct err *err)
{
        struct test_run *t = arg;
        struct run run;
        int r = runs_get(db, t->run.id, t->c->op->arena, &run, err);

        if (r < 0)
                return r;
        run.status = t->status;
        run.finished_at = clock_now_us();
        return runs_end(db, &run, RUN_RUNNING, err);
}

static int post_end(struct call *c, struct err *err)
{
        struct test_run t = { .c = c,
                              .run.id = c->params[0],
                              .status = json_get_string(c->body, "status") };
        int r = store_write(c->op, c->rt->store, end_run, &t, err);

        if (r >= 0)
                callback_close(c->rt, c->params[0]);
        return r < 0 ? r : (buf_puts(&c->out, "{}"), 0);
}

static int post_close(struct call *c, struct err *err)
{
        callback_close(c->rt, c->params[0]);
        buf_puts(&c->out, "{}");
        return 0;
}

static int get_run(struct call *c, struct err *err)
{
        buf_appendf(&c->out, "{\"count\":%llu}",
                    (unsigned long long)callback_count(c->rt, c->params[0]));
        return 0;
}

/* Channels of runs may be made of files in a plugin's sandbox. */
const struct route routes_callback_test[] = {
        { "POST", "/api/test/runs", .fn = post_run, .flags = ROUTE_WAITS },
        { "GET", "/api/test/runs/:id", .fn = get_run },
        { "POST", "/api/test/runs/:id/end", .fn = post_end, .flags = ROUTE_WAITS },
        { "POST", "/api/test/runs/:id/close", .fn = post_close,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { 0 },
};
#else
const struct route routes_callback_test[] = { { 0 } };
#endif
