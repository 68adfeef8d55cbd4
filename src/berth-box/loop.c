/* The loop. Each turn: wait, handle what came, reap, look at deadlines, tell the host, sync.
 *
 * Telling comes after handling, so that many changes of one turn make one GREW or TAKEN; and
 * syncing exit records comes after telling, because the host need not wait for the disk but
 * nothing else may happen before it (section 5 of the protocol).
 *
 * Deadlines are computed anew each turn from the tables: there are at most a thousand, and nothing
 * has to be kept in step. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "berth-box/sandbox.h"

int box_watch(struct box *b, int fd, uint32_t events, enum box_event kind, int index)
{
        struct epoll_event e = { .events = events };

        e.data.u64 = (uint64_t)kind << 32 | (uint32_t)index;
        return epoll_ctl(b->epoll_fd, EPOLL_CTL_ADD, fd, &e);
}

void box_unwatch(struct box *b, int fd)
{
        (void)epoll_ctl(b->epoll_fd, EPOLL_CTL_DEL, fd, NULL);
}

int box_index(const struct box *b, const struct exec *e)
{
        return (int)(e - b->execs);
}

void box_deadline(int64_t *nearest, int64_t candidate)
{
        if (candidate > 0 && (*nearest == 0 || candidate < *nearest))
                *nearest = candidate;
}

static void read_signals(struct box *b)
{
        struct signalfd_siginfo info[16];
        ssize_t n;

        while ((n = read(b->signal_fd, info, sizeof(info))) > 0) {
                for (size_t i = 0; i < (size_t)n / sizeof(info[0]); i++) {
                        if (info[i].ssi_signo == SIGCHLD)
                                b->child_died = true;
                        /* Inner root may signal PID 1, and may write any sender into what it queues
                         * (sigqueue); its code is negative then. The kernel keeps SI_USER to itself
                         * and fills in the sender: process 0 is one from outside. A signal that it
                         * had no room to queue comes as SI_USER of process 0 and user 0; no user
                         * outside is root of the sandbox. */
                        else if (!b->sandbox || (info[i].ssi_code == SI_USER &&
                                                 info[i].ssi_pid == 0 && info[i].ssi_uid != 0))
                                box_stop(b, 5000);
                }
        }
}

/* An event may concern a slot that an earlier event of the same batch has freed or filled anew:
 * descriptors are non-blocking and watched level-triggered, so a stale one finds nothing to do. */
static void handle_event(struct box *b, const struct epoll_event *e)
{
        enum box_event kind = (enum box_event)(e->data.u64 >> 32);
        uint32_t index = (uint32_t)e->data.u64;

        switch (kind) {
        case EV_LISTEN:
                conn_accept(b);
                break;
        case EV_SIGNAL:
                read_signals(b);
                break;
        case EV_CONN:
                conn_event(b, &b->conns[index], e->events);
                break;
        case EV_STATUS:
                exec_status(b, &b->execs[index]);
                break;
        case EV_STDOUT:
        case EV_STDERR:
                if (spool_move(b, &b->execs[index], kind == EV_STDERR) < 0)
                        exec_kill(b, &b->execs[index], BOX_EXIT_INCOMPLETE);
                break;
        case EV_STDIN:
                stdin_write(b, &b->execs[index]);
                break;
        case EV_TUNNEL_LISTEN:
                tunnel_listener_event(b, index);
                break;
        case EV_TUNNEL:
                tunnel_event(b, index, e->events);
                break;
        }
}

void box_stop(struct box *b, int64_t grace_ms)
{
        int64_t kill_at = b->now + MIN(grace_ms, INT64_C(86400000));

        if (b->stopping) { /* a second word may only shorten the first */
                b->stop_kill_at = MIN(b->stop_kill_at, kill_at);
                return;
        }
        b->stopping = true;
        b->stop_kill_at = kill_at;
        for (int i = 0; i < b->n_execs; i++)
                if (exec_is_live(&b->execs[i]))
                        exec_terminate(b, &b->execs[i], BOX_EXIT_STOPPED, grace_ms);
}

/* True when everything has ended and the host has what it wants of it, or has had its time. */
static bool stop_turn(struct box *b, int64_t *nearest)
{
        if (!b->stop_killed && b->now >= b->stop_kill_at) {
                b->stop_killed = true;
                for (int i = 0; i < b->n_execs; i++)
                        if (exec_is_live(&b->execs[i]))
                                exec_kill(b, &b->execs[i], BOX_EXIT_STOPPED);
                box_deadline(nearest, b->now);
        }
        for (int i = 0; i < b->n_execs; i++) {
                if (!exec_is_live(&b->execs[i]))
                        continue;
                if (!b->stop_killed)
                        box_deadline(nearest, b->stop_kill_at);
                return false;
        }
        tunnel_close(b);
        if (!b->linger_until)
                b->linger_until = b->now + BOX_LINGER_MS;
        if (!tree_kill_all_step(b) && b->now < b->linger_until) {
                box_deadline(nearest, b->now + 5);
                return false;
        }
        if (!say_done(b) && b->now < b->linger_until) {
                box_deadline(nearest, b->linger_until);
                return false;
        }
        return true;
}

/* A sandbox holds what was made in it, so it waits for ever. */
static bool idle_turn(struct box *b, int64_t *nearest)
{
        bool busy = b->in_use > 0 || b->sandbox;

        for (int i = 0; i < BOX_MAX_CONNS && !busy; i++)
                busy = b->conns[i].state != CONN_FREE;
        if (busy) {
                b->idle_since = 0;
                return false;
        }
        if (!b->idle_since)
                b->idle_since = b->now;
        box_deadline(nearest, b->idle_since + b->idle_exit_ms);
        return b->now >= b->idle_since + b->idle_exit_ms;
}

/* Everything but the waiting; false when it is time to go. */
static bool box_turn(struct box *b, int64_t *nearest)
{
        *nearest = 0;
        if (b->stop_by && b->now >= b->stop_by) {
                b->stop_by = 0;
                box_stop(b, 5000);
        }
        box_deadline(nearest, b->stop_by);
        if (b->sandbox && b->sandbox->wall_until && !b->stopping) {
                if (b->now >= b->sandbox->wall_until)
                        box_stop(b, 5000);
                box_deadline(nearest, b->sandbox->wall_until);
        }
        conn_handle_all(b);
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].state != EXEC_FREE)
                        exec_turn(b, &b->execs[i], nearest);
        conn_tell_all(b, nearest);
        tunnel_turn(b, nearest);
        for (int i = 0; i < b->n_execs; i++)
                spool_sync_turn(b, &b->execs[i], nearest);

        return b->stopping ? !stop_turn(b, nearest) : !idle_turn(b, nearest);
}

int box_loop(struct box *b)
{
        struct epoll_event events[64];
        int64_t nearest = 0;

        b->now = clock_mono_ms();
        while (box_turn(b, &nearest)) {
                int64_t wait = nearest ? MAX(nearest - clock_mono_ms(), INT64_C(0)) : -1;
                int n = epoll_wait(b->epoll_fd, events, ARRAY_LEN(events),
                                   (int)MIN(wait, INT64_C(3600000)));

                b->now = clock_mono_ms();
                if (n < 0 && errno != EINTR)
                        return 1;
                for (int i = 0; i < n; i++)
                        handle_event(b, &events[i]);
                if (b->child_died) {
                        b->child_died = false;
                        exec_reap(b);
                }
        }
        if (b->host)
                host_detach_all(b);
        cgroup_done(b);
        spool_remove_all(b);
        conn_finish(b);
        return 0;
}
