#include "core/environments/env_default.h"

#include "base/clock.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "core/environments/environment.h"
#include "core/kinds/sandbox.h"
#include "core/sandboxes/sandbox_host.h"
#include "store/companies.h"

#define SANDBOX_NAME "Sandbox" /* `berth run --sandbox` takes the one of this name */

const char *const env_default_choices[] = { "sandbox", "local", "none", NULL };

/* The configuration of the built-in sandbox with every default. */
static int plan_sandbox(struct op *op, struct runtime *rt, const char **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *given = json_pack("{s:s}", "provider", PROVIDER_BERTH);
        CLEAN(json_decrefp) json_t *config = NULL;
        const json_t *schema;
        int r = sandbox_host_check(op, rt->sandbox, err);

        if (r >= 0)
                r = environment_persist_config(op, rt, "sandbox", given, &config, &schema, err);
        if (r >= 0)
                *ret = json_to_arena(op->arena, config);
        return r;
}

int env_default_plan(struct op *op, struct runtime *rt, const char *choice,
                     struct env_default_plan *ret, struct err *err)
{
        int r;

        *ret = (struct env_default_plan){ 0 };
        if (choice && streq(choice, "none"))
                return 0;
        if (choice && streq(choice, "local")) {
                ret->driver = "local";
                return 0;
        }
        r = plan_sandbox(op, rt, &ret->config, err);
        if (r >= 0) {
                ret->driver = "sandbox";
                return 0;
        }
        if (choice || op_check(op, NULL) < 0)
                return err_wrap(err, ERR_UNPROCESSABLE, "This machine cannot make a sandbox");
        err_clear(err);
        return 0;
}

static int make_sandbox(struct db *db, struct op *op, const char *company_id, const char *config,
                        struct environment *ret, struct err *err)
{
        int64_t now = clock_now_us();
        int r;

        *ret = (struct environment){
                .id = arena_strdup(op->arena, uuid_new().s),
                .company_id = company_id,
                .name = SANDBOX_NAME,
                .description = "Keeps what runs in it apart from the machine that Berth runs on.",
                .driver = "sandbox",
                .status = "active",
                .config = config,
                .created_at = now,
                .updated_at = now,
        };
        r = environments_insert(db, ret, err);
        return r < 0 ? r
                     : audit(db, op, company_id, "environment.created", "environment", ret->id,
                             json_pack("{s:s, s:s, s:s}", "name", ret->name, "driver", ret->driver,
                                       "status", ret->status),
                             err);
}

int env_default_make(struct db *db, struct op *op, struct runtime *rt, const char *company_id,
                     const struct env_default_plan *plan, const char **ret_id, struct err *err)
{
        struct environment env;
        int r = environment_ensure_local(db, company_id, op->arena, &env, err);

        *ret_id = NULL;
        if (r < 0 || !plan->driver)
                return r;
        if (plan->config)
                r = make_sandbox(db, op, company_id, plan->config, &env, err);
        if (r >= 0)
                r = env_select(db, rt, op, company_id, env.id, ENV_FOR_WORK, NULL, err);
        if (r >= 0)
                *ret_id = env.id;
        return r;
}

int env_default_get(struct db *db, const char *company_id, struct arena *arena, const char **ret_id,
                    struct err *err)
{
        struct company company;
        int r = companies_get(db, company_id, arena, &company, err);

        if (r >= 0)
                *ret_id = company.default_environment_id;
        return r;
}
