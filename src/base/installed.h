/* Our own file, and what is installed beside it. Paths are in the arena. Any thread. */
#pragma once

#include "base/arena.h"

/* NULL when /proc does not tell. */
const char *installed_program(struct arena *a);
/* berth-box, beside berth or in the libexec directory of the same prefix; NULL when it is in
 * neither. */
const char *installed_box(struct arena *a);
/* The folder of a provider that Berth brings along; NULL when there is none of that name. */
const char *installed_provider(struct arena *a, const char *name);
/* The directory with the examples; NULL when they are not installed. */
const char *installed_examples(struct arena *a);
