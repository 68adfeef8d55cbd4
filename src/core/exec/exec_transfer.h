/* Moving files in and out of a place that can only run commands: plain execute, no box and no file
 * verbs.
 *
 * Every step is one command that runs to its end: [shell, "-c", script] in the directory `/`,
 * without input, with absolute paths only. So nothing depends on a working directory that may be
 * replaced meanwhile, and nothing on a provider that cannot pass input. Bytes travel as base64, out
 * in pieces that fit into an argument, back in pieces that fit into memory; a file appears under
 * its name complete or not at all.
 *
 * The output of these commands was made by programs in the place, so it is hostile input. Here it
 * is bounded and only decoded. A command whose end is not known fails the transfer; it is never run
 * twice.
 *
 * Operation threads. */
#pragma once

#include "base/buf.h"
#include "rt/op.h"

#define EXEC_TRANSFER_WRITE_CHUNK ((size_t)90 << 10) /* base64 of it fits into one argument */
#define EXEC_TRANSFER_READ_CHUNK  ((size_t)3 << 20)
#define EXEC_TRANSFER_TIMEOUT_MS  300000
#define EXEC_TRANSFER_PATH_MAX    4095
#define EXEC_TRANSFER_TEMP_SUFFIX ".paperclip-upload." /* and a UUID */

struct exec_transfer_answer {
        int exit_code; /* -1: none */
        bool timed_out;
        struct buf out, err;
};

/* How commands are run in the place. */
struct exec_transfer {
        /* Run argv (NULL-terminated) to its end: working directory `/`, no input. An error means
         * that it is not known to have ended; whatever the command itself does is an answer.
         * Buffers are the caller's. */
        int (*run)(struct op *op, void *ctx, const char *const *argv, int64_t timeout_ms,
                   struct exec_transfer_answer *ret, struct err *err);
        void *ctx;
        const char *shell;  /* as the lease declares it; all but "bash" means sh */
        int64_t timeout_ms; /* of one command; 0 or less: EXEC_TRANSFER_TIMEOUT_MS */
};

/* Errors of commands are ERR_PROVIDER, "<action> failed with exit code <n|null>[: <stderr>]"; the
 * action is the script, or "remove <path>". They are transient where that tells of a full disk.
 * Paths are absolute, without `..`; ERR_INVALID else. */

/* Whether the output of a command there tells of a disk that is full or fails: another try may
 * succeed. */
bool exec_transfer_tells_of_want(const char *errors);

/* Lines for sh that put a `.gitignore` into `.paperclip-runtime`, and that end the shell with an
 * error that names the link when a link is in the way to `dir` below `.paperclip-runtime`. Nothing
 * for a directory that lies elsewhere. The same as workspace/runtime_dir.h; pure. */
void runtime_script(struct buf *script, const char *dir);

/* `rm -rf`: a path that does not exist is fine. */
int exec_transfer_remove(struct op *op, const struct exec_transfer *t, const char *path,
                         struct err *err);
/* A script that has to succeed. timeout_ms 0: the transfer's. */
int exec_transfer_run(struct op *op, const struct exec_transfer *t, const char *script,
                      int64_t timeout_ms, struct err *err);
/* The bytes of fd, from where it stands to its end, as the file `path`, with its parents. An
 * existing file is replaced at once, at the end. */
int exec_transfer_write(struct op *op, const struct exec_transfer *t, const char *path, int fd,
                        mode_t mode, struct err *err);
/* The file `path`, written to fd. ERR_TOO_LARGE when it has more than `max` bytes; then, and after
 * other errors, fd may have got a part. */
int exec_transfer_read(struct op *op, const struct exec_transfer *t, const char *path, uint64_t max,
                       int fd, uint64_t *ret_size, struct err *err);
