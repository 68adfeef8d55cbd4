/* Heads of requests and responses.
 *
 * Two passes. The first looks for the empty line that ends the head, from where the last call left
 * off; it is the only one that sees incomplete input and needs a single number of state. It refuses
 * a line feed without its carriage return, so that the second pass may take every LF as the end of
 * a line. The second pass runs once, over the complete head, line by line, and checks every byte
 * against the class table; a carriage return inside a line fails there like any control byte. */
#include "codec/http1.h"

#include <strings.h>

enum {
        CLASS_TOKEN = 1 << 0,
        CLASS_TARGET = 1 << 1, /* printable ASCII but '#': a fragment is never sent */
        CLASS_VALUE = 1 << 2,  /* printable, blank, and bytes above ASCII */
        CLASS_HOST = 1 << 3,   /* letters, digits, "-._" */
        CLASS_DIGIT = 1 << 4,
};

#define PRINTABLE (CLASS_TARGET | CLASS_VALUE)
#define TOKEN     (PRINTABLE | CLASS_TOKEN)
#define ALPHA     (TOKEN | CLASS_HOST)

static const uint8_t byte_class[256] = {
        ['\t'] = CLASS_VALUE,
        [' '] = CLASS_VALUE,
        ['!'] = TOKEN,
        ['"'] = PRINTABLE,
        ['#'] = CLASS_TOKEN | CLASS_VALUE,
        ['$' ... '\''] = TOKEN,
        ['('] = PRINTABLE,
        [')'] = PRINTABLE,
        ['*'] = TOKEN,
        ['+'] = TOKEN,
        [','] = PRINTABLE,
        ['-'] = ALPHA,
        ['.'] = ALPHA,
        ['/'] = PRINTABLE,
        ['0' ... '9'] = ALPHA | CLASS_DIGIT,
        [':' ... '@'] = PRINTABLE,
        ['A' ... 'Z'] = ALPHA,
        ['['] = PRINTABLE,
        ['\\'] = PRINTABLE,
        [']'] = PRINTABLE,
        ['^'] = TOKEN,
        ['_'] = ALPHA,
        ['`'] = TOKEN,
        ['a' ... 'z'] = ALPHA,
        ['{'] = PRINTABLE,
        ['|'] = TOKEN,
        ['}'] = PRINTABLE,
        ['~'] = TOKEN,
        [0x80 ... 0xff] = CLASS_VALUE,
};

/* Headers that the framing depends on, or that mean different things to different readers when they
 * come twice. */
enum known {
        KNOWN_HOST,
        KNOWN_CONTENT_LENGTH,
        KNOWN_TRANSFER_ENCODING,
        KNOWN_EXPECT,
        KNOWN_AUTHORIZATION,
        KNOWN_CONTENT_TYPE,
        KNOWN_COOKIE,
        KNOWN_ORIGIN,
        KNOWN_CONNECTION, /* the only one that may repeat */
        N_KNOWN,
};

static const struct http1_slice known_names[N_KNOWN] = {
        [KNOWN_HOST] = { "host", 4 },
        [KNOWN_CONTENT_LENGTH] = { "content-length", 14 },
        [KNOWN_TRANSFER_ENCODING] = { "transfer-encoding", 17 },
        [KNOWN_EXPECT] = { "expect", 6 },
        [KNOWN_AUTHORIZATION] = { "authorization", 13 },
        [KNOWN_CONTENT_TYPE] = { "content-type", 12 },
        [KNOWN_COOKIE] = { "cookie", 6 },
        [KNOWN_ORIGIN] = { "origin", 6 },
        [KNOWN_CONNECTION] = { "connection", 10 },
};

/* The values of the known headers while a head is read; p is NULL for absent ones. */
struct facts {
        struct http1_slice value[N_KNOWN];
        bool close, keep_alive; /* tokens of Connection */
};

static enum http1_result refuse_head(struct http1_refusal *why, int status, const char *text)
{
        *why = (struct http1_refusal){ status, text };
        return HTTP1_REFUSED;
}

static bool all_of(struct http1_slice s, unsigned class)
{
        for (size_t i = 0; i < s.len; i++)
                if (!(byte_class[(uint8_t)s.p[i]] & class))
                        return false;
        return true;
}

bool http1_slice_is(struct http1_slice s, const char *text)
{
        return s.len == strlen(text) && memcmp(s.p, text, s.len) == 0;
}

bool http1_slice_is_case(struct http1_slice s, const char *text)
{
        return s.len == strlen(text) && strncasecmp(s.p, text, s.len) == 0;
}

bool http1_is_field_name(const char *name)
{
        return name[0] && all_of((struct http1_slice){ name, strlen(name) }, CLASS_TOKEN);
}

bool http1_is_field_value(const char *value)
{
        return all_of((struct http1_slice){ value, strlen(value) }, CLASS_VALUE);
}

const struct http1_header *http1_find(const struct http1_head *head, const char *name)
{
        for (size_t i = 0; i < head->n_headers; i++)
                if (http1_slice_is_case(head->headers[i].name, name))
                        return &head->headers[i];
        return NULL;
}

/* The first pass. The first byte is checked at once, so that a client that speaks another protocol
 * (TLS, usually) hears so now and not at the deadline. */
static enum http1_result find_end(const char *bytes, size_t len, size_t max_head, size_t *seen,
                                  size_t *ret_len, struct http1_refusal *why)
{
        size_t end = MIN(len, max_head);

        if (len > 0 && !(bytes[0] >= 'A' && bytes[0] <= 'Z'))
                return refuse_head(why, 400, "Malformed start line");
        while (*seen < end) {
                const char *lf = memchr(bytes + *seen, '\n', end - *seen);
                size_t at;

                if (!lf) {
                        *seen = end;
                        break;
                }
                at = (size_t)(lf - bytes);
                if (bytes[at - 1] != '\r')
                        return refuse_head(why, 400, "Line feed without carriage return");
                *seen = at + 1;
                if (at >= 3 && bytes[at - 2] == '\n') {
                        *ret_len = at + 1;
                        return HTTP1_DONE;
                }
        }
        if (len < max_head)
                return HTTP1_MORE;
        if (!memchr(bytes, '\n', end))
                return refuse_head(why, 414, "Request line too long");
        return refuse_head(why, 431, "Request head too large");
}

/* Cut the next line off *rest, without its CR LF. The head ends in a complete line. */
static struct http1_slice take_line(struct http1_slice *rest)
{
        const char *lf = memchr(rest->p, '\n', rest->len);
        size_t taken = (size_t)(lf - rest->p) + 1;
        struct http1_slice line = { rest->p, taken - 2 };

        rest->p += taken;
        rest->len -= taken;
        return line;
}

/* Cut what stands before the first space off *line, and the space. */
static bool take_word(struct http1_slice *line, struct http1_slice *ret)
{
        const char *space = memchr(line->p, ' ', line->len);

        if (!space)
                return false;
        *ret = (struct http1_slice){ line->p, (size_t)(space - line->p) };
        line->p += ret->len + 1;
        line->len -= ret->len + 1;
        return ret->len > 0;
}

static struct http1_slice trim_slice(struct http1_slice s)
{
        while (s.len && (s.p[0] == ' ' || s.p[0] == '\t'))
                s.p++, s.len--;
        while (s.len && (s.p[s.len - 1] == ' ' || s.p[s.len - 1] == '\t'))
                s.len--;
        return s;
}

static void read_connection(struct http1_slice value, struct facts *f)
{
        while (value.len) {
                const char *comma = memchr(value.p, ',', value.len);
                size_t len = comma ? (size_t)(comma - value.p) : value.len;
                struct http1_slice token = trim_slice((struct http1_slice){ value.p, len });

                if (http1_slice_is_case(token, "close"))
                        f->close = true;
                else if (http1_slice_is_case(token, "keep-alive"))
                        f->keep_alive = true;
                len += comma != NULL;
                value.p += len;
                value.len -= len;
        }
}

static enum http1_result note_known(const struct http1_header *h, struct facts *f,
                                    struct http1_refusal *why)
{
        for (size_t i = 0; i < N_KNOWN; i++) {
                if (h->name.len != known_names[i].len ||
                    strncasecmp(h->name.p, known_names[i].p, h->name.len) != 0)
                        continue;
                if (i == KNOWN_CONNECTION)
                        read_connection(h->value, f);
                else if (f->value[i].p)
                        return refuse_head(why, 400, "Header given twice");
                f->value[i] = h->value;
                break;
        }
        return HTTP1_DONE;
}

static enum http1_result read_header(struct http1_slice line, struct http1_header *ret,
                                     struct http1_refusal *why)
{
        const char *colon = memchr(line.p, ':', line.len);

        if (line.p[0] == ' ' || line.p[0] == '\t')
                return refuse_head(why, 400, "Folded header line");
        if (!colon)
                return refuse_head(why, 400, "Header line without colon");
        ret->name = (struct http1_slice){ line.p, (size_t)(colon - line.p) };
        if (ret->name.len == 0 || !all_of(ret->name, CLASS_TOKEN))
                return refuse_head(why, 400, "Invalid header name");
        ret->value = (struct http1_slice){ colon + 1, line.len - ret->name.len - 1 };
        if (!all_of(ret->value, CLASS_VALUE))
                return refuse_head(why, 400, "Invalid byte in header value");
        ret->value = trim_slice(ret->value);
        return HTTP1_DONE;
}

static enum http1_result read_headers(struct http1_slice rest, struct http1_head *head,
                                      struct facts *f, struct http1_refusal *why)
{
        head->n_headers = 0;
        *f = (struct facts){ 0 };
        for (;;) {
                struct http1_slice line = take_line(&rest);
                struct http1_header *h = &head->headers[head->n_headers];

                if (line.len == 0)
                        return HTTP1_DONE;
                if (head->n_headers == HTTP1_MAX_HEADERS)
                        return refuse_head(why, 431, "Too many headers");
                if (read_header(line, h, why) < 0 || note_known(h, f, why) < 0)
                        return HTTP1_REFUSED;
                head->n_headers++;
        }
}

static enum http1_result read_length(struct http1_slice value, uint64_t *ret,
                                     struct http1_refusal *why)
{
        uint64_t n = 0;

        /* 19 digits cannot overflow 64 bits. */
        if (value.len == 0 || value.len > 19 || !all_of(value, CLASS_DIGIT))
                return refuse_head(why, 400, "Invalid Content-Length");
        for (size_t i = 0; i < value.len; i++)
                n = n * 10 + (uint64_t)(value.p[i] - '0');
        if (n > INT64_MAX)
                return refuse_head(why, 400, "Invalid Content-Length");
        *ret = n;
        return HTTP1_DONE;
}

/* Where the body ends, by the headers alone; `otherwise` is what their absence means. Only the
 * exact bytes "chunked" count: a spelling that another reader does not know is how requests are
 * smuggled past it. */
static enum http1_result read_framing(const struct facts *f, enum http1_framing otherwise,
                                      struct http1_head *head, struct http1_refusal *why)
{
        struct http1_slice length = f->value[KNOWN_CONTENT_LENGTH];
        struct http1_slice coding = f->value[KNOWN_TRANSFER_ENCODING];

        head->keep_alive = head->minor == 1 ? !f->close : f->keep_alive && !f->close;
        head->content_length = 0;
        head->framing = otherwise;
        if (coding.p) {
                if (length.p)
                        return refuse_head(why, 400,
                                           "Content-Length and Transfer-Encoding together");
                if (head->minor == 0)
                        return refuse_head(why, 400, "Transfer-Encoding in HTTP/1.0");
                if (!http1_slice_is(coding, "chunked"))
                        return refuse_head(why, 501, "Transfer-Encoding not supported");
                head->framing = HTTP1_BODY_CHUNKED;
        } else if (length.p) {
                head->framing = HTTP1_BODY_LENGTH;
                return read_length(length, &head->content_length, why);
        }
        return HTTP1_DONE;
}

/* name, name:port, [v6] or [v6]:port */
static bool host_is_valid(struct http1_slice s)
{
        static const char digits[24] = "0123456789abcdefABCDEF:."; /* without an end */
        size_t i = 0, port;

        if (s.len && s.p[0] == '[') {
                while (++i < s.len && s.p[i] != ']')
                        if (!memchr(digits, s.p[i], sizeof(digits)))
                                return false;
                if (i >= s.len || i == 1)
                        return false;
                i++;
        } else {
                while (i < s.len && (byte_class[(uint8_t)s.p[i]] & CLASS_HOST))
                        i++;
                if (i == 0)
                        return false;
        }
        if (i == s.len)
                return true;
        port = i + 1;
        return s.p[i] == ':' && s.len > port && s.len - port <= 5 &&
               all_of((struct http1_slice){ s.p + port, s.len - port }, CLASS_DIGIT);
}

static enum http1_result read_version(struct http1_slice text, int *ret_minor,
                                      struct http1_refusal *why)
{
        if (text.len != 8 || memcmp(text.p, "HTTP/", 5) != 0 || text.p[6] != '.' ||
            !(byte_class[(uint8_t)text.p[5]] & CLASS_DIGIT) ||
            !(byte_class[(uint8_t)text.p[7]] & CLASS_DIGIT))
                return refuse_head(why, 400, "Malformed start line");
        if (text.p[5] != '1' || text.p[7] > '1')
                return refuse_head(why, 505, "HTTP version not supported");
        *ret_minor = text.p[7] - '0';
        return HTTP1_DONE;
}

static enum http1_result read_request_line(struct http1_slice line, struct http1_request *ret,
                                           struct http1_slice *ret_target,
                                           struct http1_refusal *why)
{
        if (!take_word(&line, &ret->method_text) || !all_of(ret->method_text, CLASS_TOKEN) ||
            !take_word(&line, ret_target))
                return refuse_head(why, 400, "Malformed start line");
        if (!all_of(*ret_target, CLASS_TARGET))
                return refuse_head(why, 400, "Invalid byte in request target");
        if (read_version(line, &ret->head.minor, why) < 0)
                return HTTP1_REFUSED;
        if (ret_target->len > HTTP1_MAX_TARGET)
                return refuse_head(why, 414, "Request target too long");
        return HTTP1_DONE;
}

static enum http1_result read_method(struct http1_request *ret, struct http1_refusal *why)
{
        static const char *const names[] = {
                [HTTP1_GET] = "GET",         [HTTP1_HEAD] = "HEAD",   [HTTP1_POST] = "POST",
                [HTTP1_PUT] = "PUT",         [HTTP1_PATCH] = "PATCH", [HTTP1_DELETE] = "DELETE",
                [HTTP1_OPTIONS] = "OPTIONS",
        };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (http1_slice_is(ret->method_text, names[i])) {
                        ret->method = (enum http1_method)i;
                        return HTTP1_DONE;
                }
        return refuse_head(why, 501, "Method not implemented");
}

/* Cut "http://authority" off an absolute-form target. It is only taken when it agrees with Host, so
 * that it makes no difference which of the two a party in front of us went by. */
static bool strip_authority(struct http1_slice *target, struct http1_slice host)
{
        size_t scheme;

        if (target->len > 7 && strncasecmp(target->p, "http://", 7) == 0)
                scheme = 7;
        else if (target->len > 8 && strncasecmp(target->p, "https://", 8) == 0)
                scheme = 8;
        else
                return false;
        target->p += scheme;
        target->len -= scheme;
        const char *slash = memchr(target->p, '/', target->len);
        if (!slash || (size_t)(slash - target->p) != host.len || host.len == 0 ||
            strncasecmp(target->p, host.p, host.len) != 0)
                return false;
        target->p += host.len;
        target->len -= host.len;
        return true;
}

static void split_query(struct http1_slice target, struct http1_request *ret)
{
        const char *mark = memchr(target.p, '?', target.len);

        ret->path = target;
        ret->query = (struct http1_slice){ target.p + target.len, 0 };
        if (mark) {
                ret->path.len = (size_t)(mark - target.p);
                ret->query = (struct http1_slice){ mark + 1, target.len - ret->path.len - 1 };
        }
}

static enum http1_result read_target(struct http1_slice target, struct http1_request *ret,
                                     struct http1_refusal *why)
{
        if (http1_slice_is(target, "*") && ret->method == HTTP1_OPTIONS) {
                ret->path = target;
                ret->query = (struct http1_slice){ target.p + 1, 0 };
                return HTTP1_DONE;
        }
        ret->is_absolute = target.p[0] != '/';
        if (ret->is_absolute && !strip_authority(&target, ret->host))
                return refuse_head(why, 400, "Invalid request target");
        split_query(target, ret);
        return HTTP1_DONE;
}

static enum http1_result read_host_and_expect(const struct facts *f, struct http1_request *ret,
                                              struct http1_refusal *why)
{
        struct http1_slice expect = f->value[KNOWN_EXPECT];

        ret->host = f->value[KNOWN_HOST];
        if (!ret->host.p && ret->head.minor == 1)
                return refuse_head(why, 400, "Host header missing");
        if (ret->host.p && !host_is_valid(ret->host))
                return refuse_head(why, 400, "Invalid Host header");
        if (expect.p && !http1_slice_is_case(expect, "100-continue"))
                return refuse_head(why, 417, "Unknown expectation");
        /* A client of 1.0 would take an interim answer for the answer. */
        ret->expects_continue = expect.p && ret->head.minor == 1;
        return HTTP1_DONE;
}

enum http1_result http1_request_parse(const char *bytes, size_t len, size_t max_head, size_t *seen,
                                      struct http1_request *ret, struct http1_refusal *ret_why)
{
        struct http1_slice rest, target;
        struct facts facts;

        enum http1_result r = find_end(bytes, len, max_head, seen, &ret->head.len, ret_why);
        if (r != HTTP1_DONE)
                return r;
        rest = (struct http1_slice){ bytes, ret->head.len };
        if (read_request_line(take_line(&rest), ret, &target, ret_why) < 0 ||
            read_method(ret, ret_why) < 0 || read_headers(rest, &ret->head, &facts, ret_why) < 0 ||
            read_framing(&facts, HTTP1_NO_BODY, &ret->head, ret_why) < 0 ||
            read_host_and_expect(&facts, ret, ret_why) < 0)
                return HTTP1_REFUSED;
        return read_target(target, ret, ret_why);
}

enum http1_result http1_proxy_parse(const char *bytes, size_t len, size_t max_head, size_t *seen,
                                    struct http1_proxy_request *ret, struct http1_refusal *ret_why)
{
        struct http1_request *req = &ret->req;
        struct http1_slice rest, target;
        struct facts facts;
        size_t n = 0;
        enum http1_result r = find_end(bytes, len, max_head, seen, &req->head.len, ret_why);

        if (r != HTTP1_DONE)
                return r;
        rest = (struct http1_slice){ bytes, req->head.len };
        if (read_request_line(take_line(&rest), req, &target, ret_why) < 0)
                return HTTP1_REFUSED;
        ret->is_connect = http1_slice_is(req->method_text, "CONNECT");
        if ((!ret->is_connect && read_method(req, ret_why) < 0) ||
            read_headers(rest, &req->head, &facts, ret_why) < 0 ||
            read_framing(&facts, HTTP1_NO_BODY, &req->head, ret_why) < 0 ||
            read_host_and_expect(&facts, req, ret_why) < 0)
                return HTTP1_REFUSED;
        if (ret->is_connect) {
                if (req->head.framing != HTTP1_NO_BODY)
                        return refuse_head(ret_why, 400, "CONNECT with a body");
                ret->authority = target;
                req->path = req->query = (struct http1_slice){ target.p + target.len, 0 };
                return HTTP1_DONE;
        }
        /* "http://authority", then the path, a query, both or nothing. */
        if (target.len <= 7 || strncasecmp(target.p, "http://", 7) != 0)
                return refuse_head(ret_why, 400, "A proxy needs a whole http:// URL, or CONNECT");
        target.p += 7;
        target.len -= 7;
        while (n < target.len && target.p[n] != '/' && target.p[n] != '?')
                n++;
        ret->authority = (struct http1_slice){ target.p, n };
        split_query((struct http1_slice){ target.p + n, target.len - n }, req);
        return HTTP1_DONE;
}

static enum http1_result read_status_line(struct http1_slice line, struct http1_response *ret,
                                          struct http1_refusal *why)
{
        struct http1_slice version = { line.p, MIN(line.len, 8) };

        if (read_version(version, &ret->head.minor, why) < 0)
                return HTTP1_REFUSED;
        if (line.len < 12 || line.p[8] != ' ' || line.p[9] < '1' || line.p[9] > '5' ||
            !all_of((struct http1_slice){ line.p + 10, 2 }, CLASS_DIGIT) ||
            (line.len > 12 && line.p[12] != ' '))
                return refuse_head(why, 502, "Malformed status line");
        ret->status = (line.p[9] - '0') * 100 + (line.p[10] - '0') * 10 + (line.p[11] - '0');
        ret->reason = (struct http1_slice){ line.p + line.len, 0 };
        if (line.len > 13)
                ret->reason = (struct http1_slice){ line.p + 13, line.len - 13 };
        if (!all_of(ret->reason, CLASS_VALUE))
                return refuse_head(why, 502, "Malformed status line");
        return HTTP1_DONE;
}

enum http1_result http1_response_parse(const char *bytes, size_t len, size_t max_head, size_t *seen,
                                       bool for_head, struct http1_response *ret,
                                       struct http1_refusal *ret_why)
{
        enum http1_result r = find_end(bytes, len, max_head, seen, &ret->head.len, ret_why);
        struct http1_slice rest = { bytes, ret->head.len };
        struct facts facts;

        if (r == HTTP1_MORE)
                return r;
        if (r == HTTP1_REFUSED || read_status_line(take_line(&rest), ret, ret_why) < 0 ||
            read_headers(rest, &ret->head, &facts, ret_why) < 0 ||
            read_framing(&facts, HTTP1_BODY_UNTIL_CLOSE, &ret->head, ret_why) < 0) {
                ret_why->status = 502; /* whatever is wrong, it is not our caller's doing */
                return HTTP1_REFUSED;
        }
        if (for_head || ret->status < 200 || ret->status == 204 || ret->status == 304)
                ret->head.framing = HTTP1_NO_BODY;
        if (ret->head.framing == HTTP1_BODY_UNTIL_CLOSE)
                ret->head.keep_alive = false;
        return HTTP1_DONE;
}
