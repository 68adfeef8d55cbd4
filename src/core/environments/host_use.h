/* Which callers may run things on this machine, as the user that the daemon runs as.
 *
 * Some kinds of environments do that (kind.runs_on_host). A caller that decides what runs there
 * controls the daemon's keys, its database, and every company's data. A company's owners and admins
 * do not get that right by owning a company: it takes an instance admin, or the setting
 * local_for_owners.
 *
 *   leasing one, and using a lease of one (commands, terminals, files)    host_use_check()
 *   making or changing such an environment                                host_use_check()
 *   choosing it for a company, agent, project, issue or workspace         env_select()
 *   configuring what an agent runs whose own environment, or whose
 *   company's default, is one                                             host_use_check_agent()
 *
 * A run itself is not checked: it does what an authorised caller chose. But an issue, a project or
 * a workspace moves an agent only to places that are at least as isolated as the agent's own
 * environment, regardless of who made or assigned the issue (host_use_check_run()). Agents' keys
 * create, take and wake issues; the command would be the board's and the files that it reads the
 * agent's. To let an agent work outside, the environment has to be set in the agent itself, which
 * no agent's key can do.
 *
 * The rules for agents' keys are in core/access/agent_fields.h. Store functions. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/agents.h"
#include "store/environments.h"

/* ERR_FORBIDDEN when environments with this driver run things on this machine and the actor, a
 * board user, may not decide what runs. Any thread, no database. */
int host_use_check(const struct runtime *rt, const struct actor *actor, const char *driver,
                   struct err *err);

/* ERR_FORBIDDEN when a configuration lets commands in the place reach this machine's own services
 * and the actor may not use the machine. `before`: the old configuration; NULL: it is new. */
int host_use_check_config(const struct runtime *rt, const struct actor *actor, const char *driver,
                          const json_t *before, const json_t *config, struct err *err);

/* The same for what an agent will run from now on. `before`: the agent as it was; NULL: it is
 * new. */
int host_use_check_agent(struct db *db, struct runtime *rt, const struct op *op,
                         const struct agent *before, const struct agent *g, struct err *err);

/* ERR_FORBIDDEN when a run of the agent was sent to an environment that is less isolated than the
 * agent's own: from inside an isolated place to outside, or onto this machine from elsewhere. An
 * agent's own environment is the one that it names, else the default of its company. */
int host_use_check_run(struct db *db, struct runtime *rt, struct arena *arena,
                       const struct agent *g, const struct environment *env, struct err *err);

/* Whether an environment keeps its work apart from the host. NULL stands for the company's default;
 * a company without a default counts as not isolated. */
int agent_environment_is_isolated(struct db *db, const struct runtime *rt, struct arena *arena,
                                  const char *company_id, const char *environment_id, bool *ret,
                                  struct err *err);
/* The same for what an agent is configured to run; http agents' requests are made from this
 * machine. */
int agent_place_is_isolated(struct db *db, const struct runtime *rt, struct arena *arena,
                            const struct agent *agent, bool *ret, struct err *err);
