/* Plain requests. Heads are written anew from what our parser understood, so that what it did not
 * understand is not there; bodies are followed to their end, and chunks written anew. */
#include "net/proxy_internal.h"

/* Headers that speak to the next hop only, and those that we state ourselves. */
static const char *const not_passed_on[] = {
        "connection",
        "keep-alive",
        "proxy-connection",
        "proxy-authenticate",
        "proxy-authorization",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
        "content-length",
        "host",
};

static struct http1_slice next_token(struct http1_slice *list)
{
        const char *comma = memchr(list->p, ',', list->len);
        size_t len = comma ? (size_t)(comma - list->p) : list->len;
        struct http1_slice token = { list->p, len };

        len += comma != NULL;
        list->p += len;
        list->len -= len;
        while (token.len && (token.p[0] == ' ' || token.p[0] == '\t'))
                token.p++, token.len--;
        while (token.len && (token.p[token.len - 1] == ' ' || token.p[token.len - 1] == '\t'))
                token.len--;
        return token;
}

/* Connection may name further headers that end here. */
static bool is_named_in_connection(const struct http1_head *head, struct http1_slice name)
{
        for (size_t i = 0; i < head->n_headers; i++) {
                struct http1_slice list = head->headers[i].value;

                if (!http1_slice_is_case(head->headers[i].name, "connection"))
                        continue;
                while (list.len) {
                        struct http1_slice token = next_token(&list);

                        if (token.len == name.len && strncasecmp(token.p, name.p, name.len) == 0)
                                return true;
                }
        }
        return false;
}

static void put_slice(struct buf *b, struct http1_slice s)
{
        buf_append(b, s.p, s.len);
}

static void put_headers(struct buf *b, const struct http1_head *head)
{
        for (size_t i = 0; i < head->n_headers; i++) {
                bool ends_here = is_named_in_connection(head, head->headers[i].name);

                for (size_t k = 0; k < ARRAY_LEN(not_passed_on); k++)
                        ends_here = ends_here ||
                                    http1_slice_is_case(head->headers[i].name, not_passed_on[k]);
                if (ends_here)
                        continue;
                put_slice(b, head->headers[i].name);
                buf_puts(b, ": ");
                put_slice(b, head->headers[i].value);
                buf_puts(b, "\r\n");
        }
}

static void put_framing(struct buf *b, const struct http1_head *head, struct proxy_body *body)
{
        *body = (struct proxy_body){ .framing = head->framing, .left = head->content_length };
        if (head->framing == HTTP1_BODY_LENGTH)
                buf_appendf(b, "Content-Length: %llu\r\n",
                            (unsigned long long)head->content_length);
}

void proxy_write_request(struct proxy_conn *c, const struct http1_proxy_request *req)
{
        const struct host_target *t = &c->target;
        struct buf *b = &c->up.out;

        b->max = 4 * (size_t)PROXY_CHUNK;
        put_slice(b, req->req.method_text);
        buf_putc(b, ' ');
        if (req->req.path.len == 0)
                buf_putc(b, '/');
        put_slice(b, req->req.path);
        if (req->req.query.len > 0) {
                buf_putc(b, '?');
                put_slice(b, req->req.query);
        }
        buf_puts(b, " HTTP/1.1\r\n");
        buf_appendf(b, t->is_addr && t->addr.is_v6 ? "Host: [%s]" : "Host: %s", t->name);
        if (t->port != 80)
                buf_appendf(b, ":%u", t->port);
        buf_puts(b, "\r\n");
        put_headers(b, &req->req.head);
        put_framing(b, &req->req.head, &c->request);
        if (c->request.framing == HTTP1_BODY_CHUNKED) {
                c->request.write_chunks = true;
                buf_puts(b, "Transfer-Encoding: chunked\r\n");
        }
        buf_puts(b, "Connection: close\r\n\r\n");
}

/* Bodies */

static void put_data(struct proxy_body *body, struct buf *out, const char *p, size_t len)
{
        if (len == 0)
                return;
        if (body->write_chunks)
                buf_appendf(out, "%zx\r\n", len);
        buf_append(out, p, len);
        if (body->write_chunks)
                buf_puts(out, "\r\n");
}

static enum http1_result move_chunked(struct proxy_body *body, struct buf *in, struct buf *out)
{
        enum http1_result r = HTTP1_MORE;
        size_t at = 0;

        while (r == HTTP1_MORE && at < in->len) {
                struct http1_refusal why;
                struct http1_slice data;
                size_t used;

                r = http1_chunked_feed(&body->chunked, in->data + at, in->len - at, &used, &data,
                                       &why);
                if (r != HTTP1_REFUSED)
                        put_data(body, out, data.p, data.len);
                at += used;
        }
        buf_consume(in, at);
        if (r == HTTP1_DONE && body->write_chunks)
                buf_puts(out, "0\r\n\r\n");
        return r;
}

/* DONE at the end of the body; what follows it stays in `in` and goes nowhere. */
static enum http1_result move_body(struct proxy_body *body, struct buf *in, struct buf *out)
{
        size_t n = in->len;

        switch (body->framing) {
        case HTTP1_NO_BODY:
                return HTTP1_DONE;
        case HTTP1_BODY_CHUNKED:
                return move_chunked(body, in, out);
        case HTTP1_BODY_LENGTH:
                n = (size_t)MIN((uint64_t)n, body->left);
                body->left -= n;
                break;
        case HTTP1_BODY_UNTIL_CLOSE:
                break;
        }
        put_data(body, out, in->data, n);
        buf_consume(in, n);
        return body->framing == HTTP1_BODY_LENGTH && body->left == 0 ? HTTP1_DONE : HTTP1_MORE;
}

bool proxy_move_request(struct proxy_conn *c)
{
        struct proxy_flow *f = &c->up;

        if (f->done)
                return true;
        switch (move_body(&c->request, &f->in, &f->out)) {
        case HTTP1_DONE:
                f->done = true;
                break;
        case HTTP1_REFUSED:
                c->malformed = true;
                break;
        case HTTP1_MORE:
                c->malformed = f->eof; /* cut short */
        }
        return !c->malformed && !buf_failed(&f->out);
}

/* Responses */

static void write_response_head(struct proxy_conn *c, const struct http1_response *r)
{
        const struct http1_header *length = http1_find(&r->head, "content-length");
        struct buf *b = &c->down.out;

        buf_appendf(b, "HTTP/1.1 %d ", r->status);
        put_slice(b, r->reason);
        buf_puts(b, "\r\n");
        put_headers(b, &r->head);
        put_framing(b, &r->head, &c->response);
        if (c->response.framing == HTTP1_BODY_CHUNKED && !c->is_old) {
                c->response.write_chunks = true;
                buf_puts(b, "Transfer-Encoding: chunked\r\n");
        }
        if (c->response.framing == HTTP1_NO_BODY && c->is_head && length) {
                buf_puts(b, "Content-Length: ");
                put_slice(b, length->value);
                buf_puts(b, "\r\n");
        }
        if (r->status >= 200)
                buf_puts(b, "Connection: close\r\n");
        buf_puts(b, "\r\n");
}

/* Interim answers are passed on, except to an HTTP/1.0 client, which would take one for the answer.
 * An answer that switches protocols was not asked for. */
static bool read_response_head(struct proxy_conn *c)
{
        struct proxy_flow *f = &c->down;

        while (!c->response_head_done && f->in.len > 0) {
                struct http1_response r;
                struct http1_refusal why;
                enum http1_result got =
                        http1_response_parse(f->in.data, f->in.len, PROXY_MAX_RESP_HEAD,
                                             &c->head_seen, c->is_head, &r, &why);

                if (got == HTTP1_REFUSED || (got == HTTP1_DONE && r.status == 101))
                        return false;
                if (got == HTTP1_MORE)
                        break;
                c->head_seen = 0;
                c->response_head_done = r.status >= 200;
                if (c->response_head_done || !c->is_old)
                        write_response_head(c, &r);
                buf_consume(&f->in, r.head.len);
        }
        return c->response_head_done || !f->eof;
}

bool proxy_move_response(struct proxy_conn *c)
{
        struct proxy_flow *f = &c->down;

        if (f->done)
                return true;
        if (!c->response_head_done) {
                if (!read_response_head(c))
                        return false;
                if (!c->response_head_done)
                        return !buf_failed(&f->out);
        }
        switch (move_body(&c->response, &f->in, &f->out)) {
        case HTTP1_DONE:
                f->done = true;
                break;
        case HTTP1_REFUSED:
                return false;
        case HTTP1_MORE:
                if (f->eof && c->response.framing != HTTP1_BODY_UNTIL_CLOSE)
                        return false;
                f->done = f->eof;
        }
        return !buf_failed(&f->out);
}
