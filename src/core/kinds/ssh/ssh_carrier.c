/* The loop's side of connections to ssh hosts: the ssh process, the mux on its standard streams,
 * and opening it again. See ssh_conn.h. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/exec/exec.h"
#include "core/kinds/ssh/ssh_conn.h"

#define REOPEN_FIRST_MS 100
#define REOPEN_MAX_MS   30000
#define IDLE_MS         60000
#define JOB_MS          240000

static bool has_users(struct ssh_conn *c)
{
        pthread_mutex_lock(&c->hosts->lock);
        bool any = c->users != NULL;
        pthread_mutex_unlock(&c->hosts->lock);
        return any;
}

/* A carrier's end */

static void carrier_free_if_over(struct ssh_carrier *k)
{
        if (k->open > 0)
                return;
        promise_unref(k->ready);
        k->hosts->carriers--;
        free(k);
}

static void errors_closed(uv_handle_t *handle)
{
        struct ssh_carrier *k = container_of((uv_poll_t *)handle, struct ssh_carrier, errors);

        cleanup_fd(&k->err_fd);
        k->open--;
        carrier_free_if_over(k);
}

static void close_errors(struct ssh_carrier *k)
{
        if (k->has_errors && !uv_is_closing((uv_handle_t *)&k->errors))
                uv_close((uv_handle_t *)&k->errors, errors_closed);
}

/* Error output of ssh and the host is not needed any more, but must be read so that it does not
 * block them. */
static void errors_come(uv_poll_t *poll, int status, int events)
{
        struct ssh_carrier *k = container_of(poll, struct ssh_carrier, errors);
        char chunk[16384];
        ssize_t n = read(k->err_fd, chunk, sizeof(chunk));

        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
                close_errors(k);
}

static void kill_session(struct ssh_carrier *k)
{
        if (k->session > 0)
                (void)kill(-k->session, SIGKILL);
}

static void process_ended(struct proc_watch *w, const struct proc_status *status)
{
        struct ssh_carrier *k = container_of(w, struct ssh_carrier, watch);

        k->session = 0;
        k->open--;
        close_errors(k);
        carrier_free_if_over(k);
}

/* Separate the carrier from its connection and end its session. */
static void let_go(struct ssh_carrier *k)
{
        k->conn = NULL;
        kill_session(k);
}

static void ssh_carrier_reopen(struct ssh_conn *c);

static void on_closed(void *ctx, const char *why, bool is_breach)
{
        struct ssh_carrier *k = ctx;
        struct ssh_conn *c = k->conn;

        k->mux = NULL;
        k->open--;
        promise_keep(k->ready, ERR_UNREACHABLE, why);
        if (c) {
                c->carrier = NULL;
                let_go(k);
        }
        if (c && k->was_ready) { /* else the login reports the result */
                c->breaches = is_breach ? c->breaches + 1 : 0;
                if (is_breach)
                        log_warn("the relay on an ssh host does not keep to the protocol",
                                 LOG_S("environment", c->environment_id), LOG_S("why", why));
                else
                        log_info("ssh connection lost", LOG_S("environment", c->environment_id),
                                 LOG_S("why", why));
                ssh_conn_set(c, CONN_DOWN, ERR_UNREACHABLE, "the connection to the host was lost");
                ssh_carrier_reopen(c);
        }
        carrier_free_if_over(k);
}

/* Every place that uses the connection looks for its box again. */
static void on_ready(void *ctx)
{
        struct ssh_carrier *k = ctx;
        struct ssh_conn *c = k->conn;

        if (!c)
                return;
        c->failures = 0;
        k->was_ready = true;
        ssh_conn_set(c, CONN_UP, 0, NULL);
        pthread_mutex_lock(&c->hosts->lock);
        for (struct ssh_user *u = c->users; u; u = u->next)
                exec_reach_place(c->hosts->rt, &u->kept->place);
        pthread_mutex_unlock(&c->hosts->lock);
        promise_keep(k->ready, 0, NULL);
        ssh_carrier_tick(c);
}

/* A carrier's beginning */

struct up_letter {
        struct letter letter;
        struct ssh_conn *conn;
        struct ssh_session session;
        struct promise *ready;
};

static void drop_session(struct up_letter *l)
{
        struct op op = { .deadline_ms = OP_NO_DEADLINE };

        ssh_session_done(&op, &l->session);
}

static int take_over(struct ssh_carrier *k, struct up_letter *l, struct err *err)
{
        static const struct mux_events events = { .on_ready = on_ready, .on_closed = on_closed };
        struct ssh_session *s = &l->session;
        uv_loop_t *loop = k->conn->hosts->loop;
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
        struct ssh_conn *c = l->conn;
        CLEAN(err_done) struct err err = { 0 };
        struct ssh_carrier *k;

        if (c->hosts->closing) {
                promise_keep(l->ready, ERR_BUSY, "the daemon stops");
        } else {
                k = xcalloc(1, sizeof(*k));
                k->conn = c;
                k->hosts = c->hosts;
                k->err_fd = -1;
                k->ready = promise_ref(l->ready);
                if (take_over(k, l, &err) >= 0) {
                        c->carrier = k;
                        c->hosts->carriers++;
                } else {
                        promise_keep(l->ready, err.code, err.msg);
                        promise_unref(k->ready);
                        free(k);
                }
        }
        drop_session(l);
        promise_unref(l->ready);
        free(l);
}

/* A letter about a connection. */
struct conn_letter {
        struct letter letter;
        struct ssh_conn *conn;
};

static void post_to_loop(struct ssh_conn *c, void (*fn)(struct letter *))
{
        struct conn_letter *l = xcalloc(1, sizeof(*l));

        l->conn = c;
        mail_post(c->hosts->rt->mail, &l->letter, fn);
}

static struct ssh_conn *open_letter(struct letter *letter)
{
        struct conn_letter *l = container_of(letter, struct conn_letter, letter);
        struct ssh_conn *c = l->conn;

        free(l);
        return c;
}

static void detach_carrier(struct ssh_conn *c)
{
        struct ssh_carrier *k = c->carrier;

        c->carrier = NULL;
        promise_keep(k->ready, ERR_BUSY, "the connection was closed");
        mux_close(take_ptr(&k->mux));
        k->open--;
        let_go(k);
}

/* The operation that logged in has stopped waiting for the relay. */
static void give_up_on_loop(struct letter *letter)
{
        struct ssh_conn *c = open_letter(letter);

        if (c->carrier && !c->carrier->was_ready)
                detach_carrier(c);
}

int ssh_carrier_start(struct op *op, struct ssh_conn *c, struct ssh_call *call, struct err *err)
{
        struct promise *ready = promise_new(err);
        struct op limited = *op;
        struct up_letter *l;

        if (!ready)
                return ERR_BUSY;
        l = xcalloc(1, sizeof(*l));
        l->conn = c;
        l->ready = promise_ref(ready);
        l->session = call->session;
        call->session = SSH_SESSION_INIT;
        mail_post(c->hosts->rt->mail, &l->letter, up_on_loop);
        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + c->hosts->setup.timeout_ms);
        int r = promise_wait(ready, &limited, err);
        promise_unref(ready);
        if (r < 0)
                post_to_loop(c, give_up_on_loop);
        if (r == ERR_TIMEOUT)
                r = err_set(err, ERR_UNREACHABLE, "The box on the host does not answer.");
        return r;
}

/* Opening again, and closing idle connections */

static void timer_over(uv_timer_t *timer);

static void set_timer(struct ssh_conn *c, uint64_t ms, bool reopens)
{
        if (c->hosts->closing)
                return;
        if (!c->has_timer) {
                uv_timer_init(c->hosts->loop, &c->timer);
                c->has_timer = true;
        }
        c->timer_reopens = reopens;
        uv_timer_start(&c->timer, timer_over, ms, 0);
}

static void reopen_run(struct pool_job *job, struct op *op)
{
        struct ssh_conn *c = container_of(job, struct ssh_conn, job);
        const struct secret_context context = { .for_cleanup = true };
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        if (ssh_conn_reach(op, c, &context, NULL, &err) < 0)
                log_info("ssh host not reached", LOG_S("environment", c->environment_id),
                         LOG_S("error", err.msg));
}

static void reopen_done(struct pool_job *job)
{
        struct ssh_conn *c = container_of(job, struct ssh_conn, job);

        c->job_running = false;
        if (!c->carrier)
                ssh_carrier_reopen(c);
}

/* Loop thread: open it again, soon, if a place uses it. */
static void ssh_carrier_reopen(struct ssh_conn *c)
{
        uint64_t pause = REOPEN_FIRST_MS;

        if (c->job_running || c->hosts->closing || !has_users(c) ||
            (c->has_timer && c->timer_reopens && uv_is_active((uv_handle_t *)&c->timer)))
                return;
        for (unsigned i = 0; i < MAX(c->failures, c->breaches) && pause < REOPEN_MAX_MS; i++)
                pause *= 2;
        c->failures++;
        set_timer(c, MIN(pause, REOPEN_MAX_MS), true);
}

static void reopen_now(struct ssh_conn *c)
{
        struct lane_name lane = lane_name(c->company_id, "");

        if (c->job_running || c->carrier || !has_users(c))
                return;
        c->job = (struct pool_job){
                .run = reopen_run, .done = reopen_done, .timeout_ms = JOB_MS, .urgent = true
        };
        snprintf(lane.key, sizeof(lane.key), "ssh:%s", c->environment_id);
        pool_job_lane(&c->job, LANE_LINKS, lane);
        if (pool_submit(c->hosts->rt->pool, &c->job, NULL) >= 0)
                c->job_running = true;
        else
                ssh_carrier_reopen(c);
}

static void timer_over(uv_timer_t *timer)
{
        struct ssh_conn *c = container_of(timer, struct ssh_conn, timer);

        if (c->timer_reopens)
                reopen_now(c);
        else if (!has_users(c))
                ssh_carrier_close(c);
}

static void tick_on_loop(struct letter *letter)
{
        struct ssh_conn *c = open_letter(letter);

        if (c->carrier && !has_users(c))
                set_timer(c, IDLE_MS, false);
}

void ssh_carrier_tick(struct ssh_conn *c)
{
        post_to_loop(c, tick_on_loop);
}

struct mux *ssh_carrier_mux(struct ssh_conn *c)
{
        if (c->carrier && c->carrier->mux && mux_is_ready(c->carrier->mux))
                return c->carrier->mux;
        if (!c->carrier)
                ssh_carrier_reopen(c);
        return NULL;
}

void ssh_carrier_close(struct ssh_conn *c)
{
        if (!c->carrier)
                return;
        detach_carrier(c);
        ssh_conn_set(c, CONN_DOWN, 0, NULL);
}
