/* Drivers: how a kind of environment is opened and given up.
 *
 * The engine (lease.h) decides when; a driver only knows how. It never writes lease or place rows.
 * The contract that makes crashes harmless:
 *
 *   - open() is called after the intent was committed. The place's id is the idempotency key and
 * the owner tag, and the provider gets it where it can keep one. An error means that nothing
 * exists, unless the code is ERR_UNCERTAIN, ERR_TIMEOUT or ERR_CANCELLED.
 *   - close(), park() and resume() may be called again after a crash and must come to the same end.
 *     close() of something that does not exist succeeds.
 *   - list(), where a driver has it, names everything that exists by its owner tag.
 *
 * Called on operation threads; a driver is immutable. */
#ifndef BERTH_CORE_DRIVER_H
#define BERTH_CORE_DRIVER_H

#include "base/life.h"
#include "codec/json.h"
#include "core/runtime.h"
#include "store/environments.h"
#include "store/leases.h"
#include "store/places.h"

#define POLICY_EPHEMERAL         "ephemeral"
#define POLICY_REUSE_ENVIRONMENT "reuse_by_environment"
#define POLICY_REUSE_WORKSPACE   "reuse_by_execution_workspace"
#define POLICY_RETAIN_ON_FAILURE "retain_on_failure"
/* Of places only: made in advance and never used. The lease that takes one gives it its own. */
#define POLICY_STOCK "stock"

struct box_route;
struct lease_record;
struct exec_request;

struct lease_request {
        const char *run_id;                   /* NULL: ad-hoc */
        const char *issue_id;                 /* NULL: none */
        const char *execution_workspace_id;   /* NULL: none */
        const char *execution_workspace_mode; /* NULL: none */
        const char *idempotency_key;          /* NULL: none */
        int64_t ttl_ms;                       /* 0: none asked for */
};

/* What a driver wants for a request, before anything happens. In the operation's arena. */
struct lease_plan {
        const char *provider; /* the lease's `provider` */
        const char *policy;
        const char *config; /* JSON object: the provider's configuration, stored with the place */
        bool has_world;     /* open() touches something outside the database */
        bool reuse;         /* an idle place with a matching configuration will do */
        int64_t open_ms;    /* what opening may take beyond the time of an operation; 0: nothing */
        bool stock;         /* one made in advance will do */
};

/* What a provider answered. In the operation's arena. */
struct provider_lease {
        const char *id;     /* provider_lease_id; may be NULL */
        json_t *metadata;   /* object, borrowed from the arena's keeping; may be NULL */
        int64_t expires_at; /* 0: never */
        const char *config; /* what the place's configuration becomes; NULL: it stays */
};

/* Something that exists in the world. */
struct driver_thing {
        const char *provider, *owner_tag, *description;
        const char *node; /* that had it made; NULL: it does not say */
};

typedef int (*driver_found_fn)(void *ctx, const struct driver_thing *thing);

struct driver {
        const char *key;
        /* What runs in its places can reach neither this machine nor other places. Everything that
         * depends on how far a command is trusted asks this, never the key. */
        bool isolated;
        /* What runs in its places runs on this machine, as the user that the daemon runs as: who
         * may have that is decided in host_use.h. */
        bool runs_on_host;
        /* The same in words, said wherever an environment of this kind can be chosen. */
        const char *isolation;

        /* Whether this configuration lets what runs in its places reach services of this machine
         * that nobody else reaches. NULL: none does. */
        bool (*reaches_host)(const json_t *config);

        /* Check the configuration and say what is wanted. No outside effect. */
        int (*plan)(struct op *op, struct runtime *rt, const struct environment *env,
                    const struct lease_request *req, struct lease_plan *ret, struct err *err);
        /* Inside the transaction that records the intent: take what the place needs of what there
         * is only so much of. It is given back with the move to `gone` (place.h). NULL: nothing. */
        int (*claim)(struct db *db, struct runtime *rt, const struct place *place,
                     struct arena *arena, struct err *err);
        int (*open)(struct op *op, struct runtime *rt, const struct place *place,
                    const struct lease_request *req, struct provider_lease *ret, struct err *err);
        /* Take an idle place into use again. ERR_NOT_FOUND: it is not there any more. NULL: nothing
         * to do. Of a place made in advance, which may still be taken by somebody else, it only
         * tells the answer. */
        int (*resume)(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err);
        /* The last lease ended but the place stays for the next one. NULL: nothing to do. */
        int (*park)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        /* Make it not exist. */
        int (*close)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        /* Whether recorded configuration serves a request that plans for `wanted`. */
        bool (*matches)(const char *recorded, const char *wanted);
        /* Everything that exists now. NULL: this driver cannot list. */
        int (*list)(struct op *op, struct runtime *rt, driver_found_fn fn, void *ctx,
                    struct err *err);
        /* Whether list() would name this place. NULL: it names all. */
        bool (*lists)(const struct place *place);
        /* Whether what was opened still lives; LIFE_NO only where that is proved. Never blocks.
         * NULL: nobody can say. Callers ask driver_is_dead(). */
        enum life (*is_alive)(const struct runtime *rt, const struct place *place);
        /* Metadata of a fresh lease, in order: the engine puts driver and executionWorkspaceMode
         * first. */
        void (*describe)(const struct place *place, const struct provider_lease *opened,
                         bool resumed, json_t *metadata);

        /* Optional operations on a lease; NULL gives the seed's "does not support" text. */
        int (*pause_lease)(struct op *op, struct runtime *rt, const struct environment *env,
                           const struct lease *lease, struct buf *ret_json, struct err *err);
        int (*resume_lease)(struct op *op, struct runtime *rt, const struct environment *env,
                            const struct lease *lease, struct buf *ret_json, struct err *err);
        bool (*can_destroy)(const struct lease *lease);
        int (*realize)(struct op *op, struct runtime *rt, const struct environment *env,
                       const struct lease *lease, json_t *workspace, struct buf *ret_json,
                       json_t **ret_realization, struct err *err);
        /* Turn the caller's request into what the box gets. NULL, or an error with the seed's text,
         * where commands cannot run. */
        int (*prepare_exec)(struct op *op, struct runtime *rt, const struct lease_record *record,
                            json_t *request, struct exec_request *ret, struct err *err);
        /* How the box of a place is reached (box_route.h). NULL, or NULL for this place: on this
         * machine, if there is one at all. */
        const struct box_route *(*route)(const struct place *place);
        /* What exists in the world is made on first need, so a place may rightly have nothing. */
        bool makes_world_lazily;
        bool writes_cleanup_status; /* releases record success or failure on the lease */
        const char
                *release_failure_reason; /* written when a lease is released as failed; or NULL */
};

extern const struct driver driver_local;
extern const struct driver driver_sandbox;
extern const struct driver driver_plugin;
extern const struct driver driver_ssh;

/* The driver with that key; ERR_UNPROCESSABLE with the seed's text when there is none. */
int driver_find(const struct runtime *rt, const char *key, const struct driver **ret,
                struct err *err);
/* NULL when there is none. */
const struct driver *driver_lookup(const struct runtime *rt, const char *key);

/* Whether an environment with this driver keeps its places apart from the host and from each other.
 * A driver that is not registered does not. */
bool driver_is_isolated(const struct runtime *rt, const char *key);
/* Whether it runs things on this machine; one that is not registered runs nothing. */
bool driver_runs_on_host(const struct runtime *rt, const char *key);
/* The same in words. */
const char *driver_isolation(const struct runtime *rt, const char *key);

/* Whether what exists for a place can be found by our tag, so that closing what may or may not be
 * there settles it. */
bool driver_can_find(const struct runtime *rt, const struct place *place);

/* It is proved that what was opened for the place has ended. False where nobody can say. */
bool driver_is_dead(const struct runtime *rt, const struct place *place);

/* "Environment driver "x" does not support <what>." */
int driver_unsupported(const char *key, const char *what, struct err *err);

#endif
