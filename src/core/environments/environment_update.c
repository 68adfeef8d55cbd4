/* Decides how an environment may change, and what the audit trail says of it: names of members and
 * counts, never values. */
#include "base/clock.h"
#include "base/fault.h"
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
        const struct environment_change *wish;
        /* the row as it was, and as it will be */
        struct environment before, env;
        json_t *stored;       /* its configuration; NULL: not touched */
        const json_t *schema; /* which members of it are secret; NULL: none */
        struct env_secrets secrets;
        bool has_changed; /* since it was read */
};

int environment_may_update(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct environment env;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : environment_get_managed(db, op, id, &env, err);
}

/* The base of the new configuration: with the driver unchanged a given config is merged over the
 * stored one; with a new driver, or replaceConfig, it stands alone. A new reference, or NULL when
 * the configuration is not touched. */
static json_t *source_config(const struct environment_change *wish, const struct environment *env)
{
        bool switched = wish->driver && !streq(wish->driver, env->driver);
        json_t *stored = NULL;

        if (!wish->config && !wish->driver)
                return NULL;
        if (switched || (wish->replace_config && wish->config))
                return wish->config ? json_incref(wish->config) : json_object();
        if (json_parse(env->config, strlen(env->config), &stored, NULL) < 0)
                stored = json_object();
        if (wish->config)
                json_object_update(stored, wish->config);
        return stored;
}

/* `changedFields` is in the order of the alphabet. */
static json_t *describe_update(const struct update *u)
{
        const struct environment_change *wish = u->wish;
        json_t *details = json_object(), *fields = json_array();

        if (u->stored) {
                json_array_append_new(fields, json_string("config"));
                json_object_set_new(details, "configChanged", json_true());
                json_object_set_new(details, "configTopLevelKeyCount",
                                    json_integer((json_int_t)json_object_size(u->stored)));
        }
        if (wish->has_description) {
                json_array_append_new(fields, json_string("description"));
                json_object_set_new(details, "descriptionChanged", json_true());
        }
        if (wish->driver) {
                json_array_append_new(fields, json_string("driver"));
                json_object_set_new(details, "driver", json_string(u->env.driver));
        }
        if (wish->has_metadata) {
                json_array_append_new(fields, json_string("metadata"));
                json_object_set_new(details, "metadataChanged", json_true());
                json_object_set_new(details, "metadataTopLevelKeyCount",
                                    json_integer((json_int_t)json_object_size(wish->metadata)));
        }
        if (wish->name) {
                json_array_append_new(fields, json_string("name"));
                json_object_set_new(details, "name", json_string(u->env.name));
        }
        if (wish->status) {
                json_array_append_new(fields, json_string("status"));
                json_object_set_new(details, "status", json_string(u->env.status));
        }
        json_object_set_new(details, "changedFields", fields);
        return details;
}

/* Objects that refer to the environment must lose neither their place nor its isolation. */
static int guard_references(struct db *db, const struct update *u, struct err *err)
{
        const struct environment *env = &u->env;
        bool archives = streq(env->status, "archived") && !streq(u->before.status, "archived");
        bool opens = kind_is_isolated(u->rt, &u->before) && !kind_is_isolated(u->rt, env);
        struct environment_references refs;

        if (!archives && !opens && !u->wish->move_to)
                return 0;
        int r = environments_references(db, env, &refs, err);
        if (r < 0 || refs.pointing == 0)
                return r;
        if (u->wish->move_to)
                return env_move(db, u->rt, u->op, env, &refs, u->wish->move_to, err);
        return env_move_refuse(
                env, &refs, archives ? "archived" : "changed to a kind that is not isolated", err);
}

/* The row, its secrets and their bindings change together or not at all. */
static int environment_write(struct db *db, void *arg, struct err *err)
{
        CLEAN(json_decrefp) json_t *had = NULL;
        struct update *u = arg;
        struct environment *env = &u->env;
        int r = access_manage_environments(db, u->op->actor, env->company_id, err);

        /* The configuration reaches the commands that run there. */
        if (r >= 0)
                r = host_use_check(u->rt, u->op->actor, u->before.driver, err);
        if (r >= 0)
                r = host_use_check(u->rt, u->op->actor, env->driver, err);
        if (r >= 0 && u->stored)
                r = json_parse(u->before.config, strlen(u->before.config), &had, err);
        if (r >= 0 && u->stored)
                r = host_use_check_config(u->rt, u->op->actor, env->driver, had, u->stored, err);
        if (r >= 0)
                r = environment_check_fields(db, u->op, u->rt, &u->before, env->driver, env->status,
                                             u->stored, err);
        if (r >= 0)
                r = guard_references(db, u, err);
        if (r < 0)
                return r;
        env->updated_at = clock_now_us();
        r = environments_update(db, env, u->before.updated_at, err);
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
        return r < 0 ? r
                     : audit(db, u->op, env->company_id, "environment.updated", "environment",
                             env->id, describe_update(u), err);
}

static int try_update(struct update *u, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *source = NULL;
        const struct environment_change *wish = u->wish;
        struct environment *env = &u->env;
        int r = store_read_begin(u->op, u->rt->store, &db, err);

        u->has_changed = false;
        if (r >= 0)
                r = environment_get_managed(db, u->op, u->id, env, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        u->before = *env;
        source = source_config(wish, env);
        if (wish->name)
                env->name = wish->name;
        if (wish->has_description)
                env->description = wish->description;
        if (wish->driver)
                env->driver = wish->driver;
        if (wish->status)
                env->status = wish->status;
        if (wish->has_metadata)
                env->metadata = wish->metadata ? json_to_arena(u->op->arena, wish->metadata) : NULL;
        if (source)
                r = environment_persist_config(u->op, u->rt, env->driver, source, &u->stored,
                                               &u->schema, err);
        if (r >= 0 && u->stored)
                r = env_secrets_extract(u->op, u->rt, env, u->stored, u->schema, &u->secrets, err);
        if (r < 0)
                return r;
        if (u->stored)
                env->config = json_to_arena(u->op->arena, u->stored);
        FAULT("environment.update.before");
        r = store_write(u->op, u->rt->store, environment_write, u, err);
        FAULT("environment.update.after");
        if (r < 0)
                env_secrets_abandon(u->op, &u->secrets);
        else
                env_secrets_finish(u->op, u->rt, &u->secrets);
        return r;
}

/* A row that changed between reading and writing is read again: the request applies to the new row
 * as well. */
int environment_update(struct op *op, struct runtime *rt, const char *id,
                       const struct environment_change *wish, struct environment *ret,
                       struct err *err)
{
        struct update u = { .op = op, .rt = rt, .id = id, .wish = wish };
        int r;

        for (int i = 0; i < TRIES; i++) {
                r = try_update(&u, err);
                json_decref(take_ptr(&u.stored));
                if (r >= 0 || !u.has_changed)
                        break;
        }
        if (r >= 0)
                *ret = u.env;
        return r;
}
