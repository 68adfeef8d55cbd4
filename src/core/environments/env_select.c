/* Decides whether an actor may choose an environment. */
#include "core/environments/env_select.h"

#include "core/access/instance.h"
#include "core/adapters/adapter.h"
#include "core/environments/host_use.h"
#include "core/kinds/kind.h"

static bool driver_allowed(const struct runtime *rt, const char *driver, bool remote)
{
        return kind_driver_takes_runs(rt, driver) && (remote || kind_runs_on_host(rt, driver));
}

static int refuse_driver(const struct runtime *rt, const char *driver, bool remote,
                         enum env_select_for purpose, struct err *err)
{
        CLEAN(buf_done) struct buf allowed = BUF_INIT;

        if (purpose == ENV_FOR_CHANGED_AGENT)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Environment driver \"%s\" is not allowed here", driver);
        for (const struct kind *const *k = NULL; (k = kind_next_driver(rt, k));)
                if (driver_allowed(rt, (*k)->driver, remote))
                        buf_appendf(&allowed, "%s%s", allowed.len ? ", " : "", (*k)->driver);
        return err_set(err, ERR_UNPROCESSABLE,
                       "Environment driver \"%s\" is not allowed here. Allowed drivers: %s", driver,
                       buf_str(&allowed));
}

/* The driver takes runs, but this kind does not. */
static int refuse_provider(const struct environment *env, const struct kind *kind,
                           enum env_select_for purpose, struct err *err)
{
        CLEAN(json_decrefp) json_t *config = NULL;

        (void)json_parse(env->config, strlen(env->config), &config, NULL);
        const char *provider = json_get_string(config, "provider");
        if (purpose == ENV_FOR_CHANGED_AGENT)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Selected sandbox provider \"%s\" is not supported for agent "
                               "defaults yet",
                               provider ? provider : "unknown");
        return err_set(err, ERR_UNPROCESSABLE,
                       "Environment sandbox provider \"%s\" is not allowed here. The built-in %s "
                       "provider is probe-only and cannot execute runs.",
                       kind->provider, kind->provider);
}

static int check_environment(const struct runtime *rt, const struct environment *env,
                             enum env_select_for purpose, const char *adapter_type, struct err *err)
{
        bool remote = purpose == ENV_FOR_WORK || adapter_is_remote_capable(adapter_type);
        const struct kind *kind = kind_of_environment(rt, env);

        if (streq(env->status, "archived"))
                return err_set(err, ERR_UNPROCESSABLE, "Environment is archived.");
        if (!driver_allowed(rt, env->driver, remote))
                return refuse_driver(rt, env->driver, remote, purpose, err);
        return kind->takes_runs ? 0 : refuse_provider(env, kind, purpose, err);
}

int env_allowed(struct db *db, struct runtime *rt, struct arena *arena,
                const struct environment *env, struct err *err)
{
        bool restricted;

        if (kind_is_isolated(rt, env))
                return 0;
        int r = instance_isolated_only(db, arena, &restricted, err);
        if (r < 0 || !restricted)
                return r;
        return err_set(err, ERR_FORBIDDEN,
                       "Environment \"%s\" (%s) is not isolated, and this instance allows only "
                       "isolated environments (enableManagedSandboxOnly). Choose a sandbox.",
                       env->name, env->driver);
}

/* The only function that decides whether this actor may choose this environment. */
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
        r = check_environment(rt, &env, purpose, adapter_type, err);
        if (r >= 0)
                r = env_allowed(db, rt, op->arena, &env, err);
        return r < 0 ? r : host_use_check(rt, op->actor, env.driver, err);
}

int env_select_in(struct db *db, struct runtime *rt, const struct op *op, const char *company_id,
                  const json_t *settings, const char *before, struct err *err)
{
        const char *id = json_get_string(settings, "environmentId"), *had;
        json_t *old = NULL;

        if (before && json_parse(before, strlen(before), &old, err) < 0)
                return err_wrap(err, ERR_CORRUPT, "workspace settings");
        had = json_get_string(old, "environmentId");
        bool had_none = !had;
        bool same = had && id && streq(had, id);
        json_decref(old);
        if (same || (!id && had_none))
                return 0;
        /* Without it the work is done in the company's default environment, which may be less
         * isolated than the one chosen here. */
        if (!id && op->actor->type == ACTOR_AGENT)
                return access_manage_environments(db, op->actor, company_id, err);
        return !id ? 0 : env_select(db, rt, op, company_id, id, ENV_FOR_WORK, NULL, err);
}
