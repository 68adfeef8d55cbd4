/* One signed call to AWS, whether it is tried again, and what its failure means. */
#include "secret/aws.h"

#include <ctype.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json_scan.h"

#define SERVICE      "secretsmanager"
#define CONTENT_TYPE "application/x-amz-json-1.1"
#define CONNECT_MS   5000
#define TOTAL_MS     30000
#define LOGGED_MAX   300
#define ACCOUNT_LEN  12

/* ---- what a failure means ---- */

static const struct {
        const char *type;
        enum vault_failure kind;
} known_types[] = {
        { "ResourceExistsException", VAULT_CONFLICT },
        { "ResourceNotFoundException", VAULT_NOT_FOUND },
        { "AccessDeniedException", VAULT_ACCESS_DENIED },
        { "AccessDenied", VAULT_ACCESS_DENIED },
        { "ExpiredTokenException", VAULT_ACCESS_DENIED },
        { "ExpiredToken", VAULT_ACCESS_DENIED },
        { "IncompleteSignature", VAULT_ACCESS_DENIED },
        { "IncompleteSignatureException", VAULT_ACCESS_DENIED },
        { "InvalidClientTokenId", VAULT_ACCESS_DENIED },
        { "InvalidIdentityToken", VAULT_ACCESS_DENIED },
        { "InvalidSignatureException", VAULT_ACCESS_DENIED },
        { "MissingAuthenticationToken", VAULT_ACCESS_DENIED },
        { "MissingAuthenticationTokenException", VAULT_ACCESS_DENIED },
        { "NotAuthorized", VAULT_ACCESS_DENIED },
        { "OptInRequired", VAULT_ACCESS_DENIED },
        { "SignatureDoesNotMatch", VAULT_ACCESS_DENIED },
        { "UnrecognizedClientException", VAULT_ACCESS_DENIED },
        { "PriorRequestNotComplete", VAULT_THROTTLED },
        { "RequestLimitExceeded", VAULT_THROTTLED },
        { "Throttling", VAULT_THROTTLED },
        { "ThrottlingException", VAULT_THROTTLED },
        { "TooManyRequestsException", VAULT_THROTTLED },
        { "InvalidNextTokenException", VAULT_INVALID_REQUEST },
        { "InvalidParameterException", VAULT_INVALID_REQUEST },
        { "InvalidRequestException", VAULT_INVALID_REQUEST },
        { "ValidationException", VAULT_INVALID_REQUEST },
        { "ValidationError", VAULT_INVALID_REQUEST },
        { "ServiceUnavailable", VAULT_UNAVAILABLE },
        { "ServiceUnavailableException", VAULT_UNAVAILABLE },
};

/* AWS's own word decides. A status without one may come from anything on the way, so it is believed
 * only where that does no harm: a bare 404 must not pass for "the secret is gone". */
enum vault_failure aws_classify(int status, const char *type)
{
        for (size_t i = 0; type && i < ARRAY_LEN(known_types); i++)
                if (streq(known_types[i].type, type))
                        return known_types[i].kind;
        switch (status) {
        case 401:
        case 403:
                return VAULT_ACCESS_DENIED;
        case 429:
                return VAULT_THROTTLED;
        case 502:
        case 503:
        case 504:
                return VAULT_UNAVAILABLE;
        default:
                return VAULT_ERROR;
        }
}

const char *aws_failure_text(enum vault_failure kind)
{
        switch (kind) {
        case VAULT_CONFLICT:
                return "AWS Secrets Manager reported that the requested secret already exists.";
        case VAULT_NOT_FOUND:
                return "AWS Secrets Manager could not find the requested secret.";
        case VAULT_ACCESS_DENIED:
                return "AWS Secrets Manager denied the request. Check IAM permissions for this "
                       "provider vault.";
        case VAULT_THROTTLED:
                return "AWS Secrets Manager throttled the request. Wait and try again.";
        case VAULT_INVALID_REQUEST:
                return "AWS Secrets Manager rejected the request.";
        case VAULT_UNAVAILABLE:
                return "AWS Secrets Manager is unavailable right now.";
        case VAULT_ERROR:
                break;
        }
        return "AWS Secrets Manager request failed.";
}

const char *aws_error_type(struct arena *arena, const char *text)
{
        const char *mark = strrchr(text, '#');
        size_t n;

        if (mark)
                text = mark + 1;
        n = strcspn(text, ":");
        return n > 0 ? arena_strndup(arena, text, n) : NULL;
}

/* ---- AWS's words for the log ---- */

static bool ends_arn(char c)
{
        return !c || isspace((unsigned char)c) || strchr("\"'`,;()<>[]{}", c);
}

/* How many of the characters here say whose they are: an ARN, an account, the id of a key. */
static size_t telling(const char *at)
{
        size_t n = 0;

        if (str_starts(at, "arn:")) {
                while (!ends_arn(at[n]))
                        n++;
                return n;
        }
        n = strspn(at, "0123456789");
        if (n >= ACCOUNT_LEN)
                return n;
        if (str_starts(at, "AKIA") || str_starts(at, "ASIA"))
                return strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789");
        return 0;
}

const char *aws_redact(struct arena *arena, const char *text)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;

        while (*text && out.len < LOGGED_MAX) {
                size_t n = telling(text);

                if (n == 0) {
                        buf_putc(&out, *text++);
                        continue;
                }
                buf_puts(&out, "[redacted]");
                text += n;
        }
        return arena_strdup(arena, buf_str(&out));
}

/* A string member of the error that AWS answered with; NULL when there is none. */
static const char *said(struct op *op, const struct transfer_answer *a, const char *key)
{
        const char *raw;
        char *text;
        size_t len, n;

        if (!a->room.data || json_scan_string(a->room.data, a->len, key, &raw, &len, NULL) <= 0)
                return NULL;
        text = arena_alloc(op->arena, len + 1);
        return json_scan_decode(raw, len, text, &n, NULL) < 0 ? NULL : text;
}

static const char *type_of(struct op *op, const struct transfer_answer *a)
{
        const char *text = *a->error_type ? a->error_type : said(op, a, "__type");

        return text ? aws_error_type(op->arena, text) : NULL;
}

static int refused(struct op *op, const struct aws_call *call, const struct transfer_answer *a,
                   const char *type, struct err *err)
{
        enum vault_failure kind = aws_classify(a->status, type);
        const char *text = NULL;

        /* A validation error may repeat what it did not like. */
        if (!call->holds_value) {
                text = said(op, a, "message");
                if (!text)
                        text = said(op, a, "Message");
        }
        log_warn("AWS Secrets Manager refused a call", LOG_S("operation", call->operation),
                 LOG_I("status", a->status), LOG_S("type", type), LOG_S("request", a->request_id),
                 LOG_S("said", text ? aws_redact(op->arena, text) : ""));
        return vault_fail(err, kind, aws_failure_text(kind));
}

/* No answer at all. */
static int failed(const struct aws_call *call, int code, struct err *reason, struct err *err)
{
        if (code == ERR_CANCELLED || code == ERR_TIMEOUT) {
                err_move(err, reason);
                return code;
        }
        log_warn("AWS Secrets Manager did not answer", LOG_S("operation", call->operation),
                 LOG_S("reason", reason->msg));
        if (code == ERR_NOT_IMPLEMENTED)
                return vault_fail(err, VAULT_UNAVAILABLE,
                                  "AWS Secrets Manager needs libcurl on this server, which is not "
                                  "there (Debian: libcurl4).");
        return vault_fail(
                err, code == ERR_UNREACHABLE ? VAULT_UNAVAILABLE : VAULT_ERROR,
                aws_failure_text(code == ERR_UNREACHABLE ? VAULT_UNAVAILABLE : VAULT_ERROR));
}

/* ---- one signed request ---- */

static bool is_read(const char *operation)
{
        return str_starts(operation, "Get") || str_starts(operation, "List") ||
               str_starts(operation, "Describe");
}

static int send_signed(struct op *op, const struct aws_settings *s, const struct aws_call *call,
                       const struct aws_credentials *c, struct transfer_answer *ret,
                       struct err *err)
{
        CLEAN(buf_wipe) struct buf authorization = BUF_INIT;
        char date[SIGV4_DATE_LEN + 1], hash[SIGV4_HASH_LEN + 1];
        struct sigv4_header headers[8] = {
                { "content-type", CONTENT_TYPE },
                { "host", aws_endpoint_host(op->arena, s->endpoint) },
                { "x-amz-content-sha256", hash },
                { "x-amz-date", date },
                { "x-amz-target", arena_printf(op->arena, SERVICE ".%s", call->operation) },
        };
        struct sigv4_request request = {
                .method = "POST",
                .path = aws_endpoint_path(s->endpoint),
                .headers = headers,
                .n_headers = 5,
                .body = call->body,
                .body_len = call->len,
        };
        struct sigv4_key key = { c->access_key_id, c->secret.data, s->region, SERVICE };
        struct transfer t = {
                .method = "POST",
                .url = s->endpoint,
                .headers = headers,
                .body = call->body,
                .body_len = call->len,
                .connect_ms = CONNECT_MS,
                .total_ms = TOTAL_MS,
                .ca_file = aws_env_plain("AWS_CA_BUNDLE"),
                .once = !is_read(call->operation),
        };
        int r;

        sigv4_date(clock_wall_us(), date);
        sigv4_hash(call->body, call->len, hash);
        if (c->token.data)
                headers[request.n_headers++] =
                        (struct sigv4_header){ "x-amz-security-token", c->token.data };
        r = sigv4_sign(&request, &key, date, &authorization, err);
        if (r < 0)
                return r;
        t.n_headers = request.n_headers;
        headers[t.n_headers++] = (struct sigv4_header){ "authorization", buf_str(&authorization) };
        return transfer_run(op, &t, ret, err);
}

/* Refusals that other credentials of the same source may cure. */
static bool is_stale(const char *type)
{
        static const char *const types[] = { "ExpiredTokenException", "ExpiredToken",
                                             "UnrecognizedClientException",
                                             "InvalidClientTokenId" };

        for (size_t i = 0; type && i < ARRAY_LEN(types); i++)
                if (streq(types[i], type))
                        return true;
        return false;
}

static bool same_credentials(const struct aws_credentials *a, const struct aws_credentials *b)
{
        if (!streq(a->access_key_id, b->access_key_id) || a->token.len != b->token.len)
                return false;
        return a->token.len == 0 || memcmp(a->token.data, b->token.data, a->token.len) == 0;
}

/* *ret_stale: refused for the credentials' sake. */
static int attempt(struct op *op, const struct aws_settings *s, const struct aws_call *call,
                   const struct aws_credentials *c, struct transfer_answer *ret, bool *ret_stale,
                   struct err *err)
{
        CLEAN(err_done) struct err reason = { 0 };
        struct transfer_answer answer = { 0 };
        const char *type;
        int r = send_signed(op, s, call, c, &answer, &reason);

        *ret_stale = false;
        if (r < 0)
                return failed(call, r, &reason, err);
        if (answer.status == 200) {
                *ret = answer;
                return 0;
        }
        type = type_of(op, &answer);
        *ret_stale = is_stale(type);
        r = refused(op, call, &answer, type, err);
        transfer_answer_done(&answer);
        return r;
}

int aws_call_run(struct op *op, const struct aws_settings *s, const struct aws_call *call,
                 struct transfer_answer *ret, struct err *err)
{
        CLEAN(aws_credentials_done) struct aws_credentials first = { 0 }, second = { 0 };
        bool stale;
        int r = aws_credentials_get(op, s->region, &first, err);

        if (r < 0)
                return r;
        r = attempt(op, s, call, &first, ret, &stale, err);
        if (r == 0 || !stale)
                return r;
        /* The cache may be behind what the source has now. */
        aws_credentials_refused(s->region, &first);
        if (aws_credentials_get(op, s->region, &second, NULL) < 0 ||
            same_credentials(&first, &second))
                return r;
        err_clear(err);
        return attempt(op, s, call, &second, ret, &stale, err);
}
