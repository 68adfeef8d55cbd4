/* Agents: their records, rights, configuration and status. The work of agents is in runs (run.h).
 *
 * An agent's key changes the agent itself and little else; agent_fields.h lists what no such key
 * may set. Operation threads; results in the operation's arena. */
#pragma once

#include "codec/body.h"
#include "core/access/auth.h"
#include "store/agent_state.h"
#include "store/agents.h"

/* -- Reading; inside store functions ---------------------------------------------------------- */

/* The agent, for a caller that manages the company's agents. */
int agent_load_managed(struct db *db, const struct op *op, const char *id, struct agent *ret,
                       struct err *err);
/* Whether the caller may see the configuration of an agent of that company. */
int agent_may_see_config(struct db *db, const struct op *op, const char *company_id,
                         const char *agent_id, bool *ret, struct err *err);

/* -- Reading ---------------------------------------------------------------------------------- */

/* The id of an agent that is given by id or by slug; a slug is looked up in the company of the
 * acting agent, or in company_id (may be NULL). */
int agent_find(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
               const char **ret_id, struct err *err);
/* *ret_full: whether the actor may see the agent's configuration. */
int agent_get(struct op *op, struct runtime *rt, const char *id, struct agent *ret, bool *ret_full,
              struct err *err);

/* An agent with its managers and its rights. */
struct agent_detail {
        struct agent agent;
        bool full;           /* whether the actor may see the configuration */
        struct agent *chain; /* its manager, that agent's manager, and so on */
        size_t n_chain;
        bool can_assign_tasks;
        const char *assign_source;    /* explicit_grant, agent_creator, ceo_role or none */
        struct membership membership; /* id NULL: none */
        struct member_grants grants;
};
int agent_get_detail(struct op *op, struct runtime *rt, const char *id, struct agent_detail *ret,
                     struct err *err);

/* The state kept between runs; zeros for an agent that never ran. Board callers that manage
 * agents. */
int agent_state_get(struct op *op, struct runtime *rt, const char *id,
                    struct agent_runtime_state *ret, struct err *err);

/* -- Making and changing ---------------------------------------------------------------------- */

/* What is wanted of an agent. */
struct agent_patch {
        struct agent row; /* the members that are simply put into the row */
        struct body body;
        json_t *adapter_config, *runtime_config, *desired_skills,
                *permissions;        /* NULL: not given */
        const char *status;          /* NULL: not given */
        bool replace_adapter_config; /* else its members replace the stored ones */
        bool has_permissions, has_bundle;
};
/* Decode a body, which has to outlive *ret. `creating`: with defaults for missing members. */
void agent_patch_read(struct arena *arena, json_t *body, bool creating, struct agent_patch *ret);

/* New agents get membership `member` and the grant tasks:assign. `is_hire`: where the company wants
 * to approve agents, the new agent waits for approval; otherwise the call is refused there. */
int agent_create(struct op *op, struct runtime *rt, const char *company_id,
                 const struct agent_patch *patch, bool is_hire, struct agent *ret, struct err *err);
int agent_update(struct op *op, struct runtime *rt, const char *id, const struct agent_patch *patch,
                 struct agent *ret, struct err *err);
/* Set the configuration back to its state after that revision. */
int agent_revision_rollback(struct op *op, struct runtime *rt, const char *id,
                            const char *revision_id, struct agent *ret, struct err *err);

/* Where the instructions are. */
struct agent_instructions {
        struct body body;
        const char *path; /* NULL: nowhere */
        const char *key;  /* the member of adapterConfig; NULL: the adapter's */
};
/* Board callers that manage agents. Sets set->key. */
int agent_set_instructions_path(struct op *op, struct runtime *rt, const char *id,
                                struct agent_instructions *set, struct agent *ret, struct err *err);

struct agent_rights {
        struct body body;
        bool can_create_agents, can_assign_tasks, has_assign;
};
int agent_set_permissions(struct op *op, struct runtime *rt, const char *id,
                          const struct agent_rights *rights, struct agent *ret, struct err *err);

/* Delete the agent with its keys, rights and bindings. Board callers that manage agents. */
/* Inside a transaction: the row of an agent without runs, and what names it. */
int agent_drop(struct db *db, const char *company_id, const char *id, struct err *err);
int agent_delete(struct op *op, struct runtime *rt, const char *id, struct err *err);

enum agent_order { AGENT_PAUSE, AGENT_RESUME, AGENT_APPROVE, AGENT_TERMINATE };
/* Board callers that manage agents. Approving an agent that does not wait for it is ERR_CONFLICT. A
 * terminated agent has no keys and no secrets, for ever. `reason` is for a pause and may be NULL;
 * `body` is where it came from. */
int agent_obey(struct op *op, struct runtime *rt, const char *id, enum agent_order order,
               const struct body *body, const char *reason, struct agent *ret, struct err *err);
/* Move to another status with everything that follows from it; writes the row by compare-and-set,
 * keys and bindings, but no audit entry. Runs of an agent that may not work any more are cancelled:
 * kick the host afterwards. Inside store_write() functions. */
int agent_move(struct db *db, struct op *op, struct runtime *rt, struct agent *g, const char *to,
               struct err *err);

/* Forget the session of one task, or with NULL all. `body` is where the task was named. */
int agent_state_reset(struct op *op, struct runtime *rt, const char *id, const struct body *body,
                      const char *task, struct agent_runtime_state *ret, struct err *err);

/* Keys: board callers that manage agents. *ret_token is shown once. */
int agent_key_create(struct op *op, struct runtime *rt, const char *agent_id,
                     const struct body *body, const char *name, struct agent_key *ret,
                     char ret_token[TOKEN_MAX], struct err *err);
int agent_key_revoke(struct op *op, struct runtime *rt, const char *agent_id, const char *key_id,
                     struct err *err);
