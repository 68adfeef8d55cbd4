/* Places that a plugin's worker keeps. There are two kinds, in one folder since they differ in
 * little: a plugin's driver (plugin_driver.c) and a plugin's sandbox provider (plugin_sandbox.c).
 * This file is what both do with their places.
 *
 * A place records which plugin serves it and with which configuration, so every later call goes to
 * that plugin with exactly that configuration, whatever became of the environment. Its `config` is
 * the stored configuration (secrets as references) plus members of our own:
 *
 *   "$plugin": {"id", "key", "driverKey"}   the plugin that serves it
 *   "$adapter": "..."                       what it was opened for: providers choose images by it
 *   "$lease":  {...}                        what the provider said of it, secrets stripped
 *   "$box":    {...}                        a box inside, if there is one (plugin_box.h)
 *
 * Calls are made with secrets resolved; resolved values are never stored. Operation threads;
 * results live in the operation's arena. */
#pragma once

#include "core/kinds/kind.h"
#include "plugin/host.h"
#include "store/plugins.h"

extern const struct kind kind_plugin_driver, kind_plugin_sandbox;

/* A driver of a plugin, as its manifest declares it. */
struct plugin_target {
        const char *plugin_id, *plugin_key, *driver_key;
        const char *status;   /* of the plugin */
        const json_t *driver; /* its element of environmentDrivers */
        const json_t *schema; /* configSchema; NULL: none */
        bool is_sandbox;      /* a provider of the sandbox driver; else of the plugin driver */
};

/* The owner of a call: decides how secrets are resolved and what the worker is told. */
struct plugin_scope {
        const char *company_id;
        const char *environment_id;    /* "unsaved": secrets are taken as they stand */
        const char *issue_id, *run_id; /* NULL: none */
        const char *place_id;          /* a place that is being given up; NULL: normal use */
};

/* Limits by the rules of the protocol; 0: the default of a call. */
int64_t plugin_limit_lease(const struct plugin_target *target, const json_t *config);
int64_t plugin_limit_execute(int64_t requested_ms, const json_t *config);

/* Find the plugin that serves this provider key: one that runs now, or one that should run and is
 * waited for a while. ERR_UNPROCESSABLE with Paperclip's texts. */
int plugin_await_provider(struct op *op, struct runtime *rt, const char *provider,
                          struct plugin_target *ret, struct err *err);
/* The same, waiting only for a worker that starts with the daemon: 1 when one runs, 0 when none
 * does. */
int plugin_running_provider(struct op *op, struct runtime *rt, const char *provider,
                            struct plugin_target *ret, struct err *err);
/* The driver of a plugin (by id or key) that is ready and runs; ERR_UNPROCESSABLE with Paperclip's
 * texts. `plugin_key` is for the texts. */
int plugin_ready_driver(struct op *op, struct runtime *rt, const char *id_or_key,
                        const char *plugin_key, const char *driver_key, struct plugin_target *ret,
                        struct err *err);

/* The document of a row, kept by the arena; NULL when it is no object. */
json_t *plugin_object(struct op *op, const char *text);
/* The configuration for a place that this target will keep: `config` with "$plugin" and "$adapter"
 * (NULL: none). */
const char *plugin_place_config(struct op *op, const struct plugin_target *target,
                                const json_t *config, const char *adapter_type);
/* What a worker gets as configuration: without `provider` and our own members. A new reference. */
json_t *plugin_clean_config(const json_t *stored);
/* The same for a call about a place: for environments of the plugin driver it is {} once the
 * environment no longer names this driver. Kept by the arena. */
int plugin_config_for(struct op *op, struct runtime *rt, const struct place *place,
                      const struct plugin_target *target, const json_t *recorded, json_t **ret,
                      struct err *err);

/* The schema of what an environment of the plugin driver stores; NULL: none. Kept by the arena. */
const json_t *plugin_driver_schema(struct op *op, const struct plugin_target *target);

/* A call with the configuration resolved: params get `config`, errors are free of secrets. `params`
 * is taken. *ret is kept by the arena. */
struct plugin_request {
        const struct plugin_target *target;
        const struct plugin_scope *scope;
        const char *method;
        const json_t *config; /* stored, clean */
        json_t *take_params;  /* further members */
        int64_t limit_ms;
        const char *redact_member; /* a text of the answer that must not hold secrets; NULL: none */
        void (*late)(void *ctx, const json_t *result);
        void *ctx;
};
int plugin_request(struct op *op, struct runtime *rt, const struct plugin_request *q, json_t **ret,
                   struct err *err);

/* What a worker says that misses a file of this machine: which setting gives it the file. NULL:
 * nothing to say. In the arena. */
const char *plugin_hint_files(const struct op *op, const struct runtime *rt,
                              const struct plugin_target *target, const char *said);
/* Puts the same in front of an error; returns r. */
int plugin_explain(const struct op *op, const struct runtime *rt,
                   const struct plugin_target *target, int r, struct err *err);

/* Resolve the secrets of a configuration. *ret is a new reference; *ret_secrets the values, for
 * keeping them out of texts; both only for the call at hand. */
int plugin_resolve_config(struct op *op, struct runtime *rt, const struct plugin_target *target,
                          const struct plugin_scope *scope, const json_t *config, json_t **ret,
                          const char *const **ret_secrets, struct err *err);

/* The values that stand in clear where the schema calls them secret: borrowed from config, the list
 * from the arena; NULL-terminated. */
const char *const *plugin_secret_values(struct op *op, const struct plugin_target *target,
                                        const json_t *config);

/* The operations on places; see struct kind. */
int plugin_place_open(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err);
int plugin_place_resume(struct op *op, struct runtime *rt, const struct place *place,
                        const struct lease_request *req, struct provider_lease *ret,
                        struct err *err);
/* End the commands there, then environmentReleaseLease, or with `destroy` environmentDestroyLease
 * where the worker has it. */
int plugin_place_give_up(struct op *op, struct runtime *rt, const struct place *place, bool destroy,
                         struct err *err);
/* Paperclip's metadata of a fresh lease. */
void plugin_place_describe(const struct place *place, const struct provider_lease *opened,
                           bool resumed, json_t *metadata);

/* plugin_list.c: what exists at a provider. Whether the worker can tell; who owns what is made for
 * a place (NULL: no certain one), a new reference; the id of the sandbox that was made for a place,
 * NULL when there is none. */
bool plugin_target_lists(const struct runtime *rt, const struct plugin_target *target);
bool plugin_place_can_list(const struct runtime *rt, const struct place *place);
json_t *plugin_owner(const struct runtime *rt, const char *place_id);
int plugin_place_find(struct op *op, struct runtime *rt, const struct place *place,
                      const struct plugin_target *target, const json_t *config, const char **ret_id,
                      struct err *err);
int plugin_sandbox_list(struct op *op, struct runtime *rt, const struct kind *kind,
                        kind_found_fn fn, void *ctx, struct err *err);

/* A lease that exists: its place, the plugin that serves it, and the stored configuration
 * (borrowed). */
struct plugin_lease {
        const struct lease *lease;
        struct place place;
        struct plugin_target target;
        struct plugin_scope scope;
        json_t *config;
        json_t *metadata; /* of the lease; never NULL */
};
int plugin_lease_load(struct op *op, struct runtime *rt, const struct lease *lease,
                      struct plugin_lease *ret, struct err *err);
/* What the provider said of it; may be NULL. */
const json_t *plugin_lease_said(const struct plugin_lease *l);
/* {providerLeaseId, metadata, expiresAt}: a new reference. */
json_t *plugin_lease_ref(const struct plugin_lease *l);
int plugin_lease_realize(struct op *op, struct runtime *rt, const struct environment *env,
                         const struct lease *lease, json_t *workspace, json_t **ret,
                         struct err *err);
int plugin_lease_resume(struct op *op, struct runtime *rt, const struct lease *lease, json_t **ret,
                        struct err *err);
int plugin_lease_admit_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                            const struct exec_request *req, struct err *err);
int plugin_lease_prepare_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                              struct exec_request *req, struct err *err);
int plugin_place_end_commands(struct op *op, struct runtime *rt, const struct place *place,
                              struct err *err);

/* Configurations whose rules only a plugin knows: its worker is asked (plugin_validate.c). */

/* Let the worker check a normalised configuration and replace it by the worker's version; members
 * of struct kind, for the two kinds. ERR_UNPROCESSABLE with the worker's first complaint and all of
 * them as details. */
int plugin_validate_provider(struct op *op, struct runtime *rt, json_t **config,
                             const json_t **ret_schema, struct err *err);
int plugin_validate_driver(struct op *op, struct runtime *rt, json_t **config,
                           const json_t **ret_schema, struct err *err);

/* Ask the worker whether the environment can be used. The secrets of an unsaved configuration are
 * taken as they stand. */
int plugin_probe_provider(struct op *op, struct runtime *rt, const struct probe_target *target,
                          json_t *config, struct probe_result *ret, struct err *err);
int plugin_probe_driver(struct op *op, struct runtime *rt, const struct probe_target *target,
                        json_t *config, struct probe_result *ret, struct err *err);
