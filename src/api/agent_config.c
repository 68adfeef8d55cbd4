/* How an agent is configured, was configured, and what is remembered of it. */
#include "api/api.h"
#include "api/encode.h"
#include "core/access/audit.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/agents/agent.h"
#include "core/assets/skill.h"

#define MISSING_REVISION "Config revision not found"

/* Begin to read what belongs to an agent, for a caller that manages agents. */
static int read_managed(struct call *c, struct db **ret, struct agent *ret_agent, struct err *err)
{
        int r = store_read_begin(c->op, c->rt->store, ret, err);

        return r < 0 ? r : agent_load_managed(*ret, c->op, c->params[0], ret_agent, err);
}

static int show_configuration(void *ctx, const struct agent *g)
{
        struct call *c = ctx;
        struct jw *w = &c->json;

        jw_object(w);
        jw_kstring(w, "id", g->id);
        jw_kstring(w, "companyId", g->company_id);
        jw_kstring(w, "name", g->name);
        jw_kstring(w, "role", g->role);
        jw_kstring(w, "title", g->title);
        jw_kstring(w, "status", g->status);
        jw_kstring(w, "reportsTo", g->reports_to);
        jw_kstring(w, "adapterType", g->adapter_type);
        jw_kraw(w, "adapterConfig", audit_redacted(c->op->arena, g->adapter_config));
        jw_kraw(w, "runtimeConfig", audit_redacted(c->op->arena, g->runtime_config));
        jw_kraw(w, "permissions", g->permissions);
        jw_ktime(w, "updatedAt", g->updated_at);
        jw_object_end(w);
        return 0;
}

static int get_configuration(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct agent g;
        int r = read_managed(c, &db, &g, err);

        if (r < 0)
                return r;
        (void)call_json(c);
        return show_configuration(c, &g);
}

static int list_configurations(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = call_read(c, c->params[0], &db, err);

        if (r >= 0)
                r = access_manage_agents(db, &c->actor, c->params[0], err);
        if (r < 0)
                return r;
        (void)call_list(c);
        return call_list_end(
                c, agents_list(db, c->params[0], c->op->arena, show_configuration, c, err));
}

static int show_revision(void *ctx, const struct agent_config_revision *row)
{
        struct call *c = ctx;

        encode_agent_revision(&c->json, c->op->arena, row);
        return 0;
}

/* Earlier configurations, newest first. */
static int list_revisions(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct agent g;
        int r = read_managed(c, &db, &g, err);

        if (r < 0)
                return r;
        (void)call_list(c);
        return call_list_end(
                c, agent_config_revisions_list(db, g.id, c->op->arena, show_revision, c, err));
}

static int get_revision(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct agent_config_revision row;
        struct agent g;
        int r = call_uuid(c, 1, MISSING_REVISION, err);

        if (r >= 0)
                r = read_managed(c, &db, &g, err);
        if (r >= 0)
                r = agent_config_revisions_get(db, g.id, c->params[1], c->op->arena, &row, err);
        if (r >= 0)
                encode_agent_revision(call_json(c), c->op->arena, &row);
        return r;
}

static int roll_back(struct call *c, struct err *err)
{
        struct agent agent;
        int r = call_uuid(c, 1, MISSING_REVISION, err);

        if (r >= 0)
                r = agent_revision_rollback(c->op, c->rt, c->params[0], c->params[1], &agent, err);
        if (r >= 0)
                encode_agent(call_json(c), &agent, true);
        return r;
}

static int set_instructions_path(struct call *c, struct err *err)
{
        static const struct body_member members[] = {
                BODY_TRIMMED(struct agent_instructions, path, "path",
                             .flags = CHECK_REQUIRED | CHECK_NULLABLE, .min = 1, .max = 4096),
                BODY_TEXT(struct agent_instructions, key, "adapterConfigKey", .min = 1, .max = 120),
        };
        static const struct body_type type = BODY_TYPE(members);
        struct agent_instructions set = { 0 };
        struct jw *w = call_json(c);
        struct agent agent;

        set.body = body_decode(&type, c->body, true, c->op->arena, &set);
        int r = agent_set_instructions_path(c->op, c->rt, c->params[0], &set, &agent, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "agentId", agent.id);
        jw_kstring(w, "adapterType", agent.adapter_type);
        jw_kstring(w, "adapterConfigKey", set.key);
        jw_kstring(w, "path", set.path);
        jw_object_end(w);
        return 0;
}

/* Whether its adapter brings skills to it. */
static bool has_skills(const struct agent *g)
{
        const struct adapter_descriptor *d = adapter_find(g->adapter_type);
        size_t i, k;
        json_t *asset, *part;

        json_array_foreach(d ? json_object_get(d->json, "assets") : NULL, i, asset)
        {
                json_array_foreach(json_object_get(asset, "from"), k, part)
                {
                        if (json_object_get(part, "skills"))
                                return true;
                }
        }
        return false;
}

static void encode_entry(struct jw *w, const char *name, const struct skill *s, bool desired)
{
        jw_object(w);
        jw_kstring(w, "key", name);
        jw_kstring(w, "runtimeName", s ? s->name : NULL);
        jw_kbool(w, "desired", desired);
        jw_kbool(w, "managed", s != NULL);
        jw_kstring(w, "state", !s ? "missing" : desired ? "configured" : "available");
        jw_kstring(w, "detail",
                   !s        ? "There is no such skill."
                   : desired ? "Is brought to the agent when it runs."
                             : NULL);
        jw_object_end(w);
}

/* What there is, and what is asked for and is not there. */
static void encode_entries(struct jw *w, const json_t *config, const struct skill_list *skills)
{
        size_t i;
        json_t *name;

        jw_key(w, "entries");
        jw_array(w);
        for (i = 0; i < skills->n; i++)
                encode_entry(w, skills->at[i].name, &skills->at[i],
                             skill_is_wanted(config, skills->at[i].name));
        json_array_foreach((json_t *)skill_wanted(config), i, name)
        {
                if (json_is_string(name) && !skill_find(skills, json_string_value(name)))
                        encode_entry(w, json_string_value(name), NULL, true);
        }
        jw_array_end(w);
        jw_key(w, "warnings");
        jw_array(w);
        json_array_foreach((json_t *)skill_wanted(config), i, name)
        {
                CLEAN(cleanup_free) char *text = NULL;

                if (!json_is_string(name) || skill_find(skills, json_string_value(name)))
                        continue;
                text = xasprintf("The skill \"%s\" is not there.", json_string_value(name));
                jw_string(w, text);
        }
        jw_array_end(w);
}

static void encode_desired(struct jw *w, const json_t *config, const struct skill_list *skills)
{
        jw_key(w, "desiredSkills");
        if (skill_wanted(config)) {
                jw_value(w, skill_wanted(config));
                return;
        }
        jw_array(w);
        for (size_t i = 0; i < skills->n; i++)
                jw_string(w, skills->at[i].name);
        jw_array_end(w);
}

/* Which skills an agent is to have, and which there are. It gets them when it runs. */
static int encode_skills(struct call *c, const struct agent *g, bool full, struct err *err)
{
        CLEAN(json_decrefp) json_t *config = NULL;
        bool supported = has_skills(g);
        struct skill_list skills = { 0 };
        int r = json_parse(g->adapter_config, strlen(g->adapter_config), &config, err);

        if (r >= 0 && full && supported)
                r = skill_list(c->op->arena, c->rt->data_dir, g->company_id, &skills, err);
        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "adapterType", g->adapter_type);
        jw_kbool(w, "supported", supported);
        jw_kstring(w, "mode", supported ? "ephemeral" : "unsupported");
        if (full) {
                encode_desired(w, config, &skills);
        } else {
                jw_kraw(w, "desiredSkills", "[]");
        }
        if (full && supported) {
                encode_entries(w, config, &skills);
        } else {
                jw_kraw(w, "entries", "[]");
                jw_kraw(w, "warnings", "[]");
        }
        jw_object_end(w);
        return 0;
}

/* Those of a company, and those of all. */
static int list_skills(struct call *c, struct err *err)
{
        const char *id = c->params[0];
        CLEAN(store_read_end) struct db *db = NULL;
        struct skill_list skills;
        int r = call_read(c, id, &db, err);

        store_read_end(&db);
        if (r >= 0)
                r = skill_list(c->op->arena, c->rt->data_dir, id, &skills, err);
        if (r < 0)
                return r;
        struct jw *w = call_list(c);
        for (size_t i = 0; i < skills.n; i++) {
                const struct skill *s = &skills.at[i];

                jw_object(w);
                jw_kstring(w, "id", s->name);
                jw_kstring(w, "companyId", id);
                jw_kstring(w, "key", s->name);
                jw_kstring(w, "slug", s->name);
                jw_kstring(w, "name", s->name);
                jw_kstring(w, "description", s->description);
                jw_kstring(w, "sourceType", "local_path");
                jw_kstring(w, "scope", s->is_company ? "company" : "instance");
                jw_kbool(w, "editable", false);
                jw_ktime(w, "updatedAt", s->updated_at);
                jw_object_end(w);
        }
        return call_list_end(c, 0);
}

static int get_skills(struct call *c, struct err *err)
{
        struct agent agent;
        bool full;
        int r = agent_get(c->op, c->rt, c->params[0], &agent, &full, err);

        return r < 0 ? r : encode_skills(c, &agent, full, err);
}

static bool has_skill(const json_t *skills, const json_t *name)
{
        const json_t *skill;
        size_t i;

        json_array_foreach(skills, i, skill) if (json_equal(skill, name)) return true;
        return false;
}

/* The skills that are there, with or without those that are named. A new reference. */
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

/* {desiredSkills, mode?: add, remove or replace}: the skills that are to be there afterwards. */
static int wanted_skills(struct call *c, json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *config = NULL;
        json_t *named = json_object_get(c->body, "desiredSkills"), *there;
        const char *mode = json_get_string(c->body, "mode");
        struct agent agent;
        bool full;

        if (!mode || streq(mode, "replace") || !json_is_array(named)) {
                *ret = json_incref(named);
                return 0;
        }
        if (!streq(mode, "add") && !streq(mode, "remove"))
                return err_set(err, ERR_INVALID, "mode must be add, remove or replace");
        int r = agent_get(c->op, c->rt, c->params[0], &agent, &full, err);
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
        struct agent_patch patch;
        struct agent agent;
        int r = wanted_skills(c, &wanted, err);

        if (r < 0)
                return r;
        body = json_pack("{s:o?}", "desiredSkills", wanted);
        agent_patch_read(c->op->arena, body, false, &patch);
        r = agent_update(c->op, c->rt, c->params[0], &patch, &agent, err);
        json_decref(body);
        return r < 0 ? r : encode_skills(c, &agent, true, err);
}

static int get_state(struct call *c, struct err *err)
{
        struct agent_runtime_state state;
        int r = agent_state_get(c->op, c->rt, c->params[0], &state, err);

        if (r >= 0)
                encode_row(call_json(c), &agent_runtime_state_table, &state);
        return r;
}

static int reset_session(struct call *c, struct err *err)
{
        struct agent_runtime_state state;
        const char *task = NULL;
        struct body body = call_text(c, "taskKey", CHECK_NULLABLE, 500, &task);
        int r = agent_state_reset(c->op, c->rt, c->params[0], &body,
                                  arena_strtrim(c->op->arena, task), &state, err);

        if (r >= 0)
                encode_row(call_json(c), &agent_runtime_state_table, &state);
        return r;
}

struct sessions {
        struct jw *w;
        const struct agent *agent;
};

static int show_session(void *ctx, const struct agent_task_session *row)
{
        const struct sessions *s = ctx;
        CLEAN(cleanup_free) char *id = xasprintf("%s:%s", row->agent_id, row->task_key);

        jw_object(s->w);
        jw_kstring(s->w, "id", id);
        jw_kstring(s->w, "companyId", s->agent->company_id);
        encode_members(s->w, &agent_task_session_table, row);
        jw_ktime(s->w, "createdAt", row->created_at);
        jw_object_end(s->w);
        return 0;
}

/* Last used first. */
static int list_sessions(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct agent g;
        struct sessions s = { .agent = &g };
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = read_managed(c, &db, &g, err);
        if (r < 0)
                return r;
        s.w = call_list(c);
        return call_list_end(
                c, agent_task_sessions_list(db, g.id, c->op->arena, show_session, &s, err));
}

const struct route routes_agent_config[] = {
        { "GET", "/api/agents/:id/configuration", .fn = get_configuration },
        { "GET", "/api/companies/:companyId/agent-configurations", .fn = list_configurations },
        { "GET", "/api/agents/:id/config-revisions", .fn = list_revisions },
        { "GET", "/api/agents/:id/config-revisions/:revision", .fn = get_revision },
        { "POST", "/api/agents/:id/config-revisions/:revision/rollback", .fn = roll_back,
          .flags = ROUTE_BODY_FREE },
        { "PATCH", "/api/agents/:id/instructions-path", .fn = set_instructions_path },
        { "GET", "/api/agents/:id/skills", .fn = get_skills },
        { "GET", "/api/companies/:companyId/skills", .fn = list_skills },
        { "POST", "/api/agents/:id/skills/sync", .fn = sync_skills },
        { "GET", "/api/agents/:id/runtime-state", .fn = get_state },
        { "GET", "/api/agents/:id/task-sessions", .fn = list_sessions },
        { "POST", "/api/agents/:id/runtime-state/reset-session", .fn = reset_session,
          .flags = ROUTE_BODY_FREE },
        { 0 },
};
