/* Agents as the API shows them. */
#include "api/encode.h"

static void agent_members(struct jw *w, const struct agent *a, bool full)
{
        struct agent shown = *a;

        if (!full)
                shown.adapter_config = shown.runtime_config = "{}";
        encode_members(w, &agent_table, &shown);
}

void encode_agent(struct jw *w, const struct agent *a, bool full)
{
        jw_object(w);
        agent_members(w, a, full);
        jw_object_end(w);
}

static void chain(struct jw *w, const struct agent_detail *d)
{
        jw_key(w, "chainOfCommand");
        jw_array(w);
        for (size_t i = 0; i < d->n_chain; i++) {
                jw_object(w);
                jw_kstring(w, "id", d->chain[i].id);
                jw_kstring(w, "name", d->chain[i].name);
                jw_kstring(w, "role", d->chain[i].role);
                jw_kstring(w, "title", d->chain[i].title);
                jw_object_end(w);
        }
        jw_array_end(w);
}

void encode_agent_detail(struct jw *w, const struct agent_detail *d)
{
        jw_object(w);
        agent_members(w, &d->agent, d->full);
        chain(w, d);
        jw_key(w, "access");
        jw_object(w);
        jw_kbool(w, "canAssignTasks", d->can_assign_tasks);
        jw_kstring(w, "taskAssignSource", d->assign_source);
        encode_row_or_null(w, "membership", &membership_table,
                           d->membership.id ? &d->membership : NULL);
        jw_key(w, "grants");
        jw_array(w);
        for (size_t i = 0; i < d->n_grants; i++) {
                jw_object(w);
                jw_kstring(w, "permissionKey", d->grants[i].permission_key);
                jw_kraw(w, "scope", d->grants[i].scope);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_object_end(w);
        jw_object_end(w);
}

void encode_agent_revision(struct jw *w, const struct agent_config_revision *v)
{
        encode_row(w, &agent_config_revision_table, v);
}

void encode_agent_state(struct jw *w, const struct agent_runtime_state *s)
{
        encode_row(w, &agent_runtime_state_table, s);
}
