/* The engine's part on the loop: which runs are worked on here, one job at a time for each, and the
 * watches on their commands.
 *
 *   kick ──► pass (run_queue.c) ──► claimed, strays, cancelled
 *                                      │
 *            prepare ──► watch ──► finish ──► done ──► kick
 *                          │ ▲
 *                          └─┘ pump: output into the log
 *
 * A job that could not be done is taken up again by the recorded step (run_recover.c), with growing
 * pauses; after so many times in a row the run is given up, with an unknown outcome. A run with a
 * preparation that may succeed later (run_postpone.c) is taken up after the recorded pause, as
 * often as needed; it is not given up, because nothing can be lost. */
#include <signal.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/runs/run_assets.h"
#include "core/runs/run_internal.h"

#define PREPARE_MS   1800000
#define PUMP_MS      5
#define NOTE_MS      1000
#define AGAIN_MS     100
#define AGAIN_MAX_MS 30000
#define ATTEMPTS_MAX 24    /* some eight minutes */
#define SIGNAL_MS    100   /* until a box can be reached */
#define KILL_MS      1000  /* until SIGKILL is sent again */
#define UNHEARD_MS   60000 /* for a cancelled command to give a sign of its end, after its grace */
#define NEVER        INT64_MAX

enum todo {
        TODO_NOTHING,
        TODO_PREPARE,
        TODO_RECOVER,
        TODO_HTTP,
        TODO_FINISH,
        TODO_GIVE_UP,
        TODO_PUMP,
};

struct run_work {
        struct run_work *next;
        struct run_host *host;
        struct pool_job job;
        struct run_result result;
        struct exec_watch watch;
        struct exec_view view, noted; /* of its command; the second is for a pump */
        int64_t signal_at, pump_at, again_at, noted_at;
        int64_t end_at;    /* when a command that lives on after its last word is asked to end */
        int64_t leave_at;  /* when a cancelled command is not waited for any more */
        enum todo todo;    /* waits for a job, or has one */
        unsigned failures; /* since its command was last seen */
        int last_signal;
        bool busy;
        struct run_pump pump;
        bool ask; /* with the next pump */
        bool watching;
        bool ended, grew; /* of its command */
        bool cancel;
        char id[UUID_LEN + 1];
        struct lane_name lane; /* where its job needs a seat; key "": not known */
};

struct run_host {
        struct runtime *rt;
        uv_loop_t *loop;
        struct run_work *works, **tail;
        struct pool_job pass_job;
        struct run_pass pass;
        bool passing, again, want_strays;
        struct letter letter;
        _Atomic bool posted;
        uv_timer_t due_timer, stray_timer;
        unsigned handles;
        bool started, stopping;
};

static void run_work_drive(struct run_work *w);
static void start_pass(struct run_host *host);

/* -- Timers ------------------------------------------------------------------------------------ */

static int64_t due_at(const struct run_work *w)
{
        int64_t at = MIN(MIN(w->signal_at, w->end_at), w->leave_at);

        if (w->todo == TODO_NOTHING && w->grew)
                at = MIN(at, w->pump_at);
        return MIN(at, w->again_at);
}

static void host_due(uv_timer_t *timer);

static void host_arm(struct run_host *host)
{
        int64_t at = NEVER, now = clock_mono_ms();

        for (const struct run_work *w = host->works; w; w = w->next)
                at = MIN(at, due_at(w));
        if (at == NEVER || host->stopping)
                uv_timer_stop(&host->due_timer);
        else
                uv_timer_start(&host->due_timer, host_due, (uint64_t)MAX(at - now, 0) + 1, 0);
}

/* -- Works ------------------------------------------------------------------------------------- */

static struct run_work *run_work_find(struct run_host *host, const char *id)
{
        struct run_work *w = host->works;

        while (w && !streq(w->id, id))
                w = w->next;
        return w;
}

static void run_work_changed(struct exec_watch *watch, const struct exec_view *view);

static void run_work_add(struct run_host *host, const char *id, enum todo todo)
{
        struct run_work *w;

        if (run_work_find(host, id))
                return;
        w = xcalloc(1, sizeof(*w));
        w->host = host;
        memcpy(w->id, id, UUID_LEN + 1);
        w->todo = todo;
        w->watch.changed = run_work_changed;
        w->result.grace_ms = RUN_GRACE_MS;
        w->signal_at = w->again_at = w->end_at = w->leave_at = NEVER;
        *host->tail = w;
        host->tail = &w->next;
        run_work_drive(w);
}

static void run_work_drop(struct run_work *w)
{
        struct run_host *host = w->host;
        struct run_work **at = &host->works;

        while (*at != w)
                at = &(*at)->next;
        *at = w->next;
        if (host->tail == &w->next)
                host->tail = at;
        free(w->result.input);
        free(w);
}

/* -- Ending commands --------------------------------------------------------------------------- */

/* A limit, or what a test sets instead of it. */
static int64_t limit_for_test(int64_t limit, const char *variable)
{
#ifdef BERTH_FAULTS
        const char *given = getenv(variable);

        if (given)
                return strtoll(given, NULL, 10);
#endif
        return limit;
}

static void send_signal(struct run_work *w)
{
        int number = w->last_signal ? SIGKILL : SIGTERM;

        if (w->cancel && w->watching && w->leave_at == NEVER)
                w->leave_at = clock_mono_ms() + w->result.grace_ms +
                              limit_for_test(UNHEARD_MS, "BERTH_TEST_RUN_UNHEARD_MS");
        if (!w->watching || exec_signal(w->host->rt->hub, w->result.execution, number, NULL) < 0) {
                w->signal_at = w->watching ? clock_mono_ms() + SIGNAL_MS : NEVER;
                return;
        }
        w->signal_at = clock_mono_ms() + (number == SIGTERM ? w->result.grace_ms : KILL_MS);
        w->last_signal = number;
}

static void run_work_cancel(struct run_work *w)
{
        if (w->cancel)
                return;
        w->cancel = true;
        if (w->busy && (w->todo == TODO_PREPARE || w->todo == TODO_HTTP))
                pool_cancel(w->host->rt->pool, &w->job);
        if (!w->last_signal)
                send_signal(w);
        if (!w->busy && w->again_at != NEVER) /* it waits, and was cancelled meanwhile */
                w->again_at = clock_mono_ms();
        run_work_drive(w);
}

/* The run's place may be gone for good, and other runs wait for its issue and its agent. Releasing
 * the lease ends what may be left of it. */
static void run_work_leave(struct run_work *w)
{
        if (w->watching && (w->busy || w->todo != TODO_NOTHING)) {
                w->leave_at = clock_mono_ms() + SIGNAL_MS;
                return;
        }
        w->signal_at = w->end_at = w->leave_at = NEVER;
        if (!w->watching)
                return;
        exec_watch_remove(w->host->rt->hub, w->result.execution, &w->watch);
        w->watching = false;
        w->todo = TODO_GIVE_UP;
}

/* The command has sent its last word: it gets a moment to end, and no more. The request to end is
 * recorded first. */
static void mind_last_word(struct run_work *w, int64_t now)
{
        if (w->last_signal || !w->watching || !w->pump.word.said)
                return;
        if (w->pump.asked)
                send_signal(w);
        else if (w->end_at == NEVER)
                w->end_at = now + adapter_linger_ms(w->pump.word.type);
}

/* -- Watching ---------------------------------------------------------------------------------- */

static void note_change(struct run_work *w, const struct exec_view *view)
{
        uint64_t seen = w->view.stdout_len + w->view.stderr_len;

        w->grew = w->grew || view->stdout_len + view->stderr_len > seen;
        if (view->pid && !w->view.pid) { /* that it runs is recorded at once */
                w->grew = true;
                w->noted_at = w->pump_at = 0;
        }
        w->view = *view;
        if (view->ended) {
                w->ended = true;
                w->watching = false; /* the list of watches goes with the execution */
                w->signal_at = w->end_at = w->leave_at = NEVER;
        }
}

static void run_work_changed(struct exec_watch *watch, const struct exec_view *view)
{
        struct run_work *w = container_of(watch, struct run_work, watch);

        note_change(w, view);
        run_work_drive(w);
        host_arm(w->host);
}

static void input_taken(void *arg, int code)
{
        free(arg);
}

/* Send all of the input: the part that the command has already is dropped. */
static void send_input(struct run_work *w)
{
        char *input = take_ptr(&w->result.input);
        struct stdin_piece piece = { .data = input, .len = w->result.input_len, .eof = true };

        if (input && (!w->watching || exec_stdin(w->host->rt->hub, w->result.execution, &piece,
                                                 input_taken, input, NULL) < 0))
                free(input);
}

static void start_watching(struct run_work *w)
{
        struct exec_hub *hub = w->host->rt->hub;
        struct exec_view view;

        if (!streq(w->view.id, w->result.execution)) /* this command was not asked to end yet */
                w->last_signal = 0;
        w->ended = w->ask = false;
        w->view = (struct exec_view){ 0 };
        w->watching = exec_watch_add(hub, w->result.execution, &w->watch);
        if (!w->watching)
                w->ended = true; /* its row says how it ended */
        else if (exec_snapshot(hub, w->result.execution, &view))
                note_change(w, &view);
        send_input(w);
        if (w->cancel && !w->last_signal)
                send_signal(w);
        else if (w->cancel) /* it was asked already */
                w->signal_at = clock_mono_ms() + w->result.grace_ms;
}

/* -- Jobs -------------------------------------------------------------------------------------- */

static enum lane_kind lane_kind(const struct run_work *w)
{
        return w->todo == TODO_HTTP ? LANE_REQUESTS : LANE_PEERS;
}

/* A job that may wait for a provider, a host or a box needs a seat in the lane of its environment.
 * False: there is none now. If the run cannot be read, its job handles that. */
static bool has_seat(struct run_work *w, struct op *op)
{
        struct lane_name name;

        if (w->job.lane != LANE_RUNS ||
            run_lane(op, w->host->rt, w->id, w->todo == TODO_HTTP, &name, NULL) < 0 ||
            pool_take_seat(op, lane_kind(w), &name))
                return true;
        w->result.next = RUN_NEXT_LANE;
        w->result.lane = name;
        return false;
}

static void job_run(struct pool_job *job, struct op *op)
{
        static run_job_fn *const jobs[] = {
                [TODO_PREPARE] = run_prepare, [TODO_RECOVER] = run_recover, [TODO_HTTP] = run_http,
                [TODO_FINISH] = run_finish,   [TODO_GIVE_UP] = run_give_up,
        };
        struct run_work *w = container_of(job, struct run_work, job);
        struct runtime *rt = w->host->rt;

        op->actor = &actor_system;
        if (w->todo == TODO_PUMP)
                run_pump(op, rt, w->id, &w->pump);
        else if (has_seat(w, op))
                w->result.next = jobs[w->todo](op, rt, w->id, &w->result);
}

static void after_pump(struct run_work *w)
{
        int64_t now = clock_mono_ms();

        w->grew = w->grew || w->pump.more;
        w->pump_at = now + PUMP_MS;
        if (w->pump.view)
                w->noted_at = now;
        w->todo = TODO_NOTHING;
        mind_last_word(w, now);
}

/* Try later; or, after enough failed tries in a row, record that it could not be done. That may
 * fail for the same reason, and then both are tried again. */
static void try_again(struct run_work *w, enum todo did)
{
        unsigned shift = MIN(w->failures, 9u);

        if (did != TODO_GIVE_UP &&
            w->failures >= limit_for_test(ATTEMPTS_MAX, "BERTH_TEST_RUN_ATTEMPTS")) {
                w->todo = TODO_GIVE_UP;
                return;
        }
        w->again_at = clock_mono_ms() + MIN(AGAIN_MS << shift, AGAIN_MAX_MS);
        w->failures++;
}

/* A command that the hub does not know has ended, and its row says how. When the row says that it
 * runs, asking again at once would go on for ever. */
static void run_work_watch(struct run_work *w, enum todo did)
{
        start_watching(w);
        if (w->watching) {
                w->failures = 0;
        } else if (did == TODO_FINISH) {
                w->ended = false;
                try_again(w, did);
        }
}

static void after_step(struct run_work *w)
{
        enum todo did = w->todo;

        w->todo = TODO_NOTHING;
        w->lane = lane_name(NULL, NULL);
        switch (w->result.next) {
        case RUN_NEXT_LANE:
                w->todo = did;
                w->lane = w->result.lane;
                break;
        case RUN_NEXT_WATCH:
                run_work_watch(w, did);
                break;
        case RUN_NEXT_HTTP:
                w->todo = TODO_HTTP;
                break;
        case RUN_NEXT_FINISH:
                w->todo = TODO_FINISH;
                break;
        case RUN_NEXT_AGAIN:
                try_again(w, did);
                break;
        case RUN_NEXT_PREPARE:
                w->todo = TODO_PREPARE;
                break;
        case RUN_NEXT_WAIT:
                w->failures = 0;
                w->again_at = w->cancel ? 0 : clock_mono_ms() + w->result.pause_ms;
                break;
        case RUN_NEXT_DONE:
                break;
        }
}

static void job_done(struct pool_job *job)
{
        struct run_work *w = container_of(job, struct run_work, job);
        struct run_host *host = w->host;
        bool was_step = w->todo != TODO_PUMP;

        w->busy = false;
        if (was_step)
                after_step(w);
        else
                after_pump(w);
        if (was_step && w->result.next == RUN_NEXT_DONE) {
                run_work_drop(w);
                run_host_kick(host);
        } else {
                run_work_drive(w);
        }
        for (w = host->works; w; w = w->next)
                run_work_drive(w);
        host_arm(host);
}

static void run_work_submit(struct run_work *w)
{
        struct run_host *host = w->host;

        w->job = (struct pool_job){ .run = job_run, .done = job_done, .urgent = true };
        if (w->todo == TODO_PREPARE)
                w->job.timeout_ms = PREPARE_MS;
        /* A run that was cancelled makes no request, so it waits for no seat: the cancel may have
         * come while it asked for one. */
        if (w->todo == TODO_HTTP && w->cancel)
                ;
        else if (w->lane.key[0])
                pool_job_lane(&w->job, lane_kind(w), w->lane);
        else
                pool_job_lane(&w->job, LANE_RUNS, lane_name(NULL, NULL));
        w->busy = pool_submit(host->rt->pool, &w->job, NULL) >= 0;
        w->again_at = w->busy ? NEVER : clock_mono_ms() + AGAIN_MS;
}

/* Begin the next job of the run, if any. */
static void run_work_drive(struct run_work *w)
{
        int64_t now = clock_mono_ms();

        if (w->busy || w->host->stopping)
                return;
        if (w->todo == TODO_NOTHING && w->ended) {
                w->ended = w->grew = false;
                w->todo = TODO_FINISH;
        } else if (w->todo == TODO_NOTHING && w->again_at <= now) {
                w->again_at = NEVER;
                w->todo = TODO_RECOVER;
        } else if (w->todo == TODO_NOTHING && w->grew && w->pump_at <= now) {
                w->grew = false;
                w->noted = w->view;
                w->pump.view = now - w->noted_at >= NOTE_MS ? &w->noted : NULL;
                w->pump.ask = w->ask;
                w->ask = false;
                w->todo = TODO_PUMP;
        }
        if (w->todo != TODO_NOTHING)
                run_work_submit(w);
}

static void host_due(uv_timer_t *timer)
{
        struct run_host *host = container_of(timer, struct run_host, due_timer);
        int64_t now = clock_mono_ms();

        for (struct run_work *w = host->works; w; w = w->next) {
                if (w->signal_at <= now)
                        send_signal(w);
                if (w->end_at <= now) { /* ask it to end */
                        w->end_at = NEVER;
                        w->ask = w->grew = true;
                        w->pump_at = 0;
                }
                if (w->leave_at <= now)
                        run_work_leave(w);
                run_work_drive(w);
        }
        host_arm(host);
}

/* -- Passes ------------------------------------------------------------------------------------ */

static void pass_run(struct pool_job *job, struct op *op)
{
        struct run_host *host = container_of(job, struct run_host, pass_job);
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        if (run_pass(op, host->rt, &host->pass, &err) < 0 && err.code != ERR_CANCELLED)
                log_error("could not look for runs", LOG_S("error", err.msg));
}

static void pass_done(struct pool_job *job)
{
        struct run_host *host = container_of(job, struct run_host, pass_job);
        struct run_pass pass = host->pass;

        host->pass = (struct run_pass){ 0 };
        host->passing = false;
        for (size_t i = 0; i < pass.strays.n; i++)
                run_work_add(host, pass.strays.at[i], TODO_RECOVER);
        for (size_t i = 0; i < pass.claimed.n; i++)
                run_work_add(host, pass.claimed.at[i], TODO_PREPARE);
        for (size_t i = 0; i < pass.cancelled.n; i++) {
                struct run_work *w = run_work_find(host, pass.cancelled.at[i]);

                if (w)
                        run_work_cancel(w);
        }
        run_ids_done(&pass.strays);
        run_ids_done(&pass.claimed);
        run_ids_done(&pass.cancelled);
        host_arm(host);
        if (host->again)
                start_pass(host);
}

static void start_pass(struct run_host *host)
{
        host->again = host->passing;
        if (host->passing || host->stopping || !host->started)
                return;
        host->pass.look_for_strays = host->want_strays;
        host->pass_job = (struct pool_job){ .run = pass_run, .done = pass_done, .urgent = true };
        host->passing = pool_submit(host->rt->pool, &host->pass_job, NULL) >= 0;
        if (host->passing)
                host->want_strays = false;
}

static void kick_on_loop(struct letter *letter)
{
        struct run_host *host = container_of(letter, struct run_host, letter);

        atomic_store(&host->posted, false);
        start_pass(host);
}

void run_host_kick(struct run_host *host)
{
        if (host && !atomic_exchange(&host->posted, true))
                mail_post(host->rt->mail, &host->letter, kick_on_loop);
}

static void look_for_strays(uv_timer_t *timer)
{
        struct run_host *host = container_of(timer, struct run_host, stray_timer);

        host->want_strays = true;
        start_pass(host);
}

/* -- Life cycle -------------------------------------------------------------------------------- */

int run_host_new(struct runtime *rt, uv_loop_t *loop, struct run_host **ret, struct err *err)
{
        struct run_host *host = xcalloc(1, sizeof(*host));

        run_assets_recover(rt);
        host->rt = rt;
        host->loop = loop;
        host->tail = &host->works;
        uv_timer_init(loop, &host->due_timer);
        uv_timer_init(loop, &host->stray_timer);
        host->due_timer.data = host->stray_timer.data = host;
        host->handles = 2;
        *ret = host;
        return 0;
}

int run_host_start(struct run_host *host, struct err *err)
{
        uint64_t interval = (uint64_t)host->rt->settings.sweep_interval_ms;

        host->started = host->want_strays = true;
        uv_timer_start(&host->stray_timer, look_for_strays, interval, interval);
        start_pass(host);
        return 0;
}

void run_host_stop(struct run_host *host)
{
        if (!host || host->stopping)
                return;
        host->stopping = true;
        uv_timer_stop(&host->due_timer);
        uv_timer_stop(&host->stray_timer);
}

static void handle_closed(uv_handle_t *handle)
{
        struct run_host *host = handle->data;

        if (--host->handles == 0)
                free(host);
}

void run_host_free(struct run_host *host)
{
        struct run_work *w, *next;

        if (!host)
                return;
        host->rt->runs = NULL;
        for (w = host->works; w; w = next) {
                next = w->next;
                if (w->watching)
                        exec_watch_remove(host->rt->hub, w->result.execution, &w->watch);
                free(w->result.input);
                free(w);
        }
        uv_close((uv_handle_t *)&host->due_timer, handle_closed);
        uv_close((uv_handle_t *)&host->stray_timer, handle_closed);
}
