/* Snapshots: the writable layer of a sandbox, kept under a name in its company, for new sandboxes
 * to start from (`snapshot` of a configuration).
 *
 * A snapshot keeps what was written over the system: with a rootfs all of /, else /home. It does
 * not keep /workspace, which is staged and restored by other means, nor /tmp. Only sandboxes with
 * storage "disk" can be kept.
 *
 * A snapshot of a sandbox that started from one lies on it, as a layer on a layer. It can be
 * deleted when no living place and no other snapshot stands on it.
 *
 *   make     row `making` committed | frozen, copied to <id>.new, synced, renamed, thawed | `ready`
 *   delete   `deleting` committed   | directory removed                                  | row gone
 *
 * A crash between any two of these steps leaves a row that snapshot_sweep() finishes: an unfinished
 * copy is thrown away, and its sandbox goes on.
 *
 * What forks stand on (berth_fork.c) is such a row, too, without a name: `fork_by` says how its
 * files were taken. It keeps /workspace and /tmp besides, and sandboxes with any storage can be
 * kept so. It stays `making` until its forks are claimed, and goes when no living place and no
 * snapshot stands on it any more:
 *
 *   <id>/upper, <id>/workspace, <id>/tmp
 *
 * Operation threads. */
#pragma once

#include "box/sandbox.h"
#include "core/places/lease_record.h"
#include "store/snapshots.h"

/* Make a snapshot of a living lease; the caller has checked the rights. */
int snapshot_make(struct op *op, struct runtime *rt, const struct lease_record *record,
                  const char *name, struct snapshot *ret, struct err *err);
#define FORK_BY_REFLINK "reflink"
#define FORK_BY_COPY    "copy"
/* Of the configuration of a fork's place: {base, leaseId, filesBy}. */
#define FORK_MEMBER "$fork"

/* Take the files of a living lease for forks to stand on, and say that no more forks will be made
 * of it. In between it is neither removed nor listed. */
int snapshot_make_base(struct op *op, struct runtime *rt, const struct lease_record *record,
                       struct snapshot *ret, struct err *err);
int snapshot_end_base(struct op *op, struct runtime *rt, const char *id, struct err *err);
/* Newest first, at most `limit`, after the one named by time and id. */
int snapshot_list(struct op *op, struct runtime *rt, const char *company_id, int64_t before_us,
                  const char *before_id, int64_t limit, snapshot_fn fn, void *ctx, struct err *err);
/* By name, or by id. ERR_NOT_FOUND. */
int snapshot_get(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                 struct snapshot *ret, struct err *err);
int snapshot_delete(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                    struct snapshot *ret, struct err *err);

/* Finish the work that an earlier instance began. */
int snapshot_sweep(struct op *op, struct runtime *rt, struct err *err);

/* Inside the transaction that records a place: the id of the snapshot that its configuration names,
 * or NULL, and that of the image it stands on. ERR_UNPROCESSABLE when there is none of that name.
 */
int snapshot_claim(struct db *db, const struct place *place, struct arena *arena,
                   const char **ret_id, const char **ret_image_id, struct err *err);
/* Put a snapshot and those it lies on into a spec. A NULL id puts nothing. */
int snapshot_layers(struct op *op, struct runtime *rt, const char *id, struct sandbox_spec *spec,
                    struct err *err);

/* 1 to 64 letters, digits, dots, hyphens, underscores; the first a letter or digit. */
bool sandbox_name_is_valid(const char *name);
