/* What every unit test includes first: cmocka and the headers that it forgets to include itself. */
#pragma once

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#define SCRATCH_PATH_MAX 256

/* Make a directory of the test's own, under TMPDIR when there is one. The test removes it. */
static inline void make_scratch(char path[SCRATCH_PATH_MAX])
{
        const char *base = getenv("TMPDIR");
        int n = snprintf(path, SCRATCH_PATH_MAX, "%s/berth-test-XXXXXX", base ? base : "/tmp");

        assert_in_range(n, 1, SCRATCH_PATH_MAX - 1);
        assert_non_null(mkdtemp(path));
}

/* test/unit/alloc-failures makes allocations fail. A fixture that opens a store says when it is
 * open and when it closes: most allocations are those of the migrations, which are the same for all
 * tests. */
extern void failalloc_count(int on) __attribute__((weak));

static inline void memory_may_fail(int yes)
{
        if (failalloc_count)
                failalloc_count(yes);
}
