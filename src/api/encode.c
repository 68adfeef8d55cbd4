#include "api/encode.h"

void encode_company(struct jw *w, const struct company *c)
{
        jw_object(w);
        jw_kstring(w, "id", c->id);
        jw_kstring(w, "name", c->name);
        jw_kstring(w, "description", c->description);
        jw_kstring(w, "status", c->status);
        jw_kstring(w, "issuePrefix", c->issue_prefix);
        jw_kint(w, "issueCounter", c->issue_counter);
        jw_kint(w, "budgetMonthlyCents", c->budget_monthly_cents);
        jw_kint(w, "spentMonthlyCents", c->spent_monthly_cents);
        jw_kint(w, "attachmentMaxBytes", c->attachment_max_bytes);
        jw_kbool(w, "requireBoardApprovalForNewAgents", c->require_board_approval);
        jw_kbool(w, "feedbackDataSharingEnabled", false);
        jw_knull(w, "feedbackDataSharingConsentAt");
        jw_knull(w, "feedbackDataSharingConsentByUserId");
        jw_knull(w, "feedbackDataSharingTermsVersion");
        jw_kstring(w, "brandColor", c->brand_color);
        jw_kstring(w, "defaultEnvironmentId", c->default_environment_id);
        jw_knull(w, "logoAssetId");
        jw_knull(w, "logoUrl");
        jw_ktime(w, "createdAt", c->created_at);
        jw_ktime(w, "updatedAt", c->updated_at);
        jw_object_end(w);
}

void encode_environment(struct jw *w, const struct runtime *rt, const struct environment *e,
                        bool redacted)
{
        jw_object(w);
        jw_kstring(w, "id", e->id);
        jw_kstring(w, "companyId", e->company_id);
        jw_kstring(w, "name", e->name);
        jw_kstring(w, "description", e->description);
        jw_kstring(w, "driver", e->driver);
        jw_kstring(w, "status", e->status);
        jw_kraw(w, "config", redacted ? "{}" : e->config);
        jw_kraw(w, "metadata", redacted ? NULL : e->metadata);
        jw_ktime(w, "createdAt", e->created_at);
        jw_ktime(w, "updatedAt", e->updated_at);
        jw_kbool(w, "isolated", kind_is_isolated(rt, e->driver));
        jw_kstring(w, "isolation", kind_isolation(rt, e->driver));
        if (redacted) {
                jw_kbool(w, "configRedacted", true);
                jw_kbool(w, "metadataRedacted", true);
        }
        jw_object_end(w);
}

void encode_lease(struct jw *w, const struct lease *l)
{
        jw_object(w);
        jw_kstring(w, "id", l->id);
        jw_kstring(w, "companyId", l->company_id);
        jw_kstring(w, "environmentId", l->environment_id);
        jw_kstring(w, "executionWorkspaceId", l->execution_workspace_id);
        jw_kstring(w, "issueId", l->issue_id);
        jw_kstring(w, "heartbeatRunId", l->heartbeat_run_id);
        jw_kstring(w, "status", l->status);
        jw_kstring(w, "leasePolicy", l->policy);
        jw_kstring(w, "provider", l->provider);
        jw_kstring(w, "providerLeaseId", l->provider_lease_id);
        jw_ktime(w, "acquiredAt", l->acquired_at);
        jw_ktime(w, "lastUsedAt", l->last_used_at);
        jw_ktime(w, "expiresAt", l->expires_at);
        jw_ktime(w, "releasedAt", l->released_at);
        jw_kstring(w, "failureReason", l->failure_reason);
        jw_kstring(w, "cleanupStatus", l->cleanup_status);
        jw_kraw(w, "metadata", l->metadata);
        jw_ktime(w, "createdAt", l->created_at);
        jw_ktime(w, "updatedAt", l->updated_at);
        jw_object_end(w);
}

void encode_lease_record(struct jw *w, const struct runtime *rt, const struct lease_record *r)
{
        jw_object(w);
        jw_key(w, "environment");
        encode_environment(w, rt, &r->env, false);
        jw_key(w, "lease");
        encode_lease(w, &r->lease);
        jw_key(w, "leaseContext");
        jw_object(w);
        jw_kstring(w, "executionWorkspaceId", r->lease.execution_workspace_id);
        jw_kstring(w, "executionWorkspaceMode", r->workspace_mode);
        jw_object_end(w);
        jw_object_end(w);
}

void encode_activity(struct jw *w, const struct activity *a)
{
        jw_object(w);
        jw_kstring(w, "id", a->id);
        jw_kstring(w, "companyId", a->company_id);
        jw_kstring(w, "actorType", a->actor_type);
        jw_kstring(w, "actorId", a->actor_id);
        jw_kstring(w, "action", a->action);
        jw_kstring(w, "entityType", a->entity_type);
        jw_kstring(w, "entityId", a->entity_id);
        jw_kstring(w, "agentId", a->agent_id);
        jw_kstring(w, "runId", a->run_id);
        jw_kraw(w, "details", a->details);
        jw_ktime(w, "createdAt", a->created_at);
        jw_object_end(w);
}
