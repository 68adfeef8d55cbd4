/* Files through a provider's own file verbs, environmentSyncIn and environmentSyncOut.
 *
 * A worker may write nowhere but in its private directory, so every call has a directory of its own
 * in there: files that go in are put there before the call, files that come out land there. The
 * worker owns that directory: it can replace a file by a link, or the directory itself, at any
 * moment. So the daemon holds the directory by a descriptor and uses it only by way of
 * plugin_sync_open(), which follows no link; and the files that came out are hostile input for
 * their reader.
 *
 *     plugin_sync_begin()     make the directory
 *     plugin_sync_open()      its files, to write before plugin_sync_in(), to read after _out()
 *     plugin_sync_in/out()    call the worker
 *     plugin_sync_end()       remove it; a directory that a crash left is removed at the next start
 *
 * Paths on this side are relative to that directory. Paths on the other side are absolute and stay
 * beneath a root that the caller names. Both are checked before anything is sent.
 *
 * Operation threads. */
#pragma once

#include "core/kinds/plugin/plugin_place.h"

#define PLUGIN_SYNC_OPERATIONS_MAX 256
#define PLUGIN_SYNC_FILES_MAX      4096 /* of all operations together */

/* One mapping. `here` is relative to the directory of the call, "." is all of it; `there` is
 * absolute. Which one is the source follows from the direction. */
struct plugin_sync_file {
        const char *here, *there;
        bool is_directory;
        bool has_mode;
        mode_t mode;
        const char *const *exclude; /* NULL-terminated; may be NULL */
        bool follow_symlinks;
        const char *access;        /* "rw", "ro"; NULL: not said */
        const char *writable_path; /* NULL: none */
};

/* To be run there after the upload. */
struct plugin_sync_command {
        const char *command; /* for a shell, verbatim */
        const char *cwd;     /* within the operation's targets; NULL: not said */
        int64_t timeout_ms;  /* 0: not said */
};

struct plugin_sync_operation {
        const struct plugin_sync_file *files;
        size_t n_files;
        const struct plugin_sync_command *commands; /* only when bringing in */
        size_t n_commands;
        /* the answer */
        uint64_t files_transferred, bytes_transferred; /* as the worker has it */
};

struct plugin_sync {
        const struct plugin_lease *lease;
        const char *path; /* of the directory */
        uid_t owner;      /* of what is in it: the worker's user */
        int fd;
};

/* Whether the provider has both verbs, and neither the provider nor the lease rules them out. */
bool plugin_sync_is_native(struct runtime *rt, const struct plugin_lease *lease);

/* Lives in the operation's arena. */
int plugin_sync_begin(struct op *op, struct runtime *rt, const struct plugin_lease *lease,
                      struct plugin_sync *ret, struct err *err);
/* Also when the caller is being cancelled. A plugin_sync that was not begun (fd -1) is fine. */
void plugin_sync_end(struct op *op, struct plugin_sync *sync);
/* A file of the directory: regular, reached without any link, not waiting. Parents are made when
 * flags has O_CREAT, and the file must not exist then. ERR_FORBIDDEN when a link is in the way,
 * when it is not a regular file, or lies outside. */
int plugin_sync_open(const struct plugin_sync *sync, const char *here, int flags, int *ret_fd,
                     struct err *err);

/* Apply the operations in order, between the directory and what is beneath `root` there.
 * ERR_INVALID with the texts of the protocol for a path that leads out of its root; nothing was
 * sent then. */
int plugin_sync_in(struct op *op, struct runtime *rt, const struct plugin_sync *sync,
                   const char *root, struct plugin_sync_operation *operations, size_t n,
                   struct err *err);
int plugin_sync_out(struct op *op, struct runtime *rt, const struct plugin_sync *sync,
                    const char *root, struct plugin_sync_operation *operations, size_t n,
                    struct err *err);
