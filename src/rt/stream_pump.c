/* Moves bytes between two streams until one is broken or the near one has ended. */
#include "rt/stream_pump.h"

#include <errno.h>

#define PIECE ((size_t)64 << 10)

struct flow {
        struct byte_stream *from, *to;
        size_t len, sent;
        bool ended;
        char buf[PIECE];
};

struct stream_pump {
        struct flow there, back;
        void (*done)(void *arg);
        void *arg;
};

/* False when one side is of no use any more. */
static bool pump_move(struct flow *f)
{
        while (!f->ended) {
                ssize_t n;

                if (f->sent == f->len) {
                        n = stream_read(f->from, f->buf, sizeof(f->buf));
                        if (n == -EAGAIN)
                                return true;
                        if (n < 0)
                                return false;
                        f->sent = 0;
                        f->len = (size_t)n;
                        f->ended = n == 0;
                        continue;
                }
                n = stream_write(f->to, f->buf + f->sent, f->len - f->sent);
                if (n == -EAGAIN)
                        return true;
                if (n < 0)
                        return false;
                f->sent += (size_t)n;
        }
        return true;
}

static int pump_watched(const struct flow *out, const struct flow *in)
{
        return (!out->ended && out->sent == out->len ? STREAM_READABLE : 0) |
               (in->sent < in->len ? STREAM_WRITABLE : 0);
}

static void pump_advance(void *ctx, int events)
{
        struct stream_pump *p = ctx;
        bool told = p->back.ended, good = !(events & STREAM_BROKEN);

        if (good)
                good = pump_move(&p->there) && pump_move(&p->back);
        if (!good || p->there.ended) {
                p->done(p->arg);
                return;
        }
        if (p->back.ended && !told)
                stream_end(p->back.to);
        stream_watch(p->there.from, pump_watched(&p->there, &p->back));
        stream_watch(p->back.from, pump_watched(&p->back, &p->there));
}

struct stream_pump *stream_pump_new(struct byte_stream *near, struct byte_stream *far,
                                    void (*done)(void *arg), void *arg)
{
        struct stream_pump *p = xcalloc(1, sizeof(*p));

        p->there.from = p->back.to = near;
        p->there.to = p->back.from = far;
        p->done = done;
        p->arg = arg;
        stream_on_ready(near, pump_advance, p);
        stream_on_ready(far, pump_advance, p);
        stream_watch(near, STREAM_READABLE);
        stream_watch(far, STREAM_READABLE);
        return p;
}

void stream_pump_free(struct stream_pump *p)
{
        free(p);
}
