/* Companies: the scope of everything else. Operation threads; results in the operation's arena. */
#pragma once

#include "codec/body.h"
#include "core/access/access.h"
#include "store/companies.h"

/* What is wanted of a company. */
struct company_patch {
        struct company row;
        struct body body;
        const char *environment; /* one of env_default_choices; NULL: what this machine can do */
};
extern const struct body_type company_body;

/* Also makes the company's local environment and its default one (env_default.h), and its creator
 * the owner. */
int company_create(struct op *op, struct runtime *rt, const struct company_patch *patch,
                   struct company *ret, struct err *err);
/* patch NULL: archive it. */
int company_update(struct op *op, struct runtime *rt, const char *id,
                   const struct company_patch *patch, struct company *ret, struct err *err);
/* Refused while the company has living places, agents, runs or secrets. */
int company_delete(struct op *op, struct runtime *rt, const char *id, struct err *err);
