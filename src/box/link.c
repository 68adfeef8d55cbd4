#include "box/link.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#define READ_SIZE   (256 * 1024)
#define PENDING_MAX ((size_t)64 << 20)

struct box_link {
        uv_poll_t poll;
        int fd;
        const struct box_link_events *ev;
        void *ctx;
        struct buf in, out;
        size_t out_sent;
        bool welcomed, closed;
        bool sent_secrets; /* out holds values; wiped when it was sent */
        int watching;      /* UV_READABLE | UV_WRITABLE */
};

#define EVENT(l, name, ...)                                                                        \
        do {                                                                                       \
                if (!(l)->closed && (l)->ev->name)                                                 \
                        (l)->ev->name((l)->ctx, ##__VA_ARGS__);                                    \
        } while (0)

static void on_ready(uv_poll_t *poll, int status, int events);

static void freed(uv_handle_t *handle)
{
        struct box_link *l = container_of((uv_poll_t *)handle, struct box_link, poll);

        close(l->fd);
        buf_done(&l->in);
        buf_wipe(&l->out);
        free(l);
}

void box_link_close(struct box_link *l)
{
        if (!l || uv_is_closing((uv_handle_t *)&l->poll))
                return;
        l->closed = true;
        uv_poll_stop(&l->poll);
        uv_close((uv_handle_t *)&l->poll, freed);
}

static void give_up(struct box_link *l, const char *why)
{
        if (l->closed)
                return;
        EVENT(l, on_closed, why);
        box_link_close(l);
}

static void watch(struct box_link *l)
{
        int wanted = UV_READABLE | (l->out.len > l->out_sent ? UV_WRITABLE : 0);

        if (!l->closed && wanted != l->watching) {
                l->watching = wanted;
                uv_poll_start(&l->poll, wanted, on_ready);
        }
}

/* Send what is queued; the rest goes when the stream takes it. Never calls back: a broken stream is
 * noticed by the next read. */
static void flush(struct box_link *l)
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
                l->out_sent = 0;
        } else if (l->out_sent > READ_SIZE) {
                buf_consume(&l->out, l->out_sent);
                l->out_sent = 0;
        }
        watch(l);
}

size_t box_link_pending(const struct box_link *l)
{
        return l->out.len - l->out_sent;
}

/* Frames from the box */

static const char *copy_text(struct frame_bytes b, char *out, size_t size)
{
        size_t n = MIN(b.len, size - 1);

        memcpy(out, b.p, n);
        out[n] = '\0';
        return out;
}

static int got_welcome(struct box_link *l, struct frame_in *f, struct err *err)
{
        struct box_welcome w;
        uint8_t box[FRAME_UUID];
        uint16_t version = frame_get_u16(f);
        int r;

        w.features = frame_get_u32(f);
        frame_get_uuid(f, box);
        w.pid = frame_get_u32(f);
        w.kill_method = frame_get_u8(f);
        w.spool_limit = frame_get_u64(f);
        (void)frame_get_u32(f);
        r = frame_in_end(f, err);
        if (r >= 0 && (l->welcomed || version != FRAME_VERSION))
                r = err_set(err, ERR_INVALID, "the box speaks version %u", version);
        if (r >= 0) {
                l->welcomed = true;
                EVENT(l, on_welcome, &w);
        }
        return r;
}

static int got_text(struct box_link *l, const struct frame_header *h, struct frame_in *f,
                    struct err *err)
{
        char text[512];
        uint16_t code = frame_get_u16(f);
        struct frame_bytes bytes = frame_get_str(f);
        int r = frame_in_end(f, err);

        if (r < 0)
                return r;
        copy_text(bytes, text, sizeof(text));
        if (h->type == FRAME_FAILED)
                EVENT(l, on_failed, h->channel, code, text);
        else if (h->channel == 0 && !l->welcomed)
                r = err_set(err, ERR_PROVIDER, "the box refused: %s", text);
        else
                EVENT(l, on_error, h->channel, code, text);
        return r;
}

static int got_output(struct box_link *l, const struct frame_header *h, struct frame_in *f,
                      struct err *err)
{
        uint8_t stream = frame_get_u8(f);
        uint64_t at = frame_get_u64(f);
        struct frame_bytes data = { "", 0 };
        int r;

        if (h->type == FRAME_DATA)
                data = frame_get_blob(f);
        r = frame_in_end(f, err);
        if (r >= 0 && stream != BOX_STDOUT && stream != BOX_STDERR)
                r = err_set(err, ERR_INVALID, "there is no stream %u", stream);
        if (r < 0)
                return r;
        if (h->type == FRAME_DATA)
                EVENT(l, on_data, h->channel, stream, at, data.p, data.len);
        else
                EVENT(l, on_grew, h->channel, stream, at);
        return 0;
}

static int got_started(struct box_link *l, const struct frame_header *h, struct frame_in *f,
                       struct err *err)
{
        uint32_t pid = frame_get_u32(f);
        uint64_t started = frame_get_u64(f);
        uint8_t method = frame_get_u8(f);
        int r = frame_in_end(f, err);

        if (r >= 0)
                EVENT(l, on_started, h->channel, pid, started, method);
        return r;
}

static int got_state(struct box_link *l, const struct frame_header *h, struct frame_in *f,
                     struct err *err)
{
        struct box_state state;
        int r;

        frame_get_state(f, &state);
        r = frame_in_end(f, err);
        if (r >= 0)
                EVENT(l, on_state, h->channel, &state);
        return r;
}

static int got_exit(struct box_link *l, const struct frame_header *h, struct frame_in *f,
                    struct err *err)
{
        struct box_exit e;
        int r;

        frame_get_exit(f, &e);
        r = frame_in_end(f, err);
        if (r >= 0)
                EVENT(l, on_exit, h->channel, &e);
        return r;
}

static int got_taken(struct box_link *l, const struct frame_header *h, struct frame_in *f,
                     struct err *err)
{
        uint64_t taken = frame_get_u64(f);
        uint64_t limit = frame_get_u64(f);
        int r = frame_in_end(f, err);

        if (r >= 0)
                EVENT(l, on_taken, h->channel, taken, limit);
        return r;
}

static int got_ping(struct box_link *l, const struct frame_header *h, struct frame_in *f,
                    struct err *err)
{
        uint64_t token = frame_get_u64(f);
        struct frame_out out;
        int r = frame_in_end(f, err);

        if (r < 0)
                return r;
        if (h->type == FRAME_PONG) {
                EVENT(l, on_pong, token);
                return 0;
        }
        frame_begin(&out, &l->out, FRAME_PONG, 0);
        frame_put_u64(&out, token);
        frame_end(&out);
        return 0;
}

static int got_frame(struct box_link *l, const struct frame_header *h, const char *payload,
                     struct err *err)
{
        struct frame_in f;

        frame_in_init(&f, payload, h->len);
        if (!l->welcomed && h->type != FRAME_WELCOME && h->type != FRAME_ERROR)
                return err_set(err, ERR_INVALID, "the box said %u before WELCOME", h->type);
        switch (h->type) {
        case FRAME_WELCOME:
                return got_welcome(l, &f, err);
        case FRAME_ERROR:
        case FRAME_FAILED:
                return got_text(l, h, &f, err);
        case FRAME_DATA:
        case FRAME_GREW:
                return got_output(l, h, &f, err);
        case FRAME_STARTED:
                return got_started(l, h, &f, err);
        case FRAME_STATE:
                return got_state(l, h, &f, err);
        case FRAME_EXIT:
                return got_exit(l, h, &f, err);
        case FRAME_TAKEN:
                return got_taken(l, h, &f, err);
        case FRAME_PING:
        case FRAME_PONG:
                return got_ping(l, h, &f, err);
        case FRAME_LISTED:
                EVENT(l, on_listed);
                return 0;
        case FRAME_STOPPED:
                EVENT(l, on_stopped);
                return 0;
        default:
                if (frame_is_tunnel(h->type) && l->ev->on_tunnel)
                        return l->ev->on_tunnel(l->ctx, h, &f, err);
                return err_set(err, ERR_INVALID, "the box sent a frame of type %u", h->type);
        }
}

/* Handle every whole frame in the buffer; what is left is the start of the next one. */
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

static void read_some(struct box_link *l)
{
        CLEAN(err_done) struct err err = { 0 };
        char *at = buf_reserve(&l->in, READ_SIZE);
        ssize_t n;

        if (!at) {
                give_up(l, "the box sent too much at once");
                return;
        }
        do
                n = recv(l->fd, at, READ_SIZE, MSG_DONTWAIT);
        while (n < 0 && errno == EINTR);
        if (n < 0 && errno == EAGAIN)
                return;
        if (n <= 0) {
                give_up(l, n == 0 ? "the box closed the connection" : strerror(errno));
                return;
        }
        buf_grew(&l->in, (size_t)n);
        if (take_frames(l, &err) < 0)
                give_up(l, err.msg);
        /* An idle link keeps no big buffer. */
        if (!l->closed && l->in.len == 0)
                buf_done(&l->in);
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
        struct box_link *l = container_of(poll, struct box_link, poll);

        if (status < 0) {
                give_up(l, uv_strerror(status));
                return;
        }
        if (events & UV_READABLE)
                read_some(l);
        if (!l->closed)
                flush(l);
        if (events & UV_WRITABLE)
                EVENT(l, on_drained);
        if (!l->closed && l->out.failed)
                give_up(l, "the box does not take what it is sent");
}

/* Frames to the box */

int box_link_open(uv_loop_t *loop, int take_fd, const uint8_t node[FRAME_UUID], uint64_t epoch,
                  const struct box_link_events *events, void *ctx, struct box_link **ret,
                  struct err *err)
{
        struct box_link *l = xcalloc(1, sizeof(*l));
        struct frame_out f;
        int r;

        l->fd = take_fd;
        l->ev = events;
        l->ctx = ctx;
        l->in.max = READ_SIZE + FRAME_MAX_PAYLOAD + FRAME_HEADER;
        l->out.max = PENDING_MAX;
        (void)fcntl(take_fd, F_SETFL, O_NONBLOCK);
        r = uv_poll_init(loop, &l->poll, take_fd);
        if (r < 0) {
                close(take_fd);
                free(l);
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        }
        frame_begin(&f, &l->out, FRAME_HELLO, 0);
        frame_put_blob(&f, "BRTH", 4);
        frame_put_u16(&f, FRAME_VERSION);
        frame_put_u16(&f, FRAME_VERSION);
        frame_put_uuid(&f, node);
        frame_put_u64(&f, epoch);
        frame_end(&f);
        flush(l);
        *ret = l;
        return 0;
}

static void send_empty(struct box_link *l, enum frame_type type, uint32_t channel)
{
        struct frame_out f;

        frame_begin(&f, &l->out, type, channel);
        frame_end(&f);
        flush(l);
}

void box_link_list(struct box_link *l)
{
        send_empty(l, FRAME_LIST, 0);
}

void box_link_forget(struct box_link *l, uint32_t channel)
{
        send_empty(l, FRAME_FORGET, channel);
}

void box_link_ping(struct box_link *l, uint64_t token)
{
        struct frame_out f;

        frame_begin(&f, &l->out, FRAME_PING, 0);
        frame_put_u64(&f, token);
        frame_end(&f);
        flush(l);
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
        struct frame_out f;

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
        l->sent_secrets = l->sent_secrets || s->flags & BOX_START_REDACT;
        frame_end(&f);
        flush(l);
}

void box_link_attach(struct box_link *l, uint32_t channel, const uint8_t id[FRAME_UUID])
{
        struct frame_out f;

        frame_begin(&f, &l->out, FRAME_ATTACH, channel);
        frame_put_uuid(&f, id);
        frame_end(&f);
        flush(l);
}

void box_link_ack(struct box_link *l, uint32_t channel, uint8_t stream, uint64_t stored,
                  uint64_t limit)
{
        struct frame_out f;

        frame_begin(&f, &l->out, FRAME_ACK, channel);
        frame_put_u8(&f, stream);
        frame_put_u64(&f, stored);
        frame_put_u64(&f, limit);
        frame_end(&f);
        flush(l);
}

void box_link_stdin(struct box_link *l, uint32_t channel, uint64_t offset, bool eof,
                    const void *data, size_t len)
{
        struct frame_out f;

        frame_begin(&f, &l->out, FRAME_STDIN, channel);
        frame_put_u64(&f, offset);
        frame_put_u8(&f, eof);
        frame_put_blob(&f, data, len);
        frame_end(&f);
        flush(l);
}

void box_link_signal(struct box_link *l, uint32_t channel, uint8_t signal)
{
        struct frame_out f;

        frame_begin(&f, &l->out, FRAME_SIGNAL, channel);
        frame_put_u8(&f, signal);
        frame_end(&f);
        flush(l);
}

void box_link_resize(struct box_link *l, uint32_t channel, uint16_t columns, uint16_t rows)
{
        struct frame_out f;

        frame_begin(&f, &l->out, FRAME_RESIZE, channel);
        frame_put_u16(&f, columns);
        frame_put_u16(&f, rows);
        frame_end(&f);
        flush(l);
}

void box_link_stop(struct box_link *l, uint32_t grace_ms)
{
        struct frame_out f;

        frame_begin(&f, &l->out, FRAME_STOP, 0);
        frame_put_u32(&f, grace_ms);
        frame_end(&f);
        flush(l);
}

void box_link_tunnel(struct box_link *l, const struct tunnel_frame *f)
{
        tunnel_frame_write(&l->out, f);
        flush(l);
}
