/* Layers: a hostile archive unpacked into a directory.
 *
 * The archive is tar (ustar, pax, GNU, sparse files of either), plain or compressed by gzip or
 * zstd, read as a stream. Nothing outside the directory is ever written, read or changed: each part
 * of a path is opened from the directory above it and no link is followed; ".." is refused, a
 * leading
 * "/" means the directory. A link, a device or a file where a directory is needed is replaced by a
 * directory, as other unpackers do; a file is always a new one and never written through what was
 * there. The target of a hard link is a file of this directory, reached the same way, and no
 * symbolic link; it must have come before.
 *
 * What becomes of entries:
 *   files, directories, symbolic and hard links, fifos    made, with mode and mtime
 *   devices         dropped: sandboxes have a /dev of their own and are mounted nodev
 *   setuid, setgid  of files: dropped unless `keep_setid`; the sandbox is mounted nosuid, so they
 *                   have no effect there, but would for a user of the host who reaches the file
 *   xattrs          "user." is kept, except "user.overlay."; all others are dropped:
 *                   capabilities have no effect under nosuid, and the rest would steer the kernel
 *   whiteouts       see enum layer_form. They hide what lower layers have, never what this layer
 *                   itself has, whatever the order. An opaque root is refused for overlays, which
 * do not look for it there: what it hides would be seen
 *
 * On failure the directory has some of the layer: the caller removes it (layer_remove()).
 * Files are not synced: syncfs() before the rename that makes them count.
 *
 * Operation threads. */
#pragma once

#include "image/manifest.h"
#include "rt/op.h"

enum layer_form {
        /* A lower directory of an overlay that is mounted with `userxattr`, as all of Berth's are:
         * a whiteout is a character device 0:0, which every user may make since Linux 5.8; an
         * opaque directory has user.overlay.opaque=y. The file system must have user xattrs. */
        LAYER_OVERLAY = 1,
        /* The directory has the layers below, unpacked in order: what a whiteout names is removed.
         * Needs nothing of the file system. */
        LAYER_FLAT,
};

enum layer_owners {
        /* As in the archive, plus `first_id`; an id above `max_id` is refused. Needs the rights to
         * give files away. */
        LAYER_OWNERS_KEPT = 1,
        /* All belongs to the caller: an ordinary user, whose sandbox has one id. */
        LAYER_OWNERS_CALLER,
};

/* 0 stands for the default. */
struct layer_limits {
        uint64_t bytes;   /* of the unpacked stream, holes of sparse files included: 64 GiB */
        uint64_t entries; /* 4,000,000 */
        unsigned depth;   /* of directories: 128 */
        unsigned ratio;   /* unpacked to packed, once 256 MiB are unpacked: 400 */
};

/* Bytes within a file. */
struct layer_source {
        int fd;          /* regular file; read by pread() */
        uint64_t offset; /* where the layer begins */
        uint64_t size;
};

struct layer_spec {
        struct layer_source from;
        enum image_media media; /* IMAGE_MEDIA_TAR, _GZIP or _ZSTD */
        const char *diff_id;    /* what the plain content must be; NULL: not compared */
        int dir_fd;             /* borrowed; of the calling user */
        enum layer_form form;
        enum layer_owners owners;
        uint32_t first_id, max_id; /* of LAYER_OWNERS_KEPT; max_id 0: 65535 */
        bool keep_setid;
        struct layer_limits limits;
};

struct layer_result {
        char diff_id[IMAGE_DIGEST_SIZE];
        uint64_t bytes;                              /* of files, as ls shows them */
        uint64_t entries;                            /* made */
        uint64_t devices, setids, xattrs, whiteouts; /* dropped, dropped, dropped, applied */
};

/* ERR_INVALID: a hostile or broken archive, with the name of the entry. ERR_TOO_LARGE: a limit.
 * ERR_UNPROCESSABLE: the plain content is not what diff_id says. ERR_IO: the disk. */
int layer_unpack(struct op *op, const struct layer_spec *spec, struct layer_result *ret,
                 struct err *err);

/* Remove `name` beneath dir_fd with all that is in it, also where modes forbid the owner to search
 * or write. What is not there is fine. No link is followed, no mount point crossed. */
int layer_remove(struct op *op, int dir_fd, const char *name, struct err *err);
