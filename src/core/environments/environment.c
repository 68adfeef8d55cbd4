/* Decides who may create and read environments, and which configurations are stored. */
#include "core/environments/environment.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/environments/env_secrets.h"
#include "core/environments/host_use.h"
#include "core/kinds/kind.h"

const char *const environment_statuses[] = { "active", "archived", NULL };

static bool is_one_of(const char *s, const char *const *list)
{
        for (; *list; list++)
                if (streq(*list, s))
                        return true;
        return false;
}

int environment_check_row(const struct runtime *rt, const struct environment *env, struct err *err)
{
        if (!kind_of_driver(rt, env->driver))
                return err_set(err, ERR_CORRUPT, "Unexpected environment driver value: %s",
                               env->driver);
        if (!is_one_of(env->status, environment_statuses))
                return err_set(err, ERR_CORRUPT, "Unexpected environment status value: %s",
                               env->status);
        return 0;
}

/* Configuration */

int environment_persist_config(struct op *op, struct runtime *rt, const char *driver,
                               json_t *config, json_t **ret, const json_t **ret_schema,
                               struct err *err)
{
        json_t *normal = NULL;
        int r = kind_normalize(rt, driver, config, CONFIG_SUBMITTED, &normal, err);

        if (r < 0)
                return r;
        *ret_schema = NULL;
        const struct kind *kind = kind_of_config(rt, driver, normal);
        if (kind->may_save)
                r = kind->may_save(op, rt, normal, err);
        if (r >= 0 && kind->validate)
                r = kind->validate(op, rt, &normal, ret_schema, err);
        if (r >= 0 && kind->check)
                r = kind->check(rt, normal, err);
        if (r < 0) {
                json_decref(normal);
                return r;
        }
        *ret = normal;
        return 0;
}

/* Creating */

int environment_may_create(struct op *op, struct runtime *rt, const char *company_id,
                           struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : access_manage_environments(db, op->actor, company_id, err);
}

/* Only the plugin, or the program that a descriptor names, knows what the members of its
 * configuration mean: how far a place is closed, and where the credentials among them go. */
static bool is_of_plugin(const struct runtime *rt, const json_t *config)
{
        const char *provider = json_get_string(config, "provider");
        const struct kind *kind = provider ? kind_of_provider(rt, provider) : NULL;

        return provider && (!kind || kind->board_only);
}

static bool is_isolated(const struct kind *kind)
{
        return kind && kind->isolated;
}

int environment_check_fields(struct db *db, const struct op *op, const struct runtime *rt,
                             const struct environment *before, const char *driver,
                             const char *status, json_t *config, struct err *err)
{
        CLEAN(json_decrefp) json_t *had = NULL, *was = NULL, *is = NULL;
        struct field_change change = { .of = FIELD_OF_ENVIRONMENT };
        int r = 0;

        if (op->actor->type != ACTOR_AGENT)
                return 0;
        if (before) {
                r = json_parse(before->config, strlen(before->config), &had, err);
                if (r < 0)
                        return r;
                was = json_pack("{s:s, s:s, s:O}", "driver", before->driver, "status",
                                before->status, "config", had);
        }
        is = json_pack("{s:s, s:s?, s:O?}", "driver", driver, "status", status, "config",
                       config ? config : had);
        change.before = was;
        change.after = is;
        change.is_isolated = is_isolated(kind_of_config(rt, driver, config ? config : had)) &&
                             (!before || kind_is_isolated(rt, before));
        if (config && !json_equal(config, had) &&
            (is_of_plugin(rt, config) || is_of_plugin(rt, had)))
                return err_set(err, ERR_FORBIDDEN,
                               "Agent keys cannot configure a provider that is a plugin's "
                               "(config.provider): where its credentials go is for the board to "
                               "say. Name the provider \"berth\", or ask the board");
        return agent_fields_check(db, op, &change, NULL, err);
}

struct creation {
        struct op *op;
        struct runtime *rt;
        struct environment env;
        json_t *config;
        const json_t *schema;
        struct env_secrets secrets;
};

/* The row, its secrets and their bindings are written together or not at all. */
static int environment_insert(struct db *db, void *arg, struct err *err)
{
        struct creation *q = arg;
        struct environment *env = &q->env;
        int r = access_manage_environments(db, q->op->actor, env->company_id, err);

        if (r >= 0)
                r = host_use_check_config(q->rt, q->op->actor, env->driver, NULL, q->config, err);
        if (r >= 0)
                r = environment_check_fields(db, q->op, q->rt, NULL, env->driver, env->status,
                                             q->config, err);
        if (r < 0)
                return r;
        env->created_at = env->updated_at = clock_now_us();
        r = environments_insert(db, env, err);
        if (r == ERR_CONFLICT && kind_of_driver(q->rt, env->driver)->is_managed)
                return err_set(err, ERR_CONFLICT,
                               "A %s environment already exists for this company.", env->driver);
        if (r >= 0)
                r = env_secrets_commit(db, q->op, q->rt, env, q->config, q->schema, &q->secrets,
                                       err);
        if (r >= 0)
                r = audit(db, q->op, env->company_id, "environment.created", "environment", env->id,
                          json_pack("{s:s, s:s, s:s}", "name", env->name, "driver", env->driver,
                                    "status", env->status),
                          err);
        return r;
}

int environment_create(struct op *op, struct runtime *rt, const char *company_id,
                       const struct environment_change *wish, struct environment *ret,
                       struct err *err)
{
        struct creation q = {
                .op = op,
                .rt = rt,
                .env = { .id = arena_strdup(op->arena, uuid_new().s),
                         .company_id = company_id,
                         .name = wish->name,
                         .description = wish->description,
                         .driver = wish->driver,
                         .status = wish->status ? wish->status : "active",
                         .metadata =
                                 wish->metadata ? json_to_arena(op->arena, wish->metadata) : NULL },
        };
        int r = host_use_check(rt, op->actor, wish->driver, err);

        if (r >= 0)
                r = environment_persist_config(op, rt, wish->driver, wish->config, &q.config,
                                               &q.schema, err);
        if (r >= 0)
                r = env_secrets_extract(op, rt, &q.env, q.config, q.schema, &q.secrets, err);
        if (r >= 0) {
                q.env.config = json_to_arena(op->arena, q.config);
                FAULT("environment.create.before");
                r = store_write(op, rt->store, environment_insert, &q, err);
                FAULT("environment.create.after");
                if (r < 0)
                        env_secrets_abandon(op, &q.secrets);
                else
                        env_secrets_finish(op, rt, &q.secrets);
        }
        json_decref(q.config);
        if (r >= 0)
                *ret = q.env;
        return r;
}

int environment_ensure_local(struct db *db, const char *company_id, struct arena *arena,
                             struct environment *ret, struct err *err)
{
        struct uuid id = uuid_new();
        int64_t now = clock_now_us();
        struct environment env = {
                .id = id.s,
                .company_id = company_id,
                .name = "Local",
                .description = "Runs commands on the machine that Berth runs on.",
                .driver = "local",
                .status = "active",
                .config = "{}",
                .metadata = "{\"managedByPaperclip\":true}",
                .created_at = now,
                .updated_at = now,
        };
        int r = environments_insert_local(db, &env, err);

        if (r < 0)
                return r;
        r = environments_get_local(db, company_id, arena, ret, err);
        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_INTERNAL, "Failed to ensure local environment");
        return r;
}

/* Reading */

/* Whether the actor sees no configurations. */
static int is_redacted(struct db *db, const struct op *op, const char *company_id, bool *ret,
                       struct err *err)
{
        bool allowed;
        int r = access_has(db, op->actor, company_id, PERM_ENVIRONMENTS, &allowed, err);

        *ret = r >= 0 && !allowed &&
               !(op->actor->type == ACTOR_AGENT && op->actor->can_create_agents);
        return r;
}

int environment_get(struct op *op, struct runtime *rt, const char *id, struct environment *ret,
                    bool *ret_redacted, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_authenticated(op->actor, err);
        if (r >= 0)
                r = environments_get(db, id, op->arena, ret, err);
        if (r >= 0)
                r = access_company(db, op->actor, ret->company_id, false, err);
        if (r >= 0)
                r = environment_check_row(rt, ret, err);
        return r < 0 ? r : is_redacted(db, op, ret->company_id, ret_redacted, err);
}

int environment_get_managed(struct db *db, const struct op *op, const char *id,
                            struct environment *ret, struct err *err)
{
        int r = access_authenticated(op->actor, err);

        if (r >= 0)
                r = environments_get(db, id, op->arena, ret, err);
        return r < 0 ? r : access_manage_environments(db, op->actor, ret->company_id, err);
}

int environment_manage(struct op *op, struct runtime *rt, const char *id, struct environment *ret,
                       struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = environment_get_managed(db, op, id, ret, err);
        return r < 0 ? r : environment_check_row(rt, ret, err);
}

int environment_list(struct op *op, struct runtime *rt, const char *company_id, const char *status,
                     const char *driver, struct environment **ret, bool *ret_redacted,
                     struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int n = store_read_begin(op, rt->store, &db, err), r;

        if (n >= 0)
                n = access_company(db, op->actor, company_id, false, err);
        if (n >= 0)
                n = is_redacted(db, op, company_id, ret_redacted, err);
        if (n >= 0)
                n = environments_list(db, company_id, status, driver, op->arena, ret, err);
        for (int i = 0; i < n; i++) {
                r = environment_check_row(rt, &(*ret)[i], err);
                if (r < 0)
                        return r;
        }
        return n;
}
