/* Sends and receives compressed messages. */
#include "workspace/sync_io.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#define READ_SIZE  ((size_t)64 << 10)
#define LEVEL      1
#define WINDOW_LOG 20 /* 1 MiB, on both sides */

static int zstd_failed(struct err *err, const char *what, size_t code)
{
        return err_set(err, ERR_INVALID, "%s: %s", what, ZSTD_getErrorName(code));
}

int sync_io_init(struct sync_io *io, struct err *err)
{
        io->enc = ZSTD_createCCtx();
        io->dec = ZSTD_createDCtx();
        if (!io->enc || !io->dec) {
                sync_io_done(io);
                return err_set(err, ERR_BUSY, "no memory for a transfer");
        }
        (void)ZSTD_CCtx_setParameter(io->enc, ZSTD_c_compressionLevel, LEVEL);
        (void)ZSTD_CCtx_setParameter(io->enc, ZSTD_c_windowLog, WINDOW_LOG);
        (void)ZSTD_DCtx_setParameter(io->dec, ZSTD_d_windowLogMax, WINDOW_LOG);
        return 0;
}

void sync_io_done(struct sync_io *io)
{
        (void)ZSTD_freeCCtx(io->enc);
        (void)ZSTD_freeDCtx(io->dec);
        io->enc = NULL;
        io->dec = NULL;
        buf_done(&io->plain);
        buf_done(&io->out);
        buf_done(&io->in);
        buf_done(&io->msgs);
}

int sync_io_check(const struct sync_io *io, struct err *err)
{
        return io->check ? io->check(io->ctx, err) : 0;
}

/* Out */

static int compress(struct sync_io *io, ZSTD_EndDirective how, struct err *err)
{
        ZSTD_inBuffer in = { io->plain.data, io->plain.len, 0 };
        size_t left;

        do {
                size_t room = ZSTD_CStreamOutSize();
                char *at = buf_reserve(&io->out, room);
                ZSTD_outBuffer out = { at, room, 0 };

                if (!at)
                        return err_set(err, ERR_BUSY, "no memory for a transfer");
                left = ZSTD_compressStream2(io->enc, &out, &in, how);
                if (ZSTD_isError(left))
                        return zstd_failed(err, "compress", left);
                buf_grew(&io->out, out.pos);
        } while (in.pos < in.size || (how != ZSTD_e_continue && left > 0));
        buf_clear(&io->plain);
        io->unflushed = how == ZSTD_e_continue;
        return 0;
}

static int sync_take(struct sync_io *io, struct err *err);

/* It does not take any more: what it said before it went says why. */
static int lost(struct sync_io *io, int errno_value, struct err *err)
{
        int r = 0;

        while (io->on_message && r >= 0 && !io->ended) {
                r = io->wait(io->ctx, io->fd, POLLIN, err);
                if (r >= 0)
                        r = sync_take(io, err);
        }
        return r < 0 ? r : err_sys(err, ERR_UNCERTAIN, errno_value, "the connection was lost");
}

/* As much as the descriptor takes now. */
static int write_some(struct sync_io *io, struct err *err)
{
        while (io->out_sent < io->out.len) {
                ssize_t n = send(io->fd, io->out.data + io->out_sent, io->out.len - io->out_sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0)
                        return lost(io, errno, err);
                io->out_sent += (size_t)n;
                io->sent_bytes += (uint64_t)n;
        }
        if (io->out_sent < io->out.len) {
                if (io->out_sent >= SYNC_OUT_HIGH) {
                        buf_consume(&io->out, io->out_sent);
                        io->out_sent = 0;
                }
                return 0;
        }
        buf_clear(&io->out);
        io->out_sent = 0;
        return 0;
}

/* In */

static int read_some(struct sync_io *io, struct err *err)
{
        ssize_t n;

        if (io->in_used == io->in.len) {
                buf_clear(&io->in);
                io->in_used = 0;
        }
        if (io->in.len > 0)
                return 0; /* not decompressed yet */
        char *at = buf_reserve(&io->in, READ_SIZE);
        if (!at)
                return err_set(err, ERR_BUSY, "no memory for a transfer");
        do
                n = recv(io->fd, at, READ_SIZE, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return 0;
        if (n < 0)
                return err_sys(err, ERR_UNCERTAIN, errno, "the connection was lost");
        if (n == 0)
                io->ended = true;
        buf_grew(&io->in, (size_t)n);
        io->got_bytes += (uint64_t)n;
        return 0;
}

/* Some more plain bytes: 1, or 0 when there is nothing to make them of. */
static int decompress(struct sync_io *io, struct err *err)
{
        ZSTD_inBuffer in = { io->in.data, io->in.len, io->in_used };
        size_t room = ZSTD_DStreamOutSize(), r;
        ZSTD_outBuffer out = { NULL, room, 0 };

        if (io->in_used == io->in.len && !io->dec_full)
                return 0;
        if (io->msgs_used > 0 && (io->msgs_used == io->msgs.len || io->msgs_used > READ_SIZE)) {
                buf_consume(&io->msgs, io->msgs_used);
                io->msgs_used = 0;
        }
        out.dst = buf_reserve(&io->msgs, room);
        if (!out.dst)
                return err_set(err, ERR_BUSY, "no memory for a transfer");
        r = ZSTD_decompressStream(io->dec, &out, &in);
        if (ZSTD_isError(r))
                return zstd_failed(err, "what came is no compressed stream", r);
        io->in_used = in.pos;
        io->dec_full = out.pos == out.size;
        buf_grew(&io->msgs, out.pos);
        return out.pos > 0;
}

/* The next message of what has been read: 1, 0. */
static int next_message(struct sync_io *io, struct sync_msg *ret, struct err *err)
{
        for (;;) {
                size_t len;
                int r = io->msgs.len > io->msgs_used
                                ? sync_msg_read(io->msgs.data + io->msgs_used,
                                                io->msgs.len - io->msgs_used, ret, &len, err)
                                : 0;

                if (r > 0)
                        io->msgs_used += len;
                if (r != 0)
                        return r;
                r = decompress(io, err);
                if (r <= 0)
                        return r;
        }
}

int sync_receive(struct sync_io *io, struct sync_msg *ret, struct err *err)
{
        int r = next_message(io, ret, err);

        if (r != 0)
                return r;
        r = sync_flush(io, err);
        while (r >= 0) {
                r = next_message(io, ret, err);
                if (r != 0)
                        return r;
                if (io->ended)
                        return 0;
                r = io->wait(io->ctx, io->fd, POLLIN, err);
                if (r >= 0)
                        r = read_some(io, err);
        }
        return r;
}

static int hand_over(struct sync_io *io, struct err *err)
{
        struct sync_msg m;
        int r;

        while ((r = next_message(io, &m, err)) > 0) {
                r = io->on_message(io->message_ctx, &m, err);
                if (r < 0)
                        return r;
        }
        return r;
}

static int wait_once(struct sync_io *io, struct err *err)
{
        bool reads = io->on_message != NULL;
        short events = (short)((io->out.len > io->out_sent ? POLLOUT : 0) | (reads ? POLLIN : 0));
        int r = io->wait(io->ctx, io->fd, events, err);

        if (r >= 0 && reads)
                r = sync_take(io, err);
        return r < 0 ? r : write_some(io, err);
}

/* Hand over what has arrived, without waiting. */
static int sync_take(struct sync_io *io, struct err *err)
{
        int r = read_some(io, err);

        if (r >= 0)
                r = hand_over(io, err);
        if (r >= 0 && io->ended)
                r = err_set(err, ERR_UNCERTAIN, "The file worker ended.");
        return r;
}

int sync_send(struct sync_io *io, const struct sync_msg *m, struct err *err)
{
        sync_msg_write(&io->plain, m);
        if (buf_failed(&io->plain))
                return err_set(err, ERR_BUSY, "no memory for a transfer");
        int r = compress(io, ZSTD_e_continue, err);
        if (r >= 0 && io->out.len - io->out_sent >= SYNC_OUT_HIGH)
                r = write_some(io, err);
        while (r >= 0 && io->out.len - io->out_sent >= SYNC_OUT_HIGH)
                r = wait_once(io, err);
        return r;
}

int sync_flush(struct sync_io *io, struct err *err)
{
        int r = io->unflushed ? compress(io, ZSTD_e_flush, err) : 0;

        if (r >= 0)
                r = write_some(io, err);
        while (r >= 0 && io->out.len > io->out_sent)
                r = wait_once(io, err);
        return r;
}

int sync_step(struct sync_io *io, struct err *err)
{
        int r = io->unflushed ? compress(io, ZSTD_e_flush, err) : 0;

        if (r >= 0)
                r = write_some(io, err);
        return r < 0 ? r : wait_once(io, err);
}
