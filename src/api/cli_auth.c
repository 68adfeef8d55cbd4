/* Routes by which the command line signs in, of the session, and of board keys. */
#include "core/access/cli_auth.h"

#include "api/api.h"
#include "core/access/auth.h"

/* Where a browser finds us: the configured address, else the one the caller used. */
static const char *base_url(struct call *c)
{
        const char *url = c->rt->settings.public_url;
        size_t n;

        if (!url)
                return arena_printf(&c->arena, "http://%s", c->host ? c->host : "localhost:3100");
        n = strlen(url);
        while (n > 0 && url[n - 1] == '/')
                n--;
        return arena_strndup(&c->arena, url, n);
}

static int post_challenge(struct call *c, struct err *err)
{
        return cli_auth_create(c->op, c->rt, c->body, base_url(c),
                               c->client ? c->client : "channel", &c->out, err);
}

static int get_challenge(struct call *c, struct err *err)
{
        return cli_auth_show(c->op, c->rt, c->params[0], call_query(c, "token"), &c->out, err);
}

static int get_session(struct call *c, struct err *err)
{
        struct jw *w;

        if (c->actor.type != ACTOR_BOARD)
                return err_set(err, ERR_UNAUTHORIZED, "Board authentication required");
        w = call_json(c);
        jw_object(w);
        jw_key(w, "session");
        jw_object(w);
        jw_kstring(w, "id", c->actor.key_id ? c->actor.key_id : "local");
        jw_kstring(w, "userId", c->actor.user_id);
        jw_object_end(w);
        jw_key(w, "user");
        jw_object(w);
        jw_kstring(w, "id", c->actor.user_id);
        jw_knull(w, "email");
        jw_kstring(w, "name",
                   streq(c->actor.user_id, LOCAL_BOARD_USER) ? "Board" : c->actor.user_id);
        jw_knull(w, "image");
        jw_object_end(w);
        jw_object_end(w);
        return 0;
}

const struct route routes_cli_auth[] = {
        { "POST", "/api/cli-auth/challenges", .fn = post_challenge, .status = 201,
          .flags = ROUTE_OPEN },
        { "GET", "/api/cli-auth/challenges/:id", .fn = get_challenge, .flags = ROUTE_OPEN },
        { "POST", "/api/cli-auth/challenges/:id/approve", .take_of = cli_auth_approve,
          .flags = ROUTE_OPEN },
        { "POST", "/api/cli-auth/challenges/:id/cancel", .take_of = cli_auth_cancel,
          .flags = ROUTE_OPEN },
        { "GET", "/api/cli-auth/me", .write = auth_me },
        { "POST", "/api/cli-auth/revoke-current", .write = cli_auth_revoke_current,
          .flags = ROUTE_WHEN_FULL },
        { "GET", "/api/auth/get-session", .fn = get_session },
        { "GET", "/api/board-api-keys", .write = auth_list_board_keys },
        { "POST", "/api/board-api-keys", .take = auth_create_board_key, .status = 201,
          .flags = ROUTE_BODY_FREE },
        { "DELETE", "/api/board-api-keys/:id", .end_of = auth_revoke_board_key },
        { 0 },
};
