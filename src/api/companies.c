/* Routes of companies. */
#include "api/api.h"
#include "api/encode.h"
#include "core/agents/agent.h"
#include "core/companies/company.h"
#include "core/companies/erase.h"
#include "store/projects.h"

#define ATTACHMENT_MAX_DEFAULT 10485760

/* -- Companies -------------------------------------------------------------------------------- */

static int show_company(void *ctx, const struct company *company)
{
        encode_company(ctx, company);
        return 0;
}

/* Begin to read companies; *ret_user: the user whose companies may be listed, NULL: all may. */
static int read_companies(struct call *c, struct db **ret, const char **ret_user, struct err *err)
{
        int r = access_board(&c->actor, err);

        *ret_user = c->actor.is_instance_admin ? NULL : c->actor.user_id;
        return r < 0 ? r : store_read_begin(c->op, c->rt->store, ret, err);
}

static int list_companies(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *user;
        int r = read_companies(c, &db, &user, err);

        return r < 0 ? r
                     : call_list_end(c, companies_list(db, user, c->op->arena, show_company,
                                                       call_list(c), err));
}

struct statistics {
        struct jw *w;
        struct db *db;
        struct err *err;
};

static int show_statistics(void *ctx, const struct company *company)
{
        const struct statistics *all = ctx;
        int64_t agents;
        int r = companies_count_agents(all->db, company->id, &agents, all->err);

        if (r < 0)
                return r;
        jw_key(all->w, company->id);
        jw_object(all->w);
        jw_kint(all->w, "agentCount", agents);
        jw_kint(all->w, "issueCount", company->issue_counter);
        jw_object_end(all->w);
        return 0;
}

static int company_statistics(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct statistics all = { .w = call_json(c), .err = err };
        const char *user;
        int r = read_companies(c, &db, &user, err);

        if (r < 0)
                return r;
        all.db = db;
        jw_object(all.w);
        r = companies_list(db, user, c->op->arena, show_statistics, &all, err);
        jw_object_end(all.w);
        return r;
}

static int answer_company(struct call *c, int r, const struct company *company)
{
        if (r >= 0)
                encode_company(call_json(c), company);
        return r;
}

static int create_company(struct call *c, struct err *err)
{
        struct company_patch patch = { .row = { .status = "active",
                                                .attachment_max_bytes = ATTACHMENT_MAX_DEFAULT } };
        struct company company;

        patch.body = body_decode(&company_body, c->body, true, c->op->arena, &patch);
        return answer_company(c, company_create(c->op, c->rt, &patch, &company, err), &company);
}

static int get_company(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct company company;
        int r = call_read(c, c->params[0], &db, err);

        if (r >= 0)
                r = companies_get(db, c->params[0], c->op->arena, &company, err);
        return answer_company(c, r, &company);
}

static int patch_company(struct call *c, struct err *err)
{
        struct company_patch patch = { 0 };
        struct company company;

        if (c->body)
                patch.body = body_decode(&company_body, c->body, false, c->op->arena, &patch);
        int r = company_update(c->op, c->rt, c->params[0], &patch, &company, err);
        return answer_company(c, r, &company);
}

static int archive_company(struct call *c, struct err *err)
{
        struct company company;
        int r = company_update(c->op, c->rt, c->params[0], NULL, &company, err);

        return answer_company(c, r, &company);
}

/* -- What has to be filled in when a company is moved elsewhere ------------------------------- */

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

static int show_inputs_of_agent(void *ctx, const struct agent *g)
{
        json_t *config = NULL;

        if (streq(g->status, "terminated"))
                return 0;
        if (json_parse(g->adapter_config, strlen(g->adapter_config), &config, NULL) >= 0)
                write_inputs(ctx, json_get_object(config, "env"), g->url_key, NULL);
        json_decref(config);
        return 0;
}

static int show_inputs_of_project(void *ctx, const struct project *p)
{
        json_t *env = NULL;

        if (p->env && json_parse(p->env, strlen(p->env), &env, NULL) >= 0)
                write_inputs(ctx, env, NULL, p->url_key);
        json_decref(env);
        return 0;
}

/* The variables of its agents and projects, by name; values stay here. Board callers and CEOs. */
static int preview_export(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct jw *w = call_json(c);
        bool is_ceo = false;
        int r = call_read(c, c->params[0], &db, err);

        if (r >= 0 && c->actor.type == ACTOR_AGENT)
                r = access_is_ceo(db, c->op, &is_ceo, err);
        if (r >= 0 && !is_ceo)
                r = access_board(&c->actor, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_key(w, "manifest");
        jw_object(w);
        jw_key(w, "envInputs");
        jw_array(w);
        r = agents_list(db, c->params[0], c->op->arena, show_inputs_of_agent, w, err);
        if (r >= 0)
                r = projects_list(db, c->params[0], c->op->arena, show_inputs_of_project, w, err);
        jw_array_end(w);
        jw_object_end(w);
        jw_object_end(w);
        return r;
}

static int delete_company(struct call *c, struct err *err)
{
        const char *confirm = call_query(c, "confirm");

        return call_ended(c, confirm ? erase_company(c->op, c->rt, c->params[0], confirm, err)
                                     : company_delete(c->op, c->rt, c->params[0], err));
}

const struct route routes_companies[] = {
        { "GET", "/api/companies", .fn = list_companies },
        { "POST", "/api/companies", .fn = create_company, .status = 201 },
        { "GET", "/api/companies/stats", .fn = company_statistics },
        { "GET", "/api/companies/:id", .fn = get_company },
        { "PATCH", "/api/companies/:id", .fn = patch_company },
        { "POST", "/api/companies/:id/archive", .fn = archive_company },
        { "DELETE", "/api/companies/:id", .fn = delete_company },
        { "POST", "/api/companies/:id/exports/preview", .fn = preview_export,
          .flags = ROUTE_BODY_FREE },
        { 0 },
};
