/* Agents: their records, rights, configuration and status. The work of agents is in runs (run.h).
 *
 * An agent's key changes the agent itself and little else; agent_fields.h lists what no such key
 * may set. Operation threads; results in the operation's arena. */
#ifndef BERTH_CORE_AGENT_H
#define BERTH_CORE_AGENT_H

#include "codec/json.h"
#include "core/access/access.h"
#include "store/agent_state.h"
#include "store/agents.h"
#include "store/identity.h"

/* New agents get membership `member` and the grant tasks:assign. */
int agent_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                 struct agent *ret, struct err *err);
/* The same. Where the company wants to approve agents, the new agent waits for approval. */
int agent_hire(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
               struct agent *ret, struct err *err);
/* *ret_full: whether the actor may see the agent's configuration. */
int agent_get(struct op *op, struct runtime *rt, const char *id, struct agent *ret, bool *ret_full,
              struct err *err);
int agent_list(struct op *op, struct runtime *rt, const char *company_id,
               int (*fn)(void *ctx, const struct agent *agent, bool full), void *ctx,
               struct err *err);
int agent_set_permissions(struct op *op, struct runtime *rt, const char *id, json_t *body,
                          struct agent *ret, struct err *err);

/* The id of an agent that is given by id or by slug; a slug is looked up in the company of the
 * acting agent, or in company_id (may be NULL). */
int agent_find(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
               const char **ret_id, struct err *err);

/* An agent with its managers and its rights. */
struct agent_detail {
        struct agent agent;
        bool full;           /* whether the actor may see the configuration */
        struct agent *chain; /* its manager, that agent's manager, and so on */
        size_t n_chain;
        bool can_assign_tasks;
        const char *assign_source;    /* explicit_grant, agent_creator, ceo_role or none */
        struct membership membership; /* id NULL: none */
        struct agent_grant {
                const char *permission_key, *scope;
        } * grants;
        size_t n_grants;
};
int agent_get_detail(struct op *op, struct runtime *rt, const char *id, struct agent_detail *ret,
                     struct err *err);

/* Everything of create but permissions, each optional, and {status?, replaceAdapterConfig?}.
 * Members of adapterConfig in the body replace the stored ones. */
int agent_update(struct op *op, struct runtime *rt, const char *id, json_t *body, struct agent *ret,
                 struct err *err);
/* Delete the agent with its keys, rights and bindings. Board callers that manage agents. */
int agent_delete(struct op *op, struct runtime *rt, const char *id, struct err *err);

/* Board callers that manage agents. A terminated agent has no keys and no secrets, for ever. */
int agent_pause(struct op *op, struct runtime *rt, const char *id, json_t *body, struct agent *ret,
                struct err *err);
int agent_resume(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                 struct err *err);
/* ERR_CONFLICT for an agent that does not wait for approval. */
int agent_approve(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                  struct err *err);
int agent_terminate(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                    struct err *err);

/* The configuration, with the values of members with secret-sounding names replaced; for callers
 * that manage agents. adapter_config and runtime_config of the row hold what may be shown. */
int agent_configuration(struct op *op, struct runtime *rt, const char *id, struct agent *ret,
                        struct err *err);
/* Earlier configurations, redacted the same way, newest first. */
int agent_revision_list(struct op *op, struct runtime *rt, const char *id,
                        agent_config_revision_fn fn, void *ctx, struct err *err);
int agent_revision_get(struct op *op, struct runtime *rt, const char *id, const char *revision_id,
                       struct agent_config_revision *ret, struct err *err);
/* Set the configuration back to its state after that revision. */
int agent_revision_rollback(struct op *op, struct runtime *rt, const char *id,
                            const char *revision_id, struct agent *ret, struct err *err);
/* {path, adapterConfigKey?}: where the instructions are. Board callers that manage agents.
 * *ret_key: the member that was set, *ret_path NULL when it was removed. */
int agent_set_instructions_path(struct op *op, struct runtime *rt, const char *id, json_t *body,
                                struct agent *ret, const char **ret_key, const char **ret_path,
                                struct err *err);

/* The state kept between runs; zeros for an agent that never ran. Board callers that manage
 * agents. */
int agent_state_get(struct op *op, struct runtime *rt, const char *id,
                    struct agent_runtime_state *ret, struct err *err);
/* {taskKey?}: forget the session of one task, or all. */
int agent_state_reset(struct op *op, struct runtime *rt, const char *id, json_t *body,
                      struct agent_runtime_state *ret, struct err *err);

/* The sessions of the agent's tasks, last used first. Board callers that manage agents. */
int agent_task_sessions(struct op *op, struct runtime *rt, const char *id, agent_task_session_fn fn,
                        void *ctx, struct err *err);

/* Keys: board callers that manage agents. The token is written once. */
int agent_key_create(struct op *op, struct runtime *rt, const char *agent_id, json_t *body,
                     struct buf *ret_json, struct err *err);
int agent_key_list(struct op *op, struct runtime *rt, const char *agent_id, struct buf *ret_json,
                   struct err *err);
int agent_key_revoke(struct op *op, struct runtime *rt, const char *agent_id, const char *key_id,
                     struct err *err);

#endif
