/* The loop's side of a connection: its process, the mux on its standard streams, opening it again,
 * and removing it when nothing needs it. See carrier.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/carriers/carrier_internal.h"
#include "core/exec/exec.h"

#define REOPEN_FIRST_MS 100
#define REOPEN_MAX_MS   30000
#define IDLE_MS         60000
#define JOB_MS          240000

static const char *environment_of(const struct carrier *c)
{
        const char *id = c->first->place.environment_id;

        return id ? id : "";
}

/* A carrier's end */

static void carrier_free_if_over(struct carrier_process *k)
{
        if (k->open > 0)
                return;
        promise_unref(k->ready);
        k->all->processes--;
        free(k);
}

static void errors_closed(uv_handle_t *handle)
{
        struct carrier_process *k =
                container_of((uv_poll_t *)handle, struct carrier_process, errors);

        cleanup_fd(&k->err_fd);
        k->open--;
        carrier_free_if_over(k);
}

static void close_errors(struct carrier_process *k)
{
        if (k->has_errors && !uv_is_closing((uv_handle_t *)&k->errors))
                uv_close((uv_handle_t *)&k->errors, errors_closed);
}

/* Error output of the process and the host is not needed any more, but must be read so that it does
 * not block them. */
static void errors_come(uv_poll_t *poll, int status, int events)
{
        struct carrier_process *k = container_of(poll, struct carrier_process, errors);
        char chunk[16384];
        ssize_t n = read(k->err_fd, chunk, sizeof(chunk));

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                close_errors(k);
}

static void kill_session(struct carrier_process *k)
{
        if (k->session > 0)
                (void)kill(-k->session, SIGKILL);
}

static void process_ended(struct proc_watch *w, const struct proc_status *status)
{
        struct carrier_process *k = container_of(w, struct carrier_process, watch);

        k->session = 0;
        k->open--;
        close_errors(k);
        carrier_free_if_over(k);
}

/* Separate the carrier from its connection and end its session. */
static void let_go(struct carrier_process *k)
{
        k->carrier = NULL;
        kill_session(k);
}

static void carrier_reopen(struct carrier *c);

static void on_closed(void *ctx, const char *why, bool is_breach)
{
        struct carrier_process *k = ctx;
        struct carrier *c = k->carrier;

        k->mux = NULL;
        k->open--;
        promise_keep(k->ready, ERR_UNREACHABLE, why);
        if (c) {
                c->process = NULL;
                let_go(k);
        }
        if (c && k->was_ready) { /* else the login reports the result */
                c->breaches = is_breach ? c->breaches + 1 : 0;
                if (is_breach)
                        log_warn("a relay does not keep to the protocol",
                                 LOG_S("at", c->type->what),
                                 LOG_S("environment", environment_of(c)), LOG_S("why", why));
                else
                        log_info("connection lost", LOG_S("to", c->type->what),
                                 LOG_S("environment", environment_of(c)), LOG_S("why", why));
                carrier_set(c, CARRIER_DOWN, ERR_UNREACHABLE, "the connection was lost");
                carrier_reopen(c);
        }
        carrier_free_if_over(k);
}

/* Every place that uses the connection looks for its box again. */
static void on_ready(void *ctx)
{
        struct carrier_process *k = ctx;
        struct carrier *c = k->carrier;

        if (!c)
                return;
        c->failures = 0;
        k->was_ready = true;
        carrier_set(c, CARRIER_UP, 0, NULL);
        pthread_mutex_lock(&c->all->lock);
        for (struct carrier_user *u = c->users; u; u = u->next)
                exec_reach_place(c->all->rt, &u->kept->place);
        pthread_mutex_unlock(&c->all->lock);
        promise_keep(k->ready, 0, NULL);
        if (!c->type->is_of_place) /* the operation that opened it is about to use it */
                carrier_tick(c);
}

/* A letter about a connection. */
struct carrier_letter {
        struct letter letter;
        struct carrier *carrier;
};

/* `c` is counted as in use until drop_on_loop(). */
static void post_to_loop(struct carrier *c, void (*fn)(struct letter *))
{
        struct carrier_letter *l = xcalloc(1, sizeof(*l));

        l->carrier = c;
        mail_post(c->all->rt->mail, &l->letter, fn);
}

static void timer_closed(uv_handle_t *handle)
{
        struct carrier *c = container_of((uv_timer_t *)handle, struct carrier, timer);

        c->all->removals--;
        carrier_free(c);
}

/* The connection of a place that has left goes with the last one that uses it. */
static void drop_on_loop(struct carrier *c)
{
        struct carriers *all = c->all;

        pthread_mutex_lock(&all->lock);
        bool is_over = c->type->is_of_place && c->refs == 1 && !c->users && !all->closing;
        c->refs--;
        if (is_over) {
                struct carrier **at = &all->list;

                while (*at != c)
                        at = &(*at)->next;
                *at = c->next;
        }
        pthread_mutex_unlock(&all->lock);
        if (!is_over)
                return;
        carrier_close(c);
        if (c->has_timer) {
                all->removals++;
                uv_close((uv_handle_t *)&c->timer, timer_closed);
        } else {
                carrier_free(c);
        }
}

static struct carrier *open_letter(struct letter *letter)
{
        struct carrier_letter *l = container_of(letter, struct carrier_letter, letter);
        struct carrier *c = l->carrier;

        free(l);
        return c;
}

static void last_on_loop(struct letter *letter)
{
        drop_on_loop(open_letter(letter));
}

void carrier_put_last(struct carrier *c)
{
        post_to_loop(c, last_on_loop);
}

/* A carrier's beginning */

struct up_letter {
        struct letter letter;
        struct carrier *carrier;
        struct ssh_session session;
        struct promise *ready;
};

static void drop_session(struct up_letter *l)
{
        struct op op = { .deadline_ms = OP_NO_DEADLINE };

        ssh_session_done(&op, &l->session);
}

static int take_over(struct carrier_process *k, struct up_letter *l, struct err *err)
{
        static const struct mux_events events = { .on_ready = on_ready, .on_closed = on_closed };
        struct ssh_session *s = &l->session;
        uv_loop_t *loop = k->carrier->all->loop;
        int r, fd = take_fd(&s->fd);

        r = mux_open(loop, fd, fd, &events, k, &k->mux, err);
        if (r < 0)
                return r;
        k->session = s->proc.pid;
        r = proc_watch_start(&k->watch, loop, &s->proc, process_ended, err);
        if (r < 0) {
                mux_close(take_ptr(&k->mux));
                kill_session(k);
                return r;
        }
        k->open = 2;
        /* The connection works without the error stream, which may have ended by now. */
        k->err_fd = take_fd(&s->err_fd);
        if (k->err_fd >= 0 && uv_poll_init(loop, &k->errors, k->err_fd) >= 0) {
                k->has_errors = true;
                k->open++;
                uv_poll_start(&k->errors, UV_READABLE, errors_come);
        } else {
                cleanup_fd(&k->err_fd);
                k->err_fd = -1;
        }
        return 0;
}

static void up_on_loop(struct letter *letter)
{
        struct up_letter *l = container_of(letter, struct up_letter, letter);
        struct carrier *c = l->carrier;
        CLEAN(err_done) struct err err = { 0 };
        struct carrier_process *k;

        if (c->all->closing) {
                promise_keep(l->ready, ERR_BUSY, "the daemon stops");
        } else {
                k = xcalloc(1, sizeof(*k));
                k->carrier = c;
                k->all = c->all;
                k->err_fd = -1;
                k->ready = promise_ref(l->ready);
                if (take_over(k, l, &err) >= 0) {
                        c->process = k;
                        c->all->processes++;
                } else {
                        promise_keep(l->ready, err.code, err.msg);
                        promise_unref(k->ready);
                        free(k);
                }
        }
        drop_session(l);
        promise_unref(l->ready);
        drop_on_loop(c);
        free(l);
}

static void detach_carrier(struct carrier *c)
{
        struct carrier_process *k = c->process;

        c->process = NULL;
        promise_keep(k->ready, ERR_BUSY, "the connection was closed");
        mux_close(take_ptr(&k->mux));
        k->open--;
        let_go(k);
}

/* The operation that logged in has stopped waiting for the relay. */
static void give_up_on_loop(struct letter *letter)
{
        struct carrier *c = open_letter(letter);

        if (c->process && !c->process->was_ready)
                detach_carrier(c);
        drop_on_loop(c);
}

int carrier_process_start(struct op *op, struct carrier *c, struct ssh_call *call, struct err *err)
{
        struct promise *ready = promise_new(err);
        struct op limited = *op;
        struct up_letter *l;

        if (!ready)
                return ERR_BUSY;
        l = xcalloc(1, sizeof(*l));
        l->carrier = carrier_get(c);
        l->ready = promise_ref(ready);
        l->session = call->session;
        call->session = SSH_SESSION_INIT;
        mail_post(c->all->rt->mail, &l->letter, up_on_loop);
        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + c->all->setup.timeout_ms);
        int r = promise_wait(ready, &limited, err);
        promise_unref(ready);
        if (r < 0)
                post_to_loop(carrier_get(c), give_up_on_loop);
        if (r == ERR_TIMEOUT)
                r = err_set(err, ERR_UNREACHABLE, "The box there does not answer.");
        return r;
}

/* Opening again, and closing idle connections */

static void timer_over(uv_timer_t *timer);

static void set_timer(struct carrier *c, uint64_t ms, bool reopens)
{
        if (c->all->closing)
                return;
        if (!c->has_timer) {
                uv_timer_init(c->all->loop, &c->timer);
                c->has_timer = true;
        }
        c->timer_reopens = reopens;
        uv_timer_start(&c->timer, timer_over, ms, 0);
}

static void reopen_run(struct pool_job *job, struct op *op)
{
        struct carrier *c = container_of(job, struct carrier, job);
        const struct secret_context context = { .for_cleanup = true };
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        if (carrier_open(op, c, &context, NULL, &err) < 0)
                log_info("no connection", LOG_S("to", c->type->what),
                         LOG_S("environment", environment_of(c)), LOG_S("error", err.msg));
}

static void reopen_done(struct pool_job *job)
{
        struct carrier *c = container_of(job, struct carrier, job);

        c->job_running = false;
        if (!c->process)
                carrier_reopen(c);
        drop_on_loop(c);
}

/* Loop thread: open it again, soon, if a place uses it. */
static void carrier_reopen(struct carrier *c)
{
        uint64_t pause = REOPEN_FIRST_MS;

        if (c->job_running || c->all->closing || !carrier_has_users(c) || carrier_is_shut(c) ||
            (c->has_timer && c->timer_reopens && uv_is_active((uv_handle_t *)&c->timer)))
                return;
        for (unsigned i = 0; i < MAX(c->failures, c->breaches) && pause < REOPEN_MAX_MS; i++)
                pause *= 2;
        c->failures++;
        set_timer(c, MIN(pause, REOPEN_MAX_MS), true);
}

static void reopen_now(struct carrier *c)
{
        struct lane_name lane = lane_name(c->first->place.company_id, "");

        if (c->job_running || c->process || !carrier_has_users(c))
                return;
        c->job = (struct pool_job){
                .run = reopen_run, .done = reopen_done, .timeout_ms = JOB_MS, .urgent = true
        };
        snprintf(lane.key, sizeof(lane.key), "%s:%s", c->type->lane, environment_of(c));
        pool_job_lane(&c->job, LANE_LINKS, lane);
        if (pool_submit(c->all->rt->pool, &c->job, NULL) >= 0) {
                c->job_running = true;
                (void)carrier_get(c);
        } else {
                carrier_reopen(c);
        }
}

static void timer_over(uv_timer_t *timer)
{
        struct carrier *c = container_of(timer, struct carrier, timer);

        if (c->timer_reopens)
                reopen_now(c);
        else if (!carrier_has_users(c))
                carrier_close(c);
}

static void tick_on_loop(struct letter *letter)
{
        struct carrier *c = open_letter(letter);

        if (c->process && !carrier_has_users(c) && c->type->is_of_place)
                carrier_close(c); /* the place may be about to stop */
        else if (c->process && !carrier_has_users(c))
                set_timer(c, IDLE_MS, false);
        drop_on_loop(c);
}

void carrier_tick(struct carrier *c)
{
        post_to_loop(carrier_get(c), tick_on_loop);
}

struct mux *carrier_mux(struct carrier *c)
{
        if (c->process && c->process->mux && mux_is_ready(c->process->mux))
                return c->process->mux;
        if (!c->process)
                carrier_reopen(c);
        return NULL;
}

void carrier_close(struct carrier *c)
{
        if (!c->process)
                return;
        detach_carrier(c);
        carrier_set(c, CARRIER_DOWN, 0, NULL);
}

/* Shutting */

struct shut_letter {
        struct letter letter;
        struct carrier *carrier;
        struct promise *done;
};

static void shut_on_loop(struct letter *letter)
{
        struct shut_letter *l = container_of(letter, struct shut_letter, letter);

        carrier_close(l->carrier);
        promise_keep(l->done, 0, NULL);
        promise_unref(l->done);
        drop_on_loop(l->carrier);
        free(l);
}

int carrier_shut(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        CLEAN(carrier_putp) struct carrier *c = NULL;
        struct promise *done;
        struct shut_letter *l;
        int r = carrier_of(rt, place, &c, err);

        if (r < 0)
                return r;
        done = promise_new(err);
        if (!done)
                return ERR_BUSY;
        carrier_use(c, place);
        carrier_set_shut(c, true);
        l = xcalloc(1, sizeof(*l));
        l->carrier = carrier_get(c);
        l->done = promise_ref(done);
        mail_post(rt->mail, &l->letter, shut_on_loop);
        r = promise_wait(done, op, err);
        promise_unref(done);
        return r;
}
