/* One call to AWS: its JSON, its signature, whether it is tried again, and what its failure means.
 */
#include "secret/aws.h"

#include <ctype.h>

#include "base/log.h"
#include "codec/json_scan.h"

#define SERVICE      "secretsmanager"
#define CONTENT_TYPE "application/x-amz-json-1.1"
#define CONNECT_MS   5000
#define TOTAL_MS     30000
#define LOGGED_MAX   300
#define ACCOUNT_LEN  12

struct aws_call {
        const char *operation, *body;
        size_t len;
        bool holds_value; /* in what is sent or answered: then AWS's text is not logged either */
};

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

        if (mark)
                text = mark + 1;
        size_t n = strcspn(text, ":");
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
        size_t len, n;

        if (!a->room.data || json_scan_string(a->room.data, a->len, key, &raw, &len, NULL) <= 0)
                return NULL;
        char *text = arena_alloc(op->arena, len + 1);
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

static int send_signed(struct op *op, const struct aws_settings *s, const struct aws_call *call,
                       const struct aws_credentials *c, struct transfer_answer *ret,
                       struct err *err)
{
        struct transfer_header headers[5] = {
                { "content-type", CONTENT_TYPE },
                { "host", aws_endpoint_host(op->arena, s->endpoint) },
                { "x-amz-content-sha256", vault_hash(op->arena, call->body, call->len) },
                { "x-amz-target", arena_printf(op->arena, SERVICE ".%s", call->operation) },
                { "x-amz-security-token", c->token.data },
        };
        struct transfer_signing signing = { c->access_key_id, c->secret.data, s->region, SERVICE };
        struct transfer t = {
                .method = "POST",
                .url = s->endpoint,
                .headers = headers,
                .n_headers = c->token.data ? 5 : 4,
                .signing = &signing,
                .body = call->body,
                .body_len = call->len,
                .connect_ms = CONNECT_MS,
                .total_ms = TOTAL_MS,
                .ca_file = aws_env_plain("AWS_CA_BUNDLE"),
                .once = !str_starts(call->operation, "Get") &&
                        !str_starts(call->operation, "List") &&
                        !str_starts(call->operation, "Describe"),
        };

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
        int r = send_signed(op, s, call, c, &answer, &reason);

        *ret_stale = false;
        if (r < 0)
                return failed(call, r, &reason, err);
        if (answer.status == 200) {
                *ret = answer;
                return 0;
        }
        const char *type = type_of(op, &answer);
        *ret_stale = is_stale(type);
        r = refused(op, call, &answer, type, err);
        transfer_answer_done(&answer);
        return r;
}

static int aws_call_run(struct op *op, const struct aws_settings *s, const struct aws_call *call,
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

/* ---- JSON ---- */

int aws_send(struct op *op, const struct aws_settings *s, const char *operation, json_t *take_body,
             struct transfer_answer *ret, struct err *err)
{
        const char *text = json_to_arena(op->arena, json_keep(op->arena, take_body));

        return aws_call_run(op, s,
                            &(struct aws_call){ operation, text, strlen(text),
                                                streq(operation, "GetSecretValue") },
                            ret, err);
}

int aws_send_value(struct op *op, const struct aws_settings *s, const char *operation,
                   json_t *take_body, const struct secret_value *value, struct transfer_answer *ret,
                   struct err *err)
{
        CLEAN(secret_value_done) struct secret_value body = { 0 };
        const char *text = json_to_arena(op->arena, json_keep(op->arena, take_body));
        static const char member[] = ",\"SecretString\":\"";
        size_t n = strlen(text) - 1; /* without the brace at the end */
        int r = secret_value_room(
                &body, n + sizeof(member) + 2 + json_scan_escaped_len(value->data, value->len),
                err);

        if (r < 0)
                return r;
        memcpy(body.data, text, n);
        memcpy(body.data + n, member, sizeof(member) - 1);
        n += sizeof(member) - 1;
        n += json_scan_escape(value->data, value->len, body.data + n);
        body.data[n++] = '"';
        body.data[n++] = '}';
        return aws_call_run(op, s, &(struct aws_call){ operation, body.data, n, true }, ret, err);
}

int aws_bad_answer(const char *operation, const char *what, struct err *err)
{
        log_warn("AWS Secrets Manager answered nonsense", LOG_S("operation", operation),
                 LOG_S("what", what));
        return vault_fail(err, VAULT_ERROR, aws_failure_text(VAULT_ERROR));
}

/* A string member, in the arena; NULL when there is none. Never for the value itself. */
const char *aws_answer_text(struct op *op, const struct transfer_answer *a, const char *key)
{
        const char *raw;
        size_t len, n;

        if (!a->room.data || json_scan_string(a->room.data, a->len, key, &raw, &len, NULL) <= 0)
                return NULL;
        char *text = arena_alloc(op->arena, len + 1);
        if (json_scan_decode(raw, len, text, &n, NULL) < 0 || n == 0 || n > AWS_REFERENCE_MAX)
                return NULL;
        return text;
}

/* Answers without a value. */
int aws_answer_json(struct op *op, const char *operation, const struct transfer_answer *a,
                    json_t **ret, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        json_t *document = NULL;

        if (!a->room.data || json_parse(a->room.data, a->len, &document, &why) < 0)
                return aws_bad_answer(operation, why.msg, err);
        (void)json_keep(op->arena, document);
        if (!json_is_object(document))
                return aws_bad_answer(operation, "not an object", err);
        *ret = document;
        return 0;
}
