#include "core/environments/env_select.h"

#include "core/adapters/adapter.h"
#include "core/companies/instance.h"
#include "core/environments/host_use.h"
#include "core/kinds/sandbox.h"

static bool driver_allowed(const char *driver, bool remote)
{
        return streq(driver, "local") ||
               (remote && (streq(driver, "ssh") || streq(driver, "sandbox")));
}

static int refuse_driver(const char *driver, bool remote, enum env_select_for purpose,
                         struct err *err)
{
        if (purpose == ENV_FOR_CHANGED_AGENT)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Environment driver \"%s\" is not allowed here", driver);
        return err_set(err, ERR_UNPROCESSABLE,
                       "Environment driver \"%s\" is not allowed here. Allowed drivers: %s", driver,
                       remote ? "local, ssh, sandbox" : "local");
}

static int check_provider(const struct environment *env, enum env_select_for purpose,
                          struct err *err)
{
        json_t *config = NULL;
        const char *provider;
        int r = json_parse(env->config, strlen(env->config), &config, err);

        if (r < 0)
                return err_wrap(err, ERR_CORRUPT, "environment %s", env->id);
        provider = json_get_string(config, "provider");
        if (provider && !streq(provider, PROVIDER_FAKE))
                r = 0;
        else if (purpose == ENV_FOR_CHANGED_AGENT)
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Selected sandbox provider \"%s\" is not supported for agent defaults "
                            "yet",
                            provider ? provider : "unknown");
        else
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Environment sandbox provider \"fake\" is not allowed here. The "
                            "built-in fake provider is probe-only and cannot execute runs.");
        json_decref(config);
        return r;
}

static int check_environment(const struct environment *env, enum env_select_for purpose,
                             const char *adapter_type, struct err *err)
{
        bool remote = purpose == ENV_FOR_WORK || adapter_is_remote_capable(adapter_type);

        if (streq(env->status, "archived"))
                return err_set(err, ERR_UNPROCESSABLE, "Environment is archived.");
        if (!driver_allowed(env->driver, remote))
                return refuse_driver(env->driver, remote, purpose, err);
        return streq(env->driver, "sandbox") ? check_provider(env, purpose, err) : 0;
}

int env_allowed(struct db *db, struct runtime *rt, struct arena *arena,
                const struct environment *env, struct err *err)
{
        bool restricted;
        int r;

        if (driver_is_isolated(rt, env->driver))
                return 0;
        r = instance_isolated_only(db, arena, &restricted, err);
        if (r < 0 || !restricted)
                return r;
        return err_set(err, ERR_FORBIDDEN,
                       "Environment \"%s\" (%s) is not isolated, and this instance allows only "
                       "isolated environments (enableManagedSandboxOnly). Choose a sandbox.",
                       env->name, env->driver);
}

/* The one place where it is decided whether this actor may choose this environment. */
int env_select(struct db *db, struct runtime *rt, const struct op *op, const char *company_id,
               const char *environment_id, enum env_select_for purpose, const char *adapter_type,
               struct err *err)
{
        struct environment env;
        int r = 0;

        if (!environment_id)
                return 0;
        if (op->actor->type == ACTOR_AGENT)
                r = access_manage_environments(db, op->actor, company_id, err);
        if (r < 0)
                return r;
        r = environments_get(db, environment_id, op->arena, &env, err);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (r < 0 || !streq(env.company_id, company_id))
                return err_set(err, ERR_UNPROCESSABLE, "%s",
                               purpose == ENV_FOR_CHANGED_AGENT
                                       ? "Selected environment must belong to the same company"
                                       : "Environment not found.");
        r = check_environment(&env, purpose, adapter_type, err);
        if (r >= 0)
                r = env_allowed(db, rt, op->arena, &env, err);
        return r < 0 ? r : host_use_check(rt, op->actor, env.driver, err);
}

int env_select_in(struct db *db, struct runtime *rt, const struct op *op, const char *company_id,
                  const json_t *settings, const char *before, struct err *err)
{
        const char *id = json_get_string(settings, "environmentId"), *had;
        json_t *old = NULL;
        bool same, had_none;

        if (before && json_parse(before, strlen(before), &old, err) < 0)
                return err_wrap(err, ERR_CORRUPT, "workspace settings");
        had = json_get_string(old, "environmentId");
        had_none = !had;
        same = had && id && streq(had, id);
        json_decref(old);
        if (same || (!id && had_none))
                return 0;
        /* Without it the work is done in the company's default environment, which may be less than
         * what somebody chose here. */
        if (!id && op->actor->type == ACTOR_AGENT)
                return access_manage_environments(db, op->actor, company_id, err);
        return !id ? 0 : env_select(db, rt, op, company_id, id, ENV_FOR_WORK, NULL, err);
}
