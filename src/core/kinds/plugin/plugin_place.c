/* Opening, resuming and giving up places by calls to the plugin's worker. */
#include "core/kinds/plugin/plugin_place.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "codec/secret_refs.h"
#include "core/access/access.h"
#include "core/exec/exec.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_late.h"
#include "core/places/lease_record.h"
#include "core/places/place.h"
#include "core/plugins/plugin_registry.h"

#define ACQUIRE "environmentAcquireLease"
#define RESUME  "environmentResumeLease"
#define RELEASE "environmentReleaseLease"
#define DESTROY "environmentDestroyLease"

json_t *plugin_object(struct op *op, const char *text)
{
        json_t *v = json_from_text(op->arena, text);

        return json_is_object(v) ? v : NULL;
}

const char *plugin_place_config(struct op *op, const struct plugin_target *target,
                                const json_t *config, const char *adapter_type)
{
        CLEAN(json_decrefp) json_t *recorded = json_copy((json_t *)config);

        json_object_set_new(recorded, "$plugin",
                            json_pack("{s:s, s:s, s:s}", "id", target->plugin_id, "key",
                                      target->plugin_key, "driverKey", target->driver_key));
        if (adapter_type)
                json_object_set_new(recorded, "$adapter", json_string(adapter_type));
        return json_to_arena(op->arena, recorded);
}

/* The plugin that serves a place, as it was recorded. */
static int target_of(struct op *op, struct runtime *rt, const json_t *recorded,
                     struct plugin_target *ret, struct err *err)
{
        const json_t *plugin = json_get_object(recorded, "$plugin");
        const char *id = json_get_string(plugin, "id"), *key = json_get_string(plugin, "key");
        const char *driver = json_get_string(plugin, "driverKey");
        int r;

        if (!id || !key || !driver)
                return err_set(err, ERR_CORRUPT, "The place does not say which plugin keeps it.");
        r = plugin_ready_driver(op, rt, id, key, driver, ret, err);
        if (r >= 0)
                ret->is_sandbox = json_get_string(recorded, "provider") != NULL;
        return r == ERR_UNPROCESSABLE ? err_wrap(err, ERR_PROVIDER, "the place's plugin") : r;
}

static struct plugin_scope scope_of(const struct place *place, const char *issue_id)
{
        return (struct plugin_scope){
                .company_id = place->company_id,
                .environment_id = place->environment_id,
                .issue_id = issue_id,
                .run_id = place->holder_run_id,
        };
}

/* What a provider answers */

/* Without what the schema calls secret, wherever the provider repeats it. */
static json_t *strip_secrets(const struct plugin_target *target, const json_t *metadata)
{
        json_t *stripped = metadata ? json_deep_copy(metadata) : json_object();
        json_t *paths = secret_ref_paths(target->schema);
        json_t *path;
        size_t i;

        json_array_foreach(paths, i, path) json_path_prune(stripped, json_string_value(path));
        json_decref(paths);
        return stripped;
}

/* The provider answered, so something exists; an answer that cannot be read leaves the place
 * uncertain. */
static int read_lease(struct op *op, const struct plugin_target *target, const json_t *recorded,
                      const json_t *answer, struct provider_lease *ret, struct err *err)
{
        const json_t *id = json_object_get(answer, "providerLeaseId");
        const char *expires = json_get_string(answer, "expiresAt");
        CLEAN(json_decrefp) json_t *next = NULL; /* the place's, with what the provider said */
        json_t *metadata;

        if (!json_is_object(answer) || (id && !json_is_string(id) && !json_is_null(id)))
                return err_set(err, ERR_UNCERTAIN,
                               "Plugin \"%s\" answered with something that is no lease.",
                               target->plugin_key);
        metadata = json_keep(op->arena, strip_secrets(target, json_get_object(answer, "metadata")));
        next = json_copy((json_t *)recorded);
        json_object_set(next, "$lease", metadata);
        *ret = (struct provider_lease){
                .id = json_string_length(id) > 0 ? arena_strdup(op->arena, json_string_value(id))
                                                 : NULL,
                .metadata = metadata,
                .config = json_to_arena(op->arena, next),
        };
        if (expires && !clock_parse_iso(expires, &ret->expires_at))
                ret->expires_at = 0;
        return 0;
}

/* Opening */

static bool outcome_unknown(int r)
{
        return r == ERR_UNCERTAIN || r == ERR_TIMEOUT || r == ERR_CANCELLED;
}

/* A note for the operator who has to find out: what was asked, when, for whom. */
static int explain_unknown(const struct plugin_target *target, const struct lease_request *req,
                           int64_t asked_at, int r, struct err *err)
{
        char since[ISO_TIME_LEN + 1];

        clock_iso(asked_at, since);
        return err_wrap(err, r,
                        "Plugin \"%s\" was asked for a lease at %s for run %s, and what "
                        "became of it is not known",
                        target->plugin_key, since, req->run_id ? req->run_id : "none");
}

/* Whom the place is for. Providers choose images and decide about reuse by these members, so they
 * are left out where there is nothing to say. */
static void add_holder(json_t *params, const struct lease_request *req)
{
        const struct {
                const char *name, *value;
        } members[] = {
                { "workspaceMode", req->execution_workspace_mode },
                { "agentId", req->agent_id },
                { "executionWorkspaceId", req->execution_workspace_id },
                { "adapterType", req->adapter_type },
                { "requestedCwd", req->requested_cwd },
        };

        for (size_t i = 0; i < ARRAY_LEN(members); i++)
                if (members[i].value)
                        json_object_set_new(params, members[i].name, json_string(members[i].value));
        if (req->workspace_settings)
                json_object_set(params, "executionWorkspaceSettings",
                                (json_t *)req->workspace_settings);
}

static json_t *acquire_params(const struct runtime *rt, const struct place *place,
                              const struct plugin_target *target, const struct lease_request *req)
{
        json_t *params = json_pack("{s:s}", "runId", req->run_id ? req->run_id : uuid_new_run().s);
        char until[ISO_TIME_LEN + 1];

        add_holder(params, req);
        if (plugin_target_lists(rt, target))
                json_object_set_new(params, "owner", plugin_owner(rt, place->id));
        if (req->ttl_ms) {
                clock_iso(clock_wall_us() + req->ttl_ms * US_PER_MS, until);
                json_object_set_new(params, "requestedExpiresAt", json_string(until));
        }
        return params;
}

int plugin_place_open(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        json_t *recorded = plugin_object(op, place->config), *config, *answer = NULL;
        struct plugin_target target;
        struct plugin_scope scope = scope_of(place, req->issue_id);
        struct late_lease *late;
        struct op longer;
        int64_t asked_at = clock_wall_us();
        struct plugin_request q;
        int r;

        if (!recorded)
                return err_set(err, ERR_CORRUPT, "configuration of place %s", place->id);
        r = target_of(op, rt, recorded, &target, err);
        if (r < 0)
                return r;
        config = json_keep(op->arena, plugin_clean_config(recorded));
        late = late_lease_new(rt, place, secret_ref_paths(target.schema));
        q = (struct plugin_request){
                .target = &target,
                .scope = &scope,
                .method = ACQUIRE,
                .config = config,
                .take_params = acquire_params(rt, place, &target, req),
                .limit_ms = plugin_limit_lease(&target, config),
                .late = late_lease_arrived,
                .ctx = late,
        };
        longer = op_with_time(op, q.limit_ms);
        FAULT("provider.acquire.before");
        r = plugin_request(&longer, rt, &q, &answer, err);
        r = plugin_explain(op, rt, &target, r, err);
        FAULT("provider.acquire.after");
        if (r != ERR_TIMEOUT && r != ERR_CANCELLED)
                late_lease_free(late); /* else the host has it until the worker has answered */
        if (r >= 0)
                r = read_lease(op, &target, recorded, answer, ret, err);
        return outcome_unknown(r) ? explain_unknown(&target, req, asked_at, r, err) : r;
}

/* Later calls */

/* The metadata that the worker gets back: of the lease where there was one, else what it said when
 * the place was opened. A new reference. */
static json_t *lease_metadata(struct op *op, struct runtime *rt, const struct place *place,
                              const json_t *recorded, const char **ret_issue)
{
        CLEAN(store_read_end) struct db *db = NULL;
        json_t *metadata = NULL;
        struct lease lease;

        *ret_issue = NULL;
        if (store_read_begin(op, rt->store, &db, NULL) >= 0 &&
            leases_last_of_place(db, place->id, op->arena, &lease, NULL) >= 0) {
                *ret_issue = lease.issue_id;
                metadata = json_from_text(op->arena, lease.metadata);
        }
        if (!json_is_object(metadata))
                metadata = json_get_object(recorded, "$lease");
        return metadata ? json_incref(metadata) : json_object();
}

/* Whether the place's environment still names this driver of this plugin. */
static int environment_names(struct op *op, struct runtime *rt, const struct place *place,
                             const struct plugin_target *target, bool *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct environment env;
        const char *plugin, *driver;
        const json_t *config;
        int r = store_read_begin(op, rt->store, &db, err);

        *ret = false;
        if (r >= 0)
                r = environments_get(db, place->environment_id, op->arena, &env, err);
        if (r < 0 || !streq(env.driver, "plugin"))
                return r == ERR_NOT_FOUND ? 0 : MIN(r, 0);
        config = json_from_text(op->arena, env.config);
        plugin = json_get_string(config, "pluginKey");
        driver = json_get_string(config, "driverKey");
        *ret = plugin && driver && streq(plugin, target->plugin_key) &&
               streq(driver, target->driver_key);
        return 0;
}

int plugin_config_for(struct op *op, struct runtime *rt, const struct place *place,
                      const struct plugin_target *target, const json_t *recorded, json_t **ret,
                      struct err *err)
{
        bool is_named = target->is_sandbox;
        int r = is_named ? 0 : environment_names(op, rt, place, target, &is_named, err);

        if (r < 0)
                return r;
        err_clear(err);
        *ret = json_keep(op->arena, is_named ? plugin_clean_config(recorded) : json_object());
        return 0;
}

/* One call about a place that exists; `req`: whom it is resumed for, NULL: it is given up. */
static int ask_about(struct op *op, struct runtime *rt, const struct place *place,
                     const char *method, const json_t *recorded, const struct plugin_target *target,
                     const struct lease_request *req, json_t **ret, struct err *err)
{
        struct plugin_scope scope = scope_of(place, NULL);
        struct plugin_request q = { .target = target, .scope = &scope, .method = method };
        json_t *config = NULL, *metadata;
        int r = plugin_config_for(op, rt, place, target, recorded, &config, err);

        if (r < 0)
                return r;
        metadata = lease_metadata(op, rt, place, recorded, &scope.issue_id);
        if (req)
                scope.issue_id = req->issue_id;
        else
                scope.place_id = place->id;
        q.config = config;
        q.limit_ms = plugin_limit_lease(target, config);
        q.take_params =
                json_pack("{s:o, s:o}", "providerLeaseId",
                          json_string_or_null(place->provider_lease_id), "leaseMetadata", metadata);
        if (req) {
                if (req->run_id)
                        json_object_set_new(q.take_params, "runId", json_string(req->run_id));
                add_holder(q.take_params, req);
        } else if (streq(method, DESTROY)) {
                /* Our own commands there have ended: what is left is not worth waiting for. */
                json_object_set_new(q.take_params, "cancelActiveWork", json_true());
        }
        return plugin_request(op, rt, &q, ret, err);
}

int plugin_place_resume(struct op *op, struct runtime *rt, const struct place *place,
                        const struct lease_request *req, struct provider_lease *ret,
                        struct err *err)
{
        json_t *recorded = plugin_object(op, place->config), *answer = NULL;
        struct plugin_target target;
        struct op longer;
        int r;

        if (!recorded)
                return err_set(err, ERR_CORRUPT, "configuration of place %s", place->id);
        if (!place->provider_lease_id)
                return err_set(err, ERR_NOT_FOUND, "The provider gave the place no id.");
        r = target_of(op, rt, recorded, &target, err);
        if (r < 0)
                return r;
        longer = op_with_time(op, plugin_limit_lease(&target, recorded));
        FAULT("provider.resume.before");
        r = ask_about(&longer, rt, place, RESUME, recorded, &target, req, &answer, err);
        r = plugin_explain(op, rt, &target, r, err);
        FAULT("provider.resume.after");
        if (r >= 0)
                r = read_lease(op, &target, recorded, answer, ret, err);
        if (r >= 0 && !ret->id)
                r = err_set(err, ERR_NOT_FOUND, "The provider does not have it any more.");
        return r;
}

int plugin_place_end_commands(struct op *op, struct runtime *rt, const struct place *place,
                              struct err *err)
{
        return exec_remote_end_place(op, rt, place->id, err);
}

/* The place of an acquire whose answer never came: the provider is asked by our tag. A request that
 * was cut off may still be carried out there, so a sandbox that is not there yet is waited for.
 * ERR_NOT_FOUND: it does not exist, and will not. */
static int find_unnamed(struct op *op, struct runtime *rt, struct place *place,
                        const struct plugin_target *target, const json_t *recorded, struct err *err)
{
        int64_t settle_us = plugin_host_settle_ms(plugin_registry_host(rt->plugins)) * US_PER_MS;
        json_t *config = NULL;
        int r = plugin_config_for(op, rt, place, target, recorded, &config, err);

        if (r >= 0)
                r = plugin_place_find(op, rt, place, target, config, &place->provider_lease_id,
                                      err);
        if (r < 0 || place->provider_lease_id)
                return r;
        if (clock_now_us() < place->created_at + settle_us) {
                (void)err_set(err, ERR_PROVIDER,
                              "the provider does not have the sandbox, and may still be making it");
                err_mark_transient(err);
                return ERR_PROVIDER;
        }
        return err_set(err, ERR_NOT_FOUND, "The provider has no sandbox for the place.");
}

int plugin_place_give_up(struct op *op, struct runtime *rt, const struct place *place, bool destroy,
                         struct err *err)
{
        json_t *recorded = plugin_object(op, place->config), *answer = NULL;
        struct plugin_target target;
        struct place known = *place;
        const char *method;
        int r;

        plugin_box_leave(op, rt, place);
        r = exec_remote_end_place(op, rt, place->id, err);
        if (r < 0)
                return r;
        if (!recorded)
                return err_set(err, ERR_CORRUPT, "configuration of place %s", place->id);
        r = target_of(op, rt, recorded, &target, err);
        if (r < 0)
                return r;
        if (!known.provider_lease_id && target.is_sandbox && plugin_target_lists(rt, &target)) {
                r = find_unnamed(op, rt, &known, &target, recorded, err);
                if (r == ERR_NOT_FOUND)
                        err_clear(err);
                if (r < 0)
                        return r == ERR_NOT_FOUND ? 0 : r;
        }
        method = destroy && plugin_host_supports(plugin_registry_host(rt->plugins),
                                                 target.plugin_id, DESTROY)
                         ? DESTROY
                         : RELEASE;
        FAULT("provider.release.before");
        r = ask_about(op, rt, &known, method, recorded, &target, NULL, &answer, err);
        FAULT("provider.release.after");
        /* A provider without release has nothing to give up. */
        if (r == ERR_NOT_IMPLEMENTED) {
                err_clear(err);
                r = 0;
        }
        return r;
}

/* Metadata of a fresh lease. A provider cannot set our own members, because later calls depend on
 * them. */
void plugin_place_describe(const struct place *place, const struct provider_lease *opened,
                           bool resumed, json_t *metadata)
{
        json_t *recorded = NULL, *config, *own = json_copy(metadata);
        const json_t *plugin;

        if (json_parse(place->config, strlen(place->config), &recorded, NULL) < 0)
                recorded = json_object();
        plugin = json_get_object(recorded, "$plugin");
        json_object_set(own, "pluginId", json_object_get(plugin, "id"));
        json_object_set(own, "pluginKey", json_object_get(plugin, "key"));
        if (json_get_string(recorded, "provider")) {
                json_object_set_new(own, "sandboxProviderPlugin", json_true());
                json_object_update(metadata, own);
                config = plugin_clean_config(recorded);
                json_object_set(metadata, "provider", json_object_get(recorded, "provider"));
                json_object_update(metadata, config);
                json_decref(config);
                /* Deep: an echo of an object without its secret must not drop the reference. */
                if (opened->metadata)
                        json_object_update_recursive(metadata, opened->metadata);
                json_object_set(own, "provider", json_object_get(recorded, "provider"));
        } else {
                json_object_set(own, "driverKey", json_object_get(plugin, "driverKey"));
                json_object_set_new(metadata, "providerMetadata",
                                    opened->metadata ? json_incref(opened->metadata)
                                                     : json_object());
        }
        json_object_update(metadata, own);
        json_decref(own);
        json_decref(recorded);
}
