/* Sandboxes of Cloudflare, by the bridge that the operator deployed there
 * (deploy/cloudflare-bridge, or Paperclip's): one Worker with routes for leases and commands.
 * docs/providers.md has the protocol. */
#include <sodium.h>
#include <stdio.h>
#include <time.h>

#include "base/fd.h"
#include "codec/shell.h"
#include "codec/sse.h"
#include "provider/service.h"

#define PREFIX      "/api/paperclip-sandbox/v1"
#define LIMIT_MAX   86400000
#define TIMEOUT_MS  300000
#define REQUEST_MS  30000
#define STREAM_ROOM 30000 /* for the end of a stream behind the command's own limit */
#define EVENT_MAX   ((size_t)34 << 20)
#define PART        ((size_t)32 << 20) /* of a file, in one request */
#define FILE_MAX    ((size_t)4 << 30)
#define NO_LEASE    "No provider lease ID available for execution."

static const struct service bridge = { .name = "Cloudflare sandbox bridge",
                                       .key = "bridgeAuthToken" };

struct setting {
        const char *url, *token, *session, *cwd, *sleep_after;
        bool named, hmac, keep_alive, normalize_id, reuse;
        int64_t timeout_ms, request_ms;
};

/* Configuration */

static void read_settings(struct berth_call *c, struct setting *ret)
{
        const char *strategy = service_text(c, "sessionStrategy");
        const char *auth = service_text(c, "bridgeAuth"), *cwd = service_text(c, "requestedCwd");
        const char *session = service_text(c, "sessionId");
        const char *sleep_after = service_text(c, "sleepAfter");

        *ret = (struct setting){
                .url = service_text(c, "bridgeBaseUrl") ? service_url(c, "bridgeBaseUrl", NULL)
                                                        : NULL,
                .token = service_text(c, "bridgeAuthToken"),
                .session = session ? session : "paperclip",
                .cwd = cwd ? cwd : "/workspace/paperclip",
                .sleep_after = sleep_after ? sleep_after : "10m",
                .named = !strategy || !streq(strategy, "default"),
                .hmac = auth && streq(auth, "hmac"),
                .keep_alive = berth_config_bool(c, "keepAlive", false),
                .normalize_id = berth_config_bool(c, "normalizeId", true),
                .reuse = berth_config_bool(c, "reuseLease", false),
                .timeout_ms = service_number(c, "timeoutMs", TIMEOUT_MS, 1, LIMIT_MAX),
                .request_ms = service_number(c, "bridgeRequestTimeoutMs", REQUEST_MS, 1, LIMIT_MAX),
        };
}

/* The texts are those of Paperclip's provider. */
static int validate(struct berth_call *c)
{
        struct setting s;

        if (!service_text(c, "bridgeBaseUrl"))
                berth_complain(c, "Cloudflare sandbox environments require bridgeBaseUrl.");
        if (!service_text(c, "bridgeAuthToken"))
                berth_complain(c, "Cloudflare sandbox environments require bridgeAuthToken.");
        read_settings(c, &s);
        if (s.reuse && !s.keep_alive)
                berth_complain(c, "reuseLease requires keepAlive for Cloudflare sandboxes.");
        if (s.cwd[0] != '/')
                berth_complain(c, "requestedCwd must be an absolute POSIX path.");
        if (s.named && berth_config_text(c, "sessionId") && !service_text(c, "sessionId"))
                berth_complain(c, "sessionId is required when sessionStrategy is named.");
        berth_config_set_text(c, "bridgeBaseUrl", s.url);
        berth_config_set_text(c, "bridgeAuthToken", s.token);
        berth_config_set_text(c, "bridgeAuth", s.hmac ? "hmac" : "bearer");
        berth_config_set_bool(c, "reuseLease", s.reuse);
        berth_config_set_bool(c, "keepAlive", s.keep_alive);
        berth_config_set_text(c, "sleepAfter", s.sleep_after);
        berth_config_set_bool(c, "normalizeId", s.normalize_id);
        berth_config_set_text(c, "requestedCwd", s.cwd);
        berth_config_set_text(c, "sessionStrategy", s.named ? "named" : "default");
        berth_config_set_text(c, "sessionId", s.session);
        berth_config_set_int(c, "timeoutMs", s.timeout_ms);
        berth_config_set_int(c, "bridgeRequestTimeoutMs", s.request_ms);
        berth_config_set_text(c, "previewHostname", service_text(c, "previewHostname"));
        return 0;
}

/* Settings for a call that is not about the configuration itself. */
static int settings_of(struct berth_call *c, struct setting *ret)
{
        read_settings(c, ret);
        if (json_array_size(c->errors) > 0)
                return berth_fail(c, "%s", json_string_value(json_array_get(c->errors, 0)));
        if (!ret->url || !ret->token)
                return berth_fail(c, "Cloudflare sandbox environments require %s.",
                                  ret->url ? "bridgeAuthToken" : "bridgeBaseUrl");
        return 0;
}

/* Requests */

/* The proof that a request comes from a holder of the token, without the token. */
static const char *sign(struct berth_call *c, const struct setting *s, const char *method,
                        const char *url, const char *body, size_t len)
{
        const char *host = strstr(url, "://") + 3, *path = strchr(host, '/');
        unsigned char hash[crypto_hash_sha256_BYTES], mac[crypto_auth_hmacsha256_BYTES];
        char hash_hex[2 * sizeof(hash) + 1], mac_hex[2 * sizeof(mac) + 1];
        CLEAN(buf_wipe) struct buf text = BUF_INIT;
        crypto_auth_hmacsha256_state state;
        long long now = (long long)time(NULL);

        crypto_hash_sha256(hash, (const unsigned char *)body, len);
        sodium_bin2hex(hash_hex, sizeof(hash_hex), hash, sizeof(hash));
        buf_appendf(&text, "v1\n%s\n%.*s\n%s\n%lld\n%s", method, (int)(path - host), host, path,
                    now, hash_hex);
        crypto_auth_hmacsha256_init(&state, (const unsigned char *)s->token, strlen(s->token));
        crypto_auth_hmacsha256_update(&state, (const unsigned char *)buf_str(&text), text.len);
        crypto_auth_hmacsha256_final(&state, mac);
        sodium_memzero(&state, sizeof(state));
        sodium_bin2hex(mac_hex, sizeof(mac_hex), mac, sizeof(mac));
        return arena_printf(&c->arena, "X-Berth-Signature: t=%lld,v1=%s", now, mac_hex);
}

static const char *issue_of(struct berth_call *c)
{
        const json_t *metadata =
                json_get_object(json_get_object(c->params, "workspace"), "metadata");
        const char *issue = json_get_string(
                json_get_object(metadata, "workspaceRealizationRequest"), "issueId");

        return issue ? issue : berth_param_text(c, "issueId");
}

struct ask {
        const char *method, *path;
        const char *body; /* NULL: none */
        size_t len;
        int64_t limit_ms; /* 0: the bridge's */
        int64_t total_ms; /* of a stream */
        unsigned flags;
        int (*on_data)(void *ctx, const char *data, size_t len, struct err *err);
        void *ctx;
};

static int ask_bridge(struct berth_call *c, const struct setting *s, const struct ask *a,
                      struct web_answer *ret)
{
        const struct {
                const char *name, *value;
        } about[] = { { "X-Paperclip-Environment-Id", berth_param_text(c, "environmentId") },
                      { "X-Paperclip-Run-Id", berth_param_text(c, "runId") },
                      { "X-Paperclip-Issue-Id", issue_of(c) } };
        const char *headers[8];
        size_t n = 0;
        struct service named = bridge;
        struct web_request q = {
                .method = a->method,
                .url = arena_printf(&c->arena, "%s" PREFIX "%s", s->url, a->path),
                .headers = headers,
                .body = a->body,
                .body_len = a->len,
                .begin_ms = a->limit_ms ? a->limit_ms : s->request_ms,
                .total_ms = a->total_ms,
                .on_data = a->on_data,
                .ctx = a->ctx,
        };

        if (berth_lease(c))
                named.of = arena_printf(&c->arena, "the sandbox %s", berth_lease(c));
        headers[n++] = s->hmac ? sign(c, s, a->method, q.url, q.body ? q.body : "", q.body_len)
                               : arena_printf(&c->arena, "Authorization: Bearer %s", s->token);
        headers[n++] = "Content-Type: application/json";
        for (size_t i = 0; i < ARRAY_LEN(about); i++)
                if (about[i].value && *about[i].value)
                        headers[n++] =
                                arena_printf(&c->arena, "%s: %s", about[i].name, about[i].value);
        headers[n] = NULL;
        return service_ask(c, &named, &q, a->flags, ret);
}

/* What the bridge says of a failure, as Paperclip's provider repeats it. */
static const char *bridge_said(struct berth_call *c, const struct web_answer *a)
{
        const char *said = service_said(c, a);

        return *said ? said
                     : arena_printf(&c->arena,
                                    "Cloudflare sandbox bridge request failed with HTTP %d.",
                                    a->status);
}

static int ask_json(struct berth_call *c, const struct setting *s, const char *method,
                    const char *path, json_t *take_body, unsigned flags, struct web_answer *ret)
{
        CLEAN(json_decrefp) json_t *body = take_body;
        char *text = body ? json_to_text(body) : NULL;
        struct ask a = { .method = method,
                         .path = path,
                         .body = text,
                         .len = text ? strlen(text) : 0,
                         .flags = flags };
        int r = ask_bridge(c, s, &a, ret);

        if (text)
                sodium_memzero(text, a.len);
        free(text);
        return r;
}

/* Leases */

/* The members that probe, acquire and resume have in common. */
static json_t *lease_body(const struct setting *s)
{
        return json_pack("{s:s, s:b, s:s, s:b, s:s, s:s, s:I}", "requestedCwd", s->cwd, "keepAlive",
                         s->keep_alive, "sleepAfter", s->sleep_after, "normalizeId",
                         s->normalize_id, "sessionStrategy", s->named ? "named" : "default",
                         "sessionId", s->session, "timeoutMs", (json_int_t)s->timeout_ms);
}

static int probe(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        const json_t *said;
        struct setting s;
        int r = settings_of(c, &s);

        if (r == 0)
                r = ask_json(c, &s, "POST", "/probe", lease_body(&s), 0, &a);
        if (r > 0)
                r = service_fail_status(c, &bridge, &a);
        said = r == 0 ? service_object(c, &bridge, &a) : NULL;
        if (said && !json_is_true(json_object_get(said, "ok")))
                (void)berth_fail(c, "%s", bridge_said(c, &a));
        if (c->failed) { /* of a probe this is an answer */
                berth_complain(c, "%s", buf_str(&c->failure));
                c->failed = false;
        } else {
                berth_summary(c, "Connected to Cloudflare sandbox bridge.");
        }
        return 0;
}

static int take_lease(struct berth_call *c, const struct web_answer *a)
{
        const json_t *said = service_object(c, &bridge, a);
        json_t *metadata = json_get_object(said, "metadata");

        if (!said)
                return -1;
        if (!json_get_string(said, "providerLeaseId"))
                return berth_fail(c, "The bridge answered without providerLeaseId.");
        berth_lease_set(c, json_get_string(said, "providerLeaseId"));
        if (metadata)
                json_object_update(c->metadata, metadata);
        berth_metadata_text(c, "provider", "cloudflare");
        if (!json_is_true(json_object_get(metadata, "files"))) /* a bridge of Paperclip */
                berth_metadata_bool(c, "nativeFileSyncUnsupported", true);
        return 0;
}

static int acquire(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        json_t *body;
        int r = settings_of(c, &s);

        if (r < 0)
                return r;
        body = lease_body(&s);
        json_object_set_new(body, "environmentId",
                            json_string_or_null(berth_param_text(c, "environmentId")));
        json_object_set_new(body, "runId", json_string_or_null(berth_param_text(c, "runId")));
        json_object_set_new(body, "issueId", json_string_or_null(berth_param_text(c, "issueId")));
        json_object_set_new(body, "reuseLease", json_boolean(s.reuse));
        if (berth_owner_place(c))
                json_object_set(body, "owner", json_object_get(c->params, "owner"));
        r = ask_json(c, &s, "POST", "/leases/acquire", body, SERVICE_CREATES, &a);
        if (r > 0)
                r = service_fail_status(c, &bridge, &a);
        return r == 0 ? take_lease(c, &a) : r;
}

static int resume(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        json_t *body;
        int r = settings_of(c, &s);

        if (r < 0)
                return r;
        body = lease_body(&s);
        json_object_set_new(body, "providerLeaseId", json_string(berth_lease(c)));
        json_object_set_new(body, "berth", json_true());
        r = ask_json(c, &s, "POST", "/leases/resume", body, 0, &a);
        if (r > 0) {
                berth_metadata_text(c, "provider", "cloudflare");
                berth_metadata_bool(c, "expired", true);
                return 0;
        }
        return r == 0 ? take_lease(c, &a) : r;
}

static int release(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0 || !berth_lease(c))
                return r;
        r = ask_json(c, &s, "POST", "/leases/release",
                     json_pack("{s:s, s:b, s:b}", "providerLeaseId", berth_lease(c), "reuseLease",
                               s.reuse, "keepAlive", s.keep_alive),
                     0, &a);
        if (r == 404)
                return 0;
        return r > 0 ? service_fail_status(c, &bridge, &a) : r;
}

static const char *lease_path(struct berth_call *c, const char *rest)
{
        CLEAN(buf_done) struct buf path = BUF_INIT;

        buf_puts(&path, "/leases/");
        web_escape(&path, berth_lease(c) ? berth_lease(c) : "");
        buf_puts(&path, rest);
        return arena_strdup(&c->arena, buf_str(&path));
}

static int destroy(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0 || !berth_lease(c))
                return r;
        r = ask_json(c, &s, "DELETE", lease_path(c, ""), NULL, 0, &a);
        if (r == 404)
                return 0;
        return r > 0 ? service_fail_status(c, &bridge, &a) : r;
}

static int list_leases(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        json_t *said = NULL, *item;
        size_t i;
        int r = settings_of(c, &s);

        if (r == 0)
                r = ask_json(c, &s, "GET", "/leases", NULL, 0, &a);
        if (r > 0)
                return berth_fail_unsupported(c, "This bridge cannot list its sandboxes; "
                                                 "deploy/cloudflare-bridge can.");
        if (r == 0)
                said = service_object(c, &bridge, &a);
        json_array_foreach(json_object_get(said, "leases"), i, item)
                berth_found(c, json_get_string(item, "id"), json_get_string(item, "instance"),
                            json_get_string(item, "place"));
        return said ? 0 : -1;
}

/* Commands */

struct stream {
        struct berth_call *call;
        struct sse_decoder events;
        json_t *result;
};

static int on_event(void *ctx, const struct sse_event *event, struct err *err)
{
        struct stream *s = ctx;
        CLEAN(json_decrefp) json_t *data = NULL;
        const json_t *text;

        if (json_parse_lenient(event->data, event->len, &data, err) < 0)
                return ERR_PROVIDER;
        if (streq(event->event, "stdout") || streq(event->event, "stderr")) {
                text = json_object_get(data, "data");
                berth_output(s->call, streq(event->event, "stderr") ? BERTH_STDERR : BERTH_STDOUT,
                             json_string_value(text), json_string_length(text));
        } else if (streq(event->event, "complete")) {
                json_decref(s->result);
                s->result = take_ptr(&data);
        } else if (streq(event->event, "error")) {
                const char *said = json_get_string(data, "error");

                return err_set(err, ERR_PROVIDER, "%s", said ? said : "the command failed");
        }
        return 0;
}

static int on_data(void *ctx, const char *data, size_t len, struct err *err)
{
        struct stream *s = ctx;

        return sse_feed(&s->events, data, len, err);
}

/* What the result has beyond what came before it. */
static void put_rest(struct berth_call *c, enum berth_stream stream, const json_t *result,
                     const char *member)
{
        const struct buf *have = stream == BERTH_STDERR ? &c->err : &c->out;
        const json_t *text = json_object_get(result, member);
        const char *all = json_string_value(text);
        size_t len = json_string_length(text);

        if (all && len > have->len && memcmp(all, buf_str(have), have->len) == 0)
                berth_output(c, stream, all + have->len, len - have->len);
}

static int take_result(struct berth_call *c, const json_t *result)
{
        const json_t *code = json_object_get(result, "exitCode");

        put_rest(c, BERTH_STDOUT, result, "stdout");
        put_rest(c, BERTH_STDERR, result, "stderr");
        if (json_is_true(json_object_get(result, "timedOut")))
                berth_timed_out_set(c);
        else if (json_is_integer(code))
                berth_exit_set(c, (int)json_integer_value(code));
        else
                return berth_fail(
                        c, "The bridge answered with something that is no end of a command.");
        return 0;
}

static int end_badly(struct berth_call *c, const char *text)
{
        berth_output(c, BERTH_STDERR, text, strlen(text));
        berth_output(c, BERTH_STDERR, "\n", 1);
        berth_exit_set(c, 1);
        return 0;
}

/* Run one command: `body` has its own members. */
static int run_command(struct berth_call *c, const struct setting *s, json_t *take_body,
                       bool is_channel, int64_t limit_ms, bool streams, struct web_answer *ret)
{
        CLEAN(json_decrefp) json_t *body = take_body;
        struct stream stream = { .call = c };
        const char *session =
                is_channel ? arena_printf(&c->arena, "%s-bridge", s->session) : s->session;
        struct ask a = { .method = "POST",
                         .path = "/exec",
                         .limit_ms = MAX(s->request_ms, limit_ms) };
        char *text;
        int r;

        json_object_set_new(body, "providerLeaseId", json_string(berth_lease(c)));
        json_object_set_new(body, "berth", json_true());
        json_object_set_new(body, "timeoutMs", json_integer(limit_ms));
        json_object_set_new(body, "streamOutput", json_boolean(streams));
        json_object_set_new(body, "sessionStrategy",
                            json_string(s->named || is_channel ? "named" : "default"));
        json_object_set_new(body, "sessionId", json_string(session));
        text = json_to_text(body);
        a.body = text;
        a.len = strlen(text);
        sse_decoder_init(&stream.events, EVENT_MAX, on_event, &stream);
        if (streams) {
                a.on_data = on_data;
                a.ctx = &stream;
                a.total_ms = a.limit_ms + STREAM_ROOM;
        }
        r = ask_bridge(c, s, &a, ret);
        sodium_memzero(text, a.len);
        free(text);
        if (r == 0 && streams && !stream.result)
                r = berth_fail(c, "Cloudflare sandbox bridge streaming response ended without a "
                                  "completion event.");
        if (r == 0 && streams)
                r = take_result(c, stream.result);
        json_decref(stream.result);
        sse_decoder_done(&stream.events);
        return r;
}

static int execute(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        bool is_channel = berth_is_channel(c);
        json_t *env, *body, *args = json_object_get(c->params, "args");
        const json_t *input = json_object_get(c->params, "stdin"), *result;
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0)
                return r;
        if (!berth_lease(c))
                return end_badly(c, NO_LEASE);
        env = json_get_object(c->params, "env");
        env = env ? json_deep_copy(env) : json_object();
        json_object_del(env, "PAPERCLIP_SANDBOX_EXEC_CHANNEL");
        body = json_pack("{s:s, s:O*, s:s, s:o, s:O*}", "command", berth_command(c), "args", args,
                         "cwd", berth_directory(c) ? berth_directory(c) : s.cwd, "env", env,
                         "stdin", input);
        r = run_command(c, &s, body, is_channel, berth_time_left(c, s.timeout_ms), !is_channel, &a);
        if (r > 0)
                return end_badly(c, bridge_said(c, &a));
        if (r == 0 && is_channel) {
                result = service_object(c, &bridge, &a);
                r = result ? take_result(c, result) : -1;
        }
        return r;
}

/* Run a script of our own; its status. */
static int run_script(struct berth_call *c, void *ctx, const char *script, int64_t timeout_ms,
                      struct buf *ret_out)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        const struct setting *s = ctx;
        const json_t *result, *out, *code;
        int r = run_command(
                c, s,
                json_pack("{s:s, s:[s,s], s:s}", "command", "sh", "args", "-c", script, "cwd", "/"),
                true, timeout_ms, false, &a);

        if (r > 0)
                return berth_fail(c, "%s", bridge_said(c, &a));
        result = r == 0 ? service_object(c, &bridge, &a) : NULL;
        if (!result)
                return -1;
        out = json_object_get(result, "stdout");
        code = json_object_get(result, "exitCode");
        buf_append(ret_out, json_string_value(out), json_string_length(out));
        return json_is_integer(code) ? (int)json_integer_value(code) & 0xff : 255;
}

static int realize(struct berth_call *c)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        CLEAN(buf_done) struct buf script = BUF_INIT;
        const json_t *workspace = json_get_object(c->params, "workspace");
        const char *cwd = json_get_string(workspace, "remotePath");
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0)
                return r;
        if (!cwd)
                cwd = berth_lease_text(c, "remoteCwd") ? berth_lease_text(c, "remoteCwd") : s.cwd;
        buf_puts(&script, "mkdir -p ");
        shell_quote(&script, cwd);
        buf_puts(&script, " 2>&1");
        r = berth_lease(c) ? run_script(c, &s, buf_str(&script), s.timeout_ms, &out)
                           : berth_fail(c, "%s", NO_LEASE);
        if (r != 0) {
                const char *said =
                        r < 0 ? arena_strdup(&c->arena, buf_str(&c->failure)) : buf_str(&out);

                return berth_fail(c, "Failed to prepare Cloudflare sandbox workspace at %s: %s",
                                  cwd, said);
        }
        berth_cwd_set(c, cwd);
        berth_metadata_text(c, "provider", "cloudflare");
        berth_metadata_text(c, "remoteCwd", cwd);
        return 0;
}

/* Files */

static const char *file_path(struct berth_call *c, const char *path)
{
        CLEAN(buf_done) struct buf rest = BUF_INIT;

        buf_puts(&rest, "/files?path=");
        web_escape(&rest, path);
        return lease_path(c, buf_str(&rest));
}

/* A file in pieces that fit a request, put together there. */
static int put_file(struct berth_call *c, void *ctx, int fd, const char *path)
{
        CLEAN(buf_wipe) struct buf part = { .max = PART + 1 };
        CLEAN(buf_done) struct buf join = BUF_INIT;
        CLEAN(buf_done) struct buf script = BUF_INIT;
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const struct setting *s = ctx;
        ssize_t n = 1;
        unsigned parts = 0;
        int r = 0;

        for (; r == 0 && n > 0 && parts < FILE_MAX / PART; parts++) {
                CLEAN(web_answer_done) struct web_answer a = { 0 };
                const char *name = arena_printf(&c->arena, "%s.%u", path, parts);
                struct ask q = { .method = "PUT",
                                 .path = file_path(c, name),
                                 .limit_ms = s->timeout_ms };

                buf_clear(&part);
                while (part.len < PART) {
                        char *at = buf_reserve(&part, PART - part.len);

                        n = at ? read(fd, at, PART - part.len) : -1;
                        if (n <= 0)
                                break;
                        buf_grew(&part, (size_t)n);
                }
                if (n < 0)
                        return berth_fail(c, "cannot read a file of the sync");
                if (part.len == 0 && parts > 0)
                        break;
                q.body = buf_str(&part);
                q.len = part.len;
                r = ask_bridge(c, s, &q, &a);
                if (r > 0)
                        r = service_fail_status(c, &bridge, &a);
                buf_putc(&join, ' ');
                shell_quote(&join, name);
        }
        if (r != 0)
                return r;
        buf_appendf(&script, "cat%s > ", buf_str(&join));
        shell_quote(&script, path);
        buf_appendf(&script, " && rm -f%s", buf_str(&join));
        r = run_script(c, ctx, buf_str(&script), s->timeout_ms, &out);
        return r > 0 ? berth_fail(c, "the sandbox cannot keep a file: status %d", r) : r;
}

static int take_bytes(void *ctx, const char *data, size_t len, struct err *err)
{
        return fd_write_all(*(int *)ctx, data, len, err);
}

static int get_file(struct berth_call *c, void *ctx, const char *path, int fd)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        const struct setting *s = ctx;
        struct ask q = { .method = "GET",
                         .path = file_path(c, path),
                         .limit_ms = s->timeout_ms,
                         .total_ms = s->timeout_ms,
                         .on_data = take_bytes,
                         .ctx = &fd };
        int r = ask_bridge(c, s, &q, &a);

        return r > 0 ? service_fail_status(c, &bridge, &a) : r;
}

static int sync_files(struct berth_call *c, bool is_in)
{
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0 || !berth_lease(c))
                return r < 0 ? r : berth_fail(c, "%s", NO_LEASE);
        return service_sync(c, &(struct service_files){ put_file, get_file, run_script, &s },
                            is_in);
}

static int sync_in(struct berth_call *c)
{
        return sync_files(c, true);
}

static int sync_out(struct berth_call *c)
{
        return sync_files(c, false);
}

int main(void)
{
        return berth_provider_main(&(struct berth_provider){
                .validate = validate,
                .probe = probe,
                .acquire = acquire,
                .resume = resume,
                .realize = realize,
                .execute = execute,
                .sync_in = sync_in,
                .sync_out = sync_out,
                .release = release,
                .destroy = destroy,
                .list_leases = list_leases,
        });
}
