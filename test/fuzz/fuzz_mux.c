/* A hostile relay: its bytes into the host's end, over a socket pair on a real loop, with streams
 * and questions open. Whatever comes, every question is answered once, every descriptor ends, no
 * stream delivers more than its credit, and nothing is left on the loop.
 *
 * The first byte of the input says whether the greeting comes first (bit 0), whether the streams
 * are read (bit 1), whether the mux is closed from outside in the end (bit 2), and in which pieces
 * the rest is sent. */
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#include "box/mux.h"
#include "codec/credit.h"
#include "codec/frame_relay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define STREAMS   3
#define QUESTIONS 3
#define ID        "01234567-89ab-4def-8123-456789abcdef"

struct host {
        struct mux *mux;
        bool closed, ready;
        int fds[STREAMS];
        uint64_t got[STREAMS];
        struct mux_question questions[QUESTIONS];
        int answers[QUESTIONS];
        bool reads;
};

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

static struct host *the_host;

static void on_answer(struct mux_question *q, int code, const char *text)
{
        size_t i = (size_t)(q - the_host->questions);

        check(++the_host->answers[i] == 1, "answered once");
        check(code <= 1 && strlen(text) < 256, "a bounded answer");
        check(code != 1 || q->want == MUX_ALIVE, "a value only where one was asked for");
}

static void on_ready(void *ctx)
{
        struct host *h = ctx;

        check(!h->ready && !h->closed, "ready once");
        h->ready = true;
}

static void on_closed(void *ctx, const char *why, bool is_breach)
{
        struct host *h = ctx;

        check(!h->closed && why && *why, "closed once, with a reason");
        h->closed = true;
}

static const struct mux_events events = { .on_ready = on_ready, .on_closed = on_closed };

static void read_streams(struct host *h)
{
        char bytes[65536];

        for (int i = 0; i < STREAMS; i++) {
                ssize_t n;

                while ((n = recv(h->fds[i], bytes, sizeof(bytes), MSG_DONTWAIT)) > 0)
                        h->got[i] += (uint64_t)n;
                (void)send(h->fds[i], "hello", 5, MSG_DONTWAIT | MSG_NOSIGNAL);
        }
}

static void feed(uv_loop_t *loop, struct host *h, int fd, const char *p, size_t len)
{
        static char sink[65536];

        while (len > 0 && !h->closed) {
                ssize_t n = send(fd, p, len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n > 0) {
                        p += n;
                        len -= (size_t)n;
                } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
                        return;
                }
                (void)uv_run(loop, UV_RUN_NOWAIT);
                while (recv(fd, sink, sizeof(sink), MSG_DONTWAIT) > 0)
                        ;
                if (h->reads)
                        read_streams(h);
        }
}

static void ask_and_connect(struct host *h)
{
        static const enum mux_want wants[QUESTIONS] = { MUX_ENSURE, MUX_ALIVE, MUX_BURY };

        for (int i = 0; i < STREAMS; i++)
                check(mux_connect(h->mux, ID, &h->fds[i], NULL) >= 0, "connected");
        for (int i = 0; i < QUESTIONS; i++) {
                h->questions[i] =
                        (struct mux_question){ .want = wants[i], .box_id = ID, .done = on_answer };
                mux_ask(h->mux, &h->questions[i]);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf bytes = { .max = (size_t)4 << 20 };
        struct host h = { .closed = false };
        size_t step, at = 0;
        uv_loop_t loop;
        int fds[2];

        if (size < 1 || uv_loop_init(&loop) < 0)
                return 0;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0)
                abort();
        the_host = &h;
        h.reads = data[0] & 2;
        step = (data[0] >> 3) == 0 ? SIZE_MAX : (size_t)(data[0] >> 3);
        if (data[0] & 1)
                relay_greet(&bytes);
        buf_append(&bytes, (const char *)data + 1, size - 1);
        check(mux_open(&loop, fds[0], fds[0], &events, &h, &h.mux, NULL) >= 0, "opened");
        ask_and_connect(&h);
        while (at < bytes.len && !h.closed) {
                size_t n = MIN(step, bytes.len - at);

                feed(&loop, &h, fds[1], bytes.data + at, n);
                at += n;
        }
        if (data[0] & 4 && !h.closed) {
                mux_close(h.mux);
                h.closed = true;
        }
        close(fds[1]);
        for (int i = 0; i < 100 && !h.closed; i++)
                (void)uv_run(&loop, UV_RUN_NOWAIT);
        check(h.closed, "the end of the carrier is the end");
        (void)uv_run(&loop, UV_RUN_DEFAULT);
        for (int i = 0; i < QUESTIONS; i++)
                check(h.answers[i] == 1, "every question is answered");
        for (int i = 0; i < STREAMS; i++) {
                char rest[4096];
                ssize_t n;

                while ((n = recv(h.fds[i], rest, sizeof(rest), MSG_DONTWAIT)) > 0)
                        h.got[i] += (uint64_t)n;
                check(n == 0 || errno == ECONNRESET, "every descriptor ends");
                check(h.got[i] <= size, "no more than was sent");
                close(h.fds[i]);
        }
        check(uv_loop_close(&loop) == 0, "nothing is left on the loop");
        return 0;
}
