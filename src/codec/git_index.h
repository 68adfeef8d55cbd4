/* git's index, as bytes from an untrusted source.
 *
 * git checks the paths of an index when it adds to one, not when it reads one: with an index that
 * another party wrote, `git checkout -- .` writes `../x` and `.git/hooks/post-checkout`, and runs
 * the latter. Any thread. */
#pragma once

#include "base/err.h"

/* Whether git reads nothing from it but paths within the work tree: versions 2 to 4 with object
 * names of SHA-1, and no extension by which entries come from another file (split index) or from
 * other offsets (offset table). */
bool git_index_ok(const uint8_t *bytes, size_t len);
