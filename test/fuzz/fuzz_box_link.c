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

#include "box/tunnel.h"
#include "codec/peer_state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct host {
        struct box_link *link;
        struct tunnel *tunnel;
        struct tunnel_listener listener;
        struct echo {
                struct byte_stream *stream;
                uint64_t taken;
        } echoes[TUNNEL_MAX_CONNS];
        size_t n_echoes;
        size_t fed;
        bool answers, closes, closed;
        unsigned calls;
        uint32_t channels;
};

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

static void start_and_attach(struct host *h)
{
        static const uint8_t id[FRAME_UUID] = { 1 };
        static const char *const none[] = { NULL };

        box_link_start(
                h->link, ++h->channels,
                &(struct box_start){ .id = { 1 }, .command = "x", .args = none, .env = none });
        box_link_attach(h->link, ++h->channels, id, BOX_START_SHARED);
}

/* Every callback comes through here. */
static void heard(struct host *h, uint32_t channel)
{
        check(!h->closed, "nothing comes after the end");
        h->calls++;
        if (h->answers && h->calls < 64) {
                box_link_ack(h->link, channel, BOX_STDOUT, h->calls, h->calls);
                box_link_stdin(h->link, channel, 0, false, "input", 5);
                start_and_attach(h);
                box_link_ping(h->link, channel);
                if (h->calls % 4 == 0)
                        box_link_forget(h->link, channel);
        }
        if (h->closes && h->calls == 3) {
                h->closed = true;
                tunnel_down(h->tunnel);
                box_link_close(h->link);
        }
}

static void on_welcome(void *ctx, const struct box_welcome *welcome)
{
        struct host *h = ctx;

        tunnel_up(h->tunnel, h->link);
        start_and_attach(h); /* channels 1 and 2 */
        box_link_list(h->link);
        heard(ctx, 0);
}

static void on_listed(void *ctx)
{
        heard(ctx, 0);
}

static int on_state(void *ctx, uint32_t channel, const struct box_state *state, struct err *err)
{
        check(state->state == BOX_RUNNING || state->state == BOX_ENDED, "a state that exists");
        check(state->started_ms <= PEER_MAX_TIME && state->stdout_len <= PEER_MAX_LENGTH, "bounds");
        heard(ctx, channel);
        return 0;
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

static int on_data(void *ctx, uint32_t channel, uint8_t stream, uint64_t offset, const char *data,
                   size_t len, struct err *err)
{
        struct host *h = ctx;
        volatile char sum = 0;

        check(stream == BOX_STDOUT || stream == BOX_STDERR, "a stream that exists");
        check(len <= FRAME_MAX_PAYLOAD && len <= h->fed, "no more data than was sent");
        for (size_t i = 0; i < len; i++)
                sum = (char)(sum ^ data[i]); /* the sanitizer looks at each */
        heard(ctx, channel);
        return 0;
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

/* Connections: what comes is sent back as far as there is credit; a broken one, and each that has
 * ended, is closed. */
static void echo_ready(void *ctx, int events)
{
        struct echo *e = ctx;
        char bytes[1000];
        ssize_t n = 0;

        check(e->stream, "nothing comes after closing");
        while (!(events & STREAM_BROKEN) &&
               (n = stream_read(e->stream, bytes, sizeof(bytes))) > 0) {
                e->taken += (uint64_t)n;
                (void)stream_write(e->stream, bytes, (size_t)n);
        }
        if (n == 0 || (events & STREAM_BROKEN)) {
                stream_end(e->stream);
                stream_close(e->stream, NULL, NULL);
                e->stream = NULL;
        }
}

static void on_stream(struct tunnel_listener *l, struct byte_stream *stream)
{
        struct host *h = container_of(l, struct host, listener);
        struct echo *e = &h->echoes[h->n_echoes++ % TUNNEL_MAX_CONNS];

        if (e->stream) /* more than there may be at a time only one after the other */
                stream_close(e->stream, NULL, NULL);
        *e = (struct echo){ .stream = stream };
        stream_on_ready(stream, echo_ready, e);
        stream_watch(stream, STREAM_READABLE);
}

static int on_tunnel(void *ctx, const struct frame_header *header, struct frame_in *f,
                     struct err *err)
{
        struct host *h = ctx;

        check(!h->closed, "nothing comes after the end");
        return tunnel_frame_in(h->tunnel, header, f, err);
}

static void on_drained(void *ctx)
{
        struct host *h = ctx;

        tunnel_drained(h->tunnel);
}

static void on_closed(void *ctx, const char *why, bool is_breach)
{
        struct host *h = ctx;

        tunnel_down(h->tunnel);
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
        .on_tunnel = on_tunnel,
        .on_drained = on_drained,
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
        static const uint8_t listener[FRAME_UUID] = { 0, 1, 2,  3,  4,  5,  6,  7,
                                                      8, 9, 10, 11, 12, 13, 14, 15 };
        struct host h = { .listener = { .kind = TUNNEL_PROXY, .on_stream = on_stream } };
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
        check(tunnel_new(&loop, &h.tunnel, NULL) >= 0, "made");
        memcpy(h.listener.id, listener, FRAME_UUID);
        tunnel_listen(h.tunnel, &h.listener);
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
        for (size_t i = 0; i < TUNNEL_MAX_CONNS; i++)
                if (h.echoes[i].stream)
                        stream_close(h.echoes[i].stream, NULL, NULL);
        tunnel_free(h.tunnel);
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        check(uv_loop_close(&loop) == 0, "nothing is left on the loop");
        return 0;
}
