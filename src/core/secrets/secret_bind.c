/* Decides which targets may use a secret, and at which path: bindings, and the variables that make
 * them. */
#include <ctype.h>
#include <stdio.h>

#include "base/clock.h"
#include "core/access/audit.h"
#include "core/secrets/agent_env.h"
#include "core/secrets/secret_resolve.h"

/* A secret of the company that is not deleted. */
static int check_secret(struct db *db, const char *company_id, const char *secret_id,
                        struct arena *arena, struct err *err)
{
        struct secret s;
        int r = secrets_get(db, secret_id, arena, &s, err);

        if (r >= 0 && streq(s.status, SECRET_DELETED))
                r = err_set(err, ERR_NOT_FOUND, "Secret not found");
        if (r >= 0 && !streq(s.company_id, company_id))
                r = err_set(err, ERR_UNPROCESSABLE, "Secret must belong to same company");
        return r;
}

int secret_bind(struct db *db, const char *company_id, const char *target_type,
                const char *target_id, const struct secret_ref *ref, struct arena *arena,
                struct err *err)
{
        struct uuid id = uuid_new();
        int64_t now = clock_now_us();
        struct secret_binding b = {
                .id = id.s,
                .company_id = company_id,
                .secret_id = ref->secret_id,
                .target_type = target_type,
                .target_id = target_id,
                .config_path = ref->config_path,
                .version_selector = ref->version
                                            ? arena_printf(arena, "%lld", (long long)ref->version)
                                            : "latest",
                .required = !ref->is_optional,
                .created_at = now,
                .updated_at = now,
        };
        int r = check_secret(db, company_id, ref->secret_id, arena, err);

        if (r >= 0)
                r = secret_bindings_insert(db, &b, err);
        if (r == ERR_CONFLICT)
                return err_set(err, ERR_CONFLICT, "Secret binding already exists at %s",
                               ref->config_path);
        return r < 0 ? r : 0;
}

int secret_sync_refs(struct db *db, const char *company_id, const char *target_type,
                     const char *target_id, const struct secret_ref *refs, size_t n_refs,
                     struct arena *arena, struct err *err)
{
        int r = secret_bindings_delete_target(db, company_id, target_type, target_id, NULL, err);

        for (size_t i = 0; r >= 0 && i < n_refs; i++)
                r = secret_bind(db, company_id, target_type, target_id, &refs[i], arena, err);
        return r < 0 ? r : 0;
}

/* Variables */

static bool is_name(const char *s)
{
        if (!isalpha((unsigned char)*s) && *s != '_')
                return false;
        for (; *s; s++)
                if (!isalnum((unsigned char)*s) && *s != '_')
                        return false;
        return true;
}

static bool is_version(const json_t *v)
{
        return !v || (json_is_string(v) && streq(json_string_value(v), "latest")) ||
               (json_is_integer(v) && json_integer_value(v) > 0);
}

static int refuse_shape(const char *name, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE, "Invalid environment binding for key: %s", name);
}

static int check_plain(const struct runtime *rt, const char *name, const char *text,
                       struct err *err)
{
        if (streq(text, REDACTED))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Refusing to persist redacted placeholder for key: %s", name);
        if (rt->settings.secrets_strict && text[strspn(text, " \t\r\n")] &&
            audit_is_sensitive(name))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Strict secret mode requires secret references for sensitive key: "
                               "%s",
                               name);
        return 0;
}

/* *ret is a new reference. */
static int check_variable(struct db *db, const struct runtime *rt, const char *company_id,
                          const char *name, const json_t *value, struct arena *arena, json_t **ret,
                          struct err *err)
{
        const char *type = json_get_string(value, "type");
        const char *text =
                json_is_string(value) ? json_string_value(value) : json_get_string(value, "value");
        const char *id = json_get_string(value, "secretId");
        json_t *version = json_object_get(value, "version");
        struct uuid uuid;
        int r;

        if (!is_name(name))
                return err_set(err, ERR_UNPROCESSABLE, "Invalid environment variable name: %s",
                               name);
        if (json_is_string(value) || (type && streq(type, "plain") && text)) {
                r = check_plain(rt, name, text, err);
                if (r >= 0)
                        *ret = json_pack("{s:s, s:s}", "type", "plain", "value", text);
                return r;
        }
        if (!type || !streq(type, "secret_ref") || !id || !uuid_parse(id, &uuid) ||
            !is_version(version))
                return refuse_shape(name, err);
        r = check_secret(db, company_id, uuid.s, arena, err);
        if (r >= 0)
                *ret = json_pack("{s:s, s:s, s:o}", "type", "secret_ref", "secretId", uuid.s,
                                 "version", version ? json_incref(version) : json_string("latest"));
        return r;
}

int secret_check_env(struct db *db, const struct runtime *rt, const char *company_id, json_t *env,
                     struct arena *arena, json_t **ret, struct err *err)
{
        json_t *normal = json_object(), *checked = NULL, *value;
        const char *name;
        int r = 0;

        json_object_foreach(env, name, value)
        {
                r = check_variable(db, rt, company_id, name, value, arena, &checked, err);
                if (r < 0)
                        break;
                json_object_set_new(normal, name, checked);
        }
        if (r < 0)
                json_decref(normal);
        else
                *ret = normal;
        return r;
}

static bool is_ref(const json_t *value)
{
        const char *type = json_get_string(value, "type");

        return type && streq(type, "secret_ref") && json_get_string(value, "secretId");
}

int secret_sync_env_bindings(struct db *db, const char *company_id, const char *target_type,
                             const char *target_id, const char *prefix, const json_t *env,
                             struct arena *arena, struct err *err)
{
        int r = secret_bindings_delete_target(db, company_id, target_type, target_id, prefix, err);
        const char *name;
        json_t *value;

        if (r < 0)
                return r;
        json_object_foreach((json_t *)env, name, value)
        {
                struct secret_ref ref = {
                        .secret_id = json_get_string(value, "secretId"),
                        .config_path = arena_printf(arena, "%s%s", prefix, name),
                        .version = json_integer_value(json_object_get(value, "version")),
                };

                if (!is_ref(value))
                        continue;
                r = secret_bind(db, company_id, target_type, target_id, &ref, arena, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

/* Resolving variables */

struct env_use {
        struct op *op;
        struct runtime *rt;
        const char *company_id;
        const struct secret_use *use;
        struct secret_env *ret;
        struct secret_attempt *attempts;
        struct secret_use *uses;
        size_t n;
};

static json_t *describe_attempt(const struct secret_attempt *t, const char *name)
{
        json_t *entry = json_pack(
                "{s:s, s:s, s:s, s:s*, s:o, s:s*, s:s}", "configPath", t->use->config_path,
                "envKey", name, "secretId", t->secret_id, "secretKey", t->secret.key, "version",
                t->version.version ? json_integer(t->version.version) : json_null(), "provider",
                t->secret.provider, "outcome", t->result < 0 ? "failure" : "success");

        if (t->result < 0)
                json_object_set_new(entry, "errorCode", json_string_or_null(t->error_code));
        return entry;
}

static int resolve_ref(struct env_use *q, const char *name, const json_t *value, struct err *err)
{
        struct secret_attempt *t = &q->attempts[q->n];
        struct secret_use *u = &q->uses[q->n];
        struct secret_env_var *var = &q->ret->vars[q->ret->n_vars];

        *u = *q->use;
        u->config_path = arena_printf(q->op->arena, "%s%s", q->use->config_path, name);
        *t = (struct secret_attempt){
                .company_id = q->company_id,
                .secret_id = json_get_string(value, "secretId"),
                .asked = json_integer_value(json_object_get(value, "version")),
                .use = u,
        };
        q->n++;
        int r = secret_attempt(q->op, q->rt, t, &var->value, err);
        json_array_append_new(q->ret->manifest, describe_attempt(t, name));
        if (r < 0 && t->is_optional && (r == ERR_UNPROCESSABLE || r == ERR_NOT_FOUND)) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return err_wrap(err, r, "variable %s (secret \"%s\")", name,
                                t->secret.name ? t->secret.name : t->secret_id);
        var->name = arena_strdup(q->op->arena, name);
        var->is_secret = true;
        q->ret->n_vars++;
        return 0;
}

static int resolve_plain(struct env_use *q, const char *name, const json_t *value, struct err *err)
{
        const char *text =
                json_is_string(value) ? json_string_value(value) : json_get_string(value, "value");
        struct secret_env_var *var = &q->ret->vars[q->ret->n_vars];

        if (!text)
                return refuse_shape(name, err);
        int r = secret_value_set(&var->value, text, strlen(text), err);
        if (r < 0)
                return r;
        var->name = arena_strdup(q->op->arena, name);
        q->ret->n_vars++;
        return 0;
}

int secret_resolve_env(struct op *op, struct runtime *rt, const char *company_id, const json_t *env,
                       const struct secret_use *use, struct secret_env *ret, struct err *err)
{
        size_t n = json_object_size(env);
        struct env_use q = { op, rt, company_id, use, ret, NULL, NULL, 0 };
        const char *name;
        json_t *value;
        int r = 0;

        *ret = (struct secret_env){ .vars = xcalloc(n + 1, sizeof(*ret->vars)),
                                    .manifest = json_array() };
        q.attempts = xcalloc(n + 1, sizeof(*q.attempts));
        q.uses = xcalloc(n + 1, sizeof(*q.uses));
        json_object_foreach((json_t *)env, name, value)
        {
                if (!is_name(name))
                        r = err_set(err, ERR_UNPROCESSABLE, "Invalid environment variable name: %s",
                                    name);
                else
                        r = is_ref(value) ? resolve_ref(&q, name, value, err)
                                          : resolve_plain(&q, name, value, err);
                if (r < 0)
                        break;
        }
        secret_record(op, rt, q.attempts, q.n);
        free(q.attempts);
        free(q.uses);
        if (r < 0)
                secret_env_done(ret);
        return r;
}

void secret_env_done(struct secret_env *env)
{
        for (size_t i = 0; i < env->n_vars; i++)
                secret_value_done(&env->vars[i].value);
        free(env->vars);
        json_decref(env->manifest);
        *env = (struct secret_env){ 0 };
}

/* The variables of agents */

static int check_giver(const struct op *op, const json_t *before, const json_t *env,
                       struct err *err)
{
        const json_t *had = json_get_object(before, "env");
        const char *name;
        json_t *variable;

        if (op->actor->type == ACTOR_BOARD)
                return 0;
        json_object_foreach((json_t *)env, name, variable)
        {
                if (is_ref(variable) && !json_equal(variable, json_object_get(had, name)))
                        return err_set(err, ERR_FORBIDDEN,
                                       "Only board users may give secrets to agents (%s)", name);
        }
        return 0;
}

int agent_env_check(struct db *db, struct op *op, const struct runtime *rt, const char *company_id,
                    const json_t *before, json_t *config, struct err *err)
{
        json_t *env = json_object_get(config, "env"), *normal;

        if (!env || json_is_null(env))
                return 0;
        if (!json_is_object(env))
                return err_set(err, ERR_UNPROCESSABLE, "adapterConfig.env must be an object");
        int r = secret_check_env(db, rt, company_id, env, op->arena, &normal, err);
        if (r < 0)
                return r;
        json_object_set_new(config, "env", normal);
        return check_giver(op, before, normal, err);
}

int agent_env_bind(struct db *db, struct op *op, const char *company_id, const char *agent_id,
                   const json_t *config, struct err *err)
{
        return secret_sync_env_bindings(db, company_id, "agent", agent_id, AGENT_ENV_PREFIX,
                                        json_get_object(config, "env"), op->arena, err);
}

int agent_env_unbind(struct db *db, const char *company_id, const char *agent_id, struct err *err)
{
        return secret_bindings_delete_target(db, company_id, "agent", agent_id, NULL, err);
}
