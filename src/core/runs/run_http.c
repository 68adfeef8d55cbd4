/* Agents that are a web service: the run is one request, made from this machine. After a crash it
 * is unknown whether the request arrived. So the run records first that it is being made
 * (`spawned_at`), and it is never made again: neither under this run nor under another. The
 * receiver gets the run's id as idempotency key. */
#define _GNU_SOURCE
#include <strings.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/runs/run_internal.h"
#include "secret/transfer.h"

#define CONNECT_MS 10000
#define DEFAULT_MS 60000
#define KEY_HEADER "Idempotency-Key"

#define RECORD_TRIES    24
#define RECORD_FIRST_MS 100
#define RECORD_LAST_MS  30000

struct call {
        struct run_task *t;
        struct transfer transfer;
        struct transfer_header *headers;
};

static const char *text_of(struct run_task *t, const json_t *value)
{
        return json_is_string(value) ? json_string_value(value)
                                     : json_to_arena(t->op->arena, value);
}

static int describe_request(struct call *c, struct err *err)
{
        struct run_task *t = c->t;
        const json_t *request = t->command.request;
        json_t *headers = json_get_object(request, "headers"), *value;
        const json_t *body = json_object_get(request, "body");
        const char *method = json_get_string(request, "method"), *name;
        int64_t limit = t->command.timeout_ms > 0 ? t->command.timeout_ms : DEFAULT_MS;

        c->transfer = (struct transfer){
                .method = method ? method : "POST",
                .url = json_get_string(request, "url"),
                .connect_ms = MIN(limit, CONNECT_MS),
                .total_ms = limit,
                .once = true,
                .public_only = true,
                .private_hosts = t->rt->settings.private_hosts,
        };
        if (!c->transfer.url)
                return err_set(err, ERR_UNPROCESSABLE, "HTTP adapter missing url");
        if (body && !json_is_null(body)) {
                c->transfer.body = text_of(t, body);
                c->transfer.body_len = strlen(c->transfer.body);
        }
        c->headers =
                arena_alloc(t->op->arena, (json_object_size(headers) + 1) * sizeof(*c->headers));
        json_object_foreach(headers, name, value)
        {
                if (strcasecmp(name, KEY_HEADER) == 0)
                        continue; /* one key for all runs would make them look like one request */
                c->headers[c->transfer.n_headers++] =
                        (struct transfer_header){ name, text_of(t, value) };
        }
        c->headers[c->transfer.n_headers++] = (struct transfer_header){ KEY_HEADER, t->run.id };
        c->transfer.headers = c->headers;
        return 0;
}

/* The adapter reads the answer as the output of a command. */
static int judge_answer(struct run_task *t, const struct transfer_answer *answer, bool timed_out,
                        struct run_outcome *o, struct err *err)
{
        struct adapter_result *result = arena_new(t->op->arena, struct adapter_result);
        struct adapter_exit how = { .code = answer->status ? answer->status : -1,
                                    .timed_out = timed_out };
        struct adapter_parser *p;
        int r = adapter_parser_new(t->rt, &t->input, &t->command, &p, err);

        if (r < 0)
                return r;
        if (answer->len)
                adapter_parser_feed(p, false, answer->room.data, answer->len);
        adapter_parser_finish(p, &how, t->op->arena, result);
        adapter_parser_free(p);
        *o = (struct run_outcome){
                .status = timed_out               ? RUN_TIMED_OUT
                          : result->error_message ? RUN_FAILED
                                                  : RUN_SUCCEEDED,
                .error = result->error_message,
                .exit_code = result->exit_code,
                .adapter = result,
                .timed_out = timed_out,
        };
        if (o->error)
                o->error_code = result->error_code ? result->error_code : RUN_FAILED_CODE;
        return 0;
}

static int make_request(struct run_task *t, struct run_outcome *o, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct call c = { .t = t };
        int64_t began = clock_mono_ms();
        bool timed_out;
        int r = describe_request(&c, err);

        if (r < 0)
                return r;
        /* From here on the request may have arrived. */
        t->run.spawned_at = clock_now_us();
        r = run_step(t, STEP_EXECUTING, STEP_EXECUTING, NULL, err);
        if (r >= 0 && run_is_terminal(&t->run))
                r = err_set(err, ERR_CANCELLED, RUN_CANCELLED_TEXT);
        if (r < 0)
                return r;
        FAULT("run.http.before");
        r = transfer_run(t->op, &c.transfer, &answer, err);
        FAULT("run.http.after");
        if (r == ERR_UNREACHABLE)
                log_info("a request of a run got no answer", LOG_S("run", t->run.id),
                         LOG_S("error", err->msg));
        if (r < 0 && r != ERR_UNREACHABLE && r != ERR_TIMEOUT)
                return r;
        timed_out = r == ERR_TIMEOUT || (r < 0 && clock_mono_ms() - began >= c.transfer.total_ms);
        err_clear(err);
        return judge_answer(t, &answer, timed_out, o, err);
}

/* Only this job knows the answer, and a later recovery cannot: so it tries for a while to record
 * it. */
static int record_outcome(struct run_task *t, const struct run_outcome *outcome, struct err *err)
{
        int64_t pause_ms = RECORD_FIRST_MS;
        int r = run_conclude(t, STEP_EXECUTING, outcome, err);

        for (unsigned i = 1; i < RECORD_TRIES && r < 0 && r != ERR_CONFLICT; i++) {
                if (i == 1)
                        log_warn("what a request of a run led to cannot be recorded yet",
                                 LOG_S("run", t->run.id), LOG_S("error", err->msg));
                if (op_wait_fd(t->op, -1, 0, pause_ms, NULL) < 0)
                        break;
                pause_ms = MIN(2 * pause_ms, RECORD_LAST_MS);
                err_clear(err);
                r = run_conclude(t, STEP_EXECUTING, outcome, err);
        }
        return r;
}

enum run_next run_http(struct op *op, struct runtime *rt, const char *id, struct run_result *ret)
{
        CLEAN(err_done) struct err err = { 0 };
        struct run_outcome outcome;
        struct run_task t;
        int r = run_task_load(op, rt, id, &t, &err);

        if (r < 0 || !streq(t.run.step, STEP_EXECUTING) || t.run.spawned_at)
                return r < 0 && r != ERR_NOT_FOUND ? RUN_NEXT_AGAIN : RUN_NEXT_DONE;
        if (run_is_terminal(&t.run)) /* cancelled while it waited for its turn */
                r = err_set(&err, ERR_CANCELLED, RUN_CANCELLED_TEXT);
        run_find_cwd(&t);
        if (r >= 0)
                r = run_build(&t, false, &err);
        if (r >= 0)
                r = make_request(&t, &outcome, &err);
        if (r == ERR_CANCELLED && run_task_refresh(&t, NULL) >= 0 && !run_is_terminal(&t.run))
                return RUN_NEXT_DONE; /* the daemon is stopping */
        if (r < 0)
                outcome = run_failure(&t, &err);
        t.run.exited_at = clock_now_us();
        err_clear(&err);
        return record_outcome(&t, &outcome, &err) < 0 ? RUN_NEXT_AGAIN : run_release(&t);
}
