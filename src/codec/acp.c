/* Decides what the client of an ACP agent says, and what of the agent's words becomes an event. */
#include "codec/acp.h"

#include "base/utf8.h"
#include "codec/jsonrpc.h"
#include "codec/ndjson.h"

#define PROTOCOL_VERSION 1
#define AUTH_REQUIRED    (-32000)

#define FULL_AT     ((size_t)1 << 20)
#define CHOICES_MAX 600                /* of a message that lists what could be chosen */
#define TEXT_MAX    ((size_t)32 << 10) /* of a text in an event */
#define LIST_MAX    100                /* elements of a list in an event */
#define EVENT_MAX   ((size_t)256 << 10)
#define MESSAGE_MAX ((size_t)128 << 10) /* of the agent's last message, and of a thought */

enum phase {
        PHASE_INITIALIZE,
        PHASE_OPEN,
        PHASE_AUTHENTICATE,
        PHASE_SETTLE,
        PHASE_MODE,
        PHASE_MODEL,
        PHASE_PROMPT,
        PHASE_OVER,
};

struct acp {
        const struct acp_config *config;
        const struct acp_files *files;
        enum phase phase;
        struct ndjson lines;
        struct buf to_agent, events;
        int64_t last_id;      /* of the request under way */
        const char *method;   /* and its method */
        json_t *capabilities; /* agentCapabilities */
        json_t *auth_methods;
        json_t *session;     /* what the opening request was answered with */
        char *session_id;    /* NULL: none yet */
        struct buf message;  /* the agent's last message so far */
        struct buf thought;  /* one that goes on */
        json_t *tool;        /* a tool call whose input is not complete; NULL: none */
        bool message_broken; /* what comes next begins another message */
        bool has_asked_auth, is_cancelled, is_good;
};

int acp_permission_of(const char *word)
{
        static const char *const words[] = {
                [ACP_REJECT] = "reject",
                [ACP_ALLOW_READS] = "allow-reads",
                [ACP_ALLOW_ONCE] = "allow-once",
                [ACP_ALLOW_ALWAYS] = "allow-always",
        };

        for (size_t i = 0; i < ARRAY_LEN(words); i++)
                if (streq(word, words[i]))
                        return (int)i;
        return -1;
}

/* -- Events ------------------------------------------------------------------------------------ */

/* How much of a text is shown: whole characters. */
static size_t shown_len(const char *text, size_t len, size_t max)
{
        if (len <= max)
                return len;
        while (max > 0 && ((unsigned char)text[max] & 0xc0) == 0x80)
                max--;
        return max;
}

/* Cut what is long, in place; the depth is bounded by the parser. */
static void cut_value(json_t *v)
{
        const char *key;
        json_t *one;
        size_t i;

        if (json_is_string(v) && json_string_length(v) > TEXT_MAX) {
                char *text =
                        xstrndup(json_string_value(v),
                                 shown_len(json_string_value(v), json_string_length(v), TEXT_MAX));
                char *cut = xasprintf("%s…", text);

                (void)json_string_set_nocheck(v, cut);
                free(cut);
                free(text);
        }
        while (json_array_size(v) > LIST_MAX)
                json_array_remove(v, json_array_size(v) - 1);
        json_array_foreach(v, i, one) cut_value(one);
        json_object_foreach(v, key, one) cut_value(one);
}

static void put_event(struct acp *a, json_t *take_event)
{
        CLEAN(json_decrefp) json_t *event = take_event;
        CLEAN(buf_done) struct buf line = BUF_INIT;

        cut_value(event);
        json_put(&line, event);
        if (line.len > EVENT_MAX || buf_failed(&line)) {
                json_t *update = json_object_get(event, "update");

                /* What makes a tool call one, without what it says. */
                buf_clear(&line);
                json_object_del(update, "content");
                json_object_del(update, "rawInput");
                json_object_del(update, "rawOutput");
                json_object_del(update, "locations");
                json_object_del(update, "_meta");
                json_put(&line, event);
                if (line.len > EVENT_MAX || buf_failed(&line))
                        return;
        }
        buf_putc(&line, '\n');
        buf_append(&a->events, line.data, line.len);
}

static json_t *text_value(const char *text, size_t len, size_t max)
{
        json_t *v = json_stringn(text, shown_len(text, len, max));

        return v ? v : json_string("\xef\xbf\xbd");
}

/* What is only known to be whole when something else comes. */
static void flush_held(struct acp *a)
{
        if (a->thought.len > 0)
                put_event(a, json_pack("{s:s, s:o}", "type", "thought", "text",
                                       text_value(a->thought.data, a->thought.len, TEXT_MAX)));
        buf_clear(&a->thought);
        if (a->tool)
                put_event(a, json_pack("{s:s, s:o}", "type", "tool", "update", take_ptr(&a->tool)));
}

static void put_error(struct acp *a, int64_t code, const char *text)
{
        flush_held(a);
        put_event(a, json_pack("{s:s, s:s, s:I, s:o}", "type", "error", "method",
                               a->method ? a->method : "", "code", (json_int_t)code, "message",
                               text_value(text, strlen(text), TEXT_MAX)));
}

static void put_note(struct acp *a, const char *text)
{
        put_event(a, json_pack("{s:s, s:s}", "type", "note", "text", text));
}

/* -- Requests of ours -------------------------------------------------------------------------- */

static void send_request(struct acp *a, enum phase phase, const char *method, json_t *take_params)
{
        a->phase = phase;
        a->method = method;
        jsonrpc_put_request(&a->to_agent, ++a->last_id, method, take_params, NULL);
        json_decref(take_params);
}

static void begin_session(struct acp *a)
{
        const struct acp_config *c = a->config;
        const json_t *more = json_get_object(a->capabilities, "sessionCapabilities");
        const json_t *resume = json_object_get(more, "resume");
        json_t *params = json_pack("{s:s, s:[]}", "cwd", c->cwd, "mcpServers");

        if (!c->session) {
                send_request(a, PHASE_OPEN, "session/new", params);
                return;
        }
        json_object_set_new(params, "sessionId", json_string(c->session));
        if (resume && !json_is_null(resume)) {
                send_request(a, PHASE_OPEN, "session/resume", params);
        } else if (json_is_true(json_object_get(a->capabilities, "loadSession"))) {
                send_request(a, PHASE_OPEN, "session/load", params);
        } else {
                json_decref(params);
                a->method = "session/load";
                /* A prompt for a session that goes on does not say what a new one has to know. */
                acp_fail(a, "unknown session: the agent cannot load sessions");
        }
}

static void begin_prompt(struct acp *a)
{
        const struct acp_config *c = a->config;

        send_request(a, PHASE_PROMPT, "session/prompt",
                     json_pack("{s:s, s:[{s:s, s:o}]}", "sessionId", a->session_id, "prompt",
                               "type", "text", "text",
                               text_value(c->prompt, c->prompt_len, c->prompt_len)));
}

/* The option of a session that has the category; NULL: none. */
static const json_t *find_option(const json_t *session, const char *category)
{
        const json_t *options = json_object_get(session, "configOptions");
        json_t *one;
        size_t i;

        json_array_foreach((json_t *)options, i, one)
        {
                const char *is = json_get_string(one, "category");

                if (json_get_string(one, "id") && is && streq(is, category))
                        return one;
        }
        return NULL;
}

static void set_option(struct acp *a, enum phase phase, const json_t *option, const char *value)
{
        send_request(a, phase, "session/set_config_option",
                     json_pack("{s:s, s:s, s:s}", "sessionId", a->session_id, "configId",
                               json_get_string(option, "id"), "value", value));
}

/* What can be chosen, as far as it fits into a message. */
static void put_choices(const struct acp *a, const char *category, struct buf *text)
{
        const json_t *choices = json_object_get(find_option(a->session, category), "options");
        const char *between = "; the agent offers ";
        json_t *one;
        size_t i;

        json_array_foreach((json_t *)choices, i, one)
        {
                const char *value = json_get_string(one, "value");

                if (!value || text->len + strlen(value) > CHOICES_MAX)
                        continue;
                buf_appendf(text, "%s%s", between, value);
                between = ", ";
        }
}

/* Protocol 1 had session/set_model once, and agents offer `models` still. */
static void begin_model(struct acp *a)
{
        const char *model = a->config->model;
        const json_t *option = model ? find_option(a->session, "model") : NULL;

        if (option) {
                set_option(a, PHASE_MODEL, option, model);
        } else if (model && json_get_object(a->session, "models")) {
                send_request(a, PHASE_MODEL, "session/set_model",
                             json_pack("{s:s, s:s}", "sessionId", a->session_id, "modelId", model));
        } else {
                if (model)
                        put_note(a, "the agent offers no choice of a model and uses its own");
                begin_prompt(a);
        }
}

static void begin_mode(struct acp *a)
{
        const char *mode = a->config->mode;
        const json_t *option = mode ? find_option(a->session, "mode") : NULL;

        if (mode && json_get_object(a->session, "modes"))
                send_request(a, PHASE_MODE, "session/set_mode",
                             json_pack("{s:s, s:s}", "sessionId", a->session_id, "modeId", mode));
        else if (option)
                set_option(a, PHASE_MODE, option, mode);
        else
                begin_model(a);
}

/* -- Its answers ------------------------------------------------------------------------------- */

static void on_initialized(struct acp *a, const json_t *result)
{
        const json_t *version = json_object_get(result, "protocolVersion");
        json_t *info = json_get_object(result, "agentInfo");

        if (!json_is_integer(version) || json_integer_value(version) != PROTOCOL_VERSION) {
                acp_fail(a, "the agent does not speak version 1 of the protocol");
                return;
        }
        put_event(a, json_pack("{s:s, s:O*}", "type", "agent", "agent", info));
        a->capabilities = json_incref(json_get_object(result, "agentCapabilities"));
        a->auth_methods = json_incref(json_object_get(result, "authMethods"));
        begin_session(a);
}

static const char *offered_method(const struct acp *a)
{
        for (const char *const *want = a->config->auth; want && *want; want++) {
                json_t *one;
                size_t i;

                json_array_foreach(a->auth_methods, i, one)
                {
                        const char *id = json_get_string(one, "id");

                        if (id && streq(id, *want))
                                return *want;
                }
        }
        return NULL;
}

/* The session cannot be opened without a login: log in, and try again. */
static bool begin_login(struct acp *a)
{
        const char *method = a->has_asked_auth ? NULL : offered_method(a);

        if (!method)
                return false;
        a->has_asked_auth = true;
        send_request(a, PHASE_AUTHENTICATE, "authenticate", json_pack("{s:s}", "methodId", method));
        return true;
}

static void on_opened(struct acp *a, json_t *result)
{
        const char *id =
                a->config->session ? a->config->session : json_get_string(result, "sessionId");
        const json_t *models = json_get_object(result, "models");

        if (!id || !*id) {
                acp_fail(a, "the agent's answer to session/new has no sessionId");
                return;
        }
        a->session_id = xstrdup(id);
        a->session = json_incref(result);
        put_event(a, json_pack("{s:s, s:s, s:b, s:s*}", "type", "session", "sessionId", id,
                               "resumed", a->config->session != NULL, "model",
                               a->config->model ? a->config->model
                                                : json_get_string(models, "currentModelId")));
        if (streq(a->method, "session/load"))
                a->phase = PHASE_SETTLE;
        else
                begin_mode(a);
}

static void on_prompted(struct acp *a, json_t *result)
{
        const char *reason = json_get_string(result, "stopReason");
        json_t *usage = json_get_object(result, "usage");
        json_t *meta = json_get_object(result, "_meta");

        flush_held(a);
        a->is_good = reason && streq(reason, "end_turn");
        put_event(a, json_pack("{s:s, s:s, s:o*, s:O*, s:O*}", "type", "result", "stopReason",
                               reason ? reason : "none", "text",
                               a->message.len > 0
                                       ? text_value(a->message.data, a->message.len, TEXT_MAX)
                                       : NULL,
                               "usage", usage, "_meta", meta));
        a->phase = PHASE_OVER;
}

static void on_refused(struct acp *a, const struct jsonrpc *m)
{
        const char *details = json_get_string(json_object_get(m->error, "data"), "details");
        CLEAN(cleanup_free) char *text = NULL;

        if (a->phase == PHASE_OPEN && jsonrpc_error_code(m) == AUTH_REQUIRED && begin_login(a))
                return;
        if (a->phase == PHASE_MODE || a->phase == PHASE_MODEL) {
                bool is_model = a->phase == PHASE_MODEL;
                CLEAN(buf_done) struct buf refusal = BUF_INIT;

                buf_appendf(&refusal, "%s %s was refused: %s", is_model ? "model" : "mode",
                            is_model ? a->config->model : a->config->mode, jsonrpc_error_text(m));
                put_choices(a, is_model ? "model" : "mode", &refusal);
                acp_fail(a, buf_str(&refusal));
                return;
        }
        text = xasprintf("%s%s%s%s",
                         a->phase == PHASE_OPEN && a->config->session &&
                                         jsonrpc_error_code(m) != AUTH_REQUIRED
                                 ? "unknown session: "
                                 : "",
                         jsonrpc_error_text(m), details ? ": " : "", details ? details : "");
        put_error(a, jsonrpc_error_code(m), text);
        a->phase = PHASE_OVER;
}

static void on_response(struct acp *a, const struct jsonrpc *m)
{
        json_t *result = json_is_object(m->result) ? m->result : NULL;

        if (a->phase == PHASE_OVER || jsonrpc_own_id(m) != a->last_id)
                return;
        if (m->error) {
                on_refused(a, m);
                return;
        }
        switch (a->phase) {
        case PHASE_INITIALIZE:
                on_initialized(a, result);
                break;
        case PHASE_AUTHENTICATE:
                begin_session(a);
                break;
        case PHASE_OPEN:
                on_opened(a, result);
                break;
        case PHASE_SETTLE:
                break;
        case PHASE_MODE:
                begin_model(a);
                break;
        case PHASE_MODEL:
                begin_prompt(a);
                break;
        case PHASE_PROMPT:
                on_prompted(a, result);
                break;
        case PHASE_OVER:
                break;
        }
}

/* -- What it reports --------------------------------------------------------------------------- */

static void add_bounded(struct buf *b, const char *text, size_t len)
{
        if (b->len < MESSAGE_MAX)
                buf_append(b, text, shown_len(text, len, MESSAGE_MAX - b->len));
}

/* The text of a content block; one that is no text is named. A new reference. */
static json_t *content_text(const json_t *content)
{
        json_t *text = json_object_get(content, "text");
        const char *type = json_get_string(content, "type"), *uri = json_get_string(content, "uri");

        if (json_is_string(text))
                return json_incref(text);
        if (uri)
                return json_string(uri);
        return json_sprintf("[%.40s]", type ? type : "content");
}

static void on_message(struct acp *a, const json_t *update)
{
        CLEAN(json_decrefp)
        json_t *text = content_text(json_object_get(update, "content"));

        flush_held(a);
        if (a->message_broken)
                buf_clear(&a->message);
        a->message_broken = false;
        add_bounded(&a->message, json_string_value(text), json_string_length(text));
        put_event(a, json_pack("{s:s, s:O}", "type", "message", "text", text));
}

static void on_thought(struct acp *a, const json_t *update)
{
        CLEAN(json_decrefp)
        json_t *text = content_text(json_object_get(update, "content"));

        if (a->tool)
                flush_held(a);
        add_bounded(&a->thought, json_string_value(text), json_string_length(text));
}

static void on_plan(struct acp *a, json_t *update)
{
        json_t *entries = json_object_get(update, "entries"), *one;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        size_t i;

        json_array_foreach(entries, i, one)
        {
                const char *status = json_get_string(one, "status");
                const char *content = json_get_string(one, "content");

                if (i == LIST_MAX || !content)
                        break;
                buf_appendf(&text, "%s[%c] ", i ? "\n" : "",
                            status && streq(status, "completed")     ? 'x'
                            : status && streq(status, "in_progress") ? '>'
                                                                     : ' ');
                buf_append(&text, content, shown_len(content, strlen(content), 1000));
        }
        if (!json_is_array(entries))
                return;
        put_event(a, json_pack("{s:s, s:o, s:O}", "type", "plan", "text",
                               text_value(buf_str(&text), text.len, TEXT_MAX), "entries", entries));
}

static bool has_status(const json_t *update, const char *one, const char *other)
{
        const char *status = json_get_string(update, "status");

        return status && (streq(status, one) || (other && streq(status, other)));
}

static bool is_same_call(const json_t *a, const json_t *b)
{
        return a && json_equal(json_object_get(a, "toolCallId"), json_object_get(b, "toolCallId"));
}

/* Agents report a call while its input still comes, some with each word of it: two events are made
 * of all that, one when the call begins to work and one when it has ended. */
static void on_tool(struct acp *a, json_t *update)
{
        bool begins = streq(json_get_string(update, "sessionUpdate"), "tool_call");
        bool has_ended = has_status(update, "completed", "failed");

        if (begins) {
                flush_held(a);
                a->tool = json_incref(update);
        } else if (is_same_call(a->tool, update)) {
                const char *key;
                json_t *value;

                json_object_foreach(update, key, value)
                {
                        if (!json_is_null(value) && !streq(key, "sessionUpdate") &&
                            !(has_ended && streq(key, "status")))
                                json_object_set(a->tool, key, value);
                }
        }
        if (has_ended || has_status(a->tool, "in_progress", NULL))
                flush_held(a);
        if (has_ended && !begins)
                put_event(a, json_pack("{s:s, s:o}", "type", "tool", "update",
                                       json_deep_copy(update)));
}

static void on_usage(struct acp *a, json_t *update)
{
        put_event(a, json_pack("{s:s, s:O*, s:O*, s:O*}", "type", "usage", "used",
                               json_object_get(update, "used"), "size",
                               json_object_get(update, "size"), "cost",
                               json_get_object(update, "cost")));
}

/* Other updates are for clients with a window. */
static const struct {
        const char *name;
        void (*run)(struct acp *a, json_t *update);
        bool ends_message;
} updates[] = {
        { "tool_call", on_tool, true },
        { "tool_call_update", on_tool, true },
        { "plan", on_plan, false },
        { "usage_update", on_usage, false },
};

static void on_update(struct acp *a, const json_t *params)
{
        json_t *update = json_get_object(params, "update");
        const char *name = json_get_string(update, "sessionUpdate");
        const char *session = json_get_string(params, "sessionId");

        /* Before the prompt these are what was said in a session that is loaded; those of another
         * session are a subagent's, whose work its parent reports. */
        if (!name || a->phase != PHASE_PROMPT || (session && !streq(session, a->session_id)))
                return;
        if (streq(name, "agent_message_chunk"))
                on_message(a, update);
        if (streq(name, "agent_thought_chunk"))
                on_thought(a, update);
        for (size_t i = 0; i < ARRAY_LEN(updates); i++) {
                if (!streq(name, updates[i].name))
                        continue;
                if (updates[i].run != on_tool)
                        flush_held(a);
                a->message_broken = a->message_broken || updates[i].ends_message;
                updates[i].run(a, update);
        }
}

/* -- What it asks for -------------------------------------------------------------------------- */

static const json_t *find_choice(const json_t *options, const char *kind)
{
        json_t *one;
        size_t i;

        json_array_foreach((json_t *)options, i, one)
        {
                const char *is = json_get_string(one, "kind");

                if (is && streq(is, kind) && json_get_string(one, "optionId"))
                        return one;
        }
        return NULL;
}

static bool only_reads(const json_t *call)
{
        static const char *const kinds[] = { "read", "search", "think" };
        const char *kind = json_get_string(call, "kind");

        for (size_t i = 0; kind && i < ARRAY_LEN(kinds); i++)
                if (streq(kind, kinds[i]))
                        return true;
        return false;
}

/* By the policy; NULL: it has no such choice, and the answer is `cancelled`. */
static const json_t *choose_permission(const struct acp *a, const json_t *params)
{
        static const char *const wanted[][2] = {
                [ACP_REJECT] = { "reject_once", "reject_always" },
                [ACP_ALLOW_ONCE] = { "allow_once", "allow_always" },
                [ACP_ALLOW_ALWAYS] = { "allow_always", "allow_once" },
        };
        const json_t *options = json_object_get(params, "options"), *choice;
        enum acp_permission policy = a->config->permission;

        if (a->is_cancelled || a->phase != PHASE_PROMPT)
                return NULL;
        if (policy == ACP_ALLOW_READS)
                policy = only_reads(json_object_get(params, "toolCall")) ? ACP_ALLOW_ONCE
                                                                         : ACP_REJECT;
        choice = find_choice(options, wanted[policy][0]);
        return choice ? choice : find_choice(options, wanted[policy][1]);
}

static int on_permission(struct acp *a, const json_t *params, json_t **ret, struct err *err UNUSED)
{
        const json_t *choice = choose_permission(a, params);
        const char *id = json_get_string(choice, "optionId");
        const char *outcome = id ? json_get_string(choice, "kind") : "cancelled";
        json_t *call = json_get_object(params, "toolCall");

        flush_held(a);
        put_event(
                a,
                json_pack("{s:s, s:s, s:s, s:s*, s:{s:O*, s:O*, s:O*}}", "type", "permission",
                          "outcome", outcome, "text",
                          str_starts(outcome, "allow") ? "permission given" : "permission refused",
                          "optionId", id, "toolCall", "toolCallId",
                          json_object_get(call, "toolCallId"), "title",
                          json_object_get(call, "title"), "kind", json_object_get(call, "kind")));
        *ret = id ? json_pack("{s:{s:s, s:s}}", "outcome", "outcome", "selected", "optionId", id)
                  : json_pack("{s:{s:s}}", "outcome", "outcome", "cancelled");
        return 0;
}

/* From line `line` on, at most `limit` lines; both begin at 1. */
static void choose_lines(const json_t *params, const char **text, size_t *len)
{
        const json_t *from = json_object_get(params, "line"),
                     *limit = json_object_get(params, "limit");
        const char *at = *text, *end = *text + *len;

        for (json_int_t i = 1; json_is_integer(from) && i < json_integer_value(from) && at < end;
             i++) {
                const char *nl = memchr(at, '\n', (size_t)(end - at));

                at = nl ? nl + 1 : end;
        }
        *text = at;
        for (json_int_t i = 0; json_is_integer(limit) && at < end; i++) {
                const char *nl = memchr(at, '\n', (size_t)(end - at));

                if (i >= json_integer_value(limit)) {
                        end = at;
                        break;
                }
                at = nl ? nl + 1 : end;
        }
        *len = (size_t)(end - *text);
}

static const char *file_path(const json_t *params, struct err *err)
{
        const json_t *path = json_object_get(params, "path");
        const char *text = json_string_value(path);

        if (text && *text && strlen(text) == json_string_length(path))
                return text;
        (void)err_set(err, ERR_INVALID, "the request names no path");
        return NULL;
}

static int on_read(struct acp *a, const json_t *params, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf content = BUF_INIT;
        const char *path = file_path(params, err), *text;
        size_t len;
        int r = path ? a->files->read(a->files->ctx, path, &content, err) : ERR_INVALID;

        if (r < 0)
                return r;
        text = buf_str(&content);
        len = content.len;
        choose_lines(params, &text, &len);
        if (!utf8_is_valid(text, len))
                return err_set(err, ERR_INVALID, "%s is not a text", path);
        *ret = json_pack("{s:o}", "content", json_stringn_nocheck(text, len));
        return 0;
}

static int on_write(struct acp *a, const json_t *params, json_t **ret, struct err *err)
{
        const json_t *content = json_object_get(params, "content");
        const char *path = file_path(params, err);

        if (!path)
                return ERR_INVALID;
        if (!json_is_string(content) || json_string_length(content) > ACP_FILE_MAX)
                return err_set(err, ERR_INVALID, "the content is no text of at most %zu bytes",
                               ACP_FILE_MAX);
        *ret = json_object();
        return a->files->write(a->files->ctx, path, json_string_value(content),
                               json_string_length(content), err);
}

static const struct {
        const char *method;
        int (*run)(struct acp *a, const json_t *params, json_t **ret, struct err *err);
} requests[] = {
        { "session/request_permission", on_permission },
        { "fs/read_text_file", on_read },
        { "fs/write_text_file", on_write },
};

static void on_request(struct acp *a, const struct jsonrpc *m)
{
        CLEAN(json_decrefp) json_t *result = NULL;
        CLEAN(err_done) struct err err = { 0 };

        for (size_t i = 0; i < ARRAY_LEN(requests); i++) {
                if (!streq(m->method, requests[i].method))
                        continue;
                if (requests[i].run(a, m->params, &result, &err) < 0)
                        jsonrpc_put_error(&a->to_agent, m->id, RPC_INTERNAL_ERROR, err.msg);
                else
                        jsonrpc_put_result(&a->to_agent, m->id, result);
                return;
        }
        jsonrpc_put_error(&a->to_agent, m->id, RPC_METHOD_NOT_FOUND, "Method not found");
}

/* -- Its life ---------------------------------------------------------------------------------- */

static int on_line(void *ctx, const char *line, size_t len)
{
        struct acp *a = ctx;
        struct jsonrpc m = { 0 };

        if (jsonrpc_parse(line, len, &m, NULL) < 0) {
                put_event(a, json_pack("{s:s, s:o}", "type", "noise", "text",
                                       text_value(line, len, 1000)));
                return 0;
        }
        switch (m.kind) {
        case JSONRPC_RESPONSE:
                on_response(a, &m);
                break;
        case JSONRPC_REQUEST:
                on_request(a, &m);
                break;
        case JSONRPC_NOTIFICATION:
                if (streq(m.method, "session/update"))
                        on_update(a, m.params);
                break;
        case JSONRPC_UNKNOWN:
                break;
        }
        jsonrpc_done(&m);
        return 0;
}

struct acp *acp_new(const struct acp_config *config, const struct acp_files *files)
{
        struct acp *a = xcalloc(1, sizeof(*a));

        a->config = config;
        a->files = files;
        ndjson_init(&a->lines, ACP_LINE_MAX, on_line, a);
        send_request(a, PHASE_INITIALIZE, "initialize",
                     json_pack("{s:i, s:{s:{s:b, s:b}, s:b}, s:{s:s, s:s}}", "protocolVersion",
                               PROTOCOL_VERSION, "clientCapabilities", "fs", "readTextFile", 1,
                               "writeTextFile", 1, "terminal", 0, "clientInfo", "name", "berth",
                               "version", BERTH_VERSION));
        return a;
}

void acp_free(struct acp *a)
{
        if (!a)
                return;
        ndjson_done(&a->lines);
        buf_done(&a->to_agent);
        buf_done(&a->events);
        buf_done(&a->message);
        buf_done(&a->thought);
        json_decref(a->capabilities);
        json_decref(a->auth_methods);
        json_decref(a->session);
        json_decref(a->tool);
        free(a->session_id);
        free(a);
}

void acp_feed(struct acp *a, const char *data, size_t len)
{
        if (a->phase == PHASE_OVER)
                return;
        if (ndjson_feed(&a->lines, data, len, NULL) < 0)
                acp_fail(a, "the agent sent a line that is too long");
}

void acp_fail(struct acp *a, const char *why)
{
        if (a->phase == PHASE_OVER)
                return;
        put_error(a, RPC_INTERNAL_ERROR, why);
        a->phase = PHASE_OVER;
}

void acp_end(struct acp *a, const char *how)
{
        CLEAN(cleanup_free) char *text = xasprintf("the agent ended during %s: %s", a->method, how);

        acp_fail(a, text);
}

void acp_cancel(struct acp *a)
{
        struct jw w;

        if (a->is_cancelled || a->phase == PHASE_OVER)
                return;
        a->is_cancelled = true;
        if (a->phase != PHASE_PROMPT) {
                acp_fail(a, "cancelled before the prompt");
                return;
        }
        jw_init(&w, &a->to_agent);
        jw_object(&w);
        jw_kstring(&w, "jsonrpc", "2.0");
        jw_kstring(&w, "method", "session/cancel");
        jw_key(&w, "params");
        jw_object(&w);
        jw_kstring(&w, "sessionId", a->session_id);
        jw_object_end(&w);
        jw_object_end(&w);
        buf_putc(&a->to_agent, '\n');
}

bool acp_is_settling(const struct acp *a)
{
        return a->phase == PHASE_SETTLE;
}

void acp_settled(struct acp *a)
{
        if (a->phase == PHASE_SETTLE)
                begin_mode(a);
}

struct buf *acp_to_agent(struct acp *a)
{
        return &a->to_agent;
}

struct buf *acp_events(struct acp *a)
{
        return &a->events;
}

bool acp_is_full(const struct acp *a)
{
        return a->to_agent.len > FULL_AT || a->events.len > FULL_AT;
}

bool acp_has_prompted(const struct acp *a)
{
        return a->phase >= PHASE_PROMPT;
}

bool acp_is_over(const struct acp *a)
{
        return a->phase == PHASE_OVER;
}

bool acp_is_good(const struct acp *a)
{
        return a->is_good;
}
