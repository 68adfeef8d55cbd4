/* What the writer and the reader of a bundle (bundle.h) both know of its directory. */
#pragma once

#include <stdio.h>

#include "codec/tree.h"

#define BUNDLE_CHANGES   "changes"
#define BUNDLE_UNWRITTEN "changes.new" /* until it is finished */
#define BUNDLE_FILES     "files"
#define BUNDLE_NEW       "new-" /* content whose hash was not checked yet */

struct bundle_name {
        char s[2 * TREE_HASH + 1];
};

static inline struct bundle_name bundle_name(const uint8_t hash[TREE_HASH])
{
        struct bundle_name n;

        for (size_t i = 0; i < TREE_HASH; i++)
                snprintf(n.s + 2 * i, 3, "%02x", hash[i]);
        return n;
}
