/* Environments: create, read, change, delete. Each function checks the actor's rights inside the
 * transaction that does the work.
 *
 * Operation threads; results live in the operation's arena. */
#pragma once

#include "codec/json.h"
#include "core/access/access.h"
#include "store/environments.h"

extern const char *const environment_statuses[]; /* active archived NULL */

/* What a new environment is to be, or what changes in an old one. NULL: not given. Borrowed; the
 * resulting row may point into it. */
struct environment_change {
        const char *name, *description, *driver, *status;
        json_t *config, *metadata;
        bool has_description, has_metadata; /* given, and NULL is a value */
        bool replace_config;                /* `config` is not merged over the old one */
        const char *move_to;                /* where references to it go (env_move.h) */
};

/* Whether the actor may create or change it, before the wish is looked at. */
int environment_may_create(struct op *op, struct runtime *rt, const char *company_id,
                           struct err *err);
int environment_may_update(struct op *op, struct runtime *rt, const char *id, struct err *err);

/* Name and driver are given. After environment_may_create(). */
int environment_create(struct op *op, struct runtime *rt, const char *company_id,
                       const struct environment_change *wish, struct environment *ret,
                       struct err *err);
/* *ret_redacted: the actor may not see the configuration and the metadata. */
int environment_get(struct op *op, struct runtime *rt, const char *id, struct environment *ret,
                    bool *ret_redacted, struct err *err);
/* The row for an actor that manages environments; 403 for others. */
int environment_manage(struct op *op, struct runtime *rt, const char *id, struct environment *ret,
                       struct err *err);
/* The same inside a store function, and for a row that environment_check_row() may refuse. */
int environment_get_managed(struct db *db, const struct op *op, const char *id,
                            struct environment *ret, struct err *err);
/* How many. */
int environment_list(struct op *op, struct runtime *rt, const char *company_id, const char *status,
                     const char *driver, struct environment **ret, bool *ret_redacted,
                     struct err *err);
/* Archiving is refused like deleting, while something refers to the environment. So is a change
 * from an isolated kind of place to one that is not: such a change never moves work out of a
 * sandbox that was chosen for it. */
int environment_update(struct op *op, struct runtime *rt, const char *id,
                       const struct environment_change *wish, struct environment *ret,
                       struct err *err);

/* The company's local environment; made when there is none, left unchanged when there is. Inside a
 * store_write() function. */
int environment_ensure_local(struct db *db, const char *company_id, struct arena *arena,
                             struct environment *ret, struct err *err);

/* Check a submitted configuration and turn it into the stored form. This may ask a plugin's worker,
 * so it must not run in a transaction. *ret is a new reference; *ret_schema says which members are
 * secret, NULL: none. */
int environment_persist_config(struct op *op, struct runtime *rt, const char *driver,
                               json_t *config, json_t **ret, const json_t **ret_schema,
                               struct err *err);

/* Whether an acting agent may make or change an environment like this (agent_fields.h). `before` is
 * NULL for a new one; a `config` of NULL stays as it is. */
int environment_check_fields(struct db *db, const struct op *op, const struct runtime *rt,
                             const struct environment *before, const char *driver,
                             const char *status, json_t *config, struct err *err);

/* Unknown enumeration values in a row are refused rather than passed on. */
int environment_check_row(const struct runtime *rt, const struct environment *env, struct err *err);
