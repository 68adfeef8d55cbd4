/* Answers: what a handler says becomes bytes in the connection's output. Nothing is sent here; the
 * connection sends when the callback that is running ends, or before the loop waits next, so that a
 * head and a small body leave in one piece. */
#define _GNU_SOURCE
#include <assert.h>
#include <strings.h>
#include <time.h>

#include "base/log.h"
#include "net/http_internal.h"

/* Enough for the head and body of a typical answer, so that it is not built in ever larger copies.
 */
#define OUT_RESERVE 511

static const char *reason_text(int status)
{
        static const struct {
                int status;
                const char *text;
        } table[] = {
                { 200, "OK" },
                { 201, "Created" },
                { 202, "Accepted" },
                { 204, "No Content" },
                { 206, "Partial Content" },
                { 301, "Moved Permanently" },
                { 302, "Found" },
                { 303, "See Other" },
                { 304, "Not Modified" },
                { 307, "Temporary Redirect" },
                { 400, "Bad Request" },
                { 401, "Unauthorized" },
                { 403, "Forbidden" },
                { 404, "Not Found" },
                { 405, "Method Not Allowed" },
                { 408, "Request Timeout" },
                { 409, "Conflict" },
                { 410, "Gone" },
                { 412, "Precondition Failed" },
                { 413, "Content Too Large" },
                { 414, "URI Too Long" },
                { 415, "Unsupported Media Type" },
                { 417, "Expectation Failed" },
                { 422, "Unprocessable Content" },
                { 429, "Too Many Requests" },
                { 431, "Request Header Fields Too Large" },
                { 500, "Internal Server Error" },
                { 501, "Not Implemented" },
                { 502, "Bad Gateway" },
                { 503, "Service Unavailable" },
                { 504, "Gateway Timeout" },
                { 505, "HTTP Version Not Supported" },
        };

        for (size_t i = 0; i < ARRAY_LEN(table); i++)
                if (table[i].status == status)
                        return table[i].text;
        return "Status";
}

static void put_number(struct buf *b, uint64_t n, unsigned base)
{
        char digits[20];
        size_t at = sizeof(digits);

        do {
                digits[--at] = "0123456789abcdef"[n % base];
                n /= base;
        } while (n);
        buf_append(b, digits + at, sizeof(digits) - at);
}

/* Formatting the date costs more than the rest of the head, and it changes once a second. */
static const char *date_line(struct http_server *s)
{
        struct timespec now;
        struct tm tm;

        clock_gettime(CLOCK_REALTIME_COARSE, &now);
        if (now.tv_sec != s->date_second) {
                /* strftime() would follow the locale. */
                static const char days[] = "SunMonTueWedThuFriSat";
                static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
                struct buf line = BUF_INIT;

                gmtime_r(&now.tv_sec, &tm);
                buf_appendf(&line, "Date: %.3s, %02d %.3s %04d %02d:%02d:%02d GMT\r\n",
                            days + 3 * tm.tm_wday, tm.tm_mday, months + 3 * tm.tm_mon,
                            tm.tm_year + 1900, tm.tm_hour, tm.tm_min, tm.tm_sec);
                assert(line.len < sizeof(s->date));
                memcpy(s->date, line.data, line.len + 1);
                buf_done(&line);
                s->date_second = now.tv_sec;
        }
        return s->date;
}

static bool is_ours(const char *name)
{
        static const char *const names[] = { "connection", "content-length", "date", "keep-alive",
                                             "transfer-encoding" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (strcasecmp(name, names[i]) == 0)
                        return true;
        return false;
}

static bool asks_to_close(const struct http_field *fields, size_t n_fields)
{
        for (size_t i = 0; i < n_fields; i++)
                if (strcasecmp(fields[i].name, "connection") == 0 &&
                    strcasecmp(fields[i].value, "close") == 0)
                        return true;
        return false;
}

static void put_start(struct http_conn *c, int status, bool keep_alive)
{
        struct buf *out = &c->out;

        (void)buf_reserve(out, OUT_RESERVE);
        buf_append(out, "HTTP/1.1 ", 9);
        put_number(out, (uint64_t)status, 10);
        buf_putc(out, ' ');
        buf_puts(out, reason_text(status));
        buf_append(out, "\r\n", 2);
        buf_puts(out, date_line(c->server));
        buf_puts(out, keep_alive ? c->server->keep_alive : "Connection: close\r\n");
}

static void put_fields(struct buf *out, const struct http_field *fields, size_t n_fields)
{
        for (size_t i = 0; i < n_fields; i++) {
                const struct http_field *f = &fields[i];

                if (is_ours(f->name))
                        continue;
                if (!http1_is_field_name(f->name) || !http1_is_field_value(f->value)) {
                        log_error("response header left out", LOG_S("name", f->name));
                        continue;
                }
                buf_puts(out, f->name);
                buf_append(out, ": ", 2);
                buf_puts(out, f->value);
                buf_append(out, "\r\n", 2);
        }
}

static void put_length(struct buf *out, size_t len)
{
        buf_puts(out, "Content-Length: ");
        put_number(out, len, 10);
        buf_append(out, "\r\n", 2);
}

/* A connection can only go on when the request was read to its end. */
static bool stays_open(const struct http_exchange *x, const struct http_field *fields,
                       size_t n_fields)
{
        return x->keep_alive && x->body_done && !x->conn->server->draining &&
               !asks_to_close(fields, n_fields);
}

static bool has_no_content(int status)
{
        return status < 200 || status == 204 || status == 304;
}

/* Queue the body behind the head, copied when small enough to leave in the same piece. */
static void put_body(struct http_conn *c, struct buf *take_body)
{
        assert(c->tail.len == 0); /* no request starts before the last answer's tail has left */
        if (take_body->len <= COPY_BODY_MAX) {
                buf_append(&c->out, buf_str(take_body), take_body->len);
                buf_done(take_body);
                return;
        }
        c->tail = *take_body;
        c->tail_sent = 0;
        *take_body = BUF_INIT;
        c->server->answers += c->tail.len;
        http_server_shed_answers(c->server, c);
}

/* The answer is complete: the exchange ends, and the connection goes on or not. */
static void finish_exchange(struct http_exchange *x)
{
        struct http_conn *c = x->conn;

        if (c) {
                http_exchange_uncount(c->server, x);
                c->x = NULL;
                c->phase = x->keep_alive && x->body_done ? CONN_HEAD : CONN_CLOSING;
                http_conn_due(c);
        }
        http_exchange_free(x);
}

void http_respond(struct http_exchange *x, int status, const struct http_field *fields,
                  size_t n_fields, struct buf *take_body)
{
        struct http_conn *c = x->conn;
        struct buf none = BUF_INIT;

        assert(x->handed_out && !x->answering);
        if (!take_body)
                take_body = &none;
        if (!c) {
                buf_done(take_body);
                http_exchange_free(x);
                return;
        }
        if (take_body->failed) { /* half an answer must not look like a whole one */
                buf_done(take_body);
                status = 500;
        }
        x->keep_alive = stays_open(x, fields, n_fields);
        put_start(c, status, x->keep_alive);
        put_fields(&c->out, fields, n_fields);
        if (!has_no_content(status))
                put_length(&c->out, take_body->len);
        buf_append(&c->out, "\r\n", 2);
        if (x->is_head || has_no_content(status))
                buf_done(take_body);
        else
                put_body(c, take_body);
        finish_exchange(x);
}

void http_stream_begin(struct http_exchange *x, int status, const struct http_field *fields,
                       size_t n_fields)
{
        struct http_conn *c = x->conn;

        assert(x->handed_out && !x->answering);
        x->answering = true;
        if (!c)
                return;
        x->keep_alive = stays_open(x, fields, n_fields) && !x->is_old;
        x->drop_content = x->is_head || has_no_content(status);
        put_start(c, status, x->keep_alive);
        put_fields(&c->out, fields, n_fields);
        if (!x->is_old && !has_no_content(status))
                buf_puts(&c->out, "Transfer-Encoding: chunked\r\n");
        buf_append(&c->out, "\r\n", 2);
        http_conn_due(c);
}

static bool is_chunked(const struct http_exchange *x)
{
        return !x->is_old && !x->on_bytes;
}

void http_stream_write(struct http_exchange *x, const void *data, size_t len)
{
        struct http_conn *c = x->conn;

        assert(x->answering);
        if (!c || x->drop_content || len == 0)
                return;
        if (is_chunked(x)) {
                put_number(&c->out, len, 16);
                buf_append(&c->out, "\r\n", 2);
        }
        buf_append(&c->out, data, len);
        if (is_chunked(x))
                buf_append(&c->out, "\r\n", 2);
        http_conn_due(c);
}

size_t http_stream_pending(const struct http_exchange *x)
{
        return x->conn ? http_conn_pending(x->conn) : 0;
}

void http_stream_on_drained(struct http_exchange *x, void (*fn)(struct http_exchange *x))
{
        x->on_drained = fn;
}

void http_stream_end(struct http_exchange *x)
{
        assert(x->answering);
        if (x->conn && !x->drop_content && is_chunked(x))
                buf_append(&x->conn->out, "0\r\n\r\n", 5);
        finish_exchange(x);
}

void http_upgrade(struct http_exchange *x, const struct http_field *fields, size_t n_fields,
                  void (*on_bytes)(struct http_exchange *x, const char *data, size_t len))
{
        struct http_conn *c = x->conn;

        assert(x->handed_out && !x->answering && x->body_done);
        x->answering = true;
        x->keep_alive = false;
        x->on_bytes = on_bytes;
        if (!c)
                return;
        buf_puts(&c->out, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n");
        put_fields(&c->out, fields, n_fields);
        buf_append(&c->out, "\r\n", 2);
        http_conn_due(c);
}

void http_drop(struct http_exchange *x)
{
        if (x->conn)
                x->conn->broken = true;
        x->keep_alive = false;
        finish_exchange(x);
}

void http_answer_continue(struct http_conn *c)
{
        buf_puts(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
}

static void put_json_string(struct buf *b, const char *text)
{
        buf_putc(b, '"');
        for (; *text; text++) {
                if (*text == '"' || *text == '\\')
                        buf_putc(b, '\\');
                buf_putc(b, *text);
        }
        buf_putc(b, '"');
}

void http_answer_refusal(struct http_conn *c, int status, const char *text, bool is_head)
{
        const struct http_server_config *config = &c->server->config;
        struct buf CLEAN(buf_done) body = BUF_INIT;

        if (config->handler->on_refused) {
                config->handler->on_refused(config->ctx, status, text, &body);
        } else {
                buf_puts(&body, "{\"error\": ");
                put_json_string(&body, text);
                buf_putc(&body, '}');
        }
        put_start(c, status, false);
        if (status == 503)
                buf_puts(&c->out, "Retry-After: 1\r\n");
        buf_puts(&c->out, "Content-Type: application/json\r\n");
        put_length(&c->out, body.len);
        buf_append(&c->out, "\r\n", 2);
        if (!is_head)
                buf_append(&c->out, buf_str(&body), body.len);
}
