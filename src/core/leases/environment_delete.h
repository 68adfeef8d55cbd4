/* Deleting an environment, which may mean giving up what was made in it. Operation threads. */
#ifndef BERTH_CORE_ENVIRONMENT_DELETE_H
#define BERTH_CORE_ENVIRONMENT_DELETE_H

#include "codec/json.h"
#include "core/access/access.h"
#include "store/environments.h"

/* Refused while places live, unless close_leases says to give them up first, and while something
 * points at it (env_move.h), unless that is moved to the environment `move_to`; NULL: it is not. */
int environment_delete(struct op *op, struct runtime *rt, const char *id, bool close_leases,
                       const char *move_to, struct environment *ret, struct err *err);
/* What deleting would touch, and what stands against it, as the API's document. */
int environment_blast_radius(struct op *op, struct runtime *rt, const char *id,
                             struct buf *ret_json, struct err *err);

#endif
