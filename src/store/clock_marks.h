/* Rows of `clock_marks`: time that was counted, beside what the wall clock said. core/places/age.h
 * decides what they mean. */
#pragma once

#include "store/db.h"

struct clock_mark {
        int64_t counted_us, wall_us;
        const char *boot_id; /* of the kernel whose monotonic clock said */
        int64_t mono_us;
};

extern const struct row_type clock_mark_table;

int clock_marks_insert(struct db *db, const struct clock_mark *row, struct err *err);
/* 1, or 0 when there is none. */
int clock_marks_last(struct db *db, struct arena *arena, struct clock_mark *ret, struct err *err);
/* The lowest that the wall clock was seen at since `counted_us`, the last mark before that
 * included: 1, or 0 when no mark is as old. */
int clock_marks_lowest_since(struct db *db, int64_t counted_us, int64_t *ret_wall_us,
                             struct err *err);
/* Forget what is older than the last mark before `counted_us`. */
int clock_marks_forget(struct db *db, int64_t counted_us, struct err *err);
