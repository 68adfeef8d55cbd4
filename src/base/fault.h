/* Named crash points, in the test build only (-DBERTH_FAULTS).
 *
 * FAULT("lease.bind.before") stands before and after every durable write and every outside effect.
 * In the test build, BERTH_CRASH_AT=name kills the process right there with SIGKILL, and name:3 at
 * the third time it gets there. BERTH_FAIL_AT=name lets the next write to the database by the same
 * thread fail, as on a disk that fails. `berth faults` (test build) lists all names, so that one
 * test can walk them and none is forgotten; with BERTH_FAULT_TRACE=file every point that is reached
 * appends its name to that file, so that the walk knows which ones an operation passes, and how
 * often. In the product FAULT() is nothing.
 *
 * Any thread. */
#pragma once

#ifdef BERTH_FAULTS

#include <stdbool.h>

struct fault_name {
        const char *name;
};

void fault_reached(const char *name);
/* Whether the write to the database that is about to begin is to fail. */
bool fault_fails_write(void);

/* Call fn for each distinct point that is linked in. */
void fault_each(void (*fn)(const char *name, void *arg), void *arg);

#define FAULT(name_)                                                                               \
        do {                                                                                       \
                static const struct fault_name __attribute__((used, section("berth_faults")))      \
                fault_ = { name_ };                                                                \
                fault_reached(fault_.name);                                                        \
        } while (0)

#else
#define FAULT(name)                                                                                \
        do {                                                                                       \
        } while (0)
#define fault_fails_write() false
#endif
