/* Decides how an environment may change, and what the audit trail says of it: names of members and
 * counts, never values. */
#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/environments/env_move.h"
#include "core/environments/env_secrets.h"
#include "core/environments/environment.h"
#include "core/environments/host_use.h"
#include "core/kinds/kind.h"

#define TRIES 16

struct update {
        struct op *op;
        struct runtime *rt;
        const char *id;
        json_t *body;
        /* requested by the body; has_* for members that may be null */
        const char *name, *description, *driver, *status, *move_to;
        json_t *config, *metadata;
        bool has_description, has_metadata;
        bool replace; /* the new configuration replaces the stored one */
        /* the row as it will be */
        struct environment before, env;
        json_t *stored;       /* its configuration; NULL: not touched */
        const json_t *schema; /* which members of it are secret; NULL: none */
        struct env_secrets secrets;
        int64_t seen;
        bool has_changed; /* since it was read */
};

static int check_body(struct update *u, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = u->op->arena;

        check_init(&c, u->body);
        u->name = arena_strdup(a, check_string(&c, "name", CHECK_OPTIONAL, 1, 0));
        u->has_description = check_has(&c, "description");
        u->description = arena_strdup(a, check_string(&c, "description", CHECK_NULLABLE, 0, 0));
        u->driver =
                arena_strdup(a, check_enum(&c, "driver", CHECK_OPTIONAL, kind_drivers(u->rt, a)));
        u->status = arena_strdup(a, check_enum(&c, "status", CHECK_OPTIONAL, environment_statuses));
        u->config = check_record(&c, "config", CHECK_OPTIONAL);
        u->has_metadata = check_has(&c, "metadata");
        u->metadata = check_record(&c, "metadata", CHECK_NULLABLE);
        u->replace = check_bool(&c, "replaceConfig", CHECK_OPTIONAL, false);
        u->move_to = arena_strdup(a, check_uuid(&c, "moveTo", CHECK_OPTIONAL));
        check_unknown(&c, (const char *[]){ "name", "description", "driver", "status", "config",
                                            "metadata", "replaceConfig", "moveTo", NULL });
        return check_end(&c, err);
}

/* The base of the new configuration: with the driver unchanged a given config is merged over the
 * stored one; with a new driver, or replaceConfig, it stands alone. A new reference, or NULL when
 * the configuration is not touched. */
static json_t *source_config(const struct update *u, const struct environment *env)
{
        bool switched = u->driver && !streq(u->driver, env->driver);
        json_t *stored = NULL;

        if (!u->config && !u->driver)
                return NULL;
        if (switched || (u->replace && u->config))
                return u->config ? json_incref(u->config) : json_object();
        if (json_parse(env->config, strlen(env->config), &stored, NULL) < 0)
                stored = json_object();
        if (u->config)
                json_object_update(stored, u->config);
        return stored;
}

static int compare_keys(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static json_t *describe(const struct update *u, const struct environment *env, const json_t *config)
{
        const char *names[6];
        json_t *details = json_object(), *fields = json_array();
        size_t n = 0;

        if (config) {
                names[n++] = "config";
                json_object_set_new(details, "configChanged", json_true());
                json_object_set_new(details, "configTopLevelKeyCount",
                                    json_integer((json_int_t)json_object_size(config)));
        }
        if (u->has_description) {
                names[n++] = "description";
                json_object_set_new(details, "descriptionChanged", json_true());
        }
        if (u->driver) {
                names[n++] = "driver";
                json_object_set_new(details, "driver", json_string(env->driver));
        }
        if (u->has_metadata) {
                names[n++] = "metadata";
                json_object_set_new(details, "metadataChanged", json_true());
                json_object_set_new(details, "metadataTopLevelKeyCount",
                                    json_integer((json_int_t)json_object_size(u->metadata)));
        }
        if (u->name) {
                names[n++] = "name";
                json_object_set_new(details, "name", json_string(env->name));
        }
        if (u->status) {
                names[n++] = "status";
                json_object_set_new(details, "status", json_string(env->status));
        }
        qsort(names, n, sizeof(*names), compare_keys);
        for (size_t i = 0; i < n; i++)
                json_array_append_new(fields, json_string(names[i]));
        json_object_set_new(details, "changedFields", fields);
        return details;
}

static int apply(struct update *u, struct err *err)
{
        struct environment *env = &u->env;
        json_t *source = source_config(u, env);
        int r = 0;

        if (u->name)
                env->name = u->name;
        if (u->has_description)
                env->description = u->description;
        if (u->driver)
                env->driver = u->driver;
        if (u->status)
                env->status = u->status;
        if (u->has_metadata)
                env->metadata = u->metadata ? json_to_arena(u->op->arena, u->metadata) : NULL;
        if (source)
                r = environment_persist_config(u->op, u->rt, env->driver, source, &u->stored,
                                               &u->schema, err);
        json_decref(source);
        return r;
}

static int load(struct db *db, void *arg, struct err *err)
{
        struct update *u = arg;
        int r = access_authenticated(u->op->actor, err);

        if (r >= 0)
                r = environments_get(db, u->id, u->op->arena, &u->env, err);
        if (r >= 0)
                r = access_manage_environments(db, u->op->actor, u->env.company_id, err);
        u->seen = u->env.updated_at;
        u->before = u->env;
        return r;
}

/* Objects that refer to the environment must lose neither their place nor its isolation. */
static int guard_references(struct db *db, const struct update *u, struct err *err)
{
        const struct environment *env = &u->env;
        bool archives = streq(env->status, "archived") && !streq(u->before.status, "archived");
        bool opens =
                kind_is_isolated(u->rt, u->before.driver) && !kind_is_isolated(u->rt, env->driver);
        struct environment_references refs;
        int r;

        if (!archives && !opens && !u->move_to)
                return 0;
        r = environments_references(db, env, &refs, err);
        if (r < 0 || refs.pointing == 0)
                return r;
        if (u->move_to)
                return env_move(db, u->rt, u->op, env, &refs, u->move_to, err);
        return env_move_refuse(
                env, &refs, archives ? "archived" : "changed to a kind that is not isolated", err);
}

static int check_reach(const struct update *u, struct err *err)
{
        const char *had = u->before.config;
        CLEAN(json_decrefp) json_t *before = NULL;
        int r = json_parse(had, strlen(had), &before, err);

        return r < 0 ? r
                     : host_use_check_config(u->rt, u->op->actor, u->env.driver, before, u->stored,
                                             err);
}

/* The row, its secrets and their bindings change together or not at all. */
static int write_row(struct db *db, void *arg, struct err *err)
{
        struct update *u = arg;
        struct environment *env = &u->env;
        int r = access_manage_environments(db, u->op->actor, env->company_id, err);

        /* The configuration reaches the commands that run there. */
        if (r >= 0)
                r = host_use_check(u->rt, u->op->actor, u->before.driver, err);
        if (r >= 0)
                r = host_use_check(u->rt, u->op->actor, env->driver, err);
        if (r >= 0 && u->stored)
                r = check_reach(u, err);
        if (r >= 0)
                r = environment_check_fields(db, u->op, u->rt, &u->before, env->driver, env->status,
                                             u->stored, err);
        if (r >= 0)
                r = guard_references(db, u, err);
        if (r < 0)
                return r;
        env->updated_at = clock_now_us();
        r = environments_update(db, env, u->seen, err);
        u->has_changed = r == 0;
        if (r == 0)
                r = err_set(err, ERR_CONFLICT,
                            "The environment was changed in the meantime; read it again.");
        else if (r == ERR_CONFLICT)
                r = err_set(err, ERR_CONFLICT,
                            "A local environment already exists for this company.");
        if (r >= 0 && u->stored)
                r = env_secrets_commit(db, u->op, u->rt, env, u->stored, u->schema, &u->secrets,
                                       err);
        if (r >= 0)
                r = audit(db, u->op, env->company_id, "environment.updated", "environment", env->id,
                          describe(u, env, u->stored), err);
        return r;
}

static int save(struct update *u, struct err *err)
{
        int r = 0;

        if (u->stored) {
                r = env_secrets_extract(u->op, u->rt, &u->env, u->stored, u->schema, &u->secrets,
                                        err);
                if (r >= 0)
                        u->env.config = json_to_arena(u->op->arena, u->stored);
        }
        if (r < 0)
                return r;
        FAULT("environment.update.before");
        r = store_write(u->op, u->rt->store, write_row, u, err);
        FAULT("environment.update.after");
        if (r < 0)
                env_secrets_abandon(u->op, &u->secrets);
        else
                env_secrets_finish(u->op, u->rt, &u->secrets);
        return r;
}

static int try_update(struct update *u, struct err *err)
{
        int r = store_read(u->op, u->rt->store, load, u, err);

        u->has_changed = false;
        u->stored = NULL;
        if (r >= 0)
                r = check_body(u, err);
        if (r >= 0)
                r = apply(u, err);
        if (r >= 0)
                r = save(u, err);
        json_decref(u->stored);
        return r;
}

/* A row that changed between reading and writing is read again: the request applies to the new row
 * as well. */
int environment_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                       struct environment *ret, struct err *err)
{
        struct update u = { .op = op, .rt = rt, .id = id, .body = body };
        int r;

        for (int i = 0; i < TRIES; i++) {
                r = try_update(&u, err);
                if (r >= 0 || !u.has_changed)
                        break;
        }
        if (r >= 0)
                *ret = u.env;
        return r;
}
