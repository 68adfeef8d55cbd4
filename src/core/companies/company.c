/* Decides who may create, change and delete companies. */
#include "core/companies/company.h"

#include <ctype.h>

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/access/member.h"
#include "core/environments/env_default.h"
#include "core/environments/env_select.h"
#include "store/leases.h"
#include "store/places.h"

struct request {
        struct op *op;
        struct runtime *rt;
        const char *id;
        const struct company_patch *patch; /* NULL: archive it */
        struct company *company;
        struct env_default_plan plan; /* of a new company */
};

static const char *const statuses[] = { "active", "paused", "archived", NULL };

#define P struct company_patch
static const struct body_member members[] = {
        BODY_TEXT(P, row.name, "name", .flags = CHECK_REQUIRED, .min = 1),
        BODY_TEXT(P, row.description, "description", .flags = CHECK_NULLABLE),
        BODY_WORD(P, row.status, "status", statuses, .when = BODY_CHANGING),
        BODY_NUMBER(P, row.budget_monthly_cents, "budgetMonthlyCents"),
        BODY_NUMBER(P, row.attachment_max_bytes, "attachmentMaxBytes", .min = 1),
        BODY_FLAG(P, row.require_board_approval, "requireBoardApprovalForNewAgents",
                  .when = BODY_CHANGING),
        BODY_TEXT(P, row.brand_color, "brandColor", .flags = CHECK_NULLABLE, .when = BODY_CHANGING),
        BODY_UUID(P, row.default_environment_id, "defaultEnvironmentId", .flags = CHECK_NULLABLE,
                  .when = BODY_CHANGING),
        BODY_WORD(P, environment, "defaultEnvironment", env_default_choices, .when = BODY_CREATING),
};
#undef P
const struct body_type company_body = BODY_TYPE(members);

/* Creating */

/* "Acme" gives ACM; taken ones get a number. */
static const char *choose_prefix(struct db *db, const char *name, struct arena *arena)
{
        char base[4] = "";
        size_t n = 0;

        for (; *name && n < 3; name++)
                if (isalnum((unsigned char)*name))
                        base[n++] = (char)toupper((unsigned char)*name);
        if (n == 0)
                memcpy(base, "PAP", 4);
        const char *prefix = arena_strdup(arena, base);
        for (int i = 2; companies_prefix_taken(db, prefix); i++)
                prefix = arena_printf(arena, "%s%d", base, i);
        return prefix;
}

static int company_insert(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct company *c = q->company;

        *c = q->patch->row;
        c->id = arena_strdup(q->op->arena, uuid_new().s);
        c->issue_prefix = choose_prefix(db, c->name, q->op->arena);
        c->created_at = c->updated_at = clock_now_us();
        int r = companies_insert(db, c, err);
        if (r >= 0)
                r = member_put(db, c->id, "user", q->op->actor->user_id, "owner", err);
        if (r >= 0)
                r = env_default_make(db, q->op, q->rt, c->id, &q->plan, &c->default_environment_id,
                                     err);
        if (r >= 0)
                r = companies_update(db, c, err);
        return r < 0 ? r
                     : audit(db, q->op, c->id, "company.created", "company", c->id,
                             json_pack("{s:s, s:s?}", "name", c->name, "defaultEnvironmentId",
                                       c->default_environment_id),
                             err);
}

int company_create(struct op *op, struct runtime *rt, const struct company_patch *patch,
                   struct company *ret, struct err *err)
{
        struct request q = { .op = op, .rt = rt, .patch = patch, .company = ret };
        int r = access_admin(op->actor, "Instance admin required", err);

        if (r >= 0)
                r = body_check(&patch->body, err);
        if (r >= 0)
                r = env_default_plan(op, rt, patch->environment, &q.plan, err);
        if (r < 0)
                return r;
        FAULT("company.create.before");
        r = store_write(op, rt->store, company_insert, &q, err);
        FAULT("company.create.after");
        return r;
}

/* Changing */

static int company_change(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const struct company_patch *p = q->patch;
        struct company *c = q->company;
        bool has_environment = p && body_has(&company_body, &p->body, "defaultEnvironmentId");
        int r = access_company(db, q->op->actor, q->id, true, err);

        if (r >= 0)
                r = companies_get(db, q->id, q->op->arena, c, err);
        if (r >= 0 && p)
                r = body_check(&p->body, err);
        if (r < 0)
                return r;
        if (p)
                body_apply(&company_body, &p->body, p, c, sizeof(*c));
        else
                c->status = "archived";
        /* All work without an environment moves with the default. */
        if (has_environment)
                r = access_manage_environments(db, q->op->actor, c->id, err);
        if (r >= 0 && has_environment)
                r = env_select(db, q->rt, q->op, c->id, c->default_environment_id, ENV_FOR_WORK,
                               NULL, err);
        c->updated_at = clock_now_us();
        if (r >= 0)
                r = companies_update(db, c, err);
        if (r < 0)
                return r;
        json_t *details = json_pack("{s:s}", "status", c->status);
        if (has_environment)
                json_object_set_new(details, "defaultEnvironmentId",
                                    json_string_or_null(c->default_environment_id));
        return audit(db, q->op, c->id, p ? "company.updated" : "company.archived", "company", c->id,
                     details, err);
}

int company_update(struct op *op, struct runtime *rt, const char *id,
                   const struct company_patch *patch, struct company *ret, struct err *err)
{
        struct request q = { .op = op, .rt = rt, .id = id, .patch = patch, .company = ret };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("company.update.before");
        r = store_write(op, rt->store, company_change, &q, err);
        FAULT("company.update.after");
        return r;
}

/* Deleting */

static int company_remove(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int64_t blockers, living;
        int r = access_company(db, q->op->actor, q->id, true, err);

        if (r >= 0)
                r = companies_count_blockers(db, q->id, &blockers, err);
        if (r >= 0)
                r = companies_count_places(db, q->id, &living, err);
        if (r < 0)
                return r;
        if (living > 0)
                return err_set(
                        err, ERR_CONFLICT,
                        "The company still has living leases or sandboxes; release them first.");
        if (blockers > 0)
                return err_set(
                        err, ERR_CONFLICT,
                        "The company still has agents, runs or secrets; remove them first, archive "
                        "the company, or delete it with everything: confirm=<its name>");
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
        r = store_write(op, rt->store, company_remove, &q, err);
        FAULT("company.delete.after");
        return r;
}
