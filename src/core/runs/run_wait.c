/* Starts a command of the daemon's own in a lease and waits for its end. */
#include "core/runs/run_wait.h"

#include "base/clock.h"
#include "core/exec/exec_request.h"

#define LOOK_MS 1000

struct waiting {
        struct letter letter;
        struct exec_watch watch;
        struct exec_hub *hub;
        char id[UUID_LEN + 1];
        struct promise *promise;
};

static void wait_over(struct waiting *w)
{
        promise_keep(w->promise, 0, NULL);
        promise_unref(w->promise);
        free(w);
}

static void wait_changed(struct exec_watch *watch, const struct exec_view *view)
{
        if (view->ended)
                wait_over(container_of(watch, struct waiting, watch));
}

static void watch_on_loop(struct letter *letter)
{
        struct waiting *w = container_of(letter, struct waiting, letter);

        if (!exec_watch_add(w->hub, w->id, &w->watch))
                wait_over(w);
}

/* As promise_wait(), and looks from time to time. */
static int wait_and_look(struct promise *promise, const struct op *op, const char *id,
                         const struct run_command_end *end, struct err *err)
{
        for (;;) {
                struct op brief = *op;
                int64_t next = clock_mono_ms() + LOOK_MS;
                int r;

                if (!end->look || next >= op->deadline_ms)
                        return promise_wait(promise, op, err);
                brief.deadline_ms = next;
                r = promise_wait(promise, &brief, err);
                if (r != ERR_TIMEOUT)
                        return r;
                err_clear(err);
                end->look(end->arg, id);
        }
}

static int wait_for(struct op *op, struct runtime *rt, const char *id,
                    const struct run_command_end *end, struct err *err)
{
        struct promise *promise = promise_new(err);
        struct waiting *w;
        int r;

        if (!promise)
                return ERR_IO;
        w = xcalloc(1, sizeof(*w));
        w->hub = rt->hub;
        w->watch.changed = wait_changed;
        w->promise = promise_ref(promise);
        memcpy(w->id, id, UUID_LEN + 1);
        mail_post(rt->mail, &w->letter, watch_on_loop);
        r = wait_and_look(promise, op, id, end, err);
        promise_unref(promise);
        return r;
}

int run_command_wait(struct op *op, struct runtime *rt, const struct lease_record *record,
                     struct exec_request *req, struct run_command_end *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct kind *kind;
        struct execution row;
        const char *id;
        size_t max;
        int r = lease_kind(rt, record, &kind, err);

        req->is_helper = true;
        if (r >= 0)
                r = exec_prepare(op, rt, kind, record, req, err);
        if (r >= 0)
                r = exec_start(op, rt, record, req, &id, err);
        if (r >= 0)
                r = wait_for(op, rt, id, ret, err);
        if (r >= 0)
                r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = executions_get(db, id, op->arena, &row, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        if (streq(row.status, EXEC_FAILED) || streq(row.status, EXEC_LOST))
                return err_set(err,
                               streq(row.status, EXEC_LOST) || exec_never_began(&row)
                                       ? ERR_UNCERTAIN
                                       : ERR_PROVIDER,
                               "%s", row.reason ? row.reason : "The command could not be started.");
        max = ret->max ? ret->max : RUN_WAIT_OUTPUT_MAX;
        r = exec_read_output(rt, id, false, max, &ret->out, NULL, err);
        if (r >= 0)
                r = exec_read_output(rt, id, true, max, &ret->err, NULL, err);
        if (r < 0)
                return r;
        ret->how = (struct provision_end){
                .timed_out = row.timed_out,
                .has_code = row.exit_code >= 0,
                .code = (int)row.exit_code,
                .signal = arena_strdup(op->arena, signal_name((int)row.signal)),
                .out = buf_str(&ret->out),
                .err = buf_str(&ret->err),
        };
        return 0;
}

void run_command_end_done(struct run_command_end *end)
{
        buf_done(&end->out);
        buf_done(&end->err);
}
