/* What plugins offer besides environments: decode, call core, encode. */
#include "api/plugin_bridge.h"

#include "codec/check.h"
#include "core/plugins/plugin_ops.h"

static int refuse_bridge(struct call *c, const struct err *err, const char *code)
{
        c->status = 502;
        buf_clear(&c->out);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "code", code);
        jw_kstring(w, "message", err->msg);
        if (err->details)
                jw_kraw(w, "details", err->details);
        jw_object_end(w);
        return 0;
}

int call_bridge(struct call *c, int r, const struct err *err)
{
        switch (r) {
        case ERR_TIMEOUT:
                return refuse_bridge(c, err, "TIMEOUT");
        case ERR_UNCERTAIN:
                return refuse_bridge(c, err, "WORKER_UNAVAILABLE");
        case ERR_PROVIDER:
        case ERR_NOT_IMPLEMENTED:
                return refuse_bridge(c, err, "WORKER_ERROR");
        default:
                return r;
        }
}

/* {key, params?, companyId?, renderEnvironment?}; some routes have the key in the path. */
static int call_plugin_page(struct call *c, bool is_action, struct err *err)
{
        CLEAN(check_done) struct check body = { 0 };
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct plugin_page_call call = { .is_action = is_action, .key = c->params[1] };
        int r = access_board(c->op->actor, err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        if (!call.key)
                call.key = check_string(&body, "key", CHECK_REQUIRED, 1, 200);
        call.company_id = check_uuid(&body, "companyId", CHECK_NULLABLE);
        call.params = check_record(&body, "params", CHECK_NULLABLE);
        call.render = check_record(&body, "renderEnvironment", CHECK_NULLABLE);
        r = check_end(&body, err);
        if (r >= 0)
                r = plugin_call_page(c->op, c->rt, c->params[0], &call, &answer, err);
        if (r < 0)
                return call_bridge(c, r, err);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kvalue(w, "data", answer);
        jw_object_end(w);
        return 0;
}

static int get_data(struct call *c, struct err *err)
{
        return call_plugin_page(c, false, err);
}

static int perform_action(struct call *c, struct err *err)
{
        return call_plugin_page(c, true, err);
}

/* As in Paperclip, where no stream is wired either. */
static int refuse_stream(struct call *c, struct err *err)
{
        struct plugin p;
        int r = plugin_get(c->op, c->rt, c->params[0], &p, err);

        return r < 0 ? r : err_set(err, ERR_NOT_IMPLEMENTED, "Plugin stream bridge is not enabled");
}

static void show_tool(void *ctx, const struct plugin *p, const json_t *tool)
{
        struct jw *w = ctx;
        const char *name = json_get_string(tool, "name");
        struct buf full = BUF_INIT;

        buf_appendf(&full, "%s:%s", p->key, name ? name : "");
        jw_object(w);
        jw_kstring(w, "name", buf_str(&full));
        jw_kstring(w, "displayName", json_get_string(tool, "displayName"));
        jw_kstring(w, "description", json_get_string(tool, "description"));
        jw_kvalue(w, "parametersSchema", json_object_get(tool, "parametersSchema"));
        jw_kstring(w, "pluginId", p->id);
        jw_object_end(w);
        buf_done(&full);
}

static int list_tools(struct call *c, struct err *err)
{
        return call_list_end(c, plugin_each_tool(c->op, c->rt, show_tool, call_list(c), err));
}

static int execute_tool(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check body = { 0 };
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct plugin_tool_call call = { 0 };
        struct check in;
        struct plugin p;
        const char *name;
        int r = access_board(c->op->actor, err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        call.tool = check_string(&body, "tool", CHECK_REQUIRED, 1, 300);
        call.parameters = check_record(&body, "parameters", CHECK_NULLABLE);
        call.context = check_record(&body, "runContext", CHECK_REQUIRED);
        check_nested(&in, &body, "runContext", call.context);
        call.agent_id = check_uuid(&in, "agentId", CHECK_REQUIRED);
        call.run_id = check_uuid(&in, "runId", CHECK_REQUIRED);
        call.company_id = check_uuid(&in, "companyId", CHECK_REQUIRED);
        call.project_id = check_uuid(&in, "projectId", CHECK_REQUIRED);
        r = check_end(&body, err);
        if (r >= 0)
                r = plugin_execute_tool(c->op, c->rt, &call, &p, &name, &answer, err);
        if (r < 0)
                return call_bridge(c, r, err);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "pluginId", p.id);
        jw_kstring(w, "toolName", name);
        jw_kvalue(w, "result", answer);
        jw_object_end(w);
        return 0;
}

/* A job is known by its key: there are no rows of jobs, for nothing runs by itself. */
static int list_jobs(struct call *c, struct err *err)
{
        const json_t *jobs = NULL, *job;
        struct plugin p;
        size_t i;
        int r = plugin_jobs(c->op, c->rt, c->params[0], &p, &jobs, err);

        if (r < 0)
                return r;
        struct jw *w = call_list(c);
        json_array_foreach(jobs, i, job)
        {
                jw_object(w);
                jw_kstring(w, "id", json_get_string(job, "jobKey"));
                jw_kstring(w, "pluginId", p.id);
                jw_kstring(w, "jobKey", json_get_string(job, "jobKey"));
                jw_kstring(w, "displayName", json_get_string(job, "displayName"));
                jw_kstring(w, "schedule", json_get_string(job, "schedule"));
                jw_kstring(w, "status", "paused");
                jw_kstring(w, "lastRunAt", NULL);
                jw_kstring(w, "nextRunAt", NULL);
                jw_ktime(w, "createdAt", p.installed_at);
                jw_ktime(w, "updatedAt", p.updated_at);
                jw_object_end(w);
        }
        return call_list_end(c, 0);
}

static int list_job_runs(struct call *c, struct err *err)
{
        struct plugin p;
        int r = plugin_get(c->op, c->rt, c->params[0], &p, err);

        if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

static int trigger_job(struct call *c, struct err *err)
{
        struct uuid run;
        int r = plugin_trigger_job(c->op, c->rt, c->params[0], c->params[1], &run, err);

        if (r < 0)
                return call_bridge(c, r, err);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "runId", run.s);
        jw_kstring(w, "jobId", c->params[1]);
        jw_object_end(w);
        return 0;
}

const struct route routes_plugin_bridge[] = {
        { "GET", "/api/plugins/tools", .fn = list_tools },
        { "POST", "/api/plugins/tools/execute", .fn = execute_tool, .flags = ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/bridge/data", .fn = get_data, .flags = ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/bridge/action", .fn = perform_action,
          .flags = ROUTE_WAITS },
        { "GET", "/api/plugins/:pluginId/bridge/stream/:channel", .fn = refuse_stream },
        { "POST", "/api/plugins/:pluginId/data/:key", .fn = get_data,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/actions/:key", .fn = perform_action,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/plugins/:pluginId/jobs", .fn = list_jobs },
        { "GET", "/api/plugins/:pluginId/jobs/:job/runs", .fn = list_job_runs },
        { "POST", "/api/plugins/:pluginId/jobs/:job/trigger", .fn = trigger_job,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { 0 },
};
