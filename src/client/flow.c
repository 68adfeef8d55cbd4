/* Requests on a connection that never blocks: what to poll for, and what a step does. */
#include "client/flow.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "client/handle.h"

#define READ_SIZE ((size_t)64 << 10)

void flow_close(struct flow *f)
{
        cleanup_fd(&f->fd);
        f->fd = -1;
        f->busy = false;
        buf_wipe(&f->out); /* holds the token */
        f->out = BUF_INIT;
        answer_done(&f->reader);
        f->reader = (struct answer_reader){ 0 };
}

int flow_start(struct flow *f, struct berth *b, const struct http_call *call, http_sink_fn *sink,
               void *arg, struct err *err)
{
        struct http_call full = *call;
        int r;

        if (f->fd >= 0 && conn_is_stale(f->fd))
                flow_close(f);
        if (f->fd < 0) {
                r = conn_open(&b->address, clock_mono_ms() + b->connect_timeout_ms, &f->fd, err);
                if (r < 0)
                        return r;
        }
        answer_done(&f->reader);
        answer_init(&f->reader, streq(call->method, "HEAD"), sink, arg);
        full.api_key = b->api_key;
        full.run_id = b->run_id;
        buf_clear(&f->out);
        http_put_head(&f->out, &b->address, &full);
        if (call->body)
                buf_append(&f->out, call->body, http_body_len(call));
        if (buf_failed(&f->out)) {
                flow_close(f);
                return err_set(err, ERR_TOO_LARGE, "the request is too large");
        }
        f->busy = true;
        return 0;
}

short flow_events(const struct flow *f)
{
        if (!f->busy)
                return 0;
        return (short)(POLLIN | (f->out.len > 0 ? POLLOUT : 0));
}

const struct http_answer *flow_answer(const struct flow *f)
{
        return &f->reader.answer;
}

/* 0 also when the other side closed: its answer may be there to be read. */
static int send_some(struct flow *f, struct err *err)
{
        while (f->out.len > 0) {
                ssize_t n = send(f->fd, f->out.data, f->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n >= 0)
                        buf_consume(&f->out, (size_t)n);
                else if (errno == EAGAIN || errno == EWOULDBLOCK)
                        return 0;
                else if (errno == EPIPE || errno == ECONNRESET)
                        buf_clear(&f->out);
                else if (errno != EINTR)
                        return err_sys(err, ERR_UNCERTAIN, errno, "connection to the daemon lost");
        }
        return 0;
}

/* One read, so that a fast stream does not keep the caller from everything else. */
static int read_some(struct flow *f, struct err *err)
{
        char *at = buf_reserve(&f->reader.in, READ_SIZE);

        if (!at)
                return err_set(err, ERR_TOO_LARGE, "the answer is too large");
        ssize_t n = recv(f->fd, at, READ_SIZE, MSG_DONTWAIT);
        if (n == 0)
                return answer_closed(&f->reader, err);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
                return 0;
        if (n < 0)
                return err_sys(err, ERR_UNCERTAIN, errno, "connection to the daemon lost");
        buf_grew(&f->reader.in, (size_t)n);
        return answer_step(&f->reader, err);
}

int flow_step(struct flow *f, struct err *err)
{
        if (!f->busy)
                return 0;
        int r = send_some(f, err);
        if (r >= 0)
                r = read_some(f, err);
        if (r == 0)
                return 0;
        if (r < 0) {
                flow_close(f);
                return r;
        }
        f->busy = false;
        if (!f->reader.answer.keep_alive || f->out.len > 0) {
                cleanup_fd(&f->fd);
                f->fd = -1;
        }
        return 1;
}
