/* Members of a company and what they were granted. Operation threads. */
#ifndef BERTH_CORE_MEMBER_H
#define BERTH_CORE_MEMBER_H

#include "codec/check.h"
#include "core/access/access.h"

/* An array of {permissionKey, scope?}; borrowed from the body, NULL when absent. */
json_t *member_check_grants(struct check *c, const char *key, unsigned flags);
/* Inside a store_write() function. `grants` may be NULL. */
int member_put_grants(struct db *db, const char *company_id, const char *type,
                      const char *principal, json_t *grants, struct err *err);

/* GET and PATCH of /companies/:c/members. */
int member_list(struct op *op, struct runtime *rt, const char *company_id, struct buf *ret_json,
                struct err *err);
int member_set_permissions(struct op *op, struct runtime *rt, const char *company_id,
                           const char *member_id, json_t *body, struct buf *ret_json,
                           struct err *err);

#endif
