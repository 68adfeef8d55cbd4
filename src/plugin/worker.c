/* The life of one worker, on its own thread: start, initialize, serve, and again after a crash.
 *
 *   starting ── initialize answered ──► running ── process ends ──► backoff ── pause ──► starting
 *      │ fails the first time *            │ stop                      │ budget spent
 *      ▼                                   ▼                           ▼
 *   crashed                             stopping ──► stopped        crashed
 *
 * A crash counts as one in a row unless the process ran for a stable minute before it.
 *
 * (*) of a plugin that a user installs, enables or changes just now; that user is told. One that
 * ran before is started with the daemon, and no user would hear of it: that start counts as any
 * other (worker_spec.keep_trying). */
#define _GNU_SOURCE
#include "plugin/worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/fd.h"

static void raise_flag(int fd)
{
        uint64_t one = 1;

        (void)!write(fd, &one, sizeof(one));
}

/* State */

static void tell_change(struct worker *w)
{
        struct worker_view view;

        pthread_mutex_lock(&w->lock);
        view = w->view;
        pthread_mutex_unlock(&w->lock);
        if (w->config->changed)
                w->config->changed(w->config->ctx, w->id, &view);
}

static void set_state(struct worker *w, enum worker_state state)
{
        pthread_mutex_lock(&w->lock);
        w->view.state = state;
        w->view.next_restart_at = 0;
        if (state == WORKER_STARTING)
                w->view.started_at = clock_wall_us();
        if (state != WORKER_STARTING && state != WORKER_RUNNING && state != WORKER_STOPPING)
                w->view.pid = 0;
        pthread_mutex_unlock(&w->lock);
        tell_change(w);
}

static bool read_flag(struct worker *w, const bool *flag)
{
        bool set;

        pthread_mutex_lock(&w->lock);
        set = *flag;
        pthread_mutex_unlock(&w->lock);
        return set;
}

static bool stop_wanted(struct worker *w)
{
        return read_flag(w, &w->stop_wanted);
}

/* The process is of no use any more; the first reason counts. */
void worker_fail(struct worker *w, const char *fmt, ...)
{
        va_list ap;

        if (w->failure[0])
                return;
        va_start(ap, fmt);
        vsnprintf(w->failure, sizeof(w->failure), fmt, ap);
        va_end(ap);
}

/* Stopping, step by step */

static void enter_phase(struct worker *w, enum stop_phase phase, int64_t ms)
{
        w->phase = phase;
        w->phase_until_ms = clock_mono_ms() + ms;
}

static void begin_stop(struct worker *w)
{
        set_state(w, WORKER_STOPPING);
        enter_phase(w, STOP_DRAIN, w->initialized ? w->config->times.drain : 0);
}

static void next_phase(struct worker *w)
{
        const struct worker_times *t = &w->config->times;
        json_t *none;

        switch (w->phase) {
        case STOP_DRAIN:
                none = json_object();
                w->shutdown_id = rpc_send_own(w, "shutdown", none);
                json_decref(none);
                enter_phase(w, STOP_ASKED, t->shutdown);
                break;
        case STOP_ASKED:
                enter_phase(w, STOP_LEAVING, t->leave);
                break;
        case STOP_LEAVING:
                worker_signal(w, SIGTERM);
                enter_phase(w, STOP_TERM, t->term);
                break;
        default:
                worker_signal(w, SIGKILL);
                enter_phase(w, STOP_KILL, t->kill);
        }
}

static void step_stop(struct worker *w)
{
        if (w->phase == STOP_NONE && stop_wanted(w))
                begin_stop(w);
        if (w->phase == STOP_NONE)
                return;
        if (w->phase < STOP_TERM && read_flag(w, &w->stop_at_once))
                enter_phase(w, STOP_TERM, 0);
        if (clock_mono_ms() >= w->phase_until_ms || (w->phase == STOP_DRAIN && !rpc_is_busy(w)) ||
            (w->phase == STOP_ASKED && w->shutdown_answered))
                next_phase(w);
}

/* Serving */

static void become_running(struct worker *w)
{
        w->running_since_ms = clock_mono_ms();
        set_state(w, WORKER_RUNNING);
        if (!w->started_once) {
                w->started_once = true;
                raise_flag(w->first_fd);
        }
}

static int wait_for_something(struct worker *w, int64_t until_ms, struct pollfd fds[5])
{
        int64_t now = clock_mono_ms();
        bool paused = w->read_again_ms > now;
        int timeout;

        if (w->phase != STOP_NONE)
                until_ms = MIN(until_ms, w->phase_until_ms);
        if (paused)
                until_ms = MIN(until_ms, w->read_again_ms);
        timeout = until_ms == INT64_MAX ? -1 : (int)MIN(MAX(until_ms - now, 0), INT32_MAX);
        fds[0] = (struct pollfd){ .fd = w->proc.pidfd, .events = POLLIN };
        fds[1] = (struct pollfd){ .fd = w->out_eof || paused ? -1 : w->out_fd, .events = POLLIN };
        fds[2] = (struct pollfd){ .fd = w->err_eof ? -1 : w->err_fd, .events = POLLIN };
        fds[3] = (struct pollfd){ .fd = w->wake_fd, .events = POLLIN };
        fds[4] = (struct pollfd){ .fd = worker_has_output(w) ? w->in_fd : -1, .events = POLLOUT };
        return poll(fds, 5, timeout);
}

static void look_at_start(struct worker *w, int64_t initialize_until)
{
        if (w->initialized && w->view.state == WORKER_STARTING)
                become_running(w);
        if (!w->initialized && w->phase == STOP_NONE && clock_mono_ms() >= initialize_until)
                worker_fail(w, "RPC call \"initialize\" timed out after %lldms",
                            (long long)w->config->times.initialize);
        /* One that ends closes its output a moment before. */
        if (w->eof_ms && w->phase == STOP_NONE &&
            clock_mono_ms() >= w->eof_ms + w->config->times.leave)
                worker_fail(w, "the worker closed its output");
        if (w->initialized && !w->failure[0])
                rpc_release_held(w);
}

/* Until the process has ended or is of no use any more. */
static void serve(struct worker *w)
{
        int64_t initialize_until = clock_mono_ms() + w->config->times.initialize;

        for (;;) {
                struct pollfd fds[5];
                int64_t until = rpc_expire(w);
                uint64_t ignored;

                look_at_start(w, initialize_until);
                step_stop(w);
                worker_send(w);
                if (w->failure[0])
                        return;
                if (!w->initialized)
                        until = MIN(until, initialize_until);
                if (w->eof_ms)
                        until = MIN(until, w->eof_ms + w->config->times.leave);
                if (wait_for_something(w, until, fds) < 0 && errno != EINTR)
                        return;
                if (fds[3].revents)
                        (void)!read(w->wake_fd, &ignored, sizeof(ignored));
                if (fds[2].revents)
                        (void)worker_receive(w, w->err_fd, &w->err_lines, &w->err_eof);
                if (fds[1].revents)
                        (void)worker_receive(w, w->out_fd, &w->lines, &w->out_eof);
                if (fds[0].revents)
                        return;
                if (w->out_eof && w->eof_ms == 0)
                        w->eof_ms = clock_mono_ms();
        }
}

/* The first start has its own promise to keep; later starts have no caller that waits. */
static void note_failure(struct worker *w, const char *why)
{
        pthread_mutex_lock(&w->lock);
        snprintf(w->view.reason, sizeof(w->view.reason), "%.*s", (int)sizeof(w->view.reason) - 1,
                 why);
        if (!w->started_once)
                snprintf(w->first_error, sizeof(w->first_error), "%.*s",
                         (int)sizeof(w->first_error) - 1, why);
        pthread_mutex_unlock(&w->lock);
        if (w->keep_trying)
                raise_flag(w->first_fd);
}

/* One process, from its start to its end. */
static void run_process(struct worker *w)
{
        CLEAN(err_done) struct err err = { 0 };
        struct proc_status status;
        char end[1024], why[1200], failure[1024];

        set_state(w, WORKER_STARTING);
        if (worker_process_start(w, &err) < 0) {
                snprintf(why, sizeof(why), "Worker process failed to start: %s", err.msg);
                note_failure(w, why);
                rpc_fail_all(w, why);
                worker_process_forget(w);
                return;
        }
        serve(w);
        if (!w->failure[0])
                worker_read_rest(w); /* it ended by itself */
        worker_bury(w, &status);
        worker_read_rest(w);
        worker_describe_end(w, &status, end, sizeof(end));
        worker_explain(w, w->failure, failure, sizeof(failure));
        if (w->phase == STOP_NONE && !w->initialized)
                snprintf(why, sizeof(why), "Worker initialize failed for \"%s\": %s", w->id,
                         w->failure[0] ? failure : end);
        else
                snprintf(why, sizeof(why), "%s", w->failure[0] ? failure : end);
        if (w->phase == STOP_NONE)
                note_failure(w, why);
        /* No call is accepted between the end of this process and the next one's start. */
        pthread_mutex_lock(&w->lock);
        if (w->view.state == WORKER_STARTING || w->view.state == WORKER_RUNNING)
                w->view.state = WORKER_CRASHED;
        pthread_mutex_unlock(&w->lock);
        rpc_fail_all(w, w->failure[0] ? why : end);
        worker_process_forget(w);
}

/* Restarting */

static int64_t restart_pause(const struct worker *w)
{
        const struct worker_times *t = &w->config->times;
        int64_t pause = t->backoff;
        uint32_t dice = 0;

        for (unsigned i = 1; i < w->view.consecutive_crashes && pause < t->backoff_max; i++)
                pause *= 2;
        pause = MIN(pause, t->backoff_max);
        (void)!getrandom(&dice, sizeof(dice), 0);
        pause += pause / 4 - (int64_t)(dice % 1024) * pause / 2048; /* a quarter either way */
        return MIN(MAX(pause, 1), t->backoff_max);
}

/* Whether it is started again. */
static bool count_crash(struct worker *w)
{
        const struct worker_times *t = &w->config->times;
        int64_t now = clock_mono_ms();
        bool stable = w->initialized && now - w->running_since_ms >= t->stable;
        bool again;

        pthread_mutex_lock(&w->lock);
        w->view.total_crashes++;
        w->view.consecutive_crashes = stable ? 1 : w->view.consecutive_crashes + 1;
        w->view.last_crash_at = clock_wall_us();
        again = (w->started_once || w->keep_trying) &&
                (int64_t)w->view.consecutive_crashes <= t->crash_budget;
        w->view.gave_up = !again;
        pthread_mutex_unlock(&w->lock);
        return again;
}

/* 1 when it is time, 0 when a stop came first. */
static bool pause_before_restart(struct worker *w)
{
        int64_t pause = restart_pause(w), until = clock_mono_ms() + pause;

        set_state(w, WORKER_BACKOFF);
        pthread_mutex_lock(&w->lock);
        w->view.next_restart_at = clock_wall_us() + pause * US_PER_MS;
        pthread_mutex_unlock(&w->lock);
        for (;;) {
                struct pollfd fd = { .fd = w->wake_fd, .events = POLLIN };
                int64_t left = until - clock_mono_ms();
                uint64_t ignored;

                if (stop_wanted(w))
                        return false;
                if (left <= 0)
                        return true;
                if (poll(&fd, 1, (int)MIN(left, INT32_MAX)) > 0)
                        (void)!read(w->wake_fd, &ignored, sizeof(ignored));
        }
}

static void *worker_thread(void *arg)
{
        struct worker *w = arg;
        bool again = true;

        while (again && !stop_wanted(w)) {
                run_process(w);
                again = !stop_wanted(w) && count_crash(w) && pause_before_restart(w);
        }
        set_state(w, stop_wanted(w) ? WORKER_STOPPED : WORKER_CRASHED);
        raise_flag(w->first_fd);
        raise_flag(w->ended_fd);
        return NULL;
}

/* Life cycle */

static json_t *initialize_params(const struct plugin_host_config *config,
                                 const struct worker_spec *spec)
{
        const json_t *version = json_object_get(spec->manifest, "apiVersion");

        return json_pack("{s:O, s:o, s:{s:s, s:s}, s:o, s:n}", "manifest", spec->manifest, "config",
                         spec->config ? json_deep_copy(spec->config) : json_object(),
                         "instanceInfo", "instanceId",
                         config->instance_id ? config->instance_id : "default", "hostVersion",
                         config->host_version ? config->host_version : "0.0.0", "apiVersion",
                         json_is_integer(version) ? json_deep_copy(version) : json_integer(1),
                         "databaseNamespace");
}

void worker_free(struct worker *w)
{
        free(w->id);
        free(w->key);
        free(w->private_dir);
        free(w->program);
        strv_free(w->argv);
        strv_free(w->env);
        json_decref(w->initialize);
        json_decref(w->plugin_config);
        buf_done(&w->stderr_tail);
        secret_set_done(&w->secrets);
        cleanup_fd(&w->wake_fd);
        cleanup_fd(&w->first_fd);
        cleanup_fd(&w->ended_fd);
        pthread_mutex_destroy(&w->lock);
        free(w);
}

int worker_new(struct plugin_host *host, const struct plugin_host_config *config,
               const struct worker_spec *spec, struct worker **ret, struct err *err)
{
        struct worker *w = xcalloc(1, sizeof(*w));
        json_t *manifest = json_deep_copy(spec->manifest); /* references are not for two threads */
        struct worker_spec own = *spec;

        own.manifest = manifest;
        w->host = host;
        w->config = config;
        atomic_init(&w->refs, 1);
        w->id = xstrdup(spec->plugin_id);
        w->key = xstrdup(spec->plugin_key);
        w->private_dir = xstrdup(spec->private_dir);
        w->env = xstrv_copy(spec->env);
        w->keep_trying = spec->keep_trying;
        w->initialize = initialize_params(config, &own);
        json_decref(manifest);
        w->plugin_config = spec->config ? json_deep_copy(spec->config) : json_object();
        w->proc = PROC_INIT;
        w->in_fd = w->out_fd = w->err_fd = -1;
        w->next_id = 1;
        w->calls_end = &w->calls;
        w->out.max = WORKER_OUT_MAX;
        w->stderr_tail.max = WORKER_STDERR_KEPT + WORKER_STDERR_LINE + 16;
        w->view.state = WORKER_STARTING;
        pthread_mutex_init(&w->lock, NULL);
        w->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        w->first_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        w->ended_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (w->wake_fd < 0 || w->first_fd < 0 || w->ended_fd < 0) {
                int r = err_sys(err, ERR_BUSY, errno, "eventfd");

                worker_free(w);
                return r;
        }
        *ret = w;
        return 0;
}

int worker_start_thread(struct worker *w, struct err *err)
{
        sigset_t all, before;
        int r;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        r = pthread_create(&w->thread, NULL, worker_thread, w);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r == 0 ? 0 : err_sys(err, ERR_BUSY, r, "start a thread");
}

struct worker *worker_ref(struct worker *w)
{
        atomic_fetch_add(&w->refs, 1);
        return w;
}

void worker_unref(struct worker *w)
{
        if (!w || atomic_fetch_sub(&w->refs, 1) != 1)
                return;
        pthread_join(w->thread, NULL);
        worker_free(w);
}

void worker_ask_to_stop(struct worker *w, bool at_once)
{
        pthread_mutex_lock(&w->lock);
        w->stop_wanted = true;
        w->stop_at_once = w->stop_at_once || at_once;
        pthread_mutex_unlock(&w->lock);
        raise_flag(w->wake_fd);
}
