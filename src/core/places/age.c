/* Counting the time that passes (age.h). */
#include "core/places/age.h"

#include "base/clock.h"
#include "store/clock_marks.h"

#define MARK_US (INT64_C(600) * US_PER_S)         /* between two marks, at most */
#define KEEP_US (INT64_C(400) * 86400 * US_PER_S) /* longer than any age that can be asked for */

struct age_request {
        struct op *op;
        struct runtime *rt;
};

/* The count now, from the last mark. Between two boots nothing is counted. */
static int64_t count_now(const struct runtime *rt, const struct clock_mark *last)
{
        int64_t since = clock_mono_us() - last->mono_us;

        return last->counted_us + (streq(last->boot_id, rt->node.boot_id) ? MAX(since, 0) : 0);
}

static int leave_mark(struct db *db, void *arg, struct err *err)
{
        struct age_request *q = arg;
        int64_t pause = MIN(MARK_US, q->rt->settings.salvage_ttl_ms * US_PER_MS / 8);
        struct clock_mark last, next = { .wall_us = clock_wall_us(),
                                         .boot_id = q->rt->node.boot_id,
                                         .mono_us = clock_mono_us() };
        int r = clock_marks_last(db, q->op->arena, &last, err);

        if (r < 0)
                return r;
        if (r > 0) {
                next.counted_us = count_now(q->rt, &last);
                /* The clock went back: rows of this moment must not look old. */
                if (streq(last.boot_id, next.boot_id) && next.wall_us >= last.wall_us &&
                    next.counted_us - last.counted_us < pause)
                        return 0;
                next.counted_us = MAX(next.counted_us, last.counted_us + 1);
        }
        r = clock_marks_insert(db, &next, err);
        return r < 0 ? r : clock_marks_forget(db, next.counted_us - KEEP_US, err);
}

int age_mark(struct op *op, struct runtime *rt, struct err *err)
{
        struct age_request q = { op, rt };

        return store_write(op, rt->store, leave_mark, &q, err);
}

int age_cutoff(struct db *db, const struct runtime *rt, int64_t age_us, struct arena *arena,
               int64_t *ret_before_us, struct err *err)
{
        struct clock_mark last;
        int r = clock_marks_last(db, arena, &last, err);

        return r <= 0 ? r
                      : clock_marks_lowest_since(db, count_now(rt, &last) - age_us, ret_before_us,
                                                 err);
}
