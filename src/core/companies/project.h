/* Projects: groups of issues, with variables and a choice of environment for all of them. Everybody
 * in the company may write, agents included; agent_fields.h and env_select.h say what an agent may
 * not set. `reference` is an id, or a slug in company_id. Operation threads; results in the
 * operation's arena. */
#ifndef BERTH_CORE_PROJECT_H
#define BERTH_CORE_PROJECT_H

#include "codec/json.h"
#include "core/access/access.h"
#include "store/projects.h"

int project_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                   struct project *ret, struct err *err);
/* company_id may be NULL. */
int project_get(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                struct project *ret, struct err *err);
int project_list(struct op *op, struct runtime *rt, const char *company_id, project_fn fn,
                 void *ctx, struct err *err);
int project_update(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                   json_t *body, struct project *ret, struct err *err);

#endif
