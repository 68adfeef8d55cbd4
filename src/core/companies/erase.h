/* Deleting a company or an agent with everything that it did: runs, logs, sessions, and for a
 * company its places, secrets, snapshots and saved changes. Entries of the audit trail stay.
 *
 *   intent   erasing_at committed: the company is archived, its agents are terminated, runs
 * cancelled close    runs end, leases are released, places are closed; secrets leave their vaults
 *   files    logs, sessions and the agents' own directories are removed
 *   rows     runs in portions, then the rest in one transaction, which looks once more for anything
 *            that lives
 *
 * Every step may be repeated. What a crash, or a provider that does not answer, leaves is continued
 * by erase_sweep(). Operation threads. */
#pragma once

#include "core/access/access.h"

/* Instance admins. `confirm` is the thing's name, short name or id: ERR_UNPROCESSABLE when it is
 * another one. ERR_BUSY when something still lives: it goes on by itself. */
int erase_company(struct op *op, struct runtime *rt, const char *id, const char *confirm,
                  struct err *err);
int erase_agent(struct op *op, struct runtime *rt, const char *id, const char *confirm,
                struct err *err);
/* Go on with all that was begun. */
int erase_sweep(struct op *op, struct runtime *rt, struct err *err);
