#include "api/socket.h"

#include <strings.h>

#include "api/guard.h"
#include "codec/http1.h"

#define PONG_AHEAD_MAX ((size_t)1024 * 1024) /* more than any of ours writes ahead */

/* Asking for one */

/* Whether a list of words, separated by commas, has this one. */
static bool has_word(const char *list, const char *word)
{
        size_t len = strlen(word);

        while (list && *list) {
                size_t n;

                list += strspn(list, ", \t");
                n = strcspn(list, ", \t");
                if (n == len && strncasecmp(list, word, n) == 0)
                        return true;
                list += n;
        }
        return false;
}

bool socket_wanted(const struct http_exchange *x)
{
        return has_word(http_header(x, "upgrade"), "websocket") &&
               has_word(http_header(x, "connection"), "upgrade");
}

int socket_check(struct call *c, struct err *err)
{
        const char *key = http_header(c->x, "sec-websocket-key");
        const char *version = http_header(c->x, "sec-websocket-version");
        const char *origin = http_header(c->x, "origin");
        char accept[WEBSOCKET_ACCEPT_LEN + 1];
        const char *token;

        if (!socket_wanted(c->x) || !key || !version || !streq(version, "13") ||
            !websocket_accept(key, accept) || http_has_body(c->x))
                return err_set(err, ERR_INVALID,
                               "This is a WebSocket, version 13: connect with ws://");
        /* A page of anybody's can open a WebSocket to us; only its origin tells. */
        if (origin && !http_peer(c->x)->is_unix &&
            (!c->host || !guard_origin_allowed(&c->rt->settings, origin, c->host)))
                return err_set(err, ERR_FORBIDDEN, "forbidden");
        token = c->authorization ? NULL : call_query(c, "token");
        if (token)
                c->authorization = arena_printf(&c->arena, "Bearer %s", token);
        return 0;
}

void socket_write_forbidden(struct call *c)
{
        c->status = 403;
        c->content_type = "text/plain; charset=utf-8";
        c->n_fields = 0;
        buf_clear(&c->out);
        buf_puts(&c->out, "forbidden");
        atomic_fetch_add(&c->api->errors, 1);
}

/* Having one */

static void write_out(struct socket *s, struct buf *frame)
{
        http_stream_write(s->x, frame->data, frame->len);
        buf_done(frame);
}

static void put(struct socket *s, enum websocket_kind kind, const char *data, size_t len)
{
        struct buf frame = BUF_INIT;

        websocket_put(&frame, kind, data, len);
        write_out(s, &frame);
}

void socket_end(struct socket *s, enum websocket_status status, const char *text)
{
        struct buf frame = BUF_INIT;

        if (!s->c)
                return;
        websocket_put_close(&frame, status, text);
        write_out(s, &frame);
        http_set_data(s->x, NULL);
        http_stream_end(s->x);
        call_free(take_ptr(&s->c));
        s->closed(s);
}

static int on_message(void *ctx, enum websocket_kind kind, const char *data, size_t len)
{
        struct socket *s = ctx;

        switch (kind) {
        case WEBSOCKET_PING: /* who asks on without reading gets no more answers */
                if (http_stream_pending(s->x) < PONG_AHEAD_MAX)
                        put(s, WEBSOCKET_PONG, data, len);
                break;
        case WEBSOCKET_PONG:
                s->pinged = false;
                break;
        case WEBSOCKET_CLOSE:
                socket_end(s, WEBSOCKET_NORMAL, NULL);
                break;
        default:
                if (s->message)
                        s->message(s, data, len);
                break;
        }
        return s->c ? 0 : -1;
}

static struct socket *socket_of(struct http_exchange *x)
{
        struct call *c = http_data(x);

        return c ? c->socket : NULL;
}

static void on_bytes(struct http_exchange *x, const char *data, size_t len)
{
        struct socket *s = socket_of(x);
        int r = s ? websocket_feed(&s->in, data, len) : 0;

        if (r > 0)
                socket_end(s, (enum websocket_status)r, NULL);
}

static void on_drained(struct http_exchange *x)
{
        struct socket *s = socket_of(x);

        if (s && s->drained)
                s->drained(s);
}

static void on_gone(struct call *c)
{
        socket_end(c->socket, WEBSOCKET_GOING_AWAY, NULL);
}

void socket_begin(struct socket *s, struct call *c, size_t max_message)
{
        char accept[WEBSOCKET_ACCEPT_LEN + 1] = "";
        struct http_field fields[] = { { "Upgrade", "websocket" },
                                       { "Sec-WebSocket-Accept", accept } };

        s->c = c;
        s->x = c->x;
        c->socket = s;
        c->on_gone = on_gone;
        websocket_decoder_init(&s->in, max_message, on_message, s);
        (void)websocket_accept(http_header(c->x, "sec-websocket-key"), accept);
        http_upgrade(c->x, fields, ARRAY_LEN(fields), on_bytes);
        http_stream_on_drained(c->x, on_drained);
}

void socket_send(struct socket *s, const char *text, size_t len)
{
        if (s->c)
                put(s, WEBSOCKET_TEXT, text, len);
}

size_t socket_pending(const struct socket *s)
{
        return s->c ? http_stream_pending(s->x) : 0;
}

bool socket_ping(struct socket *s)
{
        if (s->c && s->pinged)
                socket_end(s, WEBSOCKET_GOING_AWAY, "no answer to the last ping");
        if (!s->c)
                return false;
        s->pinged = true;
        put(s, WEBSOCKET_PING, "", 0);
        return true;
}

void socket_done(struct socket *s)
{
        websocket_decoder_done(&s->in);
}
