/* Decides which variables and references to secrets an agent may have. */
#include "core/secrets/agent_env.h"

static bool is_ref(const json_t *variable)
{
        const char *type = json_get_string(variable, "type");

        return type && streq(type, "secret_ref");
}

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
        int r;

        if (!env || json_is_null(env))
                return 0;
        if (!json_is_object(env))
                return err_set(err, ERR_UNPROCESSABLE, "adapterConfig.env must be an object");
        r = secret_check_env(db, rt, company_id, env, op->arena, &normal, err);
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
