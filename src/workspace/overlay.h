/* The upper layer of an overlay as a change set (change.h): whiteouts are deletions, opaque
 * directories replace what is beneath them. What a sandbox wrote: nothing in it is trusted, nothing
 * is followed. Changes are `was_by_time`, except of what an earlier restore took over already.
 * Blocking; operation threads. */
#ifndef BERTH_WORKSPACE_OVERLAY_H
#define BERTH_WORKSPACE_OVERLAY_H

#include "workspace/change.h"
#include "workspace/scan.h"

/* Takes neither descriptor. `lower_fd` is the workspace on the host: what an opaque directory hides
 * is found there. `applied` is the manifest of the upper layer at the last restore (NULL: there was
 * none): what is still the same is no change, and for the rest it is what `was`. */
int overlay_open(int upper_fd, int lower_fd, int64_t staged_ns, struct tree_source *applied,
                 const struct excludes *excludes, struct change_set **ret, struct err *err);

/* The upper layer as a manifest, for the next time. */
int overlay_scan(int upper_fd, const struct excludes *excludes, struct scan **ret, struct err *err);

#endif
