/* Images that come without a registry: what `docker save`, `podman save` and `skopeo copy` write,
 * and plain directories.
 *
 * A docker archive and an OCI archive are tar files, told apart by what is in them; an OCI layout
 * is a directory. One may have several images. Names inside are looked for beneath the archive or
 * the directory and nowhere else, links are not followed, and all documents are checked as those of
 * a registry (image/manifest.h). A docker archive has no manifest in the sense of a registry: one
 * is made, with the layers' plain content as their digests, so that the same image always gets the
 * same digest.
 *
 * Operation threads; one thread at a time. */
#pragma once

#include "image/layer.h"

#define IMAGE_ARCHIVE_MAX_ENTRIES 65536
#define IMAGE_ARCHIVE_MAX_IMAGES  256

struct image_archive;

/* `fd`, which is borrowed until the end, is a regular file or a directory; what is piped has to be
 * written to a file first. ERR_INVALID: neither an archive nor a layout, with a text that says what
 * is missing (and, for a compressed file, how to unpack it). */
int image_archive_open(struct op *op, int fd, struct image_archive **ret, struct err *err);
void image_archive_close(struct image_archive *a); /* NULL is fine */

/* The names of the images, in the order of the archive; "" for one without a name. They are what
 * the archive says and may be anything; image_ref_parse() tells. */
size_t image_archive_count(const struct image_archive *a);
const char *image_archive_name(const struct image_archive *a, size_t i);

/* Image i: its documents, verified. In the arena of the operation. ERR_UNPROCESSABLE: none for the
 * platform. */
int image_archive_image(struct op *op, struct image_archive *a, size_t i,
                        const struct image_platform *platform, struct image *ret, struct err *err);

/* Write a layer to to_fd, an empty file, and verify its digest. */
int image_archive_copy(struct op *op, struct image_archive *a, const struct image_descriptor *layer,
                       int to_fd, struct err *err);

/* The tree beneath dir_fd as an image of one layer, which is written to to_fd (an empty file) as
 * plain tar: entries sorted, with owners, modes, mtimes, hard links and "user." xattrs; devices,
 * sockets and other file systems are left out. `config` has user, working directory, variables,
 * entry point and command; NULL: none. The caller guarantees that nothing changes the tree
 * meanwhile; a file that does is an error. The same tree gives the same digest. */
int image_from_dir(struct op *op, int dir_fd, const struct image_config *config, int to_fd,
                   struct image *ret, struct err *err);
