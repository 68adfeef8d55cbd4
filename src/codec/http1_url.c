/* Percent-encoding and query strings. A component that cannot be decoded to text without NUL is
 * refused rather than passed on, so that no two layers see different names. */
#include "codec/http1.h"

#include <sys/types.h>

#include "base/utf8.h"

static bool is_text(const char *p, size_t len)
{
        return !memchr(p, '\0', len) && utf8_is_valid(p, len);
}

/* Decode into `to`, which has room for len bytes; returns how many there are, or -1. */
static ssize_t unescape_byte(const char *text, size_t len, bool plus_is_space, char *to)
{
        size_t n = 0;

        for (size_t i = 0; i < len; i++) {
                int high, low;

                if (text[i] != '%') {
                        to[n++] = plus_is_space && text[i] == '+' ? ' ' : text[i];
                        continue;
                }
                if (len - i < 3)
                        return -1;
                high = hex_digit(text[i + 1]);
                low = hex_digit(text[i + 2]);
                if (high < 0 || low < 0)
                        return -1;
                to[n++] = (char)(high << 4 | low);
                i += 2;
        }
        return (ssize_t)n;
}

static int decode_part(const char *text, size_t len, bool plus_is_space, struct buf *out,
                       struct err *err)
{
        char *to = buf_reserve(out, len); /* decoding never makes it longer */

        if (!to)
                return err_set(err, ERR_TOO_LARGE, "Text too long");
        ssize_t n = unescape_byte(text, len, plus_is_space, to);
        if (n < 0 || !is_text(to, (size_t)n)) {
                *to = '\0'; /* the terminator that stood there */
                return err_set(err, ERR_INVALID,
                               n < 0 ? "Invalid percent-encoding" : "Invalid UTF-8 or NUL in URL");
        }
        buf_grew(out, (size_t)n);
        return 0;
}

int http1_percent_decode(const char *text, size_t len, struct buf *out, struct err *err)
{
        return decode_part(text, len, false, out, err);
}

int http1_query_get(const char *query, const char *name, struct buf *ret, struct err *err)
{
        while (*query) {
                size_t len = strcspn(query, "&");
                size_t name_len = strcspn(query, "&=");
                const char *value = query + name_len + (query[name_len] == '=');
                size_t value_len = (size_t)(query + len - value);
                int r;

                buf_clear(ret);
                r = decode_part(query, name_len, true, ret, err);
                if (r < 0)
                        return r;
                if (streq(buf_str(ret), name)) {
                        buf_clear(ret);
                        r = decode_part(value, value_len, true, ret, err);
                        return r < 0 ? r : 1;
                }
                query += len + (query[len] == '&');
        }
        buf_clear(ret);
        return 0;
}
