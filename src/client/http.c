/* Writes one HTTP request and reads its answer. */
#include "client/http.h"

#include "base/clock.h"

#define READ_SIZE ((size_t)16 << 10)

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

size_t http_body_len(const struct http_call *call)
{
        if (!call->body)
                return 0;
        return call->body_len ? call->body_len : strlen(call->body);
}

void http_put_head(struct buf *b, const struct conn_address *a, const struct http_call *call)
{
        buf_appendf(b, "%s %s%s HTTP/1.1\r\n", call->method, a->prefix, call->path);
        if (a->path)
                buf_puts(b, "Host: localhost\r\n");
        else
                buf_appendf(b, strchr(a->host, ':') ? "Host: [%s]:%s\r\n" : "Host: %s:%s\r\n",
                            a->host, a->port);
        put_field(b, "Accept", call->accept);
        put_field(b, "User-Agent", "berth/" BERTH_VERSION);
        if (call->api_key)
                buf_appendf(b, "Authorization: Bearer %s\r\n", call->api_key);
        put_field(b, "X-Paperclip-Run-Id", call->run_id);
        put_field(b, "Last-Event-ID", call->last_event_id);
        if (call->body) {
                put_field(b, "Content-Type",
                          call->content_type ? call->content_type : "application/json");
                buf_appendf(b, "Content-Length: %zu\r\n", http_body_len(call));
        }
        buf_puts(b, "\r\n");
}

static int send_request(int fd, const struct conn_address *a, const struct http_call *call,
                        struct err *err)
{
        CLEAN(buf_wipe) struct buf b = BUF_INIT; /* holds the token */

        http_put_head(&b, a, call);
        if (buf_failed(&b))
                return err_set(err, ERR_TOO_LARGE, "the request is too large");
        int r = conn_write(fd, b.data, b.len, call->deadline_ms, err);
        if (r >= 0 && call->body)
                r = conn_write(fd, call->body, http_body_len(call), call->deadline_ms, err);
        return r;
}

static int read_answer(int fd, const struct http_call *call, struct answer_reader *r,
                       struct err *err)
{
        int64_t deadline = call->deadline_ms;

        for (;;) {
                int result = answer_step(r, err);
                char *at;
                ssize_t n;

                if (result != 0)
                        return result < 0 ? result : 0;
                at = buf_reserve(&r->in, READ_SIZE);
                if (!at)
                        return err_set(err, ERR_TOO_LARGE, "the answer is too large");
                if (r->state != ANSWER_HEAD && call->idle_ms != 0)
                        deadline = call->idle_ms == CONN_FOREVER ? CONN_FOREVER
                                                                 : clock_mono_ms() + call->idle_ms;
                n = conn_read(fd, at, READ_SIZE, deadline, err);
                if (n < 0)
                        return (int)n;
                if (n == 0) {
                        result = answer_closed(r, err);
                        return result < 0 ? result : 0;
                }
                buf_grew(&r->in, (size_t)n);
        }
}

int http_call(int fd, const struct conn_address *address, const struct http_call *call,
              http_sink_fn *sink, void *arg, struct http_answer *ret_answer, struct err *err)
{
        CLEAN(err_done) struct err write_error = { 0 };
        CLEAN(answer_done) struct answer_reader r;
        int sent, result;

        answer_init(&r, streq(call->method, "HEAD"), sink, arg);
        sent = send_request(fd, address, call, &write_error);
        /* A daemon that refuses a large body answers and closes without reading it all; the answer
         * is worth more than the broken pipe. */
        if (sent == 0 || sent == ERR_UNCERTAIN)
                result = read_answer(fd, call, &r, err);
        else
                result = sent;
        *ret_answer = r.answer;
        if (sent < 0 || result < 0)
                ret_answer->keep_alive = false;
        if (sent < 0 && result < 0)
                err_move(err, &write_error);
        return result;
}
