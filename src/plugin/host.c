/* The registry of plugin workers: starting, stopping, and calls to them. */
#include "plugin/host.h"

#include <errno.h>
#include <poll.h>

#include "base/clock.h"
#include "plugin/worker.h"
#include "rt/mail.h"
#include "rt/pool.h"

struct plugin_host {
        struct plugin_host_config config;
        pthread_mutex_t lock;
        struct worker *workers;
        bool stopping; /* no worker is started any more */
};

const char *worker_state_name(enum worker_state state)
{
        static const char *const names[] = { "stopped",  "starting", "running",
                                             "stopping", "crashed",  "backoff" };

        return names[state];
}

/* Life cycle */

static void or_default(int64_t *ms, int64_t fallback)
{
        if (*ms == 0)
                *ms = fallback;
}

static void fill_times(struct worker_times *t)
{
        or_default(&t->initialize, 15000);
        or_default(&t->call, PLUGIN_CALL_MS);
        or_default(&t->drain, 10000);
        or_default(&t->shutdown, 10000);
        or_default(&t->leave, 500);
        or_default(&t->term, 5000);
        or_default(&t->kill, 2000);
        or_default(&t->backoff, 1000);
        or_default(&t->backoff_max, 300000);
        or_default(&t->stable, 60000);
        or_default(&t->crash_budget, 10);
        or_default(&t->settle, 60000);
}

#ifdef BERTH_FAULTS
/* BERTH_TEST_PLUGIN_TIMES=initialize=200,backoff=1: tests do not wait for minutes. */
static void read_test_times(struct worker_times *t)
{
        const struct {
                const char *name;
                int64_t *ms;
        } known[] = {
                { "initialize=", &t->initialize },
                { "call=", &t->call },
                { "drain=", &t->drain },
                { "shutdown=", &t->shutdown },
                { "leave=", &t->leave },
                { "term=", &t->term },
                { "kill=", &t->kill },
                { "backoff=", &t->backoff },
                { "backoff_max=", &t->backoff_max },
                { "stable=", &t->stable },
                { "crash_budget=", &t->crash_budget },
                { "settle=", &t->settle },
        };
        const char *s = getenv("BERTH_TEST_PLUGIN_TIMES");

        while (s && *s) {
                for (size_t i = 0; i < ARRAY_LEN(known); i++)
                        if (str_starts(s, known[i].name))
                                *known[i].ms = strtoll(s + strlen(known[i].name), NULL, 10);
                s += strcspn(s, ",");
                s += *s == ',';
        }
}
#endif

int plugin_host_new(const struct plugin_host_config *config, struct plugin_host **ret,
                    struct err *err)
{
        struct plugin_host *host = xcalloc(1, sizeof(*host));

        host->config = *config;
#ifdef BERTH_FAULTS
        read_test_times(&host->config.times);
#endif
        fill_times(&host->config.times);
        pthread_mutex_init(&host->lock, NULL);
        *ret = host;
        return 0;
}

int64_t plugin_host_settle_ms(const struct plugin_host *host)
{
        return host->config.times.settle;
}

void plugin_host_free(struct plugin_host *host)
{
        struct worker *w;

        if (!host)
                return;
        /* A worker that is left was not stopped in order: it is not waited for. */
        for (w = host->workers; w; w = w->next)
                worker_ask_to_stop(w, true);
        while ((w = host->workers)) {
                host->workers = w->next;
                worker_unref(w);
        }
        pthread_mutex_destroy(&host->lock);
        free(host);
}

/* The registry */

/* A reference, or NULL. */
static struct worker *find_worker(struct plugin_host *host, const char *plugin_id)
{
        struct worker *w;

        pthread_mutex_lock(&host->lock);
        for (w = host->workers; w && !streq(w->id, plugin_id); w = w->next)
                ;
        if (w)
                (void)worker_ref(w);
        pthread_mutex_unlock(&host->lock);
        return w;
}

/* The caller that takes it out gives the registry's reference back. */
static void forget(struct plugin_host *host, struct worker *gone)
{
        struct worker **at;
        bool found;

        pthread_mutex_lock(&host->lock);
        for (at = &host->workers; *at && *at != gone; at = &(*at)->next)
                ;
        found = *at != NULL;
        if (found)
                *at = gone->next;
        pthread_mutex_unlock(&host->lock);
        if (found)
                worker_unref(gone);
}

static int enter_host(struct plugin_host *host, struct worker *w, struct err *err)
{
        struct worker *other;
        int r = 0;

        pthread_mutex_lock(&host->lock);
        for (other = host->workers; other && !streq(other->id, w->id); other = other->next)
                ;
        if (host->stopping)
                r = err_set(err, ERR_BUSY, "The daemon is stopping.");
        else if (other)
                r = err_set(err, ERR_LOCKED, "The worker of plugin \"%s\" is being started.",
                            w->key);
        else
                r = worker_start_thread(w, err);
        if (r >= 0) {
                w->next = host->workers;
                host->workers = worker_ref(w);
        }
        pthread_mutex_unlock(&host->lock);
        return r;
}

/* Starting and stopping */

static int wait_for_start(struct op *op, struct worker *w, struct err *err)
{
        int r = op_wait_fd(op, w->first_fd, POLLIN, -1, err);

        if (r < 0)
                return r;
        pthread_mutex_lock(&w->lock);
        r = 0;
        if (w->first_error[0])
                r = err_set(err, ERR_PROVIDER, "%s", w->first_error);
        else if (w->stop_wanted)
                r = err_set(err, ERR_PROVIDER, "The worker was stopped while it started.");
        pthread_mutex_unlock(&w->lock);
        return r;
}

int plugin_host_start(struct op *op, struct plugin_host *host, const struct worker_spec *spec,
                      struct err *err)
{
        struct worker *w = NULL;
        int r = plugin_host_stop(op, host, spec->plugin_id, err);

        if (r >= 0)
                r = worker_new(host, &host->config, spec, &w, err);
        if (r < 0)
                return r;
        r = worker_prepare(op, w, spec, err);
        if (r >= 0)
                r = enter_host(host, w, err);
        if (r < 0) {
                worker_free(w);
                return r;
        }
        r = wait_for_start(op, w, err);
        if (r == ERR_TIMEOUT || r == ERR_CANCELLED)
                worker_ask_to_stop(w, true);
        worker_unref(w);
        return r;
}

static int wait_for_end(struct op *op, struct plugin_host *host, struct worker *w, struct err *err)
{
        int r = op_wait_fd(op, w->ended_fd, POLLIN, -1, err);

        if (r >= 0)
                forget(host, w);
        return MIN(r, 0);
}

int plugin_host_stop(struct op *op, struct plugin_host *host, const char *plugin_id,
                     struct err *err)
{
        struct worker *w = find_worker(host, plugin_id);
        int r;

        if (!w)
                return 0;
        worker_ask_to_stop(w, false);
        r = wait_for_end(op, host, w, err);
        worker_unref(w);
        return r;
}

int plugin_host_stop_all(struct op *op, struct plugin_host *host, struct err *err)
{
        struct worker *w;
        int r = 0;

        pthread_mutex_lock(&host->lock);
        host->stopping = true;
        for (w = host->workers; w; w = w->next)
                worker_ask_to_stop(w, false);
        pthread_mutex_unlock(&host->lock);
        while (r >= 0) {
                pthread_mutex_lock(&host->lock);
                w = host->workers ? worker_ref(host->workers) : NULL;
                pthread_mutex_unlock(&host->lock);
                if (!w)
                        break;
                r = wait_for_end(op, host, w, err);
                worker_unref(w);
        }
        return r;
}

/* Looking */

bool plugin_host_view(struct plugin_host *host, const char *plugin_id, struct worker_view *ret)
{
        struct worker *w = find_worker(host, plugin_id);

        if (!w)
                return false;
        pthread_mutex_lock(&w->lock);
        *ret = w->view;
        pthread_mutex_unlock(&w->lock);
        worker_unref(w);
        return true;
}

bool plugin_host_is_running(struct plugin_host *host, const char *plugin_id)
{
        struct worker_view view;

        return plugin_host_view(host, plugin_id, &view) && view.state == WORKER_RUNNING;
}

bool plugin_host_supports(struct plugin_host *host, const char *plugin_id, const char *method)
{
        struct worker *w = find_worker(host, plugin_id);
        bool found = false;
        json_t *name;
        size_t i;

        if (!w)
                return false;
        pthread_mutex_lock(&w->lock);
        json_array_foreach(w->methods, i, name) found =
                found || (json_is_string(name) && streq(json_string_value(name), method));
        pthread_mutex_unlock(&w->lock);
        worker_unref(w);
        return found;
}

/* Calling */

int plugin_call_begin(struct plugin_host *host, const struct plugin_call *call, plugin_done_fn done,
                      void *done_ctx, int64_t *ret_id, struct err *err)
{
        struct worker *w = find_worker(host, call->plugin_id);
        int r;

        if (!w) {
                r = err_set(err, ERR_PROVIDER, "No worker registered for plugin \"%s\"",
                            call->plugin_id);
                err_details(err, xstrdup("{\"code\":-32000}"));
                err_mark_transient(err);
                return r;
        }
        r = rpc_begin(w, call, done, done_ctx, ret_id, err);
        worker_unref(w);
        return r;
}

void plugin_call_abandon(struct plugin_host *host, const char *plugin_id, int64_t id, int code)
{
        struct worker *w = find_worker(host, plugin_id);

        if (!w)
                return;
        rpc_abandon(w, id, code);
        worker_unref(w);
}

/* An operation that waits. It stays until it was told, so this lives on its stack. */
struct waiter {
        struct promise *promise;
        int code;
        json_t *result;
        struct err err;
};

static void keep_answer(void *ctx, int code, const json_t *result, const struct err *err)
{
        struct waiter *wait = ctx;
        struct promise *promise = wait->promise;

        wait->code = code;
        if (code < 0) {
                wait->err = *err;
                wait->err.details = err->details ? xstrdup(err->details) : NULL;
        } else {
                /* References are not for two threads. */
                wait->result = result ? json_deep_copy(result) : json_null();
        }
        promise_keep(promise, 0, NULL);
        promise_unref(promise);
}

int plugin_call(struct op *op, struct plugin_host *host, const struct plugin_call *call,
                json_t **ret, struct err *err)
{
        struct op patient = { .arena = op->arena, .deadline_ms = OP_NO_DEADLINE };
        struct plugin_call limited = *call;
        struct waiter wait = { .promise = promise_new(err) };
        int64_t id;
        int r;

        if (!wait.promise)
                return ERR_BUSY;
        pool_needs_seat(op, call->method);
        if (limited.timeout_ms == 0)
                limited.timeout_ms = host->config.times.call;
        limited.timeout_ms = MAX(op_time_left(op, limited.timeout_ms), 1);
        (void)promise_ref(wait.promise);
        r = plugin_call_begin(host, &limited, keep_answer, &wait, &id, err);
        if (r < 0) {
                promise_unref(wait.promise);
                promise_unref(wait.promise);
                return r;
        }
        if (promise_wait(wait.promise, op, NULL) < 0) {
                int why = op_check(op, NULL);

                plugin_call_abandon(host, call->plugin_id, id, why < 0 ? why : ERR_CANCELLED);
                (void)promise_wait(wait.promise, &patient,
                                   NULL); /* its thread never sleeps on it */
        }
        promise_unref(wait.promise);
        if (wait.code < 0)
                err_move(err, &wait.err);
        else
                *ret = wait.result;
        return wait.code;
}
