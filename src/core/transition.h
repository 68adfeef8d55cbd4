/* Tables of allowed moves between states: each state machine has one, with the reason of each move,
 * and asks it before every compare-and-set. Pure; any thread. */
#pragma once

#include "base/util.h"

struct transition {
        const char *from; /* NULL: the row is new */
        const char *to;   /* NULL ends a table */
        const char *why;
};

static inline bool transition_exists(const struct transition *t, const char *from, const char *to)
{
        for (; t->to; t++)
                if (streq(t->to, to) && (t->from && from ? streq(t->from, from) : t->from == from))
                        return true;
        return false;
}
