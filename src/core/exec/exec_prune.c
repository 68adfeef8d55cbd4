/* Forgetting executions that ended long ago, with their output. Operation threads. */
#include <unistd.h>

#include "base/clock.h"
#include "core/exec/exec_internal.h"
#include "core/leases/age.h"

#define PRUNE_AFTER_US (INT64_C(7) * 86400 * US_PER_S)
#define PRUNE_AT_ONCE  100

struct pruning {
        struct op *op;
        const struct runtime *rt;
        const char *ids[PRUNE_AT_ONCE];
        struct execution rows[PRUNE_AT_ONCE];
        size_t n;
};

static int note_old(void *ctx, const struct execution *row)
{
        struct pruning *p = ctx;

        if (p->n < PRUNE_AT_ONCE) {
                p->rows[p->n] = *row;
                p->ids[p->n++] = row->id;
        }
        return 0;
}

static int find_old(struct db *db, void *arg, struct err *err)
{
        struct pruning *p = arg;
        int64_t before_us;
        int r = age_cutoff(db, p->rt, PRUNE_AFTER_US, p->op->arena, &before_us, err);

        return r <= 0 ? r
                      : executions_ended_before(db, before_us, PRUNE_AT_ONCE, p->op->arena,
                                                note_old, p, err);
}

static int delete_old(struct db *db, void *arg, struct err *err)
{
        struct pruning *p = arg;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < p->n; i++)
                r = executions_delete(db, p->ids[i], err);
        return r;
}

static void remove_output(struct exec_hub *hub, const char *id)
{
        static const char *const names[] = { "stdout", "stderr", "exit" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                CLEAN(cleanup_free)
                char *path = xasprintf("%s/%s/%s", hub->output_dir, id, names[i]);

                (void)unlink(path);
        }
        {
                CLEAN(cleanup_free) char *path = xasprintf("%s/%s", hub->output_dir, id);

                (void)rmdir(path);
        }
}

int exec_prune(struct op *op, struct runtime *rt, struct err *err)
{
        struct pruning p = { .op = op, .rt = rt };
        int r = store_read(op, rt->store, find_old, &p, err);

        if (r < 0 || p.n == 0 || !rt->hub)
                return r;
        for (size_t i = 0; i < p.n; i++) {
                remove_output(rt->hub, p.ids[i]);
                exec_output_took(rt->hub, p.rows[i].place_id,
                                 -exec_output_bytes((uint64_t)p.rows[i].stdout_len,
                                                    (uint64_t)p.rows[i].stderr_len));
        }
        return store_write(op, rt->store, delete_old, &p, err);
}
