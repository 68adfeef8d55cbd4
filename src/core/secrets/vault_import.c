/* Linking to secrets that a vault holds already: a preview first, then row by row. Values are never
 * read, and the vault's metadata of its secrets is reduced to a few harmless members. */
#include "base/clock.h"
#include "base/fault.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"
#include "core/secrets/vault.h"

#define EXACT   "An existing secret already links this exact provider reference."
#define REFUSED "Provider rejected this external reference"

struct import {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *config_id;
        struct vault_choice vault;
        struct jw w;
        int64_t imported, skipped, failed, ready, duplicate, conflicting;
        const char *action;
};

static int look(struct db *db, void *arg, struct err *err)
{
        struct import *m = arg;
        struct vault_row row;
        int r = secret_guard(db, m->op, m->company_id, true, err);

        if (r >= 0)
                r = vault_configs_get(db, m->config_id, m->op->arena, &row, err);
        return r < 0 ? r
                     : vault_choose(db, m->rt, m->op->arena, m->company_id, row.provider,
                                    m->config_id, &m->vault, err);
}

static int guard(struct db *db, void *arg, struct err *err)
{
        struct import *m = arg;
        int r = secret_guard(db, m->op, m->company_id, true, err);

        return r < 0 ? r : secret_may_link(m->rt, m->op, err);
}

static int need_listing(const struct import *m, struct err *err)
{
        if (m->vault.provider->list)
                return 0;
        return err_set(err, ERR_UNPROCESSABLE, "%s provider does not support remote import listing",
                       m->vault.provider->key);
}

/* One entry */

struct entry {
        struct import *m;
        const char *ref, *name, *key, *version_ref, *description;
        struct secret exact, by_name, by_key;
        bool has_exact, has_name, has_key;
        struct vault_material material;
        int refused;         /* the provider's code, 0 when it accepts */
        const char *refusal; /* its text */
        const char *secret_id;
};

static int find_conflicts(struct db *db, void *arg, struct err *err)
{
        struct entry *e = arg;
        const struct import *m = e->m;
        struct arena *a = m->op->arena;
        int r = secrets_find_reference(db, m->company_id, m->vault.provider->key, m->config_id,
                                       e->ref, a, &e->exact, err);

        e->has_exact = r > 0;
        e->has_name = e->has_key = false;
        if (r != 0)
                return r;
        r = secrets_find_name(db, m->company_id, e->name, a, &e->by_name, err);
        e->has_name = r > 0;
        if (r >= 0 && e->key)
                r = secrets_find_key(db, m->company_id, e->key, a, &e->by_key, err);
        e->has_key = e->key && r > 0;
        return r;
}

static bool has_conflict(const struct entry *e)
{
        return e->has_exact || e->has_name || e->has_key;
}

/* Whether the provider would accept the reference. Its error text is safe to show only when it was
 * classified, or is a rule of ours. */
static void try_link(struct entry *e, const char *secret_id)
{
        CLEAN(err_done) struct err err = { 0 };
        struct import *m = e->m;
        struct vault_subject subject = {
                .company_id = m->company_id,
                .secret_id = secret_id,
                .secret_key = e->key ? e->key : "",
                .secret_name = e->name,
                .version = 1,
        };

        e->refused = m->vault.provider->link(m->op, &m->vault.config, &subject, e->ref,
                                             e->version_ref, &e->material, &err);
        if (e->refused >= 0) {
                e->refused = 0;
                return;
        }
        e->refusal = vault_failure_of(&err) >= 0 || e->refused == ERR_UNPROCESSABLE ||
                                     e->refused == ERR_INVALID
                             ? arena_strdup(m->op->arena, err.msg)
                             : REFUSED;
}

static void write_conflict(struct jw *w, const char *type, const char *message, const char *id)
{
        jw_object(w);
        jw_kstring(w, "type", type);
        jw_kstring(w, "message", message);
        if (id)
                jw_kstring(w, "existingSecretId", id);
        jw_object_end(w);
}

static void write_conflicts(const struct entry *e)
{
        struct jw *w = &e->m->w;
        struct arena *a = e->m->op->arena;

        jw_key(w, "conflicts");
        jw_array(w);
        if (e->has_exact)
                write_conflict(w, "exact_reference", EXACT, e->exact.id);
        if (e->has_name)
                write_conflict(w, "name",
                               arena_printf(a, "Secret name already exists: %s", e->name),
                               e->by_name.id);
        if (e->has_key)
                write_conflict(w, "key", arena_printf(a, "Secret key already exists: %s", e->key),
                               e->by_key.id);
        if (e->refused)
                write_conflict(w, "provider_guardrail", e->refusal, NULL);
        jw_array_end(w);
}

static const char *last_segment(const char *ref)
{
        const char *slash = strrchr(ref, '/');

        return slash && slash[1] ? slash + 1 : ref;
}

static int record(struct db *db, void *arg, struct err *err)
{
        struct import *m = arg;
        json_int_t seen = m->ready + m->duplicate + m->conflicting;
        json_t *details;

        if (streq(m->action, "secret.remote_import.previewed"))
                details = json_pack("{s:s, s:I, s:I, s:I, s:I}", "provider", m->vault.provider->key,
                                    "candidateCount", seen, "readyCount", (json_int_t)m->ready,
                                    "duplicateCount", (json_int_t)m->duplicate, "conflictCount",
                                    (json_int_t)m->conflicting);
        else
                details = json_pack("{s:s, s:I, s:I, s:I}", "provider", m->vault.provider->key,
                                    "importedCount", (json_int_t)m->imported, "skippedCount",
                                    (json_int_t)m->skipped, "errorCount", (json_int_t)m->failed);
        return audit(db, m->op, m->company_id, m->action, "secret_provider_config", m->config_id,
                     details, err);
}

/* Preview */

static json_t *reduce_metadata(const json_t *metadata)
{
        static const char *const known[] = { "createdDate", "lastAccessedDate", "lastChangedDate",
                                             "deletedDate", "hasDescription",   "hasKmsKey",
                                             "tagCount" };
        json_t *out = json_object(), *v;

        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if ((v = json_object_get(metadata, known[i])) != NULL)
                        json_object_set(out, known[i], v);
        if (json_object_size(out) > 0)
                return out;
        json_decref(out);
        return json_null();
}

static int write_candidate(struct import *m, const json_t *remote, struct err *err)
{
        const char *remote_name = json_get_string(remote, "name");
        struct entry e = { .m = m,
                           .ref = json_get_string(remote, "externalRef"),
                           .version_ref = json_get_string(remote, "providerVersionRef") };
        json_t *metadata;
        bool conflict;
        int r;

        if (!e.ref)
                return 0;
        e.name = remote_name && *remote_name ? remote_name : last_segment(e.ref);
        e.key = secret_normalize_key(m->op->arena, e.name);
        r = store_read(m->op, m->rt->store, find_conflicts, &e, err);
        if (r < 0)
                return r;
        if (!e.has_exact)
                try_link(&e, "00000000-0000-0000-0000-000000000000");
        conflict = has_conflict(&e) || e.refused;
        m->duplicate += e.has_exact;
        m->conflicting += conflict && !e.has_exact;
        m->ready += !conflict;
        metadata = reduce_metadata(json_object_get(remote, "providerMetadata"));
        jw_object(&m->w);
        jw_kstring(&m->w, "externalRef", e.ref);
        jw_kstring(&m->w, "remoteName", remote_name);
        jw_kstring(&m->w, "name", e.name);
        jw_kstring(&m->w, "key", e.key);
        jw_kstring(&m->w, "providerVersionRef", e.version_ref);
        jw_kvalue(&m->w, "providerMetadata", metadata);
        jw_kstring(&m->w, "status", e.has_exact ? "duplicate" : conflict ? "conflict" : "ready");
        jw_kbool(&m->w, "importable", !conflict);
        write_conflicts(&e);
        jw_object_end(&m->w);
        json_decref(metadata);
        return 0;
}

static int check_preview(json_t *body, struct import *m, struct vault_page *page, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = m->op->arena;
        bool has_size;

        check_init(&c, body);
        m->config_id = arena_strdup(a, check_uuid(&c, "providerConfigId", CHECK_REQUIRED));
        page->query = arena_strtrim(a, check_string(&c, "query", CHECK_NULLABLE, 0, 200));
        page->next_token = arena_strdup(a, check_string(&c, "nextToken", CHECK_NULLABLE, 0, 4096));
        page->page_size = check_int(&c, "pageSize", CHECK_OPTIONAL, 1, 100, &has_size);
        if (!has_size)
                page->page_size = 50;
        return check_end(&c, err);
}

/* An error that the provider did not classify itself is not shown to a caller. */
static int listing_failed(int r, struct err *err)
{
        if (vault_failure_of(err) >= 0 || r == ERR_UNPROCESSABLE || r == ERR_INVALID ||
            r == ERR_CANCELLED || r == ERR_TIMEOUT)
                return r;
        return vault_fail(err, VAULT_ERROR, "Remote secret provider request failed.");
}

int vault_import_preview(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                         struct buf *ret_json, struct err *err)
{
        struct import m = { .op = op,
                            .rt = rt,
                            .company_id = company_id,
                            .action = "secret.remote_import.previewed" };
        struct vault_page page = { 0 };
        json_t *listed = NULL, *remote;
        size_t i;
        int r = store_read(op, rt->store, guard, &m, err);

        if (r >= 0)
                r = check_preview(body, &m, &page, err);
        if (r >= 0)
                r = store_read(op, rt->store, look, &m, err);
        if (r >= 0)
                r = need_listing(&m, err);
        if (r < 0)
                return r;
        r = m.vault.provider->list(op, &m.vault.config, &page, &listed, err);
        if (r < 0)
                return listing_failed(r, err);
        jw_init(&m.w, ret_json);
        jw_object(&m.w);
        jw_kstring(&m.w, "providerConfigId", m.config_id);
        jw_kstring(&m.w, "provider", m.vault.provider->key);
        jw_kstring(&m.w, "nextToken", json_get_string(listed, "nextToken"));
        jw_key(&m.w, "candidates");
        jw_array(&m.w);
        json_array_foreach(json_object_get(listed, "secrets"), i, remote)
        {
                r = write_candidate(&m, remote, err);
                if (r < 0)
                        break;
        }
        jw_array_end(&m.w);
        jw_object_end(&m.w);
        json_decref(listed);
        return r < 0 ? r : store_write(op, rt->store, record, &m, err);
}

/* Commit */

static int insert(struct db *db, void *arg, struct err *err)
{
        struct entry *e = arg;
        const struct import *m = e->m;
        struct arena *a = m->op->arena;
        int64_t now = clock_now_us();
        struct secret s = {
                .id = e->secret_id,
                .company_id = m->company_id,
                .key = e->key,
                .name = e->name,
                .provider = m->vault.provider->key,
                .status = SECRET_ACTIVE,
                .managed_mode = SECRET_EXTERNAL,
                .external_ref = e->material.external_ref,
                .provider_config_id = m->config_id,
                .latest_version = 1,
                .description = e->description,
                .last_rotated_at = now,
                .created_at = now,
                .updated_at = now,
        };
        struct secret_version v = {
                .id = arena_strdup(a, uuid_new().s),
                .secret_id = s.id,
                .version = 1,
                .material = e->material.material,
                .value_mark = e->material.value_mark,
                .version_ref = e->material.version_ref,
                .status = VERSION_CURRENT,
                .fingerprint = e->material.fingerprint,
                .created_at = now,
        };
        int r;

        secret_name_creator(m->op, &s.created_by_agent_id, &s.created_by_user_id);
        v.created_by_agent_id = s.created_by_agent_id;
        v.created_by_user_id = s.created_by_user_id;
        r = secrets_insert(db, &s, err);
        return r < 0 ? r : secret_versions_insert(db, &v, err);
}

/* The status of a row and, in *ret_reason, why. */
static const char *take_up(struct entry *e, const char **ret_reason, struct err *err)
{
        struct import *m = e->m;
        int r;

        *ret_reason = NULL;
        if (!e->key) {
                *ret_reason = "Secret key is required";
                return "error";
        }
        r = store_read(m->op, m->rt->store, find_conflicts, e, err);
        if (r >= 0 && has_conflict(e)) {
                *ret_reason = e->has_exact ? "exact_reference_duplicate" : "name_or_key_conflict";
                return "skipped";
        }
        if (r >= 0) {
                e->secret_id = arena_strdup(m->op->arena, uuid_new().s);
                try_link(e, e->secret_id);
                if (e->refused) {
                        *ret_reason = e->refusal;
                        return "error";
                }
                FAULT("vault.import.before");
                r = store_write(m->op, m->rt->store, insert, e, err);
                FAULT("vault.import.after");
        }
        if (r < 0)
                *ret_reason = "Import failed";
        return r < 0 ? "error" : "imported";
}

static void import_row(struct import *m, const struct entry *wanted)
{
        CLEAN(err_done) struct err err = { 0 };
        struct entry e = *wanted;
        const char *reason, *status = take_up(&e, &reason, &err);
        bool imported = streq(status, "imported");

        m->imported += imported;
        m->skipped += streq(status, "skipped");
        m->failed += streq(status, "error");
        jw_object(&m->w);
        jw_kstring(&m->w, "externalRef", e.ref);
        jw_kstring(&m->w, "name", e.name);
        jw_kstring(&m->w, "key", e.key);
        jw_kstring(&m->w, "status", status);
        jw_kstring(&m->w, "reason", reason);
        jw_kstring(&m->w, "secretId", imported ? e.secret_id : NULL);
        write_conflicts(&e);
        jw_object_end(&m->w);
}

static void check_row(struct check *c, size_t i, json_t *item, struct import *m, struct entry *ret)
{
        struct arena *a = m->op->arena;
        const char *name, *key;
        struct check n;

        check_nested_item(&n, c, "secrets", i, item);
        ret->m = m;
        ret->ref = arena_strtrim(a, check_string(&n, "externalRef", CHECK_REQUIRED, 1, 2048));
        name = check_string(&n, "name", CHECK_NULLABLE, 0, 160);
        key = check_string(&n, "key", CHECK_NULLABLE, 0, 120);
        ret->description =
                arena_strtrim(a, check_string(&n, "description", CHECK_NULLABLE, 0, 500));
        ret->version_ref =
                arena_strdup(a, check_string(&n, "providerVersionRef", CHECK_NULLABLE, 0, 0));
        (void)check_record(&n, "providerMetadata", CHECK_NULLABLE);
        if (!ret->ref) {
                ret->ref = "";
                check_custom(&n, "externalRef", "Required");
        }
        ret->name = arena_strtrim(a, name);
        if (!ret->name)
                ret->name = arena_strdup(a, last_segment(ret->ref));
        ret->key = secret_normalize_key(a, key && *key ? key : ret->name);
}

static int check_commit(json_t *body, struct import *m, struct entry **ret, size_t *ret_n,
                        struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct entry *list = NULL;
        json_t *rows, *item;
        size_t i;

        check_init(&c, body);
        m->config_id =
                arena_strdup(m->op->arena, check_uuid(&c, "providerConfigId", CHECK_REQUIRED));
        rows = check_array(&c, "secrets", CHECK_REQUIRED);
        if (rows)
                check_array_size(&c, "secrets", rows, 1, 100);
        if (!check_failed(&c)) {
                list = arena_alloc(m->op->arena, json_array_size(rows) * sizeof(*list));
                json_array_foreach(rows, i, item) check_row(&c, i, item, m, &list[i]);
                *ret_n = json_array_size(rows);
                *ret = list;
        }
        return check_end(&c, err);
}

int vault_import_commit(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                        struct buf *ret_json, struct err *err)
{
        struct import m = { .op = op,
                            .rt = rt,
                            .company_id = company_id,
                            .action = "secret.remote_import.completed" };
        struct entry *entries = NULL;
        size_t n = 0;
        int r = store_read(op, rt->store, guard, &m, err);

        if (r >= 0)
                r = check_commit(body, &m, &entries, &n, err);
        if (r >= 0)
                r = store_read(op, rt->store, look, &m, err);
        if (r >= 0)
                r = need_listing(&m, err);
        if (r < 0)
                return r;
        jw_init(&m.w, ret_json);
        jw_object(&m.w);
        jw_kstring(&m.w, "providerConfigId", m.config_id);
        jw_kstring(&m.w, "provider", m.vault.provider->key);
        jw_key(&m.w, "results");
        jw_array(&m.w);
        for (size_t i = 0; i < n; i++)
                import_row(&m, &entries[i]);
        jw_array_end(&m.w);
        jw_kint(&m.w, "importedCount", m.imported);
        jw_kint(&m.w, "skippedCount", m.skipped);
        jw_kint(&m.w, "errorCount", m.failed);
        jw_object_end(&m.w);
        return store_write(op, rt->store, record, &m, err);
}
