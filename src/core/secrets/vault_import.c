/* Linking to secrets that a vault holds already: a preview first, then row by row. Values are never
 * read, and the vault's metadata of its secrets is reduced to a few harmless members. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"
#include "core/secrets/vault.h"

#define NO_SECRET "00000000-0000-0000-0000-000000000000"

struct import {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *config_id;
        struct vault_choice vault;
        const char *action;
        json_t *counts; /* for the trail */
};

int vault_may_import(struct op *op, struct runtime *rt, const char *company_id, struct err *err)
{
        int r = secret_may(op, rt, company_id, true, err);

        return r < 0 ? r : secret_may_link(rt, op, err);
}

static int import_begin(struct import *m, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct vault_row row;
        int r = store_read_begin(m->op, m->rt->store, &db, err);

        if (r >= 0)
                r = secret_guard(db, m->op, m->company_id, true, err);
        if (r >= 0)
                r = secret_may_link(m->rt, m->op, err);
        if (r >= 0)
                r = vault_configs_get(db, m->config_id, m->op->arena, &row, err);
        if (r >= 0)
                r = vault_choose(db, m->rt, m->op->arena, m->company_id, row.provider, m->config_id,
                                 &m->vault, err);
        if (r >= 0 && !m->vault.provider->list)
                r = err_set(err, ERR_UNPROCESSABLE,
                            "%s provider does not support remote import listing",
                            m->vault.provider->key);
        return r;
}

static int import_record(struct db *db, void *arg, struct err *err)
{
        struct import *m = arg;

        return audit(db, m->op, m->company_id, m->action, "secret_provider_config", m->config_id,
                     json_incref(m->counts), err);
}

static int import_end(struct import *m, json_t *take_counts, struct err *err)
{
        m->counts = take_counts;
        int r = store_write(m->op, m->rt->store, import_record, m, err);
        json_decref(m->counts);
        return r;
}

static int find_conflicts(const struct import *m, struct vault_import *e, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena *a = m->op->arena;
        struct secret other;
        int r = store_read_begin(m->op, m->rt->store, &db, err);

        if (r >= 0)
                r = secrets_find_reference(db, m->company_id, m->vault.provider->key, m->config_id,
                                           e->ref, a, &other, err);
        if (r > 0)
                e->same_reference = other.id;
        if (r != 0)
                return r;
        r = secrets_find_name(db, m->company_id, e->name, a, &other, err);
        if (r > 0)
                e->same_name = other.id;
        if (r >= 0 && e->key) {
                r = secrets_find_key(db, m->company_id, e->key, a, &other, err);
                if (r > 0)
                        e->same_key = other.id;
        }
        return r;
}

static bool has_conflict(const struct vault_import *e)
{
        return e->same_reference || e->same_name || e->same_key;
}

/* Whether the provider would accept the reference. Its error text is safe to show only when it was
 * classified, or is a rule of ours. */
static void try_link(const struct import *m, struct vault_import *e, const char *secret_id,
                     struct vault_material *ret)
{
        CLEAN(err_done) struct err err = { 0 };
        struct vault_subject subject = {
                .company_id = m->company_id,
                .secret_id = secret_id,
                .secret_key = e->key ? e->key : "",
                .secret_name = e->name,
                .version = 1,
        };
        int r = m->vault.provider->link(m->op, &m->vault.config, &subject, e->ref, e->version_ref,
                                        ret, &err);

        if (r < 0)
                e->refusal =
                        vault_failure_of(&err) >= 0 || r == ERR_UNPROCESSABLE || r == ERR_INVALID
                                ? arena_strdup(m->op->arena, err.msg)
                                : "Provider rejected this external reference";
}

const char *vault_name_of(const char *ref)
{
        const char *slash = strrchr(ref, '/');

        return slash && slash[1] ? slash + 1 : ref;
}

/* Preview */

static const char *reduce_metadata(struct arena *arena, const json_t *metadata)
{
        static const char *const known[] = { "createdDate", "lastAccessedDate", "lastChangedDate",
                                             "deletedDate", "hasDescription",   "hasKmsKey",
                                             "tagCount" };
        CLEAN(json_decrefp) json_t *out = json_object();
        json_t *v;

        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if ((v = json_object_get(metadata, known[i])) != NULL)
                        json_object_set(out, known[i], v);
        return json_object_size(out) > 0 ? json_to_arena(arena, out) : NULL;
}

int vault_import_preview(struct op *op, struct runtime *rt, const char *company_id,
                         const char *config_id, const struct vault_page *page,
                         struct vault_imports *ret, struct err *err)
{
        struct import m = { .op = op,
                            .rt = rt,
                            .company_id = company_id,
                            .config_id = config_id,
                            .action = "secret.remote_import.previewed" };
        CLEAN(json_decrefp) json_t *listed = NULL;
        struct arena *a = op->arena;
        json_int_t ready = 0, duplicate = 0, conflicting = 0;
        json_t *secrets, *remote;
        size_t i;
        int r = import_begin(&m, err);

        if (r < 0)
                return r;
        r = m.vault.provider->list(op, &m.vault.config, page, &listed, err);
        /* An error that the provider did not classify itself is not shown to a caller. */
        if (r < 0 && vault_failure_of(err) < 0 && r != ERR_UNPROCESSABLE && r != ERR_INVALID &&
            r != ERR_CANCELLED && r != ERR_TIMEOUT)
                return vault_fail(err, VAULT_ERROR, "Remote secret provider request failed.");
        if (r < 0)
                return r;
        secrets = json_object_get(listed, "secrets");
        *ret = (struct vault_imports){
                .config_id = config_id,
                .provider = m.vault.provider->key,
                .next_token = arena_strdup(a, json_get_string(listed, "nextToken")),
                .list = arena_alloc(a, (json_array_size(secrets) + 1) * sizeof(*ret->list)),
        };
        json_array_foreach(secrets, i, remote)
        {
                struct vault_material material = { 0 };
                struct vault_import *e = &ret->list[ret->n];
                const char *ref = json_get_string(remote, "externalRef");

                if (!ref)
                        continue;
                *e = (struct vault_import){
                        .ref = arena_strdup(a, ref),
                        .remote_name = arena_strdup(a, json_get_string(remote, "name")),
                        .version_ref =
                                arena_strdup(a, json_get_string(remote, "providerVersionRef")),
                        .metadata = reduce_metadata(a, json_object_get(remote, "providerMetadata")),
                };
                e->name =
                        e->remote_name && *e->remote_name ? e->remote_name : vault_name_of(e->ref);
                e->key = secret_normalize_key(a, e->name);
                r = find_conflicts(&m, e, err);
                if (r < 0)
                        return r;
                if (!e->same_reference)
                        try_link(&m, e, NO_SECRET, &material);
                e->status = e->same_reference               ? "duplicate"
                            : has_conflict(e) || e->refusal ? "conflict"
                                                            : "ready";
                duplicate += streq(e->status, "duplicate");
                conflicting += streq(e->status, "conflict");
                ready += streq(e->status, "ready");
                ret->n++;
        }
        return import_end(&m,
                          json_pack("{s:s, s:I, s:I, s:I, s:I}", "provider", ret->provider,
                                    "candidateCount", ready + duplicate + conflicting, "readyCount",
                                    ready, "duplicateCount", duplicate, "conflictCount",
                                    conflicting),
                          err);
}

/* Commit */

struct linking {
        const struct import *m;
        const struct vault_import *e;
        struct vault_material material;
        const char *secret_id;
};

static int insert_linked(struct db *db, void *arg, struct err *err)
{
        const struct linking *l = arg;
        const struct import *m = l->m;
        int64_t now = clock_now_us();
        struct secret s = {
                .id = l->secret_id,
                .company_id = m->company_id,
                .key = l->e->key,
                .name = l->e->name,
                .provider = m->vault.provider->key,
                .status = SECRET_ACTIVE,
                .managed_mode = SECRET_EXTERNAL,
                .external_ref = l->material.external_ref,
                .provider_config_id = m->config_id,
                .latest_version = 1,
                .description = l->e->description,
                .last_rotated_at = now,
                .created_at = now,
                .updated_at = now,
        };
        struct secret_version v = {
                .id = arena_strdup(m->op->arena, uuid_new().s),
                .secret_id = s.id,
                .version = 1,
                .material = l->material.material,
                .value_mark = l->material.value_mark,
                .version_ref = l->material.version_ref,
                .status = VERSION_CURRENT,
                .fingerprint = l->material.fingerprint,
                .created_at = now,
        };

        secret_name_creator(m->op, &s.created_by_agent_id, &s.created_by_user_id);
        v.created_by_agent_id = s.created_by_agent_id;
        v.created_by_user_id = s.created_by_user_id;
        int r = secrets_insert(db, &s, err);
        return r < 0 ? r : secret_versions_insert(db, &v, err);
}

/* The status of a row; e->reason says why. */
static const char *import_one(const struct import *m, struct vault_import *e)
{
        CLEAN(err_done) struct err err = { 0 };
        struct linking l = { .m = m, .e = e };

        if (!e->key) {
                e->reason = "Secret key is required";
                return "error";
        }
        int r = find_conflicts(m, e, &err);
        if (r >= 0 && has_conflict(e)) {
                e->reason =
                        e->same_reference ? "exact_reference_duplicate" : "name_or_key_conflict";
                return "skipped";
        }
        if (r >= 0) {
                l.secret_id = arena_strdup(m->op->arena, uuid_new().s);
                try_link(m, e, l.secret_id, &l.material);
                if (e->refusal) {
                        e->reason = e->refusal;
                        return "error";
                }
                FAULT("vault.import.before");
                r = store_write(m->op, m->rt->store, insert_linked, &l, &err);
                FAULT("vault.import.after");
        }
        if (r < 0) {
                e->reason = "Import failed";
                return "error";
        }
        e->secret_id = l.secret_id;
        return "imported";
}

int vault_import_commit(struct op *op, struct runtime *rt, const char *company_id,
                        struct vault_imports *list, struct err *err)
{
        struct import m = { .op = op,
                            .rt = rt,
                            .company_id = company_id,
                            .config_id = list->config_id,
                            .action = "secret.remote_import.completed" };
        json_int_t imported = 0, skipped = 0, failed = 0;
        int r = import_begin(&m, err);

        if (r < 0)
                return r;
        list->provider = m.vault.provider->key;
        for (size_t i = 0; i < list->n; i++) {
                struct vault_import *e = &list->list[i];

                e->key = secret_normalize_key(op->arena, e->key ? e->key : e->name);
                e->status = import_one(&m, e);
                imported += streq(e->status, "imported");
                skipped += streq(e->status, "skipped");
                failed += streq(e->status, "error");
        }
        return import_end(&m,
                          json_pack("{s:s, s:I, s:I, s:I}", "provider", list->provider,
                                    "importedCount", imported, "skippedCount", skipped,
                                    "errorCount", failed),
                          err);
}
