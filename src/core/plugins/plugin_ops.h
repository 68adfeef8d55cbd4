/* Operations on plugins. Each function checks the actor's rights: administrators change, board
 * users look. Installs and upgrades take the body of the request and check it themselves: those
 * that go on in the background report what is wrong with it as their result.
 *
 * Operation threads; results live in the operation's arena. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "plugin/host.h"
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

struct plugin_health_check {
        const char *name;
        bool passed;
        const char *message;
};
struct plugin_health {
        struct plugin plugin; /* with the part of its last error that the caller may see */
        bool is_good;
        struct plugin_health_check checks[5];
        size_t n_checks;
        bool has_worker;
        struct worker_view worker;
};
int plugin_check_health(struct op *op, struct runtime *rt, const char *id_or_key,
                        struct plugin_health *ret, struct err *err);

struct plugin_log_filter {
        int64_t limit;
        const char *level; /* NULL: all */
        int64_t since_us;  /* 0: all */
};

struct plugin_log_line {
        struct uuid id;
        const char *level, *message, *meta; /* meta: JSON text or NULL */
        int64_t at;
};
/* Newest first. */
int plugin_logs(struct op *op, struct runtime *rt, const char *id_or_key,
                const struct plugin_log_filter *filter, struct plugin *ret_plugin,
                struct plugin_log_line **ret, size_t *ret_n, struct err *err);

/* Test from inside what a plugin's worker could reach. For administrators. */
struct plugin_probe {
        const char *name, *what, *detail;
        bool reached, allowed;
};
struct plugin_sandbox {
        struct plugin plugin;
        bool ok; /* nothing was reached that is not allowed */
        const char *user;
        const char *no_view; /* why it has no view of its own; NULL: it has one */
        int landlock;        /* version; 0: none */
        struct plugin_probe *probes;
        size_t n_probes;
};
int plugin_sandbox_check(struct op *op, struct runtime *rt, const char *id_or_key,
                         struct plugin_sandbox *ret, struct err *err);

/* -- Changing --------------------------------------------------------------------------------- */

/* {packageName, version?, isLocalPath?} */
int plugin_install(struct op *op, struct runtime *rt, json_t *body, struct plugin *ret,
                   struct err *err);
/* {version?}. A version that wants more rights is fetched and waits: upgrade_pending. */
int plugin_upgrade(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                   struct plugin *ret, struct err *err);
/* Take the waiting version into use, or discard it. */
int plugin_approve(struct op *op, struct runtime *rt, const char *id_or_key, bool reject,
                   struct plugin *ret, struct err *err);
int plugin_enable(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
                  struct err *err);
/* `reason` may be NULL. */
int plugin_disable(struct op *op, struct runtime *rt, const char *id_or_key, const char *reason,
                   struct plugin *ret, struct err *err);
/* With `purge` the row is deleted too; *ret is the row before that. */
int plugin_uninstall(struct op *op, struct runtime *rt, const char *id_or_key, bool purge,
                     struct plugin *ret, struct err *err);

/* Install (id_or_key NULL) or upgrade in the background; *ret_id names the operation. */
int plugin_begin(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                 struct uuid *ret_id, struct err *err);
/* How far an operation is, with its lines from `after` on. */
struct plugin_progress {
        const char *package_name;
        bool done;
        int code;         /* of a done one: 0 or what went wrong */
        const char *text; /* of an error */
        struct uuid plugin_id;
        int64_t next; /* the number of the line that comes next */
        const char **lines;
        size_t n_lines;
};
int plugin_progress(struct op *op, struct runtime *rt, const char *operation_id, int64_t after,
                    struct plugin_progress *ret, struct err *err);

/* -- Plugin-wide configuration ---------------------------------------------------------------- */

/* ERR_NOT_FOUND with an empty text while none was saved. */
int plugin_read_config(struct op *op, struct runtime *rt, const char *id_or_key,
                       struct plugin_config *ret, struct err *err);
/* `config` is what the caller gave: ERR_INVALID when it is no object. *ret_field_errors is a new
 * array when the schema refuses it: ERR_INVALID, too. */
int plugin_save_config(struct op *op, struct runtime *rt, const char *id_or_key,
                       const json_t *config, struct plugin_config *ret, json_t **ret_field_errors,
                       struct err *err);

struct plugin_verdict {
        bool is_valid, is_supported;
        const char *message; /* NULL: none */
};
/* ERR_PROVIDER and the like when the worker did not answer. */
int plugin_test_config(struct op *op, struct runtime *rt, const char *id_or_key,
                       const json_t *config, struct plugin_verdict *ret, struct err *err);

/* -- Pages, tools and jobs (plugin_bridge.c) --------------------------------------------------- */

/* Ask the worker for data of its pages, or for an action. *ret is its answer, a new reference. */
struct plugin_page_call {
        bool is_action;
        const char *key;
        const char *company_id;  /* NULL: of the whole instance, for administrators only */
        json_t *params, *render; /* may be NULL */
};
int plugin_call_page(struct op *op, struct runtime *rt, const char *id_or_key,
                     const struct plugin_page_call *call, json_t **ret, struct err *err);

/* The tools of the plugins that should run, as in their manifests. */
int plugin_each_tool(struct op *op, struct runtime *rt,
                     void (*fn)(void *ctx, const struct plugin *p, const json_t *tool), void *ctx,
                     struct err *err);
/* Board callers; ids of another company are ERR_FORBIDDEN. *ret is a new reference. */
struct plugin_tool_call {
        const char *tool; /* named with its plugin: "acme.box:search" */
        const char *agent_id, *run_id, *company_id, *project_id;
        json_t *parameters; /* may be NULL */
        json_t *context;    /* as the caller gave it, with the four ids */
};
int plugin_execute_tool(struct op *op, struct runtime *rt, const struct plugin_tool_call *call,
                        struct plugin *ret_plugin, const char **ret_name, json_t **ret,
                        struct err *err);

/* *ret_jobs: as in the manifest, borrowed; NULL for none. */
int plugin_jobs(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret_plugin,
                const json_t **ret_jobs, struct err *err);
/* Make the worker begin a job; does not wait for its end. Administrators. No job starts by
 * itself. */
int plugin_trigger_job(struct op *op, struct runtime *rt, const char *id_or_key, const char *job,
                       struct uuid *ret_run, struct err *err);
