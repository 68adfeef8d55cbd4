/* Which members of each kind of row the API shows, and in which form. */
#include "api/encode.h"

#include "core/access/audit.h"
#include "store/row.h"

static void encode_number_or_null(struct jw *w, const char *key, int64_t number, bool is_null)
{
        if (is_null)
                jw_knull(w, key);
        else
                jw_kint(w, key, number);
}

void encode_members(struct jw *w, const struct row_type *type, const void *row)
{
        for (size_t i = 0; i < type->n_columns; i++) {
                const struct column *c = &type->columns[i];
                const void *at = (const char *)row + c->offset;

                if (!c->json)
                        continue;
                switch ((enum column_type)c->type) {
                case COLUMN_TEXT:
                        jw_kstring(w, c->json, *(const char *const *)at);
                        break;
                case COLUMN_DOCUMENT:
                        jw_kraw(w, c->json, *(const char *const *)at);
                        break;
                case COLUMN_NUMBER:
                        jw_kint(w, c->json, *(const int64_t *)at);
                        break;
                case COLUMN_NUMBER_OR_NULL:
                        encode_number_or_null(w, c->json, *(const int64_t *)at,
                                              *(const int64_t *)at == 0);
                        break;
                case COLUMN_CODE:
                        encode_number_or_null(w, c->json, *(const int64_t *)at,
                                              *(const int64_t *)at < 0);
                        break;
                case COLUMN_TIME:
                case COLUMN_TIME_OR_NULL:
                        jw_ktime(w, c->json, *(const int64_t *)at);
                        break;
                case COLUMN_FLAG:
                        jw_kbool(w, c->json, *(const bool *)at);
                        break;
                }
        }
}

void encode_row(struct jw *w, const struct row_type *type, const void *row)
{
        jw_object(w);
        encode_members(w, type, row);
        jw_object_end(w);
}

void encode_row_or_null(struct jw *w, const char *key, const struct row_type *type, const void *row)
{
        jw_key(w, key);
        if (row)
                encode_row(w, type, row);
        else
                jw_null(w);
}

void encode_company(struct jw *w, const struct company *c)
{
        jw_object(w);
        encode_members(w, &company_table, c);
        jw_kbool(w, "feedbackDataSharingEnabled", false);
        jw_knull(w, "feedbackDataSharingConsentAt");
        jw_knull(w, "feedbackDataSharingConsentByUserId");
        jw_knull(w, "feedbackDataSharingTermsVersion");
        jw_knull(w, "logoAssetId");
        jw_knull(w, "logoUrl");
        jw_knull(w, "pauseReason");
        jw_knull(w, "pausedAt");
        jw_knull(w, "defaultResponsibleUserId");
        jw_kraw(w, "interactionResolverGovernance", "{}");
        jw_object_end(w);
}

void encode_environment(struct jw *w, const struct runtime *rt, const struct environment *e,
                        bool redacted)
{
        struct environment shown = *e;

        if (redacted) {
                shown.config = "{}";
                shown.metadata = NULL;
        }
        jw_object(w);
        encode_members(w, &environment_table, &shown);
        jw_kbool(w, "isolated", kind_is_isolated(rt, e));
        jw_kstring(w, "isolation", kind_isolation(rt, e));
        jw_kraw(w, "envVars", "{}"); /* variables are the project's and the agent's */
        if (redacted) {
                jw_kbool(w, "configRedacted", true);
                jw_kbool(w, "metadataRedacted", true);
        }
        jw_object_end(w);
}

void encode_lease(struct jw *w, const struct lease *l)
{
        encode_row(w, &lease_table, l);
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
        encode_row(w, &activity_table, a);
}

/* -- Agents ----------------------------------------------------------------------------------- */

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
