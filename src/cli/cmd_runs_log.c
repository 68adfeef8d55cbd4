/* `berth runs logs`: what a run said.
 *
 * What is there is asked for in pages. Following is a stream of records (docs/events.md), each with
 * the offset after it: a connection that breaks, or a daemon that is restarted, is asked again from
 * the last offset that was printed, so that nothing is left out or printed twice. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cmd_runs.h"
#include "cli/output.h"
#include "client/flow.h"
#include "codec/sse.h"

#define PAGE_BYTES  262144
#define RECORD_MAX  ((size_t)4 << 20)
#define SILENCE_MS  (60 * 1000) /* the daemon says something at least every 15 seconds */
#define FIRST_PAUSE 50
#define LAST_PAUSE  1000
#define OUTAGE_MAX  (60 * 1000) /* a daemon that is gone for longer is gone */

struct tail {
        struct cli *c;
        struct berth *api;
        const char *run_id;
        int64_t offset; /* after what is printed */
        bool over;
        char status[32];  /* of the run */
        bool is_readable; /* as a transcript, and not byte by byte */
        bool is_mid_line; /* a text was printed without its end */
        int64_t told;     /* the offset after the part of the transcript that is printed */

        /* following */
        struct flow flow;
        struct sse_decoder sse;
        struct buf refusal;    /* the answer when it is no stream */
        int64_t lost_since_ms; /* 0: it answers */
        int pause_ms;
};

/* -- Printing --------------------------------------------------------------------------------- */

/* As it is in a pipe; on a terminal nothing that steers it. */
static void put_text(FILE *f, const char *text, size_t n)
{
        CLEAN(buf_done) struct buf plain = BUF_INIT;

        if (isatty(fileno(f))) {
                out_plain(&plain, text, n);
                text = buf_str(&plain);
                n = plain.len;
        }
        (void)fwrite(text, 1, n, f);
}

static void put_record(const char *line, size_t n)
{
        json_t *record = NULL, *chunk;

        if (json_parse_lenient(line, n, &record, NULL) < 0)
                return;
        const char *stream = json_get_string(record, "stream");
        chunk = json_object_get(record, "chunk");
        if (stream && json_is_string(chunk)) {
                FILE *f = streq(stream, "stdout") ? stdout : stderr;
                const char *text = json_string_value(chunk);
                size_t len = json_string_length(chunk);

                put_text(f, text, len);
                if (streq(stream, "system") && len > 0 && text[len - 1] != '\n')
                        (void)putc_unlocked('\n', f);
                (void)fflush(f);
        }
        json_decref(record);
}

static void put_lines(const struct tail *t, const char *at, size_t left)
{
        if (t->c->json) {
                put_text(stdout, at, left);
                (void)fflush(stdout);
                return;
        }
        while (left > 0) {
                const char *end = memchr(at, '\n', left);
                size_t n = end ? (size_t)(end - at) : left;

                put_record(at, n);
                n += end != NULL;
                at += n;
                left -= n;
        }
}

/* -- The transcript --------------------------------------------------------------------------- */

static void end_text(struct tail *t)
{
        if (t->is_mid_line)
                (void)putc_unlocked('\n', stdout);
        t->is_mid_line = false;
}

/* Each line after `indent`. */
static void put_indented(struct tail *t, const char *indent, const char *text)
{
        end_text(t);
        while (*text) {
                size_t n = strcspn(text, "\n");

                (void)fputs(indent, stdout);
                put_text(stdout, text, n);
                (void)putc_unlocked('\n', stdout);
                text += n + (text[n] == '\n');
        }
}

/* What a tool was given, in a line: a command as it is, anything else as JSON. */
static const char *input_text(struct cli *c, const json_t *input)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const char *command = json_get_string(input, "command");

        if (command || json_is_string(input))
                return command ? command : json_string_value(input);
        if (input)
                json_put(&text, input);
        return cli_printf(c, "%s", buf_str(&text));
}

static void put_told(struct tail *t, const json_t *record)
{
        const char *kind = cli_text(record, "kind"), *text = cli_text(record, "text");
        const char *stream = json_get_string(record, "stream");
        const json_t *tokens = json_object_get(record, "tokens");

        if (streq(kind, "output") && stream && !streq(stream, "stdout")) {
                put_text(stderr, text, strlen(text));
                if (streq(stream, "system") && *text && text[strlen(text) - 1] != '\n')
                        (void)putc_unlocked('\n', stderr);
        } else if (streq(kind, "delta")) {
                put_text(stdout, text, strlen(text));
                t->is_mid_line = *text && text[strlen(text) - 1] != '\n';
        } else if (streq(kind, "thinking")) {
                put_indented(t, "~ ", text);
        } else if (streq(kind, "plan")) {
                put_indented(t, "# ", text);
        } else if (streq(kind, "tool")) {
                put_indented(t, "> ",
                             cli_printf(t->c, "%s: %s", cli_text(record, "name"),
                                        input_text(t->c, json_object_get(record, "input"))));
        } else if (streq(kind, "result")) {
                put_indented(t, json_is_true(json_object_get(record, "failed")) ? "  ! " : "  | ",
                             text);
        } else if (streq(kind, "usage")) {
                put_indented(
                        t, "",
                        cli_printf(
                                t->c, "[tokens: %lld in, %lld cached, %lld out]",
                                (long long)json_integer_value(json_object_get(tokens, "input")),
                                (long long)json_integer_value(json_object_get(tokens, "cached")),
                                (long long)json_integer_value(json_object_get(tokens, "output"))));
        } else {
                put_indented(t, streq(kind, "error") ? "error: " : "", text);
        }
}

/* Print what is new; *ret_more: there may be more. */
static int tell_page(struct tail *t, bool *ret_more, struct err *err)
{
        json_t *page, *record;
        size_t i;
        int r = cli_call(t->c, "GET",
                         cli_printf(t->c, "/api/heartbeat-runs/%s/transcript?offset=%lld",
                                    t->run_id, (long long)t->told),
                         NULL, &page, err);

        *ret_more = false;
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        t->is_readable = json_is_true(json_object_get(page, "readable"));
        if (!t->is_readable)
                return 0;
        json_array_foreach(json_object_get(page, "records"), i, record) put_told(t, record);
        const json_t *next = json_object_get(page, "nextOffset");
        *ret_more =
                json_integer_value(next) > t->told && !json_is_true(json_object_get(page, "eof"));
        if (next)
                t->told = json_integer_value(next);
        if (!*ret_more)
                end_text(t);
        (void)fflush(stdout);
        (void)fflush(stderr);
        return 0;
}

static int tell(struct tail *t, struct err *err)
{
        bool more = true;
        int r = 0;

        while (r >= 0 && more) {
                struct arena kept = t->c->arena;

                arena_init(&t->c->arena);
                r = tell_page(t, &more, err);
                arena_done(&t->c->arena);
                t->c->arena = kept;
        }
        return r;
}

/* -- What is there ---------------------------------------------------------------------------- */

/* One page; `over` at the end of what there is. A run that never began has no log. */
static int print_page(struct tail *t, struct err *err)
{
        json_t *page;
        int r = cli_call(t->c, "GET",
                         cli_printf(t->c, "/api/heartbeat-runs/%s/log?offset=%lld&limitBytes=%d",
                                    t->run_id, (long long)t->offset, PAGE_BYTES),
                         NULL, &page, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                t->over = true;
                return 0;
        }
        if (r < 0)
                return r;
        const json_t *content = json_object_get(page, "content");
        const json_t *next = json_object_get(page, "nextOffset");
        put_lines(t, json_string_value(content), json_string_length(content));
        t->offset = json_integer_value(next);
        t->over = !next || json_string_length(content) == 0;
        return 0;
}

/* Print the log of a run, as far as it is there. */
static int runs_print_log(struct cli *c, const char *run_id, bool raw, struct err *err)
{
        struct tail t = { .c = c, .run_id = run_id };
        struct berth *api;
        int r = cli_connect(c, &api, err); /* what it keeps is not the page's */

        if (r >= 0 && !raw && !c->json)
                r = tell(&t, err);
        t.over = t.is_readable;
        while (r >= 0 && !t.over) {
                struct arena kept = c->arena;

                arena_init(&c->arena);
                r = print_page(&t, err);
                arena_done(&c->arena);
                c->arena = kept;
        }
        return r;
}

/* -- Following -------------------------------------------------------------------------------- */

static int take_event(void *ctx, const struct sse_event *event, struct err *err)
{
        static const char *const ends[] = { "succeeded", "failed", "cancelled", "timed_out" };
        struct tail *t = ctx;
        json_t *end = NULL;

        if (streq(event->event, "log")) {
                t->offset = strtoll(event->id, NULL, 10);
                if (t->is_readable)
                        return tell(t, err);
                put_lines(t, event->data, event->len);
                if (t->c->json)
                        put_lines(t, "\n", 1);
        } else if (streq(event->event, "end") &&
                   json_parse(event->data, event->len, &end, NULL) >= 0) {
                /* One that does not say how the run ended is no more than the end of the stream. */
                (void)snprintf(t->status, sizeof(t->status), "%s", cli_text(end, "status"));
                for (size_t i = 0; i < ARRAY_LEN(ends); i++)
                        t->over = t->over || streq(t->status, ends[i]);
                json_decref(end);
                return t->is_readable ? tell(t, err) : 0;
        }
        return 0;
}

static int take_bytes(void *arg, const struct http_answer *answer, const char *data, size_t len,
                      struct err *err)
{
        struct tail *t = arg;

        if (answer->status != 200 || !answer->is_event_stream) {
                buf_append(&t->refusal, data, len);
                return 0;
        }
        t->lost_since_ms = 0;
        return sse_feed(&t->sse, data, len, err);
}

static int read_once(struct tail *t, struct err *err)
{
        char path[128], last[24];
        struct http_call call = {
                .method = "GET",
                .path = path,
                .accept = "text/event-stream",
                .last_event_id = last,
        };
        struct berth_response response;
        struct berth_error error;

        (void)snprintf(path, sizeof(path), "/api/heartbeat-runs/%s/log?follow=1", t->run_id);
        (void)snprintf(last, sizeof(last), "%lld", (long long)t->offset);
        buf_clear(&t->refusal);
        sse_decoder_init(&t->sse, RECORD_MAX, take_event, t);
        int r = flow_start(&t->flow, t->api, &call, take_bytes, t, err);
        while (r == 0) {
                struct pollfd p = { .fd = t->flow.fd, .events = flow_events(&t->flow) };
                int n = poll(&p, 1, SILENCE_MS);

                if (n == 0)
                        r = err_set(err, ERR_UNCERTAIN, "the daemon says nothing any more");
                if (n > 0)
                        r = flow_step(&t->flow, err);
        }
        /* A refusal of the daemon is final; a daemon that stops ends its streams, and comes back.
         */
        if (r > 0) {
                response = (struct berth_response){ .status = flow_answer(&t->flow)->status,
                                                    .body = (char *)buf_str(&t->refusal),
                                                    .len = t->refusal.len };
                if (response.status >= 400 && berth_refusal(&response, &error) < 0)
                        r = cli_api_error(&error, err);
                else
                        r = t->over ? 0 : err_set(err, ERR_UNCERTAIN, "the daemon stopped");
        }
        sse_decoder_done(&t->sse); /* with what was left unfinished */
        flow_close(&t->flow);
        return r;
}

/* No daemon there, an answer that broke off, or a daemon that is stopping: not a refusal. */
static bool is_outage(int code)
{
        return code == ERR_UNREACHABLE || code == ERR_UNCERTAIN || code == ERR_IO ||
               code == ERR_BUSY || code == ERR_PROVIDER || code == ERR_TIMEOUT;
}

/* One that is being restarted comes back. */
static int wait_for_daemon(struct tail *t, int code, struct err *err)
{
        int64_t now = clock_mono_ms();

        if (!is_outage(code))
                return code;
        if (!t->lost_since_ms) {
                t->lost_since_ms = now;
                t->pause_ms = FIRST_PAUSE;
        }
        if (now - t->lost_since_ms > OUTAGE_MAX)
                return code;
        err_clear(err);
        (void)poll(NULL, 0, t->pause_ms);
        t->pause_ms = MIN(2 * t->pause_ms, LAST_PAUSE);
        return 0;
}

/* Whether the run's adapter has a transcript is asked once, before the log begins. */
static int look_for_transcript(struct tail *t, struct err *err)
{
        json_t *run, *adapter;
        int r = cli_call(t->c, "GET", cli_printf(t->c, "/api/heartbeat-runs/%s", t->run_id), NULL,
                         &run, err);

        if (r < 0)
                return r;
        const char *type = json_get_string(run, "adapterType");
        if (type && cli_call(t->c, "GET", cli_printf(t->c, "/api/adapters/%s", type), NULL,
                             &adapter, NULL) >= 0)
                t->is_readable = json_is_true(json_object_get(adapter, "hasTranscript"));
        return 0;
}

/* *ret_status is the run's status at the end; the arena's. */
static int runs_follow_log(struct cli *c, const char *run_id, bool raw, const char **ret_status,
                           struct err *err)
{
        struct tail t = { .c = c, .run_id = run_id, .flow = FLOW_INIT };
        int r = cli_connect(c, &t.api, err);

        if (r >= 0 && !raw && !c->json)
                r = look_for_transcript(&t, err);

        while (r >= 0 && !t.over) {
                r = read_once(&t, err);
                if (r < 0)
                        r = wait_for_daemon(&t, r, err);
        }
        buf_done(&t.refusal);
        if (r >= 0)
                *ret_status = cli_printf(c, "%s", t.status);
        return r;
}

/* On standard error: how it ended, and why, then `more`. */
static void runs_say_end(struct cli *c, const char *run_id, const char *status, const char *more)
{
        json_t *run = NULL;
        const char *error = "", *advice = "";

        if (cli_call(c, "GET", cli_printf(c, "/api/heartbeat-runs/%s", run_id), NULL, &run, NULL) >=
            0)
                error = cli_text(run, "error");
        out_note("run %s %s%s%s%s", run_id, status, *error ? ": " : "", error, more);
        if (run)
                advice = cli_text(run, "advice");
        if (*advice)
                out_note("%s", advice);
}

static int runs_exit_status(const char *run_status)
{
        return streq(run_status, "succeeded") ? 0 : 1;
}

int runs_watch(struct cli *c, const char *run_id, struct err *err)
{
        const char *status;
        int r;

        out_note("run %s", run_id);
        r = runs_follow_log(c, run_id, false, &status, err);
        if (r < 0)
                return r;
        runs_say_end(c, run_id, status, cli_printf(c, "; `berth runs show %s` says more", run_id));
        return runs_exit_status(status);
}

/* -- The command ------------------------------------------------------------------------------ */

int cmd_runs_logs(struct cli *c, const struct args *a, struct err *err)
{
        const char *status;
        json_t *run;
        int r = cli_find(c, &kind_run, a->words[0], &run, err);

        if (r >= 0 && !args_flag(a, "follow"))
                return runs_print_log(c, cli_text(run, "id"), args_flag(a, "raw"), err);
        if (r >= 0)
                r = runs_follow_log(c, cli_text(run, "id"), args_flag(a, "raw"), &status, err);
        if (r < 0)
                return r;
        if (!c->json)
                runs_say_end(c, cli_text(run, "id"), status, "");
        return runs_exit_status(status);
}
