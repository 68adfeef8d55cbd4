/* A connection, whatever carries it: a socket here, a tunnel from a box elsewhere (box/tunnel.h).
 * It behaves like a non-blocking socket with level-triggered readiness, so that one connection
 * handler serves both.
 *
 * The code that is given a stream sets `ready` before anything else and closes the stream in the
 * end. `ready` is called from the loop, never from within a call, with those of the watched events
 * that are so; STREAM_BROKEN comes unasked, watched or not. Nothing comes after stream_close().
 *
 * Loop thread only. */
#pragma once

#include <sys/uio.h>
#include <uv.h>

#include "base/util.h"

enum {
        STREAM_READABLE = 1, /* bytes, or the end */
        STREAM_WRITABLE = 2,
        STREAM_BROKEN = 4, /* reset, or its carrier is gone; of no further use */
};

struct byte_stream;

struct byte_stream_ops {
        ssize_t (*read)(struct byte_stream *s, void *p, size_t len);
        ssize_t (*write)(struct byte_stream *s, const struct iovec *iov, int n);
        void (*end)(struct byte_stream *s);
        void (*watch)(struct byte_stream *s, int events);
        bool (*has_input)(struct byte_stream *s);
        void (*close)(struct byte_stream *s, void (*closed)(void *), void *arg);
};

struct byte_stream {
        const struct byte_stream_ops *ops;
        void (*ready)(void *ctx, int events);
        void *ctx;
};

static inline void stream_on_ready(struct byte_stream *s, void (*ready)(void *, int), void *ctx)
{
        s->ready = ready;
        s->ctx = ctx;
}

/* Bytes read, 0 at the end, or -errno; -EAGAIN when there is nothing now. */
static inline ssize_t stream_read(struct byte_stream *s, void *p, size_t len)
{
        return s->ops->read(s, p, len);
}

/* How many of the bytes were taken, at least one, or -errno; -EAGAIN when there is no room now. */
static inline ssize_t stream_writev(struct byte_stream *s, const struct iovec *iov, int n)
{
        return s->ops->write(s, iov, n);
}

static inline ssize_t stream_write(struct byte_stream *s, const void *p, size_t len)
{
        struct iovec iov = { (void *)p, len };

        return s->ops->write(s, &iov, 1);
}

/* Nothing more will be written; bytes written before still arrive. */
static inline void stream_end(struct byte_stream *s)
{
        s->ops->end(s);
}

static inline void stream_watch(struct byte_stream *s, int events)
{
        s->ops->watch(s, events);
}

/* Whether bytes wait to be read. */
static inline bool stream_has_input(struct byte_stream *s)
{
        return s->ops->has_input(s);
}

/* At once: a tunnel's stream with a reset unless both sides have ended, a socket as close() does
 * it. The stream frees itself; `closed`, which may
 * be NULL, is called from the loop when the carrier is done with it. */
static inline void stream_close(struct byte_stream *s, void (*closed)(void *), void *arg)
{
        s->ops->close(s, closed, arg);
}

/* A stream over a socket, embedded where it is used: its memory must stay until `closed`. Takes the
 * descriptor, which is non-blocking; also when it fails. */
struct socket_stream {
        struct byte_stream stream;
        uv_poll_t poll;
        int fd;
        int watching; /* UV_* */
        void (*closed)(void *);
        void *closed_arg;
};

int socket_stream_init(struct socket_stream *s, uv_loop_t *loop, int take_fd);
