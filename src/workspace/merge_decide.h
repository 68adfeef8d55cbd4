/* Decides about one change, given the host's entry at its path: the rules of merge.h, without any
 * effect. Any thread. */
#pragma once

#include "workspace/change.h"

/* The host's side of a path. */
struct merge_local {
        bool is_there;
        struct tree_entry entry; /* TREE_UNKNOWN: something that is no file, link or directory */
        int64_t ctime_ns;
        bool is_shared; /* a file with another name, maybe outside of the workspace */
};

enum merge_what {
        MERGE_NOTHING, /* it is so already, or ours stands */
        MERGE_LEAVE,   /* a deletion that our change outweighs */
        MERGE_PUT,     /* theirs takes the path */
        MERGE_ASIDE,   /* theirs takes the path, ours is kept beside it */
        MERGE_MODE,    /* only the mode changes */
        MERGE_DELETE,  /* of a directory: if it is empty */
};

struct merge_verdict {
        enum merge_what what;
        uint32_t mode; /* for what is made */
};

/* The hash of the host's file is looked at only where its size is that of `now` or `was`. A
 * directory of ours beneath a file of theirs is MERGE_PUT: whether it can go shows when the
 * deletions in it are done. */
struct merge_verdict merge_decide(const struct change *c, const struct merge_local *local,
                                  uint32_t umask);
