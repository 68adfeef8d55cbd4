/* The request head: the result must not depend on how the bytes were cut, and what is accepted must
 * be what it claims to be. The first byte of the input says where to cut, the second how small the
 * limit is. */
#include <stdio.h>

#include "codec/http1.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

static void check_slice(struct http1_slice s, const char *bytes, size_t len)
{
        check(s.p >= bytes && s.len <= len && s.p + s.len <= bytes + len, "slice in the head");
        for (size_t i = 0; i < s.len; i++)
                check(s.p[i] != '\r' && s.p[i] != '\n' && s.p[i] != '\0', "slice is one line");
}

static bool same(struct http1_slice a, struct http1_slice b)
{
        return a.p == b.p && a.len == b.len;
}

static void check_same(const struct http1_request *a, const struct http1_request *b)
{
        check(a->head.len == b->head.len && a->head.minor == b->head.minor &&
                      a->head.keep_alive == b->head.keep_alive &&
                      a->head.framing == b->head.framing &&
                      a->head.content_length == b->head.content_length &&
                      a->head.n_headers == b->head.n_headers,
              "same head however cut");
        check(a->method == b->method && same(a->path, b->path) && same(a->query, b->query) &&
                      same(a->host, b->host) && a->expects_continue == b->expects_continue,
              "same request however cut");
        for (size_t i = 0; i < a->head.n_headers; i++)
                check(same(a->head.headers[i].name, b->head.headers[i].name) &&
                              same(a->head.headers[i].value, b->head.headers[i].value),
                      "same headers however cut");
}

static size_t count(const struct http1_head *head, const char *name)
{
        size_t n = 0;

        for (size_t i = 0; i < head->n_headers; i++)
                n += http1_slice_is_case(head->headers[i].name, name);
        return n;
}

static void check_accepted(const struct http1_request *r, const char *bytes, size_t len, size_t max)
{
        const struct http1_head *h = &r->head;

        check(h->len <= len && h->len <= max, "head within its limit");
        check(memcmp(bytes + h->len - 4, "\r\n\r\n", 4) == 0, "head ends in an empty line");
        check_slice(r->method_text, bytes, h->len);
        check_slice(r->path, bytes, h->len);
        check_slice(r->query, bytes, h->len);
        for (size_t i = 0; i < h->n_headers; i++) {
                check_slice(h->headers[i].name, bytes, h->len);
                check_slice(h->headers[i].value, bytes, h->len);
        }
        check(r->path.len > 0 && (r->path.p[0] == '/' || r->path.p[0] == '*'), "path is rooted");
        check(count(h, "content-length") + count(h, "transfer-encoding") <= 1, "one length");
        check(count(h, "host") == 1 || (h->minor == 0 && count(h, "host") == 0), "one host");
        check((h->framing == HTTP1_NO_BODY) ==
                      (count(h, "content-length") + count(h, "transfer-encoding") == 0),
              "a body is announced or there is none");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct http1_request whole, cut;
        struct http1_refusal why = { 0 }, why_cut = { 0 };
        enum http1_result r, r_cut;
        size_t seen = 0, seen_cut = 0;
        size_t len, at, max;
        char *bytes, *moved;

        if (size < 2)
                return 0;
        len = size - 2;
        at = len ? data[0] * len / 255 : 0;
        max = 64 + data[1] * 8;
        /* Exact heap copies, so that the sanitizer sees every byte past the end. */
        bytes = xcalloc(1, len ? len : 1);
        memcpy(bytes, data + 2, len);

        r = http1_request_parse(bytes, len, max, &seen, &whole, &why);
        if (r == HTTP1_DONE)
                check_accepted(&whole, bytes, len, max);
        check(r != HTTP1_REFUSED || (why.status >= 400 && why.text), "a refusal has its reason");

        moved = xcalloc(1, at ? at : 1);
        memcpy(moved, bytes, at);
        r_cut = http1_request_parse(moved, at, max, &seen_cut, &cut, &why_cut);
        free(moved);
        if (r_cut == HTTP1_MORE)
                r_cut = http1_request_parse(bytes, len, max, &seen_cut, &cut, &why_cut);
        else if (r_cut == HTTP1_DONE) /* its slices point into the first copy */
                r_cut = http1_request_parse(bytes, at, max, &(size_t){ 0 }, &cut, &why_cut);
        check(r == r_cut, "same result however cut");
        if (r == HTTP1_DONE)
                check_same(&whole, &cut);
        if (r == HTTP1_REFUSED)
                check(why.status == why_cut.status && why.text == why_cut.text, "same refusal");
        free(bytes);
        return 0;
}
