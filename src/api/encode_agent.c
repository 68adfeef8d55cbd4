/* Agents as the API shows them. */
#include "api/encode.h"

static void agent_members(struct jw *w, const struct agent *a, bool full)
{
        jw_kstring(w, "id", a->id);
        jw_kstring(w, "companyId", a->company_id);
        jw_kstring(w, "name", a->name);
        jw_kstring(w, "urlKey", a->url_key);
        jw_kstring(w, "role", a->role);
        jw_kstring(w, "title", a->title);
        jw_kstring(w, "icon", a->icon);
        jw_kstring(w, "status", a->status);
        jw_kstring(w, "reportsTo", a->reports_to);
        jw_kstring(w, "capabilities", a->capabilities);
        jw_kstring(w, "adapterType", a->adapter_type);
        jw_kraw(w, "adapterConfig", full ? a->adapter_config : "{}");
        jw_kraw(w, "runtimeConfig", full ? a->runtime_config : "{}");
        jw_kstring(w, "defaultEnvironmentId", a->default_environment_id);
        jw_kint(w, "budgetMonthlyCents", a->budget_monthly_cents);
        jw_kint(w, "spentMonthlyCents", a->spent_monthly_cents);
        jw_kstring(w, "pauseReason", a->pause_reason);
        jw_ktime(w, "pausedAt", a->paused_at);
        jw_kraw(w, "permissions", a->permissions);
        jw_ktime(w, "lastHeartbeatAt", a->last_heartbeat_at);
        jw_kraw(w, "metadata", a->metadata);
        jw_ktime(w, "createdAt", a->created_at);
        jw_ktime(w, "updatedAt", a->updated_at);
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

static void membership(struct jw *w, const struct membership *m)
{
        jw_key(w, "membership");
        if (!m->id) {
                jw_null(w);
                return;
        }
        jw_object(w);
        jw_kstring(w, "id", m->id);
        jw_kstring(w, "companyId", m->company_id);
        jw_kstring(w, "principalType", m->principal_type);
        jw_kstring(w, "principalId", m->principal_id);
        jw_kstring(w, "status", m->status);
        jw_kstring(w, "membershipRole", m->role);
        jw_ktime(w, "createdAt", m->created_at);
        jw_ktime(w, "updatedAt", m->updated_at);
        jw_object_end(w);
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
        membership(w, &d->membership);
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
        jw_object(w);
        jw_kstring(w, "id", v->id);
        jw_kstring(w, "companyId", v->company_id);
        jw_kstring(w, "agentId", v->agent_id);
        jw_kstring(w, "createdByAgentId", v->created_by_agent_id);
        jw_kstring(w, "createdByUserId", v->created_by_user_id);
        jw_kstring(w, "source", v->source);
        jw_kstring(w, "rolledBackFromRevisionId", v->rolled_back_from_id);
        jw_kraw(w, "changedKeys", v->changed_keys);
        jw_kraw(w, "beforeConfig", v->before_config);
        jw_kraw(w, "afterConfig", v->after_config);
        jw_ktime(w, "createdAt", v->created_at);
        jw_object_end(w);
}

void encode_agent_state(struct jw *w, const struct agent_runtime_state *s)
{
        jw_object(w);
        jw_kstring(w, "agentId", s->agent_id);
        jw_kstring(w, "companyId", s->company_id);
        jw_kstring(w, "adapterType", s->adapter_type);
        jw_kstring(w, "sessionId", s->session_id);
        jw_kraw(w, "stateJson", s->state_json);
        jw_kstring(w, "lastRunId", s->last_run_id);
        jw_kstring(w, "lastRunStatus", s->last_run_status);
        jw_kint(w, "totalInputTokens", s->total_input_tokens);
        jw_kint(w, "totalOutputTokens", s->total_output_tokens);
        jw_kint(w, "totalCachedInputTokens", s->total_cached_input_tokens);
        jw_kint(w, "totalCostCents", s->total_cost_cents);
        jw_kstring(w, "lastError", s->last_error);
        jw_ktime(w, "createdAt", s->created_at);
        jw_ktime(w, "updatedAt", s->updated_at);
        jw_kstring(w, "sessionDisplayId", s->session_display_id);
        jw_kraw(w, "sessionParamsJson", s->session_params_json);
        jw_object_end(w);
}
