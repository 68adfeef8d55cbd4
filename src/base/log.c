/* Which log lines are written, and their form. */
#include "base/log.h"

#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/utf8.h"

/* The last bytes of a line are kept for what must not be lost: how many lines were suppressed, the
 * closing brace and the line's end. A field that does not fit into the rest is left out. */
#define TAIL_MAX_BYTES 64
#define BODY_MAX_BYTES (LOG_LINE_MAX - TAIL_MAX_BYTES)

static _Atomic int current_level = LOG_LEVEL_INFO;
static _Atomic int current_format = LOG_FORMAT_TEXT;

static const char *const level_names[] = { "debug", "info", "warn", "error" };

void log_init(enum log_level level, enum log_format format)
{
        atomic_store(&current_level, (int)level);
        atomic_store(&current_format, (int)format);
}

/* What some reader of logs takes for the end of a line or acts upon: the two blocks of control
 * characters, and Unicode's own line and paragraph ends. */
static bool is_control(uint32_t c)
{
        return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x2028 || c == 0x2029;
}

static void put_quoted(struct buf *b, const char *s)
{
        size_t left = strlen(s), start = b->len, len;
        uint32_t c;

        buf_putc(b, '"');
        for (; left > 0 && b->len - start < LOG_VALUE_MAX; s += len, left -= len) {
                if (!utf8_next(s, left, &len, &c))
                        buf_puts(b, UTF8_REPLACEMENT);
                else if (c == '"' || c == '\\')
                        buf_appendf(b, "\\%c", (char)c);
                else if (c == '\n')
                        buf_puts(b, "\\n");
                else if (is_control(c))
                        buf_appendf(b, "\\u%04x", (unsigned)c);
                else
                        buf_append(b, s, len);
        }
        buf_puts(b, left > 0 ? "\xe2\x80\xa6\"" : "\"");
}

static bool is_plain(const char *s)
{
        size_t n = 0;

        for (; s[n]; n++)
                if (s[n] <= 0x20 || s[n] >= 0x7f || s[n] == '"' || s[n] == '=' || s[n] == '\\')
                        return false;
        return n > 0 && n < LOG_VALUE_MAX;
}

static void put_field(struct buf *b, bool json, const struct log_field *f)
{
        size_t before = b->len;

        if (json) {
                buf_putc(b, ',');
                put_quoted(b, f->key);
                buf_putc(b, ':');
        } else {
                buf_appendf(b, " %s=", f->key);
        }
        if (!f->text)
                buf_appendf(b, "%lld", (long long)f->number);
        else if (!json && is_plain(f->text))
                buf_puts(b, f->text);
        else
                put_quoted(b, f->text);
        if (buf_failed(b)) {
                b->failed = false;
                b->len = before;
                b->data[before] = '\0';
        }
}

/* Whether this line may pass; *ret_suppressed is how many were dropped before it. */
static bool site_allows(struct log_site *site, int *ret_suppressed)
{
        int64_t now = clock_mono_ms(), start = atomic_load(&site->window_start_ms);

        *ret_suppressed = 0;
        if (now - start >= LOG_WINDOW_MS &&
            atomic_compare_exchange_strong(&site->window_start_ms, &start, now)) {
                atomic_store(&site->count, 0);
                *ret_suppressed = atomic_exchange(&site->suppressed, 0);
        }
        if (atomic_fetch_add(&site->count, 1) < LOG_BURST)
                return true;
        atomic_fetch_add(&site->suppressed, 1);
        return false;
}

void log_write(struct log_site *site, enum log_level level, const char *msg,
               const struct log_field *fields, size_t n_fields)
{
        CLEAN(buf_done) struct buf b = { .max = BODY_MAX_BYTES };
        bool json = atomic_load(&current_format) == LOG_FORMAT_JSON;
        char ts[ISO_TIME_LEN + 1];
        int suppressed;

        if ((int)level < atomic_load(&current_level) || !site_allows(site, &suppressed))
                return;
        if (!buf_reserve(&b, 256)) /* no memory: the line is lost, as for a full pipe */
                return;
        clock_iso(clock_wall_us(), ts);
        if (json)
                buf_appendf(&b, "{\"ts\":\"%s\",\"level\":\"%s\",\"msg\":", ts, level_names[level]);
        else
                buf_appendf(&b, "ts=%s level=%s msg=", ts, level_names[level]);
        if (!json && is_plain(msg))
                buf_puts(&b, msg);
        else
                put_quoted(&b, msg);
        for (size_t i = 0; i < n_fields; i++)
                put_field(&b, json, &fields[i]);
        b.max = LOG_LINE_MAX;
        if (suppressed > 0)
                put_field(&b, json, &LOG_I("suppressed", suppressed));
        if (json)
                buf_putc(&b, '}');
        buf_putc(&b, '\n');
        /* One write per line keeps lines of several threads apart. A full pipe loses the line:
         * logging must never stop the work. */
        (void)!write(STDERR_FILENO, buf_str(&b), b.len);
}
