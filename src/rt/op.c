/* When an operation has to stop: its deadline and its cancellation, also while it waits. */
#include "rt/op.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <sys/eventfd.h>

#include "base/clock.h"

int op_cancel_init(struct op_cancel *c, struct err *err)
{
        atomic_init(&c->set, false);
        c->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (c->fd < 0)
                return err_sys(err, ERR_BUSY, errno, "eventfd");
        return 0;
}

void op_cancel_done(struct op_cancel *c)
{
        if (c->fd >= 0)
                close(c->fd);
        c->fd = -1;
}

void op_cancel_set(struct op_cancel *c)
{
        uint64_t one = 1;

        if (!atomic_exchange(&c->set, true))
                (void)!write(c->fd, &one, sizeof(one));
}

void op_cancel_reset(struct op_cancel *c)
{
        uint64_t n;

        if (atomic_exchange(&c->set, false))
                (void)!read(c->fd, &n, sizeof(n));
}

int op_check(const struct op *op, struct err *err)
{
        if (op->cancel && atomic_load(&op->cancel->set))
                return err_set(err, ERR_CANCELLED, "The operation was cancelled.");
        if (op->stop && atomic_load(&op->stop->set))
                return err_set(err, ERR_CANCELLED, "The daemon is stopping.");
        if (op->deadline_ms != OP_NO_DEADLINE && clock_mono_ms() >= op->deadline_ms)
                return err_set(err, ERR_TIMEOUT, "The operation ran out of time.");
        return 0;
}

int64_t op_time_left(const struct op *op, int64_t limit_ms)
{
        if (op->deadline_ms == OP_NO_DEADLINE)
                return limit_ms;
        int64_t left = op->deadline_ms - clock_mono_ms();
        if (left < 0)
                left = 0;
        return limit_ms < 0 ? left : MIN(left, limit_ms);
}

struct op op_shield(const struct op *op, int64_t ms)
{
        struct op shielded = *op;

        shielded.cancel = NULL;
        shielded.deadline_ms = clock_mono_ms() + ms;
        return shielded;
}

struct op op_with_time(const struct op *op, int64_t ms)
{
        struct op longer = *op;

        if (ms > 0 && op->deadline_ms != OP_NO_DEADLINE)
                longer.deadline_ms = MAX(op->deadline_ms, clock_mono_ms() + ms);
        return longer;
}

int op_wait_fd(const struct op *op, int fd, short events, int64_t limit_ms, struct err *err)
{
        int64_t until = limit_ms < 0 ? OP_NO_DEADLINE : clock_mono_ms() + limit_ms;

        for (;;) {
                struct pollfd fds[3] = {
                        { .fd = fd, .events = events },
                        { .fd = op->cancel ? op->cancel->fd : -1, .events = POLLIN },
                        { .fd = op->stop ? op->stop->fd : -1, .events = POLLIN },
                };
                int64_t now, wait_ms;
                bool over;
                int r = op_check(op, err);

                if (r < 0)
                        return r;
                /* Once the limit has passed there is one more look: a descriptor that became ready
                 * at the last moment counts, and so does one that was ready before a limit of 0. */
                now = clock_mono_ms();
                over = now >= until;
                wait_ms = over ? 0 : MIN(until, op->deadline_ms) - now;
                if (until == OP_NO_DEADLINE && op->deadline_ms == OP_NO_DEADLINE)
                        wait_ms = -1;
                r = poll(fds, ARRAY_LEN(fds), (int)MIN(wait_ms, INT_MAX));
                if (r < 0 && errno != EINTR)
                        return err_sys(err, ERR_INTERNAL, errno, "poll");
                if (r > 0 && fds[0].revents)
                        return 1;
                if (over && r >= 0)
                        return 0;
        }
}
