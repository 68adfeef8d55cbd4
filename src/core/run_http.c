/* Agents that are a web service: the run is one request, made from this machine. Nobody can tell
 * after a crash whether it arrived, so it is recorded as begun before it is made, and never made
 * again under the same run. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/run_internal.h"
#include "secret/transfer.h"

#define CONNECT_MS     10000
#define DEFAULT_MS     60000
#define BODY_SHOWN_MAX 8192

struct call {
        struct run_task *t;
        struct transfer transfer;
        struct sigv4_header *headers;
};

static const char *text_of(struct run_task *t, const json_t *value)
{
        return json_is_string(value) ? json_string_value(value) : json_to_arena(t->op->arena, value);
}

static int describe(struct call *c, struct err *err)
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
        };
        if (!c->transfer.url)
                return err_set(err, ERR_UNPROCESSABLE, "HTTP adapter missing url");
        if (body && !json_is_null(body)) {
                c->transfer.body = text_of(t, body);
                c->transfer.body_len = strlen(c->transfer.body);
        }
        c->headers = arena_alloc(t->op->arena,
                                 (json_object_size(headers) + 1) * sizeof(*c->headers));
        json_object_foreach(headers, name, value)
        {
                c->headers[c->transfer.n_headers++] = (struct sigv4_header){ name,
                                                                             text_of(t, value) };
        }
        c->transfer.headers = c->headers;
        return 0;
}

static void judge(struct run_task *t, const struct transfer_answer *answer, struct run_outcome *o)
{
        size_t shown = MIN(answer->len, (size_t)BODY_SHOWN_MAX);
        bool ok = answer->status >= 200 && answer->status < 300;
        CLEAN(buf_done) struct buf quoted = BUF_INIT;
        struct jw w;

        jw_init(&w, &quoted);
        jw_object(&w);
        jw_kint(&w, "status", answer->status);
        jw_key(&w, "body");
        jw_string_n(&w, answer->room.data, shown);
        jw_object_end(&w);
        *o = (struct run_outcome){
                .status = ok ? RUN_SUCCEEDED : RUN_FAILED,
                .exit_code = ok ? 0 : -1,
                .result = run_parse(t->op->arena, buf_str(&quoted)),
        };
        if (!ok) {
                o->error_code = RUN_FAILED_CODE;
                o->error = arena_printf(t->op->arena, "HTTP invoke failed with status %d",
                                        answer->status);
        }
}

static int call(struct run_task *t, struct run_outcome *o, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct call c = { .t = t };
        int r = describe(&c, err);

        if (r < 0)
                return r;
        FAULT("run.http.before");
        r = transfer_run(t->op, &c.transfer, &answer, err);
        FAULT("run.http.after");
        if (r >= 0)
                judge(t, &answer, o);
        return r;
}

static enum run_next work(struct op *op, struct runtime *rt, const char *id)
{
        CLEAN(err_done) struct err err = { 0 };
        struct run_outcome outcome;
        struct run_task t;
        int r = run_task_load(op, rt, id, &t, &err);

        if (r < 0 || !streq(t.run.step, STEP_EXECUTING))
                return r < 0 && r != ERR_NOT_FOUND ? RUN_NEXT_AGAIN : RUN_NEXT_DONE;
        r = run_task_lease(&t, &err);
        run_find_cwd(&t);
        if (r >= 0)
                r = run_build(&t, false, &err);
        if (r >= 0)
                r = call(&t, &outcome, &err);
        if (r == ERR_CANCELLED && run_task_refresh(&t, NULL) >= 0 && !run_is_terminal(&t.run))
                return RUN_NEXT_DONE; /* the daemon is stopping */
        if (r < 0) {
                outcome = run_failure(&t, &err);
                outcome.timed_out = r == ERR_TIMEOUT;
        }
        t.run.exited_at = clock_now_us();
        err_clear(&err);
        return run_conclude(&t, STEP_EXECUTING, &outcome, &err) < 0 ? RUN_NEXT_AGAIN
                                                                    : run_release(&t);
}

void run_http(struct op *op, struct runtime *rt, const char *id, struct run_result *ret)
{
        ret->next = work(op, rt, id);
}
