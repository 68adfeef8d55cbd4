/* Room that is kept for ending things.
 *
 * A daemon that has used up its descriptors cannot bury a box or save changes, and so cannot get
 * any back. Therefore it holds a few open on nothing and gives them up while an operation ends
 * something (reserve_borrow()), and what would take descriptors for as long as it lives, a new
 * place or a new box, is refused before the last ones are gone (reserve_check()). Memory is the
 * same: memory_reserve() in base/util.h holds a block that the first failed allocation gets.
 *
 * A loan is no guarantee: another thread may be faster with the next open(). One per process; any
 * thread. */
#pragma once

#include "base/err.h"

/* Before there are threads. What it holds depends on the limit of that moment. */
void reserve_init(void);
void reserve_done(void);

/* ERR_BUSY when only as many descriptors are free as are kept for ending things, or when the block
 * of memory is in use; the text says what helps. */
int reserve_check(struct err *err);

/* For an operation that ends something: give up a few of those that are held, if descriptors are
 * short. How many: CLEAN(reserve_return) unsigned loan = reserve_borrow(). */
unsigned reserve_borrow(void);
void reserve_return(const unsigned *loan);
/* Hold again what could not be had when it was returned. From time to time. */
void reserve_refill(void);
