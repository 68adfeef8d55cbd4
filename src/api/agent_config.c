/* How an agent is configured, was configured, and what is remembered of it. */
#include "api/api.h"
#include "api/encode.h"
#include "core/agent.h"

#define MISSING_REVISION "Config revision not found"

static int configuration(struct call *c, struct err *err)
{
        struct agent g;
        const char *id;
        struct jw w;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_configuration(c->op, c->rt, id, &g, err);
        if (r < 0)
                return r;
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_kstring(&w, "id", g.id);
        jw_kstring(&w, "companyId", g.company_id);
        jw_kstring(&w, "name", g.name);
        jw_kstring(&w, "role", g.role);
        jw_kstring(&w, "title", g.title);
        jw_kstring(&w, "status", g.status);
        jw_kstring(&w, "reportsTo", g.reports_to);
        jw_kstring(&w, "adapterType", g.adapter_type);
        jw_kraw(&w, "adapterConfig", g.adapter_config);
        jw_kraw(&w, "runtimeConfig", g.runtime_config);
        jw_kraw(&w, "permissions", g.permissions);
        jw_ktime(&w, "updatedAt", g.updated_at);
        jw_object_end(&w);
        return 0;
}

static int show_revision(void *ctx, const struct agent_config_revision *row)
{
        encode_agent_revision(ctx, row);
        return 0;
}

static int list_revisions(struct call *c, struct err *err)
{
        const char *id;
        struct jw w;
        int r = call_agent(c, &id, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, agent_revision_list(c->op, c->rt, id, show_revision, &w, err));
}

static int get_revision(struct call *c, struct err *err)
{
        struct agent_config_revision revision;
        const char *id, *revision_id;
        struct jw w;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = call_uuid(c, 1, MISSING_REVISION, &revision_id, err);
        if (r >= 0)
                r = agent_revision_get(c->op, c->rt, id, revision_id, &revision, err);
        jw_init(&w, &c->out);
        if (r >= 0)
                encode_agent_revision(&w, &revision);
        return r;
}

static int roll_back(struct call *c, struct err *err)
{
        const char *id, *revision_id;
        struct agent agent;
        struct jw w;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = call_uuid(c, 1, MISSING_REVISION, &revision_id, err);
        if (r >= 0)
                r = agent_revision_rollback(c->op, c->rt, id, revision_id, &agent, err);
        jw_init(&w, &c->out);
        if (r >= 0)
                encode_agent(&w, &agent, true);
        return r;
}

static int set_instructions_path(struct call *c, struct err *err)
{
        const char *id, *key, *path;
        struct agent agent;
        struct jw w;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_set_instructions_path(c->op, c->rt, id, c->body, &agent, &key, &path,
                                                err);
        if (r < 0)
                return r;
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_kstring(&w, "agentId", agent.id);
        jw_kstring(&w, "adapterType", agent.adapter_type);
        jw_kstring(&w, "adapterConfigKey", key);
        jw_kstring(&w, "path", path);
        jw_object_end(&w);
        return 0;
}

/* Which skills an agent is to have. Getting them there is the business of its adapter. */
static int encode_skills(struct call *c, const struct agent *g, bool full, struct err *err)
{
        json_t *config = NULL, *wanted;
        struct jw w;
        int r = json_parse(g->adapter_config, strlen(g->adapter_config), &config, err);

        if (r < 0)
                return r;
        wanted = json_object_get(json_get_object(config, "paperclipSkillSync"), "desiredSkills");
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_kstring(&w, "adapterType", g->adapter_type);
        jw_kbool(&w, "supported", false);
        jw_kstring(&w, "mode", "unsupported");
        jw_key(&w, "desiredSkills");
        if (full && json_is_array(wanted))
                jw_value(&w, wanted);
        else
                jw_raw(&w, "[]");
        jw_kraw(&w, "entries", "[]");
        jw_kraw(&w, "warnings", "[]");
        jw_object_end(&w);
        json_decref(config);
        return 0;
}

static int get_skills(struct call *c, struct err *err)
{
        struct agent agent;
        const char *id;
        bool full;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_get(c->op, c->rt, id, &agent, &full, err);
        return r < 0 ? r : encode_skills(c, &agent, full, err);
}

static bool has_skill(const json_t *skills, const json_t *name)
{
        const json_t *skill;
        size_t i;

        json_array_foreach(skills, i, skill) if (json_equal(skill, name)) return true;
        return false;
}

/* What is there, with or without what is named. A new reference. */
static json_t *merge_skills(const json_t *there, const json_t *named, bool add)
{
        json_t *merged = json_array(), *skill;
        size_t i;

        json_array_foreach(there, i, skill) if (!has_skill(named, skill))
                json_array_append(merged, skill);
        if (add)
                json_array_extend(merged, (json_t *)named);
        return merged;
}

/* {desiredSkills, mode?: add, remove or replace}: what is to be there afterwards. */
static int wanted_skills(struct call *c, const char *id, json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *config = NULL;
        json_t *named = json_object_get(c->body, "desiredSkills"), *there;
        const char *mode = json_get_string(c->body, "mode");
        struct agent agent;
        bool full;
        int r;

        if (!mode || streq(mode, "replace") || !json_is_array(named)) {
                *ret = json_incref(named);
                return 0;
        }
        if (!streq(mode, "add") && !streq(mode, "remove"))
                return err_set(err, ERR_INVALID, "mode must be add, remove or replace");
        r = agent_get(c->op, c->rt, id, &agent, &full, err);
        if (r >= 0)
                r = json_parse(agent.adapter_config, strlen(agent.adapter_config), &config, err);
        if (r < 0)
                return r;
        there = json_object_get(json_get_object(config, "paperclipSkillSync"), "desiredSkills");
        *ret = merge_skills(there, named, streq(mode, "add"));
        return 0;
}

/* A change of the agent, with its rules. */
static int sync_skills(struct call *c, struct err *err)
{
        json_t *wanted = NULL, *body;
        struct agent agent;
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = wanted_skills(c, id, &wanted, err);
        if (r < 0)
                return r;
        body = json_pack("{s:o?}", "desiredSkills", wanted);
        r = agent_update(c->op, c->rt, id, body, &agent, err);
        json_decref(body);
        return r < 0 ? r : encode_skills(c, &agent, true, err);
}

static int encode_state(struct call *c, const struct agent_runtime_state *state)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_agent_state(&w, state);
        return 0;
}

static int get_state(struct call *c, struct err *err)
{
        struct agent_runtime_state state;
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_state_get(c->op, c->rt, id, &state, err);
        return r < 0 ? r : encode_state(c, &state);
}

static int reset_session(struct call *c, struct err *err)
{
        struct agent_runtime_state state;
        const char *id;
        int r = call_agent(c, &id, err);

        if (r >= 0)
                r = agent_state_reset(c->op, c->rt, id, c->body, &state, err);
        return r < 0 ? r : encode_state(c, &state);
}

static int show_session(void *ctx, const struct agent_task_session *row)
{
        struct jw *w = ctx;

        jw_object(w);
        jw_kstring(w, "agentId", row->agent_id);
        jw_kstring(w, "taskKey", row->task_key);
        jw_kstring(w, "adapterType", row->adapter_type);
        jw_kstring(w, "sessionDisplayId", row->session_display_id);
        jw_kraw(w, "sessionParamsJson", row->session_params_json);
        jw_kstring(w, "lastRunId", row->last_run_id);
        jw_kstring(w, "lastError", row->last_error);
        jw_ktime(w, "updatedAt", row->updated_at);
        jw_object_end(w);
        return 0;
}

static int list_sessions(struct call *c, struct err *err)
{
        const char *id;
        struct jw w;
        int r = call_agent(c, &id, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, agent_task_sessions(c->op, c->rt, id, show_session, &w, err));
}

const struct route routes_agent_config[] = {
        { "GET", "/api/agents/:id/configuration", configuration, 0 },
        { "GET", "/api/agents/:id/config-revisions", list_revisions, 0 },
        { "GET", "/api/agents/:id/config-revisions/:revision", get_revision, 0 },
        { "POST", "/api/agents/:id/config-revisions/:revision/rollback", roll_back,
          ROUTE_BODY_FREE },
        { "PATCH", "/api/agents/:id/instructions-path", set_instructions_path, 0 },
        { "GET", "/api/agents/:id/skills", get_skills, 0 },
        { "POST", "/api/agents/:id/skills/sync", sync_skills, 0 },
        { "GET", "/api/agents/:id/runtime-state", get_state, 0 },
        { "GET", "/api/agents/:id/task-sessions", list_sessions, 0 },
        { "POST", "/api/agents/:id/runtime-state/reset-session", reset_session, ROUTE_BODY_FREE },
        { NULL, NULL, NULL, 0 },
};
