/* How the API shows secrets, their versions, their use and vaults: never a value. */
#include "api/encode.h"

void encode_secret(struct jw *w, const struct secret *s)
{
        encode_row(w, &secret_table, s);
}

void encode_secret_version(struct jw *w, const struct secret_version *v)
{
        encode_row(w, &secret_version_table, v);
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
        encode_members(w, &secret_binding_table, b);
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
        encode_row(w, &secret_event_table, e);
}

void encode_vault(struct jw *w, const struct vault_row *v)
{
        encode_row(w, &vault_table, v);
}
