/* Projects: groups of issues, with variables and a choice of environment for all of them. Everybody
 * in the company may write, agents included; agent_fields.h and env_select.h say what an agent may
 * not set. `reference` is an id, or a slug in company_id. Operation threads; results in the
 * operation's arena. */
#ifndef BERTH_CORE_PROJECT_H
#define BERTH_CORE_PROJECT_H

#include "codec/body.h"
#include "core/access/access.h"
#include "store/projects.h"

/* What is wanted of a project. */
struct project_patch {
        struct project row;
        struct body body;
        json_t *env, *policy; /* NULL: not given, or none is wanted */
};
extern const struct body_type project_body;

int project_create(struct op *op, struct runtime *rt, const char *company_id,
                   const struct project_patch *patch, struct project *ret, struct err *err);
/* company_id may be NULL. */
int project_get(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                struct project *ret, struct err *err);
int project_update(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                   const struct project_patch *patch, struct project *ret, struct err *err);

#endif
