/* The host's end of a tunnel: listeners, connections, and their streams. */
#include "box/tunnel.h"

#include <errno.h>

#include "codec/peer_state.h"

#define FEW_CONNS    32 /* up to here each has the large window, past it the small one */
#define WINDOW_LARGE ((uint64_t)256 << 10)
#define WINDOW_SMALL ((uint64_t)64 << 10)
#define LINK_FULL    ((size_t)512 << 10) /* bytes that wait on the link; no more are taken then */

struct conn {
        struct byte_stream stream;
        struct tunnel *tunnel;
        struct conn *next;     /* in tunnel->conns, or in tunnel->closing */
        struct conn *due_next; /* in tunnel->due */
        struct tunnel_listener *listener;
        uint32_t channel;
        enum peer_phase phase; /* CONN_*: what may come */
        struct buf in;
        size_t in_taken; /* of `in` */
        uint64_t got, told_limit;
        uint64_t sent, send_limit;
        bool end_sent, broken, told_broken, closed, is_due;
        int watched;
        void (*on_closed)(void *);
        void *on_closed_arg;
};

struct tunnel {
        uv_idle_t idle; /* runs while something is due */
        struct box_link *link;
        struct tunnel_listener *listeners;
        struct conn *conns;
        unsigned n_conns;
        uint32_t last_channel;   /* of those that the box made */
        uint32_t last_from_host; /* of those that we made */
        unsigned unanswered;     /* LISTEN frames on this link */
        struct conn *due, **due_tail;
        struct conn *closing; /* closed by their consumers, to be freed from the loop */
        bool is_freed;        /* by its owner; it stays until the last stream is closed */
};

static bool end_came(const struct conn *k)
{
        return k->phase == CONN_ENDED;
}

/* Streams that are ready, and telling them from the loop */

static void tunnel_work(uv_idle_t *idle);

/* Connections that are closed after the handle are freed with it (freed()). */
static void run_soon(struct tunnel *t)
{
        if (!uv_is_closing((uv_handle_t *)&t->idle))
                (void)uv_idle_start(&t->idle, tunnel_work);
}

static int ready_events(const struct conn *k)
{
        int events = 0;

        if (k->broken)
                return k->told_broken ? 0 : STREAM_BROKEN;
        if (k->in.len > k->in_taken || end_came(k))
                events |= STREAM_READABLE;
        if (k->send_limit > k->sent && !k->end_sent && k->tunnel->link &&
            box_link_pending(k->tunnel->link) < LINK_FULL)
                events |= STREAM_WRITABLE;
        return events & k->watched;
}

static void make_due(struct conn *k)
{
        struct tunnel *t = k->tunnel;

        if (k->is_due || k->closed || ready_events(k) == 0)
                return;
        k->is_due = true;
        k->due_next = NULL;
        *t->due_tail = k;
        t->due_tail = &k->due_next;
        run_soon(t);
}

/* One that is due stays until its turn, unless the list goes too. */
static void free_closing(struct tunnel *t, bool all)
{
        struct conn *k, **at = &t->closing;

        while ((k = *at)) {
                void (*on_closed)(void *) = k->on_closed;
                void *arg = k->on_closed_arg;

                if (k->is_due && !all) {
                        at = &k->next;
                        continue;
                }
                *at = k->next;
                buf_done(&k->in);
                free(k);
                if (on_closed)
                        on_closed(arg);
        }
}

static void tunnel_freed(uv_handle_t *handle)
{
        struct tunnel *t = container_of((uv_idle_t *)handle, struct tunnel, idle);

        free_closing(t, true);
        free(t);
}

static void free_if_over(struct tunnel *t)
{
        if (t->is_freed && !t->conns && !uv_is_closing((uv_handle_t *)&t->idle))
                uv_close((uv_handle_t *)&t->idle, tunnel_freed);
}

/* A consumer may close any stream, so the list is taken off piece by piece. */
static void tunnel_work(uv_idle_t *idle)
{
        struct tunnel *t = container_of(idle, struct tunnel, idle);
        struct conn *k, *list = t->due;

        t->due = NULL;
        t->due_tail = &t->due;
        while ((k = list)) {
                int events = k->closed ? 0 : ready_events(k);

                list = k->due_next;
                k->is_due = false;
                if (events & STREAM_BROKEN)
                        k->told_broken = true;
                if (events)
                        k->stream.ready(k->stream.ctx, events);
                make_due(k); /* level-triggered; the memory is there until free_closing() */
        }
        free_closing(t, false);
        if (!t->due)
                (void)uv_idle_stop(&t->idle);
}

/* Connections */

static void tunnel_say(struct conn *k, struct tunnel_frame f)
{
        f.channel = k->channel;
        if (k->tunnel->link)
                box_link_tunnel(k->tunnel->link, &f);
}

static uint64_t tunnel_window(const struct tunnel *t)
{
        return t->n_conns > FEW_CONNS ? WINDOW_SMALL : WINDOW_LARGE;
}

static void give_credit(struct conn *k)
{
        uint64_t size = tunnel_window(k->tunnel);
        uint64_t limit = k->got - (k->in.len - k->in_taken) + size;

        if (end_came(k) || k->broken || limit < k->told_limit + size / 2)
                return;
        k->told_limit = limit;
        tunnel_say(k, (struct tunnel_frame){ .type = FRAME_WINDOW, .limit = limit });
}

static void break_conn(struct conn *k)
{
        k->broken = true;
        k->phase = CONN_OVER;
        buf_done(&k->in);
        k->in_taken = 0;
        make_due(k);
}

static struct conn *conn_of(struct byte_stream *s)
{
        return container_of(s, struct conn, stream);
}

static ssize_t conn_read(struct byte_stream *s, void *p, size_t len)
{
        struct conn *k = conn_of(s);
        size_t n = MIN(len, k->in.len - k->in_taken);

        if (k->broken)
                return -ECONNRESET;
        if (n == 0)
                return end_came(k) || len == 0 ? 0 : -EAGAIN;
        memcpy(p, k->in.data + k->in_taken, n);
        k->in_taken += n;
        if (k->in_taken == k->in.len) {
                buf_done(&k->in);
                k->in_taken = 0;
        } else if (k->in_taken > k->in.len / 2) { /* moves each byte once at most, on average */
                buf_consume(&k->in, k->in_taken);
                k->in_taken = 0;
        }
        give_credit(k);
        return (ssize_t)n;
}

static ssize_t conn_write(struct byte_stream *s, const struct iovec *iov, int n)
{
        struct conn *k = conn_of(s);
        struct tunnel_frame f = { .type = FRAME_BYTES, .offset = k->sent };
        uint64_t room = MIN(k->send_limit - k->sent, (uint64_t)TUNNEL_BYTES_MAX);

        while (n > 1 && iov->iov_len == 0)
                iov++, n--;
        if (k->broken || k->end_sent)
                return -EPIPE;
        if (room == 0 || box_link_pending(k->tunnel->link) >= LINK_FULL)
                return -EAGAIN;
        f.data = (struct frame_bytes){ iov->iov_base, (size_t)MIN(room, (uint64_t)iov->iov_len) };
        if (f.data.len > 0)
                tunnel_say(k, f);
        k->sent += f.data.len;
        return (ssize_t)f.data.len;
}

static void conn_end(struct byte_stream *s)
{
        struct conn *k = conn_of(s);

        if (k->broken || k->end_sent)
                return;
        k->end_sent = true;
        tunnel_say(k, (struct tunnel_frame){ .type = FRAME_END, .offset = k->sent });
}

static void conn_watch(struct byte_stream *s, int events)
{
        struct conn *k = conn_of(s);

        k->watched = events;
        make_due(k);
}

static bool conn_has_input(struct byte_stream *s)
{
        struct conn *k = conn_of(s);

        return k->in.len > k->in_taken;
}

static void conn_close(struct byte_stream *s, void (*closed)(void *), void *arg)
{
        struct conn *k = conn_of(s), **at;
        struct tunnel *t = k->tunnel;

        if (!k->broken && !(end_came(k) && k->end_sent))
                tunnel_say(k, (struct tunnel_frame){ .type = FRAME_RESET,
                                                     .reason = TUNNEL_RESET_PEER });
        k->closed = true;
        k->on_closed = closed;
        k->on_closed_arg = arg;
        for (at = &t->conns; *at != k; at = &(*at)->next)
                ;
        *at = k->next;
        t->n_conns--;
        k->next = t->closing;
        t->closing = k;
        run_soon(t);
        free_if_over(t);
}

static const struct byte_stream_ops conn_ops = {
        .read = conn_read,
        .write = conn_write,
        .end = conn_end,
        .watch = conn_watch,
        .has_input = conn_has_input,
        .close = conn_close,
};

/* Frames from the box */

static struct tunnel_listener *find_listener(struct tunnel *t, const uint8_t id[FRAME_UUID])
{
        struct tunnel_listener *l = t->listeners;

        while (l && memcmp(l->id, id, FRAME_UUID) != 0)
                l = l->next;
        return l;
}

static struct conn *conn_new(struct tunnel *t, uint32_t channel, enum peer_phase phase)
{
        struct conn *k = xcalloc(1, sizeof(*k));

        k->stream.ops = &conn_ops;
        k->tunnel = t;
        k->channel = channel;
        k->phase = phase;
        k->next = t->conns;
        t->conns = k;
        t->n_conns++;
        k->told_limit = tunnel_window(t);
        k->in.max = 2 * WINDOW_LARGE; /* with bytes that were read and not moved out yet */
        return k;
}

struct byte_stream *tunnel_connect(struct tunnel *t, uint8_t service)
{
        if (!t->link || t->n_conns >= TUNNEL_MAX_CONNS)
                return NULL;
        struct conn *k = conn_new(t, ++t->last_from_host, CONN_ASKED);
        tunnel_say(k, (struct tunnel_frame){
                              .type = FRAME_CONNECT, .kind = service, .limit = k->told_limit });
        return &k->stream;
}

static int got_open(struct tunnel *t, const struct tunnel_frame *f, struct err *err)
{
        struct tunnel_listener *l = find_listener(t, f->id);
        struct tunnel_frame no = { .type = FRAME_RESET, .channel = f->channel };

        if (f->channel != t->last_channel + 1)
                return err_set(err, ERR_INVALID, "the box offered connections out of order");
        t->last_channel = f->channel;
        if (!l || t->n_conns >= TUNNEL_MAX_CONNS) {
                no.reason = l ? TUNNEL_RESET_LIMIT : TUNNEL_RESET_REFUSED;
                box_link_tunnel(t->link, &no);
                return 0;
        }
        struct conn *k = conn_new(t, f->channel, CONN_OPEN);
        k->listener = l;
        k->send_limit = f->limit;
        tunnel_say(k, (struct tunnel_frame){ .type = FRAME_ACCEPT, .limit = k->told_limit });
        l->on_stream(l, &k->stream);
        return 0;
}

static int got_for_conn(struct conn *k, const struct tunnel_frame *f, struct err *err)
{
        switch (f->type) {
        case FRAME_ACCEPT:
        case FRAME_WINDOW:
                if (f->limit < k->send_limit)
                        return err_set(err, ERR_INVALID, "the box took credit back");
                k->send_limit = f->limit;
                break;
        case FRAME_BYTES:
                if (f->offset != k->got || f->data.len > k->told_limit - k->got)
                        return err_set(err, ERR_INVALID,
                                       "the box sent BYTES with a gap or past its credit");
                k->got += f->data.len;
                buf_append(&k->in, f->data.p, f->data.len);
                if (k->in.failed)
                        return err_set(err, ERR_BUSY, "no memory for what the box sent");
                break;
        case FRAME_END:
                if (f->offset != k->got)
                        return err_set(err, ERR_INVALID, "the box ended a connection elsewhere");
                break;
        default: /* RESET */
                break_conn(k);
        }
        make_due(k);
        return 0;
}

static void got_listening(struct tunnel *t, const struct tunnel_frame *f)
{
        struct tunnel_listener *l = find_listener(t, f->id);
        char text[128];
        size_t n = MIN(f->text.len, sizeof(text) - 1);

        if (!l || !l->on_listening)
                return;
        memcpy(text, f->text.p, n);
        text[n] = '\0';
        l->on_listening(l, f->port, f->code, text);
}

int tunnel_frame_in(struct tunnel *t, const struct frame_header *h, struct frame_in *in,
                    struct err *err)
{
        enum peer_phase phase = TUNNEL_UP;
        struct tunnel_frame f;
        struct conn *k = t->conns;
        int r = tunnel_frame_read(h, in, &f, err);

        if (r < 0)
                return r;
        if (!t->link)
                return err_set(err, ERR_INVALID, "the box used a tunnel that it does not have");
        if (f.type == FRAME_LISTENING || f.type == FRAME_OPEN) {
                r = peer_move(&phase, f.type, &t->unanswered, err);
                if (r >= 0 && f.type == FRAME_OPEN)
                        return got_open(t, &f, err);
                if (r >= 0)
                        got_listening(t, &f);
                return r;
        }
        if (f.channel > (f.channel & TUNNEL_FROM_HOST ? t->last_from_host : t->last_channel))
                return err_set(err, ERR_INVALID, "the box sent for a connection it never offered");
        while (k && (k->broken || k->channel != f.channel))
                k = k->next;
        /* What the box sent before it heard of a connection's end means nothing any more. */
        phase = CONN_OVER;
        r = peer_move(k ? &k->phase : &phase, f.type, NULL, err);
        return k && r >= 0 ? got_for_conn(k, &f, err) : r;
}

/* Listeners and links */

static void say_listen(struct tunnel *t, const struct tunnel_listener *l, uint8_t type)
{
        struct tunnel_frame f = {
                .type = type, .kind = l->kind, .port = l->port, .idle_ms = l->idle_ms
        };

        memcpy(f.id, l->id, FRAME_UUID);
        if (!t->link)
                return;
        t->unanswered += type == FRAME_LISTEN;
        box_link_tunnel(t->link, &f);
}

void tunnel_listen(struct tunnel *t, struct tunnel_listener *l)
{
        l->next = t->listeners;
        t->listeners = l;
        say_listen(t, l, FRAME_LISTEN);
}

void tunnel_forget(struct tunnel *t, struct tunnel_listener *l)
{
        struct tunnel_listener **at;

        for (at = &t->listeners; *at != l; at = &(*at)->next)
                ;
        *at = l->next;
        for (struct conn *k = t->conns; k; k = k->next)
                if (k->listener == l)
                        break_conn(k);
}

void tunnel_unlisten(struct tunnel *t, struct tunnel_listener *l)
{
        say_listen(t, l, FRAME_UNLISTEN);
        tunnel_forget(t, l);
}

void tunnel_up(struct tunnel *t, struct box_link *link)
{
        t->link = link;
        t->last_channel = 0;
        t->last_from_host = TUNNEL_FROM_HOST;
        t->unanswered = 0;
        for (struct tunnel_listener *l = t->listeners; l; l = l->next)
                say_listen(t, l, FRAME_LISTEN);
}

void tunnel_down(struct tunnel *t)
{
        t->link = NULL;
        for (struct conn *k = t->conns; k; k = k->next)
                break_conn(k);
}

void tunnel_drained(struct tunnel *t)
{
        for (struct conn *k = t->conns; k; k = k->next)
                make_due(k);
}

int tunnel_new(uv_loop_t *loop, struct tunnel **ret, struct err *err)
{
        struct tunnel *t = xcalloc(1, sizeof(*t));
        int r = uv_idle_init(loop, &t->idle);

        if (r < 0) {
                free(t);
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        }
        t->due_tail = &t->due;
        *ret = t;
        return 0;
}

void tunnel_free(struct tunnel *t)
{
        if (!t)
                return;
        tunnel_down(t);
        t->is_freed = true;
        free_if_over(t);
}
