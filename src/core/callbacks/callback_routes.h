/* Which requests a callback channel lets through: paths in one spelling, and the routes of agents.
 *
 * The order matters: a path is first checked to be in the one spelling that every program reads
 * alike, and only then compared with the list. A path that would have to be normalised is refused:
 * no dot segments, no empty segments, no backslash, no control bytes, nothing of these behind a
 * percent sign, and no broken escapes. Agents' programs write none of that.
 *
 * Pure. Any thread. */
#pragma once

#include "base/util.h"

/* What is wrong with a path, raw and without its query; NULL: nothing. Static. */
const char *callback_path_problem(const char *path);

/* Whether agents may do this; the path has no problem. Methods are upper case. */
bool callback_route_allowed(const char *method, const char *path);
