/* Operations on plugins. Each function checks the actor's rights: administrators change, board
 * users look. Bodies are the API's JSON, checked here.
 *
 * Operation threads; results live in the operation's arena. */
#ifndef BERTH_CORE_PLUGIN_OPS_H
#define BERTH_CORE_PLUGIN_OPS_H

#include "codec/json.h"
#include "core/access/access.h"
#include "store/plugins.h"

/* -- Looking ---------------------------------------------------------------------------------- */

int plugin_list(struct op *op, struct runtime *rt, const char *status, plugin_fn fn, void *ctx,
                struct err *err);
/* The part of the last error that the caller may see. The error may end with the worker's output:
 * only an instance admin sees all of it, as with the logs. */
const char *plugin_shown_error(const struct op *op, const struct plugin *p);
/* By id or key. */
int plugin_get(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
               struct err *err);
/* Whether the plugin's worker can try a configuration. */
bool plugin_supports_config_test(struct runtime *rt, const struct plugin *p);
int plugin_health(struct op *op, struct runtime *rt, const char *id_or_key, struct buf *ret_json,
                  struct err *err);
int plugin_dashboard(struct op *op, struct runtime *rt, const char *id_or_key, struct buf *ret_json,
                     struct err *err);

struct plugin_log_filter {
        int64_t limit;
        const char *level; /* NULL: all */
        int64_t since_us;  /* 0: all */
};

int plugin_logs(struct op *op, struct runtime *rt, const char *id_or_key,
                const struct plugin_log_filter *filter, struct buf *ret_json, struct err *err);

/* Test from inside what a plugin's worker could reach: {pluginId, pluginKey, ok, user, view,
 * viewReason?, landlock, checks: [{name, what, reached, allowed, detail}]}. For administrators. */
int plugin_sandbox_check(struct op *op, struct runtime *rt, const char *id_or_key,
                         struct buf *ret_json, struct err *err);

/* -- Changing --------------------------------------------------------------------------------- */

/* {packageName, version?, isLocalPath?} */
int plugin_install(struct op *op, struct runtime *rt, json_t *body, struct plugin *ret,
                   struct err *err);
/* {version?}. A version that wants more rights is fetched and waits: upgrade_pending. */
int plugin_upgrade(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                   struct plugin *ret, struct err *err);
/* {reject?}: take the waiting version into use, or discard it. */
int plugin_approve(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                   struct plugin *ret, struct err *err);
int plugin_enable(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
                  struct err *err);
/* {reason?} */
int plugin_disable(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                   struct plugin *ret, struct err *err);
/* With `purge` the row is deleted too; *ret is the row before that. */
int plugin_uninstall(struct op *op, struct runtime *rt, const char *id_or_key, bool purge,
                     struct plugin *ret, struct err *err);

/* Install (id_or_key NULL) or upgrade in the background; *ret_id names the operation. */
int plugin_begin(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                 struct uuid *ret_id, struct err *err);
/* An operation's progress: {id, packageName, done, next, lines, error?, pluginId?}, lines from
 * `after` on. */
int plugin_progress(struct op *op, struct runtime *rt, const char *operation_id, int64_t after,
                    struct buf *ret_json, struct err *err);

/* -- Plugin-wide configuration ---------------------------------------------------------------- */

/* ERR_NOT_FOUND with an empty text while none was saved. */
int plugin_read_config(struct op *op, struct runtime *rt, const char *id_or_key,
                       struct plugin_config *ret, struct err *err);
/* {configJson}. *ret_field_errors is a new array when the schema refuses it: ERR_INVALID. */
int plugin_save_config(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                       struct plugin_config *ret, json_t **ret_field_errors, struct err *err);
/* {valid, message?, supported?}. ERR_PROVIDER and the like when the worker did not answer. */
int plugin_test_config(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                       struct buf *ret_json, struct err *err);

/* -- Pages, tools and jobs (plugin_bridge.c) --------------------------------------------------- */

enum plugin_bridge_kind { PLUGIN_DATA, PLUGIN_ACTION };

/* {key, params?, companyId?, renderEnvironment?}, the key from `key` when that is given. A call
 * without a company is for administrators only. *ret is the worker's answer, a new reference. */
int plugin_bridge(struct op *op, struct runtime *rt, const char *id_or_key,
                  enum plugin_bridge_kind kind, const char *key, json_t *body, json_t **ret,
                  struct err *err);

/* The tools of the plugins that should run, as in their manifests. */
int plugin_each_tool(struct op *op, struct runtime *rt,
                     void (*fn)(void *ctx, const struct plugin *p, const json_t *tool), void *ctx,
                     struct err *err);
/* {tool, parameters?, runContext: {agentId, runId, companyId, projectId}}. Board callers; ids of
 * another company are ERR_FORBIDDEN. *ret is a new reference. */
int plugin_execute_tool(struct op *op, struct runtime *rt, json_t *body, struct plugin *ret_plugin,
                        const char **ret_name, json_t **ret, struct err *err);

/* *ret_jobs: as in the manifest, borrowed; NULL for none. */
int plugin_jobs(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret_plugin,
                const json_t **ret_jobs, struct err *err);
/* Make the worker begin a job; does not wait for its end. Administrators. No job starts by
 * itself. */
int plugin_trigger_job(struct op *op, struct runtime *rt, const char *id_or_key, const char *job,
                       struct uuid *ret_run, struct err *err);

#endif
