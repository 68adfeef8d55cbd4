#include "client/sse.h"

/* A line ends at LF, CR or CRLF; since CRLF may be cut between two reads, a CR ends the line at
 * once and an LF right behind it is skipped. An empty line dispatches what was collected. */

void sse_init(struct sse *s, sse_event_fn *fn, void *arg)
{
        *s = (struct sse){ .fn = fn, .arg = arg };
        buf_init(&s->line, SSE_MAX_EVENT);
        buf_init(&s->data, SSE_MAX_EVENT);
        buf_init(&s->event, SSE_MAX_EVENT);
        buf_init(&s->id, SSE_MAX_EVENT);
}

void sse_done(struct sse *s)
{
        buf_done(&s->line);
        buf_done(&s->data);
        buf_done(&s->event);
        buf_done(&s->id);
}

static int dispatch(struct sse *s)
{
        struct sse_event event = {
                .id = buf_str(&s->id),
                .event = s->event.len > 0 ? buf_str(&s->event) : "message",
                .data = buf_str(&s->data),
                .data_len = s->data.len,
        };
        int r = s->has_data ? s->fn(s->arg, &event) : 0;

        buf_clear(&s->data);
        buf_clear(&s->event);
        s->has_data = false;
        return r;
}

static void set(struct buf *b, const char *value, size_t len)
{
        buf_clear(b);
        buf_append(b, value, len);
}

static void take_field(struct sse *s, const char *line, size_t len)
{
        const char *colon = memchr(line, ':', len);
        size_t name_len = colon ? (size_t)(colon - line) : len;
        const char *value = colon ? colon + 1 : line + len;
        size_t value_len = (size_t)(line + len - value);

        if (value_len > 0 && value[0] == ' ') {
                value++;
                value_len--;
        }
        if (name_len == 4 && memcmp(line, "data", 4) == 0) {
                if (s->has_data)
                        buf_putc(&s->data, '\n');
                buf_append(&s->data, value, value_len);
                s->has_data = true;
        } else if (name_len == 5 && memcmp(line, "event", 5) == 0) {
                set(&s->event, value, value_len);
        } else if (name_len == 2 && memcmp(line, "id", 2) == 0) {
                if (!memchr(value, '\0', value_len))
                        set(&s->id, value, value_len);
        }
}

static int end_line(struct sse *s, struct err *err)
{
        const char *line = buf_str(&s->line);
        size_t len = s->line.len;
        int r = 0;

        if (!s->started && len >= 3 && memcmp(line, "\xef\xbb\xbf", 3) == 0) {
                line += 3;
                len -= 3;
        }
        s->started = true;
        if (buf_failed(&s->line))
                return err_set(err, ERR_TOO_LARGE, "an event of the stream is too large");
        if (len == 0)
                r = dispatch(s);
        else if (line[0] != ':')
                take_field(s, line, len);
        if (buf_failed(&s->data))
                return err_set(err, ERR_TOO_LARGE, "an event of the stream is too large");
        buf_clear(&s->line);
        return r;
}

int sse_feed(struct sse *s, const char *data, size_t len, struct err *err)
{
        size_t start = 0;

        for (size_t i = 0; i < len; i++) {
                char c = data[i];
                int r;

                if (c == '\n' && s->last_was_cr) {
                        s->last_was_cr = false;
                        start = i + 1;
                        continue;
                }
                s->last_was_cr = c == '\r';
                if (c != '\n' && c != '\r')
                        continue;
                buf_append(&s->line, data + start, i - start);
                start = i + 1;
                r = end_line(s, err);
                if (r != 0)
                        return r;
        }
        buf_append(&s->line, data + start, len - start);
        if (buf_failed(&s->line))
                return err_set(err, ERR_TOO_LARGE, "an event of the stream is too large");
        return 0;
}
