/* Reading: the depth is counted before jansson sees the text, because jansson's own bound is deeper
 * than every recursive walk of ours should have to be. Then numbers are settled the way JavaScript
 * holds them, so that a document which is read, written and read again is the same document:
 *
 *     integral and within 2^53       an integer (1.0 and 1e2 too)
 *     everything else                a double (integers past 2^53 are rounded to one)
 *
 * jansson refuses integers past 2^63, JavaScript does not and prints some doubles in that form;
 * a text that fails for this reason is read a second time with all integers as doubles.
 *
 * Writing: one routine escapes all strings. It copies runs of bytes that need nothing, which in
 * practice is nearly all of them. */
#include "codec/json.h"

#include <malloc.h>
#include <math.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "codec/jsnum.h"

/* ---- memory ---- */

static void *json_take_memory(size_t size)
{
        void *p = malloc(size);

        if (!p && size)
                memory_exhausted();
        return p;
}

/* Documents of requests may hold a secret, and jansson copies texts as it reads. */
static void json_wipe_and_free(void *p)
{
        if (p)
                explicit_bzero(p, malloc_usable_size(p));
        free(p);
}

/* In every program before main(): a value that jansson could not make would be left out of the
 * document that it belongs to, an issue of a check for example, and nothing would say so. */
__attribute__((constructor)) static void json_set_memory(void)
{
        json_set_alloc_funcs(json_take_memory, json_wipe_and_free);
}

/* ---- reading ---- */

/* The offset of the bracket that goes too deep, or len when none does. Brackets inside strings do
 * not count; whether the text is JSON at all is not our concern here. */
static size_t find_too_deep(const char *text, size_t len)
{
        size_t depth = 0;
        bool quoted = false;

        for (size_t i = 0; i < len; i++) {
                char c = text[i];

                if (quoted) {
                        if (c == '\\')
                                i++;
                        else if (c == '"')
                                quoted = false;
                } else if (c == '"') {
                        quoted = true;
                } else if (c == '[' || c == '{') {
                        if (++depth > JSON_MAX_DEPTH)
                                return i;
                } else if ((c == ']' || c == '}') && depth > 0) {
                        depth--;
                }
        }
        return len;
}

/* "Malformed JSON: <what> (line n, column n)" */
static int refuse_at(const char *text, size_t at, const char *what, struct err *err)
{
        size_t line = 1, column = 1;

        for (size_t i = 0; i < at; i++) {
                if (text[i] == '\n') {
                        line++;
                        column = 1;
                } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
                        column++;
                }
        }
        return err_set(err, ERR_INVALID, "Malformed JSON: %s (line %zu, column %zu)", what, line,
                       column);
}

static void cut_at(char *text, const char *where)
{
        char *rest = strstr(text, where);

        if (rest)
                *rest = '\0';
}

static const char *reason_of(json_error_t *e)
{
        switch (json_error_code(e)) {
        case json_error_premature_end_of_input:
                return "the text ends too early";
        case json_error_end_of_input_expected:
                return "something follows the end of the document";
        case json_error_invalid_utf8:
                return "not valid UTF-8";
        case json_error_duplicate_key:
                return "a key occurs twice in an object";
        case json_error_null_character:
        case json_error_null_byte_in_key:
                return "strings must not contain the character U+0000";
        case json_error_numeric_overflow:
                return "a number is out of range";
        default:
                /* The rest of jansson's text repeats the input, which may hold a secret. */
                cut_at(e->text, " near ");
                if (str_starts(e->text, "invalid Unicode"))
                        cut_at(e->text, " '");
                return e->text;
        }
}

static int refuse_text(json_error_t *e, size_t len, struct err *err)
{
        if (json_error_code(e) == json_error_out_of_memory)
                return err_set(err, ERR_INTERNAL, "out of memory while reading JSON");
        if (len == 0)
                return err_set(err, ERR_INVALID, "Malformed JSON: the text is empty");
        return err_set(err, ERR_INVALID, "Malformed JSON: %s (line %d, column %d)", reason_of(e),
                       MAX(e->line, 1), MAX(e->column, 1));
}

/* v in the form that the rule above gives it: a new value, or NULL when it is right already. */
static json_t *settled_number(const json_t *v)
{
        const json_int_t limit = INT64_C(1) << 53;
        bool is_int = json_is_integer(v);

        if (!json_is_number(v))
                return NULL;
        if (is_int && json_integer_value(v) >= -limit && json_integer_value(v) <= limit)
                return NULL;
        double d = json_number_value(v);
        if (d >= (double)-limit && d <= (double)limit && jsnum_is_integer(d))
                return json_integer((json_int_t)d);
        return is_int ? json_real(d) : NULL;
}

static void settle_children(json_t *v)
{
        json_t *child, *number;
        size_t i;

        if (json_is_array(v)) {
                json_array_foreach(v, i, child)
                {
                        number = settled_number(child);
                        if (number)
                                json_array_set_new(v, i, number);
                        else
                                settle_children(child);
                }
        } else if (json_is_object(v)) {
                for (void *it = json_object_iter(v); it; it = json_object_iter_next(v, it)) {
                        child = json_object_iter_value(it);
                        number = settled_number(child);
                        if (number)
                                json_object_iter_set_new(v, it, number);
                        else
                                settle_children(child);
                }
        }
}

static int parse_text(const char *text, size_t len, size_t flags, json_t **ret, struct err *err)
{
        json_error_t e;
        size_t deep = find_too_deep(text, len);
        const char *nul = memchr(text, '\0', len);
        char what[64];

        if (deep < len) {
                snprintf(what, sizeof(what), "nested deeper than %d levels", JSON_MAX_DEPTH);
                return refuse_at(text, deep, what, err);
        }
        if (nul) /* jansson takes one between tokens for the end */
                return refuse_at(text, (size_t)(nul - text), "a NUL byte", err);
        json_t *v = json_loadb(text, len, flags, &e);
        if (!v && json_error_code(&e) == json_error_numeric_overflow)
                v = json_loadb(text, len, flags | JSON_DECODE_INT_AS_REAL, &e);
        if (!v)
                return refuse_text(&e, len, err);
        json_t *number = settled_number(v);
        if (number) {
                json_decref(v);
                v = number;
        } else {
                settle_children(v);
        }
        *ret = v;
        return 0;
}

int json_parse(const char *text, size_t len, json_t **ret, struct err *err)
{
        return parse_text(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, ret, err);
}

/* ---- reading what others wrote badly ---- */

/* The unit of an escape \uXXXX at s, or -1. */
static int escaped_unit(const char *s, size_t n)
{
        int unit = 0;

        if (n < 6 || s[0] != '\\' || s[1] != 'u')
                return -1;
        for (size_t i = 2; i < 6; i++) {
                int digit = hex_digit(s[i]);

                if (digit < 0)
                        return -1;
                unit = unit * 16 + digit;
        }
        return unit;
}

/* How many bytes of the escape at s are fine as they are; 0 for half a surrogate pair. */
static size_t escape_length(const char *s, size_t n)
{
        int unit = escaped_unit(s, n), next;

        if (unit < 0)
                return MIN(n, (size_t)2);
        if (unit < 0xd800 || unit > 0xdfff)
                return 6;
        next = unit < 0xdc00 ? escaped_unit(s + 6, n - 6) : -1;
        return next >= 0xdc00 && next <= 0xdfff ? 12 : 0;
}

static void repair_text(struct buf *b, const char *s, size_t n)
{
        size_t i = 0, done = 0;

        while (i < n) {
                size_t len = 1;
                bool escape = s[i] == '\\';
                bool fine;

                if (escape)
                        fine = (len = escape_length(s + i, n - i)) > 0;
                else
                        fine = (unsigned char)s[i] < 0x80 || utf8_next(s + i, n - i, &len, NULL);
                if (!fine) {
                        buf_append(b, s + done, i - done);
                        buf_puts(b, UTF8_REPLACEMENT);
                        len = escape ? 6 : MAX(len, (size_t)1);
                        done = i + len;
                }
                i += len;
        }
        buf_append(b, s + done, n - done);
}

int json_parse_lenient(const char *text, size_t len, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf whole = { .max = 3 * len + 1 };

        repair_text(&whole, text, len);
        if (buf_failed(&whole))
                return err_set(err, ERR_INTERNAL, "out of memory while reading JSON");
        return parse_text(buf_str(&whole), whole.len,
                          JSON_REJECT_DUPLICATES | JSON_DECODE_ANY | JSON_ALLOW_NUL, ret, err);
}

const char *json_to_arena(struct arena *arena, const json_t *v)
{
        CLEAN(cleanup_free) char *text = json_to_text(v);

        return arena_strdup(arena, text);
}

static void json_release(void *v)
{
        json_decref(v);
}

json_t *json_keep(struct arena *arena, json_t *take_value)
{
        arena_defer(arena, json_release, take_value);
        return take_value;
}

json_t *json_from_text(struct arena *arena, const char *text)
{
        json_t *v = NULL;

        return text && json_parse(text, strlen(text), &v, NULL) >= 0 ? json_keep(arena, v) : NULL;
}

json_t *json_string_or_null(const char *s)
{
        return s ? json_string(s) : json_null();
}

const char *json_get_string(const json_t *object, const char *key)
{
        return json_string_value(json_object_get(object, key));
}

json_t *json_get_object(const json_t *object, const char *key)
{
        json_t *v = json_object_get(object, key);

        return json_is_object(v) ? v : NULL;
}

/* ---- writing ---- */

/* U+2028 and U+2029 end a line in older JavaScript; escaped, the text is safe inside a script too.
 */
static bool is_line_separator(const char *s, size_t n)
{
        return n >= 3 && memcmp(s, "\xe2\x80", 2) == 0 && (s[2] == '\xa8' || s[2] == '\xa9');
}

static void put_escape(struct buf *b, unsigned char c)
{
        static const char hex[] = "0123456789abcdef";
        char text[6] = { '\\', 'u', '0', '0', hex[c >> 4], hex[c & 15] };
        /* strchr() would find NUL at the end of the list. */
        const char *letter = c ? strchr("\"\"\\\\\bb\tt\nn\ff\rr", c) : NULL;

        if (letter) {
                text[1] = letter[1];
                buf_append(b, text, 2);
        } else {
                buf_append(b, text, 6);
        }
}

static void put_string(struct buf *b, const char *s, size_t n)
{
        size_t i = 0, done = 0, len;

        buf_putc(b, '"');
        while (i < n) {
                unsigned char c = (unsigned char)s[i];

                if (c >= 0x20 && c < 0x80 && c != '"' && c != '\\') {
                        i++;
                        continue;
                }
                if (c >= 0x80 && utf8_next(s + i, n - i, &len, NULL) &&
                    !is_line_separator(s + i, len)) {
                        i += len;
                        continue;
                }
                buf_append(b, s + done, i - done);
                if (c < 0x80) {
                        put_escape(b, c);
                        len = 1;
                } else if (is_line_separator(s + i, n - i)) {
                        buf_puts(b, s[i + 2] == '\xa8' ? "\\u2028" : "\\u2029");
                } else {
                        buf_puts(b, UTF8_REPLACEMENT);
                }
                i += len;
                done = i;
        }
        buf_append(b, s + done, i - done);
        buf_putc(b, '"');
}

static void put_int(struct buf *b, int64_t v)
{
        char text[JSNUM_TEXT_MAX];
        size_t n = jsnum_format_int(v, text);

        buf_append(b, text, n);
}

static void put_real(struct buf *b, double v)
{
        char text[JSNUM_TEXT_MAX];
        size_t n = jsnum_format(v, text);

        if (isfinite(v))
                buf_append(b, text, n);
        else
                buf_puts(b, "null");
}

static void put_array(struct buf *b, const json_t *v)
{
        size_t n = json_array_size(v);

        buf_putc(b, '[');
        for (size_t i = 0; i < n; i++) {
                if (i > 0)
                        buf_putc(b, ',');
                json_put(b, json_array_get(v, i));
        }
        buf_putc(b, ']');
}

static void put_object(struct buf *b, const json_t *v)
{
        /* jansson's iterator wants a mutable object although it changes nothing. */
        json_t *object = (json_t *)v;
        bool comma = false;

        buf_putc(b, '{');
        for (void *it = json_object_iter(object); it; it = json_object_iter_next(object, it)) {
                if (comma)
                        buf_putc(b, ',');
                comma = true;
                put_string(b, json_object_iter_key(it), json_object_iter_key_len(it));
                buf_putc(b, ':');
                json_put(b, json_object_iter_value(it));
        }
        buf_putc(b, '}');
}

void json_put(struct buf *b, const json_t *v)
{
        switch (v ? json_typeof(v) : JSON_NULL) {
        case JSON_OBJECT:
                put_object(b, v);
                break;
        case JSON_ARRAY:
                put_array(b, v);
                break;
        case JSON_STRING:
                put_string(b, json_string_value(v), json_string_length(v));
                break;
        case JSON_INTEGER:
                put_int(b, json_integer_value(v));
                break;
        case JSON_REAL:
                put_real(b, json_real_value(v));
                break;
        case JSON_TRUE:
                buf_puts(b, "true");
                break;
        case JSON_FALSE:
                buf_puts(b, "false");
                break;
        case JSON_NULL:
                buf_puts(b, "null");
                break;
        }
}

char *json_to_text(const json_t *v)
{
        struct buf b = { .max = SIZE_MAX / 2 };

        json_put(&b, v);
        if (buf_failed(&b))
                memory_exhausted();
        return buf_take(&b);
}

/* ---- the writer ---- */

void jw_init(struct jw *w, struct buf *b)
{
        *w = (struct jw){ .b = b };
}

/* Before each value and key: a comma, if something stands before it on this level. */
static struct buf *writer_next(struct jw *w)
{
        if (w->comma)
                buf_putc(w->b, ',');
        w->comma = true;
        return w->b;
}

static void open_level(struct jw *w, char bracket)
{
        buf_putc(writer_next(w), bracket);
        w->comma = false;
}

static void close_level(struct jw *w, char bracket)
{
        buf_putc(w->b, bracket);
        w->comma = true;
}

void jw_object(struct jw *w)
{
        open_level(w, '{');
}

void jw_object_end(struct jw *w)
{
        close_level(w, '}');
}

void jw_array(struct jw *w)
{
        open_level(w, '[');
}

void jw_array_end(struct jw *w)
{
        close_level(w, ']');
}

void jw_key(struct jw *w, const char *key)
{
        put_string(writer_next(w), key, strlen(key));
        buf_putc(w->b, ':');
        w->comma = false;
}

void jw_string_n(struct jw *w, const char *s, size_t n)
{
        put_string(writer_next(w), s, n);
}

void jw_string(struct jw *w, const char *s)
{
        if (s)
                jw_string_n(w, s, strlen(s));
        else
                jw_null(w);
}

void jw_int(struct jw *w, int64_t v)
{
        put_int(writer_next(w), v);
}

void jw_bool(struct jw *w, bool v)
{
        buf_puts(writer_next(w), v ? "true" : "false");
}

void jw_null(struct jw *w)
{
        buf_puts(writer_next(w), "null");
}

void jw_time(struct jw *w, int64_t us)
{
        char text[ISO_TIME_LEN + 1];

        if (us == 0) {
                jw_null(w);
                return;
        }
        clock_iso(us, text);
        put_string(writer_next(w), text, ISO_TIME_LEN);
}

void jw_raw(struct jw *w, const char *json)
{
        buf_puts(writer_next(w), json ? json : "null");
}

void jw_value(struct jw *w, const json_t *v)
{
        json_put(writer_next(w), v);
}

void jw_kstring(struct jw *w, const char *key, const char *s)
{
        jw_key(w, key);
        jw_string(w, s);
}

void jw_kint(struct jw *w, const char *key, int64_t v)
{
        jw_key(w, key);
        jw_int(w, v);
}

void jw_kbool(struct jw *w, const char *key, bool v)
{
        jw_key(w, key);
        jw_bool(w, v);
}

void jw_knull(struct jw *w, const char *key)
{
        jw_key(w, key);
        jw_null(w);
}

void jw_ktime(struct jw *w, const char *key, int64_t us)
{
        jw_key(w, key);
        jw_time(w, us);
}

void jw_kraw(struct jw *w, const char *key, const char *json)
{
        jw_key(w, key);
        jw_raw(w, json);
}

void jw_kvalue(struct jw *w, const char *key, const json_t *v)
{
        jw_key(w, key);
        jw_value(w, v);
}
