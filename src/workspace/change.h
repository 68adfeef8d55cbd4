/* What was changed in a workspace elsewhere since it was staged, wherever the new content lies.
 *
 * A change set is a stream of changes in the order of their paths (codec/tree.h). Where the
 * baseline is a manifest, `was` is its entry. Of an overlay there is no manifest: what the host's
 * file was is told by its change time (`was_by_time`). The deletion of a directory comes with those
 * of everything that was in it, and so does its replacement by something else: a path without a
 * deletion was not deleted. Implemented by bundles (bundle.h: a directory of ours) and by overlays
 * (overlay.h: the upper layer of a sandbox). Blocking; one thread. */
#pragma once

#include "codec/tree.h"

struct change {
        bool is_delete; /* `now` has the path alone */
        struct tree_entry now;
        bool has_was, was_by_time;
        struct tree_entry was;
        /* was_by_time: a file that changed on the host after this time was changed by another
         * party. ctime, ns. */
        int64_t staged_ns;
};

struct change_set {
        /* 1 with a change, 0 at the end, ERR_*. */
        int (*next)(struct change_set *s, struct change *ret, struct err *err);
        /* Content of a file of the last change: a descriptor at its beginning, of a regular file,
         * never a device or a link. */
        int (*open)(struct change_set *s, const struct change *c, int *ret_fd, struct err *err);
        void (*close)(struct change_set *s);
};
