/* Plugins: decode, call core, encode. A plugin is named by its id or by its key. */
#include "api/api.h"
#include "api/encode.h"
#include "api/plugin_bridge.h"
#include "base/clock.h"
#include "core/plugins/plugin_ops.h"

#define LOGS_DEFAULT 25
#define LOGS_MAX     500

static void write_members(struct jw *w, const struct op *op, const struct plugin *p)
{
        struct plugin shown = *p;

        shown.last_error = plugin_shown_error(op, p);
        encode_members(w, &plugin_table, &shown);

        /* A plugin as the API shows it. A change that waits for approval is shown without the files
         * it is in. */
        CLEAN(json_decrefp) json_t *pending = NULL;

        if (!p->pending || json_parse(p->pending, strlen(p->pending), &pending, NULL) < 0)
                return;
        jw_key(w, "pendingUpgrade");
        jw_object(w);
        jw_kstring(w, "version", json_get_string(pending, "version"));
        jw_kstring(w, "packageVersion", json_get_string(pending, "packageVersion"));
        jw_kstring(w, "checksum", json_get_string(pending, "checksum"));
        jw_kvalue(w, "addedCapabilities", json_object_get(pending, "addedCapabilities"));
        jw_object_end(w);
}

static int answer_plugin(struct call *c, int r, const struct plugin *p)
{
        struct jw *w = call_json(c);

        if (r < 0)
                return r;
        jw_object(w);
        write_members(w, c->op, p);
        jw_object_end(w);
        return 0;
}

static int show_plugin(void *ctx, const struct plugin *p)
{
        struct call *c = ctx;

        jw_object(&c->json);
        write_members(&c->json, c->op, p);
        jw_object_end(&c->json);
        return 0;
}

/* Looking */

static int list_plugins(struct call *c, struct err *err)
{
        call_list(c);
        return call_list_end(
                c, plugin_list(c->op, c->rt, call_query(c, "status"), show_plugin, c, err));
}

static int check_board_org(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        return r < 0 ? r : access_board_org(db, &c->actor, err);
}

/* The plugins that come with Berth, to be installed from its directory. */
static int list_examples(struct call *c, struct err *err)
{
        const char *dir = c->rt->settings.examples_dir;
        int r = check_board_org(c, err);
        struct jw *w = call_list(c);

        if (r < 0)
                return r;
        if (dir) {
                jw_object(w);
                jw_kstring(w, "packageName", "berth-example-fake-sandbox-provider");
                jw_kstring(w, "pluginKey", "paperclip.fake-sandbox-provider");
                jw_kstring(w, "displayName", "Fake Sandbox Provider");
                jw_kstring(w, "description",
                           "Sandboxes that are directories of this machine, for tests and as a "
                           "pattern for providers.");
                jw_kstring(w, "localPath",
                           arena_printf(&c->arena, "%s/fake-sandbox-provider", dir));
                jw_kstring(w, "tag", "example");
                jw_object_end(w);
        }
        return call_list_end(c, 0);
}

/* Of these our plugins have none. */
static int list_none(struct call *c, struct err *err)
{
        int r = check_board_org(c, err);

        if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

static int show_one_plugin(struct call *c, struct err *err)
{
        struct plugin p;
        struct jw *w = call_json(c);
        int r = plugin_get(c->op, c->rt, c->params[0], &p, err);

        if (r < 0)
                return r;
        jw_object(w);
        write_members(w, c->op, &p);
        jw_kbool(w, "supportsConfigTest", plugin_supports_config_test(c->rt, &p));
        jw_object_end(w);
        return 0;
}

static int show_logs(struct call *c, struct err *err)
{
        const char *since = call_query(c, "since");
        struct plugin_log_filter filter = { .level = call_query(c, "level") };
        struct plugin_log_line *lines;
        struct plugin p;
        size_t n;
        int r = call_query_int(c, "limit", LOGS_DEFAULT, INT64_MIN, INT64_MAX, &filter.limit, err);

        if (r < 0)
                return r;
        if (since && !clock_parse_iso(since, &filter.since_us))
                return err_set(err, ERR_INVALID,
                               "since must be a time like "
                               "2026-05-10T10:00:00.000Z");
        filter.limit = MAX(1, MIN(filter.limit, LOGS_MAX));
        r = plugin_logs(c->op, c->rt, c->params[0], &filter, &p, &lines, &n, err);
        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_array(w);
        for (size_t i = 0; i < n; i++) {
                jw_object(w);
                jw_kstring(w, "id", lines[i].id.s);
                jw_kstring(w, "pluginId", p.id);
                jw_kstring(w, "level", lines[i].level);
                jw_kstring(w, "message", lines[i].message);
                jw_kraw(w, "meta", lines[i].meta);
                jw_ktime(w, "createdAt", lines[i].at);
                jw_object_end(w);
        }
        jw_array_end(w);
        return 0;
}

/* Health */

static void write_health(struct jw *w, const struct plugin_health *h)
{
        jw_object(w);
        jw_kstring(w, "pluginId", h->plugin.id);
        jw_kstring(w, "status", h->plugin.status);
        jw_kbool(w, "healthy", h->is_good);
        jw_key(w, "checks");
        jw_array(w);
        for (size_t i = 0; i < h->n_checks; i++) {
                jw_object(w);
                jw_kstring(w, "name", h->checks[i].name);
                jw_kbool(w, "passed", h->checks[i].passed);
                jw_kstring(w, "message", h->checks[i].message);
                jw_object_end(w);
        }
        jw_array_end(w);
        if (h->plugin.last_error)
                jw_kstring(w, "lastError", h->plugin.last_error);
        jw_object_end(w);
}

static int show_health(struct call *c, struct err *err)
{
        struct plugin_health h;
        int r = plugin_check_health(c->op, c->rt, c->params[0], &h, err);

        if (r >= 0)
                write_health(call_json(c), &h);
        return r;
}

static void write_worker(struct jw *w, const struct worker_view *v)
{
        jw_object(w);
        jw_kstring(w, "status", worker_state_name(v->state));
        if (v->pid > 0)
                jw_kint(w, "pid", v->pid);
        else
                jw_knull(w, "pid");
        if (v->state == WORKER_RUNNING && v->started_at)
                jw_kint(w, "uptime", MAX((clock_wall_us() - v->started_at) / US_PER_MS, 0));
        else
                jw_knull(w, "uptime");
        jw_kint(w, "consecutiveCrashes", v->consecutive_crashes);
        jw_kint(w, "totalCrashes", v->total_crashes);
        jw_kint(w, "pendingRequests", v->pending);
        jw_ktime(w, "lastCrashAt", v->last_crash_at);
        jw_ktime(w, "nextRestartAt", v->next_restart_at);
        jw_object_end(w);
}

static int show_dashboard(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);
        struct plugin_health h;
        int r = plugin_check_health(c->op, c->rt, c->params[0], &h, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "pluginId", h.plugin.id);
        jw_key(w, "worker");
        if (h.has_worker)
                write_worker(w, &h.worker);
        else
                jw_null(w);
        jw_kraw(w, "recentJobRuns", "[]");
        jw_kraw(w, "recentWebhookDeliveries", "[]");
        jw_key(w, "health");
        write_health(w, &h);
        jw_ktime(w, "checkedAt", clock_wall_us());
        jw_object_end(w);
        return 0;
}

static int check_sandbox(struct call *c, struct err *err)
{
        struct jw *w = call_json(c);
        struct plugin_sandbox s;
        int r = plugin_sandbox_check(c->op, c->rt, c->params[0], &s, err);

        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "pluginId", s.plugin.id);
        jw_kstring(w, "pluginKey", s.plugin.key);
        jw_kbool(w, "ok", s.ok);
        jw_kstring(w, "user", s.user);
        jw_kbool(w, "view", !s.no_view);
        if (s.no_view)
                jw_kstring(w, "viewReason", s.no_view);
        jw_kint(w, "landlock", s.landlock);
        jw_key(w, "checks");
        jw_array(w);
        for (const struct plugin_probe *p = s.probes; p < s.probes + s.n_probes; p++) {
                jw_object(w);
                jw_kstring(w, "name", p->name);
                jw_kstring(w, "what", p->what);
                jw_kbool(w, "reached", p->reached);
                jw_kbool(w, "allowed", p->allowed);
                jw_kstring(w, "detail", p->detail);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_object_end(w);
        return 0;
}

/* Changing */

static int answer_begun(struct call *c, int r, const struct uuid *id)
{
        struct jw *w = call_json(c);

        if (r < 0)
                return r;
        c->status = 202;
        jw_object(w);
        jw_kstring(w, "operationId", id->s);
        jw_object_end(w);
        return 0;
}

/* {"wait": false}: do not wait for the end, ask for the progress. */
static bool does_not_wait(struct call *c)
{
        return json_is_false(json_object_get(c->body, "wait"));
}

static int install_plugin(struct call *c, struct err *err)
{
        struct plugin p;
        struct uuid id;

        if (does_not_wait(c))
                return answer_begun(c, plugin_begin(c->op, c->rt, NULL, c->body, &id, err), &id);
        return answer_plugin(c, plugin_install(c->op, c->rt, c->body, &p, err), &p);
}

static int upgrade_plugin(struct call *c, struct err *err)
{
        const char *plugin = c->params[0];
        struct plugin p;
        struct uuid id;

        if (does_not_wait(c))
                return answer_begun(c, plugin_begin(c->op, c->rt, plugin, c->body, &id, err), &id);
        return answer_plugin(c, plugin_upgrade(c->op, c->rt, plugin, c->body, &p, err), &p);
}

static int show_progress(struct call *c, struct err *err)
{
        struct plugin_progress p;
        struct jw *w = call_json(c);
        int64_t after;
        int r = call_query_int(c, "after", 0, 0, INT64_MAX, &after, err);

        if (r >= 0)
                r = plugin_progress(c->op, c->rt, c->params[0], after, &p, err);
        if (r < 0)
                return r;
        jw_object(w);
        jw_kstring(w, "id", c->params[0]);
        jw_kstring(w, "packageName", p.package_name);
        jw_kbool(w, "done", p.done);
        jw_kint(w, "next", p.next);
        jw_key(w, "lines");
        jw_array(w);
        for (size_t i = 0; i < p.n_lines; i++)
                jw_string(w, p.lines[i]);
        jw_array_end(w);
        if (p.done && p.code < 0) {
                jw_kint(w, "status", err_info(p.code)->http_status);
                jw_kstring(w, "error", p.text);
        } else if (p.done) {
                jw_kstring(w, "pluginId", p.plugin_id.s);
        }
        jw_object_end(w);
        return 0;
}

static int approve_plugin(struct call *c, struct err *err)
{
        bool reject = json_is_true(json_object_get(c->body, "reject"));
        struct plugin p;

        return answer_plugin(c, plugin_approve(c->op, c->rt, c->params[0], reject, &p, err), &p);
}

static int enable_plugin(struct call *c, struct err *err)
{
        struct plugin p;

        return answer_plugin(c, plugin_enable(c->op, c->rt, c->params[0], &p, err), &p);
}

static int disable_plugin(struct call *c, struct err *err)
{
        const char *reason = json_get_string(c->body, "reason");
        struct plugin p;

        return answer_plugin(c, plugin_disable(c->op, c->rt, c->params[0], reason, &p, err), &p);
}

static int uninstall_plugin(struct call *c, struct err *err)
{
        struct plugin p;
        int r = plugin_uninstall(c->op, c->rt, c->params[0], call_query_flag(c, "purge"), &p, err);

        return answer_plugin(c, r, &p);
}

/* Configuration */

static int write_config(struct call *c, const struct plugin_config *row)
{
        struct jw *w = call_json(c);

        encode_row(w, &plugin_config_table, row);
        return 0;
}

static int show_config(struct call *c, struct err *err)
{
        struct plugin_config row;
        int r = plugin_read_config(c->op, c->rt, c->params[0], &row, err);

        if (r == ERR_NOT_FOUND && !*err->msg) {
                buf_puts(&c->out, "null");
                return 0;
        }
        return r < 0 ? r : write_config(c, &row);
}

/* The list of what a schema refuses has a shape of its own. */
static int refuse_fields(struct call *c, const struct err *err, const json_t *field_errors)
{
        struct jw *w = call_json(c);

        c->status = err_info(err->code)->http_status;
        jw_object(w);
        jw_kstring(w, "error", err->msg);
        jw_kvalue(w, "fieldErrors", field_errors);
        jw_object_end(w);
        return 0;
}

static int save_config(struct call *c, struct err *err)
{
        CLEAN(json_decrefp) json_t *field_errors = NULL;
        struct plugin_config row;
        int r = plugin_save_config(c->op, c->rt, c->params[0],
                                   json_object_get(c->body, "configJson"), &row, &field_errors,
                                   err);

        if (field_errors)
                return refuse_fields(c, err, field_errors);
        return r < 0 ? r : write_config(c, &row);
}

static int test_config(struct call *c, struct err *err)
{
        struct plugin_verdict verdict;
        int r = plugin_test_config(c->op, c->rt, c->params[0],
                                   json_object_get(c->body, "configJson"), &verdict, err);

        if (r < 0)
                return call_bridge(c, r, err);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kbool(w, "valid", verdict.is_valid);
        if (verdict.message)
                jw_kstring(w, "message", verdict.message);
        if (!verdict.is_supported)
                jw_kbool(w, "supported", false);
        jw_object_end(w);
        return 0;
}

const struct route routes_plugins[] = {
        { "GET", "/api/plugins", .fn = list_plugins },
        { "GET", "/api/plugins/examples", .fn = list_examples },
        { "GET", "/api/plugins/ui-contributions", .fn = list_none },
        { "POST", "/api/plugins/install", .fn = install_plugin,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/plugins/operations/:operationId", .fn = show_progress },
        { "GET", "/api/plugins/:pluginId", .fn = show_one_plugin },
        { "DELETE", "/api/plugins/:pluginId", .fn = uninstall_plugin, .flags = ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/enable", .fn = enable_plugin,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/disable", .fn = disable_plugin,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_WHEN_FULL },
        { "POST", "/api/plugins/:pluginId/upgrade", .fn = upgrade_plugin,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/approve", .fn = approve_plugin,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/sandbox-check", .fn = check_sandbox,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/plugins/:pluginId/health", .fn = show_health },
        { "GET", "/api/plugins/:pluginId/logs", .fn = show_logs },
        { "GET", "/api/plugins/:pluginId/config", .fn = show_config },
        { "POST", "/api/plugins/:pluginId/config", .fn = save_config,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/plugins/:pluginId/config/test", .fn = test_config,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/plugins/:pluginId/dashboard", .fn = show_dashboard },
        { 0 },
};
