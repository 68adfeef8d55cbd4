/* What every unit test includes first: cmocka and the headers that it forgets to include itself. */
#ifndef BERTH_TEST_UNIT_TEST_H
#define BERTH_TEST_UNIT_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#endif
