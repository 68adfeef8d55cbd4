/* Rows of `companies`. Strings live in the arena given. See store/db.h for threads. */
#pragma once

#include "store/db.h"

struct company {
        const char *id, *name, *description, *status, *issue_prefix, *brand_color;
        const char *default_environment_id; /* where work is done that names no place; NULL: none */
        int64_t issue_counter, budget_monthly_cents, spent_monthly_cents, attachment_max_bytes;
        bool require_board_approval;
        int64_t created_at, updated_at;
        int64_t erasing_at; /* since when it is being deleted with its history; 0: it is not */
};

extern const struct row_type company_table;

typedef int (*company_fn)(void *ctx, const struct company *row);

ROW_BASICS(companies, struct company, company_table) /* companies_insert(), companies_get() */
/* Oldest first. With `user_id`, only those where the user is an active member. */
int companies_list(struct db *db, const char *user_id, struct arena *arena, company_fn fn,
                   void *ctx, struct err *err);
/* How many agents it has. */
int companies_count_agents(struct db *db, const char *id, int64_t *ret, struct err *err);
/* How many agents or issues there are in each status; `table` is one of the two. */
int companies_count_by_status(struct db *db, const char *table, const char *id, struct arena *arena,
                              int (*fn)(void *ctx, const char *status, int64_t n), void *ctx,
                              struct err *err);
int companies_update(struct db *db, const struct company *row, struct err *err);
int companies_delete(struct db *db, const char *id, struct err *err);
bool companies_prefix_taken(struct db *db, const char *prefix);
/* Rows of other tables that block a delete: secrets, bindings, runs, agents. */
int companies_count_blockers(struct db *db, const char *id, int64_t *ret, struct err *err);
/* Places that may exist in the world. */
int companies_count_places(struct db *db, const char *id, int64_t *ret, struct err *err);
int companies_delete_agents(struct db *db, const char *id, struct err *err);
/* Those that are being deleted with their history. */
int companies_erasing(struct db *db, struct arena *arena, company_fn fn, void *ctx,
                      struct err *err);
