/* Secrets of a company: made, changed and removed by board callers; used by the agents and other
 * targets that they are bound to. Values go into a vault (secret/vault.h) and come out at run time
 * only; no function here puts one into an answer, an error or the audit trail.
 *
 * A secret whose value lives outside our database is reserved (status `archived`, `reserved_by`)
 * before its vault is asked, and becomes active in one transaction; the same for a version.
 * secret_sweep() cleans up reservations that a crash left.
 *
 * Operation threads; results live in the operation's arena. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "secret/vault.h"
#include "store/secret_bindings.h"
#include "store/secrets.h"

extern const char *const secret_providers[]; /* the four ids, NULL */

/* Managing: board callers with access to the company. */

/* Whether the caller may see or make secrets of the company, or change this one: asked before the
 * body of a request is looked at. The operations check again. */
int secret_may(struct op *op, struct runtime *rt, const char *company_id, bool write,
               struct err *err);
int secret_may_change(struct op *op, struct runtime *rt, const char *id, struct err *err);

struct secret_spec {
        const char *name, *key; /* key NULL: from the name */
        const char *provider;   /* NULL: the configured one */
        const char *config_id, *managed_mode, *description;
        const char *external_ref, *version_ref, *provider_metadata;
        const char *owner_environment_id;
};
/* `value` is NULL for a reference to a secret that the vault holds already. */
int secret_create(struct op *op, struct runtime *rt, const char *company_id,
                  const struct secret_spec *spec, const struct secret_value *value,
                  struct secret *ret, struct err *err);
/* Make a secret of one that Paperclip sealed: `material` is opened and sealed anew. */
int secret_import_sealed(struct op *op, struct runtime *rt, const char *company_id,
                         const struct secret_spec *spec, const char *material, struct secret *ret,
                         struct err *err);

struct secret_rotation {
        const struct secret_value *value; /* NULL: none was given */
        const char *external_ref, *version_ref, *config_id;
        bool has_config; /* config_id is to be stored, NULL too */
};
/* ERR_CONFLICT when another caller rotated it meanwhile. */
int secret_rotate(struct op *op, struct runtime *rt, const char *id,
                  const struct secret_rotation *wanted, struct secret *ret, struct err *err);

/* NULL: stays as it is, unless has_* says that it was given. */
struct secret_change {
        const char *name, *key, *status, *config_id, *description, *external_ref, *metadata;
        bool has_config, has_description, has_ref, has_metadata;
        bool force; /* a secret in use may be set to the status `deleted` too */
};
int secret_update(struct op *op, struct runtime *rt, const char *id,
                  const struct secret_change *change, struct secret *ret, struct err *err);
/* ERR_CONFLICT when it is in use, unless `force`. */
int secret_remove(struct op *op, struct runtime *rt, const char *id, bool force, struct err *err);

int secret_get(struct op *op, struct runtime *rt, const char *id, struct secret *ret,
               struct err *err);
int secret_list(struct op *op, struct runtime *rt, const char *company_id, secret_fn fn, void *ctx,
                struct err *err);
int secret_list_versions(struct op *op, struct runtime *rt, const char *id, secret_version_fn fn,
                         void *ctx, struct err *err);
/* Also for a removed secret. */
int secret_list_events(struct op *op, struct runtime *rt, const char *id, secret_event_fn fn,
                       void *ctx, struct err *err);

struct secret_usage {
        struct secret_binding binding;
        struct secret_target target; /* label NULL: the target is gone */
};
int secret_list_usage(struct op *op, struct runtime *rt, const char *id,
                      int (*fn)(void *ctx, const struct secret_usage *usage), void *ctx,
                      struct err *err);

/* Using */

/* The user of a secret, and the binding that allows the use. */
struct secret_use {
        const char *consumer_type, *consumer_id, *config_path;
        const char *actor_type, *actor_id;         /* actor_id may be NULL */
        const char *issue_id, *run_id, *plugin_id; /* may be NULL */
        /* For giving up the place of a lease: its environment may have changed its bindings
         * since. */
        bool for_cleanup;
        bool for_draft; /* of a configuration that is not saved, and has no bindings */
};

/* The value. version 0: the one that the binding selects, the latest without a binding. Without a
 * use no binding is needed and no event is written: for the daemon itself only. */
int secret_resolve(struct op *op, struct runtime *rt, const char *company_id, const char *secret_id,
                   int64_t version, const struct secret_use *use, struct secret_value *ret,
                   struct err *err);

/* The configuration of an environment with its secrets in it, for its kind. *ret is a new reference
 * and holds values in clear. `schema` says which members of a configuration are references, for a
 * kind that has them by schema; NULL: none. */
struct secret_context {
        const char *issue_id, *run_id;
        bool for_cleanup;
};
int secret_resolve_config(struct op *op, struct runtime *rt, const char *company_id,
                          const char *environment_id, const struct kind *kind, json_t *config,
                          const json_t *schema, const struct secret_context *context, json_t **ret,
                          struct err *err);

/* What the member at `path` refers to, in a configuration of a kind whose secrets a schema names;
 * false: it is no reference. */
bool secret_read_member(const struct kind *kind, const json_t *config, const char *path,
                        const char **ret_id, int64_t *ret_version);
/* The same for a configuration that is probed and not saved: the {type: "secret_ref"} of `sent`
 * become values in `config`, which is changed in place. Only for board users, who the caller has
 * seen to manage the company's environments; nothing is resolved whose event is not recorded. */
int secret_resolve_draft(struct op *op, struct runtime *rt, const char *company_id,
                         const struct kind *kind, const json_t *sent, const json_t *schema,
                         json_t *config, struct err *err);

/* Variables: {NAME: "text" | {type: "plain", value} | {type: "secret_ref", secretId, version?}} */

/* Check and bring into one form: texts become {type: "plain"}. Inside a store function; *ret is a
 * new reference. */
int secret_check_env(struct db *db, const struct runtime *rt, const char *company_id, json_t *env,
                     struct arena *arena, json_t **ret, struct err *err);
/* Replace the target's bindings at `prefix`NAME by those of the variables; others stay. Inside a
 * store_write() function. */
int secret_sync_env_bindings(struct db *db, const char *company_id, const char *target_type,
                             const char *target_id, const char *prefix, const json_t *env,
                             struct arena *arena, struct err *err);

struct secret_env_var {
        const char *name;
        struct secret_value value;
        bool is_secret;
};
struct secret_env {
        struct secret_env_var *vars; /* heap */
        size_t n_vars;
        json_t *manifest; /* [{configPath, envKey, secretId, secretKey, version, provider, outcome}]
                           */
};
/* Resolve all variables or none: a required one that fails fails the call, an optional one is left
 * out. The config path of the use is the prefix, "env." for agents. */
int secret_resolve_env(struct op *op, struct runtime *rt, const char *company_id, const json_t *env,
                       const struct secret_use *use, struct secret_env *ret, struct err *err);
void secret_env_done(struct secret_env *env);

/* Bindings */

struct secret_ref {
        const char *secret_id, *config_path;
        int64_t version; /* 0: latest */
        bool is_optional;
};
/* ERR_CONFLICT "Secret binding already exists at ..."; ERR_NOT_FOUND or ERR_UNPROCESSABLE when the
 * secret is not one of the company's. Inside a store_write() function. */
int secret_bind(struct db *db, const char *company_id, const char *target_type,
                const char *target_id, const struct secret_ref *ref, struct arena *arena,
                struct err *err);
/* Make these the target's only bindings. Inside a store_write() function. */
int secret_sync_refs(struct db *db, const char *company_id, const char *target_type,
                     const char *target_id, const struct secret_ref *refs, size_t n_refs,
                     struct arena *arena, struct err *err);

/* Upkeep */

/* Clean up what crashes and failing vaults left; finish a change of the master key. */
int secret_sweep(struct op *op, struct runtime *rt, struct err *err);
/* Take a new master key into use and seal everything with it. Continues an interrupted earlier
 * change. *ret_count: versions that were sealed anew. */
int secret_rekey(struct op *op, struct runtime *rt, int64_t *ret_count, struct err *err);
