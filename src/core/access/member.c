/* Decides which grants a company's members have, and who may change them. */
#include "core/access/member.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "store/identity.h"

static const char *const permissions[] = {
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

json_t *member_check_grants(struct check *c, const char *key, unsigned flags)
{
        json_t *grants = check_array(c, key, flags), *grant;
        size_t i;

        json_array_foreach(grants, i, grant)
        {
                struct check n;

                check_nested_item(&n, c, key, i, grant);
                (void)check_enum(&n, "permissionKey", CHECK_REQUIRED, permissions);
                (void)check_record(&n, "scope", CHECK_NULLABLE);
                check_unknown(&n, (const char *[]){ "permissionKey", "scope", NULL });
        }
        return grants;
}

int member_put_grants(struct db *db, const char *company_id, const char *type,
                      const char *principal, json_t *grants, struct err *err)
{
        json_t *grant;
        size_t i;

        json_array_foreach(grants, i, grant)
        {
                CLEAN(cleanup_free) char *scope = NULL;
                json_t *given = json_get_object(grant, "scope");
                int r;

                if (given)
                        scope = json_to_text(given);
                r = grants_put(db, company_id, type, principal,
                               json_get_string(grant, "permissionKey"), scope, clock_now_us(), err);
                if (r < 0)
                        return r;
        }
        return 0;
}

struct member_request {
        struct op *op;
        const char *company_id, *member_id;
        json_t *body;
        struct jw *w;
        struct db *db;
        struct err *err;
};

static int show_grant(void *ctx, const char *key, const char *scope)
{
        struct jw *w = ctx;

        jw_object(w);
        jw_kstring(w, "permissionKey", key);
        jw_kraw(w, "scope", scope);
        jw_object_end(w);
        return 0;
}

static int show_member(void *ctx, const struct membership *m)
{
        struct member_request *q = ctx;
        int r;

        jw_object(q->w);
        jw_kstring(q->w, "id", m->id);
        jw_kstring(q->w, "companyId", m->company_id);
        jw_kstring(q->w, "principalType", m->principal_type);
        jw_kstring(q->w, "principalId", m->principal_id);
        jw_kstring(q->w, "membershipRole", m->role);
        jw_kstring(q->w, "status", m->status);
        jw_key(q->w, "grants");
        jw_array(q->w);
        r = grants_list(q->db, m->company_id, m->principal_type, m->principal_id, q->op->arena,
                        show_grant, q->w, q->err);
        jw_array_end(q->w);
        jw_ktime(q->w, "createdAt", m->created_at);
        jw_ktime(q->w, "updatedAt", m->updated_at);
        jw_object_end(q->w);
        return r;
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct member_request *q = arg;
        int r = access_company(db, q->op->actor, q->company_id, false, err);

        q->db = db;
        q->err = err;
        if (r < 0)
                return r;
        jw_array(q->w);
        r = memberships_of_company(db, q->company_id, q->op->arena, show_member, q, err);
        jw_array_end(q->w);
        return r;
}

int member_list(struct op *op, struct runtime *rt, const char *company_id, struct buf *ret_json,
                struct err *err)
{
        struct jw w;
        struct member_request q = { .op = op, .company_id = company_id, .w = &w };
        int r = access_board(op->actor, err);

        jw_init(&w, ret_json);
        return r < 0 ? r : store_read(op, rt->store, list, &q, err);
}

static int set_permissions(struct db *db, void *arg, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct member_request *q = arg;
        struct membership m;
        json_t *grants;
        bool allowed;
        int r = access_company(db, q->op->actor, q->company_id, true, err);

        if (r >= 0)
                r = access_has(db, q->op->actor, q->company_id, PERM_USERS_PERMISSIONS, &allowed,
                               err);
        if (r >= 0 && !allowed)
                r = err_set(err, ERR_FORBIDDEN, "Missing permission: " PERM_USERS_PERMISSIONS);
        check_init(&c, q->body);
        if (r < 0)
                return r;
        grants = member_check_grants(&c, "grants", CHECK_REQUIRED);
        check_unknown(&c, (const char *[]){ "grants", NULL });
        r = check_end(&c, err);
        if (r >= 0)
                r = memberships_by_id(db, q->company_id, q->member_id, q->op->arena, &m, err);
        if (r >= 0)
                r = grants_clear(db, q->company_id, m.principal_type, m.principal_id, err);
        if (r >= 0)
                r = member_put_grants(db, q->company_id, m.principal_type, m.principal_id, grants,
                                      err);
        if (r >= 0)
                r = audit(db, q->op, q->company_id, "member.permissions_updated",
                          "company_membership", m.id,
                          json_pack("{s:I}", "grantCount", (json_int_t)json_array_size(grants)),
                          err);
        q->db = db;
        q->err = err;
        return r < 0 ? r : show_member(q, &m);
}

int member_set_permissions(struct op *op, struct runtime *rt, const char *company_id,
                           const char *member_id, json_t *body, struct buf *ret_json,
                           struct err *err)
{
        struct jw w;
        struct member_request q = {
                .op = op, .company_id = company_id, .member_id = member_id, .body = body, .w = &w
        };
        int r = access_board(op->actor, err);

        jw_init(&w, ret_json);
        if (r < 0)
                return r;
        FAULT("member.permissions.before");
        r = store_write(op, rt->store, set_permissions, &q, err);
        FAULT("member.permissions.after");
        return r;
}
