/* What one restore may bring home: so many files, so many bytes. The amounts that a place claims
 * are taken from the budget before anything is made, read or written because of them, so a claim
 * costs nothing.
 *
 * One thread. */
#pragma once

#include "workspace/change.h"

struct budget {
        uint64_t max_files, max_bytes;
        uint64_t files, bytes; /* taken so far */
};

/* ERR_TOO_LARGE with a text that names the setting, and `path`, which was one too many. b NULL: no
 * budget. */
int budget_take(struct budget *b, uint64_t files, uint64_t bytes, const char *path,
                struct err *err);

/* A change set whose changes are taken from a budget as they are read. Neither owns the other. */
struct budget_set {
        struct change_set set;
        struct change_set *from;
        struct budget *budget;
};
struct change_set *budget_watch(struct budget_set *s, struct budget *b, struct change_set *from);
