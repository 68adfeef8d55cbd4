/* A stream is one end of a socket pair here; its other end belongs to the code that asked for the
 * stream. Bytes that the relay sent and the pair does not take yet wait in `in`, at most the credit
 * that was given. */
#define _GNU_SOURCE
#include "box/mux.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "codec/credit.h"
#include "codec/frame_relay.h"
#include "codec/peer_state.h"

#define READ_SIZE   (256 * 1024)
#define CHATTER_MAX ((size_t)64 << 10)
#define OUT_FULL    ((size_t)512 << 10) /* bytes that wait for the carrier; no more are taken then */
#define PING_MS     15000
#define TEXT_MAX    ((size_t)255) /* of an answer that is not a list */
#define SILENCE_MS  45000         /* of a relay that was pinged */

struct stream {
        struct stream *next;
        struct mux *mux;
        uv_poll_t poll;
        int fd, watching;
        uint32_t channel;
        enum peer_phase phase; /* STREAM_*: what may come */
        bool closing;
        struct credit credit;
        struct buf in;
};

struct mux {
        uv_poll_t in_poll, out_poll;
        uv_timer_t timer;
        int in_fd, out_fd, watching_out;
        unsigned handles; /* open: the polls, the timer, the streams */
        const struct mux_events *ev;
        void *ctx;
        struct buf in, out;
        size_t out_sent;
        struct stream *streams;
        struct mux_question *questions;
        size_t n_streams, n_questions;
        uint32_t next_channel;
        int64_t heard_ms;
        unsigned pings; /* that were not answered */
        bool ready, closed;
};

static void on_carrier(uv_poll_t *poll, int status, int events);
static void on_stream(uv_poll_t *poll, int status, int events);

/* Ending */

static void release_handle(struct mux *m)
{
        if (--m->handles > 0)
                return;
        close(m->in_fd);
        close(m->out_fd);
        buf_done(&m->in);
        buf_wipe(&m->out);
        free(m);
}

static void handle_closed(uv_handle_t *handle)
{
        release_handle(handle->data);
}

static void stream_closed(uv_handle_t *handle)
{
        struct stream *s = handle->data;
        struct mux *m = s->mux;

        close(s->fd);
        buf_done(&s->in);
        free(s);
        release_handle(m);
}

static void end_stream(struct stream *s)
{
        struct mux *m = s->mux;
        struct stream **at;

        for (at = &m->streams; *at != s; at = &(*at)->next)
                ;
        *at = s->next;
        m->n_streams--;
        uv_close((uv_handle_t *)&s->poll, stream_closed);
}

static void shut_mux(struct mux *m, const char *why)
{
        struct mux_question *q;

        m->closed = true;
        while (m->streams)
                end_stream(m->streams);
        uv_close((uv_handle_t *)&m->in_poll, handle_closed);
        uv_close((uv_handle_t *)&m->out_poll, handle_closed);
        uv_close((uv_handle_t *)&m->timer, handle_closed);
        while ((q = m->questions)) {
                m->questions = q->next;
                q->done(q, ERR_BUSY, why);
        }
        m->n_questions = 0;
}

void mux_close(struct mux *m)
{
        if (m && !m->closed)
                shut_mux(m, "the connection to the host was closed");
}

static void give_up(struct mux *m, const char *why, bool is_breach)
{
        if (m->closed)
                return;
        shut_mux(m, why);
        m->ev->on_closed(m->ctx, why, is_breach);
}

/* To the carrier */

/* Never calls back: a carrier that broke is noticed by the next read. Nothing is sent before the
 * relay has spoken, because until then the process that starts it reads. */
static void flush_carrier(struct mux *m)
{
        while (m->ready && !m->closed && m->out.len > m->out_sent) {
                ssize_t n = write(m->out_fd, m->out.data + m->out_sent, m->out.len - m->out_sent);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        break;
                m->out_sent += (size_t)n;
        }
        if (m->out_sent == m->out.len) {
                buf_wipe(&m->out); /* a START may be in it */
                m->out_sent = 0;
        } else if (m->out_sent > READ_SIZE) {
                buf_consume(&m->out, m->out_sent);
                m->out_sent = 0;
        }
        int wanted = m->out.len > m->out_sent ? UV_WRITABLE : 0;
        if (!m->ready || m->closed || wanted == m->watching_out)
                return;
        m->watching_out = wanted;
        if (wanted)
                uv_poll_start(&m->out_poll, wanted, on_carrier);
        else
                uv_poll_stop(&m->out_poll);
}

static bool is_full(const struct mux *m)
{
        return m->out.len - m->out_sent >= OUT_FULL;
}

/* Streams */

static bool is_accepted(const struct stream *s)
{
        return s->phase != STREAM_ASKED;
}

static void watch_stream(struct stream *s)
{
        int wanted = 0;

        if (s->mux->closed || s->closing)
                return;
        if (is_accepted(s) && credit_room(&s->credit) > 0 && !is_full(s->mux))
                wanted |= UV_READABLE;
        if (s->in.len > 0)
                wanted |= UV_WRITABLE;
        wanted |= UV_DISCONNECT; /* the holder of the other end closed it */
        if (wanted != s->watching) {
                s->watching = wanted;
                uv_poll_start(&s->poll, wanted, on_stream);
        }
}

/* The other end is gone, or the relay does what it must not. */
static void reset_stream(struct stream *s)
{
        struct mux *m = s->mux;

        s->closing = true;
        tunnel_frame_write(&m->out, &(struct tunnel_frame){ .type = FRAME_RESET,
                                                            .channel = s->channel,
                                                            .reason = TUNNEL_RESET_PEER });
        end_stream(s);
        flush_carrier(m);
}

/* Pass on what came; false when the stream is over. */
static bool pass_on(struct stream *s)
{
        if (!fd_send_some(s->fd, &s->in)) {
                reset_stream(s);
                return false;
        }
        credit_give(&s->credit, &s->mux->out, s->channel, s->in.len);
        if (s->in.len == 0)
                buf_wipe(&s->in);
        if (s->in.len == 0 && s->credit.end_got) {
                /* The box closed its connection; nothing that we would send is read any more. */
                reset_stream(s);
                return false;
        }
        return true;
}

/* Send what the other end wrote, within the credit; false when the stream is over. */
static bool take_from(struct stream *s)
{
        char bytes[16384];
        size_t room = (size_t)MIN(credit_room(&s->credit), (uint64_t)sizeof(bytes));
        ssize_t n;

        if (!is_accepted(s) || room == 0 || is_full(s->mux))
                return true;
        do
                n = recv(s->fd, bytes, room, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return true;
        if (n <= 0) {
                reset_stream(s);
                return false;
        }
        credit_send(&s->credit, &s->mux->out, s->channel, bytes, (size_t)n);
        explicit_bzero(bytes, (size_t)n);
        return true;
}

static void on_stream(uv_poll_t *poll, int status, int events)
{
        struct stream *s = container_of(poll, struct stream, poll);
        struct mux *m = s->mux;

        if (status < 0 || (events & UV_DISCONNECT && s->in.len > 0)) {
                reset_stream(s);
                return;
        }
        if (events & UV_WRITABLE && !pass_on(s))
                return;
        /* Bytes that were written before the close are still sent, if there is credit for them. */
        if (events & (UV_READABLE | UV_DISCONNECT) && !take_from(s))
                return;
        if (events & UV_DISCONNECT &&
            (!is_accepted(s) || credit_room(&s->credit) == 0 || is_full(m))) {
                reset_stream(s);
                return;
        }
        watch_stream(s);
        flush_carrier(m);
}

int mux_connect(struct mux *m, const char *box_id, int *ret_fd, struct err *err)
{
        struct tunnel_frame open = { .type = FRAME_OPEN, .limit = CREDIT_WINDOW };
        struct stream *s;
        int fds[2];

        if (m->closed || m->n_streams >= MUX_MAX_STREAMS || !frame_uuid_bytes(box_id, open.id))
                return err_set(err, ERR_UNREACHABLE, "the host cannot be reached now");
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "socketpair");
        s = xcalloc(1, sizeof(*s));
        s->mux = m;
        s->fd = fds[0];
        s->phase = STREAM_ASKED;
        s->poll.data = s;
        if (uv_poll_init(uv_handle_get_loop((uv_handle_t *)&m->timer), &s->poll, s->fd) < 0) {
                close(fds[0]);
                close(fds[1]);
                free(s);
                return err_set(err, ERR_PROVIDER, "event loop");
        }
        m->handles++;
        m->n_streams++;
        s->next = m->streams;
        m->streams = s;
        s->credit.told = open.limit;
        s->channel = open.channel = m->next_channel++;
        tunnel_frame_write(&m->out, &open);
        watch_stream(s);
        flush_carrier(m);
        *ret_fd = fds[1];
        return 0;
}

/* Questions */

void mux_ask(struct mux *m, struct mux_question *take_question)
{
        struct mux_question *q = take_question;
        struct relay_frame f = { .type = FRAME_ASK, .want = (uint8_t)q->want };
        CLEAN(buf_done) struct buf ids = BUF_INIT;

        if (m->closed || m->n_questions >= MUX_MAX_QUESTIONS ||
            !frame_uuid_bytes(q->box_id, f.box)) {
                q->done(q, ERR_BUSY, "the host cannot be asked now");
                return;
        }
        for (; (q->want == MUX_BURY || q->want == MUX_ENSURE) && q->exec_ids &&
               q->exec_ids[f.n_execs] && f.n_execs < RELAY_MAX_EXECS;
             f.n_execs++) {
                uint8_t id[FRAME_UUID] = { 0 };

                (void)frame_uuid_bytes(q->exec_ids[f.n_execs], id);
                buf_append(&ids, id, FRAME_UUID);
        }
        f.execs = (const uint8_t *)buf_str(&ids);
        q->channel = f.channel = m->next_channel++;
        q->next = m->questions;
        m->questions = q;
        m->n_questions++;
        relay_frame_write(&m->out, &f);
        flush_carrier(m);
}

static int got_answer(struct mux *m, const struct frame_header *h, struct frame_in *in,
                      struct err *err)
{
        struct mux_question **at = &m->questions, *q;
        CLEAN(cleanup_free) char *text = NULL;
        struct relay_frame f;
        int r = relay_frame_read(h, in, &f, err);

        if (r < 0)
                return r;
        while (*at && (*at)->channel != f.channel)
                at = &(*at)->next;
        q = *at;
        if (!q)
                return err_set(err, ERR_INVALID, "the relay answers a question that was not asked");
        *at = q->next;
        m->n_questions--;
        text = xstrndup(f.text.p, MIN(f.text.len, q->want == MUX_LIST ? f.text.len : TEXT_MAX));
        if (f.code == RELAY_OK)
                q->done(q, q->want == MUX_ALIVE || q->want == MUX_LIST ? f.value : 0, text);
        else
                q->done(q, f.code == RELAY_BUSY ? ERR_BUSY : ERR_PROVIDER, text);
        return 0;
}

/* From the carrier */

static int got_for_stream(struct stream *s, const struct tunnel_frame *f, struct err *err)
{
        int r = peer_move(&s->phase, f->type, NULL, err);

        if (r < 0)
                return r;
        if (f->type == FRAME_RESET) {
                end_stream(s);
                return 0;
        }
        if (f->type == FRAME_ACCEPT)
                s->credit.limit = f->limit;
        else
                r = credit_take(&s->credit, f, err);
        if (r >= 0 && f->type == FRAME_BYTES)
                buf_append(&s->in, f->data.p, f->data.len);
        if (r >= 0 && pass_on(s))
                watch_stream(s);
        return r;
}

static int got_tunnel(struct mux *m, const struct frame_header *h, struct frame_in *in,
                      struct err *err)
{
        const struct mux_question *q = m->questions;
        struct stream *s = m->streams;
        struct tunnel_frame f;
        int r = tunnel_frame_read(h, in, &f, err);

        if (r < 0)
                return r;
        if (f.channel == 0 || f.channel >= m->next_channel)
                return err_set(err, ERR_INVALID,
                               "the relay sent for a stream that was not asked for");
        while (s && s->channel != f.channel)
                s = s->next;
        if (s)
                return got_for_stream(s, &f, err);
        /* A question, or a stream that is over, which the relay did not know. */
        while (q && q->channel != h->channel)
                q = q->next;
        enum peer_phase phase = q ? QUESTION_ASKED : STREAM_OVER;
        return peer_move(&phase, f.type, NULL, err);
}

static int got_frame(struct mux *m, const struct frame_header *h, const char *payload,
                     struct err *err)
{
        enum peer_phase phase = RELAY_READY;
        struct frame_in f;
        int r = peer_frame_fits(h, payload, err);

        if (r < 0)
                return r;
        frame_in_init(&f, payload, h->len);
        if (h->type == FRAME_ANSWER)
                return got_answer(m, h, &f, err);
        if (h->channel != 0 && frame_is_tunnel(h->type))
                return got_tunnel(m, h, &f, err);
        return h->channel == 0 ? peer_move(&phase, h->type, &m->pings, err)
                               : err_set(err, ERR_INVALID, "the relay sent %s on a stream",
                                         peer_frame_name(h->type));
}

static int take_frames(struct mux *m, struct err *err)
{
        size_t at = 0;
        int r = 0;

        while (!m->closed && r >= 0) {
                struct frame_header h;

                r = frame_parse_header(m->in.data + at, m->in.len - at, &h, err);
                if (r <= 0 || m->in.len - at < FRAME_HEADER + h.len)
                        break;
                r = got_frame(m, &h, m->in.data + at + FRAME_HEADER, err);
                at += FRAME_HEADER + h.len;
        }
        buf_consume(&m->in, at);
        return r;
}

static void read_carrier(struct mux *m)
{
        CLEAN(err_done) struct err err = { 0 };
        ssize_t n = fd_read_some(m->in_fd, &m->in, READ_SIZE);
        size_t after;
        int r = 0;

        if (n < 0 && errno == EAGAIN)
                return;
        if (n < 0 && errno == ENOBUFS) {
                give_up(m, "the relay sent too much at once", true);
                return;
        }
        if (n <= 0) {
                give_up(m, n == 0 ? "the relay ended" : strerror(errno), false);
                return;
        }
        m->heard_ms = clock_mono_ms();
        if (!m->ready && (after = relay_find_greeting(buf_str(&m->in), m->in.len)) > 0) {
                buf_consume(&m->in, after);
                m->ready = true;
                if (m->ev->on_ready)
                        m->ev->on_ready(m->ctx);
        } else if (!m->ready && m->in.len > CHATTER_MAX) {
                r = err_set(&err, ERR_INVALID, "the relay does not speak");
        }
        if (r >= 0 && m->ready && !m->closed)
                r = take_frames(m, &err);
        if (r < 0)
                give_up(m, err.msg, r == ERR_INVALID);
        if (!m->closed && m->in.len == 0)
                buf_done(&m->in);
}

static void on_carrier(uv_poll_t *poll, int status, int events)
{
        struct mux *m = poll->data;

        if (status < 0) {
                give_up(m, uv_strerror(status), false);
                return;
        }
        if (events & UV_READABLE)
                read_carrier(m);
        if (m->closed)
                return;
        flush_carrier(m);
        if (m->out.failed) {
                give_up(m, "the relay does not take what it is sent", false);
                return;
        }
        if (!is_full(m))
                for (struct stream *s = m->streams; s; s = s->next)
                        watch_stream(s);
}

/* A carrier may be dead without a word. */
static void on_timer(uv_timer_t *timer)
{
        struct mux *m = timer->data;

        if (!m->ready)
                return;
        if (clock_mono_ms() - m->heard_ms > SILENCE_MS) {
                give_up(m, "the relay does not answer", false);
                return;
        }
        m->pings++;
        FRAME_WRITE(&m->out, FRAME_PING, 0, F_U64(1));
        flush_carrier(m);
}

bool mux_is_ready(const struct mux *m)
{
        return m->ready && !m->closed;
}

int mux_open(uv_loop_t *loop, int take_in, int take_out, const struct mux_events *events, void *ctx,
             struct mux **ret, struct err *err)
{
        struct mux *m = xcalloc(1, sizeof(*m));

        /* Two descriptors: a loop watches each only once. */
        m->in_fd = take_in;
        m->out_fd = take_out == take_in ? fcntl(take_in, F_DUPFD_CLOEXEC, 3) : take_out;
        if (m->out_fd < 0) {
                close(take_in);
                free(m);
                return err_sys(err, ERR_BUSY, errno, "dup");
        }
        (void)fcntl(m->in_fd, F_SETFL, fcntl(m->in_fd, F_GETFL) | O_NONBLOCK);
        (void)fcntl(m->out_fd, F_SETFL, fcntl(m->out_fd, F_GETFL) | O_NONBLOCK);
        if (uv_poll_init(loop, &m->in_poll, m->in_fd) < 0) {
                close(m->in_fd);
                close(m->out_fd);
                free(m);
                return err_set(err, ERR_INTERNAL, "event loop: not a descriptor to wait for");
        }
        int r = uv_poll_init(loop, &m->out_poll, m->out_fd);
        uv_timer_init(loop, &m->timer);
        m->in_poll.data = m->out_poll.data = m->timer.data = m;
        m->handles = r < 0 ? 2 : 3;
        m->in.max = READ_SIZE + CHATTER_MAX + FRAME_MAX_PAYLOAD + FRAME_HEADER;
        m->ev = events;
        m->ctx = ctx;
        m->next_channel = 1;
        m->heard_ms = clock_mono_ms();
        if (r < 0) {
                m->closed = true;
                uv_close((uv_handle_t *)&m->in_poll, handle_closed);
                uv_close((uv_handle_t *)&m->timer, handle_closed);
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        }
        uv_timer_start(&m->timer, on_timer, PING_MS, PING_MS);
        uv_poll_start(&m->in_poll, UV_READABLE, on_carrier);
        *ret = m;
        return 0;
}
