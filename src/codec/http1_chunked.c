/* The chunked decoder: a machine that takes framing byte by byte and body bytes in runs.
 *
 *     SIZE hex digits, EXT ";...", SIZE_LF -> DATA -> DATA_CR DATA_LF -> SIZE ...
 *     size 0: LINE -> (NAME ":" VALUE LINE_LF -> LINE)* CR -> END_LF -> done
 *
 * A client can make framing cost more than content (chunks of one byte, long extensions). `waste`
 * counts the framing bytes that ordinary chunks would not have needed, as Go's reader does, and an
 * unreasonable sum is refused. */
#include "codec/http1.h"

enum state {
        STATE_SIZE,
        STATE_EXT,
        STATE_SIZE_LF,
        STATE_DATA,
        STATE_DATA_CR,
        STATE_DATA_LF,
        STATE_LINE, /* at the start of a trailer line, or of the empty line */
        STATE_NAME,
        STATE_VALUE,
        STATE_LINE_LF,
        STATE_END_LF,
        STATE_DONE,
};

/* The overhead that a small chunk may have without counting as wasteful: its line and CR LF. */
#define FAIR_COST 16

static enum http1_result refuse_chunk(struct http1_refusal *why, const char *text)
{
        *why = (struct http1_refusal){ 400, text };
        return HTTP1_REFUSED;
}

static enum http1_result size_byte(struct http1_chunked *d, char c, struct http1_refusal *why)
{
        int digit = hex_digit(c);

        if (digit >= 0) {
                if (d->left > (uint64_t)INT64_MAX >> 4 || ++d->digits > 16)
                        return refuse_chunk(why, "Chunk too large");
                d->left = d->left << 4 | (uint64_t)digit;
                return HTTP1_MORE;
        }
        if (d->digits == 0 || (c != ';' && c != '\r'))
                return refuse_chunk(why, "Invalid chunk size");
        d->line = c == ';';
        d->state = c == ';' ? STATE_EXT : STATE_SIZE_LF;
        return HTTP1_MORE;
}

static enum http1_result ext_byte(struct http1_chunked *d, char c, struct http1_refusal *why)
{
        if (c == '\r') {
                d->state = STATE_SIZE_LF;
                return HTTP1_MORE;
        }
        if (c != '\t' && (c < 0x20 || c > 0x7e))
                return refuse_chunk(why, "Invalid chunk extension");
        if (++d->line > HTTP1_MAX_CHUNK_EXT)
                return refuse_chunk(why, "Chunk extension too long");
        return HTTP1_MORE;
}

/* The size line is complete. */
static enum http1_result begin_chunk(struct http1_chunked *d, struct http1_refusal *why)
{
        uint64_t fair = FAIR_COST + d->left;

        d->waste += d->digits + d->line + 4;
        d->waste = fair >= d->waste ? 0 : d->waste - (uint32_t)fair;
        if (d->waste > HTTP1_MAX_CHUNK_WASTE)
                return refuse_chunk(why, "Too much chunk framing");
        d->state = d->left ? STATE_DATA : STATE_LINE;
        return HTTP1_MORE;
}

static bool is_token_byte(char c)
{
        return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (c && strchr("!#$%&'*+-.^_`|~", c));
}

/* A trailer must not change what the head said about framing, routing or identity. */
static bool trailer_is_forbidden(const struct http1_chunked *d)
{
        static const char *const names[] = {
                "content-length", "transfer-encoding", "host",         "connection", "trailer",
                "authorization",  "content-encoding",  "content-type", "cookie",     "te",
                "expect",         "upgrade",           "origin",
        };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (d->name_len == strlen(names[i]) && memcmp(d->name, names[i], d->name_len) == 0)
                        return true;
        return false;
}

static enum http1_result name_byte(struct http1_chunked *d, char c, struct http1_refusal *why)
{
        if (c == ':' && d->name_len > 0) {
                if (trailer_is_forbidden(d))
                        return refuse_chunk(why, "Header not allowed in a trailer");
                d->state = STATE_VALUE;
                return HTTP1_MORE;
        }
        if (!is_token_byte(c))
                return refuse_chunk(why, "Invalid trailer");
        if (d->name_len < sizeof(d->name))
                d->name[d->name_len] = c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
        d->name_len++;
        d->state = STATE_NAME;
        return HTTP1_MORE;
}

static enum http1_result trailer_byte(struct http1_chunked *d, char c, struct http1_refusal *why)
{
        if (d->state == STATE_LINE && c == '\r') {
                d->state = STATE_END_LF;
                return HTTP1_MORE;
        }
        if (++d->trailer > HTTP1_MAX_TRAILER)
                return refuse_chunk(why, "Trailers too large");
        switch (d->state) {
        case STATE_LINE:
                d->name_len = 0;
                return name_byte(d, c, why);
        case STATE_NAME:
                return name_byte(d, c, why);
        case STATE_VALUE:
                if (c == '\r')
                        d->state = STATE_LINE_LF;
                else if (((uint8_t)c < 0x20 && c != '\t') || c == 0x7f)
                        return refuse_chunk(why, "Invalid trailer");
                return HTTP1_MORE;
        default: /* STATE_LINE_LF */
                if (c != '\n')
                        return refuse_chunk(why, "Carriage return without line feed");
                d->state = STATE_LINE;
                return HTTP1_MORE;
        }
}

static enum http1_result framing_byte(struct http1_chunked *d, char c, struct http1_refusal *why)
{
        switch (d->state) {
        case STATE_SIZE:
                return size_byte(d, c, why);
        case STATE_EXT:
                return ext_byte(d, c, why);
        case STATE_SIZE_LF:
                if (c != '\n')
                        return refuse_chunk(why, "Carriage return without line feed");
                return begin_chunk(d, why);
        case STATE_DATA_CR:
                if (c != '\r')
                        return refuse_chunk(why, "Chunk longer than its size");
                d->state = STATE_DATA_LF;
                return HTTP1_MORE;
        case STATE_DATA_LF:
                if (c != '\n')
                        return refuse_chunk(why, "Carriage return without line feed");
                d->digits = 0;
                d->state = STATE_SIZE;
                return HTTP1_MORE;
        case STATE_END_LF:
                if (c != '\n')
                        return refuse_chunk(why, "Carriage return without line feed");
                d->state = STATE_DONE;
                return HTTP1_DONE;
        default:
                return trailer_byte(d, c, why);
        }
}

enum http1_result http1_chunked_feed(struct http1_chunked *d, const char *bytes, size_t len,
                                     size_t *ret_used, struct http1_slice *ret_data,
                                     struct http1_refusal *ret_why)
{
        size_t at = 0;

        *ret_data = (struct http1_slice){ bytes, 0 };
        *ret_used = 0;
        if (d->state == STATE_DONE)
                return HTTP1_DONE;
        while (at < len) {
                enum http1_result r;

                if (d->state == STATE_DATA) {
                        size_t run = (size_t)MIN((uint64_t)(len - at), d->left);

                        *ret_data = (struct http1_slice){ bytes + at, run };
                        *ret_used = at + run;
                        d->left -= run;
                        if (d->left == 0)
                                d->state = STATE_DATA_CR;
                        return HTTP1_MORE;
                }
                r = framing_byte(d, bytes[at++], ret_why);
                if (r != HTTP1_MORE) {
                        *ret_used = at;
                        return r;
                }
        }
        *ret_used = at;
        return HTTP1_MORE;
}
