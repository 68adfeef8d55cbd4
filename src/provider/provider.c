/* The loop of a provider: reads requests, gives each a thread, writes answers one at a time. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/fd.h"
#include "codec/jsonrpc.h"
#include "codec/ndjson.h"
#include "provider/call.h"

#define LINE_MAX_BYTES ((size_t)128 << 20)
#define READ_SIZE      ((size_t)64 << 10)
#define CALLS_MAX      256
#define STACK_SIZE     ((size_t)512 << 10)
#define LOG_TEXT_MAX   ((size_t)8 << 10)

static struct {
        pthread_mutex_t out_lock; /* one message at a time */
        pthread_mutex_t lock;     /* the rest */
        struct berth_call *running;
        unsigned n_running;
        const struct berth_provider *provider;
        bool initialized;
} host = { .out_lock = PTHREAD_MUTEX_INITIALIZER, .lock = PTHREAD_MUTEX_INITIALIZER };

/* Methods */

#define METHOD(name, member, shape)                                                                \
        {                                                                                          \
                name, offsetof(struct berth_provider, member), shape                               \
        }

static const struct method {
        const char *name;
        size_t member;
        enum provider_shape shape;
} methods[] = {
        METHOD("health", health, SHAPE_HEALTH),
        METHOD("environmentValidateConfig", validate, SHAPE_VALIDATE),
        METHOD("environmentProbe", probe, SHAPE_PROBE),
        METHOD("environmentAcquireLease", acquire, SHAPE_LEASE),
        METHOD("environmentResumeLease", resume, SHAPE_LEASE),
        METHOD("environmentReleaseLease", release, SHAPE_NULL),
        METHOD("environmentDestroyLease", destroy, SHAPE_NULL),
        METHOD("environmentRealizeWorkspace", realize, SHAPE_REALIZE),
        METHOD("environmentExecute", execute, SHAPE_EXECUTE),
        METHOD("environmentSyncIn", sync_in, SHAPE_SYNC),
        METHOD("environmentSyncOut", sync_out, SHAPE_SYNC),
        METHOD("environmentListLeases", list_leases, SHAPE_LIST),
};

static berth_call_fn function_of(const struct method *m)
{
        berth_call_fn fn;

        memcpy(&fn, (const char *)host.provider + m->member, sizeof(fn));
        return fn;
}

/* Writing */

/* A host that does not read any more is gone: there is nobody to answer. */
static void send_line(const struct buf *line)
{
        pthread_mutex_lock(&host.out_lock);
        if (buf_failed(line) || fd_write_all(STDOUT_FILENO, line->data, line->len, NULL) < 0)
                _exit(1);
        pthread_mutex_unlock(&host.out_lock);
}

static void send_notification(const char *method, json_t *take_params, const char *invocation)
{
        CLEAN(buf_wipe) struct buf line = { .max = LINE_MAX_BYTES };
        CLEAN(json_decrefp)
        json_t *message = json_pack("{s:s, s:s, s:o, s:s*}", "jsonrpc", "2.0", "method", method,
                                    "params", take_params, "paperclipInvocationId", invocation);

        json_put(&line, message);
        buf_putc(&line, '\n');
        send_line(&line);
}

void provider_send_output(const struct berth_call *c, bool is_stderr, const char *data, size_t len)
{
        if (c->invocation)
                send_notification("execute.log",
                                  json_pack("{s:s, s:o}", "stream", is_stderr ? "stderr" : "stdout",
                                            "chunk", provider_clean_string(data, len)),
                                  c->invocation);
}

void berth_log(enum berth_log_level level, const char *format, ...)
{
        static const char *const names[] = { "debug", "info", "warn", "error" };
        CLEAN(buf_done) struct buf text = { .max = LOG_TEXT_MAX };
        va_list ap;

        va_start(ap, format);
        buf_appendv(&text, format, ap);
        va_end(ap);
        send_notification("log",
                          json_pack("{s:s, s:o}", "level", names[level], "message",
                                    provider_clean_string(buf_str(&text), text.len)),
                          NULL);
}

static void answer_result(const json_t *id, json_t *take_result)
{
        CLEAN(buf_wipe) struct buf line = { .max = LINE_MAX_BYTES };

        jsonrpc_put_result(&line, id, take_result);
        json_decref(take_result);
        send_line(&line);
}

static void answer_error(const json_t *id, int code, const char *text)
{
        CLEAN(buf_done) struct buf line = { .max = LINE_MAX_BYTES };

        jsonrpc_put_error(&line, id, code, text);
        send_line(&line);
}

/* Calls */

static void list_call(struct berth_call *c)
{
        pthread_mutex_lock(&host.lock);
        c->next = host.running;
        host.running = c;
        host.n_running++;
        pthread_mutex_unlock(&host.lock);
}

static void unlist_call(struct berth_call *c)
{
        struct berth_call **at = &host.running;

        pthread_mutex_lock(&host.lock);
        while (*at != c)
                at = &(*at)->next;
        *at = c->next;
        host.n_running--;
        pthread_mutex_unlock(&host.lock);
}

/* A sandbox that is given up needs no more of what runs in it. */
static void cancel_others(struct berth_call *giving_up)
{
        const char *lease = berth_lease(giving_up), *other;
        uint64_t one = 1;

        pthread_mutex_lock(&host.lock);
        for (struct berth_call *c = lease ? host.running : NULL; c; c = c->next) {
                other = berth_lease(c);
                if (c == giving_up || c->shape == SHAPE_NULL || !other || !streq(other, lease))
                        continue;
                atomic_store(&c->cancelled, true);
                (void)!write(c->cancel_fd, &one, sizeof(one));
        }
        pthread_mutex_unlock(&host.lock);
}

static int error_code(const struct berth_call *c)
{
        if (c->unsupported)
                return RPC_METHOD_NOT_IMPLEMENTED;
        return c->unknown ? RPC_OUTCOME_UNKNOWN : RPC_WORKER_ERROR;
}

static void *run_call(void *arg)
{
        struct berth_call *c = arg;
        int r;

        if (c->shape == SHAPE_NULL)
                cancel_others(c);
        r = c->fn(c);
        unlist_call(c);
        if (r == 0 && !c->failed)
                answer_result(c->id, provider_call_result(c));
        else
                answer_error(c->id, error_code(c),
                             c->failure.len ? buf_str(&c->failure) : "the provider failed");
        provider_call_free(c);
        return NULL;
}

static void start_call(struct berth_call *c)
{
        pthread_attr_t attr;
        pthread_t thread;
        int r;

        list_call(c);
        pthread_attr_init(&attr);
        pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        pthread_attr_setstacksize(&attr, STACK_SIZE);
        r = host.n_running > CALLS_MAX ? EAGAIN : pthread_create(&thread, &attr, run_call, c);
        pthread_attr_destroy(&attr);
        if (r == 0)
                return;
        unlist_call(c);
        answer_error(c->id, RPC_WORKER_ERROR, "too many calls are under way; try again");
        provider_call_free(c);
}

/* Requests */

static void initialize(const json_t *id)
{
        json_t *names = json_array();

        if (host.initialized) {
                json_decref(names);
                answer_error(id, RPC_WORKER_ERROR, "Worker already initialized");
                return;
        }
        host.initialized = true;
        for (size_t i = 0; i < ARRAY_LEN(methods); i++)
                if (function_of(&methods[i]))
                        json_array_append_new(names, json_string(methods[i].name));
        answer_result(id, json_pack("{s:b, s:o}", "ok", 1, "supportedMethods", names));
}

static const struct method *find_method(const char *name)
{
        for (size_t i = 0; i < ARRAY_LEN(methods); i++)
                if (streq(methods[i].name, name))
                        return &methods[i];
        return NULL;
}

static void take_request(struct jsonrpc *m)
{
        const struct method *method = find_method(m->method);
        struct berth_call *c;

        if (streq(m->method, "initialize")) {
                initialize(m->id);
        } else if (streq(m->method, "shutdown")) {
                answer_result(m->id, json_null());
                _exit(0);
        } else if (!method) {
                CLEAN(cleanup_free) char *text = xasprintf("Unknown method: %.100s", m->method);

                answer_error(m->id, RPC_METHOD_NOT_FOUND, text);
        } else if (!function_of(method) && method->shape == SHAPE_HEALTH) {
                answer_result(m->id, json_pack("{s:s}", "status", "ok"));
        } else if (!function_of(method)) {
                CLEAN(cleanup_free)
                char *text = xasprintf("%s is not implemented by this plugin", method->name);

                answer_error(m->id, RPC_METHOD_NOT_IMPLEMENTED, text);
        } else {
                c = provider_call_new(take_ptr(&m->doc)); /* it goes to another thread */
                c->fn = function_of(method);
                c->shape = method->shape;
                start_call(c);
        }
}

/* Lines that are no messages are skipped: the host is to find out by what it misses. */
static int take_line(void *ctx, const char *line, size_t len)
{
        struct jsonrpc m = { 0 };

        (void)ctx;
        if (jsonrpc_parse(line, len, &m, NULL) >= 0 && m.kind == JSONRPC_REQUEST &&
            !json_is_null(m.id))
                take_request(&m);
        jsonrpc_done(&m);
        return 0;
}

int berth_provider_main(const struct berth_provider *provider)
{
        static char bytes[READ_SIZE];
        struct ndjson lines;
        ssize_t n;

        host.provider = provider;
        (void)signal(SIGPIPE, SIG_IGN);
        json_object_seed(0);
        ndjson_init(&lines, LINE_MAX_BYTES, take_line, NULL);
        for (;;) {
                n = read(STDIN_FILENO, bytes, sizeof(bytes));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        _exit(n < 0 ? 1 : 0); /* the host is gone; threads may be in the middle of a
                                                 call */
                if (ndjson_feed(&lines, bytes, (size_t)n, NULL) < 0) {
                        fprintf(stderr, "a message of the host is larger than %zu MiB\n",
                                LINE_MAX_BYTES >> 20);
                        _exit(1);
                }
        }
}
