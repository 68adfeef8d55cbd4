/* Writes events of a text/event-stream, and reads them from pieces. */
#include "codec/sse.h"

/* ---- writing ---- */

static void put_field(struct buf *b, const char *name, const char *value)
{
        if (!value)
                return;
        buf_puts(b, name);
        while (*value) {
                size_t n = strcspn(value, "\r\n");

                buf_append(b, value, n);
                value += n;
                value += strspn(value, "\r\n");
        }
        buf_putc(b, '\n');
}

static size_t line_length(const char *s, size_t n)
{
        size_t i = 0;

        while (i < n && s[i] != '\r' && s[i] != '\n')
                i++;
        return i;
}

void sse_put(struct buf *b, const char *id, const char *event, const char *data, size_t len)
{
        put_field(b, "id: ", id);
        put_field(b, "event: ", event);
        for (;;) {
                size_t n = line_length(data, len);

                buf_puts(b, "data: ");
                buf_append(b, data, n);
                buf_putc(b, '\n');
                if (n == len)
                        break;
                n += len - n >= 2 && data[n] == '\r' && data[n + 1] == '\n' ? 2 : 1;
                data += n;
                len -= n;
        }
        buf_putc(b, '\n');
}

void sse_put_comment(struct buf *b, const char *text)
{
        put_field(b, ": ", text);
        buf_putc(b, '\n');
}

/* ---- reading ---- */

void sse_decoder_init(struct sse_decoder *d, size_t max_event,
                      int (*on_event)(void *ctx, const struct sse_event *event, struct err *err),
                      void *ctx)
{
        *d = (struct sse_decoder){
                .on_event = on_event, .ctx = ctx, .max_event = max_event, .retry_ms = -1
        };
        buf_init(&d->line, max_event);
        buf_init(&d->data, max_event);
        buf_init(&d->event, max_event);
        buf_init(&d->id, max_event);
}

void sse_decoder_done(struct sse_decoder *d)
{
        buf_done(&d->line);
        buf_done(&d->data);
        buf_done(&d->event);
        buf_done(&d->id);
}

static int dispatch_event(struct sse_decoder *d, struct err *err)
{
        struct sse_event e = {
                .id = buf_str(&d->id),
                .event = d->event.len > 0 ? buf_str(&d->event) : "message",
                .data = buf_str(&d->data),
                .len = d->data.len,
        };
        int r = d->has_data ? d->on_event(d->ctx, &e, err) : 0;

        buf_clear(&d->data);
        buf_clear(&d->event);
        d->has_data = false;
        return MIN(r, 0);
}

static void take_retry(struct sse_decoder *d, const char *value, size_t len)
{
        int64_t ms = 0;

        if (len == 0 || len > 9)
                return;
        for (size_t i = 0; i < len; i++) {
                if (value[i] < '0' || value[i] > '9')
                        return;
                ms = ms * 10 + (value[i] - '0');
        }
        d->retry_ms = ms;
}

static int take_field(struct sse_decoder *d, const char *name, size_t name_len, const char *value,
                      size_t len, struct err *err)
{
        if (name_len == 4 && memcmp(name, "data", 4) == 0) {
                if (d->has_data)
                        buf_putc(&d->data, '\n');
                d->has_data = true;
                buf_append(&d->data, value, len);
        } else if (name_len == 5 && memcmp(name, "event", 5) == 0) {
                buf_clear(&d->event);
                buf_append(&d->event, value, len);
        } else if (name_len == 2 && memcmp(name, "id", 2) == 0) {
                if (!memchr(value, '\0', len)) {
                        buf_clear(&d->id);
                        buf_append(&d->id, value, len);
                }
        } else if (name_len == 5 && memcmp(name, "retry", 5) == 0) {
                take_retry(d, value, len);
        }
        if (buf_failed(&d->data))
                return err_set(err, ERR_TOO_LARGE, "an event is larger than %zu bytes",
                               d->max_event);
        return 0;
}

static int take_line(struct sse_decoder *d, struct err *err)
{
        const char *line = buf_str(&d->line), *colon, *value;
        size_t len = d->line.len, name_len;

        if (len == 0)
                return dispatch_event(d, err);
        colon = memchr(line, ':', len);
        name_len = colon ? (size_t)(colon - line) : len;
        value = colon ? colon + 1 : line + len;
        if (value < line + len && *value == ' ')
                value++;
        int r = take_field(d, line, name_len, value, (size_t)(line + len - value), err);
        buf_clear(&d->line);
        return r;
}

/* A byte order mark may stand at the very beginning; it shows when the first line is complete. */
static void skip_mark(struct sse_decoder *d)
{
        if (!d->after_start && d->line.len >= 3 && memcmp(d->line.data, "\xef\xbb\xbf", 3) == 0)
                buf_consume(&d->line, 3);
        d->after_start = true;
}

static int feed_line(struct sse_decoder *d, const char *s, size_t len, struct err *err)
{
        while (len > 0) {
                size_t n;
                int r;

                if (d->after_cr && *s == '\n') {
                        s++;
                        len--;
                        d->after_cr = false;
                        continue;
                }
                d->after_cr = false;
                n = line_length(s, len);
                buf_append(&d->line, s, n);
                if (buf_failed(&d->line))
                        return err_set(err, ERR_TOO_LARGE, "a line is larger than %zu bytes",
                                       d->max_event);
                if (n == len)
                        return 0;
                d->after_cr = s[n] == '\r';
                s += n + 1;
                len -= n + 1;
                skip_mark(d);
                r = take_line(d, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

int sse_feed(struct sse_decoder *d, const void *bytes, size_t len, struct err *err)
{
        if (d->failed)
                return err_set(err, d->failed, "the event stream was refused");
        d->failed = feed_line(d, bytes, len, err);
        return d->failed;
}
