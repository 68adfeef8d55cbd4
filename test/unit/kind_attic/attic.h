#pragma once

#include <stdio.h>

#include "core/kinds/realization.h"

#define ATTIC_KEY "opens-the-attic"

/* What is there, and what the kind was told. */
struct attic {
        char box[UUID_LEN + 1]; /* "": none */
        int claims, forgotten;
};

extern struct attic attic;
extern const struct kind kind_attic;
