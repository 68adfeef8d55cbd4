/* Channels: how one is made, where it is served, and how it ends.
 *
 * A channel is made on the loop by a letter from the run's operation, which then waits for the port
 * that the box says. It stays attached to its box over links and, by the place's id, over boxes.
 * Connections carry the channel's number and not its address, so a connection that outlives its
 * channel is closed.
 *
 * Closing takes two steps: at once no request is let in; when the requests under way have been
 * answered, and the answers had a moment to arrive, the box stops listening. */
#include "core/callbacks/callback.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/callbacks/callback_files.h"
#include "core/callbacks/callback_internal.h"
#include "core/exec/exec_internal.h"
#include "net/http_server.h"

#define IDLE_MS   200000                       /* the box's own limit, past the server's */
#define TICK_MS   100                          /* of the timer */
#define LINGER_MS 200                          /* for the last answer to arrive */
#define CLOSE_MS  (CALLBACK_TIMEOUT_MS + 5000) /* for requests under way */
#define SETTLE_MS 20000

struct channel *callback_find(struct callback_host *host, const char *run_id)
{
        struct channel *c = host->channels;

        while (c && !streq(c->run_id, run_id))
                c = c->next;
        return c;
}

/* Waiting operations */

static void tell_waiters(struct channel *c, int code, const char *text)
{
        struct waiter *w;

        while ((w = c->waiters)) {
                c->waiters = w->next;
                promise_keep(w->promise, code, text);
                promise_unref(w->promise);
                free(w);
        }
}

static void add_waiter(struct channel *c, struct promise *promise)
{
        struct waiter *w = xcalloc(1, sizeof(*w));

        w->promise = promise_ref(promise);
        w->next = c->waiters;
        c->waiters = w;
}

static void set_port(struct channel *c, uint16_t port)
{
        pthread_mutex_lock(&c->host->lock);
        c->port = port;
        pthread_mutex_unlock(&c->host->lock);
}

/* Being served */

static void on_listening(struct tunnel_listener *l, uint16_t port, uint16_t code, const char *text)
{
        struct channel *c = container_of(l, struct channel, listener);

        set_port(c, port);
        if (port) {
                l->port = port; /* the agent was told: the next box has to take the same */
                tell_waiters(c, 0, NULL);
                return;
        }
        log_error("the callback address of a run cannot be listened on", LOG_S("run", c->run_id),
                  LOG_I("port", l->port), LOG_I("code", code), LOG_S("error", text));
        tell_waiters(c, ERR_PROVIDER, "The box could not listen on the callback address.");
}

static struct http_peer peer_of(uintptr_t number)
{
        struct http_peer peer = { .uid = (uid_t)-1, .address = "callback" };

        /* NOLINTNEXTLINE(performance-no-int-to-ptr): a number, never followed */
        peer.via = (void *)number;
        return peer;
}

static void on_stream(struct tunnel_listener *l, struct byte_stream *take_stream)
{
        struct channel *c = container_of(l, struct channel, listener);
        const struct http_peer peer = peer_of(c->number);

        http_server_serve(c->host->http, take_stream, &peer);
}

void callback_serve(struct callback_host *host, int take_fd, uintptr_t number)
{
        const struct http_peer peer = peer_of(number);

        if (host)
                http_server_serve_fd(host->http, take_fd, &peer);
        else
                close(take_fd);
}

static void attach_channel(struct channel *c, struct box *box)
{
        if (c->box || c->straight || c->closing || !box_tunnel(box))
                return;
        c->box = box;
        c->peer = box->channels;
        box->channels = c;
        tunnel_listen(box->tunnel, &c->listener);
}

/* `keep`: the box goes on listening, for the next request. */
static void detach_channel(struct channel *c, bool keep)
{
        struct channel **at;

        if (!c->box)
                return;
        for (at = &c->box->channels; *at != c; at = &(*at)->peer)
                ;
        *at = c->peer;
        if (keep)
                tunnel_forget(c->box->tunnel, &c->listener);
        else
                tunnel_unlisten(c->box->tunnel, &c->listener);
        c->box = NULL;
        set_port(c, 0);
}

void box_callbacks_up(struct box *box)
{
        struct callback_host *host = box->hub->config.rt->callbacks;

        if (!host)
                return;
        for (struct channel *c = host->channels; c; c = c->next) {
                if (!streq(c->place_id, box->place_id))
                        continue;
                attach_channel(c, box);
                if (!box->has_tunnel)
                        tell_waiters(c, ERR_UNPROCESSABLE,
                                     "The box of the place is of a version that carries no "
                                     "connections.");
        }
}

void box_callbacks_end(struct box *box)
{
        while (box->channels) {
                struct channel *c = box->channels;

                detach_channel(c, true);
                tell_waiters(c, ERR_UNREACHABLE, "The box of the place has ended.");
        }
}

/* Ending */

void callback_channel_free(struct channel *c)
{
        queue_free(c->queue);
        explicit_bzero(c->token, sizeof(c->token));
        free(c);
}

static void drop_channel(struct channel *c)
{
        struct callback_host *host = c->host;
        struct channel **at;

        detach_channel(c, false);
        tell_waiters(c, ERR_CANCELLED, "The run has ended.");
        pthread_mutex_lock(&host->lock);
        for (at = &host->channels; *at != c; at = &(*at)->next)
                ;
        *at = c->next;
        pthread_mutex_unlock(&host->lock);
        callback_channel_free(c);
}

/* Whether it is gone. Requests still under way at the end of its time are broken off, and then no
 * longer count as under way. */
static bool end_if_over(struct channel *c)
{
        int64_t now = clock_mono_ms();

        if (c->in_flight > 0 && now >= c->close_by_ms)
                detach_channel(c, false);
        if (c->in_flight > 0 || now < c->last_answer_ms + LINGER_MS)
                return false;
        drop_channel(c);
        return true;
}

static void on_timer(uv_timer_t *timer)
{
        struct callback_host *host = timer->data;
        struct channel *c, *next;

        callback_notes_flush(host);
        bool more = host->notes || host->job_running;
        for (c = host->channels; c; c = next) {
                next = c->next;
                if (c->closing && !end_if_over(c))
                        more = true;
        }
        host->timer_on = more;
        if (!more)
                uv_timer_stop(timer);
}

void callback_stir(struct callback_host *host)
{
        if (host->timer_on)
                return;
        host->timer_on = true;
        uv_timer_start(&host->timer, on_timer, TICK_MS, TICK_MS);
}

static void begin_end(struct channel *c)
{
        c->closing = true;
        c->close_by_ms = clock_mono_ms() + CLOSE_MS;
        callback_notes_flush(c->host);
        if (!end_if_over(c))
                callback_stir(c->host);
}

/* Its thread has ended. When the queue ended without being closed, the agent's requests are no
 * longer answered, and the run goes on without callbacks. */
static void queue_over(void *ctx)
{
        struct channel *c = ctx;

        queue_free(take_ptr(&c->queue));
        tell_waiters(c, 0, NULL);
        begin_end(c);
}

struct close_letter {
        struct letter letter;
        struct callback_host *host;
        char run_id[UUID_LEN + 1];
        struct promise *promise; /* NULL: no operation waits for the end of its files */
};

static void close_on_loop(struct letter *letter)
{
        struct close_letter *l = container_of(letter, struct close_letter, letter);
        struct channel *c = callback_find(l->host, l->run_id);

        if (l->promise && c && c->queue)
                add_waiter(c, l->promise);
        else if (l->promise)
                promise_keep(l->promise, 0, NULL);
        if (c && c->queue)
                queue_close(c->queue); /* which still passes on the requests that are there */
        else if (c && !c->closing)
                begin_end(c);
        if (l->promise)
                promise_unref(l->promise);
        free(l);
}

static void post_close(struct runtime *rt, const char *run_id, struct promise *promise)
{
        struct close_letter *l;

        if (!rt->callbacks || !rt->mail)
                return;
        l = xcalloc(1, sizeof(*l));
        l->host = rt->callbacks;
        l->promise = promise ? promise_ref(promise) : NULL;
        snprintf(l->run_id, sizeof(l->run_id), "%s", run_id);
        mail_post(rt->mail, &l->letter, close_on_loop);
}

void callback_close(struct runtime *rt, const char *run_id)
{
        post_close(rt, run_id, NULL);
}

static bool has_files(struct callback_host *host, const char *run_id)
{
        if (!host)
                return false;
        pthread_mutex_lock(&host->lock);
        const struct channel *c = callback_find(host, run_id);
        bool yes = c && c->has_files;
        pthread_mutex_unlock(&host->lock);
        return yes;
}

void callback_settle(const struct op *op, struct runtime *rt, const char *run_id)
{
        struct promise *promise = has_files(rt->callbacks, run_id) ? promise_new(NULL) : NULL;
        struct op limited = op_shield(op, SETTLE_MS);

        post_close(rt, run_id, promise);
        if (!promise)
                return;
        (void)promise_wait(promise, &limited, NULL);
        promise_unref(promise);
}

uint64_t callback_count(struct runtime *rt, const char *run_id)
{
        struct callback_host *host = rt->callbacks;

        if (!host)
                return 0;
        pthread_mutex_lock(&host->lock);
        const struct channel *c = callback_find(host, run_id);
        uint64_t n = c ? atomic_load(&c->count) : 0;
        pthread_mutex_unlock(&host->lock);
        return n;
}

/* Opening; the operation is in callback_open.c */

struct open_letter {
        struct letter letter;
        struct callback_host *host;
        struct channel *take_channel;
        struct kept_place *take_place; /* NULL: straight */
        struct promise *promise;
};

/* The run's present channel, if it has one; the new one is not needed then. */
static struct channel *put_channel(struct callback_host *host, struct channel *take)
{
        struct channel *c = callback_find(host, take->run_id);

        if (c) {
                callback_channel_free(take);
                return c;
        }
        take->host = host;
        take->number = ++host->last_number;
        pthread_mutex_lock(&host->lock);
        take->next = host->channels;
        host->channels = take;
        pthread_mutex_unlock(&host->lock);
        return take;
}

static void serve_from(struct channel *c, struct kept_place *take_place, struct promise *promise)
{
        struct box *box = box_add(c->host->rt->hub, take_place);

        if (c->port && c->box == box && box->phase == BOX_READY) {
                promise_keep(promise, 0, NULL);
                return;
        }
        add_waiter(c, promise);
        attach_channel(c, box);
        if (box->phase != BOX_READY)
                box_reach(box);
        else if (!box->has_tunnel)
                box_callbacks_up(box); /* which says so */
}

/* The gateway is there already, at the port that was asked for. */
static void begin_queue(struct channel *c, struct open_letter *l)
{
        CLEAN(err_done) struct err err = { 0 };
        int r = queue_run(c->queue, c->number, queue_over, c, &err);

        set_port(c, c->listener.port);
        promise_keep(l->promise, r, err.msg);
        if (r < 0) {
                queue_free(take_ptr(&c->queue));
                begin_end(c);
        }
}

static void open_on_loop(struct letter *letter)
{
        struct open_letter *l = container_of(letter, struct open_letter, letter);
        struct channel *c = put_channel(l->host, l->take_channel);

        if (c->closing) {
                promise_keep(l->promise, ERR_CONFLICT, "The channel of the run is closed.");
                kept_place_free(l->take_place);
        } else if (c->queue && !c->port) {
                begin_queue(c, l);
        } else if (!l->take_place) {
                promise_keep(l->promise, 0, NULL);
        } else {
                serve_from(c, l->take_place, l->promise);
        }
        promise_unref(l->promise);
        free(l);
}

void callback_post_open(struct callback_host *host, struct channel *take_channel,
                        const struct place *place, struct promise *promise)
{
        struct open_letter *l = xcalloc(1, sizeof(*l));

        take_channel->listener.kind = TUNNEL_CALLBACK;
        take_channel->listener.idle_ms = IDLE_MS;
        take_channel->listener.on_listening = on_listening;
        take_channel->listener.on_stream = on_stream;
        l->host = host;
        l->take_channel = take_channel;
        l->take_place = place ? kept_place_new(place) : NULL;
        l->promise = promise_ref(promise);
        mail_post(host->rt->mail, &l->letter, open_on_loop);
}

/* The host */

int callback_host_new(struct runtime *rt, uv_loop_t *loop, struct http_server *http,
                      struct callback_host **ret, struct err *err)
{
        struct callback_host *host = xcalloc(1, sizeof(*host));

        host->rt = rt;
        host->loop = loop;
        host->http = http;
        host->notes_tail = &host->notes;
        host->timer.data = host;
        pthread_mutex_init(&host->lock, NULL);
        uv_timer_init(loop, &host->timer);
        *ret = host;
        return 0;
}

static void timer_closed(uv_handle_t *handle)
{
        struct callback_host *host = handle->data;

        pthread_mutex_destroy(&host->lock);
        free(host);
}

void callback_host_stop(struct callback_host *host)
{
        for (struct channel *c = host ? host->channels : NULL; c; c = c->next)
                if (c->queue)
                        queue_abandon(c->queue);
}

void callback_host_free(struct callback_host *host)
{
        if (!host)
                return;
        host->rt->callbacks = NULL;
        callback_notes_finish(host);
        /* drop_channel() takes it out of the list, which the analyser does not see. */
        /* NOLINTBEGIN(clang-analyzer-unix.Malloc) */
        while (host->channels) {
                detach_channel(host->channels, true);
                drop_channel(host->channels);
        }
        /* NOLINTEND(clang-analyzer-unix.Malloc) */
        uv_close((uv_handle_t *)&host->timer, timer_closed);
}
