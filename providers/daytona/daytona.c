/* Sandboxes of Daytona: its API makes them, and the toolbox of each, reached by a proxy, runs
 * commands and keeps files. docs/providers.md has the requests; they are those of the official
 * client, npm's `@daytonaio/sdk`. */
#include <poll.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "codec/shell.h"
#include "provider/service.h"

#define LIMIT_MAX    86400000
#define TIMEOUT_MS   300000
#define REQUEST_MS   60000
#define FIRST_MS     50 /* between two looks at what changes, doubled up to */
#define PAUSE_MS     1000
#define PAGES_MAX    100
#define FILE_MAX     ((size_t)512 << 20)
#define INPUT_INLINE ((size_t)120 << 10) /* of a variable's 128 KiB */
#define NAME_CHARS   "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
#define TAG_INSTANCE "berthInstance"
#define TAG_PLACE    "berthPlace"
#define NO_LEASE     "No provider lease ID available for execution."

static const struct service daytona = { .name = "Daytona", .key = "apiKey" };

struct setting {
        const char *key, *api, *target, *snapshot, *organization, *cwd;
        bool reuse, internet;
        int64_t timeout_ms, auto_stop;
};

/* Configuration */

static void read_settings(struct berth_call *c, struct setting *ret)
{
        const char *cwd = service_text(c, "requestedCwd");

        *ret = (struct setting){
                .key = service_text(c, "apiKey"),
                .api = service_url(c, "apiUrl", "https://app.daytona.io/api"),
                .target = service_text(c, "target"),
                .snapshot = service_text(c, "snapshot"),
                .organization = service_text(c, "organizationId"),
                .cwd = cwd ? cwd : "/home/daytona",
                .reuse = berth_config_bool(c, "reuseLease", false),
                .internet = berth_config_bool(c, "internet", true),
                .timeout_ms = service_number(c, "timeoutMs", TIMEOUT_MS, 1000, LIMIT_MAX),
                .auto_stop = service_number(c, "autoStopInterval", 60, 0, 100000),
        };
}

static int validate(struct berth_call *c)
{
        struct setting s;

        read_settings(c, &s);
        if (!s.key)
                berth_complain(c, "Daytona sandbox environments require an API key (apiKey).");
        if (s.cwd[0] != '/')
                berth_complain(c, "requestedCwd must be an absolute POSIX path.");
        berth_config_set_text(c, "apiKey", s.key);
        berth_config_set_text(c, "apiUrl", s.api);
        berth_config_set_text(c, "requestedCwd", s.cwd);
        berth_config_set_int(c, "timeoutMs", s.timeout_ms);
        berth_config_set_int(c, "autoStopInterval", s.auto_stop);
        berth_config_set_bool(c, "reuseLease", s.reuse);
        berth_config_set_bool(c, "internet", s.internet);
        return 0;
}

static int settings_of(struct berth_call *c, struct setting *ret)
{
        read_settings(c, ret);
        if (json_array_size(c->errors) > 0)
                return berth_fail(c, "%s", json_string_value(json_array_get(c->errors, 0)));
        return ret->key
                       ? 0
                       : berth_fail(c, "Daytona sandbox environments require an API key (apiKey).");
}

/* Requests, to the API and to the toolbox alike */

struct ask {
        const char *method, *url;
        json_t *take_body;
        const struct buf *form; /* instead, with its type */
        const char *kind;
        int64_t limit_ms;
        unsigned flags;
        int (*on_data)(void *ctx, const char *data, size_t len, struct err *err);
        void *ctx;
};

static int ask_daytona(struct berth_call *c, const struct setting *s, const struct ask *a,
                       struct web_answer *ret)
{
        CLEAN(json_decrefp) json_t *body = a->take_body;
        CLEAN(cleanup_free) char *text = body ? json_to_text(body) : NULL;
        const char *headers[6] = {
                arena_printf(&c->arena, "Authorization: Bearer %s", s->key),
                arena_printf(&c->arena, "Content-Type: %s", a->kind ? a->kind : "application/json"),
                "X-Daytona-Source: berth",
                s->organization
                        ? arena_printf(&c->arena, "X-Daytona-Organization-ID: %s", s->organization)
                        : NULL,
        };
        struct service named = daytona;
        struct web_request q = { .method = a->method,
                                 .url = a->url,
                                 .headers = headers,
                                 .body = a->form                    ? buf_str(a->form)
                                         : text                     ? text
                                         : streq(a->method, "POST") ? ""
                                                                    : NULL,
                                 .body_len = a->form ? a->form->len
                                             : text  ? strlen(text)
                                                     : 0,
                                 .begin_ms = a->limit_ms > 0 ? a->limit_ms : REQUEST_MS,
                                 .on_data = a->on_data,
                                 .ctx = a->ctx };

        q.total_ms = q.begin_ms;
        if (berth_lease(c))
                named.of = arena_printf(&c->arena, "the sandbox %s", berth_lease(c));
        return service_ask(c, &named, &q, a->flags, ret);
}

static const char *api_url(struct berth_call *c, const struct setting *s, const char *id,
                           const char *rest)
{
        CLEAN(buf_done) struct buf url = BUF_INIT;

        buf_appendf(&url, "%s/sandbox", s->api);
        if (id) {
                buf_putc(&url, '/');
                web_escape(&url, id);
        }
        buf_puts(&url, rest);
        return arena_strdup(&c->arena, buf_str(&url));
}

/* What is there is told by its state: 1 to look again, 0 when it runs, 404 when it is gone. */
static int judge_state(struct berth_call *c, const char *state, const json_t *said)
{
        static const char *const gone[] = { "destroyed", "destroying", "archived" };
        static const char *const bad[] = { "error", "build_failed" };
        const char *reason = json_get_string(said, "errorReason");

        for (size_t i = 0; i < ARRAY_LEN(gone); i++)
                if (streq(state, gone[i]))
                        return 404;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (streq(state, bad[i]))
                        return berth_fail(c, "Daytona could not start the sandbox: %.300s",
                                          reason ? reason : state);
        return streq(state, "started") ? 0 : 1;
}

/* False when the call is to end. */
static bool rest_for(struct berth_call *c, int64_t *pause)
{
        struct pollfd cancel = { berth_cancel_fd(c), POLLIN, 0 };
        int r = poll(&cancel, 1, (int)*pause);

        *pause = MIN(*pause * 2, PAUSE_MS);
        return r == 0;
}

/* Wait until the sandbox runs, starting it where it has stopped, and take it for the lease. */
static int await_started(struct berth_call *c, const struct setting *s, const char *id)
{
        int64_t pause = FIRST_MS, until = clock_mono_ms() + s->timeout_ms;
        bool asked = false;

        for (;;) {
                CLEAN(web_answer_done) struct web_answer a = { 0 };
                CLEAN(web_answer_done) struct web_answer started = { 0 };
                const json_t *said;
                const char *state;
                int r = ask_daytona(
                        c, s, &(struct ask){ .method = "GET", .url = api_url(c, s, id, "") }, &a);

                if (r != 0)
                        return r;
                said = service_object(c, &daytona, &a);
                state = json_get_string(said, "state");
                if (!said || !state)
                        return said ? berth_fail(c, "Daytona answered without a state.") : -1;
                r = judge_state(c, state, said);
                if (r == 0) {
                        const char *proxy = json_get_string(said, "toolboxProxyUrl");

                        berth_lease_set(c, json_get_string(said, "id") ? json_get_string(said, "id")
                                                                       : id);
                        berth_metadata_text(c, "provider", "daytona");
                        berth_metadata_text(c, "sandboxId", id);
                        berth_metadata_text(c, "remoteCwd", s->cwd);
                        berth_metadata_text(c, "toolboxProxyUrl", proxy);
                        return 0;
                }
                if (r != 1)
                        return r;
                if (!asked && streq(state, "stopped")) {
                        asked = true;
                        r = ask_daytona(c, s,
                                        &(struct ask){ .method = "POST",
                                                       .url = api_url(c, s, id, "/start") },
                                        &started);
                        if (r < 0 || r == 404)
                                return r;
                }
                if (clock_mono_ms() > until || !rest_for(c, &pause))
                        return berth_fail_unknown(c, "Daytona: the sandbox is still %s.", state);
        }
}

static int acquire(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        const char *place = berth_owner_place(c), *name = NULL, *id = NULL;
        const json_t *said;
        struct setting s;
        json_t *labels;
        int r = settings_of(c, &s);

        if (r < 0)
                return r;
        /* Names are unique: a second acquire for the place finds the sandbox of the first. */
        if (place)
                name = arena_printf(&c->arena, "berth-%s", place);
        labels = json_pack("{s:s*, s:s*, s:s*}", TAG_INSTANCE, berth_owner_instance(c), TAG_PLACE,
                           place, "runId", berth_param_text(c, "runId"));
        r = ask_daytona(
                c, &s,
                &(struct ask){ .method = "POST",
                               .url = api_url(c, &s, NULL, ""),
                               .take_body = json_pack(
                                       "{s:s*, s:s*, s:s*, s:o, s:{}, s:b, s:b, s:I}", "name", name,
                                       "snapshot", s.snapshot, "target", s.target, "labels", labels,
                                       "env", "public", 0, "networkBlockAll", !s.internet,
                                       "autoStopInterval", (json_int_t)s.auto_stop),
                               .limit_ms = s.timeout_ms,
                               .flags = SERVICE_CREATES },
                &a);
        if (r == 409 && name) {
                id = name;
        } else if (r > 0) {
                return service_fail_status(c, &daytona, &a);
        } else if (r == 0) {
                said = service_object(c, &daytona, &a);
                id = json_get_string(said, "id");
                if (said && !id)
                        return berth_fail(c, "Daytona answered without an id.");
        }
        if (!id)
                return -1;
        r = await_started(c, &s, id);
        return r > 0 ? berth_fail_unknown(c, "Daytona: the sandbox is gone before it was started.")
                     : r;
}

static int resume(struct berth_call *c)
{
        struct setting s;
        int r = settings_of(c, &s);

        if (r == 0)
                r = await_started(c, &s, berth_lease(c));
        return r > 0 ? 0 : r; /* gone: an answer without a lease */
}

static int give_up(struct berth_call *c, bool keep)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r < 0 || !berth_lease(c))
                return r;
        keep = keep && s.reuse;
        r = ask_daytona(c, &s,
                        &(struct ask){ .method = keep ? "POST" : "DELETE",
                                       .url = api_url(c, &s, berth_lease(c), keep ? "/stop" : "") },
                        &a);
        return r == 409 && !keep ? service_fail_status(c, &daytona, &a) : MIN(r, 0);
}

static int release(struct berth_call *c)
{
        return give_up(c, true);
}

static int destroy(struct berth_call *c)
{
        return give_up(c, false);
}

static int list_leases(struct berth_call *c)
{
        const char *instance = berth_owner_instance(c) ? berth_owner_instance(c) : "";
        CLEAN(json_decrefp) json_t *labels = json_pack("{s:s}", TAG_INSTANCE, instance);
        CLEAN(cleanup_free) char *text = json_to_text(labels);
        int64_t pages = 1;
        struct setting s;
        int r = settings_of(c, &s);

        for (int64_t page = 1; r == 0 && page <= MIN(pages, PAGES_MAX); page++) {
                CLEAN(web_answer_done) struct web_answer a = { 0 };
                CLEAN(buf_done) struct buf query = BUF_INIT;
                const json_t *said;
                json_t *item;
                size_t i;

                buf_appendf(&query, "/paginated?page=%lld&limit=100&labels=", (long long)page);
                web_escape(&query, text);
                r = ask_daytona(c, &s,
                                &(struct ask){ .method = "GET",
                                               .url = api_url(c, &s, NULL, buf_str(&query)) },
                                &a);
                if (r > 0)
                        r = service_fail_status(c, &daytona, &a);
                said = r == 0 ? service_object(c, &daytona, &a) : NULL;
                if (!said)
                        return -1;
                pages = json_integer_value(json_object_get(said, "totalPages"));
                json_array_foreach(json_object_get(said, "items"), i, item)
                {
                        const json_t *tags = json_get_object(item, "labels");
                        const char *tag = json_get_string(tags, TAG_INSTANCE);
                        const char *state = json_get_string(item, "state");

                        if (tag && streq(tag, instance) && !(state && str_starts(state, "destroy")))
                                berth_found(c, json_get_string(item, "id"), tag,
                                            json_get_string(tags, TAG_PLACE));
                }
        }
        return r;
}

static int probe(struct berth_call *c)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        struct setting s;
        int r = settings_of(c, &s);

        if (r == 0)
                r = ask_daytona(
                        c, &s,
                        &(struct ask){ .method = "GET",
                                       .url = api_url(c, &s, NULL, "/paginated?page=1&limit=1") },
                        &a);
        if (r > 0)
                r = service_fail_status(c, &daytona, &a);
        if (r < 0) { /* of a probe this is an answer */
                berth_complain(c, "%s", buf_str(&c->failure));
                c->failed = false;
        } else {
                berth_summary(c, "Daytona takes the key.");
        }
        return 0;
}

/* The toolbox */

/* The proxy's address came with the lease; it may be Daytona's, or this machine's in a test. */
static const char *box_url(struct berth_call *c, const char *rest)
{
        const char *proxy = berth_lease_text(c, "toolboxProxyUrl");
        CLEAN(buf_done) struct buf url = BUF_INIT;
        size_t n = proxy ? strlen(proxy) : 0;

        while (n > 0 && proxy[n - 1] == '/')
                n--;
        if (n == 0 || (!str_starts(proxy, "https://") && !str_starts(proxy, "http://127.0.0.1:")))
                return NULL;
        buf_append(&url, proxy, n);
        buf_putc(&url, '/');
        web_escape(&url, berth_lease(c));
        buf_puts(&url, rest);
        return arena_strdup(&c->arena, buf_str(&url));
}

static int ask_box(struct berth_call *c, const struct setting *s, const char *method,
                   const char *rest, json_t *take_body, int64_t limit_ms, struct web_answer *ret)
{
        const char *url = box_url(c, rest);

        if (!url) {
                json_decref(take_body);
                return berth_fail(c, "The lease does not say where Daytona's toolbox is.");
        }
        return ask_daytona(c, s,
                           &(struct ask){ .method = method,
                                          .url = url,
                                          .take_body = take_body,
                                          .limit_ms = limit_ms },
                           ret);
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

/* A text or a file as one part of a form. */
static int send_form(struct berth_call *c, const struct setting *s, const char *path,
                     struct buf *form, const char *boundary)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        CLEAN(buf_done) struct buf rest = BUF_INIT;
        const char *url;
        int r;

        buf_appendf(form, "\r\n--%s--\r\n", boundary);
        buf_puts(&rest, "/files/upload?path=");
        web_escape(&rest, path);
        url = box_url(c, buf_str(&rest));
        if (buf_failed(form) || !url)
                return berth_fail(c, "the file %s cannot be sent to Daytona", path);
        r = ask_daytona(
                c, s,
                &(struct ask){ .method = "POST",
                               .url = url,
                               .form = form,
                               .kind = arena_printf(&c->arena, "multipart/form-data; boundary=%s",
                                                    boundary),
                               .limit_ms = s->timeout_ms },
                &a);
        return r;
}

static int put_text(struct berth_call *c, const struct setting *s, const char *path,
                    const char *text, size_t len)
{
        CLEAN(buf_wipe) struct buf form = { .max = FILE_MAX };
        char boundary[40];

        begin_form(&form, boundary);
        buf_append(&form, text, len);
        return send_form(c, s, path, &form, boundary);
}

static int put_file(struct berth_call *c, void *ctx, int fd, const char *path)
{
        CLEAN(buf_wipe) struct buf form = { .max = FILE_MAX };
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
        n = send_form(c, ctx, path, &form, boundary);
        return n > 0 ? berth_fail(c, "Daytona does not have the sandbox %s any more.",
                                  berth_lease(c))
                     : (int)n;
}

static int take_bytes(void *ctx, const char *data, size_t len, struct err *err)
{
        return fd_write_all(*(int *)ctx, data, len, err);
}

static int get_file(struct berth_call *c, void *ctx, const char *path, int fd)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        CLEAN(buf_done) struct buf rest = BUF_INIT;
        const struct setting *s = ctx;
        const char *url;
        int r;

        buf_puts(&rest, "/files/download?path=");
        web_escape(&rest, path);
        url = box_url(c, buf_str(&rest));
        if (!url)
                return berth_fail(c, "The lease does not say where Daytona's toolbox is.");
        r = ask_daytona(c, s,
                        &(struct ask){ .method = "GET",
                                       .url = url,
                                       .limit_ms = s->timeout_ms,
                                       .on_data = take_bytes,
                                       .ctx = &fd },
                        &a);
        return r > 0 ? service_fail_status(c, &daytona, &a) : r;
}

/* Commands */

static int end_badly(struct berth_call *c, const char *text)
{
        berth_output(c, BERTH_STDERR, text, strlen(text));
        berth_output(c, BERTH_STDERR, "\n", 1);
        berth_exit_set(c, 1);
        return 0;
}

static const char *random_name(struct berth_call *c, const char *prefix)
{
        unsigned char random[12];
        char name[2 * sizeof(random) + 1];

        randombytes_buf(random, sizeof(random));
        sodium_bin2hex(name, sizeof(name), random, sizeof(random));
        return arena_printf(&c->arena, "%s%s", prefix, name);
}

/* The command as a script of its own, so that neither its variables nor its input are in arguments.
 */
static int put_script(struct berth_call *c, const struct setting *s, const char **ret_path)
{
        CLEAN(buf_wipe) struct buf script = { .max = FILE_MAX };
        const char *const *list;
        const char *cwd = berth_directory(c) ? berth_directory(c) : s->cwd, *input, *path = NULL;
        size_t len;
        int r = 0;

        *ret_path = random_name(c, "/tmp/.berth-command-");
        input = berth_input(c, &len);
        if (len > 0) {
                path = random_name(c, "/tmp/.berth-input-");
                r = put_text(c, s, path, input, len);
        }
        buf_puts(&script, "rm -f \"$0\"; exec <");
        shell_quote(&script, path ? path : "/dev/null");
        if (path) {
                buf_puts(&script, "; rm -f ");
                shell_quote(&script, path);
        }
        buf_puts(&script, "\ncd ");
        shell_quote(&script, cwd);
        buf_puts(&script, " || exit 126\n");
        for (list = berth_variables(c); *list; list++) {
                size_t name = strcspn(*list, "=");

                if (strspn(*list, NAME_CHARS) != name || strchr("0123456789=", **list))
                        return berth_fail(c, "a variable's name is no name: %.100s", *list);
                buf_appendf(&script, "export %.*s=", (int)name, *list);
                shell_quote(&script, *list + name + 1);
                buf_putc(&script, '\n');
        }
        buf_puts(&script, "exec ");
        shell_quote(&script, berth_command(c));
        for (list = berth_arguments(c); *list; list++) {
                buf_putc(&script, ' ');
                shell_quote(&script, *list);
        }
        buf_putc(&script, '\n');
        return r != 0 ? r : put_text(c, s, *ret_path, buf_str(&script), script.len);
}

/* What a look at the logs has beyond the one before. */
static void put_rest(struct berth_call *c, enum berth_stream stream, const json_t *logs,
                     const char *member)
{
        const struct buf *have = stream == BERTH_STDERR ? &c->err : &c->out;
        const json_t *text = json_object_get(logs, member);
        const char *all = json_string_value(text);
        size_t len = json_string_length(text);

        if (all && len > have->len)
                berth_output(c, stream, all + have->len, len - have->len);
}

/* Follow a command of a session to its end: its status, 404, or -1; ERR_TIMEOUT. */
static int follow(struct berth_call *c, const struct setting *s, const char *base, int *ret_status)
{
        const char *logs_path = arena_printf(&c->arena, "%s/logs", base);
        int64_t pause = FIRST_MS;

        for (;;) {
                CLEAN(web_answer_done) struct web_answer a = { 0 };
                CLEAN(web_answer_done) struct web_answer b = { 0 };
                const json_t *said, *logs, *code;
                int r = ask_box(c, s, "GET", base, NULL, 0, &a);

                if (r == 0)
                        r = ask_box(c, s, "GET", logs_path, NULL, 0, &b);
                if (r != 0)
                        return r;
                said = service_object(c, &daytona, &a);
                logs = said ? service_object(c, &daytona, &b) : NULL;
                if (!logs)
                        return -1;
                put_rest(c, BERTH_STDOUT, logs, "stdout");
                put_rest(c, BERTH_STDERR, logs, "stderr");
                code = json_object_get(said, "exitCode");
                if (json_is_integer(code)) { /* the logs were read after the end */
                        *ret_status = (int)json_integer_value(code);
                        return 0;
                }
                pause = MIN(pause, MAX(berth_time_left(c, TIMEOUT_MS), 1));
                if (berth_time_left(c, TIMEOUT_MS) == 0 || !rest_for(c, &pause))
                        return ERR_TIMEOUT;
        }
}

static int run_in_session(struct berth_call *c, const struct setting *s, const char *path,
                          int *ret_status)
{
        CLEAN(web_answer_done) struct web_answer made = { 0 };
        CLEAN(web_answer_done) struct web_answer begun = { 0 };
        CLEAN(web_answer_done) struct web_answer ended = { 0 };
        const char *session = random_name(c, "berth-"), *command;
        const char *base = arena_printf(&c->arena, "/process/session/%s", session);
        int r = ask_box(c, s, "POST", "/process/session", json_pack("{s:s}", "sessionId", session),
                        0, &made);

        if (r != 0)
                return r;
        r = ask_box(c, s, "POST", arena_printf(&c->arena, "%s/exec", base),
                    json_pack("{s:o, s:b}", "command", json_sprintf("sh %s", path), "runAsync", 1),
                    0, &begun);
        if (r == 0) {
                command = json_get_string(service_object(c, &daytona, &begun), "cmdId");
                r = command ? follow(c, s, arena_printf(&c->arena, "%s/command/%s", base, command),
                                     ret_status)
                            : berth_fail(c, "Daytona answered without cmdId.");
        }
        /* With its session ends what a command left behind. */
        if (!berth_is_cancelled(c)) {
                bool failed = c->failed;

                (void)ask_box(c, s, "DELETE", base, NULL, 0, &ended);
                c->failed = failed;
        }
        return r;
}

/* One request to the end of a command: for calls of our own, which say little. */
static int run_at_once(struct berth_call *c, const struct setting *s, const char *line,
                       json_t *take_envs, int64_t timeout_ms, const json_t **ret,
                       struct web_answer *a)
{
        int r = ask_box(c, s, "POST", "/process/execute",
                        json_pack("{s:s, s:I, s:o}", "command", line, "timeout",
                                  (json_int_t)((timeout_ms + 999) / 1000), "envs", take_envs),
                        timeout_ms + REQUEST_MS, a);

        *ret = r == 0 ? service_object(c, &daytona, a) : NULL;
        return r == 0 && !*ret ? -1 : r;
}

static int run_script(struct berth_call *c, void *ctx, const char *script, int64_t timeout_ms,
                      struct buf *ret_out)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        CLEAN(buf_done) struct buf line = BUF_INIT;
        const json_t *said;
        int r;

        buf_puts(&line, "sh -c ");
        shell_quote(&line, script);
        r = run_at_once(c, ctx, buf_str(&line), json_object(), timeout_ms, &said, &a);
        if (r != 0)
                return r > 0 ? service_fail_status(c, &daytona, &a) : r;
        buf_puts(ret_out, json_get_string(said, "result") ? json_get_string(said, "result") : "");
        return (int)json_integer_value(json_object_get(said, "exitCode")) & 0xff;
}

/* A call of the stream to Berth's supervisor: little goes in and comes out, often. Its input goes
 * as a variable, which the shell turns into a pipe and forgets. */
static int run_channel_call(struct berth_call *c, const struct setting *s, const char *input)
{
        CLEAN(web_answer_done) struct web_answer a = { 0 };
        CLEAN(buf_done) struct buf line = BUF_INIT;
        const json_t *said;
        int r;

        buf_puts(&line,
                 "sh -c 'printf %s \"$BERTH_INPUT\" | { unset BERTH_INPUT; exec \"$@\"; }' sh ");
        shell_quote(&line, berth_command(c));
        for (const char *const *list = berth_arguments(c); *list; list++) {
                buf_putc(&line, ' ');
                shell_quote(&line, *list);
        }
        r = run_at_once(c, s, buf_str(&line), json_pack("{s:s}", "BERTH_INPUT", input),
                        berth_time_left(c, TIMEOUT_MS), &said, &a);
        if (r > 0)
                return end_badly(c, arena_printf(&c->arena,
                                                 "Daytona does not have the sandbox %s any more.",
                                                 berth_lease(c)));
        if (r < 0)
                return r;
        if (json_get_string(said, "result"))
                berth_output(c, BERTH_STDOUT, json_get_string(said, "result"),
                             strlen(json_get_string(said, "result")));
        berth_exit_set(c, (int)json_integer_value(json_object_get(said, "exitCode")));
        return 0;
}

static int execute(struct berth_call *c)
{
        size_t len;
        const char *input = berth_input(c, &len);
        struct setting s;
        const char *path;
        int status = 0, r = settings_of(c, &s);

        if (r < 0)
                return r;
        if (!berth_lease(c))
                return end_badly(c, NO_LEASE);
        if (berth_is_channel(c) && len > 0 && len <= INPUT_INLINE && strlen(input) == len)
                return run_channel_call(c, &s, input);
        r = put_script(c, &s, &path);
        if (r == 0)
                r = run_in_session(c, &s, path, &status);
        if (r == ERR_TIMEOUT) {
                berth_timed_out_set(c);
                return 0;
        }
        if (r > 0)
                return end_badly(c, arena_printf(&c->arena,
                                                 "Daytona does not have the sandbox %s any more.",
                                                 berth_lease(c)));
        berth_exit_set(c, status);
        return r;
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
        r = berth_lease(c) ? run_script(c, &s, buf_str(&script), s.timeout_ms, &out)
                           : berth_fail(c, "%s", NO_LEASE);
        if (r > 0)
                return berth_fail(c, "Daytona: the directory %s cannot be made: %s", cwd,
                                  buf_str(&out));
        berth_cwd_set(c, cwd);
        return r;
}

/* Files */

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
