#include "core/access/cli_auth.h"

#include "api/api.h"
#include "core/access/auth.h"

#define MISSING "CLI auth challenge not found"

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
        c->status = 201;
        return cli_auth_create(c->op, c->rt, c->body, base_url(c),
                               c->client ? c->client : "channel", &c->out, err);
}

static int get_challenge(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : cli_auth_show(c->op, c->rt, id, call_query(c, "token"), &c->out, err);
}

static int post_approve(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : cli_auth_approve(c->op, c->rt, id, c->body, &c->out, err);
}

static int post_cancel(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : cli_auth_cancel(c->op, c->rt, id, c->body, &c->out, err);
}

static int get_me(struct call *c, struct err *err)
{
        return auth_me(c->op, c->rt, &c->out, err);
}

static int post_revoke_current(struct call *c, struct err *err)
{
        return cli_auth_revoke_current(c->op, c->rt, &c->out, err);
}

static int get_session(struct call *c, struct err *err)
{
        struct jw w;

        if (c->actor.type != ACTOR_BOARD)
                return err_set(err, ERR_UNAUTHORIZED, "Board authentication required");
        jw_init(&w, &c->out);
        jw_object(&w);
        jw_key(&w, "session");
        jw_object(&w);
        jw_kstring(&w, "id", c->actor.key_id ? c->actor.key_id : "local");
        jw_kstring(&w, "userId", c->actor.user_id);
        jw_object_end(&w);
        jw_key(&w, "user");
        jw_object(&w);
        jw_kstring(&w, "id", c->actor.user_id);
        jw_knull(&w, "email");
        jw_kstring(&w, "name",
                   streq(c->actor.user_id, LOCAL_BOARD_USER) ? "Board" : c->actor.user_id);
        jw_knull(&w, "image");
        jw_object_end(&w);
        jw_object_end(&w);
        return 0;
}

static int get_keys(struct call *c, struct err *err)
{
        return auth_list_board_keys(c->op, c->rt, &c->out, err);
}

static int post_key(struct call *c, struct err *err)
{
        c->status = 201;
        return auth_create_board_key(c->op, c->rt, c->body, &c->out, err);
}

static int delete_key(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, "Key not found", &id, err);

        if (r >= 0)
                r = auth_revoke_board_key(c->op, c->rt, id, err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

const struct route routes_cli_auth[] = {
        { "POST", "/api/cli-auth/challenges", post_challenge, ROUTE_OPEN },
        { "GET", "/api/cli-auth/challenges/:id", get_challenge, ROUTE_OPEN },
        { "POST", "/api/cli-auth/challenges/:id/approve", post_approve, ROUTE_OPEN },
        { "POST", "/api/cli-auth/challenges/:id/cancel", post_cancel, ROUTE_OPEN },
        { "GET", "/api/cli-auth/me", get_me, 0 },
        { "POST", "/api/cli-auth/revoke-current", post_revoke_current, ROUTE_WHEN_FULL },
        { "GET", "/api/auth/get-session", get_session, 0 },
        { "GET", "/api/board-api-keys", get_keys, 0 },
        { "POST", "/api/board-api-keys", post_key, ROUTE_BODY_FREE },
        { "DELETE", "/api/board-api-keys/:id", delete_key, 0 },
        { NULL, NULL, NULL, 0 },
};
