/* A line: a stream to a box inside a sandbox, carried by calls to its plugin. It ends here in a
 * socket pair, whose other end the hub takes for a connected box.
 *
 * Two calls at most are under way: one that brings bytes and comes back at once, and one that waits
 * for bytes, which the other one sets free. A call that brings bytes while none waits takes the
 * answer along. Where a provider runs one call after the other, a call that brings would stand
 * behind the one that waits: there one call at a time does both, and waits a little only. That is
 * seen by the order in which calls end (plugin_box_known.c), unless the manifest says so.
 *
 * Offsets say what is known on either side, so a call that failed is simply made again; after a few
 * failures in a row the line ends, and the hub looks after the box.
 *
 * Parameters, with secrets resolved, are made once for each line by a pool job and live as long as
 * it does. The loop thread owns a line; calls end on the worker's thread and come back by letter.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "codec/exchange.h"
#include "core/access/access.h"
#include "core/exec/exec_internal.h"
#include "core/kinds/plugin/plugin_box.h"
#include "core/kinds/plugin/plugin_capabilities.h"
#include "core/plugins/plugin_registry.h"

#define WAIT_MS      1000
#define BREATH_MS    5   /* before a call that only waits: the hub may answer what just came */
#define ANSWER_MS    40  /* for the answer to what a call brings */
#define SERIAL_MS    100 /* the same, and for everything else, where calls wait for each other */
#define LATE_MS      200 /* a call beside another is late after this */
#define FAILURES_MAX 4
#define AGAIN_MS     50
#define QUIET_POLLS  30 /* after so many without a byte there are pauses */
#define PAUSE_MAX_MS 10000
#define OUT_FULL     ((size_t)1 << 20)
#define PREPARE_MS   30000

struct line {
        struct runtime *rt;
        struct kept_place *place;
        uv_poll_t poll;
        uv_timer_t timer;
        int fd, watching;
        unsigned handles, calls; /* that keep it from being freed */
        bool closed, ready;
        struct pool_job job;
        bool job_running, job_failed;
        /* from the job; the arena keeps them */
        struct arena arena;
        json_t *params;
        const char *plugin_id, *company_id;
        const char *const *redact;
        /* the stream */
        uint64_t session;
        struct buf in; /* from the hub, from `taken` on */
        uint64_t taken;
        struct buf out; /* for the hub */
        uint64_t got;
        bool bringing, waiting, ended, rested;
        unsigned failures, quiet;
        unsigned waited;     /* calls that waited and have ended */
        bool last_was_empty; /* the latest of them brought nothing */
        bool declared_serial;
};

struct line_call {
        struct letter letter;
        struct line *line;
        bool brings;
        bool is_beside;  /* it began while another one waited, */
        unsigned waited; /* which was the one after so many */
        int64_t began_ms;
        int code;
        struct buf answer;
};

static void turn_line(struct line *l);

/* Ending */

static void free_if_over(struct line *l)
{
        if (!l->closed || l->handles > 0 || l->calls > 0 || l->job_running)
                return;
        close(l->fd);
        json_decref(l->params);
        arena_done(&l->arena);
        kept_place_free(l->place);
        buf_wipe(&l->in);
        buf_done(&l->out);
        free(l);
}

static void handle_closed(uv_handle_t *handle)
{
        struct line *l = handle->data;

        l->handles--;
        free_if_over(l);
}

static void end_line(struct line *l)
{
        if (l->closed)
                return;
        l->closed = true;
        (void)shutdown(l->fd, SHUT_RDWR);
        uv_close((uv_handle_t *)&l->poll, handle_closed);
        uv_close((uv_handle_t *)&l->timer, handle_closed);
}

/* Calls */

static void called_on_loop(struct letter *letter);

/* On the worker's thread. */
static void call_done(void *ctx, int code, const json_t *result, const struct err *err)
{
        struct line_call *k = ctx;
        const json_t *printed = json_object_get(result, "stdout");

        k->code = code;
        if (code >= 0)
                k->code = json_is_string(printed)
                                  ? exchange_find(json_string_value(printed),
                                                  json_string_length(printed), &k->answer, NULL)
                                  : ERR_PROVIDER;
        mail_post(k->line->rt->mail, &k->letter, called_on_loop);
}

static json_t *call_params(const struct line *l, const struct exchange_call *q)
{
        CLEAN(buf_wipe) struct buf bytes = BUF_INIT;
        CLEAN(buf_wipe) struct buf text = BUF_INIT;
        json_t *params = json_copy(l->params);

        exchange_call_write(&bytes, q);
        exchange_to_text(&text, &bytes);
        json_object_set_new(params, "stdin", json_stringn(buf_str(&text), text.len));
        return params;
}

static bool is_serial(const struct line *l)
{
        return l->declared_serial || plugin_box_is_serial(l->place->place.environment_id);
}

static uint32_t wait_of(const struct line *l, bool brings)
{
        if (is_serial(l))
                return SERIAL_MS;
        if (!brings)
                return WAIT_MS;
        return l->waiting ? 0 : ANSWER_MS;
}

static void begin_call(struct line *l, bool brings)
{
        struct exchange_call q = { .session = l->session,
                                   .offset = l->taken,
                                   .taken = l->got,
                                   .wait_ms = wait_of(l, brings),
                                   .data = { "", 0 } };
        struct line_call *k = xcalloc(1, sizeof(*k));
        struct plugin_call call = { .plugin_id = l->plugin_id,
                                    .method = "environmentExecute",
                                    .company_id = l->company_id,
                                    .timeout_ms = WAIT_MS + PLUGIN_CALL_GRACE_MS,
                                    .redact = l->redact };
        json_t *params;
        int64_t id;
        int r;

        if (brings)
                q.data = (struct frame_bytes){ l->in.data, MIN(l->in.len, EXCHANGE_IN_MAX) };
        k->line = l;
        k->brings = brings;
        k->is_beside = brings && l->waiting;
        k->waited = l->waited;
        k->began_ms = clock_mono_ms();
        k->answer.max = EXCHANGE_MAX * 2;
        params = call_params(l, &q);
        call.params = params;
        r = plugin_call_begin(plugin_registry_host(l->rt->plugins), &call, call_done, k, &id, NULL);
        json_decref(params);
        l->calls++;
        l->rested = false;
        uv_timer_stop(&l->timer);
        *(brings ? &l->bringing : &l->waiting) = true;
        if (r < 0) { /* as if it had failed a moment later */
                k->code = r;
                mail_post(l->rt->mail, &k->letter, called_on_loop);
        }
}

/* Answers */

static void flush_line(struct line *l)
{
        while (l->out.len > 0) {
                ssize_t n = send(l->fd, l->out.data, l->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        return;
                if (n < 0) {
                        end_line(l);
                        return;
                }
                buf_consume(&l->out, (size_t)n);
        }
        if (l->ended)
                end_line(l);
}

/* False when it makes no sense. */
static bool take_answer(struct line *l, const struct exchange_answer *a)
{
        uint64_t known;

        if (a->taken > l->taken + l->in.len || a->offset > l->got)
                return false;
        if (a->taken > l->taken) {
                buf_consume(&l->in, (size_t)(a->taken - l->taken));
                l->taken = a->taken;
                l->quiet = 0;
        }
        known = MIN(l->got - a->offset, (uint64_t)a->data.len);
        if (a->data.len > known) {
                buf_append(&l->out, a->data.p + known, a->data.len - (size_t)known);
                l->got += a->data.len - known;
                l->quiet = 0;
        }
        if (a->status == EXCHANGE_ENDED && a->offset + a->data.len == l->got)
                l->ended = true;
        return !l->out.failed;
}

/* Whether the line goes on after this call. */
static bool goes_on(struct line *l, bool good, const struct exchange_answer *a)
{
        if (!good)
                return ++l->failures <= FAILURES_MAX;
        if (a->status == EXCHANGE_NO_BOX || a->status == EXCHANGE_STALE)
                return false;
        l->failures = 0;
        l->quiet++;
        return take_answer(l, a);
}

/* What the order of two calls says of the provider. */
static void learn_order(struct line *l, const struct line_call *k, const struct exchange_answer *a)
{
        const char *environment = l->place->place.environment_id;

        if (!k->brings) {
                l->waited++;
                l->last_was_empty = a->data.len == 0;
        } else if (k->is_beside && k->waited == l->waited) {
                plugin_box_note_order(environment, true);
        } else if (k->is_beside && l->last_was_empty && clock_mono_ms() - k->began_ms >= LATE_MS) {
                plugin_box_note_order(environment, false);
        }
}

static void called_on_loop(struct letter *letter)
{
        struct line_call *k = container_of(letter, struct line_call, letter);
        struct exchange_answer a = { 0 };
        struct line *l = k->line;
        bool good;

        l->calls--;
        *(k->brings ? &l->bringing : &l->waiting) = false;
        good = k->code >= 0 &&
               exchange_answer_read(buf_str(&k->answer), k->answer.len, &a, NULL) >= 0;
        if (good)
                learn_order(l, k, &a);
        plugin_box_note_heard(l->place->place.id, good && a.status == EXCHANGE_OPEN);
        if (!l->closed && !goes_on(l, good, &a))
                end_line(l);
        buf_done(&k->answer);
        free(k);
        if (l->closed)
                free_if_over(l);
        else
                turn_line(l);
}

/* What comes next */

static void on_timer(uv_timer_t *timer)
{
        struct line *l = timer->data;

        l->rested = true;
        turn_line(l);
}

static uint64_t pause_of(const struct line *l)
{
        if (l->failures > 0)
                return (uint64_t)AGAIN_MS << l->failures;
        if (l->quiet <= QUIET_POLLS)
                return BREATH_MS;
        return MIN((uint64_t)100 * (l->quiet - QUIET_POLLS), (uint64_t)PAUSE_MAX_MS);
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch_line(struct line *l)
{
        int wanted = (l->in.len < EXCHANGE_IN_MAX ? UV_READABLE : 0) |
                     (l->out.len > 0 ? UV_WRITABLE : 0) | UV_DISCONNECT;

        if (!l->closed && wanted != l->watching) {
                l->watching = wanted;
                uv_poll_start(&l->poll, wanted, on_poll);
        }
}

/* After a failure, and when nothing comes for long, there is a pause before the next call. Bytes
 * from the hub do not wait for the pause of an idle line. */
static bool must_rest(struct line *l)
{
        uint64_t pause = pause_of(l);

        if (pause == 0 || l->rested || (l->failures == 0 && l->in.len > 0))
                return false;
        if (!uv_is_active((uv_handle_t *)&l->timer))
                uv_timer_start(&l->timer, on_timer, pause, 0);
        return true;
}

static void turn_line(struct line *l)
{
        flush_line(l);
        watch_line(l);
        if (l->closed || !l->ready || must_rest(l) || ((l->bringing || l->waiting) && is_serial(l)))
                return;
        if (l->in.len > 0 && !l->bringing)
                begin_call(l, true);
        if (!l->waiting && !l->bringing && l->out.len < OUT_FULL)
                begin_call(l, false);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
        struct line *l = poll->data;
        char *at;
        ssize_t n;

        if (status < 0) {
                end_line(l);
                return;
        }
        if (events & (UV_READABLE | UV_DISCONNECT)) {
                at = buf_reserve(&l->in, EXCHANGE_IN_MAX);
                n = at ? recv(l->fd, at, EXCHANGE_IN_MAX, MSG_DONTWAIT) : -1;
                if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) {
                        end_line(l); /* the hub let go */
                        return;
                }
                if (n > 0)
                        buf_grew(&l->in, (size_t)n);
        }
        turn_line(l);
}

/* Beginning */

static const char *const *copy_texts(struct arena *arena, const char *const *texts)
{
        size_t n = 0;
        const char **copy;

        while (texts && texts[n])
                n++;
        copy = arena_alloc(arena, (n + 1) * sizeof(*copy));
        for (size_t i = 0; i < n; i++)
                copy[i] = arena_strdup(arena, texts[i]);
        return copy;
}

static void prepare_run(struct pool_job *job, struct op *op)
{
        struct line *l = container_of(job, struct line, job);
        const char *const *secrets = NULL;
        struct plugin_lease lease;
        struct plugin_box box;
        json_t *config = NULL;
        int r;

        op->actor = &actor_system;
        r = plugin_box_read(op, &l->place->place, &box, NULL);
        if (r >= 0)
                r = plugin_box_lease(op, l->rt, &l->place->place, &lease, NULL);
        if (r >= 0)
                r = plugin_resolve_config(op, l->rt, &lease.target, &lease.scope, lease.config,
                                          &config, &secrets, NULL);
        l->job_failed = r < 0;
        if (r < 0)
                return;
        l->params = plugin_box_params(&lease, box.program,
                                      (const char *[]){ "--exchange", "--dir",
                                                        arena_printf(op->arena, "%s/boxes/%s",
                                                                     box.base, l->place->place.id),
                                                        NULL },
                                      NULL);
        json_object_set_new(l->params, "driverKey", json_string(lease.target.driver_key));
        json_object_set_new(l->params, "companyId", json_string(lease.scope.company_id));
        json_object_set_new(l->params, "environmentId", json_string(lease.scope.environment_id));
        json_object_set_new(l->params, "issueId", json_string_or_null(lease.scope.issue_id));
        l->declared_serial =
                !plugin_lease_capabilities(l->rt, &lease).has[CAPABILITY_INDEPENDENT_CONTROL];
        l->redact = copy_texts(&l->arena, secrets);
        json_object_set_new(l->params, "config", config);
        l->plugin_id = arena_strdup(&l->arena, lease.target.plugin_id);
        l->company_id = arena_strdup(&l->arena, lease.scope.company_id);
}

static void prepare_done(struct pool_job *job)
{
        struct line *l = container_of(job, struct line, job);

        l->job_running = false;
        l->ready = !l->job_failed;
        if (l->job_failed)
                end_line(l);
        if (l->closed)
                free_if_over(l);
        else
                turn_line(l);
}

int plugin_box_connect(struct runtime *rt, const struct place *place, int *ret_fd, struct err *err)
{
        struct line *l = xcalloc(1, sizeof(*l));
        int fds[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0 ||
            uv_poll_init(rt->hub->config.loop, &l->poll, fds[0]) < 0) {
                free(l);
                return err_sys(err, ERR_PROVIDER, errno, "socketpair");
        }
        uv_timer_init(rt->hub->config.loop, &l->timer);
        l->poll.data = l->timer.data = l;
        l->handles = 2;
        l->rt = rt;
        l->fd = fds[0];
        l->place = kept_place_new(place);
        l->session = (uint64_t)clock_wall_us();
        l->in.max = 2 * EXCHANGE_IN_MAX;
        arena_init(&l->arena);
        l->job = (struct pool_job){
                .run = prepare_run, .done = prepare_done, .urgent = true, .timeout_ms = PREPARE_MS
        };
        pool_job_lane(&l->job, LANE_LINKS, lane_name(place->company_id, place->environment_id));
        l->job_running = pool_submit(rt->hub->config.pool, &l->job, err) >= 0;
        if (!l->job_running) {
                close(fds[1]);
                end_line(l);
                return ERR_PROVIDER;
        }
        watch_line(l);
        *ret_fd = fds[1];
        return 0;
}
