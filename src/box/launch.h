/* Boxes on this machine: starting one, reaching it, and cleaning up after one that died.
 *
 * A box lives in a directory of its own; it holds a lock there as long as it lives, so whether it
 * is alive is the kernel's word and not a guess from a process id. Operation threads. */
#pragma once

#include "base/life.h"
#include "rt/op.h"

/* Start a box in `dir` (made when missing) and wait until it is ready. One that runs there already
 * is fine. On failure a box may still come up there; box_is_alive() says so from before its process
 * exists, and box_bury() ends it. */
int box_launch(struct op *op, const char *program, const char *dir, const char *id,
               struct err *err);

/* Connect to the box in `dir`; ERR_NOT_FOUND when no process listens there, another code when that
 * cannot be known now. Never waits. */
int box_connect(const char *dir, int *ret_fd, struct err *err);

/* Whether a box lives there. LIFE_NO is proved: there is no lock, or it is free. errno says what
 * went wrong with LIFE_UNKNOWN. */
enum life box_is_alive(const char *dir);
/* As an error: 1, 0, or ERR_BUSY when it cannot be known now. */
int box_check_alive(const char *dir, struct err *err);

/* Make the directory when it is missing and take the lock that says that a box lives there. The
 * process that starts a box takes the lock first and hands it over (BOX_LOCK_FD), so that a process
 * on its way to become a box is visible at every moment. ERR_LOCKED: another box has it. */
int box_lock_take(const char *dir, int *ret_fd, struct err *err);
/* The same in a directory that is open. */
int box_lock_take_at(int dir_fd, const char *dir, int *ret_fd, struct err *err);

#define BOX_LOCK_FD 3 /* where `berth-box --locked` finds it */

/* What berth-box said when it refused: the text after "error ", up to the end of the line, behind
 * `what`. Transient when it says so (BOX_NOT_NOW), and when it said nothing: it was killed. Returns
 * code. */
int launch_refused(const char *word, int code, const char *what, struct err *err);

/* The box is dead, or must die: end it, whatever it ran (found by cgroup and by the marker variable
 * of the executions named), and remove its directory. Comes to the same end when called again. An
 * error: something of it may be left, also when that cannot be known now. */
int box_bury(struct op *op, const char *dir, const char *id, const char *const *exec_ids,
             struct err *err);
