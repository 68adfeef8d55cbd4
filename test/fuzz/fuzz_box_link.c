/* A hostile box: its bytes into the host's end of the protocol, over a socketpair on a real loop.
 * Whatever comes, the link stays within its bounds, says at most once that it is closed and nothing
 * after it, and hands out only text and data that lie in what was sent.
 *
 * The first byte of the input says whether a good WELCOME comes first (bit 0), whether the host
 * answers from within its callbacks (bit 1), whether it closes the link there (bit 2), and in which
 * pieces the rest is sent. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "box/link.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct host {
        struct box_link *link;
        size_t fed;
        bool answers, closes, closed;
        unsigned calls;
};

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

/* Every callback comes through here. */
static void heard(struct host *h, uint32_t channel)
{
        static const uint8_t id[FRAME_UUID] = { 1 };
        static const char *const none[] = { NULL };

        check(!h->closed, "nothing comes after the end");
        h->calls++;
        if (h->answers && h->calls < 64) {
                box_link_ack(h->link, channel, BOX_STDOUT, h->calls, h->calls);
                box_link_stdin(h->link, channel, 0, false, "input", 5);
                box_link_attach(h->link, channel, id);
                box_link_start(h->link, channel,
                               &(struct box_start){ .command = "x", .args = none, .env = none });
                box_link_forget(h->link, channel);
        }
        if (h->closes && h->calls == 3) {
                h->closed = true;
                box_link_close(h->link);
        }
}

static void on_welcome(void *ctx, const struct box_welcome *welcome)
{
        heard(ctx, 0);
}

static void on_listed(void *ctx)
{
        heard(ctx, 0);
}

static void on_state(void *ctx, uint32_t channel, const struct box_state *state)
{
        check(state->state == BOX_RUNNING || state->state == BOX_ENDED, "a state that exists");
        heard(ctx, channel);
}

static void on_started(void *ctx, uint32_t channel, uint32_t pid, uint64_t started_ms,
                       uint8_t method)
{
        heard(ctx, channel);
}

static void on_text(void *ctx, uint32_t channel, uint16_t code, const char *text)
{
        check(strlen(text) < 512, "bounded text");
        heard(ctx, channel);
}

static void on_data(void *ctx, uint32_t channel, uint8_t stream, uint64_t offset, const char *data,
                    size_t len)
{
        struct host *h = ctx;
        volatile char sum = 0;

        check(stream == BOX_STDOUT || stream == BOX_STDERR, "a stream that exists");
        check(len <= FRAME_MAX_PAYLOAD && len <= h->fed, "no more data than was sent");
        for (size_t i = 0; i < len; i++)
                sum = (char)(sum ^ data[i]); /* the sanitizer looks at each */
        heard(ctx, channel);
}

static void on_grew(void *ctx, uint32_t channel, uint8_t stream, uint64_t len)
{
        check(stream == BOX_STDOUT || stream == BOX_STDERR, "a stream that exists");
        heard(ctx, channel);
}

static void on_taken(void *ctx, uint32_t channel, uint64_t taken, uint64_t limit)
{
        heard(ctx, channel);
}

static void on_exit_frame(void *ctx, uint32_t channel, const struct box_exit *e)
{
        heard(ctx, channel);
}

static void on_closed(void *ctx, const char *why)
{
        struct host *h = ctx;

        check(!h->closed && why && *why, "closed once, with a reason");
        h->closed = true;
}

static const struct box_link_events events = {
        .on_welcome = on_welcome,
        .on_listed = on_listed,
        .on_state = on_state,
        .on_started = on_started,
        .on_failed = on_text,
        .on_data = on_data,
        .on_grew = on_grew,
        .on_taken = on_taken,
        .on_exit = on_exit_frame,
        .on_error = on_text,
        .on_stopped = on_listed,
        .on_closed = on_closed,
};

static void put_welcome(struct buf *b)
{
        static const uint8_t id[FRAME_UUID] = { 2 };
        struct frame_out f;

        frame_begin(&f, b, FRAME_WELCOME, 0);
        frame_put_u16(&f, FRAME_VERSION);
        frame_put_u32(&f, BOX_FEATURE_SHARED);
        frame_put_uuid(&f, id);
        frame_put_u32(&f, 4711);
        frame_put_u8(&f, BOX_KILL_CGROUP);
        frame_put_u64(&f, 1 << 20);
        frame_put_u32(&f, 0);
        frame_end(&f);
}

/* Send a piece, let the loop have it, and take what the host says. */
static void feed(uv_loop_t *loop, struct host *h, int fd, const char *p, size_t len)
{
        static char sink[65536];

        while (len > 0 && !h->closed) {
                ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n > 0) {
                        p += n;
                        len -= (size_t)n;
                        h->fed += (size_t)n;
                } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
                        return;
                }
                (void)uv_run(loop, UV_RUN_NOWAIT);
                while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
                        ;
                if (!h->closed)
                        check(box_link_pending(h->link) <= h->fed + ((size_t)1 << 20), "bounded");
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const uint8_t node[FRAME_UUID] = { 3 };
        CLEAN(buf_done) struct buf bytes = { .max = (size_t)4 << 20 };
        struct host h = { 0 };
        size_t step, at = 0;
        uv_loop_t loop;
        int fds[2];

        if (size < 1 || uv_loop_init(&loop) < 0)
                return 0;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                abort();
        h.answers = data[0] & 2;
        h.closes = data[0] & 4;
        step = (data[0] >> 3) == 0 ? SIZE_MAX : (size_t)(data[0] >> 3);
        if (data[0] & 1)
                put_welcome(&bytes);
        buf_append(&bytes, (const char *)data + 1, size - 1);
        check(box_link_open(&loop, fds[0], node, 1, &events, &h, &h.link, NULL) >= 0, "opened");
        while (at < bytes.len && !h.closed) {
                size_t n = MIN(step, bytes.len - at);

                feed(&loop, &h, fds[1], bytes.data + at, n);
                at += n;
        }
        close(fds[1]);
        for (int i = 0; i < 100 && !h.closed; i++)
                (void)uv_run(&loop, UV_RUN_NOWAIT);
        check(h.closed, "the end of the stream is the end of the link");
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        check(uv_loop_close(&loop) == 0, "nothing is left on the loop");
        return 0;
}
