/* The life of a call, and the one place where errors become answers. */
#include <sodium.h>
#include <stdio.h>
#include <strings.h>
#include <sys/statvfs.h>

#include "api/api.h"
#include "api/channel.h"
#include "api/guard.h"
#include "api/page.h"
#include "api/socket.h"
#include "api/thing.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/http1.h"
#include "core/access/auth.h"
#include "core/callbacks/callback.h"

#define JSON_TYPE "application/json; charset=utf-8"

/* Answers */

/* Internal causes go to the log only; the caller learns that the fault is ours. */
static const char *public_text(int code, const struct err *err)
{
        switch (code) {
        case ERR_INTERNAL:
        case ERR_CORRUPT:
        case ERR_VERSION:
                return "Internal server error";
        default:
                return err->msg;
        }
}

static void write_error(struct call *c, int code, const struct err *err)
{
        const struct err_info *info = err_info(code);

        c->status = c->is_channel ? channel_status(code, info->http_status) : info->http_status;
        c->content_type = NULL;
        c->n_fields = 0;
        buf_clear(&c->out);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "error",
                   c->is_channel ? channel_text(code, public_text(code, err))
                                 : public_text(code, err));
        if (err->details && code != ERR_INTERNAL)
                jw_kraw(w, "details", err->details);
        jw_object_end(w);
        if (code == ERR_BUSY)
                call_field(c, "Retry-After", "1");
        if (code == ERR_UNAUTHORIZED)
                call_field(c, "WWW-Authenticate", "Bearer");
        atomic_fetch_add(&c->api->errors, 1);
        if (info->is_our_fault)
                log_error("request failed", LOG_S("route", c->route ? c->route->pattern : ""),
                          LOG_S("error", err->msg), LOG_S("kind", info->name));
}

/* A caller who may not have a WebSocket is not told why (http-api 4.1). */
static void write_failure(struct call *c, int code, const struct err *err)
{
        bool is_refusal =
                code == ERR_UNAUTHORIZED || code == ERR_FORBIDDEN || code == ERR_NOT_FOUND;

        if (is_refusal && c->route && (c->route->flags & ROUTE_SOCKET))
                socket_write_forbidden(c);
        else
                write_error(c, code, err);
}

/* A weak validator over the bytes. The key is fixed: only the author of both documents gains by a
 * collision. */
void call_etag(struct call *c)
{
        static const unsigned char key[crypto_shorthash_KEYBYTES] = "berth etag";
        unsigned char hash[crypto_shorthash_BYTES];
        char hex[2 * crypto_shorthash_BYTES + 1];

        crypto_shorthash(hash, (const unsigned char *)buf_str(&c->out), c->out.len, key);
        sodium_bin2hex(hex, sizeof(hex), hash, sizeof(hash));
        snprintf(c->etag, sizeof(c->etag), "W/\"%zx-%s\"", c->out.len, hex);
}

static int identify(struct call *c, struct err *err)
{
        int r = c->pass ? channel_actor(c, err)
                        : auth_actor(c->op, c->rt, c->authorization, c->is_operator, &c->actor,
                                     err);

        c->actor.is_daemon_user =
                r >= 0 && c->is_daemon_user && c->actor.source == SOURCE_LOCAL_IMPLICIT;
        if (r >= 0 && c->run_id)
                r = auth_check_run(c->op, c->rt, &c->actor, c->run_id, err);
        if (r < 0 || !c->actor.run_id)
                return r;
        c->op->run_id = c->actor.run_id;
        c->noted_run = arena_strdup(&c->arena, c->actor.run_id);
        return r;
}

static void enter_lane(struct call *c);

/* In local trusted mode the operator needs no key; every other caller does, except for signing
 * in. */
static int check_stranger(const struct call *c, struct err *err)
{
        if (c->actor.type != ACTOR_NONE || c->rt->settings.mode != MODE_LOCAL_TRUSTED ||
            (c->route->flags & ROUTE_OPEN))
                return 0;
        return auth_refuse_stranger(c->is_known, err);
}

/* On a full disk the last blocks of the database (daemon/room.h) are for giving things up. Whatever
 * else would change something is refused before it has begun: with nothing recorded, it can be
 * asked for again with the same idempotency key. */
static int check_room(const struct call *c, struct err *err)
{
        static const char *const always[] = { "GET", "HEAD", "DELETE" };
        struct statvfs fs;

        for (size_t i = 0; i < ARRAY_LEN(always); i++)
                if (streq(c->route->method, always[i]))
                        return 0;
        if ((c->route->flags & ROUTE_WHEN_FULL) || !c->rt->data_dir ||
            statvfs(c->rt->data_dir, &fs) < 0 ||
            fs.f_bavail >= DISK_FULL_BYTES / MAX(fs.f_frsize, 1UL))
                return 0;
        return err_set(err, ERR_IO,
                       "The disk with the data directory is full (%s); nothing was changed. Free "
                       "some space and try again. Reading, releasing and deleting go on.",
                       c->rt->data_dir);
}

int call_read_body(struct call *c, struct err *err)
{
        return c->body_text && !c->body ? json_parse(c->body_text, c->body_len, &c->body, err) : 0;
}

int call_ended(struct call *c, int r)
{
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

static int run_route(struct call *c, struct err *err)
{
        const struct route *to = c->route;
        int r = to->flags & ROUTE_RIGHTS_FIRST ? 0 : call_check_thing(c, err);

        c->status = to->status;
        if (r < 0)
                return r;
        if (to->write)
                return to->write(c->op, c->rt, &c->out, err);
        if (to->write_of)
                return to->write_of(c->op, c->rt, c->params[0], &c->out, err);
        if (to->take_of)
                return to->take_of(c->op, c->rt, c->params[0], c->body, &c->out, err);
        if (!to->end_of)
                return to->fn(c, err);
        return call_ended(c, to->end_of(c->op, c->rt, c->params[0], err));
}

static int first_stage(struct call *c, struct err *err)
{
        int r = identify(c, err);

        if (r >= 0)
                r = check_stranger(c, err);
        if (r >= 0)
                r = check_room(c, err);
        if (r >= 0 && (c->route->flags & ROUTE_WAITS) && !c->lane.key[0]) {
                r = call_take_lane(c, err);
                if (r == 0) {
                        c->on_loop = enter_lane; /* and all of this again, with a seat */
                        return 0;
                }
        }
        /* The handler checks rights; a body from a caller without an identity is not worth
         * reading. */
        if (r >= 0)
                r = call_read_body(c, err);
        if (r >= 0 && !c->body && (c->route->flags & ROUTE_BODY_FREE))
                c->body = json_object();
        return r < 0 ? r : run_route(c, err);
}

/* A call that was not given its seat in time is refused, not timed out: nothing was begun. */
static int check_seat(struct call *c, struct err *err)
{
        int r = c->lane.key[0] && !c->job.seat ? op_check(c->op, err) : 0;

        if (r != ERR_TIMEOUT)
                return r;
        return err_set(err, ERR_BUSY,
                       "Other operations of the same environment took all the time there was; try "
                       "again shortly.");
}

static void run_handler(struct call *c, struct op *op)
{
        CLEAN(err_done) struct err err = { 0 };

        c->op = op;
        op->actor = &c->actor;
        op->run_id = c->run_id;
        c->on_loop = NULL;
        int r = check_seat(c, &err);
        if (r >= 0)
                r = c->stage ? c->stage(c, &err) : first_stage(c, &err);
        if (r >= 0 && buf_failed(&c->out))
                r = err_set(&err, ERR_TOO_LARGE, "The answer is too large; ask for less.");
        if (r < 0) {
                c->on_loop = NULL;
                write_failure(c, r, &err);
        } else if (!c->content_type && !c->on_loop) {
                call_etag(c);
        }
        json_decref(c->body);
        c->body = NULL;
        c->op = NULL;
}

void call_free(struct call *c)
{
        if (c->pass)
                callback_leave(c->pass, 499); /* no client was answered */
        buf_wipe(&c->channel_body);
        buf_done(&c->out);
        arena_done(&c->arena);
        free(c);
}

static void answer(struct call *c)
{
        int status = c->status ? c->status : 200;

        if (c->part.begun) {
                call_parts_end(c);
                return;
        }
        call_field(c, "Content-Type", c->content_type ? c->content_type : JSON_TYPE);
        call_field(c, "X-Content-Type-Options", "nosniff");
        if (c->etag[0]) {
                call_field(c, "ETag", c->etag);
                /* Only for reads: a write that was done must not look as if nothing had been. */
                if (status == 200 && c->route && streq(c->route->method, "GET") &&
                    c->if_none_match && strstr(c->if_none_match, c->etag)) {
                        status = 304;
                        buf_done(&c->out);
                }
        }
        if (c->is_channel)
                status = channel_answer(c, status);
        else if (c->noted_run)
                callback_note(c->rt->callbacks, c->noted_run, http_method(c->x), http_path(c->x),
                              status, c->started_us);
        http_respond(c->x, status, c->fields, c->n_fields, &c->out);
        call_free(c);
}

void call_finish(struct call *c)
{
        answer(c);
}

void call_fail(struct call *c, int code, const struct err *err)
{
        write_failure(c, code, err);
        answer(c);
}

/* On the pool */

static void job_run(struct pool_job *job, struct op *op)
{
        run_handler(container_of(job, struct call, job), op);
}

static void job_done(struct pool_job *job)
{
        struct call *c = container_of(job, struct call, job);

        c->job.run = NULL;
        if (c->on_loop)
                c->on_loop(c);
        else
                answer(c);
}

static void submit(struct call *c)
{
        CLEAN(err_done) struct err err = { 0 };

        c->job = (struct pool_job){
                .run = job_run,
                .done = job_done,
                .timeout_ms =
                        c->is_channel ? channel_timeout_ms() : c->rt->settings.operation_timeout_ms,
                .urgent = c->stage != NULL,
        };
        if (c->lane.key[0])
                pool_job_lane(&c->job, c->route->flags & ROUTE_CLOSES ? LANE_CLOSING : LANE_PEERS,
                              c->lane);
        int r = pool_submit(c->api->pool, &c->job, &err);
        if (r < 0)
                call_fail(c, r, &err);
        else if (c->gone)
                pool_cancel(c->api->pool, &c->job);
}

/* It goes on when it has a seat; until then no thread is held. */
static void enter_lane(struct call *c)
{
        c->on_loop = NULL;
        submit(c);
}

void call_continue(struct call *c, int (*stage)(struct call *c, struct err *err))
{
        c->stage = stage;
        c->on_loop = NULL;
        c->on_gone = NULL;
        c->lane.key[0] = '\0'; /* the next stage waits for no other party */
        submit(c);
}

static void run_inline(struct call *c)
{
        struct arena arena;
        struct op op = { .arena = &arena, .deadline_ms = OP_NO_DEADLINE };

        arena_init(&arena);
        run_handler(c, &op);
        arena_done(&arena);
        answer(c);
}

/* From the server */

static bool is_json(const char *content_type)
{
        if (!content_type)
                return false;
        size_t n = strcspn(content_type, "; \t");
        return (n == 16 && strncasecmp(content_type, "application/json", n) == 0) ||
               (n > 5 && strncasecmp(content_type + n - 5, "+json", 5) == 0);
}

static int read_request(struct call *c, struct err *err)
{
        size_t len = c->channel_body.len;
        const char *body = c->is_channel ? buf_str(&c->channel_body) : http_body(c->x, &len);

        c->query = http_query(c->x);
        if (len > 0 && !(c->route->flags & ROUTE_RAW_BODY) &&
            is_json(http_header(c->x, "content-type"))) {
                c->body_text = body;
                c->body_len = len;
        }

        /* The headers that count. Through a channel only two do. */
        const char *run_id = http_header(c->x, "x-paperclip-run-id");
        struct uuid id;

        c->if_none_match = http_header(c->x, "if-none-match");
        if (c->is_channel)
                return 0;
        c->host = http_header(c->x, "host");
        c->authorization = http_header(c->x, "authorization");
        c->last_event_id = http_header(c->x, "last-event-id");
        if (run_id && *run_id) {
                if (!uuid_parse(run_id, &id))
                        return err_set(err, ERR_INVALID, "X-Paperclip-Run-Id must be a UUID");
                c->run_id = arena_strdup(&c->arena, id.s);
        }
        return 0;
}

static void answer_options(struct call *c, const struct buf *allowed)
{
        buf_append(&c->out, buf_str(allowed), allowed->len);
        c->content_type = "text/html; charset=utf-8";
        call_field(c, "Allow", arena_strdup(&c->arena, buf_str(allowed)));
        answer(c);
}

static void answer_missing(struct call *c, const char *path)
{
        CLEAN(err_done) struct err err = { 0 };

        (void)err_set(&err, ERR_NOT_FOUND,
                      strncasecmp(path, "/api", 4) == 0 ? "API route not found" : "Not found");
        call_fail(c, ERR_NOT_FOUND, &err);
}

/* Refusals before routing: text for browsers, JSON for the API. */
static void answer_refused(struct call *c, const char *path, const struct err *err)
{
        if (strncasecmp(path, "/api", 4) == 0) {
                call_fail(c, err->code, err);
                return;
        }
        c->status = err_info(err->code)->http_status;
        c->content_type = "text/plain; charset=utf-8";
        buf_puts(&c->out, err->msg);
        answer(c);
}

static struct call *call_new(struct api *api, struct http_exchange *x)
{
        struct call *c = xcalloc(1, sizeof(*c));

        c->api = api;
        c->rt = api->rt;
        c->x = x;
        c->started_us = clock_mono_us();
        arena_init(&c->arena);
        http_set_data(x, c);
        atomic_fetch_add(&api->requests, 1);
        return c;
}

static void on_request(void *ctx, struct http_exchange *x)
{
        CLEAN(err_done) struct err err = { 0 };
        const struct http_peer *peer = http_peer(x);
        struct call *c = call_new(ctx, x);
        char client[sizeof(peer->client)];

        if (peer->via) {
                channel_begin(c);
                return;
        }
        c->is_operator = auth_is_operator(&c->rt->settings, c->api->operator_uid, peer->uid);
        c->is_known = peer->uid != (uid_t)-1;
        c->is_daemon_user = peer->is_unix && c->is_known && peer->uid == c->api->operator_uid;
        http_request_client(x, c->rt->settings.reverse_proxy, client, sizeof(client));
        c->client = arena_strdup(&c->arena, client);
        int r = guard_request(c, peer, http_method(x), &err);
        if (r < 0)
                answer_refused(c, http_path(x), &err);
        else
                call_route(c);
}

void call_route(struct call *c)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(buf_done) struct buf allowed = BUF_INIT;
        const char *method = http_method(c->x), *path = http_path(c->x);
        struct actor ignored;

        c->route = route_find(c, method, path, &allowed);
        if (!c->route && allowed.len == 0)
                c->route = page_route(method, path);
        if (!c->route && streq(method, "OPTIONS") && allowed.len > 0) {
                answer_options(c, &allowed);
                return;
        }
        if (!c->is_channel && socket_wanted(c->x) &&
            !(c->route && (c->route->flags & ROUTE_SOCKET))) {
                http_drop(c->x);
                call_free(c);
                return;
        }
        if (!c->route) {
                answer_missing(c, path);
                return;
        }
        int r = read_request(c, &err);
        if (r >= 0 && (c->route->flags & ROUTE_SOCKET))
                r = socket_check(c, &err);
        if (r < 0)
                call_fail(c, r, &err);
        else if ((c->route->flags & ROUTE_INLINE) && !c->is_channel &&
                 auth_actor_quick(c->authorization, c->is_operator, &ignored))
                run_inline(c);
        else
                submit(c);
}

/* The client no longer waits for the answer: the operation learns of it at its next wait, and
 * undoes what it can. It is answered into the void when it is done. */
static void on_abort(void *ctx, struct http_exchange *x)
{
        struct call *c = http_data(x);

        if (c)
                c->gone = true;
        if (c && c->job.run)
                pool_cancel(c->api->pool, &c->job);
        else if (c && c->on_gone)
                c->on_gone(c);
}

static void on_refused(void *ctx, int status, const char *text, struct buf *body)
{
        struct jw w;

        jw_init(&w, body);
        jw_object(&w);
        jw_kstring(&w, "error", text);
        jw_object_end(&w);
}

const struct http_handler api_handler = {
        .on_head = channel_on_head,
        .on_request = on_request,
        .on_body = channel_on_body,
        .on_abort = on_abort,
        .on_refused = on_refused,
};

/* Tools for handlers */

const char *call_query(struct call *c, const char *name)
{
        CLEAN(buf_done) struct buf value = BUF_INIT;

        if (http1_query_get(c->query, name, &value, NULL) <= 0 || value.len == 0)
                return NULL;
        return arena_strdup(&c->arena, buf_str(&value));
}

int call_query_int(struct call *c, const char *name, int64_t fallback, int64_t min, int64_t max,
                   int64_t *ret, struct err *err)
{
        const char *text = call_query(c, name);
        char *end;
        long long v;

        *ret = fallback;
        if (!text)
                return 0;
        v = strtoll(text, &end, 10);
        if (*end || v < min || v > max)
                return err_set(err, ERR_INVALID, "%s must be a whole number from %lld to %lld",
                               name, (long long)min, (long long)max);
        *ret = v;
        return 0;
}

bool call_query_flag(struct call *c, const char *name)
{
        const char *text = call_query(c, name);

        return text && (streq(text, "true") || streq(text, "1"));
}

void call_field(struct call *c, const char *name, const char *value)
{
        if (c->n_fields < CALL_MAX_FIELDS)
                c->fields[c->n_fields++] = (struct http_field){ name, value };
}

int call_read(struct call *c, const char *company_id, struct db **ret, struct err *err)
{
        int r = store_read_begin(c->op, c->rt->store, ret, err);

        return r < 0 ? r : access_company(*ret, &c->actor, company_id, false, err);
}

struct body call_text(struct call *c, const char *name, unsigned flags, size_t max,
                      const char **ret)
{
        const struct body_member member = { .name = name,
                                            .kind = BODY_IS_TEXT,
                                            .flags = (uint8_t)flags,
                                            .min = 1,
                                            .max = (int64_t)max };
        const struct body_type type = { &member, 1, false };

        return body_decode(&type, c->body, true, c->op->arena, ret);
}

int call_uuid(struct call *c, size_t param, const char *missing, struct err *err)
{
        return uuid_is_valid(c->params[param]) ? 0 : err_set(err, ERR_NOT_FOUND, "%s", missing);
}

struct jw *call_json(struct call *c)
{
        jw_init(&c->json, &c->out);
        return &c->json;
}
