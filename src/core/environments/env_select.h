/* Choosing an environment: for an agent, a project or an issue. Checked when the choice is written;
 * a choice of nothing needs no check. Inside store functions. */
#ifndef BERTH_CORE_ENV_SELECT_H
#define BERTH_CORE_ENV_SELECT_H

#include "codec/json.h"
#include "core/access/access.h"

enum env_select_for {
        ENV_FOR_WORK,         /* a project or an issue: local, ssh, sandbox */
        ENV_FOR_NEW_AGENT,    /* what its adapter can work in */
        ENV_FOR_CHANGED_AGENT /* the same; the texts differ, as in the seed */
};

/* 422 with the seed's text. `adapter_type` is for agents. An agent has to manage environments to
 * choose one: it could otherwise leave its sandbox by moving its work. */
int env_select(struct db *db, const struct op *op, const char *company_id,
               const char *environment_id, enum env_select_for purpose, const char *adapter_type,
               struct err *err);

/* The same for the member environmentId of settings that are about to replace `before` (JSON text
 * or NULL). */
int env_select_in(struct db *db, const struct op *op, const char *company_id,
                  const json_t *settings, const char *before, struct err *err);

#endif
