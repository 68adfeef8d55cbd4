/* Decides which default environment a new company gets. */
#include "core/environments/env_default.h"

#include "base/clock.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "core/environments/environment.h"
#include "core/kinds/kind.h"
#include "store/companies.h"

const char *const env_default_choices[] = { "sandbox", "local", "none", NULL };

/* The kind of this driver; NULL: the isolated kind. */
static const struct kind *find_starter(const struct runtime *rt, const char *driver)
{
        for (const struct kind *const *k = rt->kinds; *k; k++)
                if ((*k)->starter && (driver ? streq((*k)->driver, driver) : (*k)->isolated))
                        return *k;
        return NULL;
}

/* The configuration with every default; NULL: the company has the environment already. */
static int plan_starter(struct op *op, struct runtime *rt, const struct kind *kind,
                        const char **ret, struct err *err)
{
        const struct kind_starter *starter = kind->starter;
        CLEAN(json_decrefp) json_t *given = NULL;
        CLEAN(json_decrefp) json_t *config = NULL;
        const json_t *schema;
        int r = starter->check ? starter->check(op, rt, err) : 0;

        if (r < 0 || !starter->config)
                return r;
        r = json_parse(starter->config, strlen(starter->config), &given, err);
        if (r >= 0)
                r = environment_persist_config(op, rt, kind->driver, given, &config, &schema, err);
        if (r >= 0)
                *ret = json_to_arena(op->arena, config);
        return r;
}

int env_default_plan(struct op *op, struct runtime *rt, const char *choice,
                     struct env_default_plan *ret, struct err *err)
{
        *ret = (struct env_default_plan){ 0 };
        if (choice && streq(choice, "none"))
                return 0;
        const struct kind *kind = find_starter(rt, choice);
        if (!kind)
                return 0;
        int r = plan_starter(op, rt, kind, &ret->config, err);
        if (r >= 0) {
                ret->kind = kind;
                return 0;
        }
        if (choice || op_check(op, NULL) < 0)
                return err_wrap(err, ERR_UNPROCESSABLE, "This machine cannot make a sandbox");
        err_clear(err);
        return 0;
}

static int make_starter(struct db *db, struct op *op, const char *company_id,
                        const struct env_default_plan *plan, struct environment *ret,
                        struct err *err)
{
        int64_t now = clock_now_us();

        *ret = (struct environment){
                .id = arena_strdup(op->arena, uuid_new().s),
                .company_id = company_id,
                .name = plan->kind->starter->name,
                .description = plan->kind->starter->description,
                .driver = plan->kind->driver,
                .status = "active",
                .config = plan->config,
                .created_at = now,
                .updated_at = now,
        };
        int r = environments_insert(db, ret, err);
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
        if (r < 0 || !plan->kind)
                return r;
        if (plan->config)
                r = make_starter(db, op, company_id, plan, &env, err);
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
