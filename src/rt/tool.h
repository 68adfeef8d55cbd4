/* A program that is run for its output: npm, node for a manifest, git. It gets a session of its
 * own, which is killed as a whole when the program ends or its time is over, so nothing of it is
 * left. Operation threads. */
#pragma once

#include "base/buf.h"
#include "rt/become.h"
#include "rt/proc.h"

struct tool {
        const char *path;
        const char *const *argv;
        const char *const *env; /* exact */
        const char *cwd;
        int cwd_fd;              /* instead; 0: none */
        const struct become *as; /* with whose rights; NULL: ours */
        int64_t limit_ms;
        int in_fd;  /* its standard input; 0: nothing */
        int out_fd; /* where standard output goes, instead of `out`; 0: there */
        /* Standard output; past the buffer's bound the program is killed. */
        struct buf *out;
        /* A line of standard error (without its end, at most TOOL_LINE_MAX bytes), as it comes. */
        void (*line)(void *ctx, const char *line);
        void *ctx;
};

#define TOOL_LINE_MAX 1000

/* 0 when the program ended, however it did. ERR_TIMEOUT when its own limit passed, ERR_TOO_LARGE,
 * or what ended the operation: it is dead then. */
int tool_run(const struct op *op, const struct tool *tool, struct proc_status *ret,
             struct err *err);
