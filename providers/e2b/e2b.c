/* Sandboxes of E2B: its API makes them, and `envd`, which runs in each, runs commands (Connect's
 * protocol with JSON) and keeps files. docs/providers.md has the requests; they are those of the
 * official client, npm's `e2b`. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "codec/connect_frames.h"
#include "codec/shell.h"
#include "provider/service.h"

#define LIMIT_MAX    86400000
#define TIMEOUT_MS   3600000
#define COMMAND_MS   300000
#define ENVD_PORT    49983
#define STREAM_ROOM  15000
#define SILENT_MS    120000 /* of a stream that is kept alive every 50 s */
#define PINGS_S      "50"
#define INPUT_INLINE ((size_t)64 << 10) /* goes with the command; more goes as a file */
#define FRAME_MAX    ((size_t)8 << 20)
#define PAGES_MAX    100
#define TOKENS       512
#define TAG_INSTANCE "berthInstance"
#define TAG_PLACE    "berthPlace"
#define NO_LEASE     "No provider lease ID available for execution."

struct setting {
        const char *key, *api, *domain, *envd, *template, *user, *cwd;
        bool reuse, internet;
        int64_t timeout_ms;
};

static const struct service e2b = { .name = "E2B", .key = "apiKey" };

/* Configuration */

static void read_settings(struct berth_call *c, struct setting *ret)
{
        const char *domain = service_text(c, "domain"), *template = service_text(c, "template");
        const char *user = service_text(c, "user"), *cwd = service_text(c, "requestedCwd");

        *ret = (struct setting){
                .key = service_text(c, "apiKey"),
                .domain = domain ? domain : "e2b.app",
                .template = template ? template : "base",
                .user = user ? user : "user",
                .reuse = berth_config_bool(c, "reuseLease", false),
                .internet = berth_config_bool(c, "internet", true),
                .timeout_ms = service_number(c, "timeoutMs", TIMEOUT_MS, 1000, LIMIT_MAX),
                .envd = service_url(c, "sandboxUrl", NULL),
        };
        ret->cwd = cwd ? cwd
                       : arena_printf(&c->arena, streq(ret->user, "root") ? "/%s" : "/home/%s",
                                      ret->user);
        if (ret->domain[strspn(ret->domain, "abcdefghijklmnopqrstuvwxyz0123456789.-")])
                berth_complain(c, "domain must be a host name.");
        ret->api = service_url(c, "apiUrl", arena_printf(&c->arena, "https://api.%s", ret->domain));
}

static int validate(struct berth_call *c)
{
        struct setting s;

        read_settings(c, &s);
        if (!s.key)
                berth_complain(c, "E2B sandbox environments require an API key (apiKey).");
        if (s.cwd[0] != '/')
                berth_complain(c, "requestedCwd must be an absolute POSIX path.");
        berth_config_set_text(c, "apiKey", s.key);
        berth_config_set_text(c, "template", s.template);
        berth_config_set_int(c, "timeoutMs", s.timeout_ms);
        berth_config_set_bool(c, "reuseLease", s.reuse);
        berth_config_set_bool(c, "internet", s.internet);
        berth_config_set_text(c, "user", s.user);
        berth_config_set_text(c, "requestedCwd", s.cwd);
        berth_config_set_text(c, "domain", s.domain);
        return 0;
}

static int settings_of(struct berth_call *c, struct setting *ret)
{
        read_settings(c, ret);
        if (json_array_size(c->errors) > 0)
                return berth_fail(c, "%s", json_string_value(json_array_get(c->errors, 0)));
        return ret->key ? 0
                        : berth_fail(c, "E2B sandbox environments require an API key (apiKey).");
}

/* Requests to the API */

static struct service about(struct berth_call *c)
{
        struct service s = e2b;

        if (berth_lease(c))
                s.of = arena_printf(&c->arena, "the sandbox %s", berth_lease(c));
        return s;
}

static int ask_api(struct berth_call *c, const struct setting *s, const char *method,
                   const char *path, json_t *take_body, unsigned flags, struct web_answer *ret)
{
        CLEAN(json_decrefp) json_t *body = take_body;
        CLEAN(cleanup_free) char *text = body ? json_to_text(body) : NULL;
        const char *headers[] = { arena_printf(&c->arena, "X-API-Key: %s", s->key),
                                  "Content-Type: application/json", NULL };
        struct service named = about(c);
        struct web_request q = { .method = method,
                                 .url = arena_printf(&c->arena, "%s%s", s->api, path),
                                 .headers = headers,
                                 .body = text                    ? text
                                         : streq(method, "POST") ? ""
                                                                 : NULL,
                                 .body_len = text ? strlen(text) : 0 };

        return service_ask(c, &named, &q, flags, ret);
}

static const char *path_of(struct berth_call *c, const char *id, const char *rest)
{
        CLEAN(buf_done) struct buf path = BUF_INIT;

        buf_puts(&path, "/sandboxes/");
        web_escape(&path, id);
        buf_puts(&path, rest);
        return arena_strdup(&c->arena, buf_str(&path));
}

/* One page of sandboxes with these tags; *at is the token of the next page, or NULL. */
typedef void (*found_fn)(void *ctx, const char *id, const json_t *metadata);

static int list_tagged(struct berth_call *c, const struct setting *s, const char *name,
                       const char *value, found_fn fn, void *ctx)
{
        CLEAN(buf_done) struct buf pair = BUF_INIT;
        CLEAN(buf_done) struct buf base = BUF_INIT;
        const char *next = "";

        buf_appendf(&pair, "%s=%s", name, value);
        buf_puts(&base, "/v2/sandboxes?state=running,paused&limit=100&metadata=");
        web_escape(&base, buf_str(&pair));
        for (int page = 0; next && page < PAGES_MAX; page++) {
                CLEAN(web_answer_done) struct web_answer a = { 0 };
                CLEAN(buf_done) struct buf path = BUF_INIT;
                json_t *list, *item;
                size_t i;
                int r;

                buf_puts(&path, buf_str(&base));
                if (*next) {
                        buf_puts(&path, "&nextToken=");
                        web_escape(&path, next);
                }
                r = ask_api(c, s, "GET", buf_str(&path), NULL, 0, &a);
                if (r > 0)
                        r = service_fail_status(c, &e2b, &a);
                list = r == 0 ? service_array(c, &e2b, &a) : NULL;
                if (!list)
                        return -1;
                json_array_foreach(list, i, item)
                {
                        const json_t *metadata = json_get_object(item, "metadata");
                        const char *id = json_get_string(item, "sandboxID");
                        const char *tag = json_get_string(metadata, name);

                        if (id && tag && streq(tag, value)) /* a server may not filter */
                                fn(ctx, id, metadata);
                }
                next = *a.next_token ? arena_strdup(&c->arena, a.next_token) : NULL;
        }
        return 0;
}

/* Leases */

/* The tokens of sandboxes, which are kept nowhere else: a worker that was just started asks E2B. */
static struct {
        char id[64], token[512];
} tokens[TOKENS];
static pthread_mutex_t tokens_lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned next_token;

static void remember_token(const char *id, const char *token)
{
        pthread_mutex_lock(&tokens_lock);
        if (token && strlen(id) < sizeof(tokens[0].id) && strlen(token) < sizeof(tokens[0].token)) {
                unsigned i = 0;

                while (i < TOKENS && !streq(tokens[i].id, id))
                        i++;
                if (i == TOKENS)
                        i = next_token++ % TOKENS;
                memcpy(tokens[i].id, id, strlen(id) + 1);
                memcpy(tokens[i].token, token, strlen(token) + 1);
        }
        pthread_mutex_unlock(&tokens_lock);
}

static const char *known_token(struct berth_call *c, const char *id)
{
        const char *found = NULL;

        pthread_mutex_lock(&tokens_lock);
        for (unsigned i = 0; i < TOKENS; i++)
                if (streq(tokens[i].id, id))
                        found = arena_strdup(&c->arena, tokens[i].token);
        pthread_mutex_unlock(&tokens_lock);
        return found;
}

static int take_sandbox(struct berth_call *c, const struct setting *s, const struct web_answer *a)
{
        const json_t *said = service_object(c, &e2b, a);
        const char *id = json_get_string(said, "sandboxID"),
                   *domain = json_get_string(said, "domain");
        const char *token = json_get_string(said, "envdAccessToken");

        if (!said)
                return -1;
        if (!id)
                return berth_fail(c, "E2B answered without sandboxID.");
        berth_lease_set(c, id);
        berth_metadata_text(c, "provider", "e2b");
        berth_metadata_text(c, "sandboxId", id);
        berth_metadata_text(c, "template", s->template);
        berth_metadata_text(c, "remoteCwd", s->cwd);
        berth_metadata_text(c, "shellCommand", "bash");
        if (domain && *domain)
                berth_metadata_text(c, "sandboxDomain", domain);
        remember_token(id, token);
        return 0;
}

static void keep_first(void *ctx, const char *id, const json_t *metadata)
{
        const char **first = ctx;

        (void)metadata;
        if (!*first)
                *first = id;
}

static int connect_to(struct berth_call *c, const struct setting *s, const char *id,
                      struct web_answer *ret)
{
        return ask_api(c, s, "POST", path_of(c, id, "/connect"),
                       json_pack("{s:I}", "timeout", (json_int_t)((s->timeout_ms + 999) / 1000)), 0,
                       ret);
}

static int acquire(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        CLEAN(web_answer_done) struct web_answer again = { 0 };
        const char *place = berth_owner_place(c), *instance = berth_owner_instance(c),
                   *there = NULL;
        struct setting s;
        json_t *metadata;
        int r = settings_of(c, &s);

        /* A second acquire for the place means the sandbox of the first. */
        if (r == 0 && place)
                r = list_tagged(c, &s, TAG_PLACE, place, keep_first, &there);
        if (r < 0)
                return r;
        if (there && (r = connect_to(c, &s, there, &again)) <= 0)
                return r == 0 ? take_sandbox(c, &s, &again) : r;
        metadata = json_pack("{s:s*, s:s*, s:s*, s:s*}", TAG_INSTANCE, instance, TAG_PLACE, place,
                             "environmentId", berth_param_text(c, "environmentId"), "runId",
                             berth_param_text(c, "runId"));
        r = ask_api(c, &s, "POST", "/sandboxes",
                    json_pack("{s:s, s:o, s:I, s:b, s:b, s:b}", "templateID", s.template,
                              "metadata", metadata, "timeout",
                              (json_int_t)((s.timeout_ms + 999) / 1000), "secure", 1, "autoPause",
                              s.reuse, "allow_internet_access", s.internet),
                    SERVICE_CREATES, &a);
        if (r == 404)
                return berth_fail(c, "E2B has no template `%s` (HTTP 404).", s.template);
        if (r > 0)
                r = service_fail_status(c, &e2b, &a);
        return r == 0 ? take_sandbox(c, &s, &a) : r;
}

static int resume(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r == 0)
                r = connect_to(c, &s, berth_lease(c), &a);
        if (r > 0)
                return 0; /* it is gone */
        return r == 0 ? take_sandbox(c, &s, &a) : r;
}

static int destroy(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0 || !berth_lease(c))
                return r;
        r = ask_api(c, &s, "DELETE", path_of(c, berth_lease(c), ""), NULL, 0, &a);
        return r == 404 || r == 410 ? 0 : r > 0 ? service_fail_status(c, &e2b, &a) : r;
}

static int release(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0 || !berth_lease(c))
                return r;
        if (!s.reuse)
                return destroy(c);
        r = ask_api(c, &s, "POST", path_of(c, berth_lease(c), "/pause"), NULL, 0, &a);
        return r > 0 ? 0 : r; /* gone, or paused already (409) */
}

static void tell_found(void *ctx, const char *id, const json_t *metadata)
{
        berth_found(ctx, id, json_get_string(metadata, TAG_INSTANCE),
                    json_get_string(metadata, TAG_PLACE));
}

static int list_leases(struct berth_call *c)
{
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0)
                return r;
        return list_tagged(c, &s, TAG_INSTANCE,
                           berth_owner_instance(c) ? berth_owner_instance(c) : "", tell_found, c);
}

static int probe(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r == 0)
                r = ask_api(c, &s, "GET", "/v2/sandboxes?limit=1", NULL, 0, &a);
        if (r > 0)
                r = service_fail_status(c, &e2b, &a);
        if (r < 0) { /* of a probe this is an answer */
                berth_complain(c, "%s", buf_str(&c->failure));
                c->failed = false;
        } else {
                berth_summary(c, "E2B takes the key; sandboxes begin as template `%s`.",
                              s.template);
        }
        return 0;
}

/* Requests to envd */

/* 0, 404 when the sandbox is gone, or -1. */
static int find_token(struct berth_call *c, const struct setting *s)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        const json_t *said;
        const char *token;
        int r;

        if (known_token(c, berth_lease(c)))
                return 0;
        r = ask_api(c, s, "GET", path_of(c, berth_lease(c), ""), NULL, 0, &a);
        said = r == 0 ? service_object(c, &e2b, &a) : NULL;
        token = json_get_string(said, "envdAccessToken");
        if (said)
                remember_token(berth_lease(c), token ? token : "");
        return r == 0 && !said ? -1 : r;
}

/* The headers of a request to a sandbox; the lease has its domain and token. */
static void envd_headers(struct berth_call *c, const struct setting *s, const char *kind,
                         const char **ret, size_t room)
{
        CLEAN(cleanup_free) char *user = xasprintf("%s:", s->user);
        const char *token = known_token(c, berth_lease(c));
        char basic[256];
        size_t n = 0;

        sodium_bin2base64(basic, sizeof(basic), (const unsigned char *)user, MIN(strlen(user), 150),
                          sodium_base64_VARIANT_ORIGINAL);
        ret[n++] = arena_printf(&c->arena, "Content-Type: %s", kind);
        ret[n++] = arena_printf(&c->arena, "Authorization: Basic %s", basic);
        ret[n++] = arena_printf(&c->arena, "E2b-Sandbox-Id: %s", berth_lease(c));
        ret[n++] = arena_printf(&c->arena, "E2b-Sandbox-Port: %d", ENVD_PORT);
        if (token && *token)
                ret[n++] = arena_printf(&c->arena, "X-Access-Token: %s", token);
        while (n < room)
                ret[n++] = NULL;
}

static const char *envd_url(struct berth_call *c, const struct setting *s, const char *path)
{
        const char *domain = berth_lease_text(c, "sandboxDomain");

        if (s->envd)
                return arena_printf(&c->arena, "%s%s", s->envd, path);
        return arena_printf(&c->arena, "https://%d-%s.%s%s", ENVD_PORT, berth_lease(c),
                            domain ? domain : s->domain, path);
}

/* Commands */

struct command {
        struct berth_call *call;
        struct frames frames;
        int64_t pid;
        bool ended, exited, is_ours; /* ours: its output is collected, not shown */
        int status;
        struct buf *out;
        char error[256];
};

static int take_output(struct command *k, const json_t *data, const char *member,
                       enum berth_stream stream)
{
        const json_t *text = json_object_get(data, member);
        size_t len = json_string_length(text);
        CLEAN(cleanup_free) unsigned char *bytes = NULL;
        size_t n = 0;

        if (!json_is_string(text))
                return 0;
        bytes = xcalloc(1, len + 1);
        if (sodium_base642bin(bytes, len + 1, json_string_value(text), len, NULL, &n, NULL,
                              sodium_base64_VARIANT_ORIGINAL) != 0)
                return ERR_PROVIDER;
        if (!k->is_ours)
                berth_output(k->call, stream, (const char *)bytes, n);
        else if (stream == BERTH_STDOUT)
                buf_append(k->out, bytes, n);
        return 0;
}

static int on_frame(void *ctx, unsigned flags, const char *data, size_t len, struct err *err)
{
        struct command *k = ctx;
        CLEAN(json_decrefp) json_t *message = NULL;
        const json_t *event, *part;
        const char *text;

        if (json_parse_lenient(data, len, &message, err) < 0)
                return ERR_PROVIDER;
        if (flags & FRAMES_LAST) {
                part = json_get_object(message, "error");
                text = json_get_string(part, "message");
                if (part)
                        snprintf(k->error, sizeof(k->error), "%s: %s",
                                 json_get_string(part, "code") ? json_get_string(part, "code")
                                                               : "error",
                                 text ? text : "");
                return 0;
        }
        event = json_get_object(message, "event");
        part = json_get_object(event, "start");
        if (part)
                k->pid = json_integer_value(json_object_get(part, "pid"));
        part = json_get_object(event, "data");
        if (part && (take_output(k, part, "stdout", BERTH_STDOUT) < 0 ||
                     take_output(k, part, "stderr", BERTH_STDERR) < 0))
                return err_set(err, ERR_PROVIDER, "output that is no base64");
        part = json_get_object(event, "end");
        if (part) {
                text = json_get_string(part, "status");
                k->ended = true;
                k->exited = json_is_true(json_object_get(part, "exited"));
                k->status = (int)json_integer_value(json_object_get(part, "exitCode"));
                if (!k->exited && k->status == 0) /* a signal: "signal: killed" */
                        k->status = text && strstr(text, "killed") ? 137 : 143;
        }
        return 0;
}

static int on_data(void *ctx, const char *data, size_t len, struct err *err)
{
        struct command *k = ctx;

        return frames_feed(&k->frames, data, len, err);
}

/* What goes on in there must not run on. */
static void end_command(struct berth_call *c, const struct setting *s, int64_t pid)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        CLEAN(json_decrefp)
        json_t *body = json_pack("{s:{s:I}, s:s}", "process", "pid", (json_int_t)pid, "signal",
                                 "SIGNAL_SIGKILL");
        CLEAN(cleanup_free) char *text = json_to_text(body);
        const char *headers[8];

        envd_headers(c, s, "application/json", headers, ARRAY_LEN(headers));
        (void)web_run(&(struct web_request){ .method = "POST",
                                             .url = envd_url(c, s, "/process.Process/SendSignal"),
                                             .headers = headers,
                                             .body = text,
                                             .body_len = strlen(text),
                                             .begin_ms = STREAM_ROOM,
                                             .total_ms = STREAM_ROOM,
                                             .cancel_fd = -1 },
                      &a, NULL);
}

/* Start a process and follow it to its end: 0, 404 and the like, or -1. ERR_TIMEOUT when the limit
 * passed; it is ended then. */
static int run_process(struct berth_call *c, const struct setting *s, json_t *take_process,
                       int64_t limit_ms, struct command *k, struct web_answer *ret)
{
        CLEAN(json_decrefp)
        json_t *body = json_pack("{s:o, s:b}", "process", take_process, "stdin", 0);
        CLEAN(cleanup_free) char *text = json_to_text(body);
        CLEAN(buf_wipe) struct buf frame = { .max = FRAME_MAX };
        CLEAN(err_done) struct err err = { 0 };
        const char *headers[12];
        size_t n = 0;
        struct service named = about(c);
        struct web_request q = { .method = "POST",
                                 .headers = headers,
                                 .total_ms = limit_ms,
                                 .begin_ms = limit_ms,
                                 .silent_ms = SILENT_MS,
                                 .on_data = on_data,
                                 .ctx = k,
                                 .cancel_fd = berth_cancel_fd(c) };
        int r;

        frames_put(&frame, 0, text, strlen(text));
        frames_init(&k->frames, FRAME_MAX, on_frame, k);
        k->call = c;
        envd_headers(c, s, "application/connect+json", headers, ARRAY_LEN(headers));
        while (headers[n])
                n++;
        headers[n++] = "Connect-Protocol-Version: 1";
        headers[n++] = "Keepalive-Ping-Interval: " PINGS_S;
        headers[n++] = arena_printf(&c->arena, "Connect-Timeout-Ms: %lld",
                                    (long long)limit_ms + STREAM_ROOM);
        q.url = envd_url(c, s, "/process.Process/Start");
        q.body = buf_str(&frame);
        q.body_len = frame.len;
        r = web_run(&q, ret, &err);
        frames_done(&k->frames);
        if ((r == ERR_TIMEOUT || r == ERR_CANCELLED) && k->pid > 0) {
                end_command(c, s, k->pid);
                return ERR_TIMEOUT;
        }
        if (r < 0)
                return berth_fail(c, "E2B: the command's stream broke (%s).", err.msg);
        if (ret->status < 200 || ret->status > 299) {
                if (ret->status == 404 || ret->status == 502) /* the edge knows no such sandbox */
                        return 404;
                return service_fail_status(c, &named, ret);
        }
        if (*k->error)
                return berth_fail(c, "E2B cannot run the command (%s).", k->error);
        return k->ended ? 0
                        : berth_fail(c, "E2B: the command's stream ended before the command did.");
}

static const char *input_of(struct berth_call *c, const struct setting *s, const char **ret_path,
                            int *ret_code);

/* argv as one process of envd, with its input: a little goes as a variable, which the shell turns
 * into a pipe and forgets; more is a file. */
static json_t *process_of(struct berth_call *c, const struct setting *s, int *ret_code)
{
        const char *const *arguments = berth_arguments(c);
        const char *path = NULL, *input;
        json_t *args = json_array(), *env = json_get_object(c->params, "env");
        const char *script;

        env = env ? json_deep_copy(env) : json_object();
        json_object_del(env, "PAPERCLIP_SANDBOX_EXEC_CHANNEL");
        input = input_of(c, s, &path, ret_code);
        script = path    ? "exec <\"$0\" || exit 125; rm -f \"$0\"; exec \"$@\""
                 : input ? "printf %s \"$BERTH_INPUT\" | { unset BERTH_INPUT; exec \"$@\"; }"
                         : "exec \"$@\" </dev/null";
        if (input)
                json_object_set_new(env, "BERTH_INPUT", json_string(input));
        json_array_append_new(args, json_string("-c"));
        json_array_append_new(args, json_string(script));
        json_array_append_new(args, json_string(path ? path : "sh"));
        json_array_append_new(args, json_string(berth_command(c)));
        for (; *arguments; arguments++)
                json_array_append_new(args, json_string(*arguments));
        return json_pack("{s:s, s:o, s:o, s:s}", "cmd", "/bin/sh", "args", args, "envs", env, "cwd",
                         berth_directory(c) ? berth_directory(c) : s->cwd);
}

static int end_badly(struct berth_call *c, const char *text)
{
        berth_output(c, BERTH_STDERR, text, strlen(text));
        berth_output(c, BERTH_STDERR, "\n", 1);
        berth_exit_set(c, 1);
        return 0;
}

static int execute(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct command k = { 0 };
        struct setting s;
        json_t *process;
        int r = settings_of(c, &s), code = 0;

        if (r < 0)
                return r;
        if (!berth_lease(c))
                return end_badly(c, NO_LEASE);
        code = find_token(c, &s);
        process = code == 0 ? process_of(c, &s, &code) : NULL;
        r = code == 0 ? run_process(c, &s, process, berth_time_left(c, COMMAND_MS), &k, &a) : code;
        if (code != 0)
                json_decref(process);
        if (r == ERR_TIMEOUT) {
                berth_timed_out_set(c);
                return 0;
        }
        if (r > 0)
                return end_badly(c, arena_printf(&c->arena,
                                                 "E2B does not have the sandbox %s any more.",
                                                 berth_lease(c)));
        berth_exit_set(c, k.status);
        return r;
}

static int run_script(struct berth_call *c, void *ctx, const char *script, int64_t timeout_ms,
                      struct buf *ret_out)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct command k = { .is_ours = true, .out = ret_out };
        const struct setting *s = ctx;
        int r = find_token(c, s);

        if (r == 0)
                r = run_process(c, s,
                                json_pack("{s:s, s:[s,s], s:{}, s:s}", "cmd", "/bin/sh", "args",
                                          "-c", script, "envs", "cwd", "/"),
                                timeout_ms, &k, &a);

        if (r == ERR_TIMEOUT)
                return berth_fail(c, "a command of the sync took longer than %lld ms",
                                  (long long)timeout_ms);
        if (r > 0)
                return berth_fail(c, "E2B does not have the sandbox %s any more.", berth_lease(c));
        return r < 0 ? r : k.status & 0xff;
}

static int realize(struct berth_call *c)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        CLEAN(buf_done) struct buf script = BUF_INIT;
        const char *cwd = json_get_string(json_get_object(c->params, "workspace"), "remotePath");
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0)
                return r;
        if (!cwd)
                cwd = berth_lease_text(c, "remoteCwd") ? berth_lease_text(c, "remoteCwd") : s.cwd;
        buf_puts(&script, "mkdir -p ");
        shell_quote(&script, cwd);
        buf_puts(&script, " 2>&1");
        r = berth_lease(c) ? run_script(c, &s, buf_str(&script), COMMAND_MS, &out)
                           : berth_fail(c, "%s", NO_LEASE);
        if (r > 0)
                return berth_fail(c, "E2B: the directory %s cannot be made: %s", cwd,
                                  buf_str(&out));
        berth_cwd_set(c, cwd);
        return r;
}

/* Files */

static const char *files_url(struct berth_call *c, const struct setting *s, const char *path)
{
        CLEAN(buf_done) struct buf url = BUF_INIT;

        buf_puts(&url, "/files?username=");
        web_escape(&url, s->user);
        buf_puts(&url, "&path=");
        web_escape(&url, path);
        return envd_url(c, s, buf_str(&url));
}

/* As one part of a form, which every version of envd takes. */
static int put_bytes(struct berth_call *c, const struct setting *s, const char *path,
                     const struct buf *form, const char *boundary)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        const char *headers[8];
        struct service named = about(c);
        int r;

        envd_headers(c, s, arena_printf(&c->arena, "multipart/form-data; boundary=%s", boundary),
                     headers, ARRAY_LEN(headers));
        if (buf_failed(form))
                return berth_fail(c, "a file is too large for E2B's file service");
        r = service_ask(c, &named,
                        &(struct web_request){ .method = "POST",
                                               .url = files_url(c, s, path),
                                               .headers = headers,
                                               .body = buf_str(form),
                                               .body_len = form->len,
                                               .begin_ms = COMMAND_MS },
                        0, &a);
        return r > 0 ? service_fail_status(c, &named, &a) : r;
}

static void begin_form(struct buf *form, char boundary[40])
{
        unsigned char random[16];

        randombytes_buf(random, sizeof(random));
        memcpy(boundary, "berth-", sizeof("berth-"));
        sodium_bin2hex(boundary + 6, 34, random, sizeof(random));
        buf_appendf(form,
                    "--%s\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n"
                    "Content-Type: application/octet-stream\r\n\r\n",
                    boundary);
}

static int put_file(struct berth_call *c, void *ctx, int fd, const char *path)
{
        CLEAN(buf_wipe) struct buf form = { .max = (size_t)512 << 20 };
        char boundary[40];
        ssize_t n;

        begin_form(&form, boundary);
        do {
                char *at = buf_reserve(&form, (size_t)1 << 20);

                n = at ? read(fd, at, (size_t)1 << 20) : 0;
                if (n > 0)
                        buf_grew(&form, (size_t)n);
        } while (n > 0);
        if (n < 0)
                return berth_fail(c, "cannot read a file of the sync");
        buf_appendf(&form, "\r\n--%s--\r\n", boundary);
        return put_bytes(c, ctx, path, &form, boundary);
}

static const char *input_of(struct berth_call *c, const struct setting *s, const char **ret_path,
                            int *ret_code)
{
        CLEAN(buf_wipe) struct buf form = { .max = (size_t)512 << 20 };
        char boundary[40], name[2 * 12 + 1];
        unsigned char random[12];
        size_t len;
        const char *input = berth_input(c, &len);

        *ret_code = 0;
        if (len == 0)
                return NULL;
        if (len <= INPUT_INLINE && strlen(input) == len)
                return input;
        randombytes_buf(random, sizeof(random));
        sodium_bin2hex(name, sizeof(name), random, sizeof(random));
        *ret_path = arena_printf(&c->arena, "/tmp/.berth-input-%s", name);
        begin_form(&form, boundary);
        buf_append(&form, input, len);
        buf_appendf(&form, "\r\n--%s--\r\n", boundary);
        *ret_code = put_bytes(c, s, *ret_path, &form, boundary);
        return NULL;
}

static int take_bytes(void *ctx, const char *data, size_t len, struct err *err)
{
        return fd_write_all(*(int *)ctx, data, len, err);
}

static int get_file(struct berth_call *c, void *ctx, const char *path, int fd)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        const char *headers[8];
        struct service named = about(c);
        int r;

        envd_headers(c, ctx, "application/octet-stream", headers, ARRAY_LEN(headers));
        r = service_ask(c, &named,
                        &(struct web_request){ .method = "GET",
                                               .url = files_url(c, ctx, path),
                                               .headers = headers,
                                               .total_ms = COMMAND_MS,
                                               .on_data = take_bytes,
                                               .ctx = &fd },
                        0, &a);
        return r > 0 ? berth_fail(c, "E2B does not have the file %s (HTTP %d).", path, a.status)
                     : r;
}

static int sync_files(struct berth_call *c, bool is_in)
{
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0 || !berth_lease(c))
                return r < 0 ? r : berth_fail(c, "%s", NO_LEASE);
        r = find_token(c, &s);
        if (r != 0)
                return r < 0 ? r
                             : berth_fail(c, "E2B does not have the sandbox %s any more.",
                                          berth_lease(c));
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
