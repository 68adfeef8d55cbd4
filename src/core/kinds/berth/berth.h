/* The kind `berth`, the built-in sandbox: Linux namespaces on this machine, with berth-box as their
 * PID 1 (box/sandbox.h). Shared by its files:
 *
 *   berth.c          opening, parking, resuming, closing, listing
 *   berth_config.c   the configuration: schema, defaults, checks
 *   berth_image.c    what a sandbox takes from its image (core/images)
 *   berth_meta.c     what a lease's metadata says of its sandbox
 *   berth_probe.c    the probe
 *   berth_overlay.c  workspaces as layers over a directory of this machine
 *   berth_fork.c     new places with the files of a living one
 *   snapshot.c       writable layers that are kept (snapshot.h)
 *
 * A place of this kind is a directory in the data directory:
 *
 *   sandboxes/<place id>/box       the box's own (docs/box-protocol.md, section 9)
 *   sandboxes/<place id>/store     the files written inside, with storage "disk"
 *   sandboxes/<place id>/image     the same, with storage "image"
 *   sandboxes/<place id>/workspace-<id>/  the layers of a workspace (berth_overlay.c)
 *   sandboxes/<place id>/report    what the launcher enforced, for readers
 *
 * Its row in `sandboxes` (store/sandboxes.h) is written in the transaction that records the intent,
 * and goes in the one that records that the place is gone. */
#pragma once

#include "box/sandbox.h"
#include "core/kinds/sandbox.h"
#include "store/sandboxes.h"

#define BERTH_PROVIDER  "berth"
#define BERTH_WORKSPACE "/workspace"
/* Directories of a place that the layers of a workspace are in. */
#define BERTH_WORKSPACE_PREFIX "workspace-"

extern const struct kind kind_berth;
/* The ways (workspace.h) that only this kind has. */
extern const struct workspace_way berth_overlay, berth_copy;

/* Configuration */

/* Members of struct kind. */
int berth_normalize(const struct kind *kind, json_t *config, enum config_form form, json_t **ret,
                    struct err *err);
/* Checks that depend on the daemon: its mode, its directories, its rights. ERR_UNPROCESSABLE, with
 * the issue as details. */
int berth_check(const struct runtime *rt, const json_t *config, struct err *err);
/* JSON Schema of the configuration; a new reference. */
json_t *berth_schema(const struct kind *kind);
/* Whether a place with the first configuration serves the second: all but the size of the pool. */
bool berth_matches(const char *recorded, const char *wanted);
int64_t berth_stock_size(const json_t *config);

/* What the launcher gets for a checked configuration and a row. Strings are borrowed from both. */
int berth_spec(struct op *op, const struct runtime *rt, const json_t *config,
               const struct sandbox_row *row, const char *dir, struct sandbox_spec *ret,
               struct err *err);

/* Images */

/* Whether the root is a rootfs or an image. */
bool berth_has_base(const json_t *config);
/* Before a place is planned: the image is here, pulled when that is needed, and *config names its
 * digest. Nothing for a configuration without an image. */
int berth_image_plan(struct op *op, struct runtime *rt, const char *company_id, const char *run_id,
                     json_t **config, struct err *err);
/* Inside the transaction that records a place: its image, and the user that commands are.
 * `of_snapshot`: the image that its snapshot stands on, or NULL. */
int berth_image_claim(struct db *db, const struct place *place, const char *of_snapshot,
                      struct arena *arena, struct sandbox_row *row, struct err *err);
int berth_image_spec(struct op *op, struct runtime *rt, const json_t *config,
                     const struct sandbox_row *row, struct sandbox_spec *spec, struct err *err);
/* What the image sets for commands: added to `variables`; *ret_cwd is left alone where it has no
 * working directory. */
int berth_image_defaults(struct op *op, struct runtime *rt, const struct sandbox_row *row,
                         const json_t *config, json_t *variables, const char **ret_cwd,
                         struct err *err);

int berth_row(struct op *op, struct runtime *rt, const char *place_id, struct sandbox_row *ret,
              struct err *err);

/* Directories */

char *berth_dir(const struct runtime *rt, const char *place_id);
char *berth_box_dir(const struct runtime *rt, const char *place_id);
/* Remove a tree that a sandbox wrote. Its content is untrusted. */
int berth_remove_tree(struct op *op, const char *path, struct err *err);

/* Start the sandbox of a place, or leave nothing of it. */
int berth_start(struct op *op, struct runtime *rt, const struct place *place, const json_t *config,
                struct sandbox_report *ret, struct err *err);

/* Metadata */

/* `config` as readers of a lease see it, and what the launcher said. A new reference. */
json_t *berth_describe(const json_t *config, const struct sandbox_report *report);
/* Keep it beside the place, and read it back; {} when it is not there. */
void berth_keep_report(const char *dir, const json_t *metadata);
json_t *berth_read_report(const char *dir);

/* Forks: members of struct kind. */
int berth_fork(struct op *op, struct runtime *rt, const struct lease_record *source,
               const char **ret_config, struct err *err);
int berth_fork_end(struct op *op, struct runtime *rt, const char *config, struct err *err);
/* The configuration of a place of `env` that starts from a snapshot. */
int berth_fork_snapshot(struct op *op, struct runtime *rt, const struct environment *env,
                        const char *name, const char **ret_config, struct err *err);

int berth_probe(struct op *op, struct runtime *rt, const struct probe_target *target,
                json_t *config, struct probe_result *ret, struct err *err);
