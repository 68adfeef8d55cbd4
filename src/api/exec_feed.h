/* The output of an execution as a feed reads it: from the output files, at an offset, up to what is
 * known to be there. A thousand idle ones cost their connection and this struct: all clients that
 * follow an execution share its open files. When the execution has ended, its row gives the last
 * word. terminal.c adds input to it. */
#pragma once

#include "api/exec_call.h"
#include "api/feed.h"

struct exec_feed {
        struct feed feed;
        struct exec_watch watch;
        char lease_id[UUID_LEN + 1], id[UUID_LEN + 1];
        bool keep, only_stderr; /* of the raw bytes; keep: wait for more until the end */
        struct exec_file *file[2];
        uint64_t at[2], len[2];
        uint64_t dropped[2]; /* right before `at`: gone by a limit, and to be told */
        bool watching;
        bool loaded; /* the row, after the end: `end` is filled in, and `len` does not change */
        bool load_failed;
        struct {
                const char *status; /* EXEC_*; static */
                int64_t code, signal;
                bool timed_out, incomplete;
                char reason[512];
        } end;
};

/* Operations of kinds of feeds; `feed` is in a struct exec_feed. */
int exec_feed_may(struct feed *f, struct op *op, struct err *err);
void exec_feed_load(struct feed *f, struct op *op);
void exec_feed_tick(struct feed *f);

/* Operation: feed_open() for the execution with this id, in the lease of the first parameter. */
void exec_feed_open(struct exec_feed *e, struct call *c, const char *id,
                    const struct feed_kind *kind, enum feed_frame frame, const char *company_id);
/* Beginning, on the loop: `changed` is told what is new, and stores the lengths by
 * exec_feed_grow(). */
void exec_feed_watch(struct exec_feed *e,
                     void (*changed)(struct exec_watch *watch, const struct exec_view *view));
void exec_feed_grow(struct exec_feed *e, const struct exec_view *view);
void exec_feed_unwatch(struct exec_feed *e);

/* Read the next part of a stream (0: stdout, 1: stderr) at e->at: FEED_MORE with *ret_len bytes,
 * FEED_WAIT, FEED_FAILED, or FEED_LOAD. `text`: a character that is cut in two waits for its rest,
 * unless there will be none. The caller moves e->at. */
enum feed_step exec_feed_read(struct exec_feed *e, int stream, bool text, char *out, size_t max,
                              size_t *ret_len);
/* For kind->free(), first. */
void exec_feed_done(struct exec_feed *e);
