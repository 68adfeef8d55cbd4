/* A tree as a tar archive and back, for places that only run commands
 * (core/workspaces/workspace_archive.c).
 *
 * An archive that is unpacked may be hostile: its entries are put beneath a directory of ours, part
 * by part, no link followed (workspace/apply.h). Devices, sockets and what is in
 * `.paperclip-runtime` are passed over; a hard link becomes a file of its own. Blocking; operation
 * threads. */
#pragma once

#include "workspace/budget.h"
#include "workspace/bundle.h"
#include "workspace/scan.h"

/* Pack what the scan says of the tree into out_fd. The manifest of what was packed is written to
 * `name` in manifest_dir. *ret_files, *ret_bytes: of files. */
int archive_pack(struct op *op, int tree_fd, struct tree_source *scan, int out_fd, int manifest_dir,
                 const char *name, uint64_t *ret_files, uint64_t *ret_bytes, struct err *err);

/* Unpack from the beginning of in_fd into an empty directory. All that is in it is taken from the
 * budget: a hard link is a file of its own, so an archive may unpack to more than it is. */
int archive_unpack(struct op *op, int in_fd, int dir_fd, struct budget *budget, struct err *err);

/* What differs between the manifests, with content from the directory that `next` was made of. */
int archive_changes(struct op *op, int manifest_dir, const char *baseline, const char *next,
                    int dir_fd, struct bundle_writer *into, struct err *err);
