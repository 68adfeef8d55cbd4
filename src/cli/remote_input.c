/* Sends to the command: input, signals, the size of the terminal; and renews its lease. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/remote.h"
#include "cli/signals.h"
#include "cli/terminal.h"

#define PIECE_MAX ((size_t)256 << 10)
#define RETRY_MS  100
#define CTRL_C    '\003'

#define WHOLE_MAX     ((size_t)8 << 20) /* a request has at most 10 MiB */
#define WHOLE_POLL_MS 1000

enum { CONTROL_NONE, CONTROL_SIGNAL, CONTROL_RESIZE, CONTROL_RENEW };

/* Answers to what is sent here only matter by their status. */
static int drop_answer(void *arg UNUSED, const struct http_answer *answer UNUSED,
                       const char *data UNUSED, size_t len UNUSED, struct err *err UNUSED)
{
        return 0;
}

static int post_to_lease(struct remote *m, struct flow *f, const char *what, const char *type,
                         const char *body, size_t len)
{
        char path[256];
        struct http_call call = {
                .method = "POST",
                .path = path,
                .accept = "application/json",
                .body = body,
                .body_len = len,
                .content_type = type,
        };

        (void)snprintf(path, sizeof(path), "/api/environment-leases/%s/%s", m->spec.lease_id, what);
        return flow_start(f, m->api, &call, drop_answer, NULL, NULL);
}

/* Input */

bool remote_wants_input(const struct remote *m)
{
        return !m->input_over && !m->input_eof && m->piece.len == 0 && !m->has_end;
}

void remote_input_read(struct remote *m)
{
        char *at = buf_reserve(&m->piece, PIECE_MAX);
        ssize_t n = at ? read(STDIN_FILENO, at, PIECE_MAX) : 0;

        if (n < 0 && (errno == EINTR || errno == EAGAIN))
                return;
        /* A terminal that was hung up, or a closed descriptor: nothing more will come either way.
         */
        if (n <= 0) {
                m->input_eof = true;
                return;
        }
        buf_grew(&m->piece, (size_t)n);
        /* In raw mode only we see Ctrl-C; without a daemon the command does not get it either. */
        if (terminal_is_raw() && m->lost_ms && memchr(m->piece.data, CTRL_C, m->piece.len))
                m->gave_up = SIGINT;
}

static void send_input(struct remote *m)
{
        char what[160];

        m->eof_sent = m->input_eof;
        (void)snprintf(what, sizeof(what), "executions/%s/stdin?offset=%llu%s", m->id,
                       (unsigned long long)m->piece_at, m->input_eof ? "&eof=1" : "");
        if (post_to_lease(m, &m->input, what, "application/octet-stream", buf_str(&m->piece),
                          m->piece.len) < 0)
                m->input_retry_ms = clock_mono_ms() + RETRY_MS;
}

void remote_input_step(struct remote *m)
{
        int r = flow_step(&m->input, NULL), status;

        if (r == 0)
                return;
        status = r > 0 ? flow_answer(&m->input)->status : 0;
        if (r < 0 || status >= 500) {
                m->input_retry_ms = clock_mono_ms() + RETRY_MS; /* the offset makes it safe */
                return;
        }
        if (status >= 400) { /* it has ended, or closed its input: the rest is dropped */
                m->input_over = true;
                return;
        }
        m->piece_at += m->piece.len;
        buf_clear(&m->piece);
        /* End of file may have come while the piece was under way; then it is still to be sent. */
        m->input_over = m->eof_sent;
}

/* All of it at once */

/* 1 when there is something to read. The lease is kept alive meanwhile. */
static int await_input(struct remote *m, struct err *err)
{
        struct pollfd fds[] = { { .fd = STDIN_FILENO, .events = POLLIN },
                                { .fd = signals_fd(), .events = POLLIN } };
        struct berth_lease lease;
        struct berth_error error;
        int number;

        if (m->renew_at_ms && clock_mono_ms() >= m->renew_at_ms) {
                m->renew_at_ms = clock_mono_ms() + m->spec.renew_ms / 3;
                if (berth_renew(m->api, m->spec.lease_id, m->spec.renew_ms, &lease, &error) == 0)
                        berth_lease_done(&lease);
        }
        if (poll(fds, ARRAY_LEN(fds), WHOLE_POLL_MS) < 0 && errno != EINTR)
                return err_sys(err, ERR_INTERNAL, errno, "poll");
        while ((number = signals_next()) != 0) {
                if (number == SIGWINCH)
                        continue;
                m->c->end_by_signal = number;
                return err_set(err, ERR_CANCELLED, "interrupted before all of the input was there");
        }
        return fds[0].revents != 0;
}

static int too_much_input(struct err *err)
{
        return err_set(err, ERR_TOO_LARGE,
                       "a command that a plugin runs gets all of its input at the start, at most "
                       "%zu MiB as JSON",
                       WHOLE_MAX >> 20);
}

int remote_input_whole(struct remote *m, json_t **ret, struct err *err)
{
        CLEAN(buf_wipe) struct buf text = BUF_INIT;
        ssize_t n = 1;
        int r;

        while (n != 0) {
                char *at;

                r = await_input(m, err);
                if (r < 0)
                        return r;
                if (r == 0)
                        continue;
                at = buf_reserve(&text, PIECE_MAX);
                n = at ? read(STDIN_FILENO, at, PIECE_MAX) : 0;
                if (n < 0 && errno != EINTR && errno != EAGAIN)
                        return err_sys(err, ERR_IO, errno, "read standard input");
                if (n > 0)
                        buf_grew(&text, (size_t)n);
                if (!at || text.len > WHOLE_MAX)
                        return too_much_input(err);
        }
        m->input_over = true;
        CLEAN(buf_wipe) struct buf shown = BUF_INIT;
        json_t *input = memchr(buf_str(&text), '\0', text.len)
                                ? NULL
                                : json_stringn(buf_str(&text), text.len);

        if (!input)
                return err_set(err, ERR_USAGE,
                               "a command that a plugin runs takes text as its input, UTF-8 "
                               "without NUL; encode it, with base64 for example");
        json_put(&shown, input);
        if (buf_failed(&shown) || shown.len > WHOLE_MAX) {
                json_decref(input);
                return too_much_input(err);
        }
        *ret = input;
        return 0;
}

/* Signals, size, renewals */

void remote_signal(struct remote *m, int number)
{
        if (m->n_signals < REMOTE_MAX_SIGNALS && !m->has_end)
                m->signals[m->n_signals++] = number;
}

/* It did not get through: do it again soon. */
static void control_failed(struct remote *m)
{
        m->control_retry_ms = clock_mono_ms() + RETRY_MS;
        m->resized = m->resized || m->control_kind == CONTROL_RESIZE;
        if (m->control_kind == CONTROL_RENEW)
                m->renew_at_ms = m->control_retry_ms;
}

void remote_control_step(struct remote *m)
{
        int r = flow_step(&m->control, NULL), status;

        if (r == 0)
                return;
        status = r > 0 ? flow_answer(&m->control)->status : 0;
        /* 409: the daemon has lost sight of the command for a moment, or it has ended, which we
         * are about to hear. */
        if (r < 0 || status >= 500 || (status == 409 && m->control_kind == CONTROL_SIGNAL)) {
                control_failed(m);
                return;
        }
        if (m->control_kind == CONTROL_SIGNAL && m->n_signals > 0)
                memmove(m->signals, m->signals + 1, --m->n_signals * sizeof(m->signals[0]));
        if (m->control_kind == CONTROL_RENEW && status >= 400) {
                m->renew_at_ms = 0;
                remote_note("the lease cannot be renewed any more");
        }
}

/* Signals first, then the size of the terminal, then the lease. */
static void send_control(struct remote *m, int64_t now_ms)
{
        char what[160], body[64];
        int columns, rows;

        if (m->n_signals > 0) {
                m->control_kind = CONTROL_SIGNAL;
                (void)snprintf(what, sizeof(what), "executions/%s/signal", m->id);
                (void)snprintf(body, sizeof(body), "{\"signal\":\"%s\"}",
                               signals_name(m->signals[0]));
        } else if (m->resized) {
                m->control_kind = CONTROL_RESIZE;
                m->resized = false;
                terminal_size(&columns, &rows);
                (void)snprintf(what, sizeof(what), "executions/%s/resize", m->id);
                (void)snprintf(body, sizeof(body), "{\"columns\":%d,\"rows\":%d}", columns, rows);
        } else if (m->renew_at_ms && now_ms >= m->renew_at_ms) {
                m->control_kind = CONTROL_RENEW;
                m->renew_at_ms = clock_mono_ms() + m->spec.renew_ms / 3;
                (void)snprintf(what, sizeof(what), "renew");
                (void)snprintf(body, sizeof(body), "{\"ttlMs\":%lld}", (long long)m->spec.renew_ms);
        } else {
                return;
        }
        if (post_to_lease(m, &m->control, what, NULL, body, 0) < 0)
                control_failed(m);
}

void remote_send(struct remote *m, int64_t now_ms)
{
        if (m->has_end || m->lost_ms)
                return;
        if (!m->input.busy && !m->input_over && now_ms >= m->input_retry_ms &&
            (m->piece.len > 0 || m->input_eof))
                send_input(m);
        if (!m->control.busy && now_ms >= m->control_retry_ms)
                send_control(m, now_ms);
}
