/* Versions as semver writes them: x.y.z, then -pre.release and +build if any. Leading zeros are
 * read as what they are worth. Pure functions; any thread. */
#pragma once

#include "base/util.h"

bool semver_is_valid(const char *text);
/* Less than, equal to or greater than 0. A pre-release comes before its release; the build does not
 * count. Both must be valid. */
int semver_compare(const char *a, const char *b);
