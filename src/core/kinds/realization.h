/* The workspace realization record, version 1: what a reader of a lease learns about where the
 * workspace is and how it gets there. Pure; any thread. */
#pragma once

#include "core/kinds/kind.h"
#include "rt/op.h"

/* `workspace` is the caller's {localPath?, remotePath?, mode?, metadata?}; cwd may be NULL. A new
 * reference. */
json_t *realization_record(const struct kind *kind, const struct environment *env,
                           const struct lease *lease, const json_t *workspace, const char *cwd);
/* `sandboxId` of a lease's metadata; borrowed, NULL: none. */
json_t *realization_sandbox_id(const json_t *metadata);

/* What a realize call answers: {cwd, metadata: {workspaceRealization}}; the arena keeps it. */
json_t *realization_answer(struct op *op, const char *cwd, json_t *take_record);
/* Both, for a place where the lease's `remoteCwd` is where commands work. */
json_t *realization_elsewhere(struct op *op, const struct kind *kind, const struct environment *env,
                              const struct lease *lease, const json_t *workspace);
