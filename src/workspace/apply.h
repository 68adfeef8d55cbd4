/* Makes a tree what it should be: this is how a file worker carries out what it is told.
 *
 * Every path is opened beneath the root, part by part, no symlink followed. An entry at a path
 * gives way to the one that should be there; only a directory keeps its content. A file that exists
 * is replaced by a temporary one and rename. `.paperclip-runtime` at the root is never touched.
 *
 * Directories that their owner may not write to get that right while the work goes on;
 * apply_finish() takes it away again.
 *
 * Part of berth-box, and of berth for tests. Blocking; one thread. */
#pragma once

#include "codec/tree.h"

struct apply_fix;

struct owner;

struct apply {
        int root_fd;
        int dir_fd; /* the directory of the last path; -1: none */
        char dir[TREE_MAX_PATH + 1];
        struct apply_fix *fixes; /* directories whose mode is still to be set */
        unsigned next_temp;
        const struct owner *owner; /* with whose rights apply_open() reads; NULL: our own */
};

void apply_init(struct apply *a, int take_root_fd);
void apply_done(struct apply *a);
int apply_finish(struct apply *a, struct err *err);

int apply_dir(struct apply *a, const char *path, uint32_t mode, struct err *err);
int apply_link(struct apply *a, const char *path, const char *target, struct err *err);
int apply_mode(struct apply *a, const char *path, uint32_t mode, struct err *err);
/* A directory only when it is empty; that it is not is fine. */
int apply_remove(struct apply *a, const char *path, struct err *err);
int apply_file(struct apply *a, const char *path, uint32_t mode, int64_t mtime_ns,
               const void *content, size_t len, struct err *err);
/* Put a complete file (name in from_dir_fd, open as fd) in place; it is gone from there. */
int apply_move(struct apply *a, const char *path, uint32_t mode, int64_t mtime_ns, int from_dir_fd,
               const char *from_name, int fd, struct err *err);
/* Everything beneath the root, whatever it is; the root stays. */
int apply_clear(struct apply *a, struct err *err);
/* A regular file to read, or -1. */
int apply_open(struct apply *a, const char *path);
int apply_open_to_write(struct apply *a, const char *path);
