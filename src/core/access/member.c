/* Decides which grants a company's members have, and who may change them. */
#include "core/access/member.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "store/identity.h"

const char *const member_permissions[] = {
        "agents:create",
        "environments:manage",
        "users:invite",
        "users:manage_permissions",
        "tasks:assign",
        "tasks:assign_scope",
        "tasks:manage_active_checkouts",
        "joins:approve",
        NULL,
};

int member_put(struct db *db, const char *company_id, const char *type, const char *principal,
               const char *role, struct err *err)
{
        struct uuid id = uuid_new();
        int64_t now = clock_now_us();
        struct membership m = { id.s, company_id, type, principal, role, "active", now, now };

        return memberships_put(db, &m, err);
}

int member_put_grants(struct db *db, const char *company_id, const char *type,
                      const char *principal, const struct member_grants *grants, struct err *err)
{
        int r = 0;

        for (size_t i = 0; r >= 0 && i < grants->n; i++)
                r = grants_put(db, company_id, type, principal, grants->at[i].permission_key,
                               grants->at[i].scope, clock_now_us(), err);
        return r;
}

struct member_request {
        struct op *op;
        const char *company_id, *member_id;
        const struct body *body;
        const struct member_grants *grants;
        struct membership *member;
};

static int member_replace_grants(struct db *db, void *arg, struct err *err)
{
        struct member_request *q = arg;
        struct membership *m = q->member;
        bool allowed;
        int r = access_company(db, q->op->actor, q->company_id, true, err);

        if (r >= 0)
                r = access_has(db, q->op->actor, q->company_id, PERM_USERS_PERMISSIONS, &allowed,
                               err);
        if (r >= 0 && !allowed)
                r = err_set(err, ERR_FORBIDDEN, "Missing permission: " PERM_USERS_PERMISSIONS);
        if (r >= 0)
                r = body_check(q->body, err);
        if (r >= 0)
                r = memberships_by_id(db, q->company_id, q->member_id, q->op->arena, m, err);
        if (r >= 0)
                r = grants_clear(db, q->company_id, m->principal_type, m->principal_id, err);
        if (r >= 0)
                r = member_put_grants(db, q->company_id, m->principal_type, m->principal_id,
                                      q->grants, err);
        return r < 0 ? r
                     : audit(db, q->op, q->company_id, "member.permissions_updated",
                             "company_membership", m->id,
                             json_pack("{s:I}", "grantCount", (json_int_t)q->grants->n), err);
}

int member_set_permissions(struct op *op, struct runtime *rt, const char *company_id,
                           const char *member_id, const struct body *body,
                           const struct member_grants *grants, struct membership *ret,
                           struct err *err)
{
        struct member_request q = { op, company_id, member_id, body, grants, ret };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        FAULT("member.permissions.before");
        r = store_write(op, rt->store, member_replace_grants, &q, err);
        FAULT("member.permissions.after");
        return r;
}
