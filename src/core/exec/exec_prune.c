/* Forgetting executions that ended long ago, and removing the output of executions that are gone.
 *
 * Rows go first, by age here or with their environment or company. A trigger notes the output that
 * each of them leaves in the same transaction (store/executions.h). The directory is removed
 * afterwards, and then the note: a crash in between leaves a note, and the next pass goes on.
 * Operation threads. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/exec/exec_internal.h"
#include "core/places/age.h"
#include "plugin/tree.h"

#define PRUNE_AFTER_US (INT64_C(7) * 86400 * US_PER_S)
#define PRUNE_AT_ONCE  100

struct pruning {
        struct execution rows[PRUNE_AT_ONCE];
        size_t n;
};

static int note_old(void *ctx, const struct execution *row)
{
        struct pruning *p = ctx;

        if (p->n < PRUNE_AT_ONCE)
                p->rows[p->n++] = *row;
        return 0;
}

static int delete_old(struct db *db, void *arg, struct err *err)
{
        struct pruning *p = arg;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < p->n; i++)
                r = executions_delete(db, p->rows[i].id, err);
        return r;
}

static int prune_rows(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct pruning p = { .n = 0 };
        int64_t before_us;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = age_cutoff(db, rt, PRUNE_AFTER_US, op->arena, &before_us, err);
        if (r > 0)
                r = executions_ended_before(db, before_us, PRUNE_AT_ONCE, op->arena, note_old, &p,
                                            err);
        store_read_end(&db);
        if (r < 0 || p.n == 0)
                return r;
        r = store_write(op, rt->store, delete_old, &p, err);
        for (size_t i = 0; r >= 0 && i < p.n; i++)
                exec_output_took(rt->hub, p.rows[i].place_id,
                                 -exec_output_bytes((uint64_t)p.rows[i].stdout_len,
                                                    (uint64_t)p.rows[i].stderr_len));
        return r;
}

struct removal {
        struct {
                const char *id;
                const char *failure; /* NULL: it is removed */
                bool is_busy;        /* an operation may still make the directory */
        } outputs[PRUNE_AT_ONCE];
        size_t n;
};

static int note_output(void *ctx, const struct output_to_remove *row)
{
        struct removal *q = ctx;

        if (q->n < PRUNE_AT_ONCE)
                q->outputs[q->n++].id = row->execution_id;
        return 0;
}

static int record_removals(struct db *db, void *arg, struct err *err)
{
        struct removal *q = arg;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < q->n; i++) {
                if (q->outputs[i].is_busy)
                        continue;
                r = q->outputs[i].failure ? outputs_to_remove_failed(db, q->outputs[i].id,
                                                                     q->outputs[i].failure, err)
                                          : outputs_to_remove_done(db, q->outputs[i].id, err);
        }
        return r;
}

/* Until none is left, or none of those at hand can be removed: a company that is deleted leaves
 * thousands. */
static int remove_outputs(struct op *op, struct runtime *rt, struct err *err)
{
        for (;;) {
                CLEAN(store_read_end) struct db *db = NULL;
                struct removal q = { .n = 0 };
                size_t removed = 0;
                int r = store_read_begin(op, rt->store, &db, err);

                if (r >= 0)
                        r = outputs_to_remove(db, PRUNE_AT_ONCE, op->arena, note_output, &q, err);
                store_read_end(&db);
                if (r < 0 || q.n == 0)
                        return r;
                for (size_t i = 0; i < q.n; i++) {
                        CLEAN(cleanup_free)
                        char *path = xasprintf("%s/%s", rt->hub->output_dir, q.outputs[i].id);
                        CLEAN(err_done) struct err failure = { 0 };

                        r = op_check(op, err);
                        if (r < 0)
                                return r;
                        q.outputs[i].is_busy = intended_has(rt->hub, q.outputs[i].id);
                        if (q.outputs[i].is_busy)
                                continue;
                        FAULT("exec.remove_output.before");
                        if (tree_remove(op, path, &failure) < 0) {
                                q.outputs[i].failure = arena_strdup(op->arena, failure.msg);
                                log_error("could not remove output whose execution is gone",
                                          LOG_S("directory", path), LOG_S("error", failure.msg));
                        } else {
                                removed++;
                        }
                        FAULT("exec.remove_output.after");
                }
                r = removed > 0 ? file_sync(AT_FDCWD, rt->hub->output_dir, err) : 0;
                if (r >= 0)
                        r = store_write(op, rt->store, record_removals, &q, err);
                if (r < 0 || removed == 0)
                        return r;
        }
}

int exec_prune(struct op *op, struct runtime *rt, struct err *err)
{
        int r = rt->hub ? prune_rows(op, rt, err) : 0;

        return r < 0 || !rt->hub ? r : remove_outputs(op, rt, err);
}
