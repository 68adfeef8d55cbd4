/* A line at a time: a table header or `key = value`, and a comment or nothing after it. Only arrays
 * go on over line ends. The reader looks at one character, never goes back, and does not recurse,
 * so its cost is the length of the text.
 *
 * Two objects carry TOML's rules about names. `values` has every flat key that is set, `tables`
 * every name that is a table and how it became one; a name never is in both. */
#include "codec/toml.h"

#include "base/buf.h"
#include "base/utf8.h"

enum table_origin {
        TABLE_IMPLIED, /* the front of a [longer.name]; a header of its own may follow */
        TABLE_OPENED,  /* by its [header], which must not come twice */
        TABLE_DOTTED,  /* by a dotted.key = value, which no header may open again */
};

struct reader {
        const char *file, *at, *end;
        int line;
        struct buf table; /* "table." or nothing */
        json_t *values, *tables;
        struct err *err;
};

static int refuse(struct reader *r, const char *text)
{
        (void)err_set(r->err, ERR_INVALID, "%s line %d: %s", r->file, r->line, text);
        return ERR_INVALID;
}

/* The next character, or '\0' at the end; the text holds no NUL. */
static char peek(const struct reader *r)
{
        return r->at < r->end ? *r->at : '\0';
}

static bool looks_at(const struct reader *r, const char *text)
{
        size_t n = strlen(text);

        return (size_t)(r->end - r->at) >= n && memcmp(r->at, text, n) == 0;
}

static void skip_blanks(struct reader *r)
{
        while (peek(r) == ' ' || peek(r) == '\t')
                r->at++;
}

static void skip_comment(struct reader *r)
{
        if (peek(r) == '#')
                while (r->at < r->end && *r->at != '\n')
                        r->at++;
}

/* Step over a line end; false when there is none here. */
static bool skip_newline(struct reader *r)
{
        if (looks_at(r, "\r\n"))
                r->at++;
        if (peek(r) != '\n')
                return false;
        r->at++;
        r->line++;
        return true;
}

/* ---- text as a whole ---- */

/* Bytes that TOML allows nowhere are refused first, so that nothing below has to think of them. */
static int check_bytes(struct reader *r)
{
        const char *start = r->at;
        size_t len;
        uint32_t c;
        int e = 0;

        if (looks_at(r, "\xef\xbb\xbf"))
                start += 3;
        for (r->at = start; e == 0 && r->at < r->end; r->at += len) {
                if (!utf8_next(r->at, (size_t)(r->end - r->at), &len, &c))
                        e = refuse(r, "not valid UTF-8; save the file as UTF-8");
                else if (c == '\n')
                        r->line++;
                else if (c == '\r' && !looks_at(r, "\r\n"))
                        e = refuse(r, "a carriage return without a line feed; use \\n line ends");
                else if ((c < 0x20 && c != '\t' && c != '\r') || c == 0x7f)
                        e = refuse(r, "a control character; write it as \\uXXXX in \"...\"");
        }
        r->at = start;
        if (e == 0)
                r->line = 1;
        return e;
}

/* ---- strings ---- */

static int read_hex(struct reader *r, size_t digits, uint32_t *ret)
{
        uint32_t v = 0;

        for (size_t i = 0; i < digits; i++) {
                char c = peek(r);

                if (c >= '0' && c <= '9')
                        v = v << 4 | (uint32_t)(c - '0');
                else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'f')
                        v = v << 4 | (uint32_t)((c | 0x20) - 'a' + 10);
                else
                        return refuse(r, "\\u wants 4 hexadecimal digits and \\U wants 8");
                r->at++;
        }
        *ret = v;
        return 0;
}

/* What follows a backslash in a basic string. */
static int read_escape(struct reader *r, struct buf *out)
{
        static const char from[] = "btnfr\"\\", to[] = "\b\t\n\f\r\"\\";
        char c = peek(r), utf8[4];
        const char *found = c ? strchr(from, c) : NULL;
        uint32_t point;

        if (found) {
                r->at++;
                buf_putc(out, to[found - from]);
                return 0;
        }
        if (c != 'u' && c != 'U')
                return refuse(r, "unknown escape; \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX are known, "
                                 "'...' takes everything as it is");
        r->at++;
        int e = read_hex(r, c == 'u' ? 4 : 8, &point);
        if (e < 0)
                return e;
        if (point == 0 || (point >= 0xd800 && point <= 0xdfff) || point > 0x10ffff)
                return refuse(r, "\\u wants a Unicode character other than U+0000");
        buf_append(out, utf8, utf8_bytes(point, utf8));
        return 0;
}

/* "..." or '...' on one line. */
static int read_string(struct reader *r, struct buf *out)
{
        char quote = *r->at;
        int e;

        if (looks_at(r, quote == '"' ? "\"\"\"" : "'''"))
                return refuse(r, "multi-line strings are not supported; write \"...\\n...\"");
        r->at++;
        for (;;) {
                char c = peek(r);

                if (c == '\0' || c == '\n' || c == '\r')
                        return refuse(r, quote == '"' ? "the string has no closing \""
                                                      : "the string has no closing '");
                r->at++;
                if (c == quote)
                        return 0;
                if (c != '\\' || quote == '\'') {
                        buf_putc(out, c);
                        continue;
                }
                e = read_escape(r, out);
                if (e < 0)
                        return e;
        }
}

/* ---- keys ---- */

static bool is_bare(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '_' || c == '-';
}

static int read_key_part(struct reader *r, struct buf *key)
{
        size_t before = key->len;
        int e;

        if (peek(r) == '"' || peek(r) == '\'') {
                e = read_string(r, key);
                if (e < 0)
                        return e;
                if (key->len > before && memchr(key->data + before, '.', key->len - before))
                        return refuse(r, "a quoted key with a dot in it is not supported; no "
                                         "setting has one");
        } else {
                while (is_bare(peek(r)))
                        buf_putc(key, *r->at++);
        }
        if (key->len == before && !buf_failed(key))
                return refuse(r, "a key is missing here; write key = value");
        return 0;
}

/* a.b."c": appended to *key with dots between. */
static int read_key(struct reader *r, struct buf *key)
{
        int e;

        for (;;) {
                e = read_key_part(r, key);
                if (e < 0)
                        return e;
                skip_blanks(r);
                if (peek(r) != '.')
                        break;
                r->at++;
                skip_blanks(r);
                buf_putc(key, '.');
        }
        return buf_failed(key) ? refuse(r, "the key is too long") : 0;
}

/* How the name became a table, or -1. */
static int origin_of(struct reader *r, const char *name)
{
        json_t *origin = json_object_get(r->tables, name);

        return origin ? (int)json_integer_value(origin) : -1;
}

/* Note one front of a name as a table; it must not be a value. Where a key says so in the middle of
 * another table, it must not be one that a header made either. */
static int note_table(struct reader *r, const char *name, enum table_origin origin)
{
        int known = origin_of(r, name);

        if (json_object_get(r->values, name))
                return refuse(r, "the front of this name is a value already, it cannot be a table "
                                 "too");
        if (known < 0)
                json_object_set_new(r->tables, name, json_integer(origin));
        else if (origin == TABLE_DOTTED && known != TABLE_DOTTED)
                return refuse(r, "the front of this key has a [table] of its own; put it there");
        return 0;
}

/* The same for all fronts of a name; those within the first `skip` bytes are known. */
static int note_fronts(struct reader *r, const struct buf *name, size_t skip,
                       enum table_origin origin)
{
        for (size_t i = skip; i < name->len; i++) {
                char *front;
                int e;

                if (name->data[i] != '.')
                        continue;
                front = xstrndup(name->data, i);
                e = note_table(r, front, origin);
                free(front);
                if (e < 0)
                        return e;
        }
        return 0;
}

/* [a.b] */
static int read_header(struct reader *r)
{
        r->at++;
        if (peek(r) == '[')
                return refuse(r, "[[arrays of tables]] are not supported; write [table]");
        skip_blanks(r);
        buf_clear(&r->table);
        int e = read_key(r, &r->table);
        if (e < 0)
                return e;
        if (peek(r) != ']')
                return refuse(r, "the table's name has no closing ]");
        r->at++;
        e = note_fronts(r, &r->table, 0, TABLE_IMPLIED);
        if (e < 0)
                return e;
        if (json_object_get(r->values, buf_str(&r->table)))
                return refuse(r, "this name is a value already, it cannot be a table too");
        if (origin_of(r, buf_str(&r->table)) > TABLE_IMPLIED)
                return refuse(r, "this table was begun before; put its keys together");
        json_object_set_new(r->tables, buf_str(&r->table), json_integer(TABLE_OPENED));
        buf_putc(&r->table, '.');
        if (buf_failed(&r->table))
                return refuse(r, "the table's name is too long");
        return 0;
}

/* ---- values ---- */

static int digit_value(char c, int radix)
{
        int d = c >= '0' && c <= '9'                     ? c - '0'
                : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                         : 99;

        return d < radix ? d : -1;
}

/* Digits with single underscores between them. The sum is negative throughout, because the most
 * negative integer has no positive counterpart. */
static int read_digits(struct reader *r, int radix, bool negative, int64_t *ret)
{
        int64_t v = 0;
        bool digit = false;

        for (;; r->at++) {
                char c = peek(r);

                if (c == '_' && digit) {
                        digit = false;
                        continue;
                }
                if (digit_value(c, radix) < 0)
                        break;
                digit = true;
                if (__builtin_mul_overflow(v, radix, &v) ||
                    __builtin_sub_overflow(v, digit_value(c, radix), &v))
                        return refuse(r, "the number does not fit in 64 bits");
        }
        if (!digit)
                return refuse(r, "a digit is missing in this number");
        if (!negative && v == INT64_MIN)
                return refuse(r, "the number does not fit in 64 bits");
        *ret = negative ? v : -v;
        return 0;
}

static int read_integer(struct reader *r, json_t **ret)
{
        static const struct {
                const char *prefix;
                int radix;
        } prefixes[] = { { "0x", 16 }, { "0o", 8 }, { "0b", 2 } };
        bool sign = peek(r) == '+' || peek(r) == '-', negative = peek(r) == '-';
        int radix = 10, e;
        int64_t v;

        if (sign)
                r->at++;
        if (looks_at(r, "inf") || looks_at(r, "nan"))
                return refuse(r, "only whole numbers are supported");
        for (size_t i = 0; !sign && i < ARRAY_LEN(prefixes); i++) {
                if (looks_at(r, prefixes[i].prefix)) {
                        radix = prefixes[i].radix;
                        r->at += 2;
                        break;
                }
        }
        if (radix == 10 && peek(r) == '0' && r->at + 1 < r->end &&
            (digit_value(r->at[1], 10) >= 0 || r->at[1] == '_'))
                return refuse(r, "a number must not start with 0; dates want quotes around them");
        e = read_digits(r, radix, negative, &v);
        if (e < 0)
                return e;
        if (peek(r) == '.' || peek(r) == 'e' || peek(r) == 'E')
                return refuse(r, "only whole numbers are supported");
        if (peek(r) == '-' || peek(r) == ':')
                return refuse(r, "dates and times are not supported; put quotes around it");
        *ret = json_integer(v);
        return 0;
}

static int read_scalar(struct reader *r, json_t **ret)
{
        char c = peek(r);

        if (c == '"' || c == '\'') {
                CLEAN(buf_done) struct buf s = BUF_INIT;
                int e = read_string(r, &s);

                if (e < 0)
                        return e;
                *ret = json_stringn(buf_str(&s), s.len);
                return 0;
        }
        if (looks_at(r, "true") || looks_at(r, "false")) {
                r->at += c == 't' ? 4 : 5;
                *ret = json_boolean(c == 't');
                return 0;
        }
        if ((c >= '0' && c <= '9') || c == '+' || c == '-')
                return read_integer(r, ret);
        if (c == '{')
                return refuse(r, "inline tables are not supported; write key.name = value");
        if (c == '[')
                return refuse(r, "an array in an array is not supported; write one flat array");
        if (looks_at(r, "inf") || looks_at(r, "nan"))
                return refuse(r, "only whole numbers are supported");
        return refuse(r, "a value is expected: \"text\", a number, true, false or [ ... ]; text "
                         "wants quotes around it");
}

/* Blanks, comments and line ends inside an array. */
static void skip_space(struct reader *r)
{
        do {
                skip_blanks(r);
                skip_comment(r);
        } while (skip_newline(r));
}

static int read_array(struct reader *r, json_t **ret)
{
        json_t *array = json_array(), *item;
        int e = 0;

        r->at++;
        for (;;) {
                skip_space(r);
                if (peek(r) == ']')
                        break;
                e = read_scalar(r, &item);
                if (e < 0)
                        break;
                json_array_append_new(array, item);
                skip_space(r);
                if (peek(r) == ',') {
                        r->at++;
                } else if (peek(r) != ']') {
                        e = refuse(r, "a , or the closing ] of the array is missing");
                        break;
                }
        }
        if (e < 0) {
                json_decref(array);
                return e;
        }
        r->at++;
        *ret = array;
        return 0;
}

static int read_pair(struct reader *r)
{
        CLEAN(buf_done) struct buf key = { .max = TOML_MAX_KEY };
        json_t *value;

        buf_append(&key, buf_str(&r->table), r->table.len);
        int e = read_key(r, &key);
        if (e < 0)
                return e;
        if (peek(r) != '=')
                return refuse(r, "an = is missing; write key = value");
        r->at++;
        skip_blanks(r);
        e = note_fronts(r, &key, r->table.len, TABLE_DOTTED);
        if (e < 0)
                return e;
        if (json_object_get(r->values, buf_str(&key)))
                return refuse(r, "this key is set already; remove one of the two");
        if (origin_of(r, buf_str(&key)) >= 0)
                return refuse(r, "this name is a table already, it cannot be a value too");
        e = peek(r) == '[' ? read_array(r, &value) : read_scalar(r, &value);
        if (e < 0)
                return e;
        json_object_set_new(r->values, buf_str(&key), value);
        return 0;
}

static int read_lines(struct reader *r)
{
        int e;

        while (r->at < r->end) {
                e = 0;
                skip_blanks(r);
                if (peek(r) == '[')
                        e = read_header(r);
                else if (r->at < r->end && !strchr("#\r\n", *r->at))
                        e = read_pair(r);
                if (e < 0)
                        return e;
                skip_blanks(r);
                skip_comment(r);
                if (r->at < r->end && !skip_newline(r))
                        return refuse(r, "something follows the value; one setting a line");
        }
        return 0;
}

int toml_parse(const char *file, const char *text, size_t len, json_t **ret, struct err *err)
{
        struct reader r = { .file = file, .at = text, .end = text + len, .line = 1, .err = err };

        if (len > TOML_MAX_BYTES)
                return err_set(err, ERR_TOO_LARGE, "%s is larger than %zu bytes", file,
                               TOML_MAX_BYTES);
        buf_init(&r.table, TOML_MAX_KEY);
        r.values = json_object();
        r.tables = json_object();
        int e = check_bytes(&r);
        if (e == 0)
                e = read_lines(&r);
        if (e == 0)
                *ret = json_incref(r.values);
        json_decref(r.values);
        json_decref(r.tables);
        buf_done(&r.table);
        return e;
}
