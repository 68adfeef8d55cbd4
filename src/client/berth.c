/* The public library (berth/berth.h): a handle with one connection kept alive, and the calls on it.
 *
 * What may be sent twice: GET and HEAD, acquiring with an idempotency key, and releasing, which
 * changes nothing the second time. All else is sent once; when the connection breaks under it the
 * caller is told that the outcome is not known. A connection that the daemon closed while it was
 * idle is noticed before anything is sent, so that this is rare. */
#include <berth/berth.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/uuid.h"
#include "client/handle.h"
#include "client/http.h"
#include "codec/http1.h"
#include "codec/json.h"
#include "codec/sse.h"

#define CONNECT_TIMEOUT_MS 5000
#define TIMEOUT_MS         (10 * 60 * 1000)
#define ANSWER_MAX         BUF_DEFAULT_MAX

/* -- Errors ----------------------------------------------------------------------------------- */

static int fail_with(struct berth_error *error, const struct err *err)
{
        int code;

        switch (err->code) {
        case ERR_UNREACHABLE:
                code = BERTH_UNREACHABLE;
                break;
        case ERR_TIMEOUT:
                code = BERTH_TIMEOUT;
                break;
        case ERR_UNCERTAIN:
                code = BERTH_LOST;
                break;
        case ERR_INVALID:
                code = BERTH_INVALID;
                break;
        default:
                code = BERTH_PROTOCOL;
        }
        if (error) {
                *error = (struct berth_error){ .code = code };
                (void)snprintf(error->text, sizeof(error->text), "%s", err->msg);
        }
        return code;
}

static void copy_details(struct berth_error *error, const json_t *body)
{
        const json_t *details = json_object_get(body, "details");
        CLEAN(cleanup_free) char *text = NULL;

        if (!details)
                details = json_object_get(body, "fieldErrors");
        if (!details)
                return;
        text = json_to_text(details);
        if (strlen(text) < sizeof(error->details))
                memcpy(error->details, text, strlen(text) + 1);
}

/* {"error": text}, {"message": text}, or whatever it is. */
int berth_refusal(const struct berth_response *response, struct berth_error *error)
{
        json_t *body = NULL;
        const char *text = NULL;

        if (response->status < 400)
                return 0;
        if (!error)
                return BERTH_REFUSED;
        *error = (struct berth_error){ .code = BERTH_REFUSED, .http_status = response->status };
        if (json_parse(response->body, response->len, &body, NULL) >= 0) {
                text = json_get_string(body, "error");
                if (!text)
                        text = json_get_string(body, "message");
                copy_details(error, body);
        }
        if (text)
                (void)snprintf(error->text, sizeof(error->text), "%s", text);
        else
                (void)snprintf(error->text, sizeof(error->text),
                               "the daemon answered with status %d", response->status);
        json_decref(body);
        return BERTH_REFUSED;
}

/* -- Opening and closing ---------------------------------------------------------------------- */

static int check_field(const char *what, const char *value, struct err *err)
{
        if (value && !http1_is_field_value(value))
                return err_set(err, ERR_INVALID, "the %s has characters that no header may have",
                               what);
        return 0;
}

int berth_open(const struct berth_options *options, struct berth **ret, struct berth_error *error)
{
        CLEAN(err_done) struct err err = { 0 };
        struct conn_address address = { 0 };
        struct berth *b;

        int r = check_field("API key", options->api_key, &err);
        if (r >= 0)
                r = check_field("run id", options->run_id, &err);
        if (r >= 0 && options->socket_path)
                conn_address_unix(options->socket_path, &address);
        else if (r >= 0 && options->url)
                r = conn_address_parse(options->url, &address, &err);
        else if (r >= 0)
                r = err_set(&err, ERR_INVALID, "neither a URL nor a socket was given");
        if (r < 0)
                return fail_with(error, &err);

        b = xcalloc(1, sizeof(*b));
        *b = (struct berth){
                .address = address,
                .api_key = options->api_key ? xstrdup(options->api_key) : NULL,
                .run_id = options->run_id ? xstrdup(options->run_id) : NULL,
                .connect_timeout_ms = options->connect_timeout_ms ? options->connect_timeout_ms
                                                                  : CONNECT_TIMEOUT_MS,
                .timeout_ms = options->timeout_ms ? options->timeout_ms : TIMEOUT_MS,
                .fd = -1,
        };
        *ret = b;
        return 0;
}

static void close_connection(struct berth *b)
{
        if (b->fd >= 0)
                close(b->fd);
        b->fd = -1;
}

void berth_close(struct berth *b)
{
        if (!b)
                return;
        close_connection(b);
        conn_address_done(&b->address);
        if (b->api_key)
                explicit_bzero(b->api_key, strlen(b->api_key));
        free(b->api_key);
        free(b->run_id);
        free(b);
}

const char *berth_address(const struct berth *b)
{
        return b->address.text;
}

/* -- One request ------------------------------------------------------------------------------ */

void berth_response_done(struct berth_response *response)
{
        free(response->body);
        *response = (struct berth_response){ 0 };
}

static int collect_body(void *arg, const struct http_answer *answer UNUSED, const char *data,
                        size_t len, struct err *err)
{
        struct buf *b = arg;

        buf_append(b, data, len);
        return buf_failed(b) ? err_set(err, ERR_TOO_LARGE, "the answer is too large") : 0;
}

static int call_once(struct berth *b, const struct http_call *call, struct buf *body,
                     struct http_answer *ret_answer, struct err *err)
{
        int r;

        if (b->fd >= 0 && conn_is_stale(b->fd))
                close_connection(b);
        if (b->fd < 0) {
                r = conn_open(&b->address, clock_mono_ms() + b->connect_timeout_ms, &b->fd, err);
                if (r < 0)
                        return r;
        }
        r = http_call(b->fd, &b->address, call, collect_body, body, ret_answer, err);
        if (!ret_answer->keep_alive)
                close_connection(b);
        return r;
}

static int send_request(struct berth *b, const char *method, const char *path, const char *json,
                        bool may_repeat, struct berth_response *ret, struct err *err)
{
        CLEAN(buf_done) struct buf body = { .max = ANSWER_MAX };
        struct http_call call = {
                .method = method,
                .path = path,
                .accept = "application/json",
                .api_key = b->api_key,
                .run_id = b->run_id,
                .body = json,
                .deadline_ms = clock_mono_ms() + b->timeout_ms,
        };
        struct http_answer answer;

        if (!http_is_path(path))
                return err_set(err, ERR_INVALID, "'%s' cannot stand in a request", path);
        int r = call_once(b, &call, &body, &answer, err);
        if (r == ERR_UNCERTAIN && may_repeat) {
                buf_clear(&body);
                r = call_once(b, &call, &body, &answer, err);
        }
        if (r < 0)
                return r;
        *ret = (struct berth_response){ .status = answer.status, .len = body.len };
        ret->body = body.data ? buf_take(&body) : xstrdup("");
        return 0;
}

int berth_request(struct berth *b, const char *method, const char *path, const char *json,
                  struct berth_response *ret, struct berth_error *error)
{
        CLEAN(err_done) struct err err = { 0 };
        bool may_repeat = streq(method, "GET") || streq(method, "HEAD");

        if (!http1_is_field_name(method))
                (void)err_set(&err, ERR_INVALID, "'%s' is no method", method);
        else if (send_request(b, method, path, json, may_repeat, ret, &err) >= 0)
                return 0;
        return fail_with(error, &err);
}

/* -- Leases ----------------------------------------------------------------------------------- */

void berth_lease_done(struct berth_lease *lease)
{
        free(lease->json);
        *lease = (struct berth_lease){ 0 };
}

static void copy_member(char *to, size_t size, const json_t *object, const char *key)
{
        const char *text = json_get_string(object, key);

        (void)snprintf(to, size, "%s", text ? text : "");
}

/* Takes the body out of the response. */
static int read_lease(struct berth_response *response, struct berth_lease *ret, struct err *err)
{
        struct berth_lease lease = { 0 };
        json_t *record = NULL;

        if (json_parse(response->body, response->len, &record, err) < 0)
                return err_wrap(err, ERR_PROVIDER, "the lease record is no JSON");
        const json_t *object = json_get_object(record, "lease");
        copy_member(lease.id, sizeof(lease.id), object, "id");
        copy_member(lease.status, sizeof(lease.status), object, "status");
        copy_member(lease.expires_at, sizeof(lease.expires_at), object, "expiresAt");
        json_decref(record);
        if (lease.id[0] == '\0')
                return err_set(err, ERR_PROVIDER, "the answer holds no lease");
        lease.json = take_ptr(&response->body);
        *ret = lease;
        return 0;
}

/* POST to /api/<before>/<id>/<after> and read a lease record. ret may be NULL. */
static int lease_call(struct berth *b, const char *before, const char *id, const char *after,
                      const struct buf *json, bool may_repeat, struct berth_lease *ret,
                      struct berth_error *error)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(berth_response_done) struct berth_response response = { 0 };
        CLEAN(cleanup_free) char *path = xasprintf("/api/%s/%s/%s", before, id, after);
        int r;

        /* Anything else could name another route. */
        if (!uuid_is_valid(id))
                r = err_set(&err, ERR_INVALID, "'%s' is not a whole id", id);
        else
                r = send_request(b, "POST", path, buf_str(json), may_repeat, &response, &err);
        if (r < 0)
                return fail_with(error, &err);
        r = berth_refusal(&response, error);
        if (r < 0 || !ret)
                return r;
        r = read_lease(&response, ret, &err);
        return r < 0 ? fail_with(error, &err) : 0;
}

int berth_acquire(struct berth *b, const char *environment_id,
                  const struct berth_acquire_options *options, struct berth_lease *ret,
                  struct berth_error *error)
{
        static const struct berth_acquire_options defaults;
        const struct berth_acquire_options *o = options ? options : &defaults;
        CLEAN(buf_done) struct buf json = BUF_INIT;
        struct uuid key = uuid_new();
        struct jw w;

        jw_init(&w, &json);
        jw_object(&w);
        if (o->run_id)
                jw_kstring(&w, "heartbeatRunId", o->run_id);
        if (o->ttl_ms > 0)
                jw_kint(&w, "ttlMs", o->ttl_ms);
        jw_kstring(&w, "idempotencyKey", o->idempotency_key ? o->idempotency_key : key.s);
        jw_object_end(&w);
        return lease_call(b, "environments", environment_id, "leases", &json, true, ret, error);
}

int berth_renew(struct berth *b, const char *lease_id, int64_t ttl_ms, struct berth_lease *ret,
                struct berth_error *error)
{
        CLEAN(buf_done) struct buf json = BUF_INIT;

        buf_appendf(&json, "{\"ttlMs\":%" PRId64 "}", ttl_ms);
        return lease_call(b, "environment-leases", lease_id, "renew", &json, false, ret, error);
}

int berth_release(struct berth *b, const char *lease_id, const char *status,
                  struct berth_lease *ret, struct berth_error *error)
{
        CLEAN(buf_done) struct buf json = BUF_INIT;
        struct jw w;

        jw_init(&w, &json);
        jw_object(&w);
        if (status)
                jw_kstring(&w, "status", status);
        jw_object_end(&w);
        return lease_call(b, "environment-leases", lease_id, "release", &json, true, ret, error);
}

/* -- Event streams ---------------------------------------------------------------------------- */

#define STREAM_EVENT_MAX ((size_t)16 << 20)

struct stream {
        struct sse_decoder sse;
        struct buf refusal; /* the body when it is no event stream */
        berth_event_fn *fn;
        void *arg;
        int stopped; /* what the callback returned */
};

static int stream_event(void *arg, const struct sse_event *event, struct err *err)
{
        struct stream *s = arg;
        struct berth_event public = { event->id, event->event, event->data, event->len };

        s->stopped = s->fn(s->arg, &public);
        return s->stopped ? err_set(err, ERR_CANCELLED, "stopped by the reader") : 0;
}

static int stream_bytes(void *arg, const struct http_answer *answer, const char *data, size_t len,
                        struct err *err)
{
        struct stream *s = arg;

        if (answer->status != 200 || !answer->is_event_stream)
                return collect_body(&s->refusal, answer, data, len, err);
        return sse_feed(&s->sse, data, len, err);
}

static int stream_result(struct stream *s, const struct http_answer *answer,
                         struct berth_error *error)
{
        CLEAN(err_done) struct err err = { 0 };
        struct berth_response response = {
                .status = answer->status,
                .body = s->refusal.data ? s->refusal.data : (char[]){ "" },
                .len = s->refusal.len,
        };
        int r = berth_refusal(&response, error);

        if (r < 0 || answer->is_event_stream)
                return r;
        (void)err_set(&err, ERR_PROVIDER, "the answer is no event stream");
        return fail_with(error, &err);
}

int berth_stream(struct berth *b, const char *path, const char *last_event_id,
                 unsigned idle_timeout_ms, berth_event_fn *on_event, void *arg,
                 struct berth_error *error)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(cleanup_fd) int fd = -1;
        struct stream s = { .fn = on_event, .arg = arg };
        struct http_answer answer = { 0 };
        struct http_call call = {
                .method = "GET",
                .path = path,
                .accept = "text/event-stream",
                .api_key = b->api_key,
                .run_id = b->run_id,
                .last_event_id = last_event_id,
                .deadline_ms = clock_mono_ms() + b->timeout_ms,
                .idle_ms = idle_timeout_ms ? (int64_t)idle_timeout_ms : CONN_FOREVER,
        };
        int r = check_field("event id", last_event_id, &err);

        if (r >= 0 && !http_is_path(path))
                r = err_set(&err, ERR_INVALID, "'%s' cannot stand in a request", path);
        if (r >= 0)
                r = conn_open(&b->address, clock_mono_ms() + b->connect_timeout_ms, &fd, &err);
        if (r < 0)
                return fail_with(error, &err);
        sse_decoder_init(&s.sse, STREAM_EVENT_MAX, stream_event, &s);
        r = http_call(fd, &b->address, &call, stream_bytes, &s, &answer, &err);
        if (s.stopped != 0)
                r = s.stopped;
        else if (r < 0)
                r = fail_with(error, &err);
        else
                r = stream_result(&s, &answer, error);
        sse_decoder_done(&s.sse);
        buf_done(&s.refusal);
        return r;
}
