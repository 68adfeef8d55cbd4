/* How a request to a service fails, in words, and what of the configuration is good. */
#include "provider/service.h"

#include <math.h>
#include <poll.h>

#define WAITED_MAX_MS 5000 /* a Retry-After up to this is waited for */
#define TRIES         3
#define SAID_MAX      300

/* Requests */

const char *service_said(struct berth_call *c, const struct web_answer *a)
{
        static const char *const members[] = { "message", "error", "detail", "error_description" };
        CLEAN(json_decrefp) json_t *doc = NULL;
        const char *said = NULL;
        size_t len = a->body.len;
        char *text;

        if (len > 0 && json_parse_lenient(buf_str(&a->body), len, &doc, NULL) >= 0) {
                for (size_t i = 0; !said && i < ARRAY_LEN(members); i++)
                        said = json_get_string(doc, members[i]);
                if (!said)
                        said = json_get_string(json_get_object(doc, "error"), "message");
        } else if (str_starts(a->content_type, "text/plain")) {
                said = buf_str(&a->body);
        }
        text = arena_strndup(&c->arena, said ? said : "", SAID_MAX);
        for (char *p = text; *p; p++)
                if ((unsigned char)*p < ' ')
                        *p = ' ';
        return text;
}

int service_fail_status(struct berth_call *c, const struct service *s, const struct web_answer *a)
{
        const char *said = service_said(c, a), *colon = *said ? ": " : "";

        switch (a->status) {
        case 401:
        case 403:
                return berth_fail(
                        c, "%s refuses the key (HTTP %d%s%s). Check `%s` of the environment.",
                        s->name, a->status, colon, said, s->key);
        case 402:
                return berth_fail(c, "%s: the account's quota or credit is used up (HTTP 402%s%s).",
                                  s->name, colon, said);
        case 404:
        case 410:
                return berth_fail(c, "%s does not have %s any more (HTTP %d%s%s).", s->name,
                                  s->of ? s->of : "it", a->status, colon, said);
        case 429:
                if (a->retry_after_ms >= 0)
                        return berth_fail(
                                c, "%s asks to slow down (HTTP 429%s%s). Try again in %lld s.",
                                s->name, colon, said, (long long)(a->retry_after_ms + 999) / 1000);
                return berth_fail(c, "%s asks to slow down, or a quota is used up (HTTP 429%s%s).",
                                  s->name, colon, said);
        default:
                return berth_fail(c, "%s failed (HTTP %d%s%s).", s->name, a->status, colon, said);
        }
}

static int fail_request(struct berth_call *c, const struct service *s, unsigned flags, int code,
                        int64_t limit_ms, const struct err *err)
{
        switch (code) {
        case ERR_UNREACHABLE:
                return berth_fail(c,
                                  "%s cannot be reached (%s). Check its address and the network.",
                                  s->name, err->msg);
        case ERR_CANCELLED:
                return berth_fail(c, "%s: the request was given up.", s->name);
        case ERR_UNCERTAIN:
        case ERR_TIMEOUT:
                if (flags & SERVICE_CREATES)
                        return berth_fail_unknown(
                                c, "%s did not answer whole (%s); it may have done what was asked.",
                                s->name, err->msg);
                if (code == ERR_TIMEOUT)
                        return berth_fail(c, "%s request timed out after %lldms.", s->name,
                                          (long long)limit_ms);
                return berth_fail(c, "%s did not answer whole (%s).", s->name, err->msg);
        default:
                return berth_fail(c, "%s: %s", s->name, err->msg);
        }
}

/* False when the call ended meanwhile. */
static bool wait_for(struct berth_call *c, int64_t ms)
{
        struct pollfd cancel = { berth_cancel_fd(c), POLLIN, 0 };

        return poll(&cancel, 1, (int)ms) == 0;
}

int service_ask(struct berth_call *c, const struct service *s, const struct web_request *q,
                unsigned flags, struct web_answer *ret)
{
        struct web_request request = *q;
        CLEAN(err_done) struct err err = { 0 };
        int r = 0;

        request.cancel_fd = berth_cancel_fd(c);
        if (request.begin_ms <= 0)
                request.begin_ms = SERVICE_BEGIN_MS;
        if (!request.on_data && request.total_ms <= 0)
                request.total_ms = request.begin_ms;
        for (int i = 0; i < TRIES; i++) {
                if (i > 0)
                        web_answer_done(ret);
                err_clear(&err);
                r = web_run(&request, ret, &err);
                if (r < 0 || ret->status != 429 || i + 1 == TRIES || ret->retry_after_ms < 0 ||
                    ret->retry_after_ms > WAITED_MAX_MS || !wait_for(c, ret->retry_after_ms))
                        break;
        }
        if (r < 0)
                return fail_request(c, s, flags, r, request.begin_ms, &err);
        if (ret->status >= 200 && ret->status < 300)
                return 0;
        if (ret->status == 404 || ret->status == 409 || ret->status == 410)
                return ret->status;
        (void)service_fail_status(c, s, ret);
        /* A service that failed in the middle may have made what it does not name. */
        c->unknown = ret->status >= 500 && (flags & SERVICE_CREATES);
        return -1;
}

static json_t *service_document(struct berth_call *c, const struct service *s,
                                const struct web_answer *a)
{
        CLEAN(err_done) struct err err = { 0 };
        json_t *doc = NULL;

        if (json_parse_lenient(buf_str(&a->body), a->body.len, &doc, &err) < 0) {
                (void)berth_fail(c, "%s answered with something that is no JSON (HTTP %d, %s).",
                                 s->name, a->status, err.msg);
                return NULL;
        }
        return json_keep(&c->arena, doc);
}

json_t *service_object(struct berth_call *c, const struct service *s, const struct web_answer *a)
{
        json_t *doc = service_document(c, s, a);

        if (doc && !json_is_object(doc)) {
                (void)berth_fail(c, "%s answered with something that is no JSON object.", s->name);
                return NULL;
        }
        return doc;
}

json_t *service_array(struct berth_call *c, const struct service *s, const struct web_answer *a)
{
        json_t *doc = service_document(c, s, a);

        if (doc && !json_is_array(doc)) {
                (void)berth_fail(c, "%s answered with something that is no list.", s->name);
                return NULL;
        }
        return doc;
}

/* Configuration */

const char *service_text(struct berth_call *c, const char *member)
{
        const char *text = berth_config_text(c, member);

        return text ? arena_strtrim(&c->arena, text) : NULL;
}

static bool is_this_machine(const char *host)
{
        static const char *const names[] = { "localhost", "127.0.0.1", "[::1]" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                size_t n = strlen(names[i]);

                if (strncmp(host, names[i], n) == 0 && strchr(":/", host[n]))
                        return true;
        }
        return false;
}

const char *service_url(struct berth_call *c, const char *member, const char *fallback)
{
        const char *text = service_text(c, member), *host;
        char *url = arena_strdup(&c->arena, text ? text : fallback);
        size_t n = url ? strlen(url) : 0;

        while (n > 0 && url[n - 1] == '/')
                url[--n] = '\0';
        if (!url)
                return NULL;
        host = strstr(url, "://");
        if (!host || !host[3] || host[3] == '/' || strpbrk(url, " \t\r\n\"\\<>@?#") ||
            (!str_starts(url, "https://") && !str_starts(url, "http://"))) {
                berth_complain(c, "%s must be a valid URL.", member);
                return NULL;
        }
        if (str_starts(url, "http://") && !is_this_machine(url + 7)) {
                berth_complain(c, "%s must use HTTPS unless it points at localhost.", member);
                return NULL;
        }
        return url;
}

int64_t service_number(struct berth_call *c, const char *member, int64_t fallback, int64_t min,
                       int64_t max)
{
        const json_t *v = json_object_get(c->config, member);
        double n = json_number_value(v);
        char *end;

        if (!v || json_is_null(v))
                return fallback;
        if (json_is_string(v)) {
                n = strtod(json_string_value(v), &end);
                if (end == json_string_value(v) || *end)
                        n = NAN;
        } else if (!json_is_number(v)) {
                n = NAN;
        }
        n = trunc(n);
        if (isnan(n) || n < (double)min || n > (double)max) {
                berth_complain(c, "%s must be between %lld and %lld.", member, (long long)min,
                               (long long)max);
                return fallback;
        }
        return (int64_t)n;
}
