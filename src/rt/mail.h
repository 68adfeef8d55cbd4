/* Letters to the loop thread: any thread posts a function, the loop thread runs it. Letters of one
 * thread are run in the order they were posted.
 *
 * mail_post() and mail_call(): any thread. The rest: loop thread. */
#pragma once

#include <uv.h>

#include "rt/op.h"

struct mail;

/* Embedded in what the letter is about; free to use again once its function was called. */
struct letter {
        struct letter *next;
        void (*fn)(struct letter *letter);
};

int mail_new(uv_loop_t *loop, struct mail **ret, struct err *err);
/* Letters that were not delivered are dropped. Frees once the loop has closed the handle. */
void mail_free(struct mail *m);
/* Loop thread: deliver now what was posted before this call. */
void mail_catch_up(struct mail *m);
void mail_post(struct mail *m, struct letter *letter, void (*fn)(struct letter *));

/* Something that an operation waits for and the loop thread completes. The waiter may give up
 * (deadline, cancel), so both sides hold a reference. */
struct promise;

struct promise *promise_new(struct err *err);
struct promise *promise_ref(struct promise *p);
void promise_unref(struct promise *p);
/* Once; later calls are ignored. code 0 or ERR_*, text for the error. Any thread. */
void promise_keep(struct promise *p, int code, const char *text);
/* What promise_keep() said, or ERR_TIMEOUT or ERR_CANCELLED when the operation ended first. */
int promise_wait(struct promise *p, const struct op *op, struct err *err);
