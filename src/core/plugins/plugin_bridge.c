/* What a plugin offers besides environments: data and actions of its pages, tools, and jobs that
 * are started by hand. The worker does the work; this file decides which callers may ask for it. */
#include "base/clock.h"
#include "base/log.h"
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

/* An array of the manifest, in the arena's keeping; NULL when it has none. */
static json_t *declared(struct op *op, const struct plugin *p, const char *member)
{
        json_t *found = json_object_get(plugin_manifest(op, p), member);

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

/* Without a company the call is about the whole instance. The objects that the call of a tool names
 * have to belong to the company; for the caller, an object of another company and one that does not
 * exist look the same. */
static int check_scope(struct op *op, struct runtime *rt, const char *company_id,
                       const struct plugin_tool_call *tool, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena *a = op->arena;
        struct project project;
        struct agent agent;
        struct run run;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_board_org(db, op->actor, err);
        if (r >= 0)
                r = company_id ? access_company(db, op->actor, company_id, true, err)
                               : access_admin(op->actor, NO_ADMIN, err);
        if (r < 0 || !tool)
                return r;
        r = company_id ? agents_get(db, tool->agent_id, a, &agent, err) : ERR_NOT_FOUND;
        if (r >= 0 && !streq(agent.company_id, company_id))
                r = ERR_NOT_FOUND;
        if (r >= 0)
                r = runs_get(db, tool->run_id, a, &run, err);
        if (r >= 0 && (!streq(run.company_id, company_id) || !streq(run.agent_id, tool->agent_id)))
                r = ERR_NOT_FOUND;
        if (r >= 0)
                r = projects_get(db, tool->project_id, a, &project, err);
        if (r >= 0 && !streq(project.company_id, company_id))
                r = ERR_NOT_FOUND;
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return err_set(err, ERR_FORBIDDEN,
                       "Tool run context does not belong to the requested company");
}

/* Data and actions */

int plugin_call_page(struct op *op, struct runtime *rt, const char *id_or_key,
                     const struct plugin_page_call *call, json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *params = NULL;
        struct plugin p;
        int r = check_scope(op, rt, call->company_id, NULL, err);

        if (r >= 0)
                r = plugin_load_row(op, rt, id_or_key, &p, err);
        if (r >= 0)
                r = check_ready(&p, err);
        if (r < 0)
                return r;
        params = json_pack("{s:s, s:o, s:O?}", "key", call->key, "params",
                           call->params ? json_incref(call->params) : json_object(),
                           "renderEnvironment", call->render);
        return plugin_call(
                op, rt->plugins->host,
                &(struct plugin_call){ .plugin_id = p.id,
                                       .method = call->is_action ? "performAction" : "getData",
                                       .params = params,
                                       .company_id = call->company_id },
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

int plugin_execute_tool(struct op *op, struct runtime *rt, const struct plugin_tool_call *call,
                        struct plugin *ret_plugin, const char **ret_name, json_t **ret,
                        struct err *err)
{
        CLEAN(json_decrefp) json_t *params = NULL;
        const char *colon = strrchr(call->tool, ':');
        const char *name = colon ? colon + 1 : call->tool;
        const char *plugin_key =
                colon ? arena_strndup(op->arena, call->tool, (size_t)(colon - call->tool)) : "";
        int r = check_scope(op, rt, call->company_id, call, err);

        if (r >= 0)
                r = plugin_load_row(op, rt, plugin_key, ret_plugin, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && !find_declared(op, ret_plugin, "tools", "name", name)))
                return err_set(err, ERR_NOT_FOUND, "Tool \"%s\" not found", call->tool);
        if (r >= 0)
                r = check_ready(ret_plugin, err);
        if (r < 0)
                return r;
        *ret_name = name;
        params = json_pack("{s:s, s:o, s:O}", "toolName", name, "parameters",
                           call->parameters ? json_incref(call->parameters) : json_object(),
                           "runContext", call->context);
        return plugin_call(op, rt->plugins->host,
                           &(struct plugin_call){ .plugin_id = ret_plugin->id,
                                                  .method = "executeTool",
                                                  .params = params,
                                                  .company_id = call->company_id },
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

        clock_iso(clock_wall_us(), at);
        params = json_pack("{s:{s:s, s:s, s:s, s:s}}", "job", "jobKey", job, "runId", run->s,
                           "trigger", "manual", "scheduledAt", at);
        int r = plugin_call_begin(
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
