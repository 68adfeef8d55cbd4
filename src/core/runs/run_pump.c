/* While the command of a run works: its output goes into the log, and each new line is checked for
 * the last word of an agent that may live on after it. A last word is not recorded: it is in the
 * output, and found again after a restart. The request that the command end is recorded before it
 * is made. */
#include <errno.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/exec/exec_output.h"
#include "core/runs/run_internal.h"
#include "store/run_commands.h"

#define LOOK_SIZE ((size_t)64 << 10)
#define LOOK_MAX  ((int64_t)4 << 20) /* at a time */

/* -- The last word ----------------------------------------------------------------------------- */

/* The adapter type that the command was started with; NULL in *ret_type: there is nothing to look
 * for. */
static int find_type(struct run_task *t, const char **ret_type, struct err *err)
{
        struct execution row;
        const struct adapter_descriptor *d;
        int r = run_task_execution(t, NULL, &row, err);

        *ret_type = NULL;
        if (r >= 0)
                r = run_kept_get(t, row.idempotency_key, err);
        if (r <= 0)
                return r;
        d = adapter_find(t->input.type);
        if (d && adapter_has_last_word(d->type))
                *ret_type = d->type;
        return 0;
}

/* Check a line that ends at `end`. `block` holds the output from `from` on; a line that began
 * before is read again. */
static int look_at_line(struct run_word *w, int fd, const char *block, int64_t from, int64_t end,
                        struct err *err)
{
        CLEAN(cleanup_free) char *whole = NULL;
        size_t len = (size_t)(end - w->line);
        const char *line = block + (w->line - from);
        int64_t wanted;

        if (end - w->line > (int64_t)ADAPTER_LINE_MAX)
                return 0;
        if (w->line < from) {
                whole = xcalloc(1, len + 1);
                if (pread(fd, whole, len, (off_t)w->line) != (ssize_t)len)
                        return err_sys(err, ERR_IO, errno, "read a run's output");
                line = whole;
        }
        wanted = adapter_last_word(w->type, line, len);
        w->times = wanted ? w->times + 1 : 0;
        w->said = wanted && w->times >= wanted;
        return 0;
}

static int look_at_block(struct run_word *w, int fd, const char *block, size_t len, struct err *err)
{
        int64_t from = w->at;
        int r = 0;

        while (r >= 0 && !w->said && w->at < from + (int64_t)len) {
                const char *at = block + (w->at - from);
                const char *end = memchr(at, '\n', len - (size_t)(w->at - from));

                if (!end) {
                        w->at = from + (int64_t)len;
                        break;
                }
                r = look_at_line(w, fd, block, from, from + (end - block), err);
                w->line = w->at = from + (end - block) + 1;
        }
        return r;
}

static int look_for_last_word(struct run_task *t, struct run_word *w, bool *ret_more,
                              struct err *err)
{
        CLEAN(cleanup_free) char *block = NULL;
        CLEAN(cleanup_fd) int fd = -1;
        int64_t until = w->at + LOOK_MAX;
        ssize_t n = 1;
        int r;

        if (!w->type || w->said)
                return 0;
        r = exec_open_output(t->rt, w->execution, false, &fd, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        block = xcalloc(1, LOOK_SIZE);
        while (n > 0 && !w->said && w->at < until) {
                w->at = (int64_t)exec_output_from(fd, (uint64_t)w->at);
                n = pread(fd, block, LOOK_SIZE, (off_t)w->at);
                if (n > 0)
                        r = look_at_block(w, fd, block, (size_t)n, err);
                if (n < 0)
                        r = err_sys(err, ERR_IO, errno, "read a run's output");
                if (r < 0)
                        return r;
        }
        *ret_more = *ret_more || (n > 0 && !w->said);
        return 0;
}

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

static int mind_last_word(struct run_task *t, struct run_pump *pump, struct err *err)
{
        int r = 0;

        if (!streq(pump->word.execution, t->run.execution_id)) {
                struct run_word next = { 0 };

                memcpy(next.execution, t->run.execution_id, UUID_LEN + 1);
                r = find_type(t, &next.type, err);
                if (r >= 0)
                        pump->word = next;
        }
        if (r >= 0)
                r = look_for_last_word(t, &pump->word, &pump->more, err);
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
                r = mind_last_word(&t, pump, &err);
        if (r < 0 && r != ERR_CANCELLED)
                log_warn("could not bring in the output of a run", LOG_S("run", id),
                         LOG_S("error", err.msg));
}
