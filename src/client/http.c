#include "client/http.h"

#include "base/clock.h"
#include "codec/http1.h"

#define READ_SIZE ((size_t)16 << 10)

/* The state of reading one answer: bytes that came, and how far they are used. */
struct reader {
        int fd;
        const struct http_call *call;
        struct buf in;
        http_sink_fn *sink;
        void *arg;
        struct http_answer *answer;
};

bool http_is_path(const char *path)
{
        if (path[0] != '/')
                return false;
        for (; *path; path++)
                if ((unsigned char)*path <= ' ' || (unsigned char)*path >= 0x7f || *path == '#')
                        return false;
        return true;
}

static void put_field(struct buf *b, const char *name, const char *value)
{
        if (value)
                buf_appendf(b, "%s: %s\r\n", name, value);
}

static void put_host(struct buf *b, const struct conn_address *a)
{
        if (a->path)
                buf_puts(b, "Host: localhost\r\n");
        else if (strchr(a->host, ':'))
                buf_appendf(b, "Host: [%s]:%s\r\n", a->host, a->port);
        else
                buf_appendf(b, "Host: %s:%s\r\n", a->host, a->port);
}

static int send_request(int fd, const struct conn_address *a, const struct http_call *call,
                        struct err *err)
{
        CLEAN(buf_wipe) struct buf b = BUF_INIT; /* holds the token */
        int r;

        buf_appendf(&b, "%s %s%s HTTP/1.1\r\n", call->method, a->prefix, call->path);
        put_host(&b, a);
        put_field(&b, "Accept", call->accept);
        put_field(&b, "User-Agent", "berth/" BERTH_VERSION);
        if (call->api_key)
                buf_appendf(&b, "Authorization: Bearer %s\r\n", call->api_key);
        put_field(&b, "X-Paperclip-Run-Id", call->run_id);
        put_field(&b, "Last-Event-ID", call->last_event_id);
        if (call->body)
                buf_appendf(&b, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                            strlen(call->body));
        buf_puts(&b, "\r\n");
        if (buf_failed(&b))
                return err_set(err, ERR_TOO_LARGE, "the request is too large");
        r = conn_write(fd, b.data, b.len, call->deadline_ms, err);
        if (r >= 0 && call->body)
                r = conn_write(fd, call->body, strlen(call->body), call->deadline_ms, err);
        return r;
}

/* Read some more into r->in; 0 at the end of the stream. */
static ssize_t read_more(struct reader *r, int64_t deadline_ms, struct err *err)
{
        char *at = buf_reserve(&r->in, READ_SIZE);
        ssize_t n;

        if (!at)
                return err_set(err, ERR_TOO_LARGE, "the answer is too large");
        n = conn_read(r->fd, at, READ_SIZE, deadline_ms, err);
        if (n > 0) {
                buf_grew(&r->in, (size_t)n);
                r->answer->begun = true;
        }
        return n;
}

static int64_t body_deadline(const struct reader *r)
{
        if (r->call->idle_ms == 0)
                return r->call->deadline_ms;
        return r->call->idle_ms == CONN_FOREVER ? CONN_FOREVER : clock_mono_ms() + r->call->idle_ms;
}

static int lost(struct err *err)
{
        return err_set(err, ERR_UNCERTAIN,
                       "the daemon closed the connection before its answer was complete");
}

/* Media types compare without case and without parameters. */
static bool has_content_type(const struct http1_head *head, const char *type)
{
        const struct http1_header *h = http1_find(head, "Content-Type");
        struct http1_slice s;
        const char *end;

        if (!h)
                return false;
        s = h->value;
        end = memchr(s.p, ';', s.len);
        if (end)
                s.len = (size_t)(end - s.p);
        while (s.len > 0 && s.p[s.len - 1] == ' ')
                s.len--;
        return http1_slice_is_case(s, type);
}

/* The head of the final answer; 1xx ones before it are skipped. Its bytes are consumed. */
static int read_head(struct reader *r, struct http1_response *ret, struct err *err)
{
        bool for_head = streq(r->call->method, "HEAD");
        size_t seen = 0;

        for (;;) {
                struct http1_refusal why = { 0 };
                enum http1_result result = HTTP1_MORE;
                ssize_t n;

                if (r->in.len > 0)
                        result = http1_response_parse(r->in.data, r->in.len, HTTP_MAX_HEAD, &seen,
                                                      for_head, ret, &why);
                if (result == HTTP1_REFUSED)
                        return err_set(err, ERR_PROVIDER,
                                       "what answers there is no Berth daemon: %s", why.text);
                if (result == HTTP1_DONE) {
                        r->answer->is_event_stream =
                                has_content_type(&ret->head, "text/event-stream");
                        buf_consume(&r->in, ret->head.len);
                        if (ret->status >= 200)
                                return 0;
                        seen = 0;
                        continue;
                }
                n = read_more(r, r->call->deadline_ms, err);
                if (n <= 0)
                        return n < 0 ? (int)n : lost(err);
        }
}

static int give(struct reader *r, const char *data, size_t len, struct err *err)
{
        return len > 0 ? r->sink(r->arg, r->answer, data, len, err) : 0;
}

/* A body of known length (left) or until the stream ends (UINT64_MAX). */
static int read_plain(struct reader *r, uint64_t left, struct err *err)
{
        bool until_close = left == UINT64_MAX;

        while (left > 0) {
                size_t n = (size_t)MIN((uint64_t)r->in.len, left);
                int result = give(r, r->in.data, n, err);
                ssize_t got;

                if (result != 0)
                        return result;
                buf_consume(&r->in, n);
                left -= until_close ? 0 : n;
                if (left == 0)
                        break;
                got = read_more(r, body_deadline(r), err);
                if (got <= 0)
                        return got < 0 ? (int)got : until_close ? 0 : lost(err);
        }
        return 0;
}

static int read_chunked(struct reader *r, struct err *err)
{
        struct http1_chunked decoder = { 0 };

        for (;;) {
                struct http1_refusal why = { 0 };
                struct http1_slice data = { 0 };
                enum http1_result result = HTTP1_MORE;
                size_t used = 0;
                ssize_t got;
                int stop;

                if (r->in.len > 0)
                        result = http1_chunked_feed(&decoder, r->in.data, r->in.len, &used, &data,
                                                    &why);
                if (result == HTTP1_REFUSED)
                        return err_set(err, ERR_PROVIDER, "the answer is broken: %s", why.text);
                stop = give(r, data.p, data.len, err);
                if (stop != 0)
                        return stop;
                buf_consume(&r->in, used);
                if (result == HTTP1_DONE)
                        return 0;
                if (r->in.len > 0)
                        continue;
                got = read_more(r, body_deadline(r), err);
                if (got <= 0)
                        return got < 0 ? (int)got : lost(err);
        }
}

static int read_answer(struct reader *r, struct err *err)
{
        struct http1_response response;
        int result = read_head(r, &response, err);

        if (result < 0)
                return result;
        r->answer->status = response.status;
        switch (response.head.framing) {
        case HTTP1_NO_BODY:
                break;
        case HTTP1_BODY_LENGTH:
                result = read_plain(r, response.head.content_length, err);
                break;
        case HTTP1_BODY_CHUNKED:
                result = read_chunked(r, err);
                break;
        case HTTP1_BODY_UNTIL_CLOSE:
                result = read_plain(r, UINT64_MAX, err);
                break;
        }
        r->answer->keep_alive = result == 0 && response.head.keep_alive && r->in.len == 0 &&
                                response.head.framing != HTTP1_BODY_UNTIL_CLOSE;
        return result;
}

int http_call(int fd, const struct conn_address *address, const struct http_call *call,
              http_sink_fn *sink, void *arg, struct http_answer *ret_answer, struct err *err)
{
        CLEAN(err_done) struct err write_error = { 0 };
        struct reader r = {
                .fd = fd, .call = call, .sink = sink, .arg = arg, .answer = ret_answer
        };
        int sent, result;

        *ret_answer = (struct http_answer){ 0 };
        sent = send_request(fd, address, call, &write_error);
        /* A daemon that refuses a large body answers and closes without reading it all; the answer
         * is worth more than the broken pipe. */
        if (sent == 0 || sent == ERR_UNCERTAIN)
                result = read_answer(&r, err);
        else
                result = sent;
        buf_done(&r.in);
        if (sent < 0)
                ret_answer->keep_alive = false;
        if (sent < 0 && result < 0)
                err_move(err, &write_error);
        return result;
}
