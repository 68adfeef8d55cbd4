/* Adding an environment to the list, once. */
#include "core/places/sweep_list.h"

void sweep_list_add(struct sweep_list *list, const char *environment_id, const char *company_id)
{
        const char *id = environment_id ? environment_id : SWEEP_NOWHERE;

        for (size_t i = 0; i < list->n; i++)
                if (streq(list->at[i].environment_id, id))
                        return;
        list->at = arena_more(list->arena, list->at, list->n, &list->room, sizeof(*list->at));
        list->at[list->n++] = (struct sweep_due){ arena_strdup(list->arena, id),
                                                  arena_strdup(list->arena, company_id) };
}
