/* Watching the instance: leaks, and metrics in the Prometheus text format. */
#include "api/thing.h"
#include "base/clock.h"
#include "codec/check.h"
#include "core/leases/leaks.h"
#include "store/leases.h"
#include "store/places.h"

static int close_place(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        bool take_over = false;
        int r = access_admin(&c->actor, "Instance admin access required", err);

        if (r >= 0)
                r = call_check_thing(c, err);
        if (r >= 0 && c->body) {
                check_init(&k, c->body);
                take_over = check_bool(&k, "takeOver", CHECK_OPTIONAL, false);
                r = check_end(&k, err);
        }
        if (r >= 0)
                r = leaks_close(c->op, c->rt, c->params[0], take_over, err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

static void put_leak(struct jw *w, const struct leak *leak)
{
        const struct place *p = leak->place;

        jw_object(w);
        jw_kstring(w, p ? "placeId" : "provider", p ? p->id : leak->provider);
        if (p) {
                jw_kstring(w, "environmentId", p->environment_id);
                jw_kstring(w, "driver", p->driver);
                jw_kstring(w, "provider", p->provider);
                jw_kstring(w, "providerLeaseId", p->provider_lease_id);
                jw_kstring(w, "state", p->state);
                jw_ktime(w, "since", p->updated_at);
        } else {
                jw_kstring(w, "ownerTag", leak->tag);
                jw_kstring(w, "description", leak->description);
        }
        if (p || leak->list == LEAKS_DUE) {
                jw_kint(w, "attempts", p ? p->attempts : leak->attempts);
                jw_kstring(w, "note", p ? p->note : leak->note);
        }
        jw_kstring(w, "nextStep", leak->next);
        jw_object_end(w);
}

static int get_leaks(struct call *c, struct err *err)
{
        static const char *const names[] = { [LEAKS_UNKNOWN] = "unknown",
                                             [LEAKS_MISSING] = "missing",
                                             [LEAKS_UNCERTAIN] = "uncertain",
                                             [LEAKS_DUE] = "cleanupDue" };
        struct leaks leaks;
        int r = leaks_find(c->op, c->rt, &leaks, err);

        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_ktime(w, "checkedAt", clock_wall_us());
        jw_kint(w, "total", (int64_t)leaks.n);
        for (size_t k = 0; k < ARRAY_LEN(names); k++) {
                jw_key(w, names[k]);
                jw_array(w);
                for (size_t i = 0; i < leaks.n; i++)
                        if (leaks.at[i].list == k)
                                put_leak(w, &leaks.at[i]);
                jw_array_end(w);
        }
        jw_key(w, "notListable");
        jw_array(w);
        for (size_t i = 0; i < leaks.n_not_listable; i++)
                jw_string(w, leaks.not_listable[i]);
        jw_array_end(w);
        jw_object_end(w);
        return 0;
}

/* Metrics */

static void put_metric(struct buf *b, const char *name, const char *type, const char *help,
                       uint64_t value)
{
        buf_appendf(b, "# HELP %s %s\n# TYPE %s %s\n%s %llu\n", name, help, name, type, name,
                    (unsigned long long)value);
}

/* The counters of the runtime, in the order of the answer. */
static const struct {
        const char *name, *help;
        size_t at;
} counted[] = {
        { "berth_leases_acquired_total", "Leases acquired.",
          offsetof(struct counters, leases_acquired) },
        { "berth_leases_reused_total", "Leases that took up an idle place.",
          offsetof(struct counters, leases_reused) },
        { "berth_leases_released_total", "Leases released.",
          offsetof(struct counters, leases_released) },
        { "berth_leases_expired_total", "Leases ended by their expiry.",
          offsetof(struct counters, leases_expired) },
        { "berth_acquire_failures_total", "Acquires that failed.",
          offsetof(struct counters, acquire_failures) },
        { "berth_cleanup_failures_total", "Clean-ups a provider failed.",
          offsetof(struct counters, cleanup_failures) },
        { "berth_sweeps_total", "Passes of the sweeper.", offsetof(struct counters, sweeps) },
        { "berth_workspaces_staged_total", "Workspaces staged.",
          offsetof(struct counters, workspaces_staged) },
        { "berth_workspaces_restored_total", "Workspaces brought home.",
          offsetof(struct counters, workspaces_restored) },
        { "berth_workspace_conflicts_total", "Files that were changed on both sides.",
          offsetof(struct counters, workspace_conflicts) },
        { "berth_salvages_total", "Changes saved before their place was given up.",
          offsetof(struct counters, salvages) },
        { "berth_workspaces_lost_total", "Workspaces whose changes could not be saved.",
          offsetof(struct counters, workspaces_lost) },
        { "berth_proxy_requests_total", "Requests to the proxies of environments.",
          offsetof(struct counters, proxy.requests) },
        { "berth_proxy_refused_total", "Of them, refused: the host is not allowed or not public.",
          offsetof(struct counters, proxy.refused) },
        { "berth_proxy_failed_total", "Of them, failed: the host was not reached.",
          offsetof(struct counters, proxy.failed) },
};

static int put_place_count(void *ctx, const char *state, int64_t n)
{
        buf_appendf(ctx, "berth_places{state=\"%s\"} %lld\n", state, (long long)n);
        return 0;
}

static int put_lease_count(void *ctx, const char *status, int64_t n)
{
        buf_appendf(ctx, "berth_leases{status=\"%s\"} %lld\n", status, (long long)n);
        return 0;
}

static int put_gauges(struct db *db, struct call *c, struct err *err)
{
        buf_puts(&c->out, "# HELP berth_places Places by state, gone ones not counted.\n"
                          "# TYPE berth_places gauge\n");
        int r = places_count_by_state(db, c->op->arena, put_place_count, &c->out, err);
        buf_puts(&c->out, "# HELP berth_leases Living leases by status.\n"
                          "# TYPE berth_leases gauge\n");
        return r < 0 ? r : leases_count_by_status(db, c->op->arena, put_lease_count, &c->out, err);
}

static int get_metrics(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct pool_stats pool;
        struct buf *b = &c->out;
        int r = access_board(&c->actor, err);

        if (r < 0)
                return r;
        c->content_type = "text/plain; version=0.0.4; charset=utf-8";
        pool_stats(c->api->pool, &pool);
        put_metric(b, "berth_uptime_seconds", "gauge", "Seconds since the daemon started.",
                   (uint64_t)(clock_mono_ms() - c->api->started_ms) / 1000);
        put_metric(b, "berth_http_requests_total", "counter", "Requests received.",
                   atomic_load(&c->api->requests));
        put_metric(b, "berth_http_errors_total", "counter", "Requests answered with an error.",
                   atomic_load(&c->api->errors));
        for (size_t i = 0; i < ARRAY_LEN(counted); i++)
                put_metric(b, counted[i].name, "counter", counted[i].help,
                           atomic_load(
                                   (_Atomic uint64_t *)((char *)&c->rt->counters + counted[i].at)));
        put_metric(b, "berth_operations_busy", "gauge", "Operations that run now.", pool.busy);
        put_metric(b, "berth_operations_queued", "gauge", "Operations that wait.", pool.queued);
        put_metric(b, "berth_operations_with_peers", "gauge",
                   "Operations that run now and may wait for providers, hosts, boxes and vaults.",
                   pool.seats[LANE_PEERS]);
        put_metric(b, "berth_operations_waiting_for_peers", "gauge",
                   "Operations that wait until one of those is done.", pool.waiting[LANE_PEERS]);
        put_metric(b, "berth_operations_longest_wait_milliseconds", "gauge",
                   "How long the operation that came first has waited.",
                   (uint64_t)pool.longest_wait_ms);
        put_metric(b, "berth_operations_saturated", "gauge",
                   "1 while an operation has waited for more than a second.",
                   pool_is_saturated(&pool));
        put_metric(b, "berth_operations_refused_total", "counter",
                   "Operations refused because the queue was full.", pool.refused);
        r = store_read_begin(c->op, c->rt->store, &db, err);
        return r < 0 ? r : put_gauges(db, c, err);
}

const struct route routes_watch[] = {
        { "GET", "/api/leaks", .fn = get_leaks },
        { "POST", "/api/places/:id/close", .fn = close_place,
          .flags = ROUTE_RIGHTS_FIRST | ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_CLOSES |
                   ROUTE_WHEN_FULL },
        { "POST", "/api/places/:id/forget", .end_of = leaks_forget,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/metrics", .fn = get_metrics },
        { 0 },
};
