/* The relay's loop: frames between its carrier and the boxes of this host. */
#define _GNU_SOURCE
#include "berth-box/relay.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/mains.h"
#include "box/launch.h"

#define OUT_FULL   ((size_t)512 << 10) /* bytes for a host that does not read; then all waits */
#define OUT_MAX    ((size_t)4 << 20)
#define SILENCE_MS 120000 /* a host that lives pings */
#define READ_SIZE  65536

int relay_watch(struct relay *r, int op, int fd, uint32_t events, enum relay_event kind, int index)
{
        struct epoll_event e = { .events = events };

        e.data.u64 = (uint64_t)kind << 32 | (uint32_t)index;
        return epoll_ctl(r->epoll_fd, op, fd, &e);
}

void relay_box_dir(const struct relay *r, const uint8_t box[FRAME_UUID], char *ret, size_t size)
{
        char id[37];

        frame_uuid_text(box, id);
        snprintf(ret, size, "%s/boxes/%s", r->base, id);
}

void relay_answer(struct relay *r, uint32_t channel, uint16_t code, uint8_t value, const char *text)
{
        relay_frame_write(&r->out, &(struct relay_frame){ .type = FRAME_ANSWER,
                                                          .channel = channel,
                                                          .code = code,
                                                          .value = value,
                                                          .text = { text, strlen(text) } });
}

static bool is_full(const struct relay *r)
{
        return r->out.len - r->out_sent >= OUT_FULL;
}

/* Streams */

static void drop_stream(struct relay_stream *s)
{
        close(s->fd); /* epoll forgets it with that */
        buf_wipe(&s->in);
        s->used = false;
}

static void reset_stream(struct relay *r, uint32_t channel, uint8_t reason)
{
        tunnel_frame_write(&r->out, &(struct tunnel_frame){ .type = FRAME_RESET,
                                                            .channel = channel,
                                                            .reason = reason });
}

/* One that waits for nothing is not watched at all: its end would be told without end. */
static void watch_stream(struct relay *r, struct relay_stream *s)
{
        uint32_t wanted = 0;

        if (credit_room(&s->credit) > 0 && !is_full(r))
                wanted |= EPOLLIN;
        if (s->in.len > 0)
                wanted |= EPOLLOUT;
        if (wanted == s->events)
                return;
        int op = !wanted ? EPOLL_CTL_DEL : s->events ? EPOLL_CTL_MOD : EPOLL_CTL_ADD;
        if (relay_watch(r, op, s->fd, wanted, RELAY_EV_STREAM, (int)(s - r->streams)) == 0)
                s->events = wanted;
}

static int open_stream(struct relay *r, const struct tunnel_frame *f, struct err *err)
{
        struct relay_stream *s = NULL;
        char dir[4200];
        int fd;

        if (f->channel <= r->last_channel)
                return err_set(err, ERR_INVALID, "a channel was used again");
        r->last_channel = f->channel;
        for (size_t i = 0; i < RELAY_MAX_STREAMS && !s; i++)
                if (!r->streams[i].used)
                        s = &r->streams[i];
        relay_box_dir(r, f->id, dir, sizeof(dir));
        if (!s || box_connect(dir, &fd, NULL) < 0) {
                reset_stream(r, f->channel, s ? TUNNEL_RESET_REFUSED : TUNNEL_RESET_LIMIT);
                return 0;
        }
        if (relay_watch(r, EPOLL_CTL_ADD, fd, EPOLLIN, RELAY_EV_STREAM, (int)(s - r->streams)) <
            0) {
                close(fd);
                reset_stream(r, f->channel, TUNNEL_RESET_LIMIT);
                return 0;
        }
        *s = (struct relay_stream){
                .used = true, .fd = fd, .channel = f->channel, .events = EPOLLIN
        };
        s->credit.limit = f->limit;
        s->credit.told = CREDIT_WINDOW;
        s->in.max = 2 * CREDIT_WINDOW;
        tunnel_frame_write(&r->out, &(struct tunnel_frame){ .type = FRAME_ACCEPT,
                                                            .channel = f->channel,
                                                            .limit = CREDIT_WINDOW });
        return 0;
}

/* To the box what came for it. */
static void pass_on(struct relay *r, struct relay_stream *s)
{
        /* What the box said last still goes to the host: its reason. */
        if (!fd_send_some(s->fd, &s->in))
                s->in.len = 0;
        if (s->in.len == 0) {
                buf_wipe(&s->in); /* a START may have been in it */
                if (s->credit.end_got)
                        (void)shutdown(s->fd, SHUT_WR);
        }
        credit_give(&s->credit, &r->out, s->channel, s->in.len);
}

/* To the host what the box says. */
static void take_from(struct relay *r, struct relay_stream *s)
{
        char bytes[16384];
        size_t room = (size_t)MIN(credit_room(&s->credit), (uint64_t)sizeof(bytes));

        if (room == 0 || is_full(r))
                return;
        ssize_t n = recv(s->fd, bytes, room, MSG_DONTWAIT);
        if (n > 0) {
                credit_send(&s->credit, &r->out, s->channel, bytes, (size_t)n);
        } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
                credit_end(&s->credit, &r->out, s->channel);
                drop_stream(s);
        }
}

static int stream_frame(struct relay *r, const struct frame_header *h, struct frame_in *in,
                        struct err *err)
{
        struct relay_stream *s;
        struct tunnel_frame f;
        int code = tunnel_frame_read(h, in, &f, err);

        if (code < 0)
                return code;
        if (f.type == FRAME_OPEN)
                return open_stream(r, &f, err);
        if (f.channel == 0 || f.channel > r->last_channel)
                return err_set(err, ERR_INVALID, "a stream that was never opened");
        for (s = r->streams; s < r->streams + RELAY_MAX_STREAMS; s++)
                if (s->used && s->channel == f.channel)
                        break;
        if (s == r->streams + RELAY_MAX_STREAMS)
                return 0;
        if (f.type == FRAME_RESET) {
                drop_stream(s);
                return 0;
        }
        code = credit_take(&s->credit, &f, err);
        if (code >= 0 && f.type == FRAME_BYTES)
                buf_append(&s->in, f.data.p, f.data.len);
        if (code >= 0)
                pass_on(r, s);
        return code;
}

/* The carrier */

static int carrier_frame(struct relay *r, const struct frame_header *h, struct frame_in *in,
                         struct err *err)
{
        struct relay_frame f;
        uint64_t value;

        if (h->type == FRAME_PING) {
                value = frame_get_u64(in);
                if (frame_in_end(in, err) < 0)
                        return ERR_INVALID;
                FRAME_WRITE(&r->out, FRAME_PONG, 0, F_U64(value));
                return 0;
        }
        if (!frame_is_relay(h->type))
                return stream_frame(r, h, in, err);
        if (relay_frame_read(h, in, &f, err) < 0 || f.type != FRAME_ASK)
                return err_set(err, ERR_INVALID, "no question");
        if (f.channel <= r->last_channel)
                return err_set(err, ERR_INVALID, "a channel was used again");
        r->last_channel = f.channel;
        relay_ask(r, &f);
        return 0;
}

static int take_frames(struct relay *r, struct err *err)
{
        size_t at = 0;
        int code = 0;

        while (code >= 0 && !is_full(r)) {
                struct frame_header h;
                struct frame_in in;

                code = frame_parse_header(r->in.data + at, r->in.len - at, &h, err);
                if (code <= 0 || r->in.len - at < FRAME_HEADER + h.len)
                        break;
                frame_in_init(&in, r->in.data + at + FRAME_HEADER, h.len);
                code = carrier_frame(r, &h, &in, err);
                at += FRAME_HEADER + h.len;
        }
        if (at > 0) {
                buf_consume(&r->in, at);
                explicit_bzero(r->in.data + r->in.len, at);
        }
        return code;
}

/* False when the host is gone. */
static bool read_host(struct relay *r, uint32_t events)
{
        ssize_t n = fd_read_some(0, &r->in, READ_SIZE);

        if (n < 0 && errno == ENOBUFS) /* frames wait for room */
                return !(events & EPOLLHUP);
        if (n < 0)
                return errno == EAGAIN;
        r->heard_ms = clock_mono_ms();
        return n > 0;
}

static bool write_host(struct relay *r)
{
        while (r->out_sent < r->out.len) {
                ssize_t n = write(1, r->out.data + r->out_sent, r->out.len - r->out_sent);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0)
                        return false;
                r->out_sent += (size_t)n;
        }
        if (r->out_sent == r->out.len) {
                buf_clear(&r->out);
                r->out_sent = 0;
        } else if (r->out_sent > OUT_FULL) {
                buf_consume(&r->out, r->out_sent);
                r->out_sent = 0;
        }
        return !r->out.failed;
}

static void watch_carrier(struct relay *r)
{
        bool wanted = r->out.len > r->out_sent;

        (void)relay_watch(r, EPOLL_CTL_MOD, 0, is_full(r) ? 0 : EPOLLIN, RELAY_EV_IN, 0);
        if (wanted != r->out_watched && relay_watch(r, wanted ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, 1,
                                                    EPOLLOUT, RELAY_EV_OUT, 0) == 0)
                r->out_watched = wanted;
        for (size_t i = 0; i < RELAY_MAX_STREAMS; i++)
                if (r->streams[i].used)
                        watch_stream(r, &r->streams[i]);
}

static bool handle_event(struct relay *r, const struct epoll_event *e)
{
        uint32_t index = (uint32_t)e->data.u64;

        switch ((enum relay_event)(e->data.u64 >> 32)) {
        case RELAY_EV_IN:
                return read_host(r, e->events);
        case RELAY_EV_STREAM:
                if (r->streams[index].used && e->events & EPOLLOUT)
                        pass_on(r, &r->streams[index]);
                if (r->streams[index].used && e->events & (EPOLLIN | EPOLLHUP | EPOLLERR))
                        take_from(r, &r->streams[index]);
                return true;
        case RELAY_EV_CHILD:
                if (r->children[index].used)
                        relay_child_event(r, &r->children[index]);
                return true;
        default:
                return true;
        }
}

int relay_make_dirs(const char *base)
{
        CLEAN(cleanup_free) char *boxes = xasprintf("%s/boxes", base);

        if (mkdir(base, 0700) < 0 && errno != EEXIST)
                return -1;
        return mkdir(boxes, 0700) < 0 && errno != EEXIST ? -1 : 0;
}

int relay_main(const struct main_args *a)
{
        const char *base = a->dir;
        static struct relay r;

        if (base[0] != '/' || strlen(base) >= sizeof(r.base))
                return 2;
        memcpy(r.base, base, strlen(base) + 1);
        if (relay_make_dirs(base) < 0) {
                fprintf(stderr, "berth-box: %s: %s\n", base, strerror(errno));
                return 1;
        }
        signal(SIGPIPE, SIG_IGN);
        (void)fcntl(0, F_SETFL, fcntl(0, F_GETFL) | O_NONBLOCK);
        (void)fcntl(1, F_SETFL, fcntl(1, F_GETFL) | O_NONBLOCK);
        r.in.max = FRAME_HEADER + FRAME_MAX_PAYLOAD + READ_SIZE;
        r.out.max = OUT_MAX;
        r.heard_ms = clock_mono_ms();
        r.epoll_fd = epoll_create1(EPOLL_CLOEXEC);
        if (r.epoll_fd < 0 || relay_watch(&r, EPOLL_CTL_ADD, 0, EPOLLIN, RELAY_EV_IN, 0) < 0) {
                fprintf(stderr, "berth-box: epoll: %s\n", strerror(errno));
                return 1;
        }
        relay_greet(&r.out);
        CLEAN(err_done) struct err err = { 0 };
        struct epoll_event events[64];
        bool lives = true;

        while (lives) {
                int n;

                if (take_frames(&r, &err) < 0) {
                        fprintf(stderr, "berth-box: %s\n", err.msg);
                        return 1;
                }
                if (!write_host(&r))
                        return 0;
                watch_carrier(&r);
                n = epoll_wait(r.epoll_fd, events, ARRAY_LEN(events), SILENCE_MS);
                if (n < 0 && errno != EINTR)
                        return 1;
                for (int i = 0; i < n && lives; i++)
                        lives = handle_event(&r, &events[i]);
                if (clock_mono_ms() - r.heard_ms > SILENCE_MS)
                        return 0;
        }
        return 0;
}
