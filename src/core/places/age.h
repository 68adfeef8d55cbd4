/* How old a row is, for code that deletes rows by age.
 *
 * The wall clock may be wrong for a while, and five seconds of a wrong clock must not delete rows
 * that should be kept for days. So age is counted time: the monotonic clock of the kernel while it
 * runs, carried from one boot to the next without the time in between. Every sweep leaves a mark
 * now and then: the count, and what the wall clock said (store/clock_marks.h).
 *
 * A row carries a wall time. It is older than an age when that time lies before everything that the
 * wall clock has said since so much time was counted. A clock that is set forward makes nothing
 * older; one that is set back makes rows younger, never older. Time in which no daemon ran and the
 * machine was off does not count. */
#pragma once

#include "core/runtime.h"

/* Leave a mark when it is time for one. An operation of the sweeper. */
int age_mark(struct op *op, struct runtime *rt, struct err *err);

/* Rows whose wall time is below *ret_before_us are at least so old: 1, or 0 when no row is. Inside
 * a store function. */
int age_cutoff(struct db *db, const struct runtime *rt, int64_t age_us, struct arena *arena,
               int64_t *ret_before_us, struct err *err);
