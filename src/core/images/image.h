/* Images: the roots of built-in sandboxes, from registries, archives and directories.
 *
 * An image belongs to a company, or to the instance, whose images every company may use. Its layers
 * are unpacked once and shared as lower directories of overlays:
 *
 *   images/<layer id>/root   the unpacked layer (image/layer.h)
 *   images/<layer id>/new    the same while it is unpacked
 *   images/<layer id>/blob   what was fetched of it so far
 *
 *   pull     image `pulling` | documents | its layers `making` | fetched, verified, unpacked to
 *            new, synced, renamed | `ready`, one by one | image `ready`
 *   remove   `deleting` | image row gone | layers that no image has: `deleting`, removed, rows gone
 *
 * A crash between any two steps leaves rows that image_sweep() finishes. A layer that was cut keeps
 * its bytes for the next attempt.
 *
 * Rights. A layer that is on the disk is used for another image only when an image of the same
 * company, of the instance, or of the same repository of the same registry has it; and an image is
 * only made after the registry has given its manifest to this company's credentials. Otherwise the
 * layer is fetched again and kept apart: to know its digest is not enough.
 *
 * Operation threads. */
#pragma once

#include "codec/json.h"
#include "core/runtime.h"
#include "image/login.h"
#include "store/images.h"

/* Of the configuration document of a row. */
struct image_user {
        uint32_t uid, gid;
        const char *name, *home;
};

/* What to get. Strings are borrowed. */
struct image_request {
        const char *company_id;          /* whose it will be; NULL: the instance's */
        const char *reference;           /* as people write it */
        const struct image_login *login; /* NULL: none */
        /* Where it comes from; NULL: the registry of the reference. */
        const struct image_source {
                int fd;            /* an archive, a layout, or a directory */
                bool is_tree;      /* the directory is the root of a system */
                const json_t *set; /* its configuration then: user, workingDir, env, ... */
        } * from;
};

/* Rights: to see a company's images, and to change them (NULL: those of the instance). */
int image_may(struct op *op, struct runtime *rt, const char *company_id, bool write,
              struct err *err);

/* Credentials for the registry of a reference: the value of a secret ("user:password", or a token),
 * which takes the right to change secrets of the company; without one, for the operator only, what
 * ~/.docker/config.json of the daemon's user has. None is not an error. */
int image_login_for(struct op *op, struct runtime *rt, const char *company_id,
                    const char *reference, const char *secret_id, struct image_login *ret,
                    struct err *err);
/* Open an archive or a directory of this machine to import it: for the operator any but the
 * daemon's own files, for others what lies in the company's workspace_roots. */
int image_open_source(struct op *op, struct runtime *rt, const char *company_id, const char *path,
                      int *ret_fd, struct err *err);

/* Record the intent, and get everything on a thread of its own: the answer is the row, `pulling`,
 * in the operation's arena; later it is `ready` or `failed`. Takes login and source.
 * ERR_UNPROCESSABLE for a bad reference or a registry that the settings do not allow. */
int image_start(struct op *op, struct runtime *rt, const struct image_request *req,
                struct image_login *take_login, int take_source, struct image_row *ret,
                struct err *err);

/* How far a pull of this instance is: an array of {digest, state, done, total}, in the order of the
 * layers. NULL: it is not under way. A new reference. */
json_t *image_progress(const struct runtime *rt, const char *image_id);

/* The image that a sandbox of this company gets for a reference; with "missing" it is pulled when
 * it is not there, with "always" the registry is asked first. ERR_UNPROCESSABLE with "never" when
 * it is not there. A run (NULL: none) that waits for a pull says so in its events. */
int image_ensure(struct op *op, struct runtime *rt, const char *company_id, const char *reference,
                 const char *pull, const char *run_id, struct image_row *ret, struct err *err);
/* Inside a transaction: the image of that reference and digest, which is marked as used now. */
int image_claim(struct db *db, const char *company_id, const char *reference, const char *digest,
                struct arena *arena, struct image_row *ret, struct err *err);
/* Its directories, the uppermost first; how many. In the arena. */
int image_directories(struct op *op, struct runtime *rt, const char *image_id, const char **ret,
                      size_t room, struct err *err);
struct image_user image_user_of(const json_t *config);

int image_get_row(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                  struct image_row *ret, struct err *err);
/* ERR_CONFLICT: sandboxes or snapshots stand on it. `name`: an id, a reference or a digest. */
int image_remove(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                 struct image_row *ret, struct err *err);
/* All of the company (NULL: of the instance) that nothing stands on, and those that failed.
 * *ret_bytes: what that gave back. */
int image_prune(struct op *op, struct runtime *rt, const char *company_id, int64_t *ret_images,
                int64_t *ret_bytes, struct err *err);
/* Finish what an earlier instance began, remove layers that no image has, and keep to
 * image_store_max_mb. */
int image_sweep(struct op *op, struct runtime *rt, struct err *err);
