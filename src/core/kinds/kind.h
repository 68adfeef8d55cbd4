/* Kinds of places: one table for each kind holds everything in which it differs from the others.
 *
 * There are six: local, ssh, berth (the built-in sandbox), fake, a plugin's sandbox provider and a
 * plugin's driver. Each has a folder here and a line in src/core/meson.build, from which the list
 * `builtin_kinds` is made. No other folder compares the name of a driver or a provider: it finds
 * the kind of a row with kind_of_place() and the like, and asks the table (test/unit/kind-names
 * checks that; docs/decisions/0015-kinds.md says why).
 *
 * The engine (lease.h) decides when a place is opened and given up; a kind only knows how. It never
 * writes lease or place rows. The contract that makes crashes harmless:
 *
 *   - open() is called after the intent was committed. The place's id is the idempotency key and
 *     the owner tag, and the provider gets it where it can keep one. An error means that nothing
 *     exists, unless the code is ERR_UNCERTAIN, ERR_TIMEOUT or ERR_CANCELLED.
 *   - close(), park() and resume() may be called again after a crash and must come to the same end.
 *     close() of something that does not exist succeeds.
 *   - list(), where a kind has it, names everything that exists by its owner tag.
 *
 * Called on operation threads except where said; a kind is immutable. */
#pragma once

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
/* Of places only: made in advance and never used. The lease that takes such a place gives it the
 * lease's own policy. */
#define POLICY_STOCK "stock"

struct box_route;
struct carrier_type;
struct exec_request;
struct exec_transfer;
struct lease_record;
struct workspace_way;

struct lease_request {
        const char *run_id;                   /* NULL: ad-hoc */
        const char *issue_id;                 /* NULL: none */
        const char *execution_workspace_id;   /* NULL: none */
        const char *execution_workspace_mode; /* NULL: none */
        const char *agent_id, *adapter_type;  /* of the agent that works there; NULL: none */
        const char *requested_cwd; /* the directory of the work, before it is brought; NULL: none */
        const json_t *workspace_settings; /* of the issue, an object; NULL: none */
        const char *idempotency_key;      /* NULL: none */
        int64_t ttl_ms;                   /* 0: none asked for */
        const char *config; /* of the place, as a place's row has it; NULL: the environment's */
};

/* The place that a request needs, before anything happens. In the operation's arena. */
struct lease_plan {
        const char *provider; /* the lease's `provider` */
        const char *policy;
        const char *config; /* JSON object: the provider's configuration, stored with the place */
        bool has_world;     /* open() touches something outside the database */
        bool reuse;         /* an idle place with a matching configuration will do */
        int64_t open_ms;    /* what opening may take beyond an operation's time; 0: nothing */
        bool stock;         /* one made in advance will do */
};

/* What a provider answered. In the operation's arena. */
struct provider_lease {
        const char *id;     /* provider_lease_id; may be NULL */
        json_t *metadata;   /* object, borrowed from the arena's keeping; may be NULL */
        int64_t expires_at; /* 0: never */
        const char *config; /* the place's new configuration; NULL: it stays */
};

/* Something that exists in the world. */
struct kind_thing {
        const char *provider, *owner_tag, *description;
        const char *node; /* that had it made; NULL: it does not say */
};

typedef int (*kind_found_fn)(void *ctx, const struct kind_thing *thing);

enum config_form {
        CONFIG_STORED,    /* a row: no secret in clear */
        CONFIG_SUBMITTED, /* to be saved or probed: secrets of `secrets` may be given in clear */
};

/* A member of the configuration that is a secret: submitted in clear, stored as a reference. */
struct kind_secret {
        const char *member;    /* holds the value, or null */
        const char *reference; /* holds {type, secretId, version}, or null */
        const char *name;      /* what the secret made of it is called */
};

/* What is probed, and how it went. A failed probe is a result, not an error. */
struct probe_target {
        const char *company_id;
        const char *environment_id; /* NULL: an unsaved configuration */
};

struct probe_result {
        const char *driver; /* set by probe.c, as is the empty object */
        bool ok;
        struct buf summary;
        json_t *details; /* object */
        struct buf hint; /* one line that says what would help; empty: none */
};

/* How a workspace gets into the place, as the realization record (realization.h) says it. */
struct kind_realization {
        const char *strategy, *prepare, *sync_back; /* sync_back may be NULL */
        /* A sentence, as a new reference. `local` and `remote` are paths; cwd, remote: or NULL. */
        json_t *(*summary)(const json_t *metadata, const char *local, const char *remote,
                           const char *cwd);
};

/* An environment of the kind that a new company may get as its default. */
struct kind_starter {
        const char *name, *description;
        const char *config; /* JSON, as if it was submitted; NULL: the company has one anyway */
        /* Whether this machine can have it; NULL: it can. */
        int (*check)(struct op *op, struct runtime *rt, struct err *err);
};

struct kind {
        /* -- Its names ---------------------------------------------------------------------- */

        /* The `driver` of its environments and places, and the `provider` that their configuration
         * names. NULL: every provider that no other kind of the driver has. */
        const char *driver, *provider;
        const char *label;        /* what texts call its places */
        const char *display_name; /* what the list of providers shows; NULL where provider is */
        const char *description;  /* in the same list; NULL: none */

        /* -- What it is --------------------------------------------------------------------- */

        /* `isolated` in words, said wherever an environment of this kind can be chosen. */
        const char *isolation;
        /* Commands in its places can reach neither this machine nor other places. Every decision on
         * how far a command is trusted asks this. */
        bool isolated;
        /* Commands in its places run on this machine, as the daemon's user; host_use.h decides
         * which callers may use it. */
        bool runs_on_host;
        bool is_unnamed;    /* of the driver's kinds, the one where no provider is named */
        bool is_elsewhere;  /* its places are not on this machine */
        bool has_own_files; /* a machine whose directories are there before a lease and after it */
        bool is_disposable; /* a place begins empty and ends with its files: a program that an
                               agent's command lacks is installed there */
        bool takes_runs;    /* agents work there */
        bool board_only;    /* what its configuration means is known to its provider only, so no
                               agent's key may configure it */
        bool is_managed;    /* every company has one such environment, which stays */
        bool can_destroy;   /* a lease can be ended with its place, whatever else would use it */
        bool box_is_place;  /* its box is opened with the place, and there is never another */
        /* close() needs the id that the provider answered with: without that id, it is unknown what
         * exists. */
        bool closes_by_id;
        bool makes_world_lazily;    /* on first need, so a place may rightly have nothing */
        bool writes_cleanup_status; /* releases record success or failure on the lease */
        bool has_run_dirs;          /* a workspace is staged into a directory of its run */
        bool has_secrets_by_schema; /* validate() answers with a schema that names secrets */
        bool keeps_references;      /* of these, only {type: "secret_ref"} is a reference, which is
                                       stored as it was sent; texts and ids are what they are */
        const char *release_failure_reason; /* of a lease released as failed; NULL: none */
        /* Whether this configuration lets commands in its places reach services of this machine
         * that can be reached only from it. NULL: none does. */
        bool (*reaches_host)(const json_t *config);
        /* Whether programs in a place of this configuration reach nothing beyond it. If not,
         * *ret_allowed is the list of the hosts that they reach, or NULL: any. NULL: not known. */
        bool (*is_offline)(const json_t *config, const json_t **ret_allowed);
        const struct kind_starter *starter; /* NULL: no company begins with one */
        /* An environment was deleted: forget what the daemon keeps of it. Called for any driver,
         * since the environment may have had another one. NULL: nothing is kept. */
        void (*forget_environment)(struct runtime *rt, const char *environment_id);

        /* -- Its configuration -------------------------------------------------------------- */

        /* Check it and fill in defaults; `config` is an object. *ret is a new reference.
         * ERR_UNPROCESSABLE with the first issue's text and all issues as details. Pure; any
         * thread. */
        int (*normalize)(const struct kind *kind, json_t *config, enum config_form form,
                         json_t **ret, struct err *err);
        json_t *(*schema)(const struct kind *kind); /* a new reference. NULL: none */
        const struct kind_secret *secrets; /* ends with a member that is NULL. NULL: none */
        /* Whether the actor may save a normal configuration here. NULL: yes. */
        int (*may_save)(const struct op *op, const struct runtime *rt, const json_t *config,
                        struct err *err);
        /* Ask a plugin's worker that has rules of its own for the configuration, and replace it by
         * the result. *ret_schema (may be NULL) is set where a schema says what is secret; the
         * arena keeps it. NULL: there are no further rules. */
        int (*validate)(struct op *op, struct runtime *rt, json_t **config,
                        const json_t **ret_schema, struct err *err);
        /* What this daemon does not allow in a normal configuration. NULL: nothing. */
        int (*check)(const struct runtime *rt, const json_t *config, struct err *err);
        int (*probe)(struct op *op, struct runtime *rt, const struct probe_target *target,
                     json_t *config, struct probe_result *ret, struct err *err);

        /* -- Its places --------------------------------------------------------------------- */

        /* Check the configuration and plan the place. No outside effect, but that an image is
         * pulled which the place will need. */
        int (*plan)(struct op *op, struct runtime *rt, const struct environment *env,
                    const struct lease_request *req, struct lease_plan *ret, struct err *err);
        /* Inside the transaction that records the intent: take what the place needs of a limited
         * resource; and give it back in the transaction that records that the place is gone
         * (place.h). NULL: nothing. */
        int (*claim)(struct db *db, struct runtime *rt, const struct place *place,
                     struct arena *arena, struct err *err);
        int (*unclaim)(struct db *db, const struct place *place, struct err *err);
        int (*open)(struct op *op, struct runtime *rt, const struct place *place,
                    const struct lease_request *req, struct provider_lease *ret, struct err *err);
        /* Take an idle place into use again. ERR_NOT_FOUND: it does not exist any more. NULL:
         * nothing to do. For a place made in advance, which another lease may still take, it only
         * returns the answer. */
        int (*resume)(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err);
        /* The last lease ended but the place stays for the next one. NULL: nothing to do. */
        int (*park)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        /* Remove the place from the world. */
        int (*close)(struct op *op, struct runtime *rt, const struct place *place, struct err *err);
        /* Whether a place with the recorded configuration serves a request that plans for `wanted`.
         * NULL: none ever does. Callers ask kind_matches(). */
        bool (*matches)(const char *recorded, const char *wanted);
        /* How many places made in advance a configuration wants (stock.h). NULL: none. */
        int64_t (*stock_size)(const json_t *config);
        /* Everything that exists now. NULL: the kind cannot list. */
        int (*list)(struct op *op, struct runtime *rt, const struct kind *kind, kind_found_fn fn,
                    void *ctx, struct err *err);
        /* Whether list() would name this place, where that differs from place to place. NULL: it
         * does. */
        bool (*can_list)(const struct runtime *rt, const struct place *place);
        /* Whether its places are nothing but rows here, so that list() names none. NULL: they are
         * more. */
        bool (*is_only_rows)(const struct runtime *rt);
        /* Whether an opened place still lives; LIFE_NO only where its end is proved. Never blocks.
         * NULL: that cannot be known. Callers ask kind_is_dead(). */
        enum life (*is_alive)(const struct runtime *rt, const struct place *place);

        /* -- Its leases --------------------------------------------------------------------- */

        /* Metadata of a fresh lease, in order: the engine puts driver and executionWorkspaceMode
         * first. */
        void (*describe)(const struct place *place, const struct provider_lease *opened,
                         bool resumed, json_t *metadata);
        /* Members of that metadata that say which machine it is. NULL: its provider and lease do.
         * Ends with NULL. */
        const char *const *identity;
        /* The same as `user@host:port`, in the arena, from an object with those members. */
        const char *(*address)(struct arena *arena, const json_t *object);

        /* Keep the files of a living lease's place as they are, for new places to start from: those
         * that are opened with the configuration *ret_config (lease_fork.c). fork_end() says that
         * no more of them will be asked for. NULL: its places cannot be forked. */
        int (*fork)(struct op *op, struct runtime *rt, const struct lease_record *source,
                    const char **ret_config, struct err *err);
        int (*fork_end)(struct op *op, struct runtime *rt, const char *config, struct err *err);
        /* Optional operations; NULL gives the text "does not support". *ret is the provider's
         * answer, a document that the operation's arena keeps; that of realize() is {cwd, metadata:
         * {workspaceRealization}}. */
        int (*pause_lease)(struct op *op, struct runtime *rt, const struct lease *lease,
                           json_t **ret, struct err *err);
        int (*resume_lease)(struct op *op, struct runtime *rt, const struct lease *lease,
                            json_t **ret, struct err *err);
        int (*realize)(struct op *op, struct runtime *rt, const struct environment *env,
                       const struct lease *lease, json_t *workspace, json_t **ret, struct err *err);

        /* -- Commands ----------------------------------------------------------------------- */

        /* Before a request is read in detail: refuse it, by its variables (own_env, not checked
         * yet) or whatever it says, and make the place ready for it. 1: a runner takes it to its
         * end, without a terminal. NULL: nothing to say. */
        int (*admit_exec)(struct op *op, struct runtime *rt, const struct lease_record *record,
                          const struct exec_request *req, struct err *err);
        /* Complete the caller's request for the box, or for the runner where there is no box
         * (exec_request.remote). NULL: commands cannot run. */
        int (*prepare_exec)(struct op *op, struct runtime *rt, const struct lease_record *record,
                            struct exec_request *req, struct err *err);
        /* Inside the transaction that records a command: refuse it, or say as which user of this
         * machine the box writes the output; *ret_writer is left unchanged for the daemon's own
         * user. NULL: nothing to say. */
        int (*admit_command)(struct db *db, const struct place *place, struct arena *arena,
                             uid_t *ret_writer, struct err *err);
        /* Any thread: how the box of a place is reached (box_route.h). NULL, or NULL for this
         * place: it has no box. */
        const struct box_route *(*route)(const struct place *place);
        /* Of places whose boxes are reached through one process (core/carriers/carrier.h). NULL:
         * they are reached in another way. */
        const struct carrier_type *carrier;
        /* Put a box into the place of a lease, where there is none yet and that can be tried. The
         * place's row, read again, says whether it worked. NULL: nothing to do. */
        int (*bring_box)(struct op *op, struct runtime *rt, const struct lease *lease,
                         struct err *err);
        /* How files are moved by single commands, where no box does it; everything in the
         * operation's arena. NULL: they are not. */
        int (*transfer)(struct op *op, struct runtime *rt, const struct lease *lease,
                        struct exec_transfer *ret, struct err *err);
        /* End every command in a place that stays open. NULL: its box does it. */
        int (*end_commands)(struct op *op, struct runtime *rt, const struct place *place,
                            struct err *err);

        /* -- Workspaces --------------------------------------------------------------------- */

        /* The ways of a workspace (workspace.h), the best first, each list ended by NULL: for a
         * request without an isolation, for a copy, and for an overlay. NULL: there is none. */
        const struct workspace_way *const *ways, *const *ways_copy, *const *ways_overlay;
        const struct kind_realization *realization;
};

/* All kinds; NULL-terminated. Made from the list in src/core/meson.build. */
extern const struct kind *const builtin_kinds[];

/* The kind of a driver and a provider (may be NULL: none is named); NULL when there is none. Names
 * are compared nowhere else. */
const struct kind *kind_find(const struct runtime *rt, const char *driver, const char *provider);
/* The kind of a row. */
const struct kind *kind_of_environment(const struct runtime *rt, const struct environment *env);
const struct kind *kind_of_place(const struct runtime *rt, const struct place *place);
/* The kind of a configuration that is not a row yet. */
const struct kind *kind_of_config(const struct runtime *rt, const char *driver,
                                  const json_t *config);
/* Any kind of a driver, for what its kinds have in common; and the kind of a provider by name, NULL
 * when that is not built in. */
const struct kind *kind_of_driver(const struct runtime *rt, const char *driver);
const struct kind *kind_of_provider(const struct runtime *rt, const char *provider);

/* For a caller that needs one: ERR_UNPROCESSABLE with Paperclip's text for a kind that is NULL. */
int kind_required(const struct kind *kind, const char *driver, struct err *err);
/* "Environment driver "x" does not support <what>." */
int kind_unsupported(const struct kind *kind, const char *what, struct err *err);

/* The first kind of each driver in turn: kind_next_driver(rt, NULL), and so on, until NULL. */
const struct kind *const *kind_next_driver(const struct runtime *rt, const struct kind *const *at);
/* The drivers that there are; NULL-terminated, in the arena. */
const char *const *kind_drivers(const struct runtime *rt, struct arena *arena);
/* Whether a kind of this driver takes runs. */
bool kind_driver_takes_runs(const struct runtime *rt, const char *driver);

/* Check and normalise `config` (NULL counts as {}) by the rules of its kind. *ret is a new
 * reference. Pure; any thread. */
int kind_normalize(const struct runtime *rt, const char *driver, json_t *config,
                   enum config_form form, json_t **ret, struct err *err);
/* The stored configuration of an environment of this kind, normalised; the operation's arena keeps
 * it. Operation threads. */
int kind_config(struct op *op, const struct kind *kind, const struct environment *env, json_t **ret,
                struct err *err);
/* The recorded configuration of a place, kept in the same way. */
int kind_place_config(struct op *op, const struct place *place, json_t **ret, struct err *err);
/* How many members `secrets` names. */
size_t kind_n_secrets(const struct kind *kind);
/* ^[a-z0-9][a-z0-9._-]*$ */
bool kind_is_key(const char *s);

/* Whether an environment keeps its places apart from the host and from each other. One whose kind
 * is not known does not. */
bool kind_is_isolated(const struct runtime *rt, const struct environment *env);
/* The same in words. */
const char *kind_isolation(const struct runtime *rt, const struct environment *env);
/* Whether the driver runs commands on this machine; a driver that is not registered runs none. */
bool kind_runs_on_host(const struct runtime *rt, const char *driver);

/* Whether a place with the recorded configuration serves what is wanted. */
bool kind_matches(const struct kind *kind, const char *recorded, const char *wanted);
/* Whether the kind can find what exists for a place by our tag, so that closing settles a place
 * that may or may not exist. */
bool kind_can_find(const struct runtime *rt, const struct place *place);
/* Whether it is proved that what was opened for the place has ended. False where that cannot be
 * known. */
bool kind_is_dead(const struct runtime *rt, const struct place *place);
