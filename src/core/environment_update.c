/* Changing an environment, and what the audit trail says of it: names of members and counts, never
 * values. */
#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/audit.h"
#include "core/environment.h"

struct update {
        struct op *op;
        struct runtime *rt;
        const char *id;
        json_t *body;
        struct environment *result;
        /* what the body asks for; has_* for members that may be null */
        const char *name, *description, *driver, *status;
        json_t *config, *metadata;
        bool has_description, has_metadata;
        int64_t seen;       /* updated_at of the row that the change starts from */
        json_t *new_config; /* owned; NULL when it is not touched */
};

static int check_body(struct update *u, struct err *err)
{
        CLEAN(check_done) struct check c;
        struct arena *a = u->op->arena;

        check_init(&c, u->body);
        u->name = arena_strdup(a, check_string(&c, "name", CHECK_OPTIONAL, 1, 0));
        u->has_description = check_has(&c, "description");
        u->description = arena_strdup(a, check_string(&c, "description", CHECK_NULLABLE, 0, 0));
        u->driver = arena_strdup(a, check_enum(&c, "driver", CHECK_OPTIONAL, environment_drivers));
        u->status = arena_strdup(a, check_enum(&c, "status", CHECK_OPTIONAL, environment_statuses));
        u->config = check_record(&c, "config", CHECK_OPTIONAL);
        u->has_metadata = check_has(&c, "metadata");
        u->metadata = check_record(&c, "metadata", CHECK_NULLABLE);
        check_unknown(&c, (const char *[]){ "name", "description", "driver", "status", "config",
                                            "metadata", NULL });
        return check_end(&c, err);
}

/* What the new configuration starts from: with the driver unchanged a given config is merged over
 * the stored one, with a new driver it stands alone. A new reference, or NULL when the
 * configuration is not touched. */
static json_t *source_config(const struct update *u, const struct environment *env)
{
        bool switched = u->driver && !streq(u->driver, env->driver);
        json_t *stored = NULL;

        if (!u->config && !u->driver)
                return NULL;
        if (switched)
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

static int apply(struct update *u, struct environment *env, json_t **ret_config, struct err *err)
{
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
        if (source) {
                r = environment_persist_config(u->op, u->rt, env->driver, source, ret_config, err);
                if (r >= 0)
                        env->config = json_to_arena(u->op->arena, *ret_config);
                json_decref(source);
        }
        return r;
}

/* The row as the actor found it, if he may change it. */
static int look(struct db *db, void *arg, struct err *err)
{
        struct update *u = arg;
        int r = access_authenticated(u->op->actor, err);

        if (r >= 0)
                r = environments_get(db, u->id, u->op->arena, u->result, err);
        if (r >= 0)
                r = access_manage_environments(db, u->op->actor, u->result->company_id, err);
        return r;
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct update *u = arg;
        struct environment *env = u->result;
        int r = access_manage_environments(db, u->op->actor, env->company_id, err);

        if (r < 0)
                return r;
        env->updated_at = clock_now_us();
        r = environments_update(db, env, u->seen, err);
        if (r == 0)
                r = ERR_LOCKED; /* somebody was faster: start from what he made of it */
        else if (r == ERR_CONFLICT)
                r = err_set(err, ERR_CONFLICT,
                            "A local environment already exists for this company.");
        if (r >= 0)
                r = audit(db, u->op, env->company_id, "environment.updated", "environment", env->id,
                          describe(u, env, u->new_config), err);
        return r;
}

/* A worker may have to be asked between reading and writing, so this is not one transaction.
 * ERR_LOCKED: the row changed meanwhile. */
static int try_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                      struct environment *ret, struct err *err)
{
        struct update u = { .op = op, .rt = rt, .id = id, .body = body, .result = ret };
        int r = store_read(op, rt->store, look, &u, err);

        if (r >= 0)
                r = check_body(&u, err);
        if (r < 0)
                return r;
        u.seen = ret->updated_at;
        r = apply(&u, ret, &u.new_config, err);
        if (r < 0)
                return r;
        FAULT("environment.update.before");
        r = store_write(op, rt->store, update, &u, err);
        FAULT("environment.update.after");
        json_decref(u.new_config);
        return r;
}

int environment_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                       struct environment *ret, struct err *err)
{
        int r;

        do {
                r = op_check(op, err);
                if (r >= 0)
                        r = try_update(op, rt, id, body, ret, err);
        } while (r == ERR_LOCKED);
        return r;
}
