/* Shared by the files of the snapshot module; see snapshot.h. */
#ifndef BERTH_CORE_SNAPSHOT_INTERNAL_H
#define BERTH_CORE_SNAPSHOT_INTERNAL_H

#include "core/kinds/berth/snapshot.h"

/* <data>/snapshots/<id><suffix> */
char *snapshot_path(const struct runtime *rt, const char *id, const char *suffix);
int snapshot_remove(struct op *op, struct runtime *rt, struct snapshot *row, struct err *err);
/* Thaw a sandbox that was frozen to be copied, unless its lease is paused or over. */
void snapshot_thaw_source(struct op *op, struct runtime *rt, const char *place_id);

#endif
