/* The web page, embedded in the binary. Loop thread. */
#ifndef BERTH_API_PAGE_H
#define BERTH_API_PAGE_H

#include "api/api.h"

/* The route of a path that no table has, when the page is to be shown there; NULL otherwise. */
const struct route *page_route(const char *method, const char *path);

#endif
