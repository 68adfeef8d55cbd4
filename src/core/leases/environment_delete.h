/* Deleting an environment, which may mean giving up the places made in it. Operation threads. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/environments.h"

/* Refused while places live, unless close_leases says to give them up first, and while other
 * records point at the environment (env_move.h), unless they are moved to the environment
 * `move_to`; NULL: they are not moved. */
int environment_delete(struct op *op, struct runtime *rt, const char *id, bool close_leases,
                       const char *move_to, struct environment *ret, struct err *err);
/* Release its leases and close its idle places; those that cannot be closed now are left. */
int environment_give_up(struct op *op, struct runtime *rt, const char *id, struct err *err);
/* What deleting would touch, and what prevents it. */
struct blast_radius {
        struct environment_references refs;
        bool is_managed_local;
        json_t *blocked; /* names of reasons; the caller's reference */
};
int environment_blast_radius(struct op *op, struct runtime *rt, const char *id,
                             struct blast_radius *ret, struct err *err);
