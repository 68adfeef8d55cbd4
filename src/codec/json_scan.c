/* Finds, decodes and escapes a JSON string in place. */
#include "codec/json_scan.h"

#include <stdio.h>

#include "base/utf8.h"

struct reader {
        const char *at, *end;
        struct err *err;
};

static int scan_refuse(struct reader *r, const char *text)
{
        return err_set(r->err, ERR_INVALID, "JSON: %s", text);
}

static char scan_peek(struct reader *r)
{
        while (r->at < r->end &&
               (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
                r->at++;
        return r->at < r->end ? *r->at : '\0';
}

/* From the opening quote to behind the closing one. */
static int skip_string(struct reader *r, const char **ret, size_t *ret_len)
{
        const char *start = ++r->at;

        for (; r->at < r->end && *r->at != '"'; r->at++)
                if (*r->at == '\\' && r->at + 1 < r->end)
                        r->at++;
        if (r->at >= r->end)
                return scan_refuse(r, "a string does not end");
        *ret = start;
        *ret_len = (size_t)(r->at++ - start);
        return 0;
}

/* Any other value: to the comma or brace behind it. */
static int skip_value(struct reader *r)
{
        const char *ignored;
        size_t depth = 0, n;
        int e;

        for (char c; (c = scan_peek(r));) {
                if (depth == 0 && (c == ',' || c == '}'))
                        return 0;
                if (c == '"') {
                        e = skip_string(r, &ignored, &n);
                        if (e < 0)
                                return e;
                        continue;
                }
                if (c == '{' || c == '[')
                        depth++;
                else if ((c == '}' || c == ']') && depth-- == 0)
                        return scan_refuse(r, "a bracket too many");
                r->at++;
        }
        return scan_refuse(r, "ends too early");
}

/* One `"key": value`. Returns 1 when it is the one that is wanted. */
static int read_member(struct reader *r, const char *key, const char **ret, size_t *ret_len)
{
        const char *name;
        size_t n;

        if (scan_peek(r) != '"')
                return scan_refuse(r, "a key was expected");
        int e = skip_string(r, &name, &n);
        if (e < 0)
                return e;
        bool wanted = n == strlen(key) && memcmp(name, key, n) == 0;
        if (scan_peek(r) != ':')
                return scan_refuse(r, "a colon was expected");
        r->at++;
        if (!wanted || scan_peek(r) != '"')
                return skip_value(r);
        e = skip_string(r, ret, ret_len);
        return e < 0 ? e : 1;
}

int json_scan_string(const char *text, size_t len, const char *key, const char **ret,
                     size_t *ret_len, struct err *err)
{
        struct reader r = { text, text + len, err };
        const char *value = NULL;
        size_t value_len = 0;
        int found = 0, e;

        if (scan_peek(&r) != '{')
                return scan_refuse(&r, "an object was expected");
        r.at++;
        if (scan_peek(&r) == '}')
                return 0;
        for (;;) {
                e = read_member(&r, key, &value, &value_len);
                if (e < 0)
                        return e;
                if (e > 0 && found++)
                        return scan_refuse(&r, "a key comes twice");
                if (scan_peek(&r) == '}')
                        break;
                if (scan_peek(&r) != ',')
                        return scan_refuse(&r, "a comma was expected");
                r.at++;
        }
        r.at++;
        if (scan_peek(&r) || r.at < r.end)
                return scan_refuse(&r, "goes on behind its end");
        if (found) {
                *ret = value;
                *ret_len = value_len;
        }
        return found;
}

static int read_unit(struct reader *r, uint32_t *ret)
{
        uint32_t v = 0;

        for (int i = 0; i < 4; i++, r->at++) {
                int digit = r->at < r->end ? hex_digit(*r->at) : -1;

                if (digit < 0)
                        return scan_refuse(r, "\\u wants four digits");
                v = v << 4 | (uint32_t)digit;
        }
        *ret = v;
        return 0;
}

/* What follows "\u": one unit, or two that make a pair. */
static int read_point(struct reader *r, uint32_t *ret)
{
        uint32_t high, low = 0;
        int e = read_unit(r, &high);

        if (e < 0)
                return e;
        if (high < 0xd800 || high > 0xdfff) {
                *ret = high;
                return high ? 0 : scan_refuse(r, "NUL in a string");
        }
        if (high > 0xdbff || r->end - r->at < 6 || r->at[0] != '\\' || r->at[1] != 'u')
                return scan_refuse(r, "half a surrogate pair");
        r->at += 2;
        e = read_unit(r, &low);
        if (e < 0)
                return e;
        if (low < 0xdc00 || low > 0xdfff)
                return scan_refuse(r, "half a surrogate pair");
        *ret = 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
        return 0;
}

static int read_escape(struct reader *r, char **out)
{
        static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
        char c = r->at < r->end ? *r->at++ : '\0', utf8[4];
        const char *found = c ? strchr(from, c) : NULL;
        uint32_t point;

        if (found) {
                *(*out)++ = to[found - from];
                return 0;
        }
        if (c != 'u')
                return scan_refuse(r, "unknown escape");
        int e = read_point(r, &point);
        if (e < 0)
                return e;
        size_t n = utf8_bytes(point, utf8);
        memcpy(*out, utf8, n);
        *out += n;
        return 0;
}

int json_scan_decode(const char *raw, size_t len, char *out, size_t *ret_len, struct err *err)
{
        struct reader r = { raw, raw + len, err };
        char *to = out;
        int e;

        while (r.at < r.end) {
                if ((unsigned char)*r.at < 0x20 || *r.at == '"')
                        return scan_refuse(&r, "a character that has to be escaped");
                if (*r.at != '\\') {
                        *to++ = *r.at++;
                        continue;
                }
                r.at++;
                e = read_escape(&r, &to);
                if (e < 0)
                        return e;
        }
        if (!utf8_is_valid(out, (size_t)(to - out)))
                return scan_refuse(&r, "not UTF-8");
        *ret_len = (size_t)(to - out);
        return 0;
}

size_t json_scan_escaped_len(const char *text, size_t len)
{
        size_t n = 0;

        for (size_t i = 0; i < len; i++) {
                unsigned char c = (unsigned char)text[i];

                n += c == '"' || c == '\\' ? 2 : c < 0x20 ? 6 : 1;
        }
        return n;
}

size_t json_scan_escape(const char *text, size_t len, char *out)
{
        static const char digits[] = "0123456789abcdef";
        char *to = out;

        for (size_t i = 0; i < len; i++) {
                unsigned char c = (unsigned char)text[i];

                if (c < 0x20) {
                        *to++ = '\\';
                        *to++ = 'u';
                        *to++ = '0';
                        *to++ = '0';
                        *to++ = digits[c >> 4];
                        *to++ = digits[c & 15];
                        continue;
                }
                if (c == '"' || c == '\\')
                        *to++ = '\\';
                *to++ = (char)c;
        }
        return (size_t)(to - out);
}
