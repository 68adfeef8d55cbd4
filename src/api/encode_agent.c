/* Agents as the API shows them. */
#include "api/encode.h"
#include "core/access/audit.h"

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

void encode_agent_detail(struct jw *w, const struct agent_detail *d)
{
        jw_object(w);
        agent_members(w, &d->agent, d->full);
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
        jw_key(w, "access");
        jw_object(w);
        jw_kbool(w, "canAssignTasks", d->can_assign_tasks);
        jw_kstring(w, "taskAssignSource", d->assign_source);
        encode_row_or_null(w, "membership", &membership_table,
                           d->membership.id ? &d->membership : NULL);
        jw_key(w, "grants");
        jw_array(w);
        for (size_t i = 0; i < d->grants.n; i++) {
                jw_object(w);
                jw_kstring(w, "permissionKey", d->grants.at[i].permission_key);
                jw_kraw(w, "scope", d->grants.at[i].scope);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_object_end(w);
        jw_object_end(w);
}

void encode_agent_revision(struct jw *w, struct arena *arena, const struct agent_config_revision *v)
{
        struct agent_config_revision shown = *v;

        shown.before_config = audit_redacted(arena, v->before_config);
        shown.after_config = audit_redacted(arena, v->after_config);
        encode_row(w, &agent_config_revision_table, &shown);
}
