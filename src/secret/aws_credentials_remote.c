/* Credentials that a service hands out: the container's agent, the machine's metadata service, or
 * STS in exchange for a token. All are temporary. */
#include "secret/aws.h"

#include <fcntl.h>
#include <stdio.h>
#include <strings.h>

#include "base/clock.h"
#include "base/fd.h"
#include "codec/json_scan.h"
#include "codec/xml.h"

#define NEAR_CONNECT_MS   1000 /* link-local: there at once, or not at all */
#define NEAR_TOTAL_MS     2000
#define STS_CONNECT_MS    5000
#define STS_TOTAL_MS      10000
#define CONTAINER_HOST    "http://169.254.170.2"
#define INSTANCE_HOST     "http://169.254.169.254"
#define TOKEN_TTL_SECONDS "21600"
#define ROLE_PATH         "/latest/meta-data/iam/security-credentials/"
#define TOKEN_MAX         ((size_t)32 << 10)
#define ROLE_MAX          128

/* ---- the answer of container and instance ---- */

static int json_part(const struct transfer_answer *a, const char *key, const char **ret,
                     size_t *ret_len, struct err *err)
{
        *ret = NULL;
        *ret_len = 0;
        int r = a->room.data ? json_scan_string(a->room.data, a->len, key, ret, ret_len, err)
                             : err_set(err, ERR_INVALID, "an empty answer");
        /* None of these needs an escape; one that has some is not what it says. */
        if (r > 0 && memchr(*ret, '\\', *ret_len))
                return err_set(err, ERR_INVALID, "an answer with escapes in its keys");
        return r;
}

static int set_expiry(struct aws_credentials *c, const char *text, size_t len, struct err *err)
{
        char copy[64];

        if (len == 0)
                return 0;
        (void)snprintf(copy, sizeof(copy), "%.*s", (int)MIN(len, sizeof(copy) - 1), text);
        if (!clock_parse_iso(copy, &c->expires_us) || c->expires_us <= clock_wall_us()) {
                aws_credentials_done(c);
                return err_set(err, ERR_INVALID, "the credentials have expired already");
        }
        return 0;
}

static int read_json(const struct transfer_answer *a, struct aws_credentials *ret, struct err *err)
{
        static const char *const keys[] = { "AccessKeyId", "SecretAccessKey", "Token",
                                            "Expiration" };
        const char *part[4];
        size_t len[4];
        int r;

        if (a->status != 200)
                return err_set(err, ERR_FORBIDDEN, "answered %d", a->status);
        for (size_t i = 0; i < ARRAY_LEN(keys); i++) {
                r = json_part(a, keys[i], &part[i], &len[i], err);
                if (r < 0)
                        return r;
        }
        r = aws_credentials_set(ret, part[0], len[0], part[1], len[1], part[2], len[2], err);
        if (r == 0)
                r = set_expiry(ret, part[3], len[3], err);
        return r < 0 ? r : 1;
}

/* ---- container ---- */

/* Plain http only to where an agent of the platform listens. */
static bool is_container_url(const char *url)
{
        static const char *const hosts[] = { "http://169.254.170.2",  "http://169.254.170.23",
                                             "http://[fd00:ec2::23]", "http://127.0.0.1",
                                             "http://localhost",      "http://[::1]" };

        if (str_starts(url, "https://"))
                return url[8] != '\0';
        for (size_t i = 0; i < ARRAY_LEN(hosts); i++) {
                size_t n = strlen(hosts[i]);

                if (strncasecmp(url, hosts[i], n) == 0 && (url[n] == '/' || url[n] == ':'))
                        return !strchr(url + n, '@');
        }
        return false;
}

/* A token from a file, without the line end behind it. */
static int read_token(const char *path, struct buf *ret, struct err *err)
{
        int r = file_read_at(AT_FDCWD, path, TOKEN_MAX, ret, err);

        if (r < 0)
                return err_wrap(err, r, "token file");
        while (ret->len > 0 && strchr(" \t\r\n", ret->data[ret->len - 1]))
                ret->data[--ret->len] = '\0';
        if (ret->len == 0 || strlen(ret->data) != ret->len || strpbrk(ret->data, "\r\n"))
                return err_set(err, ERR_INVALID, "the token file does not hold one line");
        return 0;
}

int aws_from_container(struct op *op, struct aws_credentials *ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(buf_wipe) struct buf token = BUF_INIT;
        const char *relative = aws_env_plain("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
        const char *file = aws_env_plain("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE");
        const char *text = aws_env_plain("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        struct transfer_header header = { "authorization", NULL };
        struct transfer t = { .method = "GET",
                              .headers = &header,
                              .connect_ms = NEAR_CONNECT_MS,
                              .total_ms = NEAR_TOTAL_MS,
                              .ca_file = aws_env_plain("AWS_CA_BUNDLE"),
                              .direct = true };

        t.url = relative ? arena_printf(op->arena, CONTAINER_HOST "%s%s",
                                        *relative == '/' ? "" : "/", relative)
                         : aws_env_plain("AWS_CONTAINER_CREDENTIALS_FULL_URI");
        if (!t.url)
                return 0;
        if (!is_container_url(t.url))
                return err_set(err, ERR_INVALID,
                               "AWS_CONTAINER_CREDENTIALS_FULL_URI is neither https nor the "
                               "container's own agent");
        int r = file ? read_token(file, &token, err) : 0;
        if (!file && text)
                buf_puts(&token, text);
        if (r == 0) {
                header.value = buf_str(&token);
                t.n_headers = token.len > 0 ? 1 : 0;
                r = transfer_run(op, &t, &answer, err);
        }
        if (r == 0)
                r = read_json(&answer, ret, err);
        return r < 0 ? err_wrap(err, r, "container credentials") : r;
}

/* ---- instance ---- */

static int instance_ask(struct op *op, const char *method, const char *url,
                        const struct transfer_header *header, struct transfer_answer *ret,
                        struct err *err)
{
        struct transfer t = { .method = method,
                              .url = url,
                              .headers = header,
                              .n_headers = 1,
                              .connect_ms = NEAR_CONNECT_MS,
                              .total_ms = NEAR_TOTAL_MS,
                              .direct = true };

        return transfer_run(op, &t, ret, err);
}

/* The name of the machine's role: the first line, of characters that IAM allows. */
static const char *role_of(struct op *op, const struct transfer_answer *a)
{
        size_t n = 0;

        if (a->status != 200 || a->len == 0)
                return NULL;
        n = strspn(a->room.data, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "+=,.@_-");
        if (n == 0 || n > ROLE_MAX || (n < a->len && !strchr("\r\n", a->room.data[n])))
                return NULL;
        return arena_strndup(op->arena, a->room.data, n);
}

static int ask_instance(struct op *op, const char *base, struct aws_credentials *ret,
                        struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer token = { 0 };
        CLEAN(transfer_answer_done) struct transfer_answer roles = { 0 };
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct transfer_header header = { "x-aws-ec2-metadata-token-ttl-seconds",
                                          TOKEN_TTL_SECONDS };
        const char *url = arena_printf(op->arena, "%s" ROLE_PATH, base), *role;
        int r = instance_ask(op, "PUT", arena_printf(op->arena, "%s/latest/api/token", base),
                             &header, &token, err);

        if (r == 0 && (token.status != 200 || token.len == 0))
                r = err_set(err, ERR_FORBIDDEN, "no token, answered %d", token.status);
        header = (struct transfer_header){ "x-aws-ec2-metadata-token", token.room.data };
        if (r == 0)
                r = instance_ask(op, "GET", url, &header, &roles, err);
        if (r < 0)
                return r;
        role = role_of(op, &roles);
        if (!role)
                return err_set(err, ERR_NOT_FOUND, "this machine has no role");
        r = instance_ask(op, "GET", arena_printf(op->arena, "%s%s", url, role), &header, &answer,
                         err);
        return r < 0 ? r : read_json(&answer, ret, err);
}

int aws_from_instance(struct op *op, struct aws_credentials *ret, struct err *err)
{
        const char *disabled = aws_env_plain("AWS_EC2_METADATA_DISABLED");
        const char *base = aws_env_plain("AWS_EC2_METADATA_SERVICE_ENDPOINT");

        if (disabled && strcasecmp(disabled, "true") == 0)
                return 0;
        if (!base)
                base = INSTANCE_HOST;
        size_t len = strlen(base);
        if (len > 0 && base[len - 1] == '/')
                base = arena_strndup(op->arena, base, len - 1);
        int r = ask_instance(op, base, ret, err);
        return r < 0 ? err_wrap(err, r, "instance metadata") : r;
}

/* ---- web identity ---- */

static void put_form(struct buf *out, const char *name, const char *value)
{
        buf_appendf(out, "&%s=", name);
        for (; *value; value++) {
                unsigned char c = (unsigned char)*value;

                if ((c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
                    strchr("-_.~", c))
                        buf_putc(out, (char)c);
                else
                        buf_appendf(out, "%%%02X", c);
        }
}

static int read_xml(struct op *op, const struct transfer_answer *a, struct aws_credentials *ret,
                    struct err *err)
{
        static const char *const names[] = { "AccessKeyId", "SecretAccessKey", "SessionToken",
                                             "Expiration" };
        const char *part[4] = { 0 };
        size_t len[4] = { 0 };
        int r;

        if (a->len == 0)
                return err_set(err, ERR_INVALID, "an empty answer");
        if (a->status != 200) {
                r = xml_find(a->room.data, a->len, "Code", &part[0], &len[0], NULL);
                return err_set(err, ERR_FORBIDDEN, "answered %d %s", a->status,
                               r > 0 ? arena_strndup(op->arena, part[0], MIN(len[0], 64)) : "");
        }
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                r = xml_find(a->room.data, a->len, names[i], &part[i], &len[i], err);
                if (r == 0)
                        r = err_set(err, ERR_INVALID, "no %s in the answer", names[i]);
                if (r < 0)
                        return r;
        }
        r = aws_credentials_set(ret, part[0], len[0], part[1], len[1], part[2], len[2], err);
        if (r == 0)
                r = set_expiry(ret, part[3], len[3], err);
        return r < 0 ? r : 1;
}

static const char *sts_url(struct op *op, const char *region)
{
        const char *url = aws_env_plain("AWS_ENDPOINT_URL_STS");

        if (!url)
                url = aws_env_plain("AWS_ENDPOINT_URL");
        return url ? url : aws_service_url(op->arena, "sts", region);
}

static int assume_role(struct op *op, const char *url, const char *role, const char *token,
                       struct transfer_answer *ret, struct err *err)
{
        const char *session = aws_env_plain("AWS_ROLE_SESSION_NAME");
        struct transfer_header header = { "content-type", "application/x-www-form-urlencoded" };
        CLEAN(buf_wipe) struct buf form = BUF_INIT;
        struct transfer t = { .method = "POST",
                              .url = url,
                              .headers = &header,
                              .n_headers = 1,
                              .connect_ms = STS_CONNECT_MS,
                              .total_ms = STS_TOTAL_MS,
                              .ca_file = aws_env_plain("AWS_CA_BUNDLE") };

        /* Room for every byte escaped: a buffer that grows leaves copies behind. */
        if (!buf_reserve(&form, 3 * (strlen(token) + strlen(role)) + 1024))
                return err_set(err, ERR_TOO_LARGE, "the token is too large");
        buf_puts(&form, "Action=AssumeRoleWithWebIdentity&Version=2011-06-15");
        put_form(&form, "RoleArn", role);
        put_form(&form, "RoleSessionName", session ? session : "berth");
        put_form(&form, "WebIdentityToken", token);
        t.body = buf_str(&form);
        t.body_len = form.len;
        return transfer_run(op, &t, ret, err);
}

int aws_from_web_identity(struct op *op, const char *region, struct aws_credentials *ret,
                          struct err *err)
{
        const char *file = aws_env_plain("AWS_WEB_IDENTITY_TOKEN_FILE");
        const char *role = aws_env_plain("AWS_ROLE_ARN");
        const char *url = sts_url(op, region);
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(buf_wipe) struct buf token = BUF_INIT;

        if (!file || !role)
                return 0;
        if (!aws_endpoint_is_valid(url))
                return err_set(err, ERR_INVALID, "the STS endpoint is neither https nor local");
        int r = read_token(file, &token, err);
        if (r == 0)
                r = assume_role(op, url, role, buf_str(&token), &answer, err);
        if (r == 0)
                r = read_xml(op, &answer, ret, err);
        return r < 0 ? err_wrap(err, r, "web identity") : r;
}
