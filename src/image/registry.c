/* Fetches documents and layers from a registry.
 *
 * A fetch is one thing by its path. It goes from attempt to attempt: to the mirrors in turn and
 * then to the registry; after a 401 with a token; after a redirect to where it leads; after a cut
 * from where it was cut. Several run at once on one handle of libcurl. All decisions about an
 * answer are in attempt_ended(). */
#define _GNU_SOURCE
#include "image/registry.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "codec/host_pattern.h"
#include "codec/http1.h"
#include "codec/json.h"
#include "codec/private_hosts.h"
#include "image/challenge.h"
#include "image/digest.h"
#include "image/registry_rules.h"
#include "rt/libcurl.h"

#define MAX_REDIRECTS  5
#define MAX_TRIES      4     /* without a new byte, at one endpoint */
#define FIRST_PAUSE_MS 250   /* before the second try; doubled each time */
#define MAX_WAIT_MS    10000 /* of a Retry-After that is waited for */
#define MAX_POLL_MS    1000
#define PROGRESS_MS    100
#define MAX_SAID       ((size_t)8 << 10) /* of the body of an error */
#define MAX_TOKEN      ((size_t)256 << 10)
#define MAX_ENDPOINTS  (REGISTRY_MAX_RULES + 1)
#define PIECE          ((size_t)128 << 10)

#define ACCEPT                                                                                     \
        "Accept: application/vnd.oci.image.index.v1+json, "                                        \
        "application/vnd.oci.image.manifest.v1+json, "                                             \
        "application/vnd.docker.distribution.manifest.list.v2+json, "                              \
        "application/vnd.docker.distribution.manifest.v2+json"

/* One of the hosts that are asked for the repository. */
struct endpoint {
        char host[IMAGE_HOST_SIZE]; /* as in a URL */
        bool plain_http, is_mirror;
        bool is_basic; /* it wants the credentials themselves */
        char *token;   /* or this; NULL: not asked for yet */
};

struct registry {
        const struct registry_rules *rules;
        const struct image_login *login;
        const char *ca_file;
        struct image_ref ref;
        struct endpoint endpoints[MAX_ENDPOINTS];
        size_t n_endpoints;
        size_t first; /* the one that had the manifest */
        CURLM *multi;
};

/* Where a URL leads, as libcurl reads it. */
struct place {
        char host[HOST_NAME_SIZE];
        uint16_t port;
        bool is_https;
};

struct fetch {
        struct registry *r;
        struct op *op;
        const char *path;   /* "manifests/latest" */
        const char *digest; /* NULL: whatever comes */
        uint64_t size;      /* unless `any_size` */
        uint64_t have;      /* of the content; in `fd`, or in `body`, which is bounded */
        struct digest hash;
        struct buf body;
        int fd; /* -1: none */
        bool is_manifest, any_size;
        bool resumed; /* `have` began with bytes of an earlier attempt */
        bool finished;

        /* of the attempt */
        bool active;
        bool may_be_private; /* the rules name the host */
        bool sends_rights;
        bool began; /* its body is content, and the first byte has come */
        bool too_large;
        bool has_range;
        bool asked_for_rights; /* in this attempt or the one before */
        int write_error;
        size_t endpoint;
        char *url; /* of the redirect that is followed; NULL: the endpoint's own */
        CURL *easy;
        struct curl_slist *headers;
        const char *refusal; /* what kind of address `refused` is, which was not connected to */
        uint64_t range_from;
        int64_t retry_after_s; /* -1: not said */
        struct buf said;       /* the body of an error */
        struct challenge challenge;
        char refused[PRIVATE_HOST_TEXT];
        char content_type[128];

        /* over all attempts at this endpoint */
        unsigned tries, redirects;
        uint64_t have_at_try;
        int64_t not_before_ms;
        struct err err; /* why it failed */

        const struct registry_progress *progress;
        size_t number;
        int64_t told_ms;
};

/* Life */

static void wipe_token(struct endpoint *e)
{
        if (e->token)
                sodium_memzero(e->token, strlen(e->token));
        free(e->token);
        e->token = NULL;
}

static void add_endpoint(struct registry *r, const char *host, bool plain_http, bool is_mirror)
{
        struct endpoint *e = &r->endpoints[r->n_endpoints++];

        (void)snprintf(e->host, sizeof(e->host), "%s",
                       streq(host, "docker.io") ? "registry-1.docker.io" : host);
        e->plain_http = plain_http;
        e->is_mirror = is_mirror;
}

struct registry *registry_open(const struct registry_rules *rules, const struct image_ref *ref,
                               const struct image_login *login, const char *ca_file)
{
        struct registry *r = xcalloc(1, sizeof(*r));
        struct host_target target = { 0 };

        r->rules = rules;
        r->login = login && login->password ? login : NULL;
        r->ca_file = ca_file;
        r->ref = *ref;
        for (size_t i = 0; i < rules->n; i++)
                if (streq(rules->at[i].mirror_of, ref->host))
                        add_endpoint(r, rules->at[i].host, rules->at[i].plain_http, true);
        /* A reference without a port means port 443, or port 80 where the rules say http. */
        (void)host_target_parse(ref->host, strlen(ref->host), 80, &target, NULL);
        add_endpoint(r, ref->host, rules_allow_http(rules, target.name, target.port), false);
        return r;
}

void registry_close(struct registry *r)
{
        if (!r)
                return;
        for (size_t i = 0; i < r->n_endpoints; i++)
                wipe_token(&r->endpoints[i]);
        if (r->multi)
                (void)libcurl.multi_cleanup(r->multi);
        free(r);
}

static int registry_ready(struct registry *r, struct err *err)
{
        if (!libcurl_load())
                return err_set(err, ERR_NOT_IMPLEMENTED,
                               "registries need libcurl.so.4, which is not installed");
        if (!r->multi)
                r->multi = libcurl.multi_init();
        return r->multi ? 0 : err_set(err, ERR_INTERNAL, "libcurl cannot start");
}

static void fetch_end_attempt(struct fetch *f)
{
        if (f->active)
                (void)libcurl.multi_remove_handle(f->r->multi, f->easy);
        f->active = false;
        if (f->easy)
                libcurl.easy_cleanup(f->easy);
        f->easy = NULL;
        if (f->headers)
                libcurl.slist_free_all(f->headers);
        f->headers = NULL;
}

static void fetch_done(struct fetch *f)
{
        fetch_end_attempt(f);
        free(f->url);
        buf_done(&f->body);
        buf_done(&f->said);
        err_done(&f->err);
}

static struct endpoint *endpoint_of(const struct fetch *f)
{
        return &f->r->endpoints[f->endpoint];
}

/* Places */

static bool read_place(const char *url, struct place *ret)
{
        CURLU *u = libcurl.url();
        char *scheme = NULL, *host = NULL, *port = NULL;
        bool good = u && libcurl.url_set(u, CURLUPART_URL, url, 0) == CURLUE_OK &&
                    libcurl.url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                    libcurl.url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK &&
                    libcurl.url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                    (streq(scheme, "https") || streq(scheme, "http"));

        if (good) {
                size_t len = strlen(host);
                bool bracketed = len > 2 && host[0] == '[' && host[len - 1] == ']';

                ret->is_https = streq(scheme, "https");
                ret->port = (uint16_t)strtoul(port, NULL, 10);
                good = len < sizeof(ret->host);
                if (good)
                        (void)snprintf(ret->host, sizeof(ret->host), "%.*s",
                                       (int)(bracketed ? len - 2 : len), host + bracketed);
        }
        libcurl.free(scheme);
        libcurl.free(host);
        libcurl.free(port);
        libcurl.url_cleanup(u);
        return good;
}

static bool same_place(const struct place *a, const struct place *b)
{
        return strcasecmp(a->host, b->host) == 0 && a->port == b->port &&
               a->is_https == b->is_https;
}

/* Whether a URL that someone else named may be asked. */
static int check_place(const struct registry *r, const char *url, struct place *ret,
                       struct err *err)
{
        if (!read_place(url, ret))
                return err_set(err, ERR_PROVIDER,
                               "the registry %s leads to something that is not "
                               "a URL of http or https",
                               r->ref.host);
        if (!ret->is_https && !rules_allow_http(r->rules, ret->host, ret->port))
                return err_set(err, ERR_FORBIDDEN,
                               "the registry %s leads to http://%s:%u, which is not encrypted. To "
                               "allow it, the operator adds \"http://%s:%u\" to image_registries.",
                               r->ref.host, ret->host, ret->port, ret->host, ret->port);
        return 0;
}

/* Rights */

static void add_line(struct curl_slist **list, const char *line)
{
        struct curl_slist *longer = libcurl.slist_append(*list, line);

        if (!longer)
                memory_exhausted();
        *list = longer;
}

static void add_authorization(struct curl_slist **list, const char *scheme, const char *value)
{
        CLEAN(buf_wipe) struct buf line = BUF_INIT;

        if (!buf_reserve(&line, strlen(value) + 64))
                memory_exhausted();
        buf_appendf(&line, "Authorization: %s %s", scheme, value);
        add_line(list, buf_str(&line));
}

static void add_basic(struct curl_slist **list, const struct image_login *login)
{
        size_t len = strlen(login->user) + 1 + strlen(login->password);
        size_t room = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);
        char *plain = xcalloc(len + 1, 1), *encoded = xcalloc(room, 1);

        (void)snprintf(plain, len + 1, "%s:%s", login->user, login->password);
        (void)sodium_bin2base64(encoded, room, (const uint8_t *)plain, len,
                                sodium_base64_VARIANT_ORIGINAL);
        add_authorization(list, "Basic", encoded);
        sodium_memzero(plain, len);
        sodium_memzero(encoded, room);
        free(plain);
        free(encoded);
}

static void put_encoded(struct buf *to, const char *text)
{
        for (; *text; text++)
                if (isalnum((unsigned char)*text) || strchr("-._~", *text))
                        buf_putc(to, *text);
                else
                        buf_appendf(to, "%%%02X", (unsigned char)*text);
}

/* One attempt, as far as documents, layers and tokens share it */

static curl_socket_t open_judged_socket(void *arg, curlsocktype purpose,
                                        struct curl_sockaddr *address)
{
        struct fetch *f = arg;
        struct net_addr addr;
        uint16_t port;

        if (!libcurl_address(purpose, address, &addr, &port))
                return CURL_SOCKET_BAD;
        f->refusal = f->may_be_private ? NULL : private_hosts_refusal(NULL, &addr, port);
        if (f->refusal) {
                private_host_format(&addr, port, f->refused);
                return CURL_SOCKET_BAD;
        }
        return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

static long status_of(const struct fetch *f)
{
        long status = 0;

        (void)libcurl.easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
        return status;
}

/* The value of a header line, without what is around it; NULL: another header. */
static const char *header_value(const char *line, size_t len, const char *name, size_t *ret_len)
{
        size_t n = strlen(name);

        if (len <= n || line[n] != ':' || strncasecmp(line, name, n) != 0)
                return NULL;
        line += n + 1;
        len -= n + 1;
        while (len > 0 && (*line == ' ' || *line == '\t')) {
                line++;
                len--;
        }
        while (len > 0 && isspace((unsigned char)line[len - 1]))
                len--;
        *ret_len = len;
        return line;
}

static bool read_number(const char *at, size_t len, uint64_t *ret)
{
        uint64_t value = 0;
        size_t i = 0;

        for (; i < len && i < 18 && at[i] >= '0' && at[i] <= '9'; i++)
                value = value * 10 + (uint64_t)(at[i] - '0');
        *ret = value;
        return i > 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
        struct fetch *f = arg;
        const char *value;
        uint64_t number;
        size_t len;

        if ((value = header_value(line, size * n, "Content-Type", &len)))
                (void)snprintf(f->content_type, sizeof(f->content_type), "%.*s", (int)len, value);
        else if ((value = header_value(line, size * n, "WWW-Authenticate", &len)))
                challenge_add(&f->challenge, value, len);
        else if ((value = header_value(line, size * n, "Retry-After", &len)))
                f->retry_after_s = read_number(value, len, &number) ? (int64_t)number : -1;
        else if ((value = header_value(line, size * n, "Content-Range", &len)) && len > 6 &&
                 strncasecmp(value, "bytes ", 6) == 0)
                f->has_range = read_number(value + 6, len - 6, &f->range_from);
        return size * n;
}

static void tell(struct fetch *f, bool is_verified)
{
        int64_t now = clock_mono_ms();

        if (!f->progress || (!is_verified && f->told_ms && now - f->told_ms < PROGRESS_MS))
                return;
        f->told_ms = now;
        f->progress->on_progress(f->progress->ctx, f->number, f->have, f->size, is_verified);
}

static bool start_over(struct fetch *f)
{
        digest_begin(&f->hash);
        f->have = 0;
        f->resumed = false;
        buf_clear(&f->body);
        if (f->fd >= 0 && ftruncate(f->fd, 0) < 0)
                f->write_error = errno;
        return !f->write_error;
}

static bool keep(struct fetch *f, const char *data, size_t len)
{
        if (f->fd < 0) {
                buf_append(&f->body, data, len);
                f->too_large = buf_failed(&f->body);
        }
        for (size_t put = 0; f->fd >= 0 && put < len;) {
                ssize_t n = pwrite(f->fd, data + put, len - put, (off_t)(f->have + put));

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0) {
                        f->write_error = errno;
                        return false;
                }
                put += (size_t)n;
        }
        digest_add(&f->hash, data, len);
        f->have += len;
        return !f->too_large;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
        struct fetch *f = arg;
        size_t len = size * n;
        long status = status_of(f);

        if (status != 200 && status != 206) {
                if (f->said.len + len <= MAX_SAID)
                        buf_append(&f->said, data, len);
                return len;
        }
        if (!f->began) {
                /* A server may answer with all of it, or with another part than asked for. */
                if (status == 206 && f->has_range && f->range_from != f->have)
                        return 0;
                if ((status == 200 || !f->has_range) && f->have && !start_over(f))
                        return 0;
                f->began = true;
        }
        if (!f->any_size && f->have + len > f->size) {
                f->too_large = true;
                return 0;
        }
        if (!keep(f, data, len))
                return 0;
        tell(f, false);
        return len;
}

#define SET(option, value)                                                                         \
        do {                                                                                       \
                if (libcurl.easy_setopt(f->easy, (option), (value)) != CURLE_OK)                   \
                        return err_set(err, ERR_NOT_IMPLEMENTED,                                   \
                                       "libcurl does not know " #option);                          \
        } while (0)

/* `post` NULL: GET. */
static int set_options(struct fetch *f, const char *url, const char *post, struct err *err)
{
        SET(CURLOPT_URL, url);
        SET(CURLOPT_PROTOCOLS_STR, "http,https");
        SET(CURLOPT_FOLLOWLOCATION, 0L);
        SET(CURLOPT_SSL_VERIFYPEER, 1L);
        SET(CURLOPT_SSL_VERIFYHOST, 2L);
        SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
        SET(CURLOPT_NOSIGNAL, 1L);
        SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        SET(CURLOPT_QUICK_EXIT, 1L);
        SET(CURLOPT_PROXY, ""); /* one would connect for us to wherever it likes */
        SET(CURLOPT_USERAGENT, "berth/" BERTH_VERSION);
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)REGISTRY_CONNECT_MS);
        SET(CURLOPT_LOW_SPEED_LIMIT, 1L);
        SET(CURLOPT_LOW_SPEED_TIME, (long)(REGISTRY_SILENCE_MS / 1000));
        SET(CURLOPT_BUFFERSIZE, (long)PIECE);
        if (f->r->ca_file)
                SET(CURLOPT_CAINFO, f->r->ca_file);
        if (post)
                SET(CURLOPT_COPYPOSTFIELDS, post);
        SET(CURLOPT_OPENSOCKETFUNCTION, open_judged_socket);
        SET(CURLOPT_OPENSOCKETDATA, f);
        SET(CURLOPT_HTTPHEADER, f->headers);
        SET(CURLOPT_WRITEFUNCTION, on_body);
        SET(CURLOPT_WRITEDATA, f);
        SET(CURLOPT_HEADERFUNCTION, on_header);
        SET(CURLOPT_HEADERDATA, f);
        SET(CURLOPT_PRIVATE, f);
        return 0;
}

/* The headers are in f->headers; the judgement of the place is made. */
static int begin_request(struct fetch *f, const char *url, const char *post, struct err *err)
{
        f->began = f->has_range = f->too_large = false;
        f->refusal = NULL;
        *f->refused = *f->content_type = '\0';
        f->retry_after_s = -1;
        f->challenge = (struct challenge){ 0 };
        buf_clear(&f->said);
        f->easy = libcurl.easy_init();
        if (!f->easy)
                return err_set(err, ERR_INTERNAL, "libcurl cannot start");
        int r = set_options(f, url, post, err);
        if (r < 0)
                return r;
        if (libcurl.multi_add_handle(f->r->multi, f->easy) != CURLM_OK)
                return err_set(err, ERR_INTERNAL, "libcurl cannot start");
        f->active = true;
        return 0;
}

static int begin_attempt(struct fetch *f, struct err *err)
{
        const struct endpoint *e = endpoint_of(f);
        char own[2 * IMAGE_REF_SIZE], range[64];
        struct place at, home;
        int r;

        (void)snprintf(own, sizeof(own), "%s://%s/v2/%s/%s", e->plain_http ? "http" : "https",
                       e->host, f->r->ref.repository, f->path);
        const char *url = f->url ? f->url : own;
        if (!read_place(own, &home))
                return err_set(err, ERR_INVALID, "the registry %s is not a host", e->host);
        r = check_place(f->r, url, &at, err);
        if (r < 0)
                return r;
        f->may_be_private = rules_name(f->r->rules, at.host, at.port);
        f->sends_rights = same_place(&at, &home);
        if (f->is_manifest)
                add_line(&f->headers, ACCEPT);
        if (f->sends_rights && e->token)
                add_authorization(&f->headers, "Bearer", e->token);
        else if (f->sends_rights && e->is_basic)
                add_basic(&f->headers, f->r->login);
        if (f->have) {
                (void)snprintf(range, sizeof(range), "Range: bytes=%llu-",
                               (unsigned long long)f->have);
                add_line(&f->headers, range);
        }
        return begin_request(f, url, NULL, err);
}

/* Waiting */

/* Until something happened on one of the connections, or `ms` have passed. */
static int wait_some(struct op *op, struct registry *r, int64_t ms, struct err *err)
{
        struct curl_waitfd cancel[] = {
                { .fd = op->cancel ? op->cancel->fd : -1, .events = CURL_WAIT_POLLIN },
                { .fd = op->stop ? op->stop->fd : -1, .events = CURL_WAIT_POLLIN },
        };
        int left, e = op_check(op, err);

        if (e < 0)
                return e;
        /* poll() passes over descriptors that are -1. */
        if (libcurl.multi_poll(r->multi, cancel, ARRAY_LEN(cancel), (int)op_time_left(op, ms),
                               NULL) != CURLM_OK ||
            libcurl.multi_perform(r->multi, &left) != CURLM_OK)
                return err_set(err, ERR_INTERNAL, "libcurl failed");
        return op_check(op, err);
}

static struct fetch *take_ended(struct registry *r, CURLcode *ret)
{
        const CURLMsg *m;
        int more;

        while ((m = libcurl.multi_info_read(r->multi, &more))) {
                char *f = NULL;

                if (m->msg != CURLMSG_DONE)
                        continue;
                *ret = m->data.result;
                (void)libcurl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &f);
                return (struct fetch *)(void *)f;
        }
        return NULL;
}

/* Why there was no answer. */
static int no_answer(const struct fetch *f, CURLcode result, struct err *err)
{
        const char *host = f->r->ref.host;

        if (f->write_error)
                return err_sys(err, ERR_IO, f->write_error, "write what the registry sent");
        if (f->too_large)
                return err_set(err, ERR_PROVIDER,
                               "the registry %s sends more than it should for %s", host, f->path);
        if (*f->refused)
                return err_set(err, ERR_FORBIDDEN,
                               "The registry %s, or where it leads to, has the address %s, which "
                               "is not public (%s). To allow it, the operator adds its name and "
                               "port to image_registries, with http:// in front when it has no "
                               "TLS.",
                               host, f->refused, f->refusal);
        if (result == CURLE_OPERATION_TIMEDOUT)
                return err_set(err, ERR_UNREACHABLE, "the registry %s does not answer", host);
        if (result == CURLE_PEER_FAILED_VERIFICATION)
                return err_set(err, ERR_UNREACHABLE,
                               "the certificate of the registry %s cannot be verified: %s", host,
                               libcurl.easy_strerror(result));
        return err_set(err, ERR_UNREACHABLE, "the registry %s cannot be reached: %s", host,
                       libcurl.easy_strerror(result));
}

/* What the registry says is wrong, as one printable line; "" when it says nothing. */
static void said_text(const struct fetch *f, char *ret, size_t size)
{
        json_t *said = NULL;
        const char *message;

        *ret = '\0';
        if (json_parse(buf_str(&f->said), f->said.len, &said, NULL) < 0)
                return;
        message = json_get_string(json_array_get(json_object_get(said, "errors"), 0), "message");
        if (message && strlen(message) < size - 16) {
                (void)snprintf(ret, size, " (it says: %s)", message);
                for (char *c = ret; *c; c++)
                        if ((unsigned char)*c < ' ')
                                *c = ' ';
        }
        json_decref(said);
}

static int status_error(const struct fetch *f, long status, struct err *err)
{
        const char *host = f->r->ref.host, *name = f->r->ref.repository;
        bool has_login = f->r->login && !endpoint_of(f)->is_mirror;
        char said[300];

        said_text(f, said, sizeof(said));
        switch (status) {
        case 401:
                return has_login ? err_set(err, ERR_UNAUTHORIZED,
                                           "the registry %s refuses the credentials%s", host, said)
                                 : err_set(err, ERR_UNAUTHORIZED,
                                           "the registry %s has no %s for everybody: give "
                                           "credentials for it, by `docker login %s` or as a "
                                           "secret, or check the name%s",
                                           host, name, host, said);
        case 403:
                return err_set(err, ERR_FORBIDDEN,
                               has_login ? "the registry %s does not let these credentials read "
                                           "%s%s"
                                         : "the registry %s lets only some users read %s; give "
                                           "credentials for it%s",
                               host, name, said);
        case 404:
                return err_set(err, ERR_NOT_FOUND,
                               f->is_manifest
                                       ? "the registry %s has no image %s (%s)%s"
                                       : "the registry %s has no part of the image %s (%s)%s",
                               host, name, f->path, said);
        case 429: {
                int r = f->retry_after_s >= 0
                                ? err_set(err, ERR_THROTTLED,
                                          "the registry %s asks to wait for %lld seconds%s", host,
                                          (long long)f->retry_after_s, said)
                                : err_set(err, ERR_THROTTLED,
                                          "the registry %s asks to wait; try again later, or with "
                                          "credentials%s",
                                          host, said);

                return r;
        }
        default:
                return err_set(err, status >= 500 ? ERR_UNREACHABLE : ERR_PROVIDER,
                               "the registry %s answers with status %ld%s", host, status, said);
        }
}

/* Tokens */

static int read_token(struct endpoint *e, const struct fetch *f, struct err *err)
{
        json_t *answer = NULL;
        const char *token;
        int r = json_parse(buf_str(&f->body), f->body.len, &answer, NULL);

        token = r < 0 ? NULL : json_get_string(answer, "token");
        if (!token)
                token = r < 0 ? NULL : json_get_string(answer, "access_token");
        if (token && *token && http1_is_field_value(token)) {
                wipe_token(e);
                e->token = xstrdup(token);
                r = 0;
        } else {
                r = err_set(err, ERR_PROVIDER, "the registry %s gives no token", f->r->ref.host);
        }
        json_decref(answer);
        return r;
}

/* The URL with the question, or the question as a body where an identity token asks. */
static void token_question(const struct fetch *f, const struct image_login *login, struct buf *url,
                           struct buf *post)
{
        const struct challenge *c = &f->challenge;
        bool is_post = login && !login->user;
        struct buf *to = is_post ? post : url;

        buf_puts(url, c->realm);
        buf_puts(to, is_post                 ? "grant_type=refresh_token&client_id=berth"
                     : strchr(c->realm, '?') ? "&client_id=berth"
                                             : "?client_id=berth");
        if (*c->service) {
                buf_puts(to, "&service=");
                put_encoded(to, c->service);
        }
        buf_puts(to, "&scope=");
        if (*c->scope) {
                put_encoded(to, c->scope);
        } else {
                buf_puts(to, "repository%3A");
                put_encoded(to, f->r->ref.repository);
                buf_puts(to, "%3Apull");
        }
        if (is_post) {
                buf_puts(to, "&refresh_token=");
                put_encoded(to, login->password);
        }
}

/* The realm is asked on a handle of its own; what else is being fetched waits meanwhile. */
static int fetch_token(struct fetch *f, struct err *err)
{
        struct endpoint *e = endpoint_of(f);
        const struct image_login *login = e->is_mirror ? NULL : f->r->login;
        struct registry aside = {
                .rules = f->r->rules, .ca_file = f->r->ca_file, .ref = f->r->ref, .login = login
        };
        CLEAN(fetch_done)
        struct fetch t = { .r = &aside,
                           .op = f->op,
                           .path = "token",
                           .any_size = true,
                           .fd = -1,
                           .body = { .max = MAX_TOKEN },
                           .said = { .max = MAX_SAID + PIECE } };
        CLEAN(buf_done) struct buf url = BUF_INIT;
        CLEAN(buf_wipe) struct buf post = BUF_INIT;
        CURLcode result = CURLE_OK;
        struct place at;
        int r;

        aside.endpoints[0].is_mirror = e->is_mirror;
        token_question(f, login, &url, &post);
        r = check_place(f->r, buf_str(&url), &at, err);
        if (r < 0)
                return r;
        t.may_be_private = rules_name(f->r->rules, at.host, at.port);
        if (login && login->user)
                add_basic(&t.headers, login);
        r = registry_ready(&aside, err);
        if (r >= 0)
                r = begin_request(&t, buf_str(&url), post.len ? buf_str(&post) : NULL, err);
        while (r >= 0 && !take_ended(&aside, &result))
                r = wait_some(f->op, &aside, MAX_POLL_MS, err);
        if (r >= 0 && result != CURLE_OK)
                r = no_answer(&t, result, err);
        else if (r >= 0)
                r = status_of(&t) == 200 ? read_token(e, &t, err)
                                         : status_error(&t, status_of(&t), err);
        buf_wipe(&t.body);
        fetch_end_attempt(&t);
        if (aside.multi)
                (void)libcurl.multi_cleanup(aside.multi);
        return r;
}

/* Try again later at the same endpoint; false when that was done often enough. */
static bool try_again(struct fetch *f, int64_t pause_ms)
{
        if (f->have > f->have_at_try) /* it got further */
                f->tries = 0;
        f->have_at_try = f->have;
        if (++f->tries >= MAX_TRIES)
                return false;
        f->not_before_ms =
                clock_mono_ms() + (pause_ms >= 0 ? pause_ms : FIRST_PAUSE_MS << (f->tries - 1));
        return true;
}

/* After a 401: 0 when it is worth another attempt. */
static int get_rights(struct fetch *f, struct err *err)
{
        struct endpoint *e = endpoint_of(f);

        if (f->asked_for_rights || !f->sends_rights)
                return status_error(f, 401, err);
        f->asked_for_rights = true;
        if (f->challenge.kind == CHALLENGE_BEARER) {
                int r = fetch_token(f, err);

                if (r != ERR_UNREACHABLE || !try_again(f, -1))
                        return r;
                f->asked_for_rights = false;
                return 0;
        }
        if (f->challenge.kind == CHALLENGE_BASIC && f->r->login && f->r->login->user &&
            !e->is_mirror && !e->is_basic) {
                e->is_basic = true;
                return 0;
        }
        return status_error(f, 401, err);
}

/* Decisions */

static int follow_redirect(struct fetch *f, struct err *err)
{
        char *url = NULL;

        if (libcurl.easy_getinfo(f->easy, CURLINFO_REDIRECT_URL, &url) != CURLE_OK || !url)
                return err_set(err, ERR_PROVIDER, "the registry %s redirects to nowhere",
                               f->r->ref.host);
        if (++f->redirects > MAX_REDIRECTS)
                return err_set(err, ERR_PROVIDER, "the registry %s redirects too often",
                               f->r->ref.host);
        free(f->url);
        f->url = xstrdup(url);
        return 0;
}

/* All of it is there. */
static int check_content(struct fetch *f, struct err *err)
{
        char digest[IMAGE_DIGEST_SIZE];

        if (f->digest) {
                digest_end(&f->hash, digest);
                if (!streq(digest, f->digest)) {
                        bool was_resumed = f->resumed;

                        (void)start_over(f);
                        /* What was there before may have been at fault. */
                        if (was_resumed && try_again(f, 0))
                                return 0;
                        return err_set(err, ERR_PROVIDER,
                                       "the registry %s sent something else than %s",
                                       f->r->ref.host, f->digest);
                }
        }
        f->finished = true;
        tell(f, true);
        return 0;
}

/* An attempt has ended. 0: finished, or to be begun again; else why it failed at this endpoint. */
static int attempt_ended(struct fetch *f, CURLcode result, struct err *err)
{
        long status = result == CURLE_OK ? status_of(f) : 0;
        bool was_redirected = f->url != NULL;

        if (result == CURLE_OK && status >= 300 && status < 400 && status != 304)
                return follow_redirect(f, err);
        free(take_ptr(&f->url)); /* another attempt begins at the registry */
        if (f->began)            /* a token may run out while a layer comes */
                f->asked_for_rights = false;
        if (result != CURLE_OK) {
                int r = no_answer(f, result, err);

                return r == ERR_UNREACHABLE && result != CURLE_PEER_FAILED_VERIFICATION &&
                                       try_again(f, -1)
                               ? 0
                               : r;
        }
        f->redirects = 0;
        if (status == 200 || status == 206) {
                if (!f->began && f->have && status == 200 && !start_over(f))
                        return err_sys(err, ERR_IO, f->write_error, "write what the registry sent");
                if (f->any_size || f->have == f->size)
                        return check_content(f, err);
                return try_again(f, -1) ? 0
                                        : err_set(err, ERR_PROVIDER,
                                                  "the registry %s sends only a part of %s",
                                                  f->r->ref.host, f->path);
        }
        if (status == 416 && f->have && start_over(f))
                return try_again(f, 0) ? 0 : status_error(f, status, err);
        if (status == 401 && !was_redirected)
                return get_rights(f, err);
        if (status == 429 && f->retry_after_s >= 0 && f->retry_after_s * 1000 <= MAX_WAIT_MS &&
            try_again(f, f->retry_after_s * 1000))
                return 0;
        if (status >= 500 && try_again(f, -1))
                return 0;
        /* A link with a signature may have run out meanwhile. */
        if (was_redirected && status == 403 && try_again(f, 0))
                return 0;
        return status_error(f, status, err);
}

/* After a failure at a mirror the next endpoint is asked. */
static bool next_endpoint(struct fetch *f, int code)
{
        if (!endpoint_of(f)->is_mirror || code == ERR_CANCELLED || code == ERR_TIMEOUT ||
            code == ERR_IO)
                return false;
        f->endpoint++;
        f->tries = f->redirects = 0;
        f->asked_for_rights = false;
        f->not_before_ms = 0;
        free(take_ptr(&f->url));
        return true;
}

/* Drive all of them to their end, `parallel` at once. */
static int run_fetches(struct op *op, struct registry *r, struct fetch *fetches, size_t n,
                       size_t parallel, struct err *err)
{
        size_t finished = 0;
        int e = registry_ready(r, err);

        while (e >= 0 && finished < n) {
                int64_t now = clock_mono_ms(), wait = MAX_POLL_MS;
                size_t under_way = 0;
                struct fetch *f;
                CURLcode result;

                finished = 0;
                for (size_t i = 0; i < n; i++) {
                        f = &fetches[i];
                        finished += f->finished;
                        if (f->finished || under_way >= parallel)
                                continue;
                        under_way++;
                        if (f->active)
                                continue;
                        if (f->not_before_ms > now) {
                                wait = MIN(wait, f->not_before_ms - now);
                                continue;
                        }
                        e = begin_attempt(f, &f->err);
                        if (e < 0 && !next_endpoint(f, e)) {
                                err_move(err, &f->err);
                                return e;
                        }
                        if (e < 0) {
                                fetch_end_attempt(f);
                                wait = e = 0;
                        }
                }
                if (finished == n)
                        break;
                e = wait_some(op, r, wait, err);
                while (e >= 0 && (f = take_ended(r, &result))) {
                        e = attempt_ended(f, result, &f->err);
                        fetch_end_attempt(f);
                        if (e >= 0)
                                continue;
                        if (!next_endpoint(f, e)) {
                                err_move(err, &f->err);
                                return e;
                        }
                        e = 0;
                }
        }
        return e;
}

/* What is asked for */

static struct fetch new_fetch(struct op *op, struct registry *r, const char *path)
{
        struct fetch f = { .r = r, .op = op, .path = path, .fd = -1, .endpoint = r->first };

        f.said.max = MAX_SAID + PIECE;
        digest_begin(&f.hash);
        return f;
}

/* A document, which is in f->body then. */
static int get_manifest(struct op *op, struct registry *r, const char *name, bool is_digest,
                        struct fetch *ret, struct err *err)
{
        int e;

        *ret = new_fetch(op, r, arena_printf(op->arena, "manifests/%s", name));
        ret->is_manifest = ret->any_size = true;
        ret->digest = is_digest ? name : NULL;
        ret->body.max = IMAGE_MAX_DOCUMENT + 1;
        e = run_fetches(op, r, ret, 1, 1, err);
        if (e >= 0)
                r->first = ret->endpoint;
        return e < 0 ? e : 0;
}

static int get_config(struct op *op, struct registry *r, const struct image_descriptor *what,
                      struct fetch *ret, struct err *err)
{
        *ret = new_fetch(op, r, arena_printf(op->arena, "blobs/%s", what->digest));
        ret->digest = what->digest;
        ret->size = what->size;
        ret->body.max = IMAGE_MAX_DOCUMENT + 1;
        return run_fetches(op, r, ret, 1, 1, err);
}

static const char *wanted_name(const struct registry *r)
{
        return *r->ref.digest ? r->ref.digest : r->ref.tag;
}

/* What the registry sent makes no sense: not the caller's mistake. */
static int registry_fault(const struct registry *r, int code, struct err *err)
{
        return code == ERR_INVALID ? err_wrap(err, ERR_PROVIDER, "the registry %s", r->ref.host)
                                   : code;
}

int registry_image(struct op *op, struct registry *r, const struct image_platform *platform,
                   struct image *ret, struct err *err)
{
        CLEAN(fetch_done) struct fetch document = { .fd = -1 }, config = { .fd = -1 };
        struct image_descriptor chosen;
        struct image_manifest manifest;
        enum image_media media;
        int e;

        r->first = 0;
        e = get_manifest(op, r, wanted_name(r), *r->ref.digest, &document, err);
        if (e >= 0)
                e = image_document_media(buf_str(&document.body), document.body.len,
                                         document.content_type, &media, err);
        if (e >= 0 && media == IMAGE_MEDIA_INDEX) {
                e = image_index_choose(buf_str(&document.body), document.body.len, platform,
                                       &chosen, err);
                fetch_done(&document);
                document = (struct fetch){ .fd = -1 };
                if (e >= 0)
                        e = get_manifest(op, r, arena_strdup(op->arena, chosen.digest), true,
                                         &document, err);
        }
        if (e >= 0)
                e = image_manifest_parse(op->arena, buf_str(&document.body), document.body.len,
                                         &manifest, err);
        if (e >= 0)
                e = get_config(op, r, &manifest.config, &config, err);
        if (e >= 0)
                e = image_read(op->arena, buf_str(&document.body), document.body.len,
                               buf_str(&config.body), config.body.len, platform, ret, err);
        return e < 0 ? registry_fault(r, e, err) : 0;
}

/* Take what an earlier attempt left in the file for the beginning. */
static int resume(struct fetch *f, struct err *err)
{
        uint8_t *piece;
        struct stat st;
        int e = 0;

        if (fstat(f->fd, &st) < 0 || !S_ISREG(st.st_mode))
                return err_set(err, ERR_INTERNAL, "a layer is written to a regular file");
        if ((uint64_t)st.st_size > f->size)
                return start_over(f) ? 0 : err_sys(err, ERR_IO, f->write_error, "empty a file");
        piece = xcalloc(1, PIECE);
        while (e >= 0 && f->have < (uint64_t)st.st_size) {
                ssize_t n = pread(f->fd, piece, PIECE, (off_t)f->have);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        e = err_sys(err, ERR_IO, n < 0 ? errno : EIO, "read a layer");
                else
                        digest_add(&f->hash, piece, (size_t)n);
                f->have += n > 0 ? (uint64_t)n : 0;
                if (e >= 0)
                        e = op_check(f->op, err);
        }
        free(piece);
        f->resumed = f->have > 0;
        f->have_at_try = f->have;
        return e;
}

int registry_fetch(struct op *op, struct registry *r, const struct registry_blob *blobs, size_t n,
                   const struct registry_progress *progress, struct err *err)
{
        struct fetch *fetches = xcalloc(n ? n : 1, sizeof(*fetches));
        int e = 0;

        for (size_t i = 0; i < n; i++) {
                struct fetch *f = &fetches[i];

                *f = new_fetch(op, r, arena_printf(op->arena, "blobs/%s", blobs[i].what->digest));
                f->digest = blobs[i].what->digest;
                f->size = blobs[i].what->size;
                f->fd = blobs[i].fd;
                f->progress = progress;
                f->number = i;
        }
        for (size_t i = 0; e >= 0 && i < n; i++) {
                e = resume(&fetches[i], err);
                if (e >= 0)
                        tell(&fetches[i], false);
                /* Complete already, or as it was left: asked for again only when it is wrong. */
                if (e >= 0 && fetches[i].have == fetches[i].size && fetches[i].size)
                        e = check_content(&fetches[i], err);
        }
        if (e >= 0)
                e = run_fetches(op, r, fetches, n, REGISTRY_PARALLEL, err);
        for (size_t i = 0; i < n; i++)
                fetch_done(&fetches[i]);
        free(fetches);
        return e < 0 ? e : 0;
}
