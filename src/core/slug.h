/* Names in addresses: "Ada Lovelace" gives ada-lovelace. Any thread. */
#ifndef BERTH_CORE_SLUG_H
#define BERTH_CORE_SLUG_H

#include "base/arena.h"

const char *slug(const char *name, struct arena *arena);

#endif
