/* Requests from the callback channel: which parts of them are believed, and how they are
 * answered. */
#include "api/channel.h"

#include <stdio.h>
#include <strings.h>

#include "core/access/auth.h"
#include "core/callbacks/callback.h"

#define OUTCOME_TOO_LARGE "Bridge response body exceeded the configured size limit of %zu bytes."

/* Refusals */

static void set_error(struct call *c, int status, const char *text)
{
        c->status = status;
        c->content_type = NULL;
        c->etag[0] = '\0';
        c->n_fields = 0;
        buf_clear(&c->out);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "error", text);
        jw_object_end(w);
}

static void refuse(struct call *c, int status, const char *text)
{
        set_error(c, status, text);
        if (status == 429 || status == 503)
                call_field(c, "Retry-After", "1");
        call_finish(c);
}

/* The client went away before its body was complete. */
static void gone(struct call *c)
{
        refuse(c, 400, "The request was not completed.");
}

/* In */

enum http_body_mode channel_on_head(void *ctx, struct http_exchange *x)
{
        return http_peer(x)->via ? HTTP_BODY_STREAM : HTTP_BODY_BUFFER;
}

static bool is_too_large(const struct http_exchange *x)
{
        const char *length = http_header(x, "content-length");

        return length && strtoull(length, NULL, 10) > CALLBACK_BODY_MAX;
}

void channel_begin(struct call *c)
{
        const struct http_exchange *x = c->x;
        const struct callback_head head = {
                .method = http_method(x),
                .path = http_path(x),
                .authorization = http_header(x, "authorization"),
                .content_type = http_header(x, "content-type"),
                .is_absolute = http_is_absolute(x),
        };
        struct callback_refusal why;

        c->is_channel = true;
        c->pass = callback_enter(c->rt->callbacks, http_peer(x)->via, &head, &why);
        if (!c->pass)
                refuse(c, why.status, why.text);
        else if (is_too_large(x))
                refuse(c, 502, CALLBACK_TEXT_LARGE);
        else if (!http_body_follows(x))
                call_route(c);
        else
                c->on_gone = gone;
}

void channel_on_body(void *ctx, struct http_exchange *x, const void *data, size_t len)
{
        struct call *c = http_data(x);

        if (len > 0) {
                c->channel_body.max = CALLBACK_BODY_MAX;
                buf_append(&c->channel_body, data, len);
                if (buf_failed(&c->channel_body))
                        refuse(c, 502, CALLBACK_TEXT_LARGE);
                return;
        }
        c->on_gone = NULL;
        call_route(c);
}

int channel_actor(struct call *c, struct err *err)
{
        const struct callback_identity *who = callback_pass_identity(c->pass);

        return auth_run_actor(c->op, c->rt, who->company_id, who->agent_id, who->run_id, &c->actor,
                              err);
}

int64_t channel_timeout_ms(void)
{
#ifdef BERTH_FAULTS
        const char *given = getenv("BERTH_TEST_CALLBACK_TIMEOUT_MS");

        if (given)
                return strtoll(given, NULL, 10);
#endif
        return CALLBACK_TIMEOUT_MS;
}

/* Out */

int channel_status(int code, int status)
{
        return code == ERR_TIMEOUT ? 502 : status;
}

const char *channel_text(int code, const char *text)
{
        return code == ERR_TIMEOUT ? CALLBACK_TEXT_SILENT : text;
}

static bool may_leave(const struct http_field *f)
{
        static const char *const names[] = { "content-type", "etag", "last-modified",
                                             "retry-after" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (strcasecmp(f->name, names[i]) == 0)
                        return true;
        return false;
}

int channel_answer(struct call *c, int status)
{
        size_t n = 0;

        if (c->out.len > CALLBACK_BODY_MAX) {
                char text[128];

                snprintf(text, sizeof(text), OUTCOME_TOO_LARGE, CALLBACK_BODY_MAX);
                set_error(c, 502, text);
                call_field(c, "Content-Type", "application/json; charset=utf-8");
                status = 502;
        }
        for (size_t i = 0; i < c->n_fields; i++)
                if (may_leave(&c->fields[i]))
                        c->fields[n++] = c->fields[i];
        c->n_fields = n;
        if (c->pass)
                callback_leave(take_ptr(&c->pass), status);
        return status;
}
