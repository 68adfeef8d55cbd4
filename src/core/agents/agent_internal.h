/* Shared by the files of agent.h. Inside store functions, unless said otherwise. */
#ifndef BERTH_CORE_AGENT_INTERNAL_H
#define BERTH_CORE_AGENT_INTERNAL_H

#include "core/agents/agent.h"

/* The members of a body that are not simply put into the row. Documents are borrowed from the
 * body. */
struct agent_change {
        json_t *adapter_config, *runtime_config, *desired_skills; /* NULL: not given */
        bool replace_adapter_config;
        const char *status; /* NULL: not given */
        json_t *given;      /* names of the members that were given, sorted; the arena's */
        bool has_environment, has_manager, has_adapter;
};

/* Check a body and put it over *g. `creating`: with defaults for missing members. Any thread. */
int agent_read_body(struct op *op, json_t *body, bool creating, struct agent *g,
                    struct agent_change *ret, struct err *err);

/* Make the row's new adapterConfig from `before` (NULL for a new agent): merged, checked, its
 * variables in one form. *ret is a new reference; g->adapter_config and g->runtime_config are
 * set. */
int agent_apply_config(struct db *db, struct op *op, struct runtime *rt, const json_t *before,
                       const struct agent_change *change, struct agent *g, json_t **ret,
                       struct err *err);
/* Whether the acting agent may set the members that differ (agent_fields.h); `before` is NULL for a
 * new agent. Sets g->configured_by_agent_id: the agent that answers for what this agent runs. */
int agent_check_fields(struct db *db, struct op *op, struct runtime *rt, const struct agent *before,
                       const struct agent_change *change, struct agent *g, struct err *err);
/* Check that the manager exists, is in the same company, and does not report to the agent, directly
 * or through others. */
int agent_check_manager(struct db *db, struct op *op, const struct agent *g, struct err *err);

/* Whether the acting agent is a CEO. */
int agent_actor_is_ceo(struct db *db, const struct op *op, bool *ret, struct err *err);

/* Move to another status with everything that follows from it; writes the row by compare-and-set,
 * keys and bindings, but no audit entry. Runs of an agent that may not work any more are cancelled:
 * kick the host afterwards. */
int agent_move(struct db *db, struct op *op, struct runtime *rt, struct agent *g, const char *to,
               struct err *err);

/* The part of an agent that config revisions record; a new reference. Any thread. */
json_t *agent_snapshot(const struct agent *g);
/* Records nothing when both are equal. */
int agent_record_revision(struct db *db, struct op *op, const struct agent *g, json_t *take_before,
                          const char *source, const char *rolled_back_from, struct err *err);
/* The change of agent_update(), for a caller that has the row and has checked the right already. */
int agent_change_row(struct db *db, struct op *op, struct runtime *rt, struct agent *g,
                     json_t *body, const char *source, const char *rolled_back_from,
                     struct err *err);

#endif
