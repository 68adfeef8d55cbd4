/* How much output of commands is kept on this machine's disk, for one execution and for all
 * executions of a place, and what happens at the limit.
 *
 * The box beside the commands keeps to the limit by itself (berth-box/spool.c). The daemon takes no
 * more than that from a box elsewhere (exec_spool.c), and keeps no more of a command without a box
 * (exec_remote.c). The limits are those of the place's configuration, else of the daemon's
 * settings. */
#pragma once

#include "codec/frame.h"
#include "core/exec/exec.h"

/* Any thread. The limits, with what the place has taken so far. */
struct box_output exec_output_limits(const struct runtime *rt, const struct place *place);
/* Copy the members of an environment's configuration that set these limits into that of a place. */
void exec_output_keep(const json_t *from, json_t *to);
#define OUTPUT_MB_MAX 16777216
/* What one execution may use: the smaller of its limit and of what the place has left. */
uint64_t exec_output_max(const struct box_output *o);

/* What places have taken: bytes of executions that have ended and were not forgotten. Any thread.
 */

/* Operation, at start. */
int exec_output_load(struct op *op, struct exec_hub *hub, struct err *err);
void exec_output_took(struct exec_hub *hub, const char *place_id, int64_t bytes);
/* The bytes of both streams together, as a box said them; never more than fits. */
int64_t exec_output_bytes(uint64_t stdout_len, uint64_t stderr_len);
void exec_output_free(struct exec_hub *hub);

/* Operation, before the end of an execution is recorded: when this returns 0, what it printed is on
 * the disk with the names of its files, or the row says that it is incomplete, and how much there
 * is. Costs nothing when it printed nothing. Below 0: the machine lacks a resource; try again. */
int exec_output_make_safe(const struct exec_hub *hub, struct execution *row, struct err *err);

/* Why an execution failed that ended with BOX_EXIT_OUTPUT, or with BOX_EXIT_DISK_FULL: `dir` is
 * where there was no room, NULL for the disk of another machine. */
const char *exec_output_reason(const struct box_exit *exit, char *ret, size_t size);
const char *exec_disk_full_reason(const struct runtime *rt, const char *dir, char *ret,
                                  size_t size);

/* Give the oldest bytes of both files (stdout, stderr) back, in steps of 1 MiB, until no more than
 * the limit is kept, or less than a step of each. punched: how much is gone of each. False: the
 * file system cannot do that, and the writer must stop at the limit. */
bool exec_output_drop(const int fds[2], const uint64_t len[2], uint64_t punched[2], uint64_t limit);

/* The first byte at or after `offset` that is kept: the oldest may be gone, and would read as
 * zeros. */
uint64_t exec_output_from(int fd, uint64_t offset);
