/* Functions that the files of core/secrets/secret.h share, and reading secrets. */
#include "core/secrets/secret.h"

#include "base/clock.h"
#include "core/secrets/secret_draft.h"

const char *const secret_providers[] = { VAULT_LOCAL, VAULT_AWS, VAULT_GCP, VAULT_HASHI, NULL };

int secret_guard(struct db *db, const struct op *op, const char *company_id, bool write,
                 struct err *err)
{
        int r = access_board(op->actor, err);

        return r < 0 ? r : access_company(db, op->actor, company_id, write, err);
}

int secret_may_link(const struct runtime *rt, const struct op *op, struct err *err)
{
        if (access_may_use_host(rt, op->actor))
                return 0;
        return err_set(err, ERR_FORBIDDEN,
                       "What lies in a vault outside is read with this server's own credentials, "
                       "other companies' secrets among it, so an instance admin has to list and "
                       "link it. Give the value instead (managedMode \"" SECRET_MANAGED
                       "\"); or the operator lets owners do it with local_for_owners = true "
                       "(berth.toml(5)).");
}

int secret_load(struct db *db, const struct op *op, const char *id, bool write, bool deleted_too,
                struct secret *ret, struct err *err)
{
        int r = access_board(op->actor, err);

        if (r >= 0)
                r = secrets_get(db, id, op->arena, ret, err);
        if (r >= 0)
                r = access_company(db, op->actor, ret->company_id, write, err);
        if (r >= 0 && !deleted_too && streq(ret->status, SECRET_DELETED))
                r = err_set(err, ERR_NOT_FOUND, "Secret not found");
        return r;
}

int secret_store(struct db *db, struct secret *secret, struct err *err)
{
        int64_t seen = secret->updated_at;

        secret->updated_at = clock_now_us();
        int r = secrets_update(db, secret, seen, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT,
                               "The secret was changed in the meantime; read it again.");
        return r < 0 ? r : 0;
}

void secret_name_creator(const struct op *op, const char **ret_agent, const char **ret_user)
{
        const struct actor *a = op->actor;

        *ret_agent = a && a->type == ACTOR_AGENT ? a->agent_id : NULL;
        *ret_user = a && a->type == ACTOR_BOARD ? a->user_id : NULL;
}

struct vault_subject secret_subject(const struct secret *s, int64_t version)
{
        return (struct vault_subject){
                .company_id = s->company_id,
                .secret_id = s->id,
                .secret_key = s->original_key ? s->original_key : s->key,
                .secret_name = s->original_name ? s->original_name : s->name,
                .version = version,
        };
}

struct vault_material secret_material(const struct secret *secret,
                                      const struct secret_version *version)
{
        return (struct vault_material){
                .material = version->material,
                .external_ref = secret->external_ref,
                .version_ref = version->version_ref,
                .value_mark = version->value_mark,
                .fingerprint = version->fingerprint,
        };
}

static bool is_key_char(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '.' || c == '-';
}

const char *secret_normalize_key(struct arena *arena, const char *text)
{
        const char *trimmed = arena_strtrim(arena, text);
        char *key, *out;

        if (!trimmed)
                return NULL;
        key = out = arena_alloc(arena, strlen(trimmed) + 1);
        for (const char *p = trimmed; *p; p++) {
                char c = *p >= 'A' && *p <= 'Z' ? (char)(*p + 32) : *p;

                if (is_key_char(c))
                        *out++ = c;
                else if (p == trimmed || out == key || is_key_char(p[-1]) ||
                         (p[-1] >= 'A' && p[-1] <= 'Z'))
                        *out++ = '-';
        }
        *out = '\0';
        while (*key == '-')
                key++;
        size_t len = strlen(key);
        while (len > 0 && key[len - 1] == '-')
                key[--len] = '\0';
        if (len > 120)
                key[120] = '\0';
        return *key ? key : NULL;
}

/* Rights and reading */

int secret_may(struct op *op, struct runtime *rt, const char *company_id, bool write,
               struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : secret_guard(db, op, company_id, write, err);
}

int secret_may_change(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct secret secret;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : secret_load(db, op, id, true, false, &secret, err);
}

int secret_get(struct op *op, struct runtime *rt, const char *id, struct secret *ret,
               struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : secret_load(db, op, id, false, false, ret, err);
}

int secret_list(struct op *op, struct runtime *rt, const char *company_id, secret_fn fn, void *ctx,
                struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = secret_guard(db, op, company_id, false, err);
        return r < 0 ? r : secrets_list(db, company_id, op->arena, fn, ctx, err);
}

int secret_list_versions(struct op *op, struct runtime *rt, const char *id, secret_version_fn fn,
                         void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct secret secret;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = secret_load(db, op, id, false, false, &secret, err);
        return r < 0 ? r : secret_versions_list(db, id, op->arena, fn, ctx, err);
}

/* A removed secret has left its events, and they name its company. */
int secret_list_events(struct op *op, struct runtime *rt, const char *id, secret_event_fn fn,
                       void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct secret secret;
        const char *company;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r < 0)
                return r;
        r = secret_load(db, op, id, false, true, &secret, err);
        if (r == ERR_NOT_FOUND) {
                r = secret_events_company(db, id, op->arena, &company, err);
                if (r == 0)
                        return err_set(err, ERR_NOT_FOUND, "Secret not found");
                if (r > 0)
                        r = access_company(db, op->actor, company, false, err);
        }
        return r < 0 ? r : secret_events_list(db, id, op->arena, fn, ctx, err);
}

struct usage_list {
        struct db *db;
        struct arena *arena;
        int (*fn)(void *ctx, const struct secret_usage *usage);
        void *ctx;
        struct err *err;
};

static int show_binding(void *ctx, const struct secret_binding *binding)
{
        struct usage_list *q = ctx;
        struct secret_usage usage = { .binding = *binding };
        int r = secret_bindings_target(q->db, binding, q->arena, &usage.target, q->err);

        return r < 0 ? r : q->fn(q->ctx, &usage);
}

int secret_list_usage(struct op *op, struct runtime *rt, const char *id,
                      int (*fn)(void *ctx, const struct secret_usage *usage), void *ctx,
                      struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct secret secret;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = secret_load(db, op, id, false, false, &secret, err);
        return r < 0 ? r
                     : secret_bindings_of_secret(
                               db, id, op->arena, show_binding,
                               &(struct usage_list){ db, op->arena, fn, ctx, err }, err);
}
