/* Which members of each kind of row the API shows, and in which form. */
#include "api/encode.h"

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
