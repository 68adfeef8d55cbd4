/* The loop: events in, output out, input and signals to the command, until it has ended.
 *
 * Ctrl-C and SIGTERM are meant for the command, and go there. The second time (Ctrl-C twice within
 * two seconds, SIGTERM twice) the command is killed; the third time we leave it alone.
 *
 * The daemon sends a sign of life every 15 seconds, so that a connection that is silent for a
 * minute is dead, and opened again like one that broke. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "cli/output.h"
#include "cli/remote.h"
#include "cli/signals.h"
#include "cli/terminal.h"

/* From events to bytes on standard output and error.
 *
 * Writing never sets O_NONBLOCK: the descriptors are shared with the process that started us.
 * Instead poll() is asked first and pieces are small enough for what it promises. */

#define WAITING_MAX ((size_t)1 << 20)

static bool remote_output_full(const struct remote *m)
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

/* Write what can be written; ready says whether poll() found room. */
static void remote_write(struct remote *m, int stream)
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
static int remote_event(void *ctx, const struct sse_event *event, struct err *err)
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

#define INSIST_MS    2000
#define SILENCE_MS   60000
#define FIRST_PAUSE  50
#define LAST_PAUSE   3000
#define NOTE_PAUSE   200 /* shorter gaps are not reported */
#define CONNECT_WAIT 10000
#define EVENT_MAX    ((size_t)4 << 20)

enum { FD_SIGNALS, FD_EVENTS, FD_INPUT, FD_CONTROL, FD_STDIN, FD_OUT, FD_ERR, N_FDS };

void remote_note(const char *fmt, ...)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        va_list ap;

        if (!isatty(STDERR_FILENO))
                return;
        va_start(ap, fmt);
        buf_appendv(&b, fmt, ap);
        va_end(ap);
        fprintf(stderr, "berth: %s%s", buf_str(&b), terminal_is_raw() ? "\r\n" : "\n");
}

void remote_say_how_to_look(const struct remote *m)
{
        out_note("the command goes on as execution %s", m->id);
        out_note("look at it with: berth lease output %s %s -f", m->spec.lease_id, m->id);
}

/* The stream of events */

static int event_bytes(void *arg, const struct http_answer *answer, const char *data, size_t len,
                       struct err *err)
{
        struct remote *m = arg;

        if (answer->status == 200 && answer->is_event_stream)
                return sse_feed(&m->sse, data, len, err);
        buf_append(&m->refusal, data, len);
        return 0;
}

static void lose_stream(struct remote *m, int64_t now)
{
        flow_close(&m->events);
        if (!m->lost_ms) {
                m->lost_ms = now;
                m->pause_ms = FIRST_PAUSE;
        } else {
                m->pause_ms = MIN(m->pause_ms * 2, LAST_PAUSE);
                if (m->pause_ms > NOTE_PAUSE && m->pause_ms <= 2 * NOTE_PAUSE)
                        remote_note("connection to the daemon lost; trying again%s",
                                    terminal_is_raw() ? " (Ctrl-C gives up)" : "");
        }
        m->retry_ms = now + m->pause_ms;
}

static void open_stream(struct remote *m, int64_t now)
{
        char path[160], last[64];
        struct http_call call = {
                .method = "GET",
                .path = path,
                .accept = "text/event-stream",
                .last_event_id = last,
        };

        (void)snprintf(path, sizeof(path), "/api/environment-leases/%s/executions/%s/events",
                       m->spec.lease_id, m->id);
        (void)snprintf(last, sizeof(last), "%llu.%llu", (unsigned long long)m->out[0].at,
                       (unsigned long long)m->out[1].at);
        buf_clear(&m->refusal);
        sse_decoder_done(&m->sse); /* with what the last connection left unfinished */
        sse_decoder_init(&m->sse, EVENT_MAX, remote_event, m);
        m->heard_ms = now;
        if (m->lost_ms && m->spec.revive)
                m->spec.revive(m->c);
        if (flow_start(&m->events, m->api, &call, event_bytes, m, NULL) < 0)
                lose_stream(m, clock_mono_ms());
}

static int step_stream(struct remote *m, int64_t now, struct err *err)
{
        int r = flow_step(&m->events, err), status;
        struct berth_error error;

        if (r == ERR_UNCERTAIN) {
                err_clear(err);
                if (!m->has_end)
                        lose_stream(m, now);
                return 0;
        }
        if (r < 0)
                return r;
        m->heard_ms = now;
        status = flow_answer(&m->events)->status;
        if (m->lost_ms && status == 200) {
                if (m->pause_ms > NOTE_PAUSE)
                        remote_note("connected again");
                m->lost_ms = 0;
        }
        if (r == 0 || m->has_end)
                return 0;
        /* Answered in full: by a daemon that stops, or with a refusal. */
        if (status >= 400 && status < 500 &&
            berth_refusal(&(struct berth_response){ .status = status,
                                                    .body = (char *)buf_str(&m->refusal),
                                                    .len = m->refusal.len },
                          &error) < 0)
                return cli_api_error(&error, err);
        lose_stream(m, now);
        return 0;
}

/* What the clock asks for. */
static int keep_stream(struct remote *m, int64_t now, struct err *err)
{
        int64_t patience = m->lost_ms ? CONNECT_WAIT : SILENCE_MS;

        if (m->has_end)
                return 0;
        if (m->lost_ms && now - m->lost_ms > m->reconnect_ms)
                return err_set(err, ERR_UNREACHABLE, "%s does not answer any more",
                               berth_address(m->api));
        if (m->events.busy && !remote_output_full(m) && now - m->heard_ms > patience)
                lose_stream(m, now);
        if (!m->events.busy && now >= m->retry_ms)
                open_stream(m, now);
        return 0;
}

/* Signals to us */

static void take_signals(struct remote *m, int64_t now)
{
        int number;

        while ((number = signals_next()) != 0) {
                if (number == SIGWINCH) {
                        m->resized = m->spec.terminal;
                        continue;
                }
                if (number == SIGINT && m->insisted == 1 && now - m->insisted_ms > INSIST_MS)
                        m->insisted = 0;
                m->insisted++;
                m->insisted_ms = now;
                m->interrupted = m->interrupted || number == SIGINT;
                if (m->insisted <= 2)
                        remote_signal(m, m->insisted == 1 ? number : SIGKILL);
                else
                        m->gave_up = number;
        }
}

/* One turn */

static void set_watch(struct pollfd *p, int fd, short events)
{
        *p = (struct pollfd){ .fd = events ? fd : -1, .events = events };
}

static void watch_all(const struct remote *m, struct pollfd *fds)
{
        short events = flow_events(&m->events);

        if (remote_output_full(m))
                events &= (short)~POLLIN;
        set_watch(&fds[FD_SIGNALS], signals_fd(), m->spec.watch_only ? 0 : POLLIN);
        set_watch(&fds[FD_EVENTS], m->events.fd, events);
        set_watch(&fds[FD_INPUT], m->input.fd, flow_events(&m->input));
        set_watch(&fds[FD_CONTROL], m->control.fd, flow_events(&m->control));
        set_watch(&fds[FD_STDIN], STDIN_FILENO, remote_wants_input(m) ? POLLIN : 0);
        for (int i = 0; i < 2; i++)
                set_watch(&fds[FD_OUT + i], m->out[i].fd, m->out[i].waiting.len > 0 ? POLLOUT : 0);
}

static int ms_until(int64_t at, int64_t now, int at_most)
{
        return (int)MAX(0, MIN(at - now, (int64_t)at_most));
}

static int wait_ms(const struct remote *m, int64_t now)
{
        int ms = 5000;

        if (m->has_end)
                return ms;
        if (!m->events.busy)
                ms = ms_until(m->retry_ms, now, ms);
        if (m->lost_ms)
                return ms;
        if (!m->input.busy && !m->input_over && (m->piece.len > 0 || m->input_eof))
                ms = ms_until(m->input_retry_ms, now, ms);
        if (!m->control.busy && (m->n_signals > 0 || m->resized))
                ms = ms_until(m->control_retry_ms, now, ms);
        if (!m->control.busy && m->renew_at_ms)
                ms = ms_until(m->renew_at_ms, now, ms);
        return ms;
}

static int follow_turn(struct remote *m, struct err *err)
{
        struct pollfd fds[N_FDS];
        int64_t now = clock_mono_ms();
        int r = 0;

        watch_all(m, fds);
        if (poll(fds, N_FDS, wait_ms(m, now)) < 0) {
                if (errno != EINTR)
                        return err_sys(err, ERR_INTERNAL, errno, "poll");
                for (size_t i = 0; i < N_FDS; i++)
                        fds[i].revents = 0;
        }
        now = clock_mono_ms();
        if (!m->spec.watch_only)
                take_signals(m, now);
        if (fds[FD_EVENTS].revents)
                r = step_stream(m, now, err);
        if (fds[FD_INPUT].revents)
                remote_input_step(m);
        if (fds[FD_CONTROL].revents)
                remote_control_step(m);
        if (fds[FD_STDIN].revents)
                remote_input_read(m);
        for (int i = 0; i < 2; i++)
                if (fds[FD_OUT + i].revents)
                        remote_write(m, i);
        if (r >= 0)
                r = keep_stream(m, now, err);
        remote_send(m, now);
        return r;
}

int remote_follow(struct remote *m, struct err *err)
{
        int r = m->spec.terminal ? terminal_raw(err) : 0;

        while (r >= 0 && !m->gave_up) {
                bool enough = m->spec.watch_only && m->out[m->watched].at >= m->stop_at;

                if ((m->has_end || enough) && m->out[0].waiting.len == 0 &&
                    m->out[1].waiting.len == 0)
                        break;
                r = follow_turn(m, err);
        }
        terminal_restore();
        return r;
}

int remote_status(const struct remote *m)
{
        if (m->gave_up)
                return 128 + m->gave_up;
        if (m->timed_out)
                return REMOTE_TIMED_OUT;
        if (m->is_lost)
                return 1;
        if (m->exit_code < 0)
                return 128 + m->signal;
        return m->exit_code == 0 && (m->write_failed || m->is_incomplete) ? 1 : m->exit_code;
}

void remote_explain(const struct remote *m)
{
        if (m->timed_out)
                out_note("berth: the command was ended because its time was over");
        else if (m->reason[0])
                out_note("berth: %s", m->reason);
}
