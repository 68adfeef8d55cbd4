/* References to an environment: from agents, projects, issues, execution workspaces and the company
 * with its default. An environment with references cannot be deleted or archived, because their
 * work would have no place, unless the references are moved to another environment at the same
 * time.
 *
 * Inside store_write() functions. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/environments.h"

/* Add the reasons of `refs` to a list of deleteBlockedReasons. */
void env_move_reasons(const struct environment_references *refs, json_t *list);
/* ERR_CONFLICT `Environment "x" is used by 2 agents and 1 project. …`; `what` is "deleted", … */
int env_move_refuse(const struct environment *env, const struct environment_references *refs,
                    const char *what, struct err *err);
/* Move all references to another environment of the company, as if the actor had chosen that one
 * for each; with an audit entry. */
int env_move(struct db *db, struct runtime *rt, struct op *op, const struct environment *env,
             const struct environment_references *refs, const char *to_id, struct err *err);
