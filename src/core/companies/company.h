/* Companies: the scope of everything else. Operation threads; results in the operation's arena. */
#ifndef BERTH_CORE_COMPANY_H
#define BERTH_CORE_COMPANY_H

#include "codec/json.h"
#include "core/access/access.h"
#include "store/companies.h"

/* Also makes the company's local environment and its default one (env_default.h), and its creator
 * the owner. */
int company_create(struct op *op, struct runtime *rt, json_t *body, struct company *ret,
                   struct err *err);
int company_get(struct op *op, struct runtime *rt, const char *id, struct company *ret,
                struct err *err);
int company_list(struct op *op, struct runtime *rt, company_fn fn, void *ctx, struct err *err);
/* {id: {agentCount, issueCount}} of the companies that the caller may list. */
int company_stats(struct op *op, struct runtime *rt, struct buf *ret_json, struct err *err);
int company_update(struct op *op, struct runtime *rt, const char *id, json_t *body,
                   struct company *ret, struct err *err);
int company_archive(struct op *op, struct runtime *rt, const char *id, struct company *ret,
                    struct err *err);
/* Refused while the company has living places, agents, runs or secrets. */
int company_delete(struct op *op, struct runtime *rt, const char *id, struct err *err);

/* {"manifest": {"envInputs": [...]}}: the variables that agents and projects have, without values.
 * Board callers and CEOs. */
int company_export_preview(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                           struct err *err);

/* {companyId, agents, tasks, costs, pendingApprovals}: counts by status. */
int company_dashboard(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                      struct err *err);
/* [{id, name, role, title, status, reports}]: the tree of managers and reports, from the top. */
int company_organisation(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                         struct err *err);

#endif
