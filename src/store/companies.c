#include "store/companies.h"

#define COLUMNS                                                                                    \
        "id, name, description, status, issue_prefix, issue_counter, budget_monthly_cents, "       \
        "spent_monthly_cents, attachment_max_bytes, require_board_approval, brand_color, "         \
        "default_environment_id, created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct company *c)
{
        *c = (struct company){
                .id = stmt_text(s, 0, a),
                .name = stmt_text(s, 1, a),
                .description = stmt_text(s, 2, a),
                .status = stmt_text(s, 3, a),
                .issue_prefix = stmt_text(s, 4, a),
                .issue_counter = stmt_number(s, 5),
                .budget_monthly_cents = stmt_number(s, 6),
                .spent_monthly_cents = stmt_number(s, 7),
                .attachment_max_bytes = stmt_number(s, 8),
                .require_board_approval = stmt_number(s, 9) != 0,
                .brand_color = stmt_text(s, 10, a),
                .default_environment_id = stmt_text(s, 11, a),
                .created_at = stmt_number(s, 12),
                .updated_at = stmt_number(s, 13),
        };
}

int companies_insert(struct db *db, const struct company *row, struct err *err)
{
        return db_exec(db,
                       "INSERT INTO companies (" COLUMNS
                       ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
                       DB_ARGS(DB_T(row->id), DB_T(row->name), DB_T(row->description),
                               DB_T(row->status), DB_T(row->issue_prefix), DB_I(row->issue_counter),
                               DB_I(row->budget_monthly_cents), DB_I(row->spent_monthly_cents),
                               DB_I(row->attachment_max_bytes), DB_I(row->require_board_approval),
                               DB_T(row->brand_color), DB_T(row->default_environment_id),
                               DB_I(row->created_at), DB_I(row->updated_at)),
                       err);
}

int companies_get(struct db *db, const char *id, struct arena *arena, struct company *ret,
                  struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM companies WHERE id = ?1", DB_ARGS(DB_T(id)),
                         &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Company not found");
        load(s, arena, ret);
        return 0;
}

int companies_list(struct db *db, const char *user_id, struct arena *arena, company_fn fn,
                   void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(
                db,
                "SELECT " COLUMNS " FROM companies WHERE CAST(?1 AS TEXT) IS NULL OR id IN "
                "(SELECT company_id FROM company_memberships WHERE principal_type = 'user' "
                "AND principal_id = ?1 AND status = 'active') ORDER BY created_at, id",
                DB_ARGS(DB_T(user_id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct company c;

                load(s, arena, &c);
                r = fn(ctx, &c);
        }
        return r;
}

int companies_count_agents(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db, "SELECT COUNT(*) FROM agents WHERE company_id = ?1", DB_ARGS(DB_T(id)),
                         ret, err);
}

int companies_count_by_status(struct db *db, const char *table, const char *id, struct arena *arena,
                              int (*fn)(void *ctx, const char *status, int64_t n), void *ctx,
                              struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         streq(table, "agents") ? "SELECT status, COUNT(*) FROM agents "
                                                  "WHERE company_id = ?1 GROUP BY status"
                                                : "SELECT status, COUNT(*) FROM issues "
                                                  "WHERE company_id = ?1 GROUP BY status",
                         DB_ARGS(DB_T(id)), &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0)
                r = fn(ctx, stmt_text(s, 0, arena), stmt_number(s, 1));
        return r;
}

int companies_update(struct db *db, const struct company *row, struct err *err)
{
        return db_exec(db,
                       "UPDATE companies SET name = ?2, description = ?3, status = ?4, "
                       "budget_monthly_cents = ?5, attachment_max_bytes = ?6, "
                       "require_board_approval = ?7, brand_color = ?8, updated_at = ?9, "
                       "default_environment_id = ?10 WHERE id = ?1",
                       DB_ARGS(DB_T(row->id), DB_T(row->name), DB_T(row->description),
                               DB_T(row->status), DB_I(row->budget_monthly_cents),
                               DB_I(row->attachment_max_bytes), DB_I(row->require_board_approval),
                               DB_T(row->brand_color), DB_I(row->updated_at),
                               DB_T(row->default_environment_id)),
                       err);
}

int companies_delete(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM companies WHERE id = ?1", DB_ARGS(DB_T(id)), err);
}

bool companies_prefix_taken(struct db *db, const char *prefix)
{
        int64_t one;

        return db_number(db, "SELECT 1 FROM companies WHERE issue_prefix = ?1",
                         DB_ARGS(DB_T(prefix)), &one, NULL) >= 0;
}

int companies_count_blockers(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT (SELECT COUNT(*) FROM company_secrets WHERE company_id = ?1) + "
                         "(SELECT COUNT(*) FROM company_secret_bindings WHERE company_id = ?1) + "
                         "(SELECT COUNT(*) FROM heartbeat_runs WHERE company_id = ?1) + "
                         "(SELECT COUNT(*) FROM agents WHERE company_id = ?1)",
                         DB_ARGS(DB_T(id)), ret, err);
}
