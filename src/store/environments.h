/* Rows of `environments`. config and metadata are JSON texts. */
#pragma once

#include "store/db.h"

struct environment {
        const char *id, *company_id, *name, *description, *driver, *status;
        const char *config;   /* an object, never NULL */
        const char *metadata; /* an object or NULL */
        int64_t created_at, updated_at;
};

extern const struct row_type environment_table;

/* A second `local` of a company is ERR_CONFLICT. */
ROW_BASICS(environments, struct environment,
           environment_table) /* environments_insert(), environments_get() */
/* Insert unless the company has a local environment; then leave that one alone. */
int environments_insert_local(struct db *db, const struct environment *row, struct err *err);
int environments_get_local(struct db *db, const char *company_id, struct arena *arena,
                           struct environment *ret, struct err *err);
/* Newest update first; status and driver are exact filters or NULL. How many. */
int environments_list(struct db *db, const char *company_id, const char *status, const char *driver,
                      struct arena *arena, struct environment **ret, struct err *err);
/* Of all companies. */
int environments_of_driver(struct db *db, const char *driver, const char *status,
                           struct arena *arena, struct environment **ret, struct err *err);
/* Writes the row if it is still as it was at `seen_updated_at`; returns 0 when it is not. */
int environments_update(struct db *db, const struct environment *row, int64_t seen_updated_at,
                        struct err *err);
int environments_delete(struct db *db, const char *id, struct err *err);

/* `pointing` counts what names the environment as the place for its work: agents, projects, issues,
 * execution workspaces that are not archived, and the company with its default. */
struct environment_references {
        int64_t agents, execution_workspaces, issues, projects, companies, pointing;
        int64_t secret_bindings;
        int64_t active_leases, living_places, closing_places, idle_places;
};

/* What would be touched by deleting the environment. */
int environments_references(struct db *db, const struct environment *env,
                            struct environment_references *ret, struct err *err);
/* Whatever points at `env` points at `to_id` from now on. */
int environments_move_references(struct db *db, const struct environment *env, const char *to_id,
                                 int64_t now_us, struct err *err);
/* The bindings of its secrets go with it. */
int environments_clear_bindings(struct db *db, const struct environment *env, struct err *err);
