/* Boxes inside sandboxes that only a plugin's worker can reach.
 *
 * A worker can run one command at a time, to its end (environmentExecute). Where that works, such
 * commands put berth-box inside, once per sandbox, and from then on commands run in a box as
 * everywhere: their output streams, they take input and signals, have terminals, and outlive the
 * daemon. The stream to the box is carried by calls (codec/exchange.h, plugin_box_line.c).
 *
 * The place's configuration records its box before the first command:
 *
 *   "$box": {"base", "program", "env": {...}}
 *
 * Where no box can be put inside, commands run as one call each, as before, and the lease's
 * metadata says so: `commands` is `box` or `execute`, and `commandsReason` why.
 *
 * Operation threads, except where said. */
#pragma once

#include "core/exec/box_route.h"
#include "core/exec/exec.h"
#include "core/kinds/plugin/plugin_place.h"

/* Any thread: the route of a place that has a box inside; else NULL. */
const struct box_route *plugin_box_route_of(const struct place *place);

/* Put a box inside for a command, if there is none yet. 1 when there can be no box, or the command
 * is to be run without one. */
int plugin_box_admit(struct op *op, struct runtime *rt, const struct lease_record *record,
                     bool terminal, struct err *err);
/* Complete a request for the box. */
int plugin_box_prepare_exec(struct op *op, const struct plugin_lease *l, struct exec_request *req,
                            struct err *err);
/* Put a box inside for work that goes best through one, unless that failed before or is turned off.
 * An error is one of the operation; plugin_box_route_of() says whether there is a box then. */
int plugin_box_bring(struct op *op, struct runtime *rt, const struct lease *lease, struct err *err);
/* Before the place is given up: end the commands in its box, if it has one, as far as that works.
 */
void plugin_box_leave(struct op *op, struct runtime *rt, const struct place *place);

/* Between the files of the module. */

/* What is known of the box of a place; in the arena. */
struct plugin_box {
        const char *base, *program;
        json_t *env; /* borrowed from the arena's keeping */
};

/* ERR_NOT_FOUND when it has none. */
int plugin_box_read(struct op *op, const struct place *place, struct plugin_box *ret,
                    struct err *err);
/* The place's latest lease, loaded. */
int plugin_box_lease(struct op *op, struct runtime *rt, const struct place *place,
                     struct plugin_lease *ret, struct err *err);
/* The members of environmentExecute that a control command has; a new reference. The input may be
 * NULL. */
json_t *plugin_box_params(const struct plugin_lease *l, const char *command,
                          const char *const *args, const char *input);
/* Run a control command: 0 and what it printed (in the arena) when it could be run, whatever its
 * status, which is *ret_status. */
int plugin_box_run(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                   const char *command, const char *const *args, const char *input,
                   int64_t *ret_status, const char **ret_printed, struct err *err);

/* plugin_box_put.c: find a directory for the box, upload it unless it is there, record nothing. */
int plugin_box_put(struct op *op, struct runtime *rt, const struct plugin_lease *l,
                   json_t **ret_box, struct err *err);

/* plugin_box_known.c, any thread. A box was heard of, or may be gone; and whether it was heard of a
 * moment ago. A call was answered beside one that went on, or only after it had ended; and whether
 * calls of this environment wait for each other. */
void plugin_box_note_heard(const char *place_id, bool lives);
bool plugin_box_was_heard(const char *place_id);
void plugin_box_note_order(const char *environment_id, bool side_by_side);
bool plugin_box_is_serial(const char *environment_id);

/* plugin_box_line.c; loop thread: see struct box_route. */
int plugin_box_connect(struct runtime *rt, const struct place *place, int *ret_fd, struct err *err);
