/* One ssh process and the conversation with the script at its other end: whole lines in, bytes out,
 * standard error kept for the explanation. Nothing the host does costs more than the bounds below,
 * and every wait ends with the operation.
 *
 * Lines of ours carry a mark that the host cannot know before; lines without it (banners, start-up
 * files that print) are skipped, up to SESSION_NOISE_MAX bytes. Operation threads. */
#pragma once

#include "base/buf.h"
#include "rt/proc.h"

#define SESSION_MARK_LEN   31 /* berth:, 24 digits, a space */
#define SESSION_NOISE_MAX  ((size_t)256 << 10)
#define SESSION_LINE_MAX   ((size_t)16 << 10)
#define SESSION_ERRORS_MAX ((size_t)8 << 10)
#define SESSION_BURST_MAX  ((size_t)4 << 20) /* of a command, before its beginning is noticed */

struct ssh_session {
        struct proc proc;
        int fd;     /* its standard input and output: a socket that does not block */
        int err_fd; /* its standard error */
        int events;
        char mark[40];
        struct buf in, errors;
        char *line;        /* the last one */
        size_t errors_max; /* bytes that are kept of the errors */
        size_t noise;
        struct proc_status status; /* once it has ended */
        bool ended;
};

#define SSH_SESSION_INIT                                                                           \
        (struct ssh_session)                                                                       \
        {                                                                                          \
                .proc = PROC_INIT, .fd = -1, .err_fd = -1, .events = -1                            \
        }

int ssh_session_start(const char *trampoline, const char *const *argv, const char *const *env,
                      struct ssh_session *ret, struct err *err);
/* End the process, and everything that is left. */
void ssh_session_done(const struct op *op, struct ssh_session *s);

/* Send all of it; bytes that come meanwhile are kept. */
int ssh_session_send(struct op *op, struct ssh_session *s, const void *data, size_t len,
                     struct err *err);
/* The next line with our mark, without it. *ret is valid until the next call. ERR_NOT_FOUND when
 * the process ended instead: `status` and `errors` say how. */
int ssh_session_line(struct op *op, struct ssh_session *s, const char **ret, struct err *err);
/* Wait for our mark on standard error too, and drop what came there before it: it is not the
 * command's. */
int ssh_session_begin_errors(struct op *op, struct ssh_session *s, struct err *err);
/* Read on until the process has ended; the output is appended to `out`, which may be NULL. */
int ssh_session_finish(struct op *op, struct ssh_session *s, struct buf *out, struct err *err);

/* Follow the process to its end: send `len` bytes and then end-of-file, and hand on what comes on
 * both streams. */
typedef void (*ssh_output_fn)(void *ctx, bool is_stderr, const char *data, size_t len);
int ssh_session_follow(struct op *op, struct ssh_session *s, const char *data, size_t len,
                       ssh_output_fn fn, void *ctx, struct err *err);
