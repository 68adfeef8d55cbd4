/* Knuth, Morris and Pratt for each value, side by side. While no value is partly matched, bytes
 * that begin none pass in runs. */
#define _GNU_SOURCE
#include "codec/redact.h"

struct value {
        unsigned char *text;
        uint32_t len;
        uint32_t *fail; /* fail[i]: longest proper border of text[0..i] */
};

struct redactor {
        struct value *values;
        size_t n;
        bool begins[256]; /* the first bytes of values */
};

struct redact_range {
        uint64_t begin, end;
};

/* The values */

static void compute_borders(struct value *v)
{
        uint32_t k = 0;

        for (uint32_t i = 1; i < v->len; i++) {
                while (k > 0 && v->text[k] != v->text[i])
                        k = v->fail[k - 1];
                if (v->text[k] == v->text[i])
                        k++;
                v->fail[i] = k;
        }
}

static bool has_value(const struct redactor *r, const char *text, size_t len)
{
        for (size_t i = 0; i < r->n; i++)
                if (r->values[i].len == len && memcmp(r->values[i].text, text, len) == 0)
                        return true;
        return false;
}

static void add_value(struct redactor *r, const char *text, size_t len)
{
        if (len < REDACT_MIN || has_value(r, text, len))
                return;
        r->values = xrealloc(r->values, (r->n + 1) * sizeof(*r->values));
        struct value *v = &r->values[r->n++];
        *v = (struct value){ .text = xcalloc(1, len),
                             .len = (uint32_t)len,
                             .fail = xcalloc(len, sizeof(uint32_t)) };
        memcpy(v->text, text, len);
        compute_borders(v);
        r->begins[v->text[0]] = true;
}

/* The value without its last line ends, and its long lines. */
static void add_lines(struct redactor *r, const char *text)
{
        size_t len = strlen(text);

        while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r'))
                len--;
        add_value(r, text, len);
        for (const char *end = text + len; text < end;) {
                size_t n = strcspn(text, "\r\n");

                n = MIN(n, (size_t)(end - text));
                if (n >= REDACT_LINE_MIN)
                        add_value(r, text, n);
                text += n + 1;
        }
}

/* The long texts of a JSON value, in pieces between characters that are escaped, which others
 * escape once more. No names of members, and no addresses, which tell no secret and are said often.
 */
static void add_texts(struct redactor *r, const char *at)
{
        size_t n_max = r->n + REDACT_TEXTS_MAX;

        if (*at != '{' && *at != '[')
                return;
        while ((at = strchr(at, '"')) && r->n < n_max) {
                const char *begin = ++at, *after;

                while (*at && *at != '"')
                        at += *at == '\\' && at[1] ? 2 : 1;
                after = at + (*at == '"');
                at = after;
                if (after[strspn(after, " \t\r\n")] == ':')
                        continue;
                while (begin < after && r->n < n_max) {
                        size_t n = strcspn(begin, "\"\\\r\n");

                        if (n >= REDACT_TEXT_MIN && !memmem(begin, n, "://", 3))
                                add_value(r, begin, n);
                        begin += n + (begin[n] == '\\' && begin[n + 1] ? 2 : 1);
                }
        }
}

struct redactor *redactor_new(const char *const *values, size_t n, bool *ret_too_much)
{
        struct redactor *r = xcalloc(1, sizeof(*r));
        size_t total = 0;

        for (size_t i = 0; i < n; i++)
                total += strlen(values[i]);
        *ret_too_much = total > REDACT_BYTES_MAX;
        for (size_t i = 0; i < n && !*ret_too_much; i++) {
                add_lines(r, values[i]);
                add_texts(r, values[i] + strspn(values[i], " \t\r\n"));
        }
        if (r->n > 0)
                return r;
        free(r);
        return NULL;
}

void redactor_free(struct redactor *r)
{
        if (!r)
                return;
        for (size_t i = 0; i < r->n; i++) {
                explicit_bzero(r->values[i].text, r->values[i].len);
                free(r->values[i].text);
                free(r->values[i].fail);
        }
        free(r->values);
        free(r);
}

/* A stream */

void redact_begin(struct redact_stream *s, const struct redactor *r)
{
        *s = (struct redact_stream){ .redactor = r, .masked_end = UINT64_MAX };
        s->states = xcalloc(r->n, sizeof(*s->states));
}

void redact_done(struct redact_stream *s)
{
        buf_wipe(&s->held);
        buf_done(&s->ranges);
        free(s->states);
        *s = (struct redact_stream){ 0 };
}

static struct redact_range *range_at(struct redact_stream *s, size_t i)
{
        return (struct redact_range *)(void *)s->ranges.data + i;
}

static size_t range_count(const struct redact_stream *s)
{
        return s->ranges.len / sizeof(struct redact_range);
}

/* An occurrence ends where the stream stands now, so it ends last; it may swallow earlier ones. */
static void add_range(struct redact_stream *s, uint64_t begin, uint64_t end)
{
        size_t n = range_count(s);

        while (n > s->first_range && range_at(s, n - 1)->end >= begin) {
                begin = MIN(begin, range_at(s, n - 1)->begin);
                n--;
                s->ranges.len -= sizeof(struct redact_range);
        }
        buf_append(&s->ranges, &(struct redact_range){ begin, end }, sizeof(struct redact_range));
}

static void put_clear(struct redact_stream *s, uint64_t upto, struct buf *out)
{
        size_t n = (size_t)(upto - s->base) - s->at;

        buf_append(out, s->held.data + s->at, n);
        s->at += n;
}

static void put_masked(struct redact_stream *s, uint64_t upto, struct buf *out)
{
        if (s->masked_end != s->base + s->at)
                buf_puts(out, REDACTED);
        s->at = (size_t)(upto - s->base);
        s->masked_end = upto;
}

/* Keep the memory of what was let go small, without moving the rest for every byte. */
static void compact_held(struct redact_stream *s)
{
        if (s->at == s->held.len || s->at > s->held.len / 2 + 4096) {
                buf_consume(&s->held, s->at);
                s->base += s->at;
                s->at = 0;
        }
        if (s->first_range == range_count(s)) {
                buf_clear(&s->ranges);
                s->first_range = 0;
        }
}

/* No value that may still be completed begins before `upto`. */
static void let_go(struct redact_stream *s, uint64_t upto, struct buf *out)
{
        while (s->base + s->at < upto) {
                const struct redact_range *r =
                        s->first_range < range_count(s) ? range_at(s, s->first_range) : NULL;

                if (!r || r->begin >= upto) {
                        put_clear(s, upto, out);
                } else if (r->begin > s->base + s->at) {
                        put_clear(s, r->begin, out);
                } else {
                        put_masked(s, MIN(upto, r->end), out);
                        if (r->end <= upto)
                                s->first_range++;
                }
        }
        compact_held(s);
}

/* Returns how many of the last bytes may be the beginning of a value. */
static uint32_t redact_step(struct redact_stream *s, unsigned char c, uint64_t end)
{
        uint32_t longest = 0;

        for (size_t i = 0; i < s->redactor->n; i++) {
                const struct value *v = &s->redactor->values[i];
                uint32_t k = s->states[i];

                while (k > 0 && v->text[k] != c)
                        k = v->fail[k - 1];
                if (v->text[k] == c)
                        k++;
                if (k == v->len) {
                        add_range(s, end - v->len, end);
                        k = v->fail[k - 1];
                }
                s->states[i] = k;
                longest = MAX(longest, k);
        }
        return longest;
}

void redact_feed(struct redact_stream *s, const char *data, size_t len, struct buf *out)
{
        for (size_t i = 0; i < len;) {
                size_t run = i;
                uint32_t longest;

                while (!s->active && run < len && !s->redactor->begins[(unsigned char)data[run]])
                        run++;
                if (run > i) {
                        buf_append(out, data + i, run - i);
                        s->base += run - i; /* nothing is held */
                        i = run;
                        continue;
                }
                buf_putc(&s->held, data[i]);
                longest = redact_step(s, (unsigned char)data[i], s->base + s->held.len);
                s->active = longest > 0;
                let_go(s, s->base + s->held.len - longest, out);
                i++;
        }
}

void redact_end(struct redact_stream *s, struct buf *out)
{
        let_go(s, s->base + s->held.len, out);
        memset(s->states, 0, s->redactor->n * sizeof(*s->states));
        s->active = false;
}

void redact_text(const struct redactor *r, const char *data, size_t len, struct buf *out)
{
        struct redact_stream s;

        if (!r) {
                buf_append(out, data, len);
                return;
        }
        redact_begin(&s, r);
        redact_feed(&s, data, len, out);
        redact_end(&s, out);
        redact_done(&s);
}
