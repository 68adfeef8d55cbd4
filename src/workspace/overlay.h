/* The upper layer of an overlay as a change set (change.h): whiteouts are deletions, opaque
 * directories replace what is beneath them. What a sandbox wrote: nothing in it is trusted, nothing
 * is followed, devices and the like are left out. The sandbox may go on writing meanwhile: code
 * that copies content compares it with the hash that the change has.
 *
 * Blocking; operation threads. */
#pragma once

#include "workspace/budget.h"
#include "workspace/change.h"
#include "workspace/scan.h"

struct overlay_layers {
        int upper_fd; /* what was written */
        int lower_fd; /* the directory below it, as it is now */
        /* The directory below is the host's own, which others change too: what it was is told by
         * its change time. 0: it is a copy of ours that does not change, and the baseline
         * itself. */
        int64_t staged_ns;
        /* The upper layer as the last restore took it over; NULL: there was none. An entry that is
         * still the same is no change. */
        struct tree_source *applied;
        const struct excludes *excludes;
        /* Holes in files are taken from it: the disk of the place bounds the bytes that were really
         * written, but reading a hole takes time in proportion to its stated size. May be NULL. */
        struct budget *budget;
        /* Where to keep the manifest of the upper layer, for the next time. */
        int manifest_dir;
        const char *manifest_name;
};

/* Reads the whole upper layer. Takes none of the descriptors and needs nothing of *layers later on.
 */
int overlay_open(const struct overlay_layers *layers, struct change_set **ret, struct err *err);

/* Make whiteouts in an empty upper layer for what of the lower one is excluded, so that it is not
 * seen inside. Only for root. */
int overlay_hide(int upper_fd, int lower_fd, const struct excludes *excludes, struct err *err);
