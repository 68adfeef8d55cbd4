/* Reading plugins: the rows, their health, and the dashboard. */
#include "base/clock.h"
#include "core/plugins/plugin_internal.h"

struct view_request {
        struct op *op;
        const char *what; /* id or key; or a status */
        struct plugin *ret;
        plugin_fn fn;
        void *ctx;
};

static int list(struct db *db, void *arg, struct err *err)
{
        struct view_request *q = arg;
        int r = access_board_org(db, q->op->actor, err);

        return r < 0 ? r : plugins_list(db, q->what, q->op->arena, q->fn, q->ctx, err);
}

static bool is_status(const char *status)
{
        for (const char *const *s = plugin_statuses; *s; s++)
                if (streq(*s, status))
                        return true;
        return false;
}

const char *plugin_shown_error(const struct op *op, const struct plugin *p)
{
        return !p->last_error || op->actor->is_instance_admin
                       ? p->last_error
                       : "The plugin failed; an instance admin sees why.";
}

int plugin_list(struct op *op, struct runtime *rt, const char *status, plugin_fn fn, void *ctx,
                struct err *err)
{
        struct view_request q = { .op = op, .what = status, .fn = fn, .ctx = ctx };
        int r = access_board(op->actor, err);

        if (r < 0)
                return r;
        if (status && !is_status(status))
                return err_set(err, ERR_INVALID,
                               "Invalid status '%s'. Must be one of: installed, ready, disabled, "
                               "error, upgrade_pending, uninstalled",
                               status);
        return store_read(op, rt->store, list, &q, err);
}

static int get(struct db *db, void *arg, struct err *err)
{
        struct view_request *q = arg;
        int r = access_board_org(db, q->op->actor, err);

        return r < 0 ? r : plugins_get(db, q->what, q->op->arena, q->ret, err);
}

int plugin_get(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
               struct err *err)
{
        struct view_request q = { .op = op, .what = id_or_key, .ret = ret };

        return store_read(op, rt->store, get, &q, err);
}

bool plugin_supports_config_test(struct runtime *rt, const struct plugin *p)
{
        return rt->plugins && plugin_host_supports(rt->plugins->host, p->id, "validateConfig");
}

/* Health */

static bool check(struct jw *w, const char *name, bool passed, const char *message)
{
        jw_object(w);
        jw_kstring(w, "name", name);
        jw_kbool(w, "passed", passed);
        jw_kstring(w, "message", message);
        jw_object_end(w);
        return passed;
}

static bool check_worker(struct op *op, struct jw *w, struct runtime *rt, const struct plugin *p)
{
        struct worker_view view;
        const char *state = "stopped";

        if (plugin_host_view(rt->plugins->host, p->id, &view))
                state = worker_state_name(view.state);
        return check(w, "worker", streq(state, "running"),
                     arena_printf(op->arena, "Worker is %s", state));
}

static bool write_checks(struct op *op, struct jw *w, struct runtime *rt, const struct plugin *p)
{
        CLEAN(json_decrefp) json_t *manifest = NULL;
        bool runs = plugin_status_runs(p->status), good;

        (void)json_parse(p->manifest, strlen(p->manifest), &manifest, NULL);
        jw_array(w);
        good = check(w, "registry", true, "Plugin found in registry");
        good = check(w, "manifest", json_get_string(manifest, "id") != NULL,
                     json_get_string(manifest, "id") ? "Manifest is valid"
                                                     : "Manifest is invalid or missing") &&
               good;
        good = check(w, "status", runs, arena_printf(op->arena, "Current status: %s", p->status)) &&
               good;
        if (runs)
                good = check_worker(op, w, rt, p) && good;
        if (p->last_error && !runs)
                good = check(w, "error_state", false, plugin_shown_error(op, p)) && good;
        jw_array_end(w);
        return good;
}

static void write_health(struct op *op, struct jw *w, struct runtime *rt, const struct plugin *p)
{
        CLEAN(buf_done) struct buf checks = BUF_INIT;
        struct jw list;
        bool good;

        jw_init(&list, &checks);
        good = write_checks(op, &list, rt, p);
        jw_object(w);
        jw_kstring(w, "pluginId", p->id);
        jw_kstring(w, "status", p->status);
        jw_kbool(w, "healthy", good);
        jw_kraw(w, "checks", buf_str(&checks));
        if (p->last_error)
                jw_kstring(w, "lastError", plugin_shown_error(op, p));
        jw_object_end(w);
}

int plugin_health(struct op *op, struct runtime *rt, const char *id_or_key, struct buf *ret_json,
                  struct err *err)
{
        struct plugin p;
        struct jw w;
        int r = plugin_get(op, rt, id_or_key, &p, err);

        if (r < 0)
                return r;
        jw_init(&w, ret_json);
        write_health(op, &w, rt, &p);
        return 0;
}

/* Dashboard */

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

int plugin_dashboard(struct op *op, struct runtime *rt, const char *id_or_key, struct buf *ret_json,
                     struct err *err)
{
        struct worker_view view;
        struct plugin p;
        struct jw w;
        int r = plugin_get(op, rt, id_or_key, &p, err);

        if (r < 0)
                return r;
        jw_init(&w, ret_json);
        jw_object(&w);
        jw_kstring(&w, "pluginId", p.id);
        jw_key(&w, "worker");
        if (plugin_host_view(rt->plugins->host, p.id, &view))
                write_worker(&w, &view);
        else
                jw_null(&w);
        jw_kraw(&w, "recentJobRuns", "[]");
        jw_kraw(&w, "recentWebhookDeliveries", "[]");
        jw_key(&w, "health");
        write_health(op, &w, rt, &p);
        jw_ktime(&w, "checkedAt", clock_wall_us());
        jw_object_end(&w);
        return 0;
}
