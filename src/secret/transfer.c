/* One request by libcurl, and which addresses it may reach. */
#include "secret/transfer.h"

#include <ctype.h>
#include <pthread.h>
#include <strings.h>
#include <sys/socket.h>

#include "codec/http1.h"
#include "rt/libcurl.h"
#include "rt/pool.h"

#define FIRST_ROOM      ((size_t)16 << 10)
#define MAX_POLL        1000 /* ms between looks at the clock */
#define MAX_IDLE        4
#define MAX_CONNECTIONS 2L /* of one handle */

/* ---- connections that wait for the next request ---- */

/* A handle holds the connections that were made with it. A TLS handshake costs more than everything
 * else together, so a few are kept; libcurl itself looks whether one is still good, and leaves
 * those alone that were idle for two minutes. */
static CURLM *idle[MAX_IDLE];
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static CURLM *take_handle(void)
{
        CURLM *found = NULL;

        pthread_mutex_lock(&idle_lock);
        for (size_t i = 0; !found && i < MAX_IDLE; i++)
                found = take_ptr(&idle[i]);
        pthread_mutex_unlock(&idle_lock);
        if (found)
                return found;
        found = libcurl.multi_init();
        if (found)
                (void)libcurl.multi_setopt(found, CURLMOPT_MAXCONNECTS, MAX_CONNECTIONS);
        return found;
}

static void give_handle(CURLM *take_multi)
{
        pthread_mutex_lock(&idle_lock);
        for (size_t i = 0; take_multi && i < MAX_IDLE; i++)
                if (!idle[i])
                        idle[i] = take_ptr(&take_multi);
        pthread_mutex_unlock(&idle_lock);
        if (take_multi)
                (void)libcurl.multi_cleanup(take_multi);
}

/* ---- one request ---- */

struct running {
        CURLM *multi;
        CURL *easy;
        bool added, succeeded;
        struct curl_slist *headers;
        struct transfer_answer *answer;
        bool too_large;
        const struct private_hosts *private_hosts;
        char refused[PRIVATE_HOST_TEXT]; /* the last address that was not connected to; "": none */
        const char *refusal;             /* and what kind of address it is */
        struct err *err;
};

static void running_done(struct running *r)
{
        if (r->added)
                (void)libcurl.multi_remove_handle(r->multi, r->easy);
        if (r->easy)
                libcurl.easy_cleanup(r->easy);
        if (r->multi && r->succeeded)
                give_handle(r->multi);
        else if (r->multi)
                (void)libcurl.multi_cleanup(r->multi);
        if (r->headers)
                libcurl.slist_free_all(r->headers);
}

static int make_room(struct running *r, size_t wanted)
{
        struct transfer_answer *a = r->answer;
        struct secret_value larger = { 0 };
        size_t room = a->room.data ? a->room.len : FIRST_ROOM;

        while (room < wanted)
                room *= 2;
        if (room == a->room.len)
                return 0;
        if (secret_value_room(&larger, room, r->err) < 0)
                return -1;
        if (a->room.data)
                memcpy(larger.data, a->room.data, a->len);
        secret_value_done(&a->room);
        a->room = larger;
        return 0;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
        struct running *r = arg;
        struct transfer_answer *a = r->answer;
        size_t len = size * n;

        if (a->len + len > TRANSFER_MAX_ANSWER) {
                r->too_large = true;
                return 0;
        }
        if (make_room(r, a->len + len) < 0)
                return 0;
        memcpy(a->room.data + a->len, data, len);
        a->len += len;
        return len;
}

/* The value of the header `name`, printable and cut to fit. */
static void keep_header(const char *line, size_t len, const char *name, char *ret, size_t size)
{
        size_t n = strlen(name), used = 0;

        if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
                return;
        for (size_t i = n + 1; i < len && used + 1 < size; i++)
                if (isgraph((unsigned char)line[i]))
                        ret[used++] = line[i];
        ret[used] = '\0';
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
        struct transfer_answer *a = ((struct running *)arg)->answer;

        keep_header(line, size * n, "x-amzn-errortype", a->error_type, sizeof(a->error_type));
        keep_header(line, size * n, "x-amzn-requestid", a->request_id, sizeof(a->request_id));
        return size * n;
}

static void add_header(struct running *r, const char *line)
{
        struct curl_slist *longer = libcurl.slist_append(r->headers, line);

        if (!longer)
                memory_exhausted();
        r->headers = longer;
}

static int add_headers(struct running *r, const struct transfer *t)
{
        for (size_t i = 0; i < t->n_headers; i++) {
                const char *name = t->headers[i].name, *value = t->headers[i].value;
                CLEAN(buf_wipe) struct buf line = BUF_INIT;

                if (!http1_is_field_name(name) || !http1_is_field_value(value))
                        return err_set(r->err, ERR_INVALID, "a header cannot be sent");
                if (!buf_reserve(&line, strlen(name) + strlen(value) + 3))
                        memory_exhausted();
                buf_appendf(&line, "%s: %s", name, value);
                add_header(r, buf_str(&line));
        }
        if (t->signing) /* libcurl would sign the headers that are taken away */
                return 0;
        add_header(r, "Accept:");
        add_header(r, "Expect:");
        return 0;
}

/* The address to connect to is known here, whatever the URL or the name server said. */
static curl_socket_t open_public_socket(void *arg, curlsocktype purpose,
                                        struct curl_sockaddr *address)
{
        struct running *r = arg;
        struct net_addr addr;
        uint16_t port;

        if (!libcurl_address(purpose, address, &addr, &port))
                return CURL_SOCKET_BAD;
        r->refusal = private_hosts_refusal(r->private_hosts, &addr, port);
        if (r->refusal) {
                private_host_format(&addr, port, r->refused);
                return CURL_SOCKET_BAD;
        }
        return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

#define SET(option, value)                                                                         \
        do {                                                                                       \
                if (libcurl.easy_setopt(r->easy, (option), (value)) != CURLE_OK)                   \
                        return err_set(r->err, ERR_NOT_IMPLEMENTED,                                \
                                       "libcurl does not know " #option);                          \
        } while (0)

static int set_rules(struct running *r, const struct transfer *t)
{
        SET(CURLOPT_PROTOCOLS_STR, "http,https");
        SET(CURLOPT_FOLLOWLOCATION, 0L);
        SET(CURLOPT_SSL_VERIFYPEER, 1L);
        SET(CURLOPT_SSL_VERIFYHOST, 2L);
        SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
        SET(CURLOPT_NOSIGNAL, 1L);
        SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        /* A name server that is silent does not hold up an operation that has ended. */
        SET(CURLOPT_QUICK_EXIT, 1L);
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)t->connect_ms);
        SET(CURLOPT_TIMEOUT_MS, (long)t->total_ms);
        if (t->ca_file)
                SET(CURLOPT_CAINFO, t->ca_file);
        if (t->once || t->public_only)
                SET(CURLOPT_FRESH_CONNECT, 1L);
        if (t->direct || t->public_only)
                SET(CURLOPT_PROXY, "");
        if (t->public_only) {
                r->private_hosts = t->private_hosts;
                SET(CURLOPT_OPENSOCKETFUNCTION, open_public_socket);
                SET(CURLOPT_OPENSOCKETDATA, r);
        }
        return 0;
}

static int set_request(struct running *r, const struct transfer *t)
{
        SET(CURLOPT_URL, t->url);
        SET(CURLOPT_USERAGENT, "berth/" BERTH_VERSION);
        if (t->body) {
                SET(CURLOPT_POSTFIELDS, t->body); /* read from there, not copied */
                SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)t->body_len);
        }
        if (t->signing) {
                const struct transfer_signing *s = t->signing;
                CLEAN(cleanup_free)
                char *rule = xasprintf("aws:amz:%s:%s", s->region, s->service);

                SET(CURLOPT_AWS_SIGV4, rule);
                SET(CURLOPT_USERNAME, s->access_key_id);
                SET(CURLOPT_PASSWORD, s->secret);
        }
        SET(CURLOPT_CUSTOMREQUEST, t->method);
        SET(CURLOPT_HTTPHEADER, r->headers);
        SET(CURLOPT_WRITEFUNCTION, on_body);
        SET(CURLOPT_WRITEDATA, r);
        SET(CURLOPT_HEADERFUNCTION, on_header);
        SET(CURLOPT_HEADERDATA, r);
        return 0;
}

static int transfer_prepare(struct running *r, const struct transfer *t)
{
        r->easy = libcurl.easy_init();
        r->multi = take_handle();
        if (!r->easy || !r->multi)
                return err_set(r->err, ERR_INTERNAL, "libcurl cannot start");
        int e = add_headers(r, t);
        if (e == 0)
                e = set_rules(r, t);
        if (e == 0)
                e = set_request(r, t);
        if (e < 0)
                return e;
        if (libcurl.multi_add_handle(r->multi, r->easy) != CURLM_OK)
                return err_set(r->err, ERR_INTERNAL, "libcurl cannot start");
        r->added = true;
        return 0;
}

/* Until libcurl has finished; its own limit ends it at the latest. */
static int transfer_drive(struct op *op, struct running *r)
{
        struct curl_waitfd cancel = { .fd = op->cancel ? op->cancel->fd : -1,
                                      .events = CURL_WAIT_POLLIN };
        int left = 1, e;

        for (;;) {
                if (libcurl.multi_perform(r->multi, &left) != CURLM_OK)
                        return err_set(r->err, ERR_INTERNAL, "libcurl failed");
                if (left == 0)
                        return 0;
                e = op_check(op, r->err);
                if (e < 0)
                        return e;
                if (libcurl.multi_poll(r->multi, &cancel, op->cancel ? 1 : 0,
                                       (int)op_time_left(op, MAX_POLL), NULL) != CURLM_OK)
                        return err_set(r->err, ERR_INTERNAL, "libcurl failed");
        }
}

static int transfer_finish(struct running *r)
{
        CURLcode result = CURLE_FAILED_INIT;
        long status = 0;
        const CURLMsg *message;
        int more;

        while ((message = libcurl.multi_info_read(r->multi, &more)))
                if (message->msg == CURLMSG_DONE)
                        result = message->data.result;
        if (r->too_large)
                return err_set(r->err, ERR_TOO_LARGE, "the answer is larger than %zu KiB",
                               TRANSFER_MAX_ANSWER >> 10);
        if (result != CURLE_OK && *r->refused)
                return err_set(r->err, ERR_FORBIDDEN,
                               "The address %s is not public (%s). To let agents reach it, the "
                               "operator adds \"%s\" to private_hosts.",
                               r->refused, r->refusal, r->refused);
        if (result != CURLE_OK)
                return err_set(r->err, ERR_UNREACHABLE, "%s", libcurl.easy_strerror(result));
        (void)libcurl.easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
        r->answer->status = (int)status;
        return 0;
}

int transfer_run(struct op *op, const struct transfer *t, struct transfer_answer *ret,
                 struct err *err)
{
        struct transfer_answer answer = { 0 };
        CLEAN(running_done) struct running r = { .answer = &answer, .err = err };

        if (!libcurl_load())
                return err_set(err, ERR_NOT_IMPLEMENTED, "libcurl.so.4 is not installed");
        pool_needs_seat(op, "an HTTP server");
        int e = op_check(op, err);
        if (e == 0)
                e = transfer_prepare(&r, t);
        if (e == 0)
                e = transfer_drive(op, &r);
        if (e == 0)
                e = transfer_finish(&r);
        if (e < 0) {
                transfer_answer_done(&answer);
                return e;
        }
        r.succeeded = true;
        *ret = answer;
        return 0;
}

void transfer_answer_done(struct transfer_answer *a)
{
        secret_value_done(&a->room);
}
