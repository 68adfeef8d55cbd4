/* The chain of sources, and a cache per region in front of it.
 *
 * A caller that finds no fresh credentials loads them; others that come meanwhile wait for that
 * load and take what it brought. A load that ended because its own operation was cancelled brought
 * nothing, and one of the callers that waited starts another. */
#include "secret/aws.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <strings.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "codec/json_scan.h"
#include "codec/xml.h"

/* Credentials that a service hands out: the container's agent, the machine's metadata service, or
 * STS in exchange for a token. All are temporary. */

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

static int aws_from_container(struct op *op, struct aws_credentials *ret, struct err *err)
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

static int aws_from_instance(struct op *op, struct aws_credentials *ret, struct err *err)
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

static int aws_from_web_identity(struct op *op, const char *region, struct aws_credentials *ret,
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

#define CACHE_MS     (INT64_C(300) * 1000)
#define EARLY_MS     (INT64_C(60) * 1000) /* before they expire */
#define MAX_REGIONS  32
#define REGION_BYTES 48

/* One attempt to get credentials; shared by its loader and the callers that wait. */
struct load {
        int fd; /* readable once it has ended */
        unsigned users;
        int failure; /* -1, or the kind of vault_fail() that the others would get as well */
};

struct region {
        char name[REGION_BYTES];
        struct aws_credentials credentials;
        bool present;
        int64_t fresh_until_ms; /* monotonic */
        int64_t used_ms;
        struct load *load; /* NULL: no load is under way */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct region regions[MAX_REGIONS];

void aws_credentials_done(struct aws_credentials *c)
{
        secret_value_done(&c->secret);
        secret_value_done(&c->token);
        *c = (struct aws_credentials){ 0 };
}

static int copy_credentials(const struct aws_credentials *from, struct aws_credentials *ret,
                            struct err *err)
{
        int r = aws_credentials_set(ret, from->access_key_id, strlen(from->access_key_id),
                                    from->secret.data, from->secret.len, from->token.data,
                                    from->token.len, err);

        if (r == 0)
                ret->expires_us = from->expires_us;
        return r;
}

/* ---- the chain ---- */

static int load_from_sources(struct op *op, const char *region, struct aws_credentials *ret,
                             struct err *err)
{
        int r = aws_from_environment(ret, err);

        if (r == 0)
                r = aws_from_files(op, ret, err);
        if (r == 0)
                r = aws_from_web_identity(op, region, ret, err);
        if (r == 0)
                r = aws_from_container(op, ret, err);
        if (r == 0) {
                r = aws_from_instance(op, ret, err);
                /* On most machines nothing answers at this address. */
                if (r == ERR_UNREACHABLE)
                        r = 0;
        }
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "no source has AWS credentials");
        return r < 0 ? r : 0;
}

static int unusable(enum vault_failure kind, struct err *err)
{
        return vault_fail(err, kind,
                          kind == VAULT_UNAVAILABLE
                                  ? aws_failure_text(kind)
                                  : "AWS Secrets Manager cannot be used: this server has no valid "
                                    "AWS credentials.");
}

/* The words of a source go to the log only. */
static int load_credentials(struct op *op, const char *region, struct aws_credentials *ret,
                            struct err *err)
{
        CLEAN(err_done) struct err reason = { 0 };
        int r = load_from_sources(op, region, ret, &reason);

        if (r == 0)
                return 0;
        if (r == ERR_CANCELLED || r == ERR_TIMEOUT) {
                err_move(err, &reason);
                return r;
        }
        log_warn("no AWS credentials", LOG_S("region", region),
                 LOG_S("reason", aws_redact(op->arena, reason.msg)));
        return unusable(r == ERR_UNREACHABLE ? VAULT_UNAVAILABLE : VAULT_ACCESS_DENIED, err);
}

/* ---- the cache; all with the lock held ---- */

static struct region *find_region(const char *name)
{
        for (size_t i = 0; i < MAX_REGIONS; i++)
                if (streq(regions[i].name, name))
                        return &regions[i];
        return NULL;
}

/* The region's place, or the one that was used longest ago and is not being loaded. */
static struct region *claim_region(const char *name)
{
        struct region *oldest = NULL, *r = find_region(name);

        for (size_t i = 0; !r && i < MAX_REGIONS; i++)
                if (!regions[i].load && (!oldest || regions[i].used_ms < oldest->used_ms))
                        oldest = &regions[i];
        if (!r && oldest) {
                aws_credentials_done(&oldest->credentials);
                *oldest = (struct region){ 0 };
                memcpy(oldest->name, name, MIN(strlen(name), sizeof(oldest->name) - 1));
                r = oldest;
        }
        if (r)
                r->used_ms = clock_mono_ms();
        return r;
}

static void keep_credentials(struct region *r, const struct aws_credentials *c)
{
        int64_t left = CACHE_MS;

        if (c->expires_us)
                left = MIN(left, (c->expires_us - clock_wall_us()) / US_PER_MS - EARLY_MS);
        aws_credentials_done(&r->credentials);
        r->present = left > 0 && copy_credentials(c, &r->credentials, NULL) == 0;
        r->fresh_until_ms = clock_mono_ms() + left;
}

static struct load *load_new(void)
{
        struct load *l = xcalloc(1, sizeof(*l));

        l->failure = -1;
        l->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        l->users = 1;
        if (l->fd < 0) {
                free(l);
                return NULL;
        }
        return l;
}

static void load_unref(struct load *l)
{
        if (--l->users > 0)
                return;
        close(l->fd);
        free(l);
}

/* ---- getting them ---- */

enum finding { FRESH, LOAD, WAIT, NO_ROOM };

/* What to do: *ret is filled with FRESH; *ret_load is ours to finish with LOAD, to wait for with
 * WAIT. */
static enum finding look_in_cache(const char *name, struct aws_credentials *ret,
                                  struct load **ret_load)
{
        struct region *r = claim_region(name);

        if (!r)
                return NO_ROOM;
        if (r->present && clock_mono_ms() < r->fresh_until_ms &&
            copy_credentials(&r->credentials, ret, NULL) == 0)
                return FRESH;
        if (r->load) {
                r->load->users++;
                *ret_load = r->load;
                return WAIT;
        }
        r->load = load_new();
        if (!r->load)
                return NO_ROOM;
        *ret_load = r->load;
        return LOAD;
}

/* c NULL: there are none, and `failure` is why. */
static void finish_load(const char *name, struct load *l, const struct aws_credentials *c,
                        int failure)
{
        uint64_t one = 1;

        pthread_mutex_lock(&lock);
        struct region *r = find_region(name);
        if (r && r->load == l) {
                if (c)
                        keep_credentials(r, c);
                r->load = NULL;
        }
        l->failure = failure;
        (void)!write(l->fd, &one, sizeof(one));
        load_unref(l);
        pthread_mutex_unlock(&lock);
}

static int wait_for(struct op *op, struct load *l, struct err *err)
{
        int r = op_wait_fd(op, l->fd, POLLIN, -1, err);

        pthread_mutex_lock(&lock);
        int failure = l->failure;
        load_unref(l);
        pthread_mutex_unlock(&lock);
        if (r < 0)
                return r;
        return failure < 0 ? 0 : unusable((enum vault_failure)failure, err);
}

int aws_credentials_get(struct op *op, const char *region, struct aws_credentials *ret,
                        struct err *err)
{
        CLEAN(err_done) struct err e = { 0 };
        int r;

        for (;;) {
                struct load *l = NULL;
                enum finding found;

                pthread_mutex_lock(&lock);
                found = look_in_cache(region, ret, &l);
                pthread_mutex_unlock(&lock);
                switch (found) {
                case FRESH:
                        return 0;
                case NO_ROOM:
                        return load_credentials(op, region, ret, err);
                case LOAD:
                        r = load_credentials(op, region, ret, &e);
                        finish_load(region, l, r == 0 ? ret : NULL, vault_failure_of(&e));
                        if (r < 0)
                                err_move(err, &e);
                        return r;
                case WAIT:
                        r = wait_for(op, l, err);
                        if (r < 0)
                                return r;
                        break;
                }
        }
}

void aws_credentials_refused(const char *region, const struct aws_credentials *c)
{
        pthread_mutex_lock(&lock);
        struct region *r = find_region(region);
        if (r && r->present && streq(r->credentials.access_key_id, c->access_key_id)) {
                aws_credentials_done(&r->credentials);
                r->present = false;
        }
        pthread_mutex_unlock(&lock);
}

/* ---- what can be seen without a request ---- */

bool aws_credentials_static_in_env(void)
{
        return aws_env_plain("AWS_ACCESS_KEY_ID") || aws_env_plain("AWS_SECRET_ACCESS_KEY");
}

json_t *aws_credentials_detected(void)
{
        static const struct {
                const char *variable, *source;
        } signs[] = {
                { "AWS_ACCESS_KEY_ID", "environment" },
                { "AWS_PROFILE", "shared_profile" },
                { "AWS_SHARED_CREDENTIALS_FILE", "shared_credentials_file" },
                { "AWS_WEB_IDENTITY_TOKEN_FILE", "web_identity" },
                { "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "container" },
                { "AWS_CONTAINER_CREDENTIALS_FULL_URI", "container" },
        };
        json_t *list = json_array();

        for (size_t i = 0; i < ARRAY_LEN(signs); i++)
                if (aws_env_plain(signs[i].variable))
                        json_array_append_new(list, json_string(signs[i].source));
        return list;
}
