/* Decides who may create and read environments, and which configurations are stored. */
#include "core/environments/environment.h"

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
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
        const struct kind *kind;
        json_t *normal = NULL;
        int r = kind_normalize(rt, driver, config, CONFIG_SUBMITTED, &normal, err);

        if (r < 0)
                return r;
        *ret_schema = NULL;
        kind = kind_of_config(rt, driver, normal);
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

struct creation {
        struct op *op;
        struct runtime *rt;
        const char *company_id;
        json_t *body;
        struct environment env;
        json_t *config;
        const json_t *schema;
        struct env_secrets secrets;
};

static int check_create(struct creation *q, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *name, *description, *driver, *status;
        json_t *config, *metadata;
        int r;

        check_init(&c, q->body);
        name = check_string(&c, "name", CHECK_REQUIRED, 1, 0);
        description = check_string(&c, "description", CHECK_NULLABLE, 0, 0);
        driver = check_enum(&c, "driver", CHECK_REQUIRED, kind_drivers(q->rt, q->op->arena));
        status = check_enum(&c, "status", CHECK_OPTIONAL, environment_statuses);
        config = check_record(&c, "config", CHECK_OPTIONAL);
        metadata = check_record(&c, "metadata", CHECK_NULLABLE);
        check_unknown(&c, (const char *[]){ "name", "description", "driver", "status", "config",
                                            "metadata", NULL });
        r = check_end(&c, err);
        if (r < 0)
                return r;
        q->env = (struct environment){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .company_id = q->company_id,
                .name = arena_strdup(q->op->arena, name),
                .description = arena_strdup(q->op->arena, description),
                .driver = arena_strdup(q->op->arena, driver),
                .status = status ? arena_strdup(q->op->arena, status) : "active",
                .metadata = metadata ? json_to_arena(q->op->arena, metadata) : NULL,
        };
        r = host_use_check(q->rt, q->op->actor, q->env.driver, err);
        return r < 0 ? r
                     : environment_persist_config(q->op, q->rt, q->env.driver, config, &q->config,
                                                  &q->schema, err);
}

static int guard_create(struct db *db, void *arg, struct err *err)
{
        struct creation *q = arg;

        return access_manage_environments(db, q->op->actor, q->company_id, err);
}

/* Only the plugin knows what the members of its configuration mean: how far a place is closed, and
 * where the credentials among them go. */
static bool is_of_plugin(const struct runtime *rt, const json_t *config)
{
        const char *provider = json_get_string(config, "provider");

        return provider && !kind_of_provider(rt, provider);
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
        change.is_isolated =
                kind_is_isolated(rt, driver) && (!before || kind_is_isolated(rt, before->driver));
        if (config && !json_equal(config, had) &&
            (is_of_plugin(rt, config) || is_of_plugin(rt, had)))
                return err_set(err, ERR_FORBIDDEN,
                               "Agent keys cannot configure a provider that is a plugin's "
                               "(config.provider): where its credentials go is for the board to "
                               "say. Name the provider \"berth\", or ask the board");
        return agent_fields_check(db, op, &change, NULL, err);
}

/* The row, its secrets and their bindings are written together or not at all. */
static int insert(struct db *db, void *arg, struct err *err)
{
        struct creation *q = arg;
        struct environment *env = &q->env;
        int r = guard_create(db, q, err);

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
                r = audit(db, q->op, q->company_id, "environment.created", "environment", env->id,
                          json_pack("{s:s, s:s, s:s}", "name", env->name, "driver", env->driver,
                                    "status", env->status),
                          err);
        return r;
}

static int create(struct creation *q, struct err *err)
{
        int r = env_secrets_extract(q->op, q->rt, &q->env, q->config, q->schema, &q->secrets, err);

        if (r < 0)
                return r;
        q->env.config = json_to_arena(q->op->arena, q->config);
        FAULT("environment.create.before");
        r = store_write(q->op, q->rt->store, insert, q, err);
        FAULT("environment.create.after");
        if (r < 0)
                env_secrets_abandon(q->op, &q->secrets);
        else
                env_secrets_finish(q->op, q->rt, &q->secrets);
        return r;
}

int environment_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                       struct environment *ret, struct err *err)
{
        struct creation q = { .op = op, .rt = rt, .company_id = company_id, .body = body };
        int r = store_read(op, rt->store, guard_create, &q, err);

        if (r >= 0)
                r = check_create(&q, err);
        if (r >= 0)
                r = create(&q, err);
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

struct reading {
        struct op *op;
        const struct runtime *rt;
        const char *id;
        struct environment_view *view;
        bool manage;
};

static int may_manage(struct db *db, const struct op *op, const char *company_id, bool *ret,
                      struct err *err)
{
        int r = access_has(db, op->actor, company_id, PERM_ENVIRONMENTS, ret, err);

        if (r >= 0 && op->actor->type == ACTOR_AGENT && op->actor->can_create_agents)
                *ret = true;
        return r;
}

static int read_one(struct db *db, void *arg, struct err *err)
{
        struct reading *q = arg;
        bool allowed;
        int r = access_authenticated(q->op->actor, err);

        if (r >= 0)
                r = environments_get(db, q->id, q->op->arena, &q->view->env, err);
        if (r >= 0)
                r = q->manage
                            ? access_manage_environments(db, q->op->actor, q->view->env.company_id,
                                                         err)
                            : access_company(db, q->op->actor, q->view->env.company_id, false, err);
        if (r >= 0)
                r = environment_check_row(q->rt, &q->view->env, err);
        if (r >= 0)
                r = may_manage(db, q->op, q->view->env.company_id, &allowed, err);
        if (r >= 0)
                q->view->redacted = !allowed;
        return r;
}

int environment_get(struct op *op, struct runtime *rt, const char *id, struct environment_view *ret,
                    struct err *err)
{
        struct reading q = { op, rt, id, ret, false };

        return store_read(op, rt->store, read_one, &q, err);
}

int environment_manage(struct op *op, struct runtime *rt, const char *id, struct environment *ret,
                       struct err *err)
{
        struct environment_view view;
        struct reading q = { op, rt, id, &view, true };
        int r = store_read(op, rt->store, read_one, &q, err);

        if (r >= 0)
                *ret = view.env;
        return r;
}

struct listing {
        struct op *op;
        const struct runtime *rt;
        const char *company_id, *status, *driver;
        bool redacted;
        environment_view_fn fn;
        void *ctx;
        struct err *err;
};

static int show(void *ctx, const struct environment *env)
{
        struct listing *q = ctx;
        struct environment_view view = { *env, q->redacted };
        int r = environment_check_row(q->rt, env, q->err);

        return r < 0 ? r : q->fn(q->ctx, &view);
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct listing *q = arg;
        bool allowed;
        int r = access_company(db, q->op->actor, q->company_id, false, err);

        if (r >= 0)
                r = may_manage(db, q->op, q->company_id, &allowed, err);
        if (r < 0)
                return r;
        q->redacted = !allowed;
        q->err = err;
        return environments_list(db, q->company_id, q->status, q->driver, q->op->arena, show, q,
                                 err);
}

int environment_list(struct op *op, struct runtime *rt, const char *company_id, const char *status,
                     const char *driver, environment_view_fn fn, void *ctx, struct err *err)
{
        struct listing q = { op, rt, company_id, status, driver, false, fn, ctx, NULL };

        return store_read(op, rt->store, list, &q, err);
}
