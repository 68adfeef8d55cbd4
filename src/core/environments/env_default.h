/* The default environment of a company: the environment for work that names none. It is a stored
 * choice of somebody with the right to manage environments; nothing ever falls back to this
 * machine.
 *
 * A new company gets a sandbox where this machine can make one, else none; the creator of the
 * company may choose otherwise. Operation threads; results live in the operation's arena. */
#pragma once

#include "core/access/access.h"

extern const char *const env_default_choices[]; /* sandbox local none NULL */

struct env_default_plan {
        const struct kind *kind; /* of the environment that becomes the default; NULL: none does */
        const char *config;      /* of the environment made for it; NULL: the company has one */
};

/* Decide what a new company gets, outside of a transaction: this checks whether the machine can
 * make sandboxes. `choice` is one of the above; NULL: a sandbox, or none where the machine cannot
 * make one. A sandbox that was asked for and cannot be made is ERR_UNPROCESSABLE with the
 * reason. */
int env_default_plan(struct op *op, struct runtime *rt, const char *choice,
                     struct env_default_plan *ret, struct err *err);
/* Make the company's environments, in the transaction that makes the company. *ret_id: its default;
 * NULL: none. */
int env_default_make(struct db *db, struct op *op, struct runtime *rt, const char *company_id,
                     const struct env_default_plan *plan, const char **ret_id, struct err *err);

/* The id of the company's default environment; NULL: it has none. Inside store functions. */
int env_default_get(struct db *db, const char *company_id, struct arena *arena, const char **ret_id,
                    struct err *err);
