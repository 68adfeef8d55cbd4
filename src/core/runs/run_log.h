/* The log of a run: one file of NDJSON records {"ts", "stream", "chunk"}, only ever appended to
 * (docs/events.md). It is made from the output files of the run's executions, which the box wrote
 * and redacted: each record says how far into its stream it goes, so after a crash the next record
 * begins exactly where the last whole one ended, and no byte is lost or repeated. Records of the
 * system are the daemon's own.
 *
 *   {"ts":"...Z","stream":"stdout","seq":1,"source":"1a2b3c4d","end":[4096,0],"chunk":"..."}
 *   {"ts":"...Z","stream":"system","seq":2,"chunk":"..."}
 *
 * `source` is the beginning of the execution's id, `end` how many bytes of its standard output and
 * of its standard error the records up to here cover. `image` says that the output (1), the error
 * (2) or both (3) end inside a picture (codec/image_data.h). So the last record of output says how
 * far both streams are covered, and opening a log again reads no more than its end.
 *
 * `mark` is "limit" in the record after which output is only counted, "left_out" in the record that
 * says how much output that was, and "incomplete" in the record that says that output was lost. NUL
 * and bytes that are not UTF-8 become U+FFFD.
 *
 * `<data>/run-logs/<company>/<agent>/<run>.ndjson`; `log_ref` is the part after run-logs/.
 *
 * One thread at a time per run writes; any thread reads. */
#pragma once

#include "core/runtime.h"
#include "store/runs.h"

#define RUN_LOG_CHUNK_MAX 65536 /* bytes of a record's chunk, so no more characters either */

struct run_log;

/* Open for appending; made when missing. The rest of a record that a crash cut short is removed. */
int run_log_open(struct runtime *rt, const struct run *run, struct run_log **ret, struct err *err);
void run_log_close(struct run_log *log);
/* The value for the run's log_ref; lives in the log. */
const char *run_log_ref(const struct run_log *log);

/* Append a line of the daemon's own. */
int run_log_system(struct run_log *log, const char *text, struct err *err);
/* Append the new output of the execution's files, at most a few MiB at a time: 1 when there is
 * more. `final`: no output follows, so a character that was cut in two will not be completed; when
 * everything is appended, it is on the disk. Past the size limit (settings.run_log_max_bytes) one
 * record says so, and output is only counted; the last record says how much was left out. A run may
 * have several executions, one after the other. */
int run_log_pump(struct run_log *log, const char *execution_id, bool final, struct err *err);

/* Append a line that says that output of the execution was lost, and why. On the disk when this
 * returns 0. */
int run_log_incomplete(struct run_log *log, const char *reason, struct err *err);

struct run_log_state {
        int64_t bytes;      /* of the file */
        int64_t records;    /* in it */
        int64_t last_at;    /* of the last record of output; 0: none */
        const char *stream; /* its stream; static */
        int64_t first_at;   /* of the first; 0: none */
};
void run_log_state(const struct run_log *log, struct run_log_state *ret);
/* Of the whole file, as hexadecimal digits; also its length. */
int run_log_digest(struct run_log *log, char ret_hex[65], int64_t *ret_bytes, struct err *err);
/* The first few KiB of each stream, for the row: heap, or NULL. */
int run_log_excerpts(struct runtime *rt, const char *execution_id, char **ret_out, char **ret_err,
                     struct err *err);

/* Read whole records from `offset` on, at most `limit` bytes of them (at least one record, however
 * long). An offset in the middle of a record means the next one. *ret_next is the offset after
 * them. Any thread. ERR_NOT_FOUND `Run log not found`; ERR_IO: it cannot be read now. */
int run_log_read(struct runtime *rt, const char *log_ref, int64_t offset, int64_t limit,
                 struct buf *ret, int64_t *ret_next, struct err *err);
