/* Moving a tree and what changed in it over a byte stream: the daemon asks, a file worker beside
 * the work answers (docs/workspaces.md describes the messages). Only what the other side does not
 * have travels: whole files when they are small, else the chunks it lacks, zstd-compressed, several
 * files under way at a time. A transfer that was cut is begun again and finds what arrived.
 *
 * Neither side trusts the other: messages are bounded, paths are checked (codec/tree.h) and opened
 * beneath the root.
 *
 * The worker's side is serve.h. Blocking; operation threads. */
#pragma once

#include "workspace/budget.h"
#include "workspace/bundle.h"
#include "workspace/scan.h"

/* The daemon's side. All take a connected descriptor that they neither close nor keep.
 * ERR_UNCERTAIN: the connection was lost, which another try over another one may mend. A worker
 * that is silent for too long is ERR_PROVIDER. */

struct sync_progress {
        uint64_t files, bytes, sent_bytes, total_bytes;
};

struct sync_options {
        const char *remote_dir;   /* absolute */
        const char *remote_cache; /* a directory for hashes and parts of files; absolute */
        const struct excludes *excludes;
        struct budget *budget;       /* of a pull; may be NULL */
        const char *const *preserve; /* direct children that staging leaves alone; may be NULL */
        int64_t silence_ms; /* how long nothing may pass, either way, before it is given up; 0: no
                             * limit but the operation's */
        void (*progress)(void *ctx, const struct sync_progress *p);
        void *ctx;
};

/* Make the remote directory equal to the local tree. The baseline manifest (what was staged: a file
 * that changed meanwhile is in it as it was sent) is written to baseline_name in baseline_dir. */
int sync_push(struct op *op, int fd, int local_dir_fd, const char *cache_path, int baseline_dir,
              const char *baseline_name, const struct sync_options *options,
              struct sync_progress *ret, struct err *err);

/* Bring what differs from the baseline there into a bundle. `base_dir_fd` is the local workspace:
 * chunks it has are not sent. Resumes into an unfinished bundle. The manifest of what is there now
 * is written to next_name: the baseline of the next time, once the bundle is merged. The caller
 * finishes the bundle. ret_umask: the worker's. */
int sync_pull(struct op *op, int fd, int baseline_dir, const char *baseline_name,
              const char *next_name, int base_dir_fd, struct bundle_writer *into,
              const struct sync_options *options, uint32_t *ret_umask, struct sync_progress *ret,
              struct err *err);

/* Remove the remote directory and all that is in it; that it is not there is fine. Of the options
 * the remote directory counts. */
int sync_clear(struct op *op, int fd, const struct sync_options *options, struct err *err);
