/* A lease with its environment, as all readers see it. Operations on leases are in
 * core/leases/lease.h. Operation threads, except where said; records live in the operation's arena.
 */
#pragma once

#include "core/kinds/kind.h"

#define LEASE_ACTIVE   "active"
#define LEASE_RELEASED "released"
#define LEASE_EXPIRED  "expired"
#define LEASE_FAILED   "failed"
#define LEASE_RETAINED "retained"

struct lease_record {
        struct environment env;
        struct lease lease;
        const char *workspace_mode; /* metadata.executionWorkspaceMode, or NULL */
        bool existed;               /* acquire: the idempotency key named a lease that was there */
};

bool lease_is_living(const struct lease *lease);

/* Lease and environment by id. */
int lease_load(struct op *op, struct runtime *rt, const char *lease_id, struct lease_record *ret,
               struct err *err);
/* The same inside a store function. */
int lease_record_get(struct db *db, const char *lease_id, struct arena *arena,
                     struct lease_record *ret, struct err *err);
/* Fill in the rest of the record, for a caller that has read the two rows. */
void lease_record_fill(struct lease_record *record, struct arena *arena);
/* A lease that may be used: active, its time not up; and its kind. */
int lease_load_usable(struct op *op, struct runtime *rt, const char *lease_id,
                      struct lease_record *ret, const struct kind **ret_kind, struct err *err);

/* Any thread. The kind of a living lease: by the driver recorded on it, else the environment's.
 * When that kind is not registered, the first function returns NULL, the second an error. */
const struct kind *lease_find_kind(const struct runtime *rt, const struct lease_record *record);
int lease_kind(const struct runtime *rt, const struct lease_record *record, const struct kind **ret,
               struct err *err);
/* The driver of that kind, registered or not. */
const char *lease_driver_key(const struct lease_record *record, struct arena *arena);
