/* This machine's resources for the built-in sandbox: directories, the range of host ids, and the
 * request for more sandboxes in advance. One per runtime, made at start.
 *
 * Immutable but for the cursor, the request, the pulls and the holds; any thread. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "core/runtime.h"
#include "core/sandboxes/host_ids.h"

struct sandbox_host {
        char *dir;           /* sandboxes/ */
        char *snapshots_dir; /* snapshots/ */
        char *output_dir;    /* output/: shared spools */
        char *images_dir;    /* images/: unpacked layers */
        char *box_program;
        struct id_range range;
        int64_t slice;
        int range_code; /* why there is no range, or 0 */
        char range_error[1024];
        _Atomic uint64_t cursor;       /* the slice to look at next */
        void (*want_stock)(void *arg); /* a sandbox was taken: any thread; NULL: not called */
        void *want_arg;
        _Atomic bool is_usable; /* sandbox_host_check() succeeded once */
        pthread_mutex_t images_lock;
        struct image_pull *pulls; /* core/images: those under way, for readers */
        pthread_mutex_t holds_lock;
        struct stock_hold *holds; /* stock.h */
};

int sandbox_host_new(const struct runtime *rt, const char *data_dir, const char *box_program,
                     struct sandbox_host **ret, struct err *err);
void sandbox_host_free(struct sandbox_host *host);

/* 0 when this machine has all that a sandbox needs, as the probe and `berth doctor` judge it; else
 * an error that says what is missing and how to mend it. Starts a process; a success is remembered.
 * `host` may be NULL. */
int sandbox_host_check(struct op *op, struct sandbox_host *host, struct err *err);
