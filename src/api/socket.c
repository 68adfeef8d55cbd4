/* Which requests get a WebSocket, and how the others are refused. */
#include "api/socket.h"

#include <strings.h>

#include "api/guard.h"
#include "codec/websocket.h"

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

        if (!socket_wanted(c->x) || !key || !version || !streq(version, "13") ||
            !websocket_accept(key, accept) || http_has_body(c->x))
                return err_set(err, ERR_INVALID,
                               "This is a WebSocket, version 13: connect with ws://");
        /* Any web page can open a WebSocket to us; only its origin tells. */
        if (origin && !http_peer(c->x)->is_unix &&
            (!c->host || !guard_origin_allowed(&c->rt->settings, origin, c->host)))
                return err_set(err, ERR_FORBIDDEN, "forbidden");
        const char *token = c->authorization ? NULL : call_query(c, "token");
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
