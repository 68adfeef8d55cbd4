/* Decides which agents may be made and how they may be changed, and records what they were before.
 */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/access/run_policy.h"
#include "core/adapters/adapter.h"
#include "core/agents/agent.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/runs/run.h"
#include "core/secrets/agent_env.h"
#include "store/companies.h"

#define CHAIN_MAX     64
#define SKILLS_MEMBER "paperclipSkillSync"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *id, *revision_id;
        const struct agent_patch *patch;
        struct agent_instructions *instructions;
        struct agent *agent;
        bool is_hire; /* it may have to wait for approval */
};

/* -- What is wanted --------------------------------------------------------------------------- */

static const char *const roles[] = { "ceo",        "cto",      "cmo", "cfo", "security",
                                     "engineer",   "designer", "pm",  "qa",  "devops",
                                     "researcher", "general",  NULL };
static const char *const statuses[] = { "active", "paused",           "idle",       "running",
                                        "error",  "pending_approval", "terminated", NULL };

static void check_permissions(struct check *c, const struct body_member *m, void *into,
                              struct arena *arena UNUSED)
{
        struct check n;

        check_nested(&n, c, m->name, ((struct agent_patch *)into)->permissions);
        (void)check_bool(&n, "canCreateAgents", CHECK_OPTIONAL, false);
}

#define P struct agent_patch
static const struct body_member members[] = {
        BODY_TEXT(P, row.name, "name", .flags = CHECK_REQUIRED, .min = 1),
        BODY_WORD(P, row.role, "role", roles),
        BODY_TEXT(P, row.title, "title", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.icon, "icon", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.capabilities, "capabilities", .flags = CHECK_NULLABLE),
        BODY_NUMBER(P, row.budget_monthly_cents, "budgetMonthlyCents"),
        BODY_DOCUMENT(P, row.metadata, "metadata", .flags = CHECK_NULLABLE),
        BODY_TEXT(P, row.adapter_type, "adapterType", .min = 1),
        BODY_UUID(P, row.reports_to, "reportsTo", .flags = CHECK_NULLABLE),
        BODY_UUID(P, row.default_environment_id, "defaultEnvironmentId", .flags = CHECK_NULLABLE),
        BODY_OBJECT(P, adapter_config, "adapterConfig"),
        BODY_OBJECT(P, runtime_config, "runtimeConfig"),
        BODY_STRINGS(P, desired_skills, "desiredSkills", .min = 1),
        BODY_FLAG(P, replace_adapter_config, "replaceAdapterConfig", .when = BODY_CHANGING),
        BODY_WORD(P, status, "status", statuses, .when = BODY_CHANGING),
        BODY_OBJECT(P, permissions, "permissions", .when = BODY_CREATING, .unnamed = true,
                    .more = check_permissions),
        BODY_PRESENT(P, has_permissions, "permissions", .when = BODY_CHANGING, .unnamed = true),
        BODY_PRESENT(P, has_bundle, "instructionsBundle", .unnamed = true),
};
#undef P
static const struct body_type agent_body = BODY_TYPE(members);

void agent_patch_read(struct arena *arena, json_t *body, bool creating, struct agent_patch *ret)
{
        *ret = (struct agent_patch){ 0 };
        if (creating)
                ret->row = (struct agent){ .status = "idle",
                                           .role = "general",
                                           .adapter_type = "process" };
        ret->body = body_decode(&agent_body, body, creating, arena, ret);
}

/* Put what is wanted into the row, without its configurations and its status. */
static int agent_put_patch(struct op *op, const struct agent_patch *p, struct agent *g,
                           struct err *err)
{
        int r = body_check(&p->body, err);

        if (r < 0)
                return r;
        body_apply(&agent_body, &p->body, p, g, sizeof(*g));
        if (body_has(&agent_body, &p->body, "name"))
                g->url_key = arena_slug(op->arena, g->name);
        if (p->has_bundle)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Instruction bundles are not kept here; put the instructions into a "
                               "file and name it in adapterConfig.instructionsFilePath");
        if (!adapter_is_known(g->adapter_type))
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", g->adapter_type);
        return 0;
}

/* The timer is enabled only when the caller asked for it. */
static const char *runtime_config_of(struct arena *arena, const json_t *given)
{
        json_t *config = given ? json_deep_copy(given) : json_object();
        json_t *heartbeat = json_object_get(config, "heartbeat");

        if (!json_is_object(heartbeat)) {
                heartbeat = json_object();
                json_object_set_new(config, "heartbeat", heartbeat);
        }
        if (!json_is_boolean(json_object_get(heartbeat, "enabled")))
                json_object_set_new(heartbeat, "enabled", json_false());
        if (!json_is_integer(json_object_get(heartbeat, "maxConcurrentRuns")))
                json_object_set_new(heartbeat, "maxConcurrentRuns", json_integer(20));
        const char *text = json_to_arena(arena, config);
        json_decref(config);
        return text;
}

/* Make the row's new configurations from `before` (NULL for a new agent): merged, checked,
 * variables in one form. *ret is the new adapterConfig, a new reference. */
static int agent_put_config(struct db *db, struct op *op, struct runtime *rt, const json_t *before,
                            const struct agent_patch *p, struct agent *g, json_t **ret,
                            struct err *err)
{
        bool alone = !before || (p->replace_adapter_config && p->adapter_config);
        json_t *config = alone ? json_object() : json_deep_copy(before);

        *ret = config;
        if (p->adapter_config)
                json_object_update(config, p->adapter_config);
        if (p->desired_skills)
                json_object_set_new(config, SKILLS_MEMBER,
                                    json_pack("{s:O}", "desiredSkills", p->desired_skills));
        int r = agent_env_check(db, op, rt, g->company_id, before, config, err);
        if (r >= 0 && (p->runtime_config || !g->runtime_config)) {
                r = run_policy_check(p->runtime_config, err);
                if (r >= 0)
                        g->runtime_config = runtime_config_of(op->arena, p->runtime_config);
        }
        if (r >= 0)
                g->adapter_config = json_to_arena(op->arena, config);
        return r;
}

/* Check that the manager exists, is in the same company, and does not report to the agent, directly
 * or through others. */
static int agent_check_manager(struct db *db, struct op *op, const struct agent *g, struct err *err)
{
        const char *next = g->reports_to;
        struct agent manager;

        for (int depth = 0; next; depth++) {
                int r = agents_get(db, next, op->arena, &manager, err);

                if (r == ERR_NOT_FOUND && depth == 0)
                        return err_set(err, ERR_UNPROCESSABLE, "Manager not found");
                if (r == ERR_NOT_FOUND)
                        return 0;
                if (r < 0)
                        return r;
                if (!streq(manager.company_id, g->company_id))
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "Manager must belong to same company");
                if ((g->id && streq(manager.id, g->id)) || depth == CHAIN_MAX)
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "Reporting relationship would create cycle");
                next = manager.reports_to;
        }
        return 0;
}

/* -- What is recorded ------------------------------------------------------------------------- */

static json_t *document_or_null(const char *text)
{
        json_t *value = NULL;

        if (!text || json_parse(text, strlen(text), &value, NULL) < 0)
                return json_null();
        return value;
}

/* The part of an agent that revisions record; a new reference. */
static json_t *agent_snapshot(const struct agent *g)
{
        return json_pack("{s:s, s:s, s:s?, s:s?, s:s?, s:s, s:o, s:o, s:s?, s:I, s:o}", "name",
                         g->name, "role", g->role, "title", g->title, "reportsTo", g->reports_to,
                         "capabilities", g->capabilities, "adapterType", g->adapter_type,
                         "adapterConfig", document_or_null(g->adapter_config), "runtimeConfig",
                         document_or_null(g->runtime_config), "defaultEnvironmentId",
                         g->default_environment_id, "budgetMonthlyCents",
                         (json_int_t)g->budget_monthly_cents, "metadata",
                         document_or_null(g->metadata));
}

/* Records nothing when both are equal. */
static int agent_record_revision(struct db *db, struct op *op, const struct agent *before,
                                 const struct agent *g, const char *source,
                                 const char *rolled_back_from, struct err *err)
{
        CLEAN(json_decrefp) json_t *was = agent_snapshot(before), *is = agent_snapshot(g);
        CLEAN(json_decrefp) json_t *keys = json_array();
        struct uuid id = uuid_new();
        const char *key;
        json_t *value;

        json_object_foreach(is, key, value)
        {
                if (!json_equal(value, json_object_get(was, key)))
                        json_array_append_new(keys, json_string(key));
        }
        if (json_array_size(keys) == 0)
                return 0;
        struct agent_config_revision row = (struct agent_config_revision){
                .id = id.s,
                .company_id = g->company_id,
                .agent_id = g->id,
                .source = source,
                .rolled_back_from_id = rolled_back_from,
                .changed_keys = json_to_arena(op->arena, keys),
                .before_config = json_to_arena(op->arena, was),
                .after_config = json_to_arena(op->arena, is),
                .created_by_agent_id = op->actor->agent_id,
                .created_by_user_id = op->actor->user_id,
                .created_at = g->updated_at,
        };
        return agent_config_revisions_insert(db, &row, err);
}

static json_t *fields_of(const struct agent *g)
{
        json_t *fields = agent_snapshot(g), *permissions = NULL;

        if (json_parse(g->permissions, strlen(g->permissions), &permissions, NULL) >= 0)
                json_object_set_new(fields, "permissions", permissions);
        return fields;
}

/* Whether the acting agent may set the members that differ (agent_fields.h); `before` is NULL for a
 * new agent. Sets g->configured_by_agent_id: the agent that answers for what this agent runs. */
static int agent_check_fields(struct db *db, struct op *op, struct runtime *rt,
                              const struct agent *before, const struct agent_patch *p,
                              struct agent *g, struct err *err)
{
        const struct actor *a = op->actor;
        CLEAN(json_decrefp) json_t *was = before ? fields_of(before) : NULL, *is = fields_of(g);
        struct field_change fields = {
                .of = FIELD_OF_AGENT, .company_id = g->company_id, .before = was, .after = is
        };
        bool runs;
        int r = agent_place_is_isolated(db, rt, op->arena, g, &fields.is_isolated, err);

        fields.is_own = a->type == ACTOR_AGENT && before && streq(before->id, a->agent_id);
        if (r >= 0)
                r = agent_fields_check(db, op, &fields, &runs, err);
        if (r < 0)
                return r;
        if (runs)
                g->configured_by_agent_id = a->agent_id;
        else if (a->type != ACTOR_AGENT &&
                 (p->replace_adapter_config || body_has(&agent_body, &p->body, "adapterType") ||
                  body_has(&agent_body, &p->body, "defaultEnvironmentId")))
                g->configured_by_agent_id = NULL; /* one member says nothing about the others */
        return 0;
}

/* -- Making ----------------------------------------------------------------------------------- */

static int agent_insert(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct op *op = q->op;
        struct agent g = q->patch->row;
        struct company company;
        json_t *config = NULL;
        bool creates = json_is_true(json_object_get(q->patch->permissions, "canCreateAgents"));
        int r = access_manage_agents(db, op->actor, q->company_id, err);

        g.company_id = q->company_id;
        g.permissions = creates ? "{\"canCreateAgents\":true}" : "{\"canCreateAgents\":false}";
        if (r >= 0)
                r = agent_put_patch(op, q->patch, &g, err);
        if (r >= 0)
                r = companies_get(db, q->company_id, op->arena, &company, err);
        /* The company may want to approve agents; then no caller creates one directly. */
        if (r >= 0 && company.require_board_approval && !q->is_hire)
                r = err_set(err, ERR_CONFLICT,
                            "Direct agent creation requires board approval. Use POST "
                            "/api/companies/:companyId/agent-hires to ask for it.");
        if (r >= 0 && company.require_board_approval)
                g.status = "pending_approval";
        if (r >= 0)
                r = agent_check_manager(db, op, &g, err);
        if (r >= 0)
                r = env_select(db, q->rt, op, q->company_id, g.default_environment_id,
                               ENV_FOR_NEW_AGENT, g.adapter_type, err);
        if (r >= 0)
                r = agent_put_config(db, op, q->rt, NULL, q->patch, &g, &config, err);
        if (r >= 0)
                r = agent_check_fields(db, op, q->rt, NULL, q->patch, &g, err);
        if (r >= 0)
                r = host_use_check_agent(db, q->rt, op, NULL, &g, err);
        g.id = arena_strdup(op->arena, uuid_new().s);
        g.created_at = g.updated_at = clock_now_us();
        if (r >= 0)
                r = agents_insert(db, &g, err);
        if (r >= 0)
                r = member_put(db, g.company_id, "agent", g.id, "member", err);
        if (r >= 0)
                r = grants_put(db, g.company_id, "agent", g.id, "tasks:assign", NULL, g.created_at,
                               err);
        if (r >= 0)
                r = agent_env_bind(db, op, g.company_id, g.id, config, err);
        if (r >= 0)
                r = audit(db, op, g.company_id, "agent.created", "agent", g.id,
                          json_pack("{s:s, s:s, s:s}", "name", g.name, "role", g.role,
                                    "adapterType", g.adapter_type),
                          err);
        json_decref(config);
        *q->agent = g;
        return r;
}

int agent_create(struct op *op, struct runtime *rt, const char *company_id,
                 const struct agent_patch *patch, bool is_hire, struct agent *ret, struct err *err)
{
        struct request q = { .op = op,
                             .rt = rt,
                             .company_id = company_id,
                             .patch = patch,
                             .agent = ret,
                             .is_hire = is_hire };

        FAULT("agent.create.before");
        int r = store_write(op, rt->store, agent_insert, &q, err);
        FAULT("agent.create.after");
        return r;
}

/* -- Changing --------------------------------------------------------------------------------- */

/* Change a row that was loaded, for a caller whose right was checked. */
static int agent_change(struct db *db, struct op *op, struct runtime *rt, struct agent *g,
                        const struct agent_patch *p, const char *source,
                        const char *rolled_back_from, struct err *err)
{
        struct agent before = *g;
        bool has_environment = body_has(&agent_body, &p->body, "defaultEnvironmentId"), same;
        json_t *had = NULL, *config = NULL;
        int r = json_parse(g->adapter_config, strlen(g->adapter_config), &had, err);

        if (r >= 0)
                r = agent_put_patch(op, p, g, err);
        if (r >= 0 && body_has(&agent_body, &p->body, "reportsTo"))
                r = agent_check_manager(db, op, g, err);
        /* A new adapter has to work in the agent's present environment. */
        same = before.default_environment_id && g->default_environment_id &&
               streq(before.default_environment_id, g->default_environment_id);
        if (r >= 0 &&
            (body_has(&agent_body, &p->body, "adapterType") || (has_environment && !same)))
                r = env_select(db, rt, op, g->company_id, g->default_environment_id,
                               ENV_FOR_CHANGED_AGENT, g->adapter_type, err);
        if (r >= 0)
                r = agent_put_config(db, op, rt, had, p, g, &config, err);
        if (r >= 0)
                r = agent_check_fields(db, op, rt, &before, p, g, err);
        if (r >= 0)
                r = host_use_check_agent(db, rt, op, &before, g, err);
        if (r >= 0 && streq(source, "instructions_path")) /* the rest was not checked */
                g->configured_by_agent_id = before.configured_by_agent_id;
        /* A terminated agent keeps its configuration, but no secret comes back to it. */
        if (r >= 0 && !streq(before.status, "terminated"))
                r = agent_env_bind(db, op, g->company_id, g->id, config, err);
        g->updated_at = clock_now_us();
        if (r >= 0 && p->status && !streq(p->status, before.status)) {
                r = agent_move(db, op, rt, g, p->status, err);
        } else if (r >= 0) {
                r = agents_update(db, g, before.status, err);
                if (r == 0)
                        r = err_set(err, ERR_CONFLICT, "Agent was changed by someone else");
        }
        if (r >= 0)
                r = agent_record_revision(db, op, &before, g, source, rolled_back_from, err);
        if (r >= 0)
                r = audit(db, op, g->company_id, "agent.updated", "agent", g->id,
                          json_pack("{s:O}", "changedTopLevelKeys",
                                    body_names(&agent_body, &p->body, op->arena)),
                          err);
        json_decref(had);
        json_decref(config);
        return r;
}

/* An agent changes itself; others only as CEO or with the right to make agents. agent_fields.h
 * lists what it may change. */
static int check_changer(struct db *db, const struct request *q, struct err *err)
{
        const struct actor *a = q->op->actor;
        bool is_ceo;

        if (a->type != ACTOR_AGENT)
                return access_manage_agents(db, a, q->agent->company_id, err);
        int r = access_company(db, a, q->agent->company_id, true, err);
        if (r >= 0 && body_has(&agent_body, &q->patch->body, "status"))
                r = access_board(a, err);
        if (r < 0 || a->can_create_agents)
                return r;
        r = access_is_ceo(db, q->op, &is_ceo, err);
        if (r < 0 || is_ceo || streq(a->agent_id, q->id))
                return r;
        return err_set(err, ERR_FORBIDDEN, "Only CEO or agent creators can modify other agents");
}

static int agent_apply_patch(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = access_authenticated(q->op->actor, err);

        if (r >= 0)
                r = agents_get(db, q->id, q->op->arena, q->agent, err);
        if (r >= 0)
                r = check_changer(db, q, err);
        if (r >= 0 && q->patch->has_permissions)
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Use /api/agents/:id/permissions for permission changes");
        return r < 0 ? r : agent_change(db, q->op, q->rt, q->agent, q->patch, "patch", NULL, err);
}

int agent_update(struct op *op, struct runtime *rt, const char *id, const struct agent_patch *patch,
                 struct agent *ret, struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .patch = patch, .agent = ret };

        FAULT("agent.update.before");
        int r = store_write(op, rt->store, agent_apply_patch, &q, err);
        FAULT("agent.update.after");
        if (r >= 0)
                run_host_kick(rt->runs);
        return r;
}

static int agent_roll_back(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        CLEAN(json_decrefp) json_t *body = NULL;
        struct agent_config_revision row;
        struct agent_patch patch;
        int r = agent_load_managed(db, q->op, q->id, q->agent, err);

        if (r >= 0)
                r = agent_config_revisions_get(db, q->id, q->revision_id, q->op->arena, &row, err);
        if (r >= 0)
                r = json_parse(row.after_config, strlen(row.after_config), &body, err);
        if (r < 0)
                return r;
        json_object_set_new(body, "replaceAdapterConfig", json_true());
        agent_patch_read(q->op->arena, body, false, &patch);
        return agent_change(db, q->op, q->rt, q->agent, &patch, "rollback", row.id, err);
}

int agent_revision_rollback(struct op *op, struct runtime *rt, const char *id,
                            const char *revision_id, struct agent *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .id = id, .revision_id = revision_id, .agent = ret
        };

        return store_write(op, rt->store, agent_roll_back, &q, err);
}

static int agent_put_path(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent_instructions *set = q->instructions;
        struct agent *g = q->agent;
        CLEAN(json_decrefp) json_t *body = NULL;
        json_t *config = NULL;
        struct agent_patch patch;
        int r = agent_load_managed(db, q->op, q->id, g, err);

        if (r >= 0)
                r = body_check(&set->body, err);
        if (r >= 0 && !set->key && !str_starts(g->adapter_type, "cursor") &&
            !strstr(g->adapter_type, "_local"))
                r = err_set(err, ERR_UNPROCESSABLE,
                            "No default instructions path key for adapter type '%s'. Provide "
                            "adapterConfigKey.",
                            g->adapter_type);
        if (r >= 0)
                r = json_parse(g->adapter_config, strlen(g->adapter_config), &config, err);
        if (r < 0)
                return r;
        if (!set->key)
                set->key = "instructionsFilePath";
        if (set->path)
                json_object_set_new(config, set->key, json_string(set->path));
        else
                json_object_del(config, set->key);
        body = json_pack("{s:o, s:b}", "adapterConfig", config, "replaceAdapterConfig", 1);
        agent_patch_read(q->op->arena, body, false, &patch);
        return agent_change(db, q->op, q->rt, g, &patch, "instructions_path", NULL, err);
}

int agent_set_instructions_path(struct op *op, struct runtime *rt, const char *id,
                                struct agent_instructions *set, struct agent *ret, struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .instructions = set, .agent = ret };
        int r = access_authenticated(op->actor, err);

        if (r >= 0 && op->actor->type == ACTOR_AGENT)
                r = err_set(err, ERR_FORBIDDEN,
                            "Agent-authenticated callers cannot modify instructions path or bundle "
                            "configuration (path)");
        return r < 0 ? r : store_write(op, rt->store, agent_put_path, &q, err);
}

/* -- Deleting --------------------------------------------------------------------------------- */

int agent_drop(struct db *db, const char *company_id, const char *id, struct err *err)
{
        int r = agent_env_unbind(db, company_id, id, err);

        if (r >= 0)
                r = grants_clear(db, company_id, "agent", id, err);
        if (r >= 0)
                r = memberships_remove(db, company_id, "agent", id, err);
        return r < 0 ? r : agents_delete(db, id, err);
}

static int agent_remove(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent *g = q->agent;
        int r = agent_load_managed(db, q->op, q->id, g, err);

        if (r >= 0)
                r = agent_drop(db, g->company_id, g->id, err);
        if (r == ERR_CONFLICT)
                return err_set(err, r,
                               "The agent has runs, which stay on record; terminate it instead, or "
                               "delete it with them: confirm=%s",
                               g->url_key);
        if (r >= 0)
                r = audit(db, q->op, g->company_id, "agent.deleted", "agent", g->id,
                          json_pack("{s:s}", "name", g->name), err);
        return r;
}

int agent_delete(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        struct agent agent;
        struct request q = { .op = op, .rt = rt, .id = id, .agent = &agent };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("agent.delete.before");
        r = store_write(op, rt->store, agent_remove, &q, err);
        FAULT("agent.delete.after");
        return r;
}
