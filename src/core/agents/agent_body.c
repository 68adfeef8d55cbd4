/* Decides which bodies make or change an agent. */
#include "codec/check.h"
#include "core/access/agent_fields.h"
#include "core/access/run_policy.h"
#include "core/adapters/adapter.h"
#include "core/agents/agent_internal.h"
#include "core/environments/host_use.h"
#include "core/patch.h"
#include "core/secrets/agent_env.h"
#include "core/slug.h"

#define CHAIN_MAX     64
#define SKILLS_MEMBER "paperclipSkillSync"

static const char *const roles[] = { "ceo",        "cto",      "cmo", "cfo", "security",
                                     "engineer",   "designer", "pm",  "qa",  "devops",
                                     "researcher", "general",  NULL };
static const char *const statuses[] = { "active", "paused",           "idle",       "running",
                                        "error",  "pending_approval", "terminated", NULL };
static const char *const members[] = { "adapterConfig",
                                       "adapterType",
                                       "budgetMonthlyCents",
                                       "capabilities",
                                       "defaultEnvironmentId",
                                       "desiredSkills",
                                       "icon",
                                       "metadata",
                                       "name",
                                       "replaceAdapterConfig",
                                       "reportsTo",
                                       "role",
                                       "runtimeConfig",
                                       "status",
                                       "title",
                                       NULL };

static void read_plain(struct check *c, struct arena *a, bool creating, struct agent *g)
{
        const char *text =
                check_string(c, "name", creating ? CHECK_REQUIRED : CHECK_OPTIONAL, 1, 0);
        bool has;
        int64_t cents;
        json_t *metadata;

        if (text) {
                g->name = arena_strdup(a, text);
                g->url_key = slug(g->name, a);
        }
        (void)patch_word(c, a, "role", roles, &g->role);
        (void)patch_text(c, a, "title", &g->title);
        (void)patch_text(c, a, "icon", &g->icon);
        (void)patch_text(c, a, "capabilities", &g->capabilities);
        cents = check_int(c, "budgetMonthlyCents", CHECK_OPTIONAL, 0, INT64_MAX, &has);
        if (has)
                g->budget_monthly_cents = cents;
        metadata = check_record(c, "metadata", CHECK_NULLABLE);
        if (check_has(c, "metadata"))
                g->metadata = metadata ? json_to_arena(a, metadata) : NULL;
}

static void read_permissions(struct check *c, struct agent *g)
{
        struct check n;
        bool may;

        check_nested(&n, c, "permissions", check_record(c, "permissions", CHECK_OPTIONAL));
        may = check_bool(&n, "canCreateAgents", CHECK_OPTIONAL, false);
        g->permissions = may ? "{\"canCreateAgents\":true}" : "{\"canCreateAgents\":false}";
}

static void read_change(struct check *c, struct arena *a, bool creating, struct agent *g,
                        struct agent_change *ret)
{
        const char *adapter = check_string(c, "adapterType", CHECK_OPTIONAL, 1, 0);

        ret->has_adapter = adapter != NULL;
        if (adapter)
                g->adapter_type = arena_strdup(a, adapter);
        ret->has_manager = patch_uuid(c, a, "reportsTo", &g->reports_to);
        ret->has_environment = patch_uuid(c, a, "defaultEnvironmentId", &g->default_environment_id);
        ret->adapter_config = check_record(c, "adapterConfig", CHECK_OPTIONAL);
        ret->runtime_config = check_record(c, "runtimeConfig", CHECK_OPTIONAL);
        ret->desired_skills = check_strings(c, "desiredSkills", CHECK_OPTIONAL, 1);
        if (creating)
                return;
        ret->replace_adapter_config = check_bool(c, "replaceAdapterConfig", CHECK_OPTIONAL, false);
        (void)patch_word(c, a, "status", statuses, &ret->status);
}

int agent_read_body(struct op *op, json_t *body, bool creating, struct agent *g,
                    struct agent_change *ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        int r;

        *ret = (struct agent_change){ .given = patch_names(op->arena, body, members) };
        check_init(&c, body);
        read_plain(&c, op->arena, creating, g);
        read_change(&c, op->arena, creating, g, ret);
        if (creating)
                read_permissions(&c, g);
        r = check_end(&c, err);
        if (r >= 0 && json_object_get(body, "instructionsBundle"))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Instruction bundles are not kept here; put the instructions into a "
                               "file and name it in adapterConfig.instructionsFilePath");
        if (r >= 0 && !adapter_is_known(g->adapter_type))
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", g->adapter_type);
        return r;
}

/* The timer is enabled only when the caller asked for it. */
static const char *runtime_config(struct arena *arena, const json_t *given)
{
        json_t *config = given ? json_deep_copy(given) : json_object();
        json_t *heartbeat = json_object_get(config, "heartbeat");
        const char *text;

        if (!json_is_object(heartbeat)) {
                heartbeat = json_object();
                json_object_set_new(config, "heartbeat", heartbeat);
        }
        if (!json_is_boolean(json_object_get(heartbeat, "enabled")))
                json_object_set_new(heartbeat, "enabled", json_false());
        if (!json_is_integer(json_object_get(heartbeat, "maxConcurrentRuns")))
                json_object_set_new(heartbeat, "maxConcurrentRuns", json_integer(20));
        text = json_to_arena(arena, config);
        json_decref(config);
        return text;
}

static int apply_runtime(struct op *op, const struct agent_change *change, struct agent *g,
                         struct err *err)
{
        int r;

        if (!change->runtime_config && g->runtime_config)
                return 0;
        r = run_policy_check(change->runtime_config, err);
        if (r >= 0)
                g->runtime_config = runtime_config(op->arena, change->runtime_config);
        return r;
}

static json_t *merged(const json_t *before, const struct agent_change *change)
{
        bool alone = !before || (change->replace_adapter_config && change->adapter_config);
        json_t *config = alone ? json_object() : json_deep_copy(before);

        if (change->adapter_config)
                json_object_update(config, change->adapter_config);
        if (change->desired_skills)
                json_object_set_new(config, SKILLS_MEMBER,
                                    json_pack("{s:O}", "desiredSkills", change->desired_skills));
        return config;
}

int agent_apply_config(struct db *db, struct op *op, struct runtime *rt, const json_t *before,
                       const struct agent_change *change, struct agent *g, json_t **ret,
                       struct err *err)
{
        json_t *config = merged(before, change);
        int r = agent_env_check(db, op, rt, g->company_id, before, config, err);

        if (r >= 0)
                r = apply_runtime(op, change, g, err);
        if (r < 0) {
                json_decref(config);
                return r;
        }
        g->adapter_config = json_to_arena(op->arena, config);
        *ret = config;
        return 0;
}

int agent_check_manager(struct db *db, struct op *op, const struct agent *g, struct err *err)
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

static json_t *fields_of(const struct agent *g)
{
        json_t *fields = agent_snapshot(g), *permissions = NULL;

        if (json_parse(g->permissions, strlen(g->permissions), &permissions, NULL) >= 0)
                json_object_set_new(fields, "permissions", permissions);
        return fields;
}

int agent_check_fields(struct db *db, struct op *op, struct runtime *rt, const struct agent *before,
                       const struct agent_change *change, struct agent *g, struct err *err)
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
                 (change->replace_adapter_config || change->has_adapter || change->has_environment))
                g->configured_by_agent_id = NULL; /* one member says nothing about the others */
        return 0;
}
