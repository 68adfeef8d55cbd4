/* HTTP/1.1 on the wire: heads of requests and responses, chunked bodies, and the pieces of a URL.
 *
 * The promise is that no other reader can understand the same bytes differently: whatever RFC 9112
 * leaves to the goodwill of the reader is refused here, with the status that the refusal deserves.
 * In particular a message never has two statements of its length, a line ends in CR LF and nothing
 * else, and a header line is one line.
 *
 * Pure functions without I/O and without state of their own; only the URL helpers allocate, in the
 * caller's buf. Slices point into the caller's bytes and live as long as they do. The result does
 * not depend on how the bytes were cut into pieces (test/fuzz checks that).
 *
 * Any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define HTTP1_MAX_HEADERS     64
#define HTTP1_MAX_TARGET      8192  /* past it 414 */
#define HTTP1_MAX_CHUNK_EXT   256   /* bytes after the size on one chunk line */
#define HTTP1_MAX_CHUNK_WASTE 16384 /* framing bytes beyond what useful chunks need */
#define HTTP1_MAX_TRAILER     4096  /* bytes of all trailer lines together */

enum http1_result {
        HTTP1_REFUSED = -1, /* *ret_why says why; the connection is of no further use */
        HTTP1_MORE = 0,     /* fine so far; call again with more bytes */
        HTTP1_DONE = 1,
};

/* Why a message was refused. `text` is static. */
struct http1_refusal {
        int status;
        const char *text;
};

struct http1_slice {
        const char *p;
        size_t len;
};

struct http1_header {
        struct http1_slice name;
        struct http1_slice value; /* without the white space around it */
};

enum http1_method {
        HTTP1_GET,
        HTTP1_HEAD,
        HTTP1_POST,
        HTTP1_PUT,
        HTTP1_PATCH,
        HTTP1_DELETE,
        HTTP1_OPTIONS,
};

enum http1_framing {
        HTTP1_NO_BODY,
        HTTP1_BODY_LENGTH,      /* content_length bytes follow; they may be none */
        HTTP1_BODY_CHUNKED,     /* decode with struct http1_chunked */
        HTTP1_BODY_UNTIL_CLOSE, /* responses only */
};

/* What requests and responses share. */
struct http1_head {
        size_t len; /* bytes up to and including the empty line */
        int minor;  /* HTTP/1.<minor>, 0 or 1 */
        bool keep_alive;
        enum http1_framing framing;
        uint64_t content_length; /* with HTTP1_BODY_LENGTH; at most INT64_MAX */
        size_t n_headers;
        struct http1_header headers[HTTP1_MAX_HEADERS];
};

struct http1_request {
        struct http1_head head;
        enum http1_method method;
        struct http1_slice method_text;
        struct http1_slice path;  /* starts with '/', or is "*" */
        struct http1_slice query; /* without '?'; empty when there is none */
        struct http1_slice host;  /* empty only in HTTP/1.0 */
        bool expects_continue;
        bool is_absolute; /* the target was a whole URL */
};

struct http1_response {
        struct http1_head head;
        int status;
        struct http1_slice reason;
};

/* Read a request head from the first `len` bytes of a message. *seen starts at 0 and must be kept
 * between calls for the same head: it spares the bytes that were looked at already, so that a
 * client that sends byte by byte costs linear time. The bytes may move between calls. A head longer
 * than max_head is refused with 431 (414 when the first line alone is too long). *ret is valid with
 * HTTP1_DONE, *ret_why with HTTP1_REFUSED.
 *
 * Authorization, Content-Type, Cookie, Expect, Host, Origin and the framing headers occur at most
 * once. An absolute-form target must name the same authority as Host, and is cut down to its path.
 */
enum http1_result http1_request_parse(const char *bytes, size_t len, size_t max_head, size_t *seen,
                                      struct http1_request *ret, struct http1_refusal *ret_why);

/* A request to a proxy: CONNECT with an authority, or a request whose target is a whole http URL.
 * Everything else as above, but Host is not compared with the target: the proxy writes Host anew
 * when it passes the request on. CONNECT has no body; its path and query are empty. */
struct http1_proxy_request {
        struct http1_request req;
        bool is_connect;
        struct http1_slice authority; /* not looked into */
};

enum http1_result http1_proxy_parse(const char *bytes, size_t len, size_t max_head, size_t *seen,
                                    struct http1_proxy_request *ret, struct http1_refusal *ret_why);

/* The same for a response; for_head says that the request was a HEAD, whose response has no body
 * whatever its headers say. 1xx heads are returned like any other, without body. Refusals have
 * status 502. */
enum http1_result http1_response_parse(const char *bytes, size_t len, size_t max_head, size_t *seen,
                                       bool for_head, struct http1_response *ret,
                                       struct http1_refusal *ret_why);

/* First header of that name in any case, or NULL. */
const struct http1_header *http1_find(const struct http1_head *head, const char *name);

bool http1_slice_is(struct http1_slice s, const char *text);      /* same bytes */
bool http1_slice_is_case(struct http1_slice s, const char *text); /* ASCII case aside */

/* Whether the text may stand as the name, or as the value, of a header that we write. */
bool http1_is_field_name(const char *name);
bool http1_is_field_value(const char *value);

/* The chunked decoder. Zero-initialised, then fed in order. */
struct http1_chunked {
        int state;
        uint64_t left;    /* of the current chunk, or its size while it is being read */
        uint32_t digits;  /* of the current size */
        uint32_t line;    /* bytes of the current line after the size */
        uint32_t waste;   /* see HTTP1_MAX_CHUNK_WASTE */
        uint32_t trailer; /* bytes of trailers so far */
        uint32_t name_len;
        char name[24]; /* start of the current trailer's name, lower case */
};

/* Take up to len bytes. *ret_used of them were taken, of which *ret_data (possibly none) are body.
 * Each call returns at most one run of body bytes, so call again while bytes are left.
 * HTTP1_DONE: the body has ended with the bytes used. Trailers are checked and dropped. */
enum http1_result http1_chunked_feed(struct http1_chunked *d, const char *bytes, size_t len,
                                     size_t *ret_used, struct http1_slice *ret_data,
                                     struct http1_refusal *ret_why);

/* Append the percent-decoded bytes to *out. ERR_INVALID for a broken escape, NUL, or bytes that are
 * not UTF-8; then *out is unchanged. A decoded "/" is data of the segment, so split a path before
 * decoding it. */
int http1_percent_decode(const char *text, size_t len, struct buf *out, struct err *err);

/* Look a parameter up in a raw query string ("a=1&b=x%20y", '+' is a space) and put its decoded
 * value into *ret, replacing what was there. Returns 1 when found (the first counts), 0 when
 * absent, and ERR_INVALID when it, or the name of a parameter before it, cannot be decoded. */
int http1_query_get(const char *query, const char *name, struct buf *ret, struct err *err);
