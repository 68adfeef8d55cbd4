/* What plugins offer besides environments: decode, call core, encode. */
#include "api/plugin_bridge.h"

#include "core/plugins/plugin_ops.h"

static int refuse(struct call *c, const struct err *err, const char *code)
{
        struct jw *w;

        c->status = 502;
        buf_clear(&c->out);
        w = call_json(c);
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
                return refuse(c, err, "TIMEOUT");
        case ERR_UNCERTAIN:
                return refuse(c, err, "WORKER_UNAVAILABLE");
        case ERR_PROVIDER:
        case ERR_NOT_IMPLEMENTED:
                return refuse(c, err, "WORKER_ERROR");
        default:
                return r;
        }
}

static int bridge(struct call *c, enum plugin_bridge_kind kind, struct err *err)
{
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct jw *w;
        int r = plugin_bridge(c->op, c->rt, c->params[0], kind, c->params[1], c->body, &answer,
                              err);

        if (r < 0)
                return call_bridge(c, r, err);
        w = call_json(c);
        jw_object(w);
        jw_kvalue(w, "data", answer);
        jw_object_end(w);
        return 0;
}

static int data(struct call *c, struct err *err)
{
        return bridge(c, PLUGIN_DATA, err);
}

static int action(struct call *c, struct err *err)
{
        return bridge(c, PLUGIN_ACTION, err);
}

/* As in Paperclip, where no stream is wired either. */
static int stream(struct call *c, struct err *err)
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
        CLEAN(json_decrefp) json_t *answer = NULL;
        struct plugin p;
        const char *name;
        struct jw *w;
        int r = plugin_execute_tool(c->op, c->rt, c->body, &p, &name, &answer, err);

        if (r < 0)
                return call_bridge(c, r, err);
        w = call_json(c);
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
        struct jw *w;
        size_t i;
        int r = plugin_jobs(c->op, c->rt, c->params[0], &p, &jobs, err);

        if (r < 0)
                return r;
        w = call_list(c);
        json_array_foreach(jobs, i, job)
        {
                jw_object(w);
                jw_kstring(w, "id", json_get_string(job, "jobKey"));
                jw_kstring(w, "pluginId", p.id);
                jw_kstring(w, "jobKey", json_get_string(job, "jobKey"));
                jw_kstring(w, "displayName", json_get_string(job, "displayName"));
                jw_kstring(w, "schedule", json_get_string(job, "schedule"));
                jw_kstring(w, "status", "paused");
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
        struct jw *w;
        int r = plugin_trigger_job(c->op, c->rt, c->params[0], c->params[1], &run, err);

        if (r < 0)
                return call_bridge(c, r, err);
        w = call_json(c);
        jw_object(w);
        jw_kstring(w, "runId", run.s);
        jw_kstring(w, "jobId", c->params[1]);
        jw_object_end(w);
        return 0;
}

const struct route routes_plugin_bridge[] = {
        { "GET", "/api/plugins/tools", .fn = list_tools },
        { "POST", "/api/plugins/tools/execute", .fn = execute_tool, .flags = ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/bridge/data", .fn = data, .flags = ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/bridge/action", .fn = action, .flags = ROUTE_WAITS },
        { "GET", "/api/plugins/:pluginId/bridge/stream/:channel", .fn = stream },
        { "POST", "/api/plugins/:pluginId/data/:key", .fn = data,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/actions/:key", .fn = action,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/plugins/:pluginId/jobs", .fn = list_jobs },
        { "GET", "/api/plugins/:pluginId/jobs/:job/runs", .fn = list_job_runs },
        { "POST", "/api/plugins/:pluginId/jobs/:job/trigger", .fn = trigger_job,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { 0 },
};
