/* The file of a run's log, for run_log*.c: its records as they are stored. */
#pragma once

#include "codec/image_data.h"
#include "core/runs/run_log.h"

#define RUN_LOG_SOURCE_LEN 8   /* of an execution's id */
#define RUN_LOG_HEAD_MAX   256 /* of a record, before its chunk */
#define RUN_LOG_RECORD_MAX (RUN_LOG_CHUNK_MAX * 6 + RUN_LOG_HEAD_MAX + 16)

/* How far the log covers the output of one execution. */
struct run_log_source {
        char name[RUN_LOG_SOURCE_LEN + 1]; /* "": of none yet */
        int64_t end[2];
        struct image_data image[2];
};

/* The sum of the records of a file. */
struct run_log_summary {
        struct run_log_state state;
        bool is_full;                 /* the mark of the limit is there */
        bool is_counted;              /* and the record that says how much was left out */
        bool is_incomplete;           /* and the record that says that output is missing */
        struct run_log_source source; /* of the last record of output */
};

/* Read the end of the file, as far as needed, and its beginning. `state.bytes` is where the records
 * end. */
int run_log_scan(int fd, struct run_log_summary *ret, struct err *err);
/* Make the execution the source: go on where its records left off, if there are some. Reads the
 * whole file when the source was another execution. */
int run_log_turn_to(int fd, struct run_log_summary *s, const char *execution_id, struct err *err);
/* The path of a log, on the heap. */
char *run_log_path(const struct runtime *rt, const char *log_ref);
