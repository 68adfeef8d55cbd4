/* Errors: a code that decides what to do, and a text for the person who has to do it.
 *
 * A function that can fail returns 0 or more on success and one of the negative codes below on
 * failure, and fills *err when err is not NULL. err_set(), err_sys() and err_wrap() return the
 * code, so that a failure is one statement: `return err_set(err, ERR_NOT_FOUND, "Lease not
 * found");`
 *
 * One table (err.c) maps a code to an HTTP status, a process exit status and a log level, and says
 * whether the same attempt may succeed later without any change: an error is transient by its code,
 * or by the errno that caused it. Lower layers do not log; the code that handles an error logs it
 * once. No secret enters a message.
 *
 * A struct err on the stack starts as {0} and owns `details`; use CLEAN(err_done).
 *
 * Any thread; one struct err belongs to one thread at a time. */
#pragma once

#include "base/util.h"

enum err_code {
        ERR_INTERNAL = -1,         /* a bug of ours, or the machine failed us */
        ERR_INVALID = -2,          /* malformed input: 400 */
        ERR_UNAUTHORIZED = -3,     /* no valid identity: 401 */
        ERR_FORBIDDEN = -4,        /* identity without the right: 403 */
        ERR_NOT_FOUND = -5,        /* 404 */
        ERR_CONFLICT = -6,         /* lost a race, or the state does not allow it: 409 */
        ERR_TOO_LARGE = -7,        /* past a size limit: 413 */
        ERR_UNPROCESSABLE = -8,    /* well-formed but not possible: 422 */
        ERR_PROVIDER = -9,         /* a provider, worker or remote host failed: 502 */
        ERR_BUSY = -10,            /* a queue is full or we are stopping: 503 */
        ERR_TIMEOUT = -11,         /* a deadline passed: 504 */
        ERR_CANCELLED = -12,       /* the caller gave up */
        ERR_NOT_IMPLEMENTED = -13, /* 501 */
        ERR_IO = -14,              /* disk full, unreadable file, broken pipe */
        ERR_CORRUPT = -15,         /* stored bytes do not make sense */
        ERR_VERSION = -16,         /* stored by a newer version */
        ERR_LOCKED = -17,          /* another process holds the lock */
        ERR_USAGE = -18,           /* wrong command line */
        ERR_UNREACHABLE = -19,     /* the other end does not answer, and has done nothing: 502 */
        ERR_UNCERTAIN = -20,       /* an outside effect may or may not have happened */
        ERR_THROTTLED = -21,       /* another party asks us to slow down: 429 */
};

struct err {
        int code;
        bool is_transient; /* the table's word on the code, unless the cause is known better */
        char msg[1024];    /* UTF-8; cut at a character boundary when longer */
        char *details;     /* JSON text for the error body, or NULL; owned */
};

struct err_info {
        const char *name;
        int http_status;
        int exit_status;
        bool is_our_fault; /* log as error rather than as a caller's mistake */
        bool is_transient; /* trying again later may help */
};

void err_done(struct err *err);
void err_clear(struct err *err);

/* Set code and text, drop the details; returns code. err may be NULL. Arguments may point into
 * *err.
 */
int err_set(struct err *err, int code, const char *fmt, ...) PRINTF(3, 4);

/* As err_set(), with ": <strerror(errno_value)>" appended. ENOSPC, EDQUOT and EIO become ERR_IO. An
 * errno of a want (room, descriptors, memory) makes any code transient; another one makes ERR_IO
 * permanent, for a directory that may not be written stays so. */
int err_sys(struct err *err, int code, int errno_value, const char *fmt, ...) PRINTF(4, 5);

/* Put "<text>: " in front of the message that is there already; keeps the details, and whether it
 * is transient; returns code. */
int err_wrap(struct err *err, int code, const char *fmt, ...) PRINTF(3, 4);

/* The analysers look at one file at a time and would follow paths on which these return 0. They see
 * that the code comes back. */
#if defined(__clang_analyzer__) || defined(BERTH_ANALYZER)
#define err_set(err, code, ...)                                                                    \
        __extension__({                                                                            \
                const int err_code_ = (code);                                                      \
                (void)err_set((err), err_code_, __VA_ARGS__);                                      \
                err_code_;                                                                         \
        })
#define err_sys(err, code, number, ...)                                                            \
        __extension__({                                                                            \
                const int err_code_ = (code);                                                      \
                (void)err_sys((err), err_code_, (number), __VA_ARGS__);                            \
                err_code_;                                                                         \
        })
#define err_wrap(err, code, ...)                                                                   \
        __extension__({                                                                            \
                const int err_code_ = (code);                                                      \
                (void)err_wrap((err), err_code_, __VA_ARGS__);                                     \
                err_code_;                                                                         \
        })
#endif

/* The code that made the error knows that it may pass, whatever the error code says. err may be
 * NULL. */
void err_mark_transient(struct err *err);

/* Attach JSON text (heap, taken) to be sent as `details`. */
void err_details(struct err *err, char *take_json);

/* Move *from into *to (which may be NULL) and empty *from. */
void err_move(struct err *to, struct err *from);

/* What a code means to the outside; never NULL. */
const struct err_info *err_info(int code);
