/* Agents: as much of them as access and secrets need today (who they are, their rights, their keys,
 * their variables). Operation threads; results in the operation's arena. */
#ifndef BERTH_CORE_AGENT_H
#define BERTH_CORE_AGENT_H

#include "codec/json.h"
#include "core/access.h"
#include "store/agents.h"

/* New agents get membership `member` and the grant tasks:assign. */
int agent_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                 struct agent *ret, struct err *err);
/* *ret_full: whether the actor may see the agent's configuration. */
int agent_get(struct op *op, struct runtime *rt, const char *id, struct agent *ret, bool *ret_full,
              struct err *err);
int agent_list(struct op *op, struct runtime *rt, const char *company_id,
               int (*fn)(void *ctx, const struct agent *agent, bool full), void *ctx,
               struct err *err);
int agent_set_permissions(struct op *op, struct runtime *rt, const char *id, json_t *body,
                          struct agent *ret, struct err *err);

/* {adapterConfig?, replaceAdapterConfig?}: members given replace those that are there. */
int agent_update(struct op *op, struct runtime *rt, const char *id, json_t *body, struct agent *ret,
                 struct err *err);
/* With its keys, rights and bindings. Board callers that manage agents. */
int agent_delete(struct op *op, struct runtime *rt, const char *id, struct err *err);

/* Keys: board callers that manage agents. The token is written once. */
int agent_key_create(struct op *op, struct runtime *rt, const char *agent_id, json_t *body,
                     struct buf *ret_json, struct err *err);
int agent_key_list(struct op *op, struct runtime *rt, const char *agent_id, struct buf *ret_json,
                   struct err *err);
int agent_key_revoke(struct op *op, struct runtime *rt, const char *agent_id, const char *key_id,
                     struct err *err);

#endif
