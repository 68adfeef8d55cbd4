#include "store/execution_workspaces.h"

#define COLUMNS                                                                                    \
        "id, company_id, project_id, project_workspace_id, source_issue_id, mode, strategy_type, " \
        "name, status, cwd, repo_url, base_ref, branch_name, provider_type, provider_ref, "        \
        "derived_from_execution_workspace_id, last_used_at, opened_at, closed_at, "                \
        "cleanup_eligible_at, cleanup_reason, metadata, created_at, updated_at, cwd_from"

static void load(struct stmt *s, struct arena *a, struct execution_workspace *row)
{
        *row = (struct execution_workspace){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .project_id = stmt_text(s, 2, a),
                .project_workspace_id = stmt_text(s, 3, a),
                .source_issue_id = stmt_text(s, 4, a),
                .mode = stmt_text(s, 5, a),
                .strategy_type = stmt_text(s, 6, a),
                .name = stmt_text(s, 7, a),
                .status = stmt_text(s, 8, a),
                .cwd = stmt_text(s, 9, a),
                .repo_url = stmt_text(s, 10, a),
                .base_ref = stmt_text(s, 11, a),
                .branch_name = stmt_text(s, 12, a),
                .provider_type = stmt_text(s, 13, a),
                .provider_ref = stmt_text(s, 14, a),
                .derived_from_id = stmt_text(s, 15, a),
                .last_used_at = stmt_number(s, 16),
                .opened_at = stmt_number(s, 17),
                .closed_at = stmt_number(s, 18),
                .cleanup_eligible_at = stmt_number(s, 19),
                .cleanup_reason = stmt_text(s, 20, a),
                .metadata = stmt_text(s, 21, a),
                .created_at = stmt_number(s, 22),
                .updated_at = stmt_number(s, 23),
                .cwd_from = stmt_text(s, 24, a),
        };
}

int execution_workspaces_insert(struct db *db, const struct execution_workspace *row,
                                struct err *err)
{
        int r = db_exec(
                db,
                "INSERT INTO execution_workspaces (" COLUMNS
                ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, "
                "?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25)",
                DB_ARGS(DB_T(row->id), DB_T(row->company_id), DB_T(row->project_id),
                        DB_T(row->project_workspace_id), DB_T(row->source_issue_id),
                        DB_T(row->mode), DB_T(row->strategy_type), DB_T(row->name),
                        DB_T(row->status), DB_T(row->cwd), DB_T(row->repo_url), DB_T(row->base_ref),
                        DB_T(row->branch_name), DB_T(row->provider_type), DB_T(row->provider_ref),
                        DB_T(row->derived_from_id), DB_I(row->last_used_at), DB_I(row->opened_at),
                        DB_TIME(row->closed_at), DB_TIME(row->cleanup_eligible_at),
                        DB_T(row->cleanup_reason), DB_T(row->metadata), DB_I(row->created_at),
                        DB_I(row->updated_at), DB_T(row->cwd_from)),
                err);

        return r < 0 ? r : 0;
}

int execution_workspaces_get(struct db *db, const char *id, struct arena *arena,
                             struct execution_workspace *ret, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT " COLUMNS " FROM execution_workspaces WHERE id = ?1",
                         DB_ARGS(DB_T(id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Execution workspace not found");
        load(s, arena, ret);
        return 0;
}

int execution_workspaces_list(struct db *db, const char *company_id,
                              const struct execution_workspace_filter *filter, struct arena *arena,
                              execution_workspace_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT " COLUMNS " FROM execution_workspaces WHERE company_id = ?1 "
                         "AND (CAST(?2 AS TEXT) IS NULL OR project_id = ?2) "
                         "AND (CAST(?3 AS TEXT) IS NULL OR project_workspace_id = ?3) "
                         "AND (CAST(?4 AS TEXT) IS NULL OR source_issue_id = ?4) "
                         "AND (CAST(?5 AS TEXT) IS NULL OR status = ?5) "
                         "AND (?6 = 0 OR status IN ('active', 'idle', 'in_review')) "
                         "ORDER BY last_used_at DESC, created_at DESC, id",
                         DB_ARGS(DB_T(company_id), DB_T(filter->project_id),
                                 DB_T(filter->project_workspace_id), DB_T(filter->issue_id),
                                 DB_T(filter->status), DB_I(filter->reuse_eligible)),
                         &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct execution_workspace row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

int execution_workspaces_replace(struct db *db, const struct execution_workspace *row,
                                 int64_t from_updated_at, struct err *err)
{
        return db_exec(db,
                       "UPDATE execution_workspaces SET name = ?3, status = ?4, cwd = ?5, "
                       "repo_url = ?6, base_ref = ?7, branch_name = ?8, provider_ref = ?9, "
                       "last_used_at = ?10, closed_at = ?11, cleanup_eligible_at = ?12, "
                       "cleanup_reason = ?13, metadata = ?14, updated_at = ?15, cwd_from = ?16 "
                       "WHERE id = ?1 AND updated_at = ?2",
                       DB_ARGS(DB_T(row->id), DB_I(from_updated_at), DB_T(row->name),
                               DB_T(row->status), DB_T(row->cwd), DB_T(row->repo_url),
                               DB_T(row->base_ref), DB_T(row->branch_name), DB_T(row->provider_ref),
                               DB_I(row->last_used_at), DB_TIME(row->closed_at),
                               DB_TIME(row->cleanup_eligible_at), DB_T(row->cleanup_reason),
                               DB_T(row->metadata), DB_I(row->updated_at), DB_T(row->cwd_from)),
                       err);
}

int execution_workspaces_count_users(struct db *db, const char *id, int64_t *ret_leases,
                                     int64_t *ret_issues, struct err *err)
{
        int r = db_number(db,
                          "SELECT COUNT(*) FROM environment_leases WHERE execution_workspace_id = "
                          "?1 AND status IN ('active', 'retained')",
                          DB_ARGS(DB_T(id)), ret_leases, err);

        return r < 0 ? r
                     : db_number(db,
                                 "SELECT COUNT(*) FROM issues WHERE execution_workspace_id = ?1 "
                                 "AND status NOT IN ('done', 'cancelled')",
                                 DB_ARGS(DB_T(id)), ret_issues, err);
}
