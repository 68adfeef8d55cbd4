/* Lists what AWS Secrets Manager holds, without the values. */
#include "secret/aws.h"

#include <math.h>

#include "base/clock.h"

/* AWS writes seconds since 1970, with a fraction. */
static void set_date(json_t *to, const char *key, const json_t *entry, const char *from)
{
        const json_t *v = json_object_get(entry, from);
        double seconds = json_is_number(v) ? json_number_value(v) : NAN;
        char iso[ISO_TIME_LEN + 1];

        if (!isfinite(seconds) || fabs(seconds) > 1e11) {
                json_object_set_new(to, key, json_null());
                return;
        }
        clock_iso((int64_t)(seconds * (double)US_PER_S), iso);
        json_object_set_new(to, key, json_string(iso));
}

/* What a description or a tag says stays in AWS; that there is one may be known. */
static json_t *metadata_of(const json_t *entry)
{
        const char *description = json_get_string(entry, "Description");
        const char *kms = json_get_string(entry, "KmsKeyId");
        json_t *m = json_object();

        set_date(m, "createdDate", entry, "CreatedDate");
        set_date(m, "lastAccessedDate", entry, "LastAccessedDate");
        set_date(m, "lastChangedDate", entry, "LastChangedDate");
        set_date(m, "deletedDate", entry, "DeletedDate");
        json_object_set_new(m, "hasDescription", json_boolean(description && *description));
        json_object_set_new(m, "hasKmsKey", json_boolean(kms && *kms));
        json_object_set_new(
                m, "tagCount",
                json_integer((json_int_t)json_array_size(json_object_get(entry, "Tags"))));
        return m;
}

static void add_entry(json_t *list, const json_t *entry)
{
        const char *arn = json_get_string(entry, "ARN"), *name = json_get_string(entry, "Name");
        json_t *row;

        if (!arn && !name)
                return;
        row = json_object();
        json_object_set_new(row, "externalRef", json_string(arn ? arn : name));
        json_object_set_new(row, "name", json_string(name ? name : aws_reference_name(arn)));
        json_object_set_new(row, "providerVersionRef", json_null());
        json_object_set_new(row, "providerMetadata", metadata_of(entry));
        json_array_append_new(list, row);
}

static void put_list(struct jw *w, const struct vault_page *page)
{
        jw_kint(w, "MaxResults", MAX(1, MIN(page->page_size, 100)));
        if (page->next_token)
                jw_kstring(w, "NextToken", page->next_token);
        jw_kbool(w, "IncludePlannedDeletion", false);
        if (!page->query || !*page->query)
                return;
        jw_key(w, "Filters");
        jw_array(w);
        jw_object(w);
        jw_kstring(w, "Key", "all");
        jw_key(w, "Values");
        jw_array(w);
        jw_string(w, page->query);
        jw_array_end(w);
        jw_object_end(w);
        jw_array_end(w);
}

int aws_list(struct op *op, const struct vault_config *config, const struct vault_page *page,
             json_t **ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(aws_request_done) struct aws_request q = { 0 };
        struct aws_settings s = { 0 };
        json_t *document = NULL, *list, *entry;
        size_t i;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r < 0)
                return r;
        aws_request_init(&q);
        put_list(&q.w, page);
        r = aws_send(op, &s, "ListSecrets", &q, &answer, err);
        if (r == 0)
                r = aws_answer_json(op, "ListSecrets", &answer, &document, err);
        if (r < 0)
                return r;
        list = json_array();
        json_array_foreach(json_object_get(document, "SecretList"), i, entry)
                add_entry(list, entry);
        *ret = json_pack("{s:o,s:o}", "secrets", list, "nextToken",
                         json_string_or_null(json_get_string(document, "NextToken")));
        return 0;
}
