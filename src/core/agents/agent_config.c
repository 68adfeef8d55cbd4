/* The configuration of an agent as it may be shown, its earlier revisions, and the path of its
 * instructions. */
#include "base/clock.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/adapters/adapter.h"
#include "core/agents/agent_internal.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id, *revision_id;
        json_t *body;
        struct agent *agent;
        struct agent_config_revision *revision;
        agent_config_revision_fn fn;
        void *ctx;
        const char **key, **path;
};

/* -- What is recorded ------------------------------------------------------------------------- */

static json_t *document(const char *text)
{
        json_t *value = NULL;

        if (!text || json_parse(text, strlen(text), &value, NULL) < 0)
                return json_null();
        return value;
}

json_t *agent_snapshot(const struct agent *g)
{
        return json_pack("{s:s, s:s, s:s?, s:s?, s:s?, s:s, s:o, s:o, s:s?, s:I, s:o}", "name",
                         g->name, "role", g->role, "title", g->title, "reportsTo", g->reports_to,
                         "capabilities", g->capabilities, "adapterType", g->adapter_type,
                         "adapterConfig", document(g->adapter_config), "runtimeConfig",
                         document(g->runtime_config), "defaultEnvironmentId",
                         g->default_environment_id, "budgetMonthlyCents",
                         (json_int_t)g->budget_monthly_cents, "metadata", document(g->metadata));
}

static json_t *changed_keys(const json_t *before, const json_t *after)
{
        json_t *keys = json_array(), *value;
        const char *key;

        json_object_foreach((json_t *)after, key, value)
        {
                if (!json_equal(value, json_object_get(before, key)))
                        json_array_append_new(keys, json_string(key));
        }
        return keys;
}

int agent_record_revision(struct db *db, struct op *op, const struct agent *g, json_t *take_before,
                          const char *source, const char *rolled_back_from, struct err *err)
{
        json_t *after = agent_snapshot(g), *keys = changed_keys(take_before, after);
        struct uuid id = uuid_new();
        struct agent_config_revision row = {
                .id = id.s,
                .company_id = g->company_id,
                .agent_id = g->id,
                .source = source,
                .rolled_back_from_id = rolled_back_from,
                .changed_keys = json_to_arena(op->arena, keys),
                .before_config = json_to_arena(op->arena, take_before),
                .after_config = json_to_arena(op->arena, after),
                .created_by_agent_id = op->actor->agent_id,
                .created_by_user_id = op->actor->user_id,
                .created_at = g->updated_at,
        };
        size_t n = json_array_size(keys);

        json_decref(take_before);
        json_decref(after);
        json_decref(keys);
        return n == 0 ? 0 : agent_config_revisions_insert(db, &row, err);
}

/* -- Reading ---------------------------------------------------------------------------------- */

static int load(struct db *db, struct request *q, struct err *err)
{
        int r = access_authenticated(q->op->actor, err);

        if (r >= 0)
                r = agents_get(db, q->id, q->op->arena, q->agent, err);
        return r < 0 ? r : access_manage_agents(db, q->op->actor, q->agent->company_id, err);
}

static const char *redacted(struct arena *arena, const char *text)
{
        json_t *value = document(text);
        const char *out;

        audit_redact(value);
        out = json_to_arena(arena, value);
        json_decref(value);
        return out;
}

static int read_configuration(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = load(db, q, err);

        if (r < 0)
                return r;
        q->agent->adapter_config = redacted(q->op->arena, q->agent->adapter_config);
        q->agent->runtime_config = redacted(q->op->arena, q->agent->runtime_config);
        return 0;
}

int agent_configuration(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                        struct err *err)
{
        struct request q = { .op = op, .id = id, .agent = ret };

        return store_read(op, rt->store, read_configuration, &q, err);
}

static int show(void *ctx, const struct agent_config_revision *row)
{
        struct request *q = ctx;
        struct agent_config_revision shown = *row;

        shown.before_config = redacted(q->op->arena, row->before_config);
        shown.after_config = redacted(q->op->arena, row->after_config);
        return q->fn(q->ctx, &shown);
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = load(db, q, err);

        return r < 0 ? r : agent_config_revisions_list(db, q->id, q->op->arena, show, q, err);
}

int agent_revision_list(struct op *op, struct runtime *rt, const char *id,
                        agent_config_revision_fn fn, void *ctx, struct err *err)
{
        struct agent agent;
        struct request q = { .op = op, .id = id, .agent = &agent, .fn = fn, .ctx = ctx };

        return store_read(op, rt->store, list, &q, err);
}

static int take(void *ctx, const struct agent_config_revision *row)
{
        *(struct agent_config_revision *)ctx = *row;
        return 0;
}

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent_config_revision row;
        int r = load(db, q, err);

        if (r >= 0)
                r = agent_config_revisions_get(db, q->id, q->revision_id, q->op->arena, &row, err);
        return r < 0 ? r : show(q, &row);
}

int agent_revision_get(struct op *op, struct runtime *rt, const char *id, const char *revision_id,
                       struct agent_config_revision *ret, struct err *err)
{
        struct agent agent;
        struct request q = { .op = op,
                             .id = id,
                             .revision_id = revision_id,
                             .agent = &agent,
                             .fn = take,
                             .ctx = ret };

        return store_read(op, rt->store, get, &q, err);
}

/* -- Going back ------------------------------------------------------------------------------- */

static int roll_back(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent_config_revision row;
        json_t *body = NULL;
        int r = load(db, q, err);

        if (r >= 0)
                r = agent_config_revisions_get(db, q->id, q->revision_id, q->op->arena, &row, err);
        if (r >= 0)
                r = json_parse(row.after_config, strlen(row.after_config), &body, err);
        if (r < 0)
                return r;
        json_object_set_new(body, "replaceAdapterConfig", json_true());
        r = agent_change_row(db, q->op, q->rt, q->agent, body, "rollback", row.id, err);
        json_decref(body);
        return r;
}

int agent_revision_rollback(struct op *op, struct runtime *rt, const char *id,
                            const char *revision_id, struct agent *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .id = id, .revision_id = revision_id, .agent = ret
        };

        return store_write(op, rt->store, roll_back, &q, err);
}

/* -- Instructions ----------------------------------------------------------------------------- */

static int read_path(struct request *q, const struct agent *g, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *key;
        int r;

        check_init(&c, q->body);
        *q->path = arena_strtrim(q->op->arena, check_string(&c, "path", CHECK_NULLABLE, 1, 4096));
        key = check_string(&c, "adapterConfigKey", CHECK_OPTIONAL, 1, 120);
        *q->key = arena_strdup(q->op->arena, key);
        if (!check_has(&c, "path"))
                (void)check_string(&c, "path", CHECK_REQUIRED, 1, 0);
        r = check_end(&c, err);
        if (r < 0 || *q->key)
                return r;
        if (!str_starts(g->adapter_type, "cursor") && !strstr(g->adapter_type, "_local"))
                return err_set(err, ERR_UNPROCESSABLE,
                               "No default instructions path key for adapter type '%s'. Provide "
                               "adapterConfigKey.",
                               g->adapter_type);
        *q->key = "instructionsFilePath";
        return 0;
}

static int set_path(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct agent *g = q->agent;
        json_t *config = NULL, *body;
        int r = load(db, q, err);

        if (r >= 0)
                r = read_path(q, g, err);
        if (r >= 0)
                r = json_parse(g->adapter_config, strlen(g->adapter_config), &config, err);
        if (r < 0)
                return r;
        if (*q->path)
                json_object_set_new(config, *q->key, json_string(*q->path));
        else
                json_object_del(config, *q->key);
        body = json_pack("{s:o, s:b}", "adapterConfig", config, "replaceAdapterConfig", 1);
        r = agent_change_row(db, q->op, q->rt, g, body, "instructions_path", NULL, err);
        json_decref(body);
        return r;
}

int agent_set_instructions_path(struct op *op, struct runtime *rt, const char *id, json_t *body,
                                struct agent *ret, const char **ret_key, const char **ret_path,
                                struct err *err)
{
        struct request q = { .op = op,
                             .rt = rt,
                             .id = id,
                             .body = body,
                             .agent = ret,
                             .key = ret_key,
                             .path = ret_path };
        int r = access_authenticated(op->actor, err);

        if (r >= 0 && op->actor->type == ACTOR_AGENT)
                r = err_set(err, ERR_FORBIDDEN,
                            "Agent-authenticated callers cannot modify instructions path or bundle "
                            "configuration (path)");
        return r < 0 ? r : store_write(op, rt->store, set_path, &q, err);
}
