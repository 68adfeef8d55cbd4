/* The environments where work is due, for the passes over places (leases/sweeper.h) and over
 * workspaces. */
#ifndef BERTH_CORE_SWEEP_LIST_H
#define BERTH_CORE_SWEEP_LIST_H

#include "base/arena.h"

/* Environments, each once. Rows that belong to no environment any more are under SWEEP_NOWHERE. */
struct sweep_list {
        struct arena *arena;
        struct sweep_due {
                const char *environment_id, *company_id; /* of SWEEP_NOWHERE the first there is */
        } * at;
        size_t n, room;
};
#define SWEEP_NOWHERE ""

/* environment_id NULL: SWEEP_NOWHERE. */
void sweep_list_add(struct sweep_list *list, const char *environment_id, const char *company_id);

#endif
