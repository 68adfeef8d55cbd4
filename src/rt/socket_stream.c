/* A connected socket on the loop as a byte stream (rt/byte_stream.h). */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/socket.h>

#include "rt/byte_stream.h"

static struct socket_stream *socket_of(struct byte_stream *s)
{
        return container_of(s, struct socket_stream, stream);
}

static ssize_t socket_read(struct byte_stream *stream, void *p, size_t len)
{
        ssize_t n;

        do
                n = recv(socket_of(stream)->fd, p, len, 0);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

static ssize_t socket_write(struct byte_stream *stream, const struct iovec *iov, int count)
{
        struct msghdr msg = { .msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)count };
        ssize_t n;

        do
                n = sendmsg(socket_of(stream)->fd, &msg, MSG_NOSIGNAL);
        while (n < 0 && errno == EINTR);
        return n < 0 ? -errno : n;
}

static void socket_end(struct byte_stream *stream)
{
        (void)shutdown(socket_of(stream)->fd, SHUT_WR);
}

/* Without reading, the only news are a reset, a hang-up, or urgent data, which no protocol here
 * has. */
static void on_poll(uv_poll_t *handle, int status, int events)
{
        struct socket_stream *s = container_of(handle, struct socket_stream, poll);
        int found = 0;

        if (status < 0 || (events & UV_PRIORITIZED))
                found |= STREAM_BROKEN;
        if (status < 0)
                s->watching = 0; /* libuv has stopped */
        if (events & UV_READABLE)
                found |= STREAM_READABLE;
        if (events & UV_WRITABLE)
                found |= STREAM_WRITABLE;
        s->stream.ready(s->stream.ctx, found);
}

static void socket_watch(struct byte_stream *stream, int events)
{
        struct socket_stream *s = socket_of(stream);

        /* Out-of-band data never comes, but a handle that watches nothing hears of no reset. */
        int wanted = events & STREAM_READABLE ? UV_READABLE : UV_PRIORITIZED;
        if (events & STREAM_WRITABLE)
                wanted |= UV_WRITABLE;
        if (wanted == s->watching)
                return;
        s->watching = wanted;
        (void)uv_poll_start(&s->poll, wanted, on_poll);
}

static bool socket_has_input(struct byte_stream *stream)
{
        char byte;

        return recv(socket_of(stream)->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

static void on_closed(uv_handle_t *handle)
{
        struct socket_stream *s = container_of((uv_poll_t *)handle, struct socket_stream, poll);

        if (s->closed)
                s->closed(s->closed_arg);
}

static void socket_close(struct byte_stream *stream, void (*closed)(void *), void *arg)
{
        struct socket_stream *s = socket_of(stream);

        s->closed = closed;
        s->closed_arg = arg;
        uv_close((uv_handle_t *)&s->poll, on_closed);
        close(take_fd(&s->fd));
}

static const struct byte_stream_ops socket_ops = {
        .read = socket_read,
        .write = socket_write,
        .end = socket_end,
        .watch = socket_watch,
        .has_input = socket_has_input,
        .close = socket_close,
};

int socket_stream_init(struct socket_stream *s, uv_loop_t *loop, int take_fd)
{
        *s = (struct socket_stream){ .stream.ops = &socket_ops, .fd = take_fd };
        int r = uv_poll_init(loop, &s->poll, take_fd);
        if (r < 0)
                close(take_fd);
        return r;
}
