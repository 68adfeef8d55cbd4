/* The environments where work is due, for the passes over places (leases/sweeper.h) and over
 * workspaces. */
#pragma once

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
static inline void sweep_list_add(struct sweep_list *list, const char *environment_id,
                                  const char *company_id)
{
        const char *id = environment_id ? environment_id : SWEEP_NOWHERE;

        for (size_t i = 0; i < list->n; i++)
                if (streq(list->at[i].environment_id, id))
                        return;
        list->at = arena_more(list->arena, list->at, list->n, &list->room, sizeof(*list->at));
        list->at[list->n++] = (struct sweep_due){ arena_strdup(list->arena, id),
                                                  arena_strdup(list->arena, company_id) };
}
