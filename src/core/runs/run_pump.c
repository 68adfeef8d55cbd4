/* While the command of a run works: its output goes into the log, and each new line is checked for
 * steps of the agent, which become events of the run, and for the last word of an agent that may
 * live on after it. A last word is not recorded: it is in the output, and found again after a
 * restart. The request that the command end is recorded before it is made. */
#include <errno.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/utf8.h"
#include "core/adapters/adapter_internal.h"
#include "core/exec/exec_output.h"
#include "core/runs/run_internal.h"
#include "store/run_commands.h"
#include "store/run_events.h"

#define LOOK_SIZE     ((size_t)64 << 10)
#define LOOK_MAX      ((int64_t)4 << 20) /* at a time */
#define STEPS_MAX     500                /* of a run */
#define STEP_TEXT_MAX ((size_t)4 << 10)
#define MORE_TEXT     "there were more steps; the transcript has them"

/* -- Steps ------------------------------------------------------------------------------------- */

/* Steps that were found and are not recorded yet. Each says where in the output its line ends, so
 * that a later look, of another daemon too, goes on there. */
struct finding {
        struct run_task *t;
        struct run_word *w;
        json_t *steps;
};

static int count_step(void *ctx, const struct run_event *row)
{
        struct run_word *w = ctx;
        CLEAN(json_decrefp) json_t *payload = NULL;
        const char *execution;

        if (!str_starts(row->event_type, "adapter.") || !row->payload ||
            json_parse(row->payload, strlen(row->payload), &payload, NULL) < 0)
                return 0;
        execution = json_get_string(payload, "executionId");
        w->steps += execution != NULL; /* adapter.invoke has none */
        if (execution && streq(execution, w->execution))
                w->line = w->at = json_integer_value(json_object_get(payload, "offset"));
        return 0;
}

/* The transcript has the agent's words whole. */
static void cut_step(json_t *step)
{
        CLEAN(cleanup_free) char *input = json_to_text(json_object_get(step, "input"));
        const char *text = json_get_string(step, "text");
        size_t max = STEP_TEXT_MAX;

        if ((text && strlen(text) > max) || strlen(input) > max)
                json_object_set_new(step, "truncated", json_true());
        if (text && strlen(text) > max)
                json_object_set_new(step, "text",
                                    json_stringn(text, max - utf8_unfinished(text, max)));
        if (strlen(input) > max)
                json_object_del(step, "input");
}

static void take_steps(struct finding *f, const char *line, size_t len, int64_t end)
{
        CLEAN(json_decrefp) json_t *steps = json_array();
        size_t i;
        json_t *step;

        adapter_steps(f->w->type, line, len, steps);
        json_array_foreach(steps, i, step)
        {
                int64_t n = f->w->steps + (int64_t)json_array_size(f->steps);

                if (n >= STEPS_MAX)
                        return;
                if (n == STEPS_MAX - 1) {
                        json_object_clear(step);
                        json_object_set_new(step, "event", json_string("adapter.more"));
                        json_object_set_new(step, "text", json_string(MORE_TEXT));
                }
                cut_step(step);
                json_object_set_new(step, "executionId", json_string(f->w->execution));
                json_object_set_new(step, "offset", json_integer(end + 1));
                json_array_append(f->steps, step);
        }
}

static int add_steps(struct db *db, void *arg, struct err *err)
{
        const struct finding *f = arg;
        const struct run_task *t = f->t;
        size_t i;
        json_t *step;
        int r = 0;

        json_array_foreach(f->steps, i, step)
        {
                const char *text = json_get_string(step, "name");
                json_t *payload = json_copy(step);

                if (!text)
                        text = json_get_string(step, "text");
                json_object_del(payload, "event");
                r = run_event_add(db, t->rt, &t->run, json_get_string(step, "event"),
                                  json_is_true(json_object_get(step, "failed")) ? "warn" : "info",
                                  adapter_first_line(t->op->arena, text ? text : ""), payload, err);
                if (r < 0)
                        return r;
        }
        return r;
}

static int record_steps(struct finding *f, struct err *err)
{
        int r;

        if (json_array_size(f->steps) == 0)
                return 0;
        FAULT("run.steps.before");
        r = store_write(f->t->op, f->t->rt->store, add_steps, f, err);
        FAULT("run.steps.after");
        if (r >= 0)
                f->w->steps += (int64_t)json_array_size(f->steps);
        json_array_clear(f->steps);
        return r;
}

/* -- Looking at lines -------------------------------------------------------------------------- */

static int begin_word(struct run_task *t, const char *type, struct run_word *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct adapter_descriptor *d = adapter_find(type);
        struct run_word w = { 0 };
        int r = 0;

        memcpy(w.execution, t->run.execution_id, UUID_LEN + 1);
        w.has_last = d && adapter_has_last_word(d->type);
        w.has_steps = d && adapter_has_steps(d->type);
        if (w.has_last || w.has_steps)
                w.type = d->type;
        if (w.has_steps)
                r = store_read_begin(t->op, t->rt->store, &db, err);
        if (r >= 0 && w.has_steps)
                r = run_events_list(db, t->run.id, 0, 0, t->op->arena, count_step, &w, err);
        if (r >= 0)
                *ret = w;
        return r;
}

/* Check a line that ends at `end`. `block` holds the output from `from` on; a line that began
 * before is read again. */
static int look_at_line(struct finding *f, int fd, const char *block, int64_t from, int64_t end,
                        struct err *err)
{
        CLEAN(cleanup_free) char *whole = NULL;
        struct run_word *w = f->w;
        size_t len = (size_t)(end - w->line);
        const char *line = block + (w->line - from);

        if (end - w->line > (int64_t)ADAPTER_LINE_MAX)
                return 0;
        if (w->line < from) {
                whole = xcalloc(1, len + 1);
                if (pread(fd, whole, len, (off_t)w->line) != (ssize_t)len)
                        return err_sys(err, ERR_IO, errno, "read a run's output");
                line = whole;
        }
        if (w->has_steps)
                take_steps(f, line, len, end);
        if (w->has_last && !w->said) {
                int64_t wanted = adapter_last_word(w->type, line, len);

                w->times = wanted ? w->times + 1 : 0;
                w->said = wanted && w->times >= wanted;
        }
        return 0;
}

static bool is_done(const struct run_word *w)
{
        return !w->type || (w->said && !w->has_steps);
}

static int look_at_block(struct finding *f, int fd, const char *block, size_t len, struct err *err)
{
        struct run_word *w = f->w;
        int64_t from = w->at;
        int r = 0;

        while (r >= 0 && !is_done(w) && w->at < from + (int64_t)len) {
                const char *at = block + (w->at - from);
                const char *end = memchr(at, '\n', len - (size_t)(w->at - from));

                if (!end) {
                        w->at = from + (int64_t)len;
                        break;
                }
                r = look_at_line(f, fd, block, from, from + (end - block), err);
                w->line = w->at = from + (end - block) + 1;
        }
        return r;
}

/* 1: there is more than was looked at. */
static int look_at_output(struct run_task *t, struct run_word *w, struct err *err)
{
        CLEAN(cleanup_free) char *block = NULL;
        CLEAN(cleanup_fd) int fd = -1;
        CLEAN(json_decrefp) json_t *steps = json_array();
        struct finding f = { .t = t, .w = w, .steps = steps };
        struct run_word before = *w;
        int64_t until = w->at + LOOK_MAX;
        ssize_t n = 1;
        int r;

        if (is_done(w))
                return 0;
        r = exec_open_output(t->rt, w->execution, false, &fd, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        block = xcalloc(1, LOOK_SIZE);
        while (r >= 0 && n > 0 && !is_done(w) && w->at < until) {
                w->at = (int64_t)exec_output_from(fd, (uint64_t)w->at);
                n = pread(fd, block, LOOK_SIZE, (off_t)w->at);
                if (n > 0)
                        r = look_at_block(&f, fd, block, (size_t)n, err);
                if (n < 0)
                        r = err_sys(err, ERR_IO, errno, "read a run's output");
        }
        if (r >= 0)
                r = record_steps(&f, err);
        if (r < 0) { /* what was found is looked for again */
                *w = before;
                return r;
        }
        return n > 0 && !is_done(w);
}

int run_note_steps(struct run_task *t, struct err *err)
{
        struct run_word w;
        int r = begin_word(t, t->input.type, &w, err);

        w.has_last = false;
        do {
                if (r >= 0 && w.has_steps)
                        r = look_at_output(t, &w, err);
                if (r >= 0 && op_check(t->op, err) < 0)
                        r = ERR_CANCELLED;
        } while (r > 0);
        return r;
}

/* -- The last word ----------------------------------------------------------------------------- */

struct asking {
        struct run_task *t;
        const char *key;
};

static int note_asking(struct db *db, void *arg, struct err *err)
{
        const struct asking *q = arg;
        const struct run_task *t = q->t;
        int r = run_commands_ask_end(db, t->run.id, q->key, clock_now_us(), err);

        if (r <= 0)
                return r;
        return run_event_add(db, t->rt, &t->run, "lifecycle", "info",
                             "the agent has said its result and lives on; it is asked to end", NULL,
                             err);
}

static int ask_to_end(struct run_task *t, struct err *err)
{
        struct execution row;
        struct asking q = { .t = t };
        int r = run_task_execution(t, NULL, &row, err);

        if (r < 0)
                return r;
        q.key = row.idempotency_key;
        FAULT("run.ask.before");
        r = store_write(t->op, t->rt->store, note_asking, &q, err);
        FAULT("run.ask.after");
        return r;
}

static int look_for_words(struct run_task *t, struct run_pump *pump, struct err *err)
{
        int r = 0;

        if (!streq(pump->word.execution, t->run.execution_id)) {
                struct execution row;

                r = run_task_execution(t, NULL, &row, err);
                if (r >= 0)
                        r = run_kept_get(t, row.idempotency_key, err);
                if (r >= 0)
                        r = begin_word(t, r > 0 ? t->input.type : "", &pump->word, err);
        }
        if (r >= 0)
                r = look_at_output(t, &pump->word, err);
        pump->more = pump->more || r > 0;
        if (r >= 0 && pump->ask && pump->word.said) {
                r = ask_to_end(t, err);
                pump->asked = r >= 0;
        }
        return r;
}

/* -- The log ----------------------------------------------------------------------------------- */

void run_set_output(struct run *run, const struct run_log_state *state)
{
        run->last_output_at = state->last_at;
        run->first_output_at = state->first_at;
        run->last_output_seq = state->records;
        run->last_output_stream = state->stream;
        run->last_output_bytes = run->log_bytes = state->bytes;
}

static int note_output(struct db *db, void *arg, struct err *err)
{
        return runs_note_output(db, arg, err);
}

static int bring_in(struct run_task *t, struct run_pump *pump, struct err *err)
{
        struct run_log_state state;
        struct run_log *log;
        int r = run_log_open(t->rt, &t->run, &log, err);

        if (r < 0)
                return r;
        r = run_log_pump(log, t->run.execution_id, false, err);
        pump->more = r > 0;
        run_log_state(log, &state);
        run_log_close(log);
        run_set_output(&t->run, &state);
        if (pump->view) {
                t->run.process_pid = pump->view->pid;
                t->run.process_started_at = pump->view->started_at;
        }
        if (r >= 0 && pump->view)
                r = store_write(t->op, t->rt->store, note_output, &t->run, err);
        return r;
}

void run_pump(struct op *op, struct runtime *rt, const char *id, struct run_pump *pump)
{
        CLEAN(err_done) struct err err = { 0 };
        struct run_task t;
        int r = run_task_load(op, rt, id, &t, &err);

        pump->more = pump->asked = false;
        if (r < 0 || !t.run.execution_id)
                return;
        r = bring_in(&t, pump, &err);
        if (r >= 0)
                r = look_for_words(&t, pump, &err);
        if (r < 0 && r != ERR_CANCELLED)
                log_warn("could not bring in the output of a run", LOG_S("run", id),
                         LOG_S("error", err.msg));
}
