/* Lists the values that have to be filled in when a company is moved elsewhere: the variables of
 * its agents and projects, by name. Values stay here. */
#include "core/agents/agent.h"
#include "core/companies/company.h"
#include "store/projects.h"

struct export
{
        struct op *op;
        const char *company_id;
        struct jw w;
};

static void write_inputs(struct jw *w, const json_t *env, const char *agent, const char *project)
{
        const char *name, *type;
        json_t *variable;

        json_object_foreach((json_t *)env, name, variable)
        {
                type = json_get_string(variable, "type");
                jw_object(w);
                jw_kstring(w, "key", name);
                jw_knull(w, "description");
                jw_kstring(w, "agentSlug", agent);
                jw_kstring(w, "projectSlug", project);
                jw_kstring(w, "kind", type && streq(type, "secret_ref") ? "secret" : "plain");
                jw_kstring(w, "requirement", "required");
                jw_knull(w, "defaultValue");
                jw_kstring(w, "portability", "portable");
                jw_object_end(w);
        }
}

static int show_agent(void *ctx, const struct agent *g)
{
        struct export *e = ctx;
        json_t *config = NULL;

        if (streq(g->status, "terminated"))
                return 0;
        if (json_parse(g->adapter_config, strlen(g->adapter_config), &config, NULL) >= 0)
                write_inputs(&e->w, json_get_object(config, "env"), g->url_key, NULL);
        json_decref(config);
        return 0;
}

static int show_project(void *ctx, const struct project *p)
{
        struct export *e = ctx;
        json_t *env = NULL;

        if (p->env && json_parse(p->env, strlen(p->env), &env, NULL) >= 0)
                write_inputs(&e->w, env, NULL, p->url_key);
        json_decref(env);
        return 0;
}

static int check_asker(struct db *db, const struct export *e, struct err *err)
{
        bool is_ceo = false;
        int r = access_company(db, e->op->actor, e->company_id, false, err);

        if (r < 0 || e->op->actor->type != ACTOR_AGENT)
                return r < 0 ? r : access_board(e->op->actor, err);
        r = agent_actor_is_ceo(db, e->op, &is_ceo, err);
        return r < 0 || is_ceo ? r : access_board(e->op->actor, err);
}

static int preview(struct db *db, void *arg, struct err *err)
{
        struct export *e = arg;
        int r = check_asker(db, e, err);

        if (r < 0)
                return r;
        jw_object(&e->w);
        jw_key(&e->w, "manifest");
        jw_object(&e->w);
        jw_key(&e->w, "envInputs");
        jw_array(&e->w);
        r = agents_list(db, e->company_id, e->op->arena, show_agent, e, err);
        if (r >= 0)
                r = projects_list(db, e->company_id, e->op->arena, show_project, e, err);
        jw_array_end(&e->w);
        jw_object_end(&e->w);
        jw_object_end(&e->w);
        return r;
}

int company_export_preview(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                           struct err *err)
{
        struct export e = { .op = op, .company_id = id };

        jw_init(&e.w, ret_json);
        return store_read(op, rt->store, preview, &e, err);
}
