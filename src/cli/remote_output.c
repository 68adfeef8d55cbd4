/* From events to bytes on standard output and error.
 *
 * Writing never sets O_NONBLOCK: the descriptors are shared with the process that started us.
 * Instead poll() is asked first and pieces are small enough for what it promises. */
#include <errno.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "cli/remote.h"
#include "cli/signals.h"

#define WAITING_MAX ((size_t)1 << 20)

bool remote_output_full(const struct remote *m)
{
        return m->out[0].waiting.len - m->out[0].written > WAITING_MAX ||
               m->out[1].waiting.len - m->out[1].written > WAITING_MAX;
}

static void drop_waiting(struct remote_stream *s)
{
        buf_clear(&s->waiting);
        s->written = 0;
}

/* The reader of our output is gone: the command gets what it would get if it wrote there itself. */
static void reader_gone(struct remote *m, struct remote_stream *s, int error)
{
        s->fd = -1;
        drop_waiting(s);
        s->at = INT64_MAX; /* the stream is opened again, without it */
        flow_close(&m->events);
        if (error != EPIPE && !m->write_failed)
                out_note("berth: could not write the output: %s", strerror(error));
        m->write_failed = m->write_failed || error != EPIPE;
        if (m->spec.watch_only)
                m->has_end = true;
        else
                remote_signal(m, SIGPIPE);
}

void remote_write(struct remote *m, int stream)
{
        struct remote_stream *s = &m->out[stream];

        if (s->fd < 0 || s->waiting.len == 0)
                return;
        ssize_t n = write(s->fd, s->waiting.data + s->written,
                          MIN(s->waiting.len - s->written, s->piece));
        if (n >= 0) {
                s->written += (size_t)n;
                if (s->written == s->waiting.len)
                        drop_waiting(s);
        } else if (errno != EINTR && errno != EAGAIN) {
                reader_gone(m, s, errno);
        }
}

/* A character may come in two pieces. */
static void append_plain(struct remote_stream *s, const char *data, size_t len)
{
        buf_append(&s->part, data, len);
        size_t later = utf8_unfinished(buf_str(&s->part), s->part.len);
        out_plain(&s->waiting, buf_str(&s->part), s->part.len - later);
        buf_consume(&s->part, s->part.len - later);
}

/* Bytes from an offset; those that are known already are skipped. */
static int take_bytes(struct remote *m, int stream, uint64_t offset, const char *data, size_t len,
                      struct err *err)
{
        struct remote_stream *s = &m->out[stream];

        if (offset > s->at)
                return err_set(err, ERR_PROVIDER, "the daemon left out bytes %llu to %llu",
                               (unsigned long long)s->at, (unsigned long long)offset);
        uint64_t known = s->at - offset;
        if (known >= len)
                return 0;
        if (!m->first_output_us)
                m->first_output_us = clock_mono_us();
        s->at = offset + len;
        if (s->written > WAITING_MAX / 2) {
                buf_consume(&s->waiting, s->written);
                s->written = 0;
        }
        if (s->fd >= 0 && s->plain)
                append_plain(s, data + known, len - (size_t)known);
        else if (s->fd >= 0)
                buf_append(&s->waiting, data + known, len - (size_t)known);
        return buf_failed(&s->waiting) ? err_set(err, ERR_TOO_LARGE, "the output is too large") : 0;
}

static int take_base64(struct remote *m, int stream, uint64_t offset, const char *text,
                       size_t text_len, struct err *err)
{
        size_t max = text_len / 4 * 3 + 3, len;
        CLEAN(cleanup_free) unsigned char *bytes = xcalloc(1, max);

        if (sodium_base642bin(bytes, max, text, text_len, NULL, &len, NULL,
                              sodium_base64_VARIANT_ORIGINAL) != 0)
                return err_set(err, ERR_PROVIDER, "the daemon sent broken base64");
        return take_bytes(m, stream, offset, (const char *)bytes, len, err);
}

static int take_output(struct remote *m, int stream, const json_t *object, struct err *err)
{
        const json_t *data = json_object_get(object, "data");
        const char *encoding = cli_text(object, "encoding");
        json_int_t offset = json_integer_value(json_object_get(object, "offset"));
        json_int_t dropped = json_integer_value(json_object_get(object, "dropped"));

        if (!json_is_string(data) || offset < 0)
                return err_set(err, ERR_PROVIDER, "the daemon sent an event without data");
        if (dropped > 0 && offset == (json_int_t)m->out[stream].at + dropped) {
                out_note(
                        "berth: the oldest %lld bytes of its output are gone: its limit was reached",
                        (long long)dropped);
                m->out[stream].at = (uint64_t)offset;
        }
        if (streq(encoding, "base64"))
                return take_base64(m, stream, (uint64_t)offset, json_string_value(data),
                                   json_string_length(data), err);
        return take_bytes(m, stream, (uint64_t)offset, json_string_value(data),
                          json_string_length(data), err);
}

static void take_end(struct remote *m, const json_t *object)
{
        const json_t *code = json_object_get(object, "exitCode");

        m->has_end = true;
        m->ended_us = clock_mono_us();
        m->exit_code = json_is_integer(code) ? (int)json_integer_value(code) : -1;
        m->signal = signals_number(cli_text(object, "signal"));
        m->timed_out = json_is_true(json_object_get(object, "timedOut"));
        m->is_lost = !streq(cli_text(object, "status"), "exited");
        m->is_incomplete = json_is_true(json_object_get(object, "incomplete"));
        (void)snprintf(m->reason, sizeof(m->reason), "%s", cli_text(object, "reason"));
}

/* Output may hold NUL, so that this is not json_parse(). */
int remote_event(void *ctx, const struct sse_event *event, struct err *err)
{
        struct remote *m = ctx;
        json_t *object = json_loadb(event->data, event->len, JSON_ALLOW_NUL, NULL);
        int r = 0;

        if (!object)
                return err_set(err, ERR_PROVIDER, "the daemon sent an event that is no JSON");
        if (streq(event->event, "stdout"))
                r = take_output(m, 0, object, err);
        else if (streq(event->event, "stderr"))
                r = take_output(m, 1, object, err);
        else if (streq(event->event, "exit"))
                take_end(m, object);
        json_decref(object);
        return r;
}
