/* Which kind a JSON-RPC message is, and writing messages. */
#include "codec/jsonrpc.h"

static bool holds_nul(const json_t *v)
{
        json_t *child;
        size_t i;

        if (json_is_string(v))
                return strlen(json_string_value(v)) != json_string_length(v);
        if (json_is_array(v)) {
                json_array_foreach(v, i, child) if (holds_nul(child)) return true;
        } else if (json_is_object(v)) {
                for (void *it = json_object_iter((json_t *)v); it;
                     it = json_object_iter_next((json_t *)v, it))
                        if (holds_nul(json_object_iter_value(it)))
                                return true;
        }
        return false;
}

static bool is_version_2(const json_t *doc)
{
        const char *version = json_get_string(doc, "jsonrpc");

        return version && streq(version, "2.0");
}

/* The order matters: an answer may carry a method too. */
static enum jsonrpc_kind classify_message(const struct jsonrpc *m)
{
        bool has_result = json_object_get(m->doc, "result") != NULL;

        if (m->id && (has_result || m->error))
                return JSONRPC_RESPONSE;
        if (m->method && m->id && !json_is_null(m->id))
                return JSONRPC_REQUEST;
        return m->method && !m->id ? JSONRPC_NOTIFICATION : JSONRPC_UNKNOWN;
}

int jsonrpc_parse(const char *line, size_t len, struct jsonrpc *ret, struct err *err)
{
        struct jsonrpc m = { 0 };
        bool strict = json_parse(line, len, &m.doc, NULL) >= 0;
        int r = strict ? 0 : json_parse_lenient(line, len, &m.doc, err);

        if (r < 0)
                return r;
        if (!json_is_object(m.doc) || !is_version_2(m.doc)) {
                json_decref(m.doc);
                return err_set(err, ERR_INVALID, "not a JSON-RPC 2.0 message");
        }
        m.has_nul = !strict && holds_nul(m.doc);
        m.id = json_object_get(m.doc, "id");
        m.method = json_get_string(m.doc, "method");
        m.params = json_get_object(m.doc, "params");
        m.error = json_object_get(m.doc, "error");
        if (!m.error)
                m.result = json_object_get(m.doc, "result");
        m.invocation_id = json_get_string(m.doc, "paperclipInvocationId");
        m.kind = classify_message(&m);
        *ret = m;
        return 0;
}

void jsonrpc_done(struct jsonrpc *m)
{
        json_decref(m->doc);
        *m = (struct jsonrpc){ 0 };
}

int64_t jsonrpc_own_id(const struct jsonrpc *m)
{
        int64_t id = json_is_integer(m->id) ? json_integer_value(m->id) : 0;

        return id > 0 ? id : 0;
}

int64_t jsonrpc_error_code(const struct jsonrpc *m)
{
        const json_t *code = json_object_get(m->error, "code");

        return json_is_integer(code) ? json_integer_value(code) : RPC_WORKER_ERROR;
}

const char *jsonrpc_error_text(const struct jsonrpc *m)
{
        const char *text = json_get_string(m->error, "message");

        return text ? text : "The worker answered with an error that has no text.";
}

void jsonrpc_put_request(struct buf *b, int64_t id, const char *method, const json_t *params,
                         const json_t *invocation)
{
        struct jw w;

        jw_init(&w, b);
        jw_object(&w);
        jw_kstring(&w, "jsonrpc", "2.0");
        jw_kint(&w, "id", id);
        jw_kstring(&w, "method", method);
        jw_kvalue(&w, "params", params);
        if (invocation)
                jw_kvalue(&w, "paperclipInvocation", invocation);
        jw_object_end(&w);
        buf_putc(b, '\n');
}

static void begin_answer(struct jw *w, struct buf *b, const json_t *id)
{
        jw_init(w, b);
        jw_object(w);
        jw_kstring(w, "jsonrpc", "2.0");
        jw_kvalue(w, "id", id);
}

void jsonrpc_put_result(struct buf *b, const json_t *id, const json_t *result)
{
        struct jw w;

        begin_answer(&w, b, id);
        jw_kvalue(&w, "result", result);
        jw_object_end(&w);
        buf_putc(b, '\n');
}

void jsonrpc_put_error(struct buf *b, const json_t *id, int code, const char *text)
{
        struct jw w;

        begin_answer(&w, b, id);
        jw_key(&w, "error");
        jw_object(&w);
        jw_kint(&w, "code", code);
        jw_kstring(&w, "message", text);
        jw_object_end(&w);
        jw_object_end(&w);
        buf_putc(b, '\n');
}
