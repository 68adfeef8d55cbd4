/* What a plugin offers besides environments: data and actions of its pages, tools, and jobs that
 * are started by hand. The worker does the work; this file decides which callers may ask for it. */
#include "base/clock.h"
#include "base/log.h"
#include "codec/check.h"
#include "core/plugins/plugin_internal.h"
#include "store/agents.h"
#include "store/projects.h"
#include "store/runs.h"

#define NO_ADMIN "Instance admin access required"

static int check_ready(const struct plugin *p, struct err *err)
{
        return plugin_status_runs(p->status)
                       ? 0
                       : err_set(err, ERR_INVALID, "Plugin is not ready (current status: %s)",
                                 p->status);
}

static void unref(void *v)
{
        json_decref(v);
}

/* An array of the manifest, in the arena's keeping; NULL when it has none. */
static json_t *declared(struct op *op, const struct plugin *p, const char *member)
{
        json_t *manifest = NULL, *found;

        if (json_parse(p->manifest, strlen(p->manifest), &manifest, NULL) < 0)
                return NULL;
        arena_defer(op->arena, unref, manifest);
        found = json_object_get(manifest, member);
        return json_is_array(found) ? found : NULL;
}

static const json_t *find_declared(struct op *op, const struct plugin *p, const char *member,
                                   const char *key, const char *value)
{
        const json_t *list = declared(op, p, member), *element;
        size_t i;

        json_array_foreach(list, i, element)
        {
                const char *name = json_get_string(element, key);

                if (name && streq(name, value))
                        return element;
        }
        return NULL;
}

/* The caller and the scope of a call */

struct scope {
        struct op *op;
        const char *company_id;                     /* NULL: the whole instance */
        const char *agent_id, *run_id, *project_id; /* of a tool's call; NULL otherwise */
};

static int check_agent(struct db *db, const struct scope *s, struct err *err)
{
        struct agent agent;
        int r = agents_get(db, s->agent_id, s->op->arena, &agent, err);

        return r < 0 ? r : streq(agent.company_id, s->company_id) ? 0 : ERR_NOT_FOUND;
}

static int check_run(struct db *db, const struct scope *s, struct err *err)
{
        struct run run;
        int r = runs_get(db, s->run_id, s->op->arena, &run, err);

        if (r < 0)
                return r;
        return streq(run.company_id, s->company_id) && streq(run.agent_id, s->agent_id)
                       ? 0
                       : ERR_NOT_FOUND;
}

static int check_project(struct db *db, const struct scope *s, struct err *err)
{
        struct project project;
        int r = projects_get(db, s->project_id, s->op->arena, &project, err);

        return r < 0 ? r : streq(project.company_id, s->company_id) ? 0 : ERR_NOT_FOUND;
}

/* Without a company the call is about the whole instance. Named objects have to belong to the
 * company; for the caller, an object of another company and one that does not exist look the
 * same. */
static int check_scope(struct db *db, void *arg, struct err *err)
{
        const struct scope *s = arg;
        int r = access_board_org(db, s->op->actor, err);

        if (r >= 0)
                r = s->company_id ? access_company(db, s->op->actor, s->company_id, true, err)
                                  : access_admin(s->op->actor, NO_ADMIN, err);
        if (r < 0 || !s->company_id || !s->agent_id)
                return r;
        r = check_agent(db, s, err);
        if (r >= 0)
                r = check_run(db, s, err);
        if (r >= 0)
                r = check_project(db, s, err);
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return err_set(err, ERR_FORBIDDEN,
                       "Tool run context does not belong to the requested company");
}

/* Data and actions */

int plugin_bridge(struct op *op, struct runtime *rt, const char *id_or_key,
                  enum plugin_bridge_kind kind, const char *key, json_t *body, json_t **ret,
                  struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        CLEAN(json_decrefp) json_t *call_params = NULL;
        struct scope scope = { .op = op };
        json_t *params, *render;
        struct plugin p;
        int r = access_board(op->actor, err);

        check_init(&c, body);
        if (!key)
                key = check_string(&c, "key", CHECK_REQUIRED, 1, 200);
        scope.company_id = check_uuid(&c, "companyId", CHECK_NULLABLE);
        params = check_record(&c, "params", CHECK_NULLABLE);
        render = check_record(&c, "renderEnvironment", CHECK_NULLABLE);
        if (r >= 0)
                r = check_end(&c, err);
        if (r >= 0)
                r = store_read(op, rt->store, check_scope, &scope, err);
        if (r >= 0)
                r = plugin_load_row(op, rt, id_or_key, &p, err);
        if (r >= 0)
                r = check_ready(&p, err);
        if (r < 0)
                return r;
        call_params = json_pack("{s:s, s:o, s:O?}", "key", key, "params",
                                params ? json_incref(params) : json_object(), "renderEnvironment",
                                render);
        return plugin_call(
                op, rt->plugins->host,
                &(struct plugin_call){ .plugin_id = p.id,
                                       .method = kind == PLUGIN_DATA ? "getData" : "performAction",
                                       .params = call_params,
                                       .company_id = scope.company_id },
                ret, err);
}

/* Tools */

struct tools {
        struct op *op;
        void (*fn)(void *ctx, const struct plugin *p, const json_t *tool);
        void *ctx;
};

static int each_tool(void *arg, const struct plugin *p)
{
        struct tools *q = arg;
        const json_t *tool;
        size_t i;

        if (!plugin_status_runs(p->status))
                return 0;
        json_array_foreach(declared(q->op, p, "tools"), i, tool) q->fn(q->ctx, p, tool);
        return 0;
}

int plugin_each_tool(struct op *op, struct runtime *rt,
                     void (*fn)(void *ctx, const struct plugin *p, const json_t *tool), void *ctx,
                     struct err *err)
{
        struct tools q = { op, fn, ctx };

        return plugin_list(op, rt, NULL, each_tool, &q, err);
}

struct tool_request {
        const char *tool, *plugin_key, *name;
        struct scope scope;
        json_t *parameters, *context;
};

/* A tool is named by its plugin, too: "acme.box:search". */
static int read_tool(struct op *op, json_t *body, struct tool_request *q, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct check in;
        const char *colon;
        int r;

        check_init(&c, body);
        q->tool = arena_strdup(op->arena, check_string(&c, "tool", CHECK_REQUIRED, 1, 300));
        q->parameters = check_record(&c, "parameters", CHECK_NULLABLE);
        q->context = check_record(&c, "runContext", CHECK_REQUIRED);
        check_nested(&in, &c, "runContext", q->context);
        q->scope.op = op;
        q->scope.agent_id = arena_strdup(op->arena, check_uuid(&in, "agentId", CHECK_REQUIRED));
        q->scope.run_id = arena_strdup(op->arena, check_uuid(&in, "runId", CHECK_REQUIRED));
        q->scope.company_id = arena_strdup(op->arena, check_uuid(&in, "companyId", CHECK_REQUIRED));
        q->scope.project_id = arena_strdup(op->arena, check_uuid(&in, "projectId", CHECK_REQUIRED));
        r = check_end(&c, err);
        if (r < 0)
                return r;
        colon = strrchr(q->tool, ':');
        q->plugin_key = colon ? arena_strndup(op->arena, q->tool, (size_t)(colon - q->tool)) : "";
        q->name = colon ? colon + 1 : q->tool;
        return 0;
}

int plugin_execute_tool(struct op *op, struct runtime *rt, json_t *body, struct plugin *ret_plugin,
                        const char **ret_name, json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *params = NULL;
        struct tool_request q = { 0 };
        int r = access_board(op->actor, err);

        if (r >= 0)
                r = read_tool(op, body, &q, err);
        if (r >= 0)
                r = store_read(op, rt->store, check_scope, &q.scope, err);
        if (r >= 0)
                r = plugin_load_row(op, rt, q.plugin_key, ret_plugin, err);
        if (r == ERR_NOT_FOUND ||
            (r >= 0 && !find_declared(op, ret_plugin, "tools", "name", q.name)))
                return err_set(err, ERR_NOT_FOUND, "Tool \"%s\" not found", q.tool);
        if (r >= 0)
                r = check_ready(ret_plugin, err);
        if (r < 0)
                return r;
        *ret_name = q.name;
        params = json_pack("{s:s, s:o, s:O}", "toolName", q.name, "parameters",
                           q.parameters ? json_incref(q.parameters) : json_object(), "runContext",
                           q.context);
        return plugin_call(op, rt->plugins->host,
                           &(struct plugin_call){ .plugin_id = ret_plugin->id,
                                                  .method = "executeTool",
                                                  .params = params,
                                                  .company_id = q.scope.company_id },
                           ret, err);
}

/* Jobs */

int plugin_jobs(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret_plugin,
                const json_t **ret_jobs, struct err *err)
{
        int r = plugin_get(op, rt, id_or_key, ret_plugin, err);

        if (r >= 0)
                *ret_jobs = declared(op, ret_plugin, "jobs");
        return r;
}

struct trigger {
        struct op *op;
        const struct plugin *p;
};

static int note_trigger(struct db *db, void *arg, struct err *err)
{
        const struct trigger *q = arg;

        return plugin_audit(db, q->op, q->p, "plugin.job.triggered", err);
}

static void job_ended(void *ctx, int code, const json_t *result UNUSED, const struct err *err)
{
        char *run_id = ctx;

        if (code < 0)
                log_warn("a job of a plugin failed", LOG_S("run", run_id),
                         LOG_S("error", err->msg));
        else
                log_info("a job of a plugin ended", LOG_S("run", run_id));
        free(run_id);
}

static int begin_job(struct runtime *rt, const struct plugin *p, const char *job,
                     const struct uuid *run, struct err *err)
{
        CLEAN(json_decrefp) json_t *params = NULL;
        char at[ISO_TIME_LEN + 1];
        char *run_id = xstrdup(run->s);
        int64_t id;
        int r;

        clock_iso(clock_wall_us(), at);
        params = json_pack("{s:{s:s, s:s, s:s, s:s}}", "job", "jobKey", job, "runId", run->s,
                           "trigger", "manual", "scheduledAt", at);
        r = plugin_call_begin(
                rt->plugins->host,
                &(struct plugin_call){ .plugin_id = p->id, .method = "runJob", .params = params },
                job_ended, run_id, &id, err);
        if (r < 0)
                free(run_id);
        return r;
}

int plugin_trigger_job(struct op *op, struct runtime *rt, const char *id_or_key, const char *job,
                       struct uuid *ret_run, struct err *err)
{
        struct plugin p;
        struct trigger q = { op, &p };
        int r = access_admin(op->actor, NO_ADMIN, err);

        if (r >= 0)
                r = plugin_load_row(op, rt, id_or_key, &p, err);
        if (r >= 0 && !find_declared(op, &p, "jobs", "jobKey", job))
                r = err_set(err, ERR_NOT_FOUND, "Job not found");
        if (r >= 0)
                r = check_ready(&p, err);
        if (r >= 0)
                r = store_write(op, rt->store, note_trigger, &q, err);
        if (r < 0)
                return r;
        *ret_run = uuid_new();
        return begin_job(rt, &p, job, ret_run, err);
}
