/* A request that takes long: renews the lease, shows how far it is, and handles Ctrl-C. */
#include "cli/long_call.h"

#include <berth/berth.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "client/flow.h"

#define LOOK_MS    250 /* how often progress is asked for */
#define FIRST_MS   500 /* shorter work is not worth a line */
#define BAR_WIDTH  24
#define ANSWER_MAX ((size_t)64 << 20)

struct moving {
        struct cli *c;
        struct berth *api;
        const struct long_call *t;
        struct flow request, side;
        struct buf answer, side_answer;
        bool side_is_look, drawn;
        int64_t look_at_ms, renew_at_ms;
        int insisted, signal;
};

static int keep_bytes(void *arg, const struct http_answer *answer UNUSED, const char *data,
                      size_t len, struct err *err UNUSED)
{
        buf_append(arg, data, len);
        return 0;
}

/* Progress */

static void clear_line(struct moving *m)
{
        if (m->drawn)
                fputs("\r\033[K", stderr);
        m->drawn = false;
}

static const char *amount_text(struct cli *c, uint64_t n)
{
        if (n < 10000)
                return cli_printf(c, "%llu", (unsigned long long)n);
        if (n < (uint64_t)10000 << 10)
                return cli_printf(c, "%llu Ki", (unsigned long long)(n >> 10));
        return cli_printf(c, "%llu Mi", (unsigned long long)(n >> 20));
}

static void draw_progress(struct moving *m, const json_t *progress)
{
        uint64_t done = (uint64_t)json_integer_value(json_object_get(progress, "done"));
        uint64_t total = (uint64_t)json_integer_value(json_object_get(progress, "total"));
        char bar[BAR_WIDTH + 1];

        clear_line(m);
        m->drawn = true;
        if (total == 0) {
                fprintf(stderr, "%s: %s %s", m->t->what, cli_text(progress, "phase"),
                        done ? amount_text(m->c, done) : "");
                fflush(stderr);
                return;
        }
        size_t full = (size_t)(MIN(done, total) * BAR_WIDTH / total);
        memset(bar, '#', full);
        memset(bar + full, '.', BAR_WIDTH - full);
        bar[BAR_WIDTH] = '\0';
        fprintf(stderr, "%s: %s [%s] %s of %s", m->t->what, cli_text(progress, "phase"), bar,
                amount_text(m->c, done), amount_text(m->c, total));
        fflush(stderr);
}

static void side_step(struct moving *m)
{
        json_t *answer = NULL;

        if (flow_step(&m->side, NULL) <= 0)
                return;
        if (m->side_is_look &&
            json_parse(buf_str(&m->side_answer), m->side_answer.len, &answer, NULL) >= 0 &&
            json_is_object(json_object_get(answer, "progress")))
                draw_progress(m, json_object_get(answer, "progress"));
        json_decref(answer);
}

/* Beside it: looking and renewing, one at a time. A request that fails is tried again. */
static void do_what_is_due(struct moving *m)
{
        int64_t now = clock_mono_ms();
        struct http_call call = { .method = "GET", .accept = "application/json" };

        if (m->side.busy)
                return;
        buf_clear(&m->side_answer);
        m->side_is_look = !m->renew_at_ms || now < m->renew_at_ms;
        if (!m->side_is_look) {
                m->renew_at_ms = now + m->t->renew_ms / 3;
                call.method = "POST";
                call.path = cli_printf(m->c, "/api/environment-leases/%s/renew", m->t->lease_id);
                call.body = cli_printf(m->c, "{\"ttlMs\":%lld}", (long long)m->t->renew_ms);
        } else if (m->look_at_ms && now >= m->look_at_ms) {
                m->look_at_ms = now + LOOK_MS;
                call.path =
                        cli_printf(m->c, "/api/environment-leases/%s/workspace", m->t->lease_id);
        } else {
                return;
        }
        (void)flow_start(&m->side, m->api, &call, keep_bytes, &m->side_answer, NULL);
}

/* Signals */

static void take_signals(struct moving *m)
{
        int number;

        while ((number = signals_next())) {
                if (number == SIGWINCH)
                        continue;
                m->insisted++;
                m->signal = number;
                if (m->t->insist && m->insisted == 1) {
                        clear_line(m);
                        out_note("berth: %s is under way; once more gives it up", m->t->what);
                }
        }
}

/* The loop */

static int wait_for_something(struct moving *m)
{
        struct pollfd fds[3] = {
                { .fd = signals_fd(), .events = POLLIN },
                { .fd = m->request.fd, .events = flow_events(&m->request) },
                { .fd = m->side.busy ? m->side.fd : -1, .events = flow_events(&m->side) },
        };
        int n = poll(fds, ARRAY_LEN(fds), LOOK_MS);

        if (n < 0)
                return 0;
        take_signals(m);
        if (fds[2].revents)
                side_step(m);
        return fds[1].revents != 0;
}

static int read_answer(struct moving *m, json_t **ret, struct err *err)
{
        struct berth_response response = {
                .status = flow_answer(&m->request)->status,
                .body = (char *)buf_str(&m->answer),
                .len = m->answer.len,
        };
        struct berth_error error;
        json_t *value = NULL;

        if (berth_refusal(&response, &error) < 0)
                return cli_api_error(&error, err);
        int r = json_parse(response.body, response.len, &value, err);
        if (r < 0)
                return err_wrap(err, ERR_PROVIDER, "answered something else than JSON");
        *ret = cli_keep(m->c, value);
        return 0;
}

int long_call_run(struct cli *c, const struct long_call *t, json_t **ret, int *ret_signal,
                  struct err *err)
{
        struct moving m = { .c = c, .t = t, .request = FLOW_INIT, .side = FLOW_INIT };
        struct http_call call = {
                .method = "POST", .path = t->path, .accept = "application/json", .body = t->body
        };
        int64_t now = clock_mono_ms();
        int r = cli_connect(c, &m.api, err);

        buf_init(&m.answer, ANSWER_MAX);
        m.look_at_ms = isatty(STDERR_FILENO) ? now + FIRST_MS : 0;
        m.renew_at_ms = t->renew_ms ? now + t->renew_ms / 3 : 0;
        if (r >= 0)
                r = flow_start(&m.request, m.api, &call, keep_bytes, &m.answer, err);
        while (r == 0) {
                if (m.insisted > (t->insist ? 1 : 0)) {
                        r = err_set(err, ERR_CANCELLED, "%s was given up", t->what);
                        break;
                }
                do_what_is_due(&m);
                if (wait_for_something(&m))
                        r = flow_step(&m.request, err);
        }
        clear_line(&m);
        if (r >= 0)
                r = read_answer(&m, ret, err);
        flow_close(&m.request);
        flow_close(&m.side);
        buf_done(&m.answer);
        buf_done(&m.side_answer);
        if (ret_signal)
                *ret_signal = m.signal;
        return r;
}

/* Reporting */

static json_int_t report_number(const json_t *report, const char *key)
{
        return json_integer_value(json_object_get(report, key));
}

static void report_git(const json_t *git)
{
        if (*cli_text(git, "conflictRef"))
                out_note("berth: commits that cannot be merged with yours are kept as %s",
                         cli_text(git, "conflictRef"));
        if (report_number(git, "refused") > 0)
                out_note(
                        "berth: %lld changes in git directories were not taken over, for git would "
                        "run what they say; the first is %s",
                        (long long)report_number(git, "refused"), cli_text(git, "firstRefused"));
        if (*cli_text(git, "note"))
                out_note("berth: git: %s", cli_text(git, "note"));
}

void long_call_report(const json_t *report)
{
        const json_t *conflicts = json_object_get(report, "conflicts");
        json_t *item;
        size_t i;

        json_array_foreach(conflicts, i, item)
        {
                out_note("berth: conflict: %s was changed here too; your version is %s",
                         cli_text(item, "path"), cli_text(item, "kept"));
        }
        report_git(json_get_object(report, "git"));
        if (report_number(report, "left") > 0)
                out_note("berth: %lld deleted there stayed, for they were changed here",
                         (long long)report_number(report, "left"));
}
