/* Calls and messages of one worker. worker.h says which thread may touch what.
 *
 * Ids are integers from 1, of one process and of the next alike, so an answer that was printed by a
 * process that is gone can never be taken for an answer of its successor. */
#include <stdio.h>

#include "base/clock.h"
#include "plugin/worker.h"

#define NO_SECRETS "Plugin secret references are disabled until company-scoped plugin config lands"
#define EXECUTE    "environmentExecute"

/* Errors as callers see them */

static int rpc_fail(struct err *err, int code, int64_t rpc_code, const char *text)
{
        (void)err_set(err, code, "%s", text);
        if (rpc_code == RPC_WORKER_UNAVAILABLE)
                err_mark_transient(err);
        err_details(err, xasprintf("{\"code\":%lld}", (long long)rpc_code));
        return code;
}

/* The list */

static void call_free(struct rpc_call *c)
{
        free(c->method);
        free(c->company_id);
        free(c->line);
        free(c);
}

static struct rpc_call **find_id(struct worker *w, int64_t id)
{
        struct rpc_call **at = &w->calls;

        while (*at && (*at)->id != id)
                at = &(*at)->next;
        return at;
}

/* Under the lock. */
static struct rpc_call *unlink_call(struct worker *w, struct rpc_call **at)
{
        struct rpc_call *c = *at;

        *at = c->next;
        if (!c->next)
                w->calls_end = at;
        c->next = NULL;
        w->n_calls--;
        w->view.pending = w->n_calls;
        return c;
}

/* The answer, or that there is none. Takes the call, which is out of the list. */
static void rpc_settle(struct rpc_call *c, int code, const json_t *result, const struct err *err)
{
        if (c->gave_up) {
                if (c->late)
                        c->late(c->ctx, code < 0 ? NULL : result);
        } else {
                c->done(c->done_ctx, code, result, err);
        }
        call_free(c);
}

/* Beginning */

static int rpc_check_state(const struct worker *w, const char *method, struct err *err)
{
        char text[512];

        if (w->view.state != WORKER_STARTING && w->view.state != WORKER_RUNNING) {
                snprintf(text, sizeof(text), "Cannot call \"%s\" — worker for \"%s\" is %s", method,
                         w->id, worker_state_name(w->view.state));
                return rpc_fail(err, ERR_PROVIDER, RPC_WORKER_UNAVAILABLE, text);
        }
        if (w->n_calls >= WORKER_CALLS_MAX)
                return rpc_fail(err, ERR_BUSY, RPC_WORKER_UNAVAILABLE,
                                "The plugin's worker leaves too many calls unanswered.");
        return 0;
}

static void rpc_wake(struct worker *w)
{
        uint64_t one = 1;

        (void)!write(w->wake_fd, &one, sizeof(one));
}

int rpc_begin(struct worker *w, const struct plugin_call *call, plugin_done_fn done, void *done_ctx,
              int64_t *ret_id, struct err *err)
{
        int64_t limit = call->timeout_ms ? call->timeout_ms : w->config->times.call;
        struct rpc_call *c = xcalloc(1, sizeof(*c));
        CLEAN(json_decrefp) json_t *invocation = NULL;
        CLEAN(buf_done) struct buf line = { .max = WORKER_LINE_MAX };
        int r;

        *c = (struct rpc_call){ .method = xstrdup(call->method),
                                .company_id = call->company_id ? xstrdup(call->company_id) : NULL,
                                .invocation = uuid_new(),
                                .limit_ms = limit,
                                .deadline_ms = clock_mono_ms() + limit,
                                .done = done,
                                .done_ctx = done_ctx,
                                .on_output = call->output,
                                .late = call->late,
                                .ctx = call->ctx };
        if (c->company_id)
                invocation = json_pack("{s:s, s:{s:s}}", "id", c->invocation.s, "scope",
                                       "companyId", c->company_id);
        /* Written before the lock: the parameters may have many megabytes. */
        jsonrpc_put_request(&line, INT64_MAX, call->method, call->params, invocation);
        if (buf_failed(&line)) {
                call_free(c);
                return err_set(err, ERR_TOO_LARGE, "The parameters of \"%s\" are too large.",
                               call->method);
        }
        pthread_mutex_lock(&w->lock);
        r = rpc_check_state(w, call->method, err);
        if (r >= 0) {
                c->id = *ret_id = w->next_id++;
                c->line_len = line.len;
                c->line = buf_take(&line);
                secret_set_add(&w->secrets, call->redact);
                *w->calls_end = c;
                w->calls_end = &c->next;
                w->view.pending = ++w->n_calls;
        }
        pthread_mutex_unlock(&w->lock);
        if (r < 0)
                call_free(c);
        else
                rpc_wake(w);
        return r;
}

void rpc_abandon(struct worker *w, int64_t id, int code)
{
        struct rpc_call *c;

        pthread_mutex_lock(&w->lock);
        c = *find_id(w, id);
        if (c && !c->gave_up)
                c->abandoned = code;
        pthread_mutex_unlock(&w->lock);
        if (c)
                rpc_wake(w);
}

int64_t rpc_send_own(struct worker *w, const char *method, const json_t *params)
{
        CLEAN(buf_done) struct buf line = { .max = WORKER_LINE_MAX };
        int64_t id;

        pthread_mutex_lock(&w->lock);
        id = w->next_id++;
        jsonrpc_put_request(&line, id, method, params, NULL);
        buf_append(&w->out, buf_str(&line), line.len);
        pthread_mutex_unlock(&w->lock);
        return id;
}

/* Time */

static void rpc_give_up(struct worker *w, struct rpc_call *c)
{
        CLEAN(err_done) struct err err = { 0 };
        int code = c->abandoned ? c->abandoned : ERR_TIMEOUT;
        bool never_sent;
        char text[256];

        if (code == ERR_CANCELLED)
                snprintf(text, sizeof(text), "RPC call \"%s\" was given up.", c->method);
        else
                snprintf(text, sizeof(text), "RPC call \"%s\" timed out after %lldms", c->method,
                         (long long)c->limit_ms);
        (void)rpc_fail(&err, code, RPC_TIMEOUT, text);
        never_sent =
                c->line != NULL; /* then nothing can have happened, and nothing will come late */
        pthread_mutex_lock(&w->lock);
        c->gave_up = true;
        if (never_sent)
                (void)unlink_call(w, find_id(w, c->id));
        pthread_mutex_unlock(&w->lock);
        c->done(c->done_ctx, code, NULL, &err);
        if (!never_sent)
                return;
        if (c->late)
                c->late(c->ctx, NULL);
        call_free(c);
}

int64_t rpc_expire(struct worker *w)
{
        for (;;) {
                int64_t next = INT64_MAX, now = clock_mono_ms();
                struct rpc_call *c;

                pthread_mutex_lock(&w->lock);
                for (c = w->calls; c; c = c->next) {
                        if (c->gave_up)
                                continue;
                        if (c->abandoned || c->deadline_ms <= now)
                                break;
                        next = MIN(next, c->deadline_ms);
                }
                pthread_mutex_unlock(&w->lock);
                if (!c)
                        return next;
                rpc_give_up(w, c);
        }
}

/* The request was written with the largest id there is, because it was not known yet. */
static void append_line(struct worker *w, struct rpc_call *c)
{
        char placeholder[32], id[32];
        char *at;
        size_t head, old_len;

        old_len = (size_t)snprintf(placeholder, sizeof(placeholder), "%lld", (long long)INT64_MAX);
        snprintf(id, sizeof(id), "%lld", (long long)c->id);
        at = strstr(c->line, placeholder);
        head = (size_t)(at - c->line);
        buf_append(&w->out, c->line, head);
        buf_puts(&w->out, id);
        buf_append(&w->out, at + old_len, c->line_len - head - old_len);
        free(c->line);
        c->line = NULL;
}

void rpc_release_held(struct worker *w)
{
        pthread_mutex_lock(&w->lock);
        for (struct rpc_call *c = w->calls; c; c = c->next)
                if (c->line && !c->abandoned)
                        append_line(w, c);
        pthread_mutex_unlock(&w->lock);
}

/* The end of the process */

void rpc_fail_all(struct worker *w, const char *why)
{
        for (;;) {
                CLEAN(err_done) struct err err = { 0 };
                struct rpc_call *c;

                pthread_mutex_lock(&w->lock);
                c = w->calls ? unlink_call(w, &w->calls) : NULL;
                pthread_mutex_unlock(&w->lock);
                if (!c)
                        return;
                /* A call that was never handed over cannot have had an effect. */
                (void)rpc_fail(&err, c->line ? ERR_PROVIDER : ERR_UNCERTAIN, RPC_WORKER_UNAVAILABLE,
                               why);
                rpc_settle(c, err.code, NULL, &err);
        }
}

bool rpc_is_busy(struct worker *w)
{
        bool busy = false;

        pthread_mutex_lock(&w->lock);
        for (struct rpc_call *c = w->calls; c; c = c->next)
                busy = busy || !c->gave_up;
        pthread_mutex_unlock(&w->lock);
        return busy;
}

/* What the worker sends: answers */

static bool take_own_answer(struct worker *w, const struct jsonrpc *m, int64_t id)
{
        if (id == w->shutdown_id) {
                w->shutdown_answered = true;
                return true;
        }
        if (id != w->initialize_id || w->initialized)
                return false;
        if (m->error) {
                worker_fail(w, "%s", jsonrpc_error_text(m)); /* redacted when it is told */
        } else if (!json_is_true(json_object_get(m->result, "ok"))) {
                worker_fail(w, "Worker initialize returned ok=false");
        } else {
                json_t *methods = json_object_get(m->result, "supportedMethods");

                w->initialized = true;
                pthread_mutex_lock(&w->lock);
                json_decref(w->methods);
                w->methods = json_is_array(methods) ? json_incref(methods) : NULL;
                pthread_mutex_unlock(&w->lock);
        }
        return true;
}

static void rpc_answer(struct worker *w, struct rpc_call *c, const struct jsonrpc *m)
{
        CLEAN(err_done) struct err err = { 0 };
        char text[sizeof(err.msg)];

        if (m->error) {
                int64_t code = jsonrpc_error_code(m);

                worker_redact(w, jsonrpc_error_text(m), text, sizeof(text));
                (void)rpc_fail(&err,
                               code == RPC_METHOD_NOT_IMPLEMENTED ? ERR_NOT_IMPLEMENTED
                               : code == RPC_OUTCOME_UNKNOWN      ? ERR_UNCERTAIN
                                                                  : ERR_PROVIDER,
                               code, text);
                rpc_settle(c, err.code, NULL, &err);
        } else if (m->has_nul && !streq(c->method, EXECUTE)) {
                /* U+0000 is fine in what a command printed, but nothing that holds one can be
                 * stored: such an answer says that something happened and not what. */
                snprintf(text, sizeof(text), "The worker's answer to \"%s\" holds U+0000.",
                         c->method);
                (void)rpc_fail(&err, ERR_UNCERTAIN, RPC_WORKER_ERROR, text);
                rpc_settle(c, err.code, NULL, &err);
        } else {
                rpc_settle(c, 0, m->result, NULL);
        }
}

static void take_response(struct worker *w, const struct jsonrpc *m)
{
        int64_t id = jsonrpc_own_id(m);
        struct rpc_call **at, *c = NULL;

        if (id && take_own_answer(w, m, id))
                return;
        pthread_mutex_lock(&w->lock);
        at = find_id(w, id);
        if (id && *at && !(*at)->line)
                c = unlink_call(w, at);
        pthread_mutex_unlock(&w->lock);
        if (c)
                rpc_answer(w, c, m);
        else
                worker_note(w, "received response for unknown request id", "", 0);
}

/* Requests of the worker */

static void put_answer(struct worker *w, const json_t *id, const json_t *result, int code,
                       const char *text)
{
        pthread_mutex_lock(&w->lock);
        if (text)
                jsonrpc_put_error(&w->out, id, code, text);
        else
                jsonrpc_put_result(&w->out, id, result);
        pthread_mutex_unlock(&w->lock);
}

static void take_log(struct worker *w, const struct jsonrpc *m)
{
        worker_log(w, json_get_string(m->params, "level"), json_get_string(m->params, "message"),
                   json_object_get(m->params, "meta"));
}

static void take_request(struct worker *w, const struct jsonrpc *m)
{
        if (streq(m->method, "config.get")) {
                put_answer(w, m->id, w->plugin_config, 0, NULL);
        } else if (streq(m->method, "log")) {
                take_log(w, m);
                put_answer(w, m->id, NULL, 0, NULL);
        } else if (streq(m->method, "secrets.resolve")) {
                put_answer(w, m->id, NULL, RPC_INTERNAL_ERROR, NO_SECRETS);
        } else {
                CLEAN(cleanup_free)
                char *text = xasprintf("Host does not handle method \"%.100s\"", m->method);

                put_answer(w, m->id, NULL, RPC_METHOD_NOT_FOUND, text);
        }
}

/* Notifications */

/* Length as JavaScript counts it. */
static size_t utf16_length(const char *s, size_t n)
{
        size_t units = 0;

        for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)s[i];

                units += (c & 0xc0) != 0x80;
                units += c >= 0xf0;
        }
        return units;
}

/* Under the lock. Output is passed on only while one company's commands run in the worker: one that
 * mixes its calls up must not show one company's output to another. */
static bool one_company_runs(const struct worker *w, const struct rpc_call *mine)
{
        for (const struct rpc_call *c = w->calls; c; c = c->next)
                if (streq(c->method, EXECUTE) && c->company_id && mine->company_id &&
                    !streq(c->company_id, mine->company_id))
                        return false;
        return true;
}

static struct rpc_call *find_execution(struct worker *w, const char *invocation)
{
        struct rpc_call *c = w->calls;

        while (c && (!invocation || !streq(c->invocation.s, invocation)))
                c = c->next;
        return c && streq(c->method, EXECUTE) && !c->line && !c->gave_up ? c : NULL;
}

static void take_output(struct worker *w, const struct jsonrpc *m)
{
        const char *stream = json_get_string(m->params, "stream");
        const json_t *chunk = json_object_get(m->params, "chunk");
        const char *text = json_string_value(chunk);
        size_t len = json_string_length(chunk);
        struct rpc_call *c;
        bool is_stderr;

        if (!stream || !text || len == 0)
                return;
        is_stderr = streq(stream, "stderr");
        pthread_mutex_lock(&w->lock);
        c = find_execution(w, m->invocation_id);
        if (c && (utf16_length(text, len) > WORKER_CHUNK_MAX ||
                  c->output + len > WORKER_OUTPUT_MAX || !one_company_runs(w, c)))
                c->gap = true;
        pthread_mutex_unlock(&w->lock);
        /* Only this thread takes calls out of the list, so c stays. */
        if (!c || c->gap || !c->on_output || (!is_stderr && !streq(stream, "stdout")))
                return;
        c->output += len;
        c->on_output(c->ctx, is_stderr, text, len);
}

/* Lines that make no sense are counted against the worker's speed: a flood of them is read slowly
 * instead of keeping a processor busy. */
static void take_junk(struct worker *w, const char *what, const char *line, size_t len)
{
        worker_note(w, what, line, len);
        if (++w->junk % WORKER_LOG_BURST == 0)
                w->read_again_ms = clock_mono_ms() + 10;
}

int rpc_take_line(void *ctx, const char *line, size_t len)
{
        struct worker *w = ctx;
        struct jsonrpc m;

        if (jsonrpc_parse(line, len, &m, NULL) < 0) {
                take_junk(w, "unparseable message from worker", line, len);
                return 0;
        }
        switch (m.kind) {
        case JSONRPC_RESPONSE:
                take_response(w, &m);
                break;
        case JSONRPC_REQUEST:
                take_request(w, &m);
                break;
        case JSONRPC_NOTIFICATION:
                if (streq(m.method, "log"))
                        take_log(w, &m);
                else if (streq(m.method, "execute.log"))
                        take_output(w, &m);
                break;
        default:
                take_junk(w, "unknown message type from worker", line, len);
        }
        jsonrpc_done(&m);
        return 0;
}
