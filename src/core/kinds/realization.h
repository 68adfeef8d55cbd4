/* The workspace realization record, version 1: what a reader of a lease learns about where the
 * workspace is and how it gets there. Pure; any thread. */
#ifndef BERTH_CORE_REALIZATION_H
#define BERTH_CORE_REALIZATION_H

#include "codec/json.h"
#include "store/environments.h"
#include "store/leases.h"

/* `workspace` is the caller's {localPath?, remotePath?, mode?, metadata?}; cwd may be NULL. A new
 * reference. */
json_t *realization_record(const struct environment *env, const struct lease *lease,
                           const json_t *workspace, const char *cwd);

/* What a realize call answers: {cwd, metadata: {workspaceRealization}}. */
void realization_answer(struct buf *b, const char *cwd, const json_t *record);

#endif
