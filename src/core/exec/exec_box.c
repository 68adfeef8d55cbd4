/* One box: its link, what comes over it, and what happens when it goes silent. Loop thread, except
 * where said.
 *
 * A broken link does not mean that the box died: a pool job asks the kernel (the box's lock).
 * Alive: the link is opened again and every execution attached again. Dead: its commands are
 * killed, and its open executions are settled from the exit records it left, or as lost.
 *
 * A box that does not keep to the protocol loses its link and nothing else: its executions stay
 * open, and it is reached again with growing pauses. The link checks which frame may come when
 * (box/link.h); frames that arrive here are in order.
 *
 * A box that keeps the connection and sends nothing loses it too, and is reached again like any
 * other (see "Silence"). That says nothing about its commands either. */
#include "core/exec/exec_internal.h"

#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/places/place.h"

#define LOOK_AFTER_MS 10000 /* at a box that is not on this machine */

static void look_after(struct box *box);

static struct exec *exec_of_channel(struct box *box, uint32_t channel)
{
        struct exec *e = box->execs;

        while (e && e->channel != channel)
                e = e->box_next;
        return channel ? e : NULL;
}

/* Starting and attaching */

static void exec_asked(struct exec *e)
{
        e->asked = true;
        e->asked_beats = 0;
}

/* The time limit of its command begins now, unless it has begun. */
static void exec_begin_limit(struct exec *e, int64_t timeout_ms)
{
        if (timeout_ms > 0 && !e->limit_at)
                e->limit_at = clock_mono_ms() + timeout_ms + SIGNAL_GRACE_MS;
}

static void send_start(struct exec *e)
{
        struct box *box = e->box;

        e->channel = box->next_channel++;
        e->phase = EXEC_SENT;
        e->sent_to = box->pid;
        exec_asked(e);
        exec_begin_limit(e, (int64_t)e->start->timeout_ms);
        if (!box->has_output)
                e->start->flags &= ~(uint32_t)BOX_START_OUTPUT;
        if (e->start->flags & BOX_START_ACP && !box->has_acp) {
                exec_finish(e, EXEC_FAILED,
                            "The box of this place is of an earlier version, which cannot run "
                            "agents that speak ACP. A new lease has a new box.");
                return;
        }
        box_link_start(box->link, e->channel, e->start);
}

void exec_submit(struct exec *e)
{
        if (e->box->phase == BOX_READY && !e->box->listing)
                send_start(e);
        else
                box_reach(e->box);
}

/* An execution runs: its streams may flow. */
static void go_live(struct exec *e, int64_t pid, uint64_t started_ms, uint8_t kill_method)
{
        e->phase = EXEC_LIVE;
        e->asked = false;
        pthread_mutex_lock(&e->hub->lock);
        e->view.status = EXEC_RUNNING;
        e->view.pid = pid;
        /* Its clock may differ from ours, but nothing began in the future. */
        e->view.started_at = MIN((int64_t)started_ms * US_PER_MS, clock_wall_us());
        if (kill_method)
                e->view.kill_method = kill_method;
        pthread_mutex_unlock(&e->hub->lock);
        exec_drop_start(e);
}

static void exec_grow(struct exec *e, uint8_t stream, uint64_t len)
{
        uint64_t *known = stream == BOX_STDOUT ? &e->view.stdout_len : &e->view.stderr_len;

        if (!e->box->route->is_here) /* only what is in our files counts */
                return;
        pthread_mutex_lock(&e->hub->lock);
        if (len > *known)
                *known = len;
        pthread_mutex_unlock(&e->hub->lock);
        if (e->channel && e->box->link)
                box_link_ack(e->box->link, e->channel, stream, len, len);
}

/* What the box says */

static void on_started(void *ctx, uint32_t channel, uint32_t pid, uint64_t started_ms,
                       uint8_t method)
{
        struct exec *e = exec_of_channel(ctx, channel);

        if (!e || e->phase == EXEC_ENDING)
                return;
        go_live(e, pid, started_ms, method);
        if (!e->box->route->is_here)
                exec_spool_attach(e, NULL);
        exec_changed(e);
}

static void on_failed(void *ctx, uint32_t channel, uint16_t code, const char *text)
{
        struct exec *e = exec_of_channel(ctx, channel);
        bool is_want = code == BOX_ERR_SPOOL || code == BOX_ERR_RESOURCES || code == BOX_ERR_FULL;
        CLEAN(cleanup_free)
        char *reason = xasprintf("%s%s", is_want ? EXEC_NOT_NOW_REASON : "", text);

        if (!e || e->phase == EXEC_ENDING)
                return;
        /* The statuses that shells use for the same failures. */
        if (code == BOX_ERR_NOT_FOUND)
                e->final_code = 127;
        else if (code == BOX_ERR_REFUSED)
                e->final_code = 126;
        exec_finish(e, EXEC_FAILED, reason);
}

static void on_grew(void *ctx, uint32_t channel, uint8_t stream, uint64_t len)
{
        struct exec *e = exec_of_channel(ctx, channel);

        if (!e)
                return;
        exec_grow(e, stream, len);
        exec_changed(e);
}

static int on_data(void *ctx, uint32_t channel, uint8_t stream, uint64_t offset, const char *data,
                   size_t len, struct err *err)
{
        struct exec *e = exec_of_channel(ctx, channel);

        return e ? exec_spool_data(e, stream, offset, data, len, err) : 0;
}

static void on_taken(void *ctx, uint32_t channel, uint64_t taken, uint64_t limit)
{
        struct exec *e = exec_of_channel(ctx, channel);

        if (e)
                stdin_taken(e, taken, limit);
}

/* The box said nothing of input when it was attached to: there is none, or no more. */
static void on_pong(void *ctx, uint64_t token)
{
        struct exec *e = exec_of_channel(ctx, (uint32_t)token);

        if (!e || !e->stdin_unsure)
                return;
        e->stdin_unsure = e->takes_stdin = false;
        stdin_fail(e);
}

void exec_take_exit(struct exec *e, const struct box_exit *exit, const char *lost_reason)
{
        if (e->phase == EXEC_ENDING)
                return;
        e->has_exit = true;
        e->exit = *exit;
        exec_set_lengths(e, exit->stdout_len, exit->stderr_len);
        /* Another box was killed and this one found what it left: it is unknown how the command
         * ended. */
        if (exit->code < 0 && exit->signal == 0 && exit->flags & BOX_EXIT_INCOMPLETE)
                exec_finish(e, EXEC_LOST, lost_reason);
        else
                exec_finish(e, EXEC_EXITED, NULL);
}

static void on_exit_frame(void *ctx, uint32_t channel, const struct box_exit *exit)
{
        struct exec *e = exec_of_channel(ctx, channel);

        if (!e)
                return;
        e->box->breaches = 0; /* the box does its work */
        e->limit_at = 0;
        if (e->box->route->is_here)
                exec_take_exit(e, exit, EXEC_LOST_REASON);
        else
                exec_spool_exit(e, exit);
}

/* The box's word on one execution: an answer to LIST (channel 0), ATTACH, or a START it knew
 * already. */
static int on_state(void *ctx, uint32_t channel, const struct box_state *state, struct err *err)
{
        struct box *box = ctx;
        uint32_t flags = box->route->is_here ? BOX_START_SHARED : 0;
        char id[UUID_LEN + 1];

        frame_uuid_text(state->id, id);
        struct exec *e = exec_find(box->hub, id);
        if (!e || e->box != box) {
                /* Its end is recorded already and only the box does not know: let it forget. */
                if (channel == 0 && state->state == BOX_ENDED) {
                        uint32_t spare = box->next_channel++;

                        box_link_attach(box->link, spare, state->id, flags);
                        box_link_forget(box->link, spare);
                }
                return 0;
        }
        if (channel == 0) {
                e->seen = true;
                if (!e->channel) {
                        e->channel = box->next_channel++;
                        exec_asked(e);
                        box_link_attach(box->link, e->channel, state->id, flags);
                }
                return 0;
        }
        if (e->phase == EXEC_ENDING) /* FORGET follows when its end is recorded */
                return 0;
        /* The box took at least what it said before; and no more than this daemon sent, unless an
         * earlier daemon sent it. */
        if (state->state == BOX_RUNNING &&
            (state->stdin_len < e->stdin_taken ||
             (!e->stdin_unsure && state->stdin_len > e->stdin_queued)))
                return err_set(err, ERR_INVALID, "STATE with input that was never sent");
        go_live(e, state->pid, state->started_ms, box->kill_method);
        if (e->stdin_unsure) /* TAKEN comes right behind, or never */
                box_link_ping(box->link, channel);
        stdin_rewind(e, state->stdin_len);
        exec_grow(e, BOX_STDOUT, state->stdout_len);
        exec_grow(e, BOX_STDERR, state->stderr_len);
        if (!box->route->is_here) /* EXIT comes after the output */
                exec_spool_attach(e, state);
        else if (state->state == BOX_ENDED)
                exec_take_exit(e, &state->exit, EXEC_LOST_REASON);
        if (e->phase != EXEC_ENDING)
                exec_changed(e);
        return 0;
}

static void adoption_over(struct box *box)
{
        struct exec_hub *hub = box->hub;

        if (!box->adopting)
                return;
        box->adopting = false;
        if (--hub->adopting == 0 && hub->adopted)
                hub->adopted(hub->adopted_arg);
}

/* A box that did not get START from us does not know the execution. Where our output files exist,
 * or may have existed before a power cut, an earlier daemon may have sent START, or it may have
 * gone to an earlier box. False: whether the files exist cannot be known now. */
static bool judge_unknown(struct exec *e)
{
        struct box *box = e->box;
        CLEAN(cleanup_free)
        char *path = xasprintf("%s/%s/stdout", box->hub->output_dir, e->view.id);

        enum life output = box->route->is_here ? LIFE_NO : file_life_at(AT_FDCWD, path);

        if (e->start && (box->route->is_here || !e->sent_to || e->sent_to == box->pid))
                return true;
        if (output == LIFE_YES)
                exec_spool_lost(e, EXEC_UNKNOWN_REASON);
        else if (output == LIFE_NO && e->of_other_boot && !box->route->is_here)
                exec_take_exit(
                        e,
                        &(struct box_exit){ .code = -1,
                                            .flags = BOX_EXIT_INCOMPLETE,
                                            .ended_ms = (uint64_t)(clock_wall_us() / US_PER_MS) },
                        EXEC_UNKNOWN_REASON);
        else if (output == LIFE_NO)
                exec_finish(e, EXEC_FAILED, EXEC_UNSTARTED_REASON);
        return output != LIFE_UNKNOWN;
}

static void on_closed(void *ctx, const char *why, bool is_breach);

/* After LIST: executions that the box did not name and that were not just queued were never
 * started. */
static void on_listed(void *ctx)
{
        struct box *box = ctx;
        struct box_link *link = box->link;
        struct exec *e, *next;
        bool all = true;

        box->listing = false;
        for (e = box->execs; e; e = next) {
                next = e->box_next;
                if (!e->seen && e->phase != EXEC_ENDING)
                        all = judge_unknown(e) && all;
        }
        if (!all) { /* asked again over the next link */
                on_closed(box, "output files cannot be looked at", false);
                box_link_close(link);
                return;
        }
        adoption_over(box);
        for (e = box->execs; e; e = e->box_next)
                if (e->start && !e->channel && e->phase != EXEC_ENDING)
                        send_start(e);
        if (box->stopping)
                box_link_stop(box->link, STOP_GRACE_MS);
}

static void on_welcome(void *ctx, const struct box_welcome *welcome)
{
        struct box *box = ctx;

        box->phase = BOX_READY;
        box->kill_method = welcome->kill_method;
        box->pid = welcome->pid;
        box->spool_limit = welcome->spool_limit;
        box->failures = 0;
        box->greeting_beats = 0;
        box->is_unknown = false;
        box->has_tunnel = welcome->features & BOX_FEATURE_TUNNEL;
        /* Before the first START, so that a command finds the address already taken. */
        if (box->tunnel && box->has_tunnel)
                tunnel_up(box->tunnel, box->link);
        box->has_files = welcome->features & BOX_FEATURE_FILES;
        box->has_output = welcome->features & BOX_FEATURE_OUTPUT;
        box->has_acp = welcome->features & BOX_FEATURE_ACP;
        box_services_up(box);
        box_callbacks_up(box);
        box->listing = true;
        box_link_list(box->link);
}

static void on_error(void *ctx, uint32_t channel, uint16_t code, const char *text)
{
        struct box *box = ctx;
        struct exec *e = exec_of_channel(box, channel);

        /* Input that the box never takes, for an execution that an earlier daemon started. Sent
         * again over the next link, it would end that link too. */
        if (e && code == BOX_ERR_FRAME && e->stdin_head) {
                e->takes_stdin = false;
                stdin_fail(e);
                return;
        }
        log_warn("a box reported an error", LOG_S("place", box->place_id), LOG_I("code", code),
                 LOG_S("text", text));
}

static int on_tunnel(void *ctx, const struct frame_header *h, struct frame_in *f, struct err *err)
{
        struct box *box = ctx;

        return box->tunnel
                       ? tunnel_frame_in(box->tunnel, h, f, err)
                       : err_set(err, ERR_INVALID, "the box used a tunnel that nobody asked for");
}

static void on_drained(void *ctx)
{
        struct box *box = ctx;

        if (box->tunnel)
                tunnel_drained(box->tunnel);
}

static void on_closed(void *ctx, const char *why, bool is_breach)
{
        struct box *box = ctx;

        if (is_breach) {
                box->breaches++;
                log_warn("a box does not keep to the protocol", LOG_S("place", box->place_id),
                         LOG_S("why", why));
        }
        box->link = NULL;
        box->phase = BOX_IDLE;
        box->listing = false;
        box->silent_beats = box->greeting_beats = 0;
        box->heard = 0;
        box->has_tunnel = false;
        if (box->tunnel)
                tunnel_down(box->tunnel);
        for (struct exec *e = box->execs; e; e = e->box_next) {
                e->channel = 0;
                e->seen = e->asked = false;
                exec_spool_detach(e);
                if (e->phase == EXEC_SENT)
                        e->phase = EXEC_QUEUED;
        }
        if (box->hub->closing)
                return;
        if (!box->stopping)
                log_debug("link to a box closed", LOG_S("place", box->place_id), LOG_S("why", why));
        look_after(box);
}

static const struct box_link_events events = {
        .on_welcome = on_welcome,
        .on_listed = on_listed,
        .on_state = on_state,
        .on_started = on_started,
        .on_failed = on_failed,
        .on_grew = on_grew,
        .on_data = on_data,
        .on_taken = on_taken,
        .on_pong = on_pong,
        .on_exit = on_exit_frame,
        .on_error = on_error,
        .on_tunnel = on_tunnel,
        .on_drained = on_drained,
        .on_closed = on_closed,
};

/* Reaching it */

static void retry_now(uv_timer_t *timer)
{
        box_reach(container_of(timer, struct box, retry));
}

/* A box on this machine is back in a moment or dead, but a want of descriptors may last; a way that
 * is down may stay so for long, and so may a box that does not keep to the protocol. */
static void reach_later(struct box *box)
{
        unsigned failures = MIN(box->failures, box->route->is_here ? 5U : 16U);
        unsigned tries = MAX(MIN(box->breaches, 16U), failures);

        box->failures++;
        uv_timer_start(&box->retry, retry_now,
                       MIN((uint64_t)RECONNECT_MS << tries, (uint64_t)RECONNECT_MAX), 0);
}

void box_reach(struct box *box)
{
        CLEAN(err_done) struct err err = { 0 };
        int fd, r;

        if (box->link || box->job_running || box->hub->closing)
                return;
        r = box->route->connect(box->hub->config.rt, &box->kept->place, &fd, &err);
        if (r >= 0)
                r = box_link_open(box->hub->config.loop, fd, box->hub->node, box->epoch, &events,
                                  box, &box->link, &err);
        if (r >= 0)
                box->phase = BOX_CONNECTING;
        else if (r == ERR_BUSY) /* its backlog is full for the moment */
                reach_later(box);
        else
                look_after(box);
}

/* A box that cannot be reached: is it dead? */

static void check_run(struct pool_job *job, struct op *op)
{
        struct box *box = container_of(job, struct box, job);
        CLEAN(err_done) struct err err = { 0 };

        op->actor = &actor_system;
        int r = exec_settle_place(op, box->hub, &box->kept->place, false, &err);
        /* A box that could not be checked, ended or recorded does not count as dead: it is checked
         * again. */
        box->is_unknown = r == SETTLE_UNKNOWN || r < 0;
        box->found_dead = r != SETTLE_ALIVE && !box->is_unknown;
        if (r < 0)
                log_error("could not settle executions", LOG_S("place", box->place_id),
                          LOG_S("error", err.msg));
}

/* Take the executions that their operations handed over meanwhile: they have not been settled. */
static void take_arrived(struct box *box)
{
        struct exec *e;

        while ((e = box->arrived)) {
                box->arrived = e->box_next;
                exec_join_box(e, box);
        }
}

/* Rows are settled; what is in memory follows. */
static void check_done(struct pool_job *job)
{
        struct box *box = container_of(job, struct box, job);
        struct exec *e, *next;

        box->job_running = false;
        if (!box->found_dead) {
                take_arrived(box);
                reach_later(box);
                return;
        }
        for (e = box->execs; e; e = next) {
                next = e->box_next;
                if (e->phase == EXEC_ENDING)
                        continue;
                exec_drop_ended(e, NULL);
        }
        adoption_over(box);
        if (box->stop) {
                promise_keep(box->stop, 0, NULL);
                promise_unref(box->stop);
                box->stop = NULL;
        }
        box->stopping = false;
        box_tell_quiet(box);
        take_arrived(box);
        bool again = box_services_wait(box);
        if (box->execs || again)
                box_reach(box);
        box->dead = !box->execs && !again;
        box_forget_if_over(box);
}

static void look_after(struct box *box)
{
        CLEAN(err_done) struct err err = { 0 };

        if (box->job_running || box->hub->closing)
                return;
        box->phase = BOX_CHECKING;
        /* For a box elsewhere this may take a while, and must not occupy the thread that is kept
         * for others. */
        box->job = (struct pool_job){ .run = check_run,
                                      .done = check_done,
                                      .urgent = true,
                                      .awaited = box->route->is_here,
                                      .timeout_ms = box->route->is_here ? 0 : LOOK_AFTER_MS };
        if (!box->route->is_here)
                pool_job_lane(
                        &box->job, LANE_LINKS,
                        lane_name(box->kept->place.company_id, box->kept->place.environment_id));
        box->job_running = pool_submit(box->hub->config.pool, &box->job, &err) >= 0;
        if (!box->job_running)
                uv_timer_start(&box->retry, retry_now, 10 * RECONNECT_MS, 0);
}

/* Silence. Time is counted in beats of a timer, BEATS of them in peer_silence_ms: when this process
 * was stopped, its timer was too, and bytes that came meanwhile are read before the next beat.
 *
 * A box from which something is awaited is pinged at every beat. When for BEATS of them no byte
 * comes, or WELCOME, LISTED, or the answer to START or ATTACH does not, its link is cut.
 *
 * The box enforces a time limit. When a living box does not, its link is cut once, BEATS after
 * limit and grace: the next link may bring EXIT. After twice as many more the execution is lost, so
 * that callers do not wait for it for ever. A box that cannot be reached is waited for, and one
 * that still brings output is waited for OVERDUE_MAX beats. */

static const char *find_silence(struct box *box)
{
        uint64_t heard = box_link_heard(box->link);
        bool is_greeting = box->phase == BOX_CONNECTING || box->listing;

        box->silent_beats = heard == box->heard ? box->silent_beats + 1 : 0;
        box->heard = heard;
        box->greeting_beats = is_greeting ? box->greeting_beats + 1 : 0;
        if (box->silent_beats > BEATS)
                return "it says nothing";
        if (box->greeting_beats > BEATS)
                return "it does not answer HELLO or LIST";
        for (struct exec *e = box->execs; e; e = e->box_next)
                if (e->asked && ++e->asked_beats > BEATS)
                        return "it does not answer START or ATTACH";
        return NULL;
}

/* The output kept so far stays. */
static void exec_end_overdue(struct exec *e)
{
        struct box_exit exit = { .code = -1,
                                 .flags = BOX_EXIT_INCOMPLETE,
                                 .ended_ms = (uint64_t)(clock_wall_us() / US_PER_MS),
                                 .stdout_len = e->view.stdout_len,
                                 .stderr_len = e->view.stderr_len };

        log_warn("a box does not end a command whose time is over",
                 LOG_S("place", e->box->place_id), LOG_S("execution", e->view.id));
        if (e->channel)
                box_link_signal(e->box->link, e->channel, SIGKILL);
        e->channel = 0;
        exec_drop_start(e);
        if (e->box->route->is_here)
                exec_take_exit(e, &exit, EXEC_OVERDUE_REASON);
        else
                exec_spool_lost(e, EXEC_OVERDUE_REASON);
}

/* True: it is time to see whether another link brings EXIT. */
static bool mind_limits(struct box *box, int64_t now)
{
        bool is_due = false;
        struct exec *e, *next;

        for (e = box->execs; e; e = next) {
                uint64_t len = e->view.stdout_len + e->view.stderr_len;

                next = e->box_next;
                if (!e->limit_at || now < e->limit_at || e->phase == EXEC_ENDING)
                        continue;
                e->overdue_beats =
                        box->is_unknown || len != e->overdue_len ? 0 : e->overdue_beats + 1;
                e->overdue_len = len;
                e->overdue_all += !box->is_unknown;
                is_due = is_due || e->overdue_beats == BEATS;
                if (e->overdue_beats == 3 * BEATS || e->overdue_all == OVERDUE_MAX)
                        exec_end_overdue(e);
        }
        return is_due;
}

static void exec_beat(uv_timer_t *timer)
{
        struct exec_hub *hub = container_of(timer, struct exec_hub, beat_timer);
        int64_t now = clock_mono_ms();
        struct box *box, *next;

        for (box = hub->boxes; box; box = next) {
                bool is_due = mind_limits(box, now);
                const char *why;

                next = box->next;
                if (!box->link)
                        continue;
                if (box->phase != BOX_CONNECTING && !box->execs && !box->listing &&
                    !box->stopping && !box->services) { /* nothing is awaited from it */
                        box->silent_beats = 0;
                        continue;
                }
                why = is_due ? "it does not end a command whose time is over" : find_silence(box);
                if (!why) {
                        if (box->phase == BOX_READY)
                                box_link_ping(box->link, 0);
                        continue;
                }
                log_warn("a box does not answer", LOG_S("place", box->place_id), LOG_S("why", why));
                box_link_cut(box->link, why);
        }
}

/* Adopting */

static int adopt_place(void *ctx, const struct place *place)
{
        struct exec_hub *hub = ctx;
        const struct runtime *rt = hub->config.rt;
        CLEAN(err_done) struct err err = { 0 };
        struct egress_policy *policy;

        if (!box_route_has_box(rt, place) || place_is_foreign(rt, place))
                return 0;
        /* A configuration that cannot be read leaves the place without a proxy, which is the safe
         * side. */
        if (egress_policy_read(place->config, &policy, &err) < 0)
                log_error("no way out for an environment", LOG_S("place", place->id),
                          LOG_S("error", err.msg));
        box_set_egress(box_add(hub, kept_place_new(place)), policy);
        return 0;
}

static int adopt_execution(void *ctx, const struct execution *row)
{
        struct exec_hub *hub = ctx;
        struct box *box = box_find(hub, row->place_id);
        struct place nobody = { .id = row->place_id, .driver = "" }; /* of what is gone */

        if (!box)
                box = box_add(hub, kept_place_new(&nobody));
        struct exec *e = exec_add(hub, row->id);
        exec_join_box(e, box);
        e->takes_stdin = e->stdin_unsure = true; /* the box knows, and refuses it if not */
        e->of_other_boot = !row->boot_id || !streq(row->boot_id, hub->config.rt->node.boot_id);
        exec_begin_limit(e, row->timeout_ms);
        return 0;
}

int exec_hub_adopt(struct op *op, struct exec_hub *hub, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = exec_output_load(op, hub, err);

        if (r >= 0)
                r = store_read_begin(op, hub->config.rt->store, &db, err);
        if (r >= 0)
                r = places_living(db, NULL, op->arena, adopt_place, hub, err);
        return r < 0 ? r : executions_open(db, NULL, op->arena, adopt_execution, hub, err);
}

static void adopted_enough(uv_timer_t *timer)
{
        struct exec_hub *hub = container_of(timer, struct exec_hub, adopt_timer);

        for (struct box *b = hub->boxes; b; b = b->next) {
                if (b->adopting)
                        log_warn("a supervisor does not answer", LOG_S("place", b->place_id));
                adoption_over(b);
        }
}

void exec_hub_connect(struct exec_hub *hub, void (*done)(void *), void *arg)
{
        uint64_t beat_ms = (uint64_t)hub->config.rt->settings.peer_silence_ms / BEATS;

        uv_timer_start(&hub->adopt_timer, adopted_enough, ADOPT_WAIT_MS, 0);
        if (beat_ms > 0)
                uv_timer_start(&hub->beat_timer, exec_beat, beat_ms, beat_ms);
        hub->adopted = done;
        hub->adopted_arg = arg;
        hub->adopting = 1; /* ours, so that it cannot end while we count */
        for (struct box *b = hub->boxes; b; b = b->next) {
                /* It is unknown when boxes elsewhere are reached. */
                b->adopting = b->route->is_here;
                hub->adopting += b->adopting;
        }
        for (struct box *b = hub->boxes; b; b = b->next)
                box_reach(b);
        if (--hub->adopting == 0)
                done(arg);
}
