/* Secrets of a company. No answer holds a value. */
#include <ctype.h>

#include "api/api.h"
#include "api/encode.h"
#include "codec/check.h"
#include "core/secrets/secret.h"

/* Berth's secrets are a company's, never a user's own. */
static void encode_scope(struct jw *w, const char *name)
{
        jw_kstring(w, name, "company");
        jw_knull(w, "userSecretDefinitionId");
}

static void encode_secret(struct jw *w, const struct secret *secret)
{
        jw_object(w);
        encode_members(w, &secret_table, secret);
        encode_scope(w, "scope");
        jw_knull(w, "ownerUserId");
        jw_object_end(w);
}

static int show_secret(void *ctx, const struct secret *secret)
{
        encode_secret(ctx, secret);
        return 0;
}

static int list_secrets(struct call *c, struct err *err)
{
        return call_list_end(
                c, secret_list(c->op, c->rt, c->params[0], show_secret, call_list(c), err));
}

static int answer_secret(struct call *c, int r, const struct secret *secret)
{
        if (r >= 0)
                encode_secret(call_json(c), secret);
        return r;
}

static bool is_blank(const char *s)
{
        return !s || s[strspn(s, " \t\r\n\v\f")] == '\0';
}

/* Strings of *ret are borrowed from the body and from the arena; the value is copied to its own
 * pages. */
static int decode_secret(struct call *call, struct secret_spec *ret, struct secret_value *ret_value,
                         struct err *err)
{
        static const char *const modes[] = { SECRET_MANAGED, SECRET_EXTERNAL, NULL };
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = call->op->arena;
        int r;

        check_init(&c, call->body);
        *ret = (struct secret_spec){ 0 };
        ret->name = check_string(&c, "name", CHECK_REQUIRED, 1, 0);
        ret->key = check_string(&c, "key", CHECK_OPTIONAL, 1, 0);
        for (const char *s = ret->key; s && *s; s++)
                if (!isalnum((unsigned char)*s) && *s != '_' && *s != '.' && *s != '-') {
                        check_invalid_string(&c, "key", "regex", "Invalid");
                        break;
                }
        ret->provider = check_enum(&c, "provider", CHECK_OPTIONAL, secret_providers);
        ret->config_id = arena_strdup(a, check_uuid(&c, "providerConfigId", CHECK_NULLABLE));
        ret->managed_mode = check_enum(&c, "managedMode", CHECK_OPTIONAL, modes);
        const char *value = check_string(&c, "value", CHECK_NULLABLE, 1, 0);
        ret->description = check_string(&c, "description", CHECK_NULLABLE, 0, 0);
        ret->external_ref = check_string(&c, "externalRef", CHECK_NULLABLE, 0, 0);
        ret->version_ref = check_string(&c, "providerVersionRef", CHECK_NULLABLE, 0, 0);
        json_t *metadata = check_record(&c, "providerMetadata", CHECK_NULLABLE);
        if (!ret->managed_mode)
                ret->managed_mode = SECRET_MANAGED;
        if (check_failed(&c))
                return check_end(&c, err);
        if (streq(ret->managed_mode, SECRET_EXTERNAL)) {
                if (is_blank(ret->external_ref))
                        check_custom(&c, "externalRef",
                                     "External reference secrets require externalRef");
        } else {
                if (ret->external_ref)
                        check_custom(&c, "externalRef", "Managed secrets cannot set externalRef");
                if (is_blank(value))
                        check_custom(&c, "value", "Managed secrets require value");
        }
        if (!check_failed(&c) && streq(ret->managed_mode, SECRET_MANAGED)) {
                r = secret_value_set(ret_value, value, strlen(value), err);
                if (r < 0)
                        return r;
        }
        ret->provider_metadata = metadata ? json_to_arena(a, metadata) : NULL;
        ret->external_ref = arena_strtrim(a, ret->external_ref);
        return check_end(&c, err);
}

static int create_secret(struct call *c, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        struct secret_spec spec;
        struct secret secret;
        int r = secret_may(c->op, c->rt, c->params[0], true, err);

        if (r >= 0)
                r = decode_secret(c, &spec, &value, err);
        if (r >= 0)
                r = secret_create(c->op, c->rt, c->params[0], &spec, value.data ? &value : NULL,
                                  &secret, err);
        return answer_secret(c, r, &secret);
}

static int import_one(struct call *c, json_t *item, struct secret *ret, struct err *err)
{
        struct secret_spec spec = {
                .name = json_get_string(item, "name"),
                .key = json_get_string(item, "key"),
                .description = json_get_string(item, "description"),
                .provider = VAULT_LOCAL,
                .managed_mode = SECRET_MANAGED,
        };
        json_t *material = json_get_object(item, "material");

        if (is_blank(spec.name) || !material)
                return err_set(err, ERR_INVALID, "needs a name and the material");
        return secret_import_sealed(c->op, c->rt, c->params[0], &spec,
                                    json_to_arena(c->op->arena, material), ret, err);
}

/* {secrets: [{name, key?, description?, material}]}. The answer counts them and names those that
 * could not be imported. */
static int import_sealed(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check body = { 0 };
        struct jw *w = call_json(c);
        int64_t imported = 0, failed = 0;
        json_t *secrets, *item;
        size_t i;
        int r = secret_may(c->op, c->rt, c->params[0], true, err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        secrets = check_array(&body, "secrets", CHECK_REQUIRED);
        if (secrets)
                check_array_size(&body, "secrets", secrets, 1, 1000);
        r = check_end(&body, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_key(w, "results");
        jw_array(w);
        json_array_foreach(secrets, i, item)
        {
                CLEAN(err_done) struct err why = { 0 };
                struct secret made;
                bool good = import_one(c, item, &made, &why) >= 0;

                imported += good;
                failed += !good;
                jw_object(w);
                jw_kstring(w, "name", json_get_string(item, "name"));
                jw_kstring(w, "status", good ? "imported" : "error");
                jw_kstring(w, "reason", good ? NULL : why.msg);
                jw_kstring(w, "secretId", good ? made.id : NULL);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_kint(w, "importedCount", imported);
        jw_kint(w, "errorCount", failed);
        jw_object_end(w);
        return 0;
}

static int show_one_secret(struct call *c, struct err *err)
{
        struct secret secret;

        return answer_secret(c, secret_get(c->op, c->rt, c->params[0], &secret, err), &secret);
}

static int rotate_secret(struct call *c, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        CLEAN(check_done) struct check body = { 0 };
        struct arena *a = c->op->arena;
        struct secret_rotation wanted = { 0 };
        struct secret secret;
        int r = secret_may_change(c->op, c->rt, c->params[0], err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        const char *text = check_string(&body, "value", CHECK_NULLABLE, 1, 0);
        wanted.external_ref =
                arena_strtrim(a, check_string(&body, "externalRef", CHECK_NULLABLE, 0, 0));
        wanted.version_ref = check_string(&body, "providerVersionRef", CHECK_NULLABLE, 0, 0);
        wanted.has_config = check_has(&body, "providerConfigId");
        wanted.config_id = arena_strdup(a, check_uuid(&body, "providerConfigId", CHECK_NULLABLE));
        if (text && !check_failed(&body)) {
                r = secret_value_set(&value, text, strlen(text), err);
                if (r < 0)
                        return r;
                wanted.value = is_blank(text) ? NULL : &value;
        }
        r = check_end(&body, err);
        if (r >= 0)
                r = secret_rotate(c->op, c->rt, c->params[0], &wanted, &secret, err);
        return answer_secret(c, r, &secret);
}

static int update_secret(struct call *c, struct err *err)
{
        static const char *const statuses[] = { SECRET_ACTIVE, SECRET_DISABLED, SECRET_ARCHIVED,
                                                SECRET_DELETED, NULL };
        CLEAN(check_done) struct check body = { 0 };
        struct secret_change change = { .force = call_query_flag(c, "force") };
        struct secret secret;
        int r = secret_may_change(c->op, c->rt, c->params[0], err);

        if (r < 0)
                return r;
        check_init(&body, c->body);
        change.name = check_string(&body, "name", CHECK_OPTIONAL, 1, 0);
        change.key = check_string(&body, "key", CHECK_OPTIONAL, 1, 0);
        change.status = check_enum(&body, "status", CHECK_OPTIONAL, statuses);
        change.has_config = check_has(&body, "providerConfigId");
        change.config_id =
                arena_strdup(c->op->arena, check_uuid(&body, "providerConfigId", CHECK_NULLABLE));
        change.has_description = check_has(&body, "description");
        change.description = check_string(&body, "description", CHECK_NULLABLE, 0, 0);
        change.has_ref = check_has(&body, "externalRef");
        change.external_ref = check_string(&body, "externalRef", CHECK_NULLABLE, 0, 0);
        change.has_metadata = check_has(&body, "providerMetadata");
        json_t *metadata = check_record(&body, "providerMetadata", CHECK_NULLABLE);
        if (metadata && !check_failed(&body))
                change.metadata = json_to_arena(c->op->arena, metadata);
        r = check_end(&body, err);
        if (r >= 0)
                r = secret_update(c->op, c->rt, c->params[0], &change, &secret, err);
        return answer_secret(c, r, &secret);
}

static int remove_secret(struct call *c, struct err *err)
{
        int r = secret_remove(c->op, c->rt, c->params[0], call_query_flag(c, "force"), err);

        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

static int show_usage(void *ctx, const struct secret_usage *u)
{
        CLEAN(buf_done) struct buf href = BUF_INIT;
        const struct secret_binding *b = &u->binding;
        struct jw *w = ctx;

        jw_object(w);
        encode_members(w, &secret_binding_table, b);
        /* The package calls it so when nobody said otherwise. */
        jw_kstring(w, "projectionClass", "unclassified");
        jw_kstring(w, "projectionAllowlistKey", NULL);
        jw_key(w, "target");
        jw_object(w);
        jw_kstring(w, "type", b->target_type);
        jw_kstring(w, "id", b->target_id);
        jw_kstring(w, "label", u->target.label ? u->target.label : b->target_id);
        /* Where a person finds it in the page. */
        if (u->target.slug && !streq(b->target_type, "run") && !streq(b->target_type, "system"))
                buf_appendf(&href, "/%ss/%s", b->target_type, u->target.slug);
        jw_kstring(w, "href", href.len ? buf_str(&href) : NULL);
        jw_kstring(w, "status", u->target.status);
        jw_object_end(w);
        jw_object_end(w);
        return 0;
}

static int list_usage(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);

        jw_object(w);
        jw_kstring(w, "secretId", c->params[0]);
        jw_key(w, "bindings");
        jw_array(w);
        int r = secret_list_usage(c->op, c->rt, c->params[0], show_usage, w, err);
        jw_array_end(w);
        jw_object_end(w);
        return r;
}

static int show_version(void *ctx, const struct secret_version *version)
{
        encode_row(ctx, &secret_version_table, version);
        return 0;
}

static int list_versions(struct call *c, struct err *err)
{
        return call_list_end(c, secret_list_versions(c->op, c->rt, c->params[0], show_version,
                                                     call_list(c), err));
}

static int show_event(void *ctx, const struct secret_event *event)
{
        jw_object(ctx);
        encode_members(ctx, &secret_event_table, event);
        encode_scope(ctx, "secretScope");
        jw_knull(ctx, "responsibleUserId");
        jw_knull(ctx, "credentialOwnerUserId");
        jw_knull(ctx, "credentialSubjectType");
        jw_knull(ctx, "credentialSubjectId");
        jw_object_end(ctx);
        return 0;
}

static int list_events(struct call *c, struct err *err)
{
        return call_list_end(
                c, secret_list_events(c->op, c->rt, c->params[0], show_event, call_list(c), err));
}

static int rekey_secrets(struct call *c, struct err *err)
{
        int64_t count;
        struct jw *w = call_json(c);
        int r = secret_rekey(c->op, c->rt, &count, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_kbool(w, "ok", true);
        jw_kint(w, "resealedCount", count);
        jw_object_end(w);
        return 0;
}

const struct route routes_secrets[] = {
        { "GET", "/api/companies/:companyId/secrets", .fn = list_secrets },
        { "POST", "/api/companies/:companyId/secrets", .fn = create_secret, .status = 201,
          .flags = ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/secrets/import-sealed", .fn = import_sealed,
          .flags = ROUTE_WAITS },
        { "GET", "/api/secrets/:id", .fn = show_one_secret },
        { "PATCH", "/api/secrets/:id", .fn = update_secret, .flags = ROUTE_WAITS },
        { "DELETE", "/api/secrets/:id", .fn = remove_secret, .flags = ROUTE_WAITS },
        { "POST", "/api/secrets/:id/rotate", .fn = rotate_secret, .flags = ROUTE_WAITS },
        { "GET", "/api/secrets/:id/usage", .fn = list_usage },
        { "GET", "/api/secrets/:id/versions", .fn = list_versions },
        { "GET", "/api/secrets/:id/access-events", .fn = list_events },
        { "POST", "/api/instance/secrets/rekey", .fn = rekey_secrets, .flags = ROUTE_BODY_FREE },
        { 0 },
};
