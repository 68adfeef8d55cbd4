/* The web page, embedded in the binary. Loop thread. */
#pragma once

#include "api/api.h"

/* The route of a path that no table has, when the page is to be shown there; NULL otherwise. */
const struct route *page_route(const char *method, const char *path);
