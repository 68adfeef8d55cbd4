/* What a client sends to the proxy. The result must not depend on how the bytes were cut; and what
 * the proxy writes in its place must be exactly one request to our strict parser, with the same
 * method, path and query, for the host that was judged, and nothing in it that is meant for a hop.
 */
#include <stdio.h>

#include "net/proxy_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

static bool same(struct http1_slice a, struct http1_slice b)
{
        return a.len == b.len && memcmp(a.p, b.p, a.len) == 0;
}

/* Byte by byte, as the slowest client sends it. */
static void check_cuts(const char *bytes, size_t len, enum http1_result whole, int status)
{
        struct http1_proxy_request req;
        struct http1_refusal why;
        enum http1_result r = HTTP1_MORE;
        size_t seen = 0;

        for (size_t n = 1; n <= len && r == HTTP1_MORE; n++)
                r = http1_proxy_parse(bytes, n, PROXY_MAX_HEAD, &seen, &req, &why);
        check(r == whole, "the same result in pieces");
        if (r == HTTP1_REFUSED)
                check(why.status == status, "the same refusal in pieces");
}

static void check_written(struct proxy_conn *c, const struct http1_proxy_request *req)
{
        static const char *const hop[] = {
                "proxy-authorization", "proxy-connection", "te", "upgrade", "keep-alive", "trailer"
        };
        const struct buf *b = &c->up.out;
        struct http1_request again;
        struct http1_refusal why;
        struct host_target host;
        size_t seen = 0;

        check(!buf_failed(b), "it fits");
        check(http1_request_parse(b->data, b->len, b->len + 1, &seen, &again, &why) == HTTP1_DONE,
              "what is written is a request");
        check(again.head.len == b->len, "and nothing behind it");
        check(same(again.method_text, req->req.method_text), "the same method");
        check(req->req.path.len ? same(again.path, req->req.path) : http1_slice_is(again.path, "/"),
              "the same path");
        check(same(again.query, req->req.query), "the same query");
        check(again.head.framing == req->req.head.framing &&
                      again.head.content_length == req->req.head.content_length,
              "the same framing");
        check(!again.head.keep_alive, "one request only");
        check(host_target_parse(again.host.p, again.host.len, 80, &host, NULL) >= 0 &&
                      streq(host.name, c->target.name) && host.port == c->target.port,
              "for the host that was judged");
        for (size_t i = 0; i < ARRAY_LEN(hop); i++)
                check(!http1_find(&again.head, hop[i]), "nothing for a hop");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *bytes = (const char *)data;
        struct proxy_conn c = { 0 };
        struct http1_proxy_request req;
        struct http1_refusal why = { 0 };
        size_t seen = 0;
        enum http1_result r = http1_proxy_parse(bytes, size, PROXY_MAX_HEAD, &seen, &req, &why);

        if (size < 4096)
                check_cuts(bytes, size, r, why.status);
        if (r != HTTP1_DONE)
                return 0;
        check(req.req.head.len <= size, "within the bytes");
        if (host_target_parse(req.authority.p, req.authority.len, req.is_connect ? 0 : 80,
                              &c.target, NULL) < 0 ||
            req.is_connect || req.req.head.n_headers > HTTP1_MAX_HEADERS - 3) /* we add as many */
                return 0;
        proxy_write_request(&c, &req);
        check_written(&c, &req);
        buf_done(&c.up.out);
        return 0;
}
