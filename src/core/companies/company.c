/* Decides who may create, read, change and delete companies. */
#include "core/companies/company.h"

#include <ctype.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/environments/env_default.h"
#include "core/environments/env_select.h"
#include "store/identity.h"
#include "store/leases.h"
#include "store/places.h"

#define ATTACHMENT_MAX_DEFAULT 10485760

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id;
        json_t *body;
        struct company *company;
        struct env_default_plan plan; /* of a new company */
};

/* Creating */

/* "Acme" gives ACM; taken ones get a number. */
static const char *choose_prefix(struct db *db, const char *name, struct arena *arena)
{
        char base[4] = "";
        const char *prefix;
        size_t n = 0;

        for (; *name && n < 3; name++)
                if (isalnum((unsigned char)*name))
                        base[n++] = (char)toupper((unsigned char)*name);
        if (n == 0)
                memcpy(base, "PAP", 4);
        prefix = arena_strdup(arena, base);
        for (int i = 2; companies_prefix_taken(db, prefix); i++)
                prefix = arena_printf(arena, "%s%d", base, i);
        return prefix;
}

static int check_create(struct request *q, struct company *c, const char **ret_choice,
                        struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = q->op->arena;
        bool has_max;
        int64_t max;

        check_init(&k, q->body);
        c->name = arena_strdup(a, check_string(&k, "name", CHECK_REQUIRED, 1, 0));
        c->description = arena_strdup(a, check_string(&k, "description", CHECK_NULLABLE, 0, 0));
        c->budget_monthly_cents =
                check_int(&k, "budgetMonthlyCents", CHECK_OPTIONAL, 0, INT64_MAX, NULL);
        max = check_int(&k, "attachmentMaxBytes", CHECK_OPTIONAL, 1, INT64_MAX, &has_max);
        c->attachment_max_bytes = has_max ? max : ATTACHMENT_MAX_DEFAULT;
        *ret_choice = arena_strdup(
                a, check_enum(&k, "defaultEnvironment", CHECK_OPTIONAL, env_default_choices));
        return check_end(&k, err);
}

static int add_owner(struct db *db, const struct request *q, const struct company *c,
                     struct err *err)
{
        struct uuid id = uuid_new();
        struct membership m = {
                .id = id.s,
                .company_id = c->id,
                .principal_type = "user",
                .principal_id = q->op->actor->user_id,
                .role = "owner",
                .status = "active",
                .created_at = c->created_at,
                .updated_at = c->created_at,
        };

        return memberships_put(db, &m, err);
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct company *c = q->company;
        int r;

        c->id = arena_strdup(q->op->arena, uuid_new().s);
        c->issue_prefix = choose_prefix(db, c->name, q->op->arena);
        c->created_at = c->updated_at = clock_now_us();
        c->default_environment_id = NULL;
        r = companies_insert(db, c, err);
        if (r >= 0)
                r = add_owner(db, q, c, err);
        if (r >= 0)
                r = env_default_make(db, q->op, q->rt, c->id, &q->plan, &c->default_environment_id,
                                     err);
        if (r >= 0)
                r = companies_update(db, c, err);
        if (r >= 0)
                r = audit(db, q->op, c->id, "company.created", "company", c->id,
                          json_pack("{s:s, s:s?}", "name", c->name, "defaultEnvironmentId",
                                    c->default_environment_id),
                          err);
        return r;
}

int company_create(struct op *op, struct runtime *rt, json_t *body, struct company *ret,
                   struct err *err)
{
        struct request q = { .op = op, .rt = rt, .body = body, .company = ret };
        const char *choice = NULL;
        int r = access_admin(op->actor, "Instance admin required", err);

        *ret = (struct company){ .status = "active" };
        if (r >= 0)
                r = check_create(&q, ret, &choice, err);
        if (r >= 0)
                r = env_default_plan(op, rt, choice, &q.plan, err);
        if (r < 0)
                return r;
        FAULT("company.create.before");
        r = store_write(op, rt->store, create, &q, err);
        FAULT("company.create.after");
        return r;
}

/* Reading */

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = access_company(db, q->op->actor, q->id, false, err);

        return r < 0 ? r : companies_get(db, q->id, q->op->arena, q->company, err);
}

int company_get(struct op *op, struct runtime *rt, const char *id, struct company *ret,
                struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .company = ret };

        return store_read(op, rt->store, get, &q, err);
}

struct listing {
        struct op *op;
        company_fn fn;
        void *ctx;
};

static int list(struct db *db, void *arg, struct err *err)
{
        struct listing *q = arg;
        const struct actor *a = q->op->actor;

        return companies_list(db, a->is_instance_admin ? NULL : a->user_id, q->op->arena, q->fn,
                              q->ctx, err);
}

int company_list(struct op *op, struct runtime *rt, company_fn fn, void *ctx, struct err *err)
{
        struct listing q = { op, fn, ctx };
        int r = access_board(op->actor, err);

        return r < 0 ? r : store_read(op, rt->store, list, &q, err);
}

struct statistics {
        struct op *op;
        struct jw w;
        struct db *db;
        struct err *err;
};

static int show_stats(void *ctx, const struct company *c)
{
        struct statistics *q = ctx;
        int64_t agents;
        int r = companies_count_agents(q->db, c->id, &agents, q->err);

        if (r < 0)
                return r;
        jw_key(&q->w, c->id);
        jw_object(&q->w);
        jw_kint(&q->w, "agentCount", agents);
        jw_kint(&q->w, "issueCount", c->issue_counter);
        jw_object_end(&q->w);
        return 0;
}

static int collect_stats(struct db *db, void *arg, struct err *err)
{
        struct statistics *q = arg;
        struct listing l = { q->op, show_stats, q };

        q->db = db;
        q->err = err;
        return list(db, &l, err);
}

int company_stats(struct op *op, struct runtime *rt, struct buf *ret_json, struct err *err)
{
        struct statistics q = { .op = op };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        jw_init(&q.w, ret_json);
        jw_object(&q.w);
        r = store_read(op, rt->store, collect_stats, &q, err);
        jw_object_end(&q.w);
        return r;
}

/* Changing */

static int apply(struct request *q, struct company *c, bool *ret_has_environment, struct err *err)
{
        static const char *const statuses[] = { "active", "paused", "archived", NULL };
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = q->op->arena;
        const char *name, *status;
        bool has;
        int64_t n;

        check_init(&k, q->body);
        name = check_string(&k, "name", CHECK_OPTIONAL, 1, 0);
        if (name)
                c->name = arena_strdup(a, name);
        if (check_has(&k, "description"))
                c->description =
                        arena_strdup(a, check_string(&k, "description", CHECK_NULLABLE, 0, 0));
        status = check_enum(&k, "status", CHECK_OPTIONAL, statuses);
        if (status)
                c->status = arena_strdup(a, status);
        n = check_int(&k, "budgetMonthlyCents", CHECK_OPTIONAL, 0, INT64_MAX, &has);
        if (has)
                c->budget_monthly_cents = n;
        n = check_int(&k, "attachmentMaxBytes", CHECK_OPTIONAL, 1, INT64_MAX, &has);
        if (has)
                c->attachment_max_bytes = n;
        c->require_board_approval = check_bool(&k, "requireBoardApprovalForNewAgents",
                                               CHECK_OPTIONAL, c->require_board_approval);
        if (check_has(&k, "brandColor"))
                c->brand_color =
                        arena_strdup(a, check_string(&k, "brandColor", CHECK_NULLABLE, 0, 0));
        *ret_has_environment = check_has(&k, "defaultEnvironmentId");
        if (*ret_has_environment)
                c->default_environment_id =
                        arena_strdup(a, check_uuid(&k, "defaultEnvironmentId", CHECK_NULLABLE));
        return check_end(&k, err);
}

/* All work without an environment moves with the default. */
static int check_default(struct db *db, const struct request *q, const struct company *c,
                         struct err *err)
{
        int r = access_manage_environments(db, q->op->actor, c->id, err);

        return r < 0 ? r
                     : env_select(db, q->rt, q->op, c->id, c->default_environment_id, ENV_FOR_WORK,
                                  NULL, err);
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct company *c = q->company;
        bool has_environment = false;
        json_t *details;
        int r = access_company(db, q->op->actor, q->id, true, err);

        if (r >= 0)
                r = companies_get(db, q->id, q->op->arena, c, err);
        if (r >= 0 && q->body)
                r = apply(q, c, &has_environment, err);
        else if (r >= 0)
                c->status = "archived";
        if (r >= 0 && has_environment)
                r = check_default(db, q, c, err);
        if (r < 0)
                return r;
        c->updated_at = clock_now_us();
        r = companies_update(db, c, err);
        if (r < 0)
                return r;
        details = json_pack("{s:s}", "status", c->status);
        if (has_environment)
                json_object_set_new(details, "defaultEnvironmentId",
                                    json_string_or_null(c->default_environment_id));
        return audit(db, q->op, c->id, q->body ? "company.updated" : "company.archived", "company",
                     c->id, details, err);
}

static int run_update(struct request *q, struct err *err)
{
        int r = access_board(q->op->actor, err);

        if (r < 0)
                return r;
        FAULT("company.update.before");
        r = store_write(q->op, q->rt->store, update, q, err);
        FAULT("company.update.after");
        return r;
}

int company_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                   struct company *ret, struct err *err)
{
        json_t *empty = body ? NULL : json_object();
        struct request q = {
                .op = op, .rt = rt, .id = id, .body = body ? body : empty, .company = ret
        };
        int r = run_update(&q, err);

        json_decref(empty);
        return r;
}

int company_archive(struct op *op, struct runtime *rt, const char *id, struct company *ret,
                    struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .company = ret };

        return run_update(&q, err);
}

/* Deleting */

static int remove_company(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int64_t blockers, living;
        int r = access_company(db, q->op->actor, q->id, true, err);

        if (r >= 0)
                r = companies_count_blockers(db, q->id, &blockers, err);
        if (r >= 0)
                r = db_number(
                        db, "SELECT COUNT(*) FROM places WHERE state <> 'gone' AND company_id = ?1",
                        DB_ARGS(DB_T(q->id)), &living, err);
        if (r < 0)
                return r;
        if (living > 0)
                return err_set(
                        err, ERR_CONFLICT,
                        "The company still has living leases or sandboxes; release them first.");
        if (blockers > 0)
                return err_set(
                        err, ERR_CONFLICT,
                        "The company still has agents, runs or secrets; remove them first, or "
                        "archive the company.");
        r = companies_delete(db, q->id, err);
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Company not found");
        return r;
}

int company_delete(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("company.delete.before");
        r = store_write(op, rt->store, remove_company, &q, err);
        FAULT("company.delete.after");
        return r;
}
