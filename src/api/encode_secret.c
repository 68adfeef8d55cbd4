#include "api/encode.h"

void encode_secret(struct jw *w, const struct secret *s)
{
        jw_object(w);
        jw_kstring(w, "id", s->id);
        jw_kstring(w, "companyId", s->company_id);
        jw_kstring(w, "key", s->key);
        jw_kstring(w, "name", s->name);
        jw_kstring(w, "provider", s->provider);
        jw_kstring(w, "status", s->status);
        jw_kstring(w, "managedMode", s->managed_mode);
        jw_kstring(w, "externalRef", s->external_ref);
        jw_kstring(w, "providerConfigId", s->provider_config_id);
        jw_kraw(w, "providerMetadata", s->provider_metadata);
        jw_kint(w, "latestVersion", s->latest_version);
        jw_kstring(w, "description", s->description);
        jw_ktime(w, "lastResolvedAt", s->last_resolved_at);
        jw_ktime(w, "lastRotatedAt", s->last_rotated_at);
        jw_ktime(w, "deletedAt", s->deleted_at);
        jw_kstring(w, "createdByAgentId", s->created_by_agent_id);
        jw_kstring(w, "createdByUserId", s->created_by_user_id);
        jw_kint(w, "referenceCount", s->reference_count);
        jw_ktime(w, "createdAt", s->created_at);
        jw_ktime(w, "updatedAt", s->updated_at);
        jw_object_end(w);
}

/* Neither material nor marks: they are of use to nobody outside. */
void encode_secret_version(struct jw *w, const struct secret_version *v)
{
        jw_object(w);
        jw_kstring(w, "id", v->id);
        jw_kstring(w, "secretId", v->secret_id);
        jw_kint(w, "version", v->version);
        jw_kstring(w, "status", v->status);
        jw_kstring(w, "providerVersionRef", v->version_ref);
        jw_kstring(w, "createdByAgentId", v->created_by_agent_id);
        jw_kstring(w, "createdByUserId", v->created_by_user_id);
        jw_ktime(w, "revokedAt", v->revoked_at);
        jw_ktime(w, "createdAt", v->created_at);
        jw_object_end(w);
}

/* Where a person finds it in the page. */
static void encode_href(struct jw *w, const char *type, const char *slug)
{
        CLEAN(buf_done) struct buf href = BUF_INIT;

        if (!slug || streq(type, "run") || streq(type, "system")) {
                jw_knull(w, "href");
                return;
        }
        buf_appendf(&href, "/%ss/%s", type, slug);
        jw_kstring(w, "href", buf_str(&href));
}

void encode_secret_usage(struct jw *w, const struct secret_usage *u)
{
        const struct secret_binding *b = &u->binding;

        jw_object(w);
        jw_kstring(w, "id", b->id);
        jw_kstring(w, "companyId", b->company_id);
        jw_kstring(w, "secretId", b->secret_id);
        jw_kstring(w, "targetType", b->target_type);
        jw_kstring(w, "targetId", b->target_id);
        jw_kstring(w, "configPath", b->config_path);
        jw_kstring(w, "versionSelector", b->version_selector);
        jw_kbool(w, "required", b->required);
        jw_kstring(w, "label", b->label);
        jw_ktime(w, "createdAt", b->created_at);
        jw_ktime(w, "updatedAt", b->updated_at);
        jw_key(w, "target");
        jw_object(w);
        jw_kstring(w, "type", b->target_type);
        jw_kstring(w, "id", b->target_id);
        jw_kstring(w, "label", u->target.label ? u->target.label : b->target_id);
        encode_href(w, b->target_type, u->target.slug);
        jw_kstring(w, "status", u->target.status);
        jw_object_end(w);
        jw_object_end(w);
}

void encode_secret_event(struct jw *w, const struct secret_event *e)
{
        jw_object(w);
        jw_kstring(w, "id", e->id);
        jw_kstring(w, "companyId", e->company_id);
        jw_kstring(w, "secretId", e->secret_id);
        if (e->version)
                jw_kint(w, "version", e->version);
        else
                jw_knull(w, "version");
        jw_kstring(w, "provider", e->provider);
        jw_kstring(w, "actorType", e->actor_type);
        jw_kstring(w, "actorId", e->actor_id);
        jw_kstring(w, "consumerType", e->consumer_type);
        jw_kstring(w, "consumerId", e->consumer_id);
        jw_kstring(w, "configPath", e->config_path);
        jw_kstring(w, "issueId", e->issue_id);
        jw_kstring(w, "heartbeatRunId", e->heartbeat_run_id);
        jw_kstring(w, "pluginId", e->plugin_id);
        jw_kstring(w, "outcome", e->outcome);
        jw_kstring(w, "errorCode", e->error_code);
        jw_ktime(w, "createdAt", e->created_at);
        jw_object_end(w);
}

void encode_vault(struct jw *w, const struct vault_row *v)
{
        jw_object(w);
        jw_kstring(w, "id", v->id);
        jw_kstring(w, "companyId", v->company_id);
        jw_kstring(w, "provider", v->provider);
        jw_kstring(w, "displayName", v->display_name);
        jw_kstring(w, "status", v->status);
        jw_kbool(w, "isDefault", v->is_default);
        jw_kraw(w, "config", v->config);
        jw_kstring(w, "healthStatus", v->health_status);
        jw_ktime(w, "healthCheckedAt", v->health_checked_at);
        jw_kstring(w, "healthMessage", v->health_message);
        jw_kraw(w, "healthDetails", v->health_details);
        jw_ktime(w, "disabledAt", v->disabled_at);
        jw_kstring(w, "createdByAgentId", v->created_by_agent_id);
        jw_kstring(w, "createdByUserId", v->created_by_user_id);
        jw_ktime(w, "createdAt", v->created_at);
        jw_ktime(w, "updatedAt", v->updated_at);
        jw_object_end(w);
}
