/* Frames between the host and one box: sending, reading, and which breach ends the link. */
#include "box/link.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "codec/peer_state.h"

#define READ_SIZE   (256 * 1024)
#define PENDING_MAX ((size_t)64 << 20)
#define ANSWERS_MAX ((size_t)256 << 10)

/* An execution on this link, from START or ATTACH to its end: FORGET, FAILED, or ERROR 4. */
struct channel {
        uint32_t number;
        enum peer_phase phase;
        uint8_t id[FRAME_UUID];
        bool is_shared;   /* GREW comes, and no DATA; else the other way round */
        bool takes_input; /* as far as we know */
        uint64_t grown[2];
        uint64_t input_sent, taken, limit;
};

struct box_link {
        uv_poll_t poll;
        int fd;
        const struct box_link_events *ev;
        void *ctx;
        struct buf in, out;
        size_t out_sent;
        size_t answers; /* bytes of answers in `out`, as long as it is not empty */
        uint64_t heard; /* bytes */
        enum peer_phase phase;
        unsigned pings;           /* that were not answered */
        uint32_t listed;          /* STATE frames of the list that is coming */
        struct channel *channels; /* by their numbers */
        size_t n_channels, room;
        uint32_t first_channel, last_channel; /* ever used; 0: none */
        bool closed;
        bool sent_secrets; /* out holds values; wiped when it was sent */
        int watching;      /* UV_READABLE | UV_WRITABLE */
};

#define EVENT(l, name, ...)                                                                        \
        do {                                                                                       \
                if (!(l)->closed && (l)->ev->name)                                                 \
                        (l)->ev->name((l)->ctx, ##__VA_ARGS__);                                    \
        } while (0)

static void on_ready(uv_poll_t *poll, int status, int events);

static void link_freed(uv_handle_t *handle)
{
        struct box_link *l = container_of((uv_poll_t *)handle, struct box_link, poll);

        close(l->fd);
        buf_done(&l->in);
        buf_wipe(&l->out);
        free(l->channels);
        free(l);
}

void box_link_close(struct box_link *l)
{
        if (!l || uv_is_closing((uv_handle_t *)&l->poll))
                return;
        l->closed = true;
        uv_poll_stop(&l->poll);
        uv_close((uv_handle_t *)&l->poll, link_freed);
}

static void give_up(struct box_link *l, const char *why, bool is_breach)
{
        if (l->closed)
                return;
        EVENT(l, on_closed, why, is_breach);
        box_link_close(l);
}

void box_link_cut(struct box_link *l, const char *why)
{
        give_up(l, why, false);
}

/* Send what is queued; the rest goes when the stream takes it. Never calls back: a broken stream is
 * noticed by the next read. */
static void flush_link(struct box_link *l)
{
        while (!l->closed && l->out.len > l->out_sent) {
                ssize_t n = send(l->fd, l->out.data + l->out_sent, l->out.len - l->out_sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n < 0) {
                        if (errno == EINTR)
                                continue;
                        break;
                }
                l->out_sent += (size_t)n;
        }
        if (l->out_sent == l->out.len) {
                if (l->sent_secrets)
                        buf_wipe(&l->out);
                l->sent_secrets = false;
                buf_clear(&l->out);
                l->out_sent = l->answers = 0;
        } else if (l->out_sent > READ_SIZE) {
                buf_consume(&l->out, l->out_sent);
                l->out_sent = 0;
        }
        int wanted = UV_READABLE | (l->out.len > l->out_sent ? UV_WRITABLE : 0);
        if (!l->closed && wanted != l->watching) {
                l->watching = wanted;
                uv_poll_start(&l->poll, wanted, on_ready);
        }
}

size_t box_link_pending(const struct box_link *l)
{
        return l->out.len - l->out_sent;
}

uint64_t box_link_heard(const struct box_link *l)
{
        return l->heard;
}

/* Channels */

static struct channel *channel_find(struct box_link *l, uint32_t number)
{
        size_t from = 0, to = l->n_channels;

        while (from < to) {
                size_t middle = from + (to - from) / 2;

                if (l->channels[middle].number < number)
                        from = middle + 1;
                else
                        to = middle;
        }
        return from < l->n_channels && l->channels[from].number == number ? &l->channels[from]
                                                                          : NULL;
}

static struct channel *channel_add(struct box_link *l, uint32_t number, enum peer_phase phase,
                                   const uint8_t id[FRAME_UUID])
{
        if (l->n_channels == l->room) {
                l->room = MAX(2 * l->room, (size_t)8);
                l->channels = xrealloc(l->channels, l->room * sizeof(*l->channels));
        }
        struct channel *c = &l->channels[l->n_channels++];
        *c = (struct channel){ .number = number, .phase = phase };
        memcpy(c->id, id, FRAME_UUID);
        if (!l->first_channel)
                l->first_channel = number;
        l->last_channel = number;
        return c;
}

static void channel_remove(struct box_link *l, uint32_t number)
{
        struct channel *c = channel_find(l, number);

        if (!c)
                return;
        memmove(c, c + 1, (size_t)(l->channels + l->n_channels - (c + 1)) * sizeof(*c));
        l->n_channels--;
}

/* Frames from the box. got_frame() has checked the content of each frame and when it may come; the
 * checks here need knowledge of the channel. `c` is NULL for one that is over: what the box sent
 * before it heard of that is dropped. */

static int got_welcome(struct box_link *l, struct frame_in *f, struct err *err)
{
        struct box_welcome w;
        uint8_t box[FRAME_UUID];
        uint16_t version = frame_get_u16(f);

        w.features = frame_get_u32(f);
        frame_get_uuid(f, box);
        w.pid = frame_get_u32(f);
        w.kill_method = frame_get_u8(f);
        w.spool_limit = frame_get_u64(f);
        if (version != FRAME_VERSION)
                return err_set(err, ERR_INVALID, "the box speaks version %u", version);
        EVENT(l, on_welcome, &w);
        return 0;
}

/* Errors 1 to 3 are about the connection, and the last that it carries. */
static int got_text(struct box_link *l, const struct frame_header *h, const struct channel *c,
                    struct frame_in *f, struct err *err)
{
        char text[512];
        uint16_t code = frame_get_u16(f);
        struct frame_bytes said = frame_get_str(f);
        size_t n = MIN(said.len, sizeof(text) - 1);

        memcpy(text, said.p, n);
        text[n] = '\0';
        if (h->type == FRAME_FAILED) {
                EVENT(l, on_failed, h->channel, code, text);
                return 0;
        }
        if (l->phase == LINK_GREETING)
                return err_set(err, ERR_PROVIDER, "the box refused: %s", text);
        if (c || h->channel == 0)
                EVENT(l, on_error, h->channel, code, text);
        return code <= BOX_ERR_FRAME
                       ? err_set(err, ERR_PROVIDER, "the box ended the connection: %s", text)
                       : 0;
}

static int got_data(struct box_link *l, const struct channel *c, struct frame_in *f,
                    struct err *err)
{
        uint8_t stream = frame_get_u8(f);
        uint64_t at = frame_get_u64(f);
        struct frame_bytes data = frame_get_blob(f);

        if (!c || c->is_shared)
                return err_set(err, ERR_INVALID, "DATA of output that is in shared files");
        return l->ev->on_data ? l->ev->on_data(l->ctx, c->number, stream, at, data.p, data.len, err)
                              : 0;
}

static int got_grew(struct box_link *l, struct channel *c, struct frame_in *f, struct err *err)
{
        uint8_t stream = frame_get_u8(f);
        uint64_t len = frame_get_u64(f);

        if (!c || !c->is_shared)
                return err_set(err, ERR_INVALID, "GREW of output that is not in shared files");
        if (len < c->grown[stream - BOX_STDOUT])
                return err_set(err, ERR_INVALID, "GREW of output that became less");
        c->grown[stream - BOX_STDOUT] = len;
        EVENT(l, on_grew, c->number, stream, len);
        return 0;
}

static int got_state(struct box_link *l, const struct frame_header *h, struct channel *c,
                     struct frame_in *f, struct err *err)
{
        struct box_state state;

        frame_get_state(f, &state);
        if (h->channel == 0 && ++l->listed > BOX_MAX_EXECS)
                return err_set(err, ERR_INVALID, "STATE of more executions than a box can have");
        if (h->channel != 0 && !c)
                return 0;
        if (c && memcmp(c->id, state.id, FRAME_UUID) != 0)
                return err_set(err, ERR_INVALID, "STATE of another execution than was asked for");
        if (c) {
                c->takes_input = state.state == BOX_RUNNING;
                c->input_sent = c->taken = c->limit = state.stdin_len;
                c->grown[0] = state.stdout_len;
                c->grown[1] = state.stderr_len;
        }
        return l->ev->on_state ? l->ev->on_state(l->ctx, h->channel, &state, err) : 0;
}

static int got_taken(struct box_link *l, struct channel *c, struct frame_in *f, struct err *err)
{
        uint64_t taken = frame_get_u64(f), limit = frame_get_u64(f);

        if (!c)
                return 0;
        if (!c->takes_input)
                return err_set(err, ERR_INVALID, "TAKEN of an execution without input");
        if (taken < c->taken || taken > c->input_sent || limit < taken || limit < c->limit)
                return err_set(err, ERR_INVALID,
                               "TAKEN goes back, or is of input that was never sent");
        c->taken = taken;
        c->limit = limit;
        EVENT(l, on_taken, c->number, taken, limit);
        return 0;
}

static int act_on(struct box_link *l, const struct frame_header *h, struct channel *c,
                  struct frame_in *f, struct err *err)
{
        struct box_exit e;
        uint64_t number;
        uint32_t pid;

        switch (h->type) {
        case FRAME_WELCOME:
                return got_welcome(l, f, err);
        case FRAME_ERROR:
        case FRAME_FAILED:
                return got_text(l, h, c, f, err);
        case FRAME_DATA:
                return got_data(l, c, f, err);
        case FRAME_GREW:
                return got_grew(l, c, f, err);
        case FRAME_STARTED:
                pid = frame_get_u32(f);
                number = frame_get_u64(f);
                if (c) /* the table lets no other through */
                        EVENT(l, on_started, c->number, pid, number, frame_get_u8(f));
                return 0;
        case FRAME_STATE:
                return got_state(l, h, c, f, err);
        case FRAME_EXIT:
                frame_get_exit(f, &e);
                if (c)
                        EVENT(l, on_exit, c->number, &e);
                return 0;
        case FRAME_TAKEN:
                return got_taken(l, c, f, err);
        case FRAME_PING:
                FRAME_WRITE(&l->out, FRAME_PONG, 0, F_U64(frame_get_u64(f)));
                return 0;
        case FRAME_PONG:
                EVENT(l, on_pong, frame_get_u64(f));
                return 0;
        case FRAME_LISTED:
                number = frame_get_u32(f);
                if (number != l->listed)
                        return err_set(err, ERR_INVALID, "LISTED counts %u executions of %u",
                                       (uint32_t)number, l->listed);
                EVENT(l, on_listed);
                return 0;
        case FRAME_STOPPED:
                EVENT(l, on_stopped);
                return 0;
        default:
                return l->ev->on_tunnel ? l->ev->on_tunnel(l->ctx, h, f, err)
                                        : err_set(err, ERR_INVALID, "%s without a tunnel",
                                                  peer_frame_name(h->type));
        }
}

static int got_frame(struct box_link *l, const struct frame_header *h, const char *payload,
                     struct err *err)
{
        bool is_control = h->channel == 0 || frame_is_tunnel(h->type) ||
                          l->phase == LINK_GREETING || l->phase == LINK_OVER;
        enum peer_phase over = CHANNEL_OVER;
        struct channel *c = is_control ? NULL : channel_find(l, h->channel);
        enum peer_phase *phase = is_control ? &l->phase : c ? &c->phase : &over;
        size_t pending = box_link_pending(l);
        struct frame_in f;
        int r = peer_frame_fits(h, payload, err);

        if (r >= 0 && !is_control &&
            (h->channel < l->first_channel || h->channel > l->last_channel))
                r = err_set(err, ERR_INVALID, "%s on a channel that nobody opened",
                            peer_frame_name(h->type));
        if (r >= 0)
                r = peer_move(phase, h->type, &l->pings, err);
        if (r < 0)
                return r;
        frame_in_init(&f, payload, h->len);
        r = act_on(l, h, c, &f, err);
        /* A box that asks without end and takes no answer would fill our memory. */
        if ((h->type == FRAME_PING || h->type == FRAME_OPEN) && box_link_pending(l) > pending)
                l->answers += box_link_pending(l) - pending;
        if (r >= 0 && l->answers > ANSWERS_MAX)
                r = err_set(err, ERR_INVALID, "the box asks and does not take the answers");
        /* Looked up again: a callback may have used the link. */
        c = is_control ? NULL : channel_find(l, h->channel);
        if (c && c->phase == CHANNEL_OVER)
                channel_remove(l, h->channel);
        return r;
}

/* Handle every whole frame in the buffer; the rest is the start of the next one. */
static int take_frames(struct box_link *l, struct err *err)
{
        size_t at = 0;
        int r = 0;

        while (!l->closed && r >= 0) {
                struct frame_header h;

                r = frame_parse_header(l->in.data + at, l->in.len - at, &h, err);
                if (r <= 0 || l->in.len - at < FRAME_HEADER + h.len)
                        break;
                r = got_frame(l, &h, l->in.data + at + FRAME_HEADER, err);
                at += FRAME_HEADER + h.len;
        }
        buf_consume(&l->in, at);
        return r;
}

static void read_link(struct box_link *l)
{
        CLEAN(err_done) struct err err = { 0 };
        char *at = buf_reserve(&l->in, READ_SIZE);
        ssize_t n;

        if (!at) {
                give_up(l, "the box sent too much at once", true);
                return;
        }
        do
                n = recv(l->fd, at, READ_SIZE, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return;
        if (n <= 0) {
                give_up(l, n == 0 ? "the box closed the connection" : strerror(errno), false);
                return;
        }
        buf_grew(&l->in, (size_t)n);
        l->heard += (uint64_t)n;
        int r = take_frames(l, &err);
        if (r < 0 && !l->closed) {
                /* Tell the box why, for people who look at its side. */
                if (r == ERR_INVALID) {
                        FRAME_WRITE(&l->out, FRAME_ERROR, 0, F_U16(BOX_ERR_FRAME),
                                    F_TEXT(err.msg, strlen(err.msg)));
                        flush_link(l);
                }
                give_up(l, err.msg, r == ERR_INVALID);
        }
        /* An idle link keeps no big buffer. */
        if (!l->closed && l->in.len == 0)
                buf_done(&l->in);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
        struct box_link *l = container_of(poll, struct box_link, poll);

        if (status < 0) {
                give_up(l, uv_strerror(status), false);
                return;
        }
        if (events & UV_READABLE)
                read_link(l);
        if (!l->closed)
                flush_link(l);
        if (events & UV_WRITABLE)
                EVENT(l, on_drained);
        if (!l->closed && l->out.failed)
                give_up(l, "the box does not take what it is sent", false);
}

/* Frames to the box */

int box_link_open(uv_loop_t *loop, int take_fd, const uint8_t node[FRAME_UUID], uint64_t epoch,
                  const struct box_link_events *events, void *ctx, struct box_link **ret,
                  struct err *err)
{
        struct box_link *l = xcalloc(1, sizeof(*l));

        l->fd = take_fd;
        l->ev = events;
        l->ctx = ctx;
        l->phase = LINK_GREETING;
        l->in.max = READ_SIZE + FRAME_MAX_PAYLOAD + FRAME_HEADER;
        l->out.max = PENDING_MAX;
        (void)fcntl(take_fd, F_SETFL, O_NONBLOCK);
        int r = uv_poll_init(loop, &l->poll, take_fd);
        if (r < 0) {
                close(take_fd);
                free(l);
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        }
        FRAME_WRITE(&l->out, FRAME_HELLO, 0, F_BYTES("BRTH", 4), F_U16(FRAME_VERSION),
                    F_U16(FRAME_VERSION), F_BYTES(node, FRAME_UUID), F_U64(epoch));
        flush_link(l);
        *ret = l;
        return 0;
}

static void send_empty(struct box_link *l, enum frame_type type, uint32_t channel)
{
        struct frame_out f;

        frame_begin(&f, &l->out, type, channel);
        frame_end(&f);
        flush_link(l);
}

void box_link_list(struct box_link *l)
{
        l->phase = LINK_LISTING;
        l->listed = 0;
        send_empty(l, FRAME_LIST, 0);
}

void box_link_forget(struct box_link *l, uint32_t channel)
{
        channel_remove(l, channel);
        send_empty(l, FRAME_FORGET, channel);
}

void box_link_ping(struct box_link *l, uint64_t token)
{
        l->pings++;
        FRAME_WRITE(&l->out, FRAME_PING, 0, F_U64(token));
        flush_link(l);
}

static void put_text(struct frame_out *f, const char *s)
{
        frame_put_str(f, s ? s : "", s ? strlen(s) : 0);
}

static void put_list(struct frame_out *f, const char *const *list)
{
        uint32_t n = 0;

        while (list && list[n])
                n++;
        frame_put_u32(f, n);
        for (uint32_t i = 0; i < n; i++)
                put_text(f, list[i]);
}

void box_link_start(struct box_link *l, uint32_t channel, const struct box_start *s)
{
        struct channel *c = channel_add(l, channel, CHANNEL_STARTING, s->id);
        struct frame_out f;

        c->is_shared = s->flags & BOX_START_SHARED;
        c->takes_input = s->flags & (BOX_START_STDIN | BOX_START_TERMINAL);
        frame_begin(&f, &l->out, FRAME_START, channel);
        frame_put_uuid(&f, s->id);
        frame_put_u32(&f, s->flags);
        frame_put_u64(&f, s->timeout_ms);
        frame_put_u32(&f, s->grace_ms);
        frame_put_u16(&f, s->columns);
        frame_put_u16(&f, s->rows);
        put_text(&f, s->cwd);
        put_text(&f, s->spool_dir);
        put_text(&f, s->command);
        put_list(&f, s->args);
        put_list(&f, s->env);
        if (s->flags & BOX_START_REDACT)
                put_list(&f, s->redact);
        if (s->flags & BOX_START_OUTPUT)
                frame_put_output(&f, &s->output);
        if (s->flags & BOX_START_ACP)
                put_list(&f, s->acp);
        l->sent_secrets = l->sent_secrets || s->flags & BOX_START_REDACT;
        frame_end(&f);
        flush_link(l);
}

void box_link_attach(struct box_link *l, uint32_t channel, const uint8_t id[FRAME_UUID],
                     uint32_t flags)
{
        channel_add(l, channel, CHANNEL_ATTACHING, id)->is_shared = flags & BOX_START_SHARED;
        FRAME_WRITE(&l->out, FRAME_ATTACH, channel, F_BYTES(id, FRAME_UUID));
        flush_link(l);
}

void box_link_ack(struct box_link *l, uint32_t channel, uint8_t stream, uint64_t stored,
                  uint64_t limit)
{
        FRAME_WRITE(&l->out, FRAME_ACK, channel, F_U8(stream), F_U64(stored), F_U64(limit));
        flush_link(l);
}

void box_link_stdin(struct box_link *l, uint32_t channel, uint64_t offset, bool eof,
                    const void *data, size_t len)
{
        struct channel *c = channel_find(l, channel);

        if (c)
                c->input_sent = MAX(c->input_sent, offset + len);
        FRAME_WRITE(&l->out, FRAME_STDIN, channel, F_U64(offset), F_U8(eof), F_BYTES(data, len));
        flush_link(l);
}

void box_link_signal(struct box_link *l, uint32_t channel, uint8_t signal)
{
        FRAME_WRITE(&l->out, FRAME_SIGNAL, channel, F_U8(signal));
        flush_link(l);
}

void box_link_resize(struct box_link *l, uint32_t channel, uint16_t columns, uint16_t rows)
{
        FRAME_WRITE(&l->out, FRAME_RESIZE, channel, F_U16(columns), F_U16(rows));
        flush_link(l);
}

void box_link_stop(struct box_link *l, uint32_t grace_ms)
{
        l->phase = LINK_STOPPING;
        FRAME_WRITE(&l->out, FRAME_STOP, 0, F_U32(grace_ms));
        flush_link(l);
}

void box_link_tunnel(struct box_link *l, const struct tunnel_frame *f)
{
        tunnel_frame_write(&l->out, f);
        flush_link(l);
}
