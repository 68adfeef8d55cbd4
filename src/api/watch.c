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
        struct jw *w;
        int r = leaks_find(c->op, c->rt, &leaks, err);

        if (r < 0)
                return r;
        w = call_json(c);
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

struct place_counts {
        const char *state[8];
        uint64_t count[8];
        size_t n;
};

static int count_place(void *ctx, const struct place *p)
{
        struct place_counts *k = ctx;

        for (size_t i = 0; i < k->n; i++) {
                if (streq(k->state[i], p->state)) {
                        k->count[i]++;
                        return 0;
                }
        }
        if (k->n < ARRAY_LEN(k->state)) {
                k->state[k->n] = p->state;
                k->count[k->n++] = 1;
        }
        return 0;
}

static int put_lease_count(void *ctx, const char *status, int64_t n)
{
        buf_appendf(ctx, "berth_leases{status=\"%s\"} %lld\n", status, (long long)n);
        return 0;
}

static int put_gauges(struct db *db, struct call *c, struct err *err)
{
        struct place_counts places = { .n = 0 };
        int r = places_living(db, NULL, c->op->arena, count_place, &places, err);

        if (r < 0)
                return r;
        buf_puts(&c->out, "# HELP berth_places Places by state, gone ones not counted.\n"
                          "# TYPE berth_places gauge\n");
        for (size_t i = 0; i < places.n; i++)
                buf_appendf(&c->out, "berth_places{state=\"%s\"} %llu\n", places.state[i],
                            (unsigned long long)places.count[i]);
        buf_puts(&c->out, "# HELP berth_leases Living leases by status.\n"
                          "# TYPE berth_leases gauge\n");
        return leases_count_by_status(db, c->op->arena, put_lease_count, &c->out, err);
}

static int get_metrics(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct counters *k = &c->rt->counters;
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
        put_metric(b, "berth_leases_acquired_total", "counter", "Leases acquired.",
                   atomic_load(&k->leases_acquired));
        put_metric(b, "berth_leases_reused_total", "counter", "Leases that took up an idle place.",
                   atomic_load(&k->leases_reused));
        put_metric(b, "berth_leases_released_total", "counter", "Leases released.",
                   atomic_load(&k->leases_released));
        put_metric(b, "berth_leases_expired_total", "counter", "Leases ended by their expiry.",
                   atomic_load(&k->leases_expired));
        put_metric(b, "berth_acquire_failures_total", "counter", "Acquires that failed.",
                   atomic_load(&k->acquire_failures));
        put_metric(b, "berth_cleanup_failures_total", "counter", "Clean-ups a provider failed.",
                   atomic_load(&k->cleanup_failures));
        put_metric(b, "berth_sweeps_total", "counter", "Passes of the sweeper.",
                   atomic_load(&k->sweeps));
        put_metric(b, "berth_workspaces_staged_total", "counter", "Workspaces staged.",
                   atomic_load(&k->workspaces_staged));
        put_metric(b, "berth_workspaces_restored_total", "counter", "Workspaces brought home.",
                   atomic_load(&k->workspaces_restored));
        put_metric(b, "berth_workspace_conflicts_total", "counter",
                   "Files that were changed on both sides.", atomic_load(&k->workspace_conflicts));
        put_metric(b, "berth_salvages_total", "counter",
                   "Changes saved before their place was given up.", atomic_load(&k->salvages));
        put_metric(b, "berth_workspaces_lost_total", "counter",
                   "Workspaces whose changes could not be saved.",
                   atomic_load(&k->workspaces_lost));
        put_metric(b, "berth_proxy_requests_total", "counter",
                   "Requests to the proxies of environments.", atomic_load(&k->proxy.requests));
        put_metric(b, "berth_proxy_refused_total", "counter",
                   "Of them, refused: the host is not allowed or not public.",
                   atomic_load(&k->proxy.refused));
        put_metric(b, "berth_proxy_failed_total", "counter",
                   "Of them, failed: the host was not reached.", atomic_load(&k->proxy.failed));
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
