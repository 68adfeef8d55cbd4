/* Which places get a proxy, by their configuration, and serving it through the box's tunnel. */
#include "core/exec/egress.h"

#include <stdio.h>

#include "base/log.h"
#include "core/access/access.h"
#include "core/live/run_event.h"
#include "net/proxy.h"
#include "rt/pool.h"
#include "store/runs.h"

#define NOTE_MS 10000
#define IDLE_MS 900000 /* the box's own limit, past the proxy's */

struct egress_policy {
        size_t n;
        uint16_t port;
        unsigned timeout_ms; /* 0: the proxy's own */
        struct host_pattern patterns[];
};

struct egress {
        struct tunnel_listener listener;
        struct tunnel *tunnel;
        struct proxy *proxy;
        struct runtime *rt;
        char place_id[UUID_LEN + 1];
        bool warned;
};

/* Reading */

static int check_host(const json_t *entry, size_t i, struct host_pattern *ret, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };

        if (!json_is_string(entry))
                return err_set(err, ERR_UNPROCESSABLE, "\"allowedHosts\"[%zu] is no string.", i);
        if (host_pattern_parse(json_string_value(entry), json_string_length(entry), ret, &why) < 0)
                return err_set(err, ERR_UNPROCESSABLE,
                               "\"allowedHosts\"[%zu] is no host such as \"example.com\", "
                               "\"*.example.com\" or \"example.com:8443\": %s.",
                               i, why.msg);
        return 0;
}

static int check_list(const json_t *hosts, struct err *err)
{
        if (hosts && !json_is_array(hosts))
                return err_set(err, ERR_UNPROCESSABLE, "\"allowedHosts\" is no list of strings.");
        if (json_array_size(hosts) > EGRESS_MAX_HOSTS)
                return err_set(err, ERR_UNPROCESSABLE, "\"allowedHosts\" has more than %d entries.",
                               EGRESS_MAX_HOSTS);
        return 0;
}

static bool is_wanted(const json_t *config)
{
        const char *network = json_get_string(config, "network");

        return network && streq(network, "allowlist");
}

static int read_policy(const json_t *config, struct egress_policy **ret, struct err *err)
{
        const json_t *hosts = json_object_get(config, "allowedHosts");
        struct egress_policy *p;
        int r = check_list(hosts, err);

        if (r < 0)
                return r;
        p = xcalloc(1, sizeof(*p) + json_array_size(hosts) * sizeof(p->patterns[0]));
        p->port = EGRESS_PORT;
        for (; r >= 0 && p->n < json_array_size(hosts); p->n++)
                r = check_host(json_array_get(hosts, p->n), p->n, &p->patterns[p->n], err);
        if (r < 0)
                egress_policy_free(p);
        else
                *ret = p;
        return r;
}

#ifdef BERTH_FAULTS
/* Tests with places of this machine: the configuration, the port and the deadlines by variables. */
static const char *test_config(const char *config)
{
        const char *given = getenv("BERTH_TEST_EGRESS");

        return given ? given : config;
}

static void test_adjust(struct egress_policy *p)
{
        const char *port = getenv("BERTH_TEST_EGRESS_PORT");
        const char *timeout = getenv("BERTH_TEST_EGRESS_TIMEOUT_MS");

        if (port)
                p->port = (uint16_t)strtoul(port, NULL, 10);
        if (timeout)
                p->timeout_ms = (unsigned)strtoul(timeout, NULL, 10);
}
#else
static const char *test_config(const char *config)
{
        return config;
}

static void test_adjust(struct egress_policy *p)
{
}
#endif

int egress_policy_read(const char *config, struct egress_policy **ret, struct err *err)
{
        json_t *parsed = NULL;

        *ret = NULL;
        config = test_config(config);
        int r = json_parse(config, strlen(config), &parsed, err);
        if (r >= 0 && is_wanted(parsed))
                r = read_policy(parsed, ret, err);
        json_decref(parsed);
        if (*ret)
                test_adjust(*ret);
        return r;
}

void egress_policy_free(struct egress_policy *policy)
{
        free(policy);
}

#define STRING(x)  #x
#define TEXT(x)    STRING(x)
#define EGRESS_URL "http://127.0.0.1:" TEXT(EGRESS_PORT)
#define NOT_BY_IT  "localhost,127.0.0.1,::1"

const char *const *egress_env(const json_t *config)
{
        /* Some programs read only one case, and curl takes http_proxy in lower case alone. */
        static const char *const variables[] = {
                "HTTP_PROXY=" EGRESS_URL, "HTTPS_PROXY=" EGRESS_URL, "ALL_PROXY=" EGRESS_URL,
                "http_proxy=" EGRESS_URL, "https_proxy=" EGRESS_URL, "all_proxy=" EGRESS_URL,
                "NO_PROXY=" NOT_BY_IT,    "no_proxy=" NOT_BY_IT,     NULL,
        };
        static const char *const none[] = { NULL };

        return is_wanted(config) ? variables : none;
}

/* Serving */

static void on_listening(struct tunnel_listener *l, uint16_t port, uint16_t code, const char *text)
{
        struct egress *e = container_of(l, struct egress, listener);

        if (port || e->warned)
                return;
        e->warned = true;
        log_error("the proxy of an environment cannot listen", LOG_S("place", e->place_id),
                  LOG_I("port", l->port), LOG_I("code", code), LOG_S("error", text));
}

/* A refusal is an event of the run in that place: without it an agent that cannot reach a host
 * only says that something timed out. */
struct refusal {
        struct pool_job job;
        struct runtime *rt;
        char place_id[UUID_LEN + 1];
        char text[HOST_NAME_SIZE + 128];
};

struct refusal_write {
        const struct refusal *f;
        struct op *op;
        struct run run; /* id NULL: none */
};

static int take_run(void *ctx, const struct run *row)
{
        ((struct refusal_write *)ctx)->run = *row;
        return 0;
}

static int write_refusal(struct db *db, void *arg, struct err *err)
{
        struct refusal_write *w = arg;
        int r = runs_last_in_place(db, w->f->place_id, w->op->arena, take_run, w, err);

        if (r < 0 || !w->run.id)
                return r;
        return run_event_add(db, w->f->rt, &w->run, "network", "warn", w->f->text, NULL, err);
}

static void note_refusal(struct pool_job *job, struct op *op)
{
        struct refusal *f = container_of(job, struct refusal, job);
        struct refusal_write w = { .f = f, .op = op };
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        if (store_write(op, f->rt->store, write_refusal, &w, &err) < 0)
                log_warn("a refused connection could not be recorded", LOG_S("error", err.msg));
}

static void refusal_noted(struct pool_job *job)
{
        free(container_of(job, struct refusal, job));
}

static void on_refused(void *ctx, const char *host, uint16_t port, const char *why)
{
        const struct egress *e = ctx;
        struct refusal *f = xcalloc(1, sizeof(*f));

        f->rt = e->rt;
        memcpy(f->place_id, e->place_id, sizeof(f->place_id));
        (void)snprintf(f->text, sizeof(f->text), "blocked: %s:%u, %s", host, port,
                       strstr(why, "not public") ? "its address is not public"
                                                 : "not in allowedHosts");
        f->job = (struct pool_job){ .run = note_refusal,
                                    .done = refusal_noted,
                                    .timeout_ms = NOTE_MS };
        if (!e->rt->pool || pool_submit(e->rt->pool, &f->job, NULL) < 0)
                free(f);
}

static void on_stream(struct tunnel_listener *l, struct byte_stream *take_stream)
{
        proxy_serve(container_of(l, struct egress, listener)->proxy, take_stream);
}

struct egress *egress_new(uv_loop_t *loop, struct resolver *resolver, struct runtime *rt,
                          struct tunnel *tunnel, const char *place_id,
                          struct egress_policy *take_policy)
{
        struct egress *e = xcalloc(1, sizeof(*e));
        const struct proxy_config config = {
                .loop = loop,
                .resolver = resolver,
                .counters = &rt->counters.proxy,
                .name = place_id,
                .patterns = take_policy->patterns,
                .n_patterns = take_policy->n,
                .private_hosts = rt->settings.private_hosts,
                .on_refused = on_refused,
                .ctx = e,
                .head_timeout_ms = take_policy->timeout_ms,
                .resolve_timeout_ms = take_policy->timeout_ms,
                .connect_timeout_ms = take_policy->timeout_ms,
                .idle_timeout_ms = take_policy->timeout_ms,
        };

        e->rt = rt;
        memcpy(e->place_id, place_id, UUID_LEN + 1);
        e->tunnel = tunnel;
        e->proxy = proxy_new(&config);
        e->listener = (struct tunnel_listener){ .kind = TUNNEL_PROXY,
                                                .port = take_policy->port,
                                                .idle_ms = IDLE_MS,
                                                .on_listening = on_listening,
                                                .on_stream = on_stream };
        /* The id is the same after a restart, so the box recognises the listener. */
        (void)frame_uuid_bytes(place_id, e->listener.id);
        egress_policy_free(take_policy);
        tunnel_listen(tunnel, &e->listener);
        return e;
}

void egress_free(struct egress *e)
{
        if (!e)
                return;
        proxy_free(e->proxy);
        tunnel_forget(e->tunnel, &e->listener);
        free(e);
}
