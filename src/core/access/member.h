/* Members of a company and what they were granted. Operation threads. */
#pragma once

#include "codec/body.h"
#include "core/access/access.h"
#include "store/identity.h"

extern const char *const member_permissions[]; /* NULL-terminated */

struct member_grant {
        const char *permission_key, *scope; /* scope: JSON, or NULL */
};
struct member_grants {
        json_t *list; /* as it was sent; NULL: not given */
        struct member_grant *at;
        size_t n;
};

/* Inside store_write() functions: make an active member, or set the role of one; and add grants. */
int member_put(struct db *db, const char *company_id, const char *type, const char *principal,
               const char *role, struct err *err);
int member_put_grants(struct db *db, const char *company_id, const char *type,
                      const char *principal, const struct member_grants *grants, struct err *err);

/* Replace what a member was granted; `body` is the request that named the grants. */
int member_set_permissions(struct op *op, struct runtime *rt, const char *company_id,
                           const char *member_id, const struct body *body,
                           const struct member_grants *grants, struct membership *ret,
                           struct err *err);
