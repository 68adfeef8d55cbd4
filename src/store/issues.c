/* SQL for `issues`, their numbers and their blockers. */
#include "store/issues.h"

#include "store/row.h"
#include "store/runs.h"

static const struct column columns[] = {
        TEXT(struct issue, id, "id", FIXED),
        TEXT(struct issue, company_id, "companyId", FIXED),
        TEXT(struct issue, project_id, "projectId"),
        TEXT(struct issue, project_workspace_id, "projectWorkspaceId"),
        TEXT(struct issue, parent_id, "parentId"),
        TEXT(struct issue, title, "title"),
        TEXT(struct issue, description, "description"),
        TEXT(struct issue, status, "status"),
        TEXT(struct issue, work_mode, "workMode"),
        TEXT(struct issue, priority, "priority"),
        TEXT(struct issue, assignee_agent_id, "assigneeAgentId"),
        TEXT(struct issue, assignee_user_id, "assigneeUserId"),
        TEXT(struct issue, checkout_run_id, "checkoutRunId"),
        TEXT(struct issue, execution_run_id, "executionRunId"),
        TIME_OR_NULL(struct issue, execution_locked_at, "executionLockedAt"),
        TEXT(struct issue, created_by_agent_id, "createdByAgentId", FIXED),
        TEXT(struct issue, created_by_user_id, "createdByUserId", FIXED),
        NUMBER(struct issue, number, "issueNumber", FIXED, .sql = "issue_number"),
        TEXT(struct issue, identifier, "identifier", FIXED),
        TEXT(struct issue, origin_kind, "originKind", FIXED),
        TEXT(struct issue, origin_id, "originId", FIXED),
        TEXT(struct issue, origin_run_id, "originRunId", FIXED),
        NUMBER(struct issue, request_depth, "requestDepth"),
        TEXT(struct issue, billing_code, "billingCode"),
        DOCUMENT(struct issue, execution_policy, "executionPolicy"),
        TEXT(struct issue, execution_workspace_id, "executionWorkspaceId"),
        TEXT(struct issue, execution_workspace_preference, "executionWorkspacePreference"),
        DOCUMENT(struct issue, execution_workspace_settings, "executionWorkspaceSettings"),
        TIME_OR_NULL(struct issue, started_at, "startedAt"),
        TIME_OR_NULL(struct issue, completed_at, "completedAt"),
        TIME_OR_NULL(struct issue, cancelled_at, "cancelledAt"),
        TIME_OR_NULL(struct issue, hidden_at, "hiddenAt"),
        TIME(struct issue, created_at, "createdAt", FIXED),
        TIME(struct issue, updated_at, "updatedAt"),
};
const struct row_type issue_table = ROW_TYPE("issues", struct issue, columns, "Issue not found");

int issues_next_number(struct db *db, const char *company_id, struct arena *arena, int64_t *ret,
                       const char **ret_identifier, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "UPDATE companies SET issue_counter = issue_counter + 1 WHERE id = ?1 "
                         "RETURNING issue_counter, issue_prefix",
                         DB_ARGS(DB_T(company_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "Company not found");
        *ret = stmt_number(s, 0);
        *ret_identifier = arena_printf(arena, "%s-%lld", stmt_text(s, 1, arena), (long long)*ret);
        /* To the end: only then the change is made for certain. */
        return stmt_step(s, err);
}

int issues_insert(struct db *db, const struct issue *i, struct err *err)
{
        return row_insert(db, &issue_table, i, err);
}

int issues_name(struct db *db, const char *id, struct arena *arena, const char **ret_identifier,
                const char **ret_title, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, "SELECT identifier, title FROM issues WHERE id = ?1",
                         DB_ARGS(DB_T(id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r <= 0)
                return r < 0 ? r : err_set(err, ERR_NOT_FOUND, "Issue not found");
        *ret_identifier = stmt_text(s, 0, arena);
        *ret_title = stmt_text(s, 1, arena);
        return 0;
}

int issues_get(struct db *db, const char *reference, struct arena *arena, struct issue *ret,
               struct err *err)
{
        return row_get(db, &issue_table,
                       "SELECT * FROM issues WHERE id = ?1 OR identifier = UPPER(?1)",
                       DB_ARGS(DB_T(reference)), arena, ret, err);
}

/* Equal, where NULL equals NULL; '' is no value of these columns. */
#define SAME(column, parameter)                                                                    \
        "COALESCE(" column ", '') = COALESCE(CAST(" parameter " AS TEXT), '')"

int issues_update(struct db *db, const struct issue *i, const struct issue *seen, struct err *err)
{
        return row_exec(db, &issue_table,
                        "UPDATE issues SET * WHERE id = ?1 AND status = ?2 "
                        "AND " SAME("assignee_agent_id", "?3") " AND " SAME(
                                "assignee_user_id",
                                "?4") " AND " SAME("checkout_run_id",
                                                   "?5") " AND " SAME("execution_run_id", "?6"),
                        i,
                        DB_ARGS(DB_T(i->id), DB_T(seen->status), DB_T(seen->assignee_agent_id),
                                DB_T(seen->assignee_user_id), DB_T(seen->checkout_run_id),
                                DB_T(seen->execution_run_id)),
                        err);
}

#define WITHOUT(parameter)        "CAST(" parameter " AS TEXT) IS NULL"
#define FILTER(column, parameter) "AND (" WITHOUT(parameter) " OR " column " = " parameter ") "

/* "%what%", with what LIKE would take for a pattern taken literally. */
static const char *like_pattern(struct arena *arena, const char *text)
{
        char *out, *at;

        if (!text)
                return NULL;
        out = at = arena_alloc(arena, 2 * strlen(text) + 3);
        *at++ = '%';
        for (; *text; text++) {
                if (strchr("\\%_", *text))
                        *at++ = '\\';
                *at++ = *text;
        }
        *at = '%';
        return out;
}

int issues_list(struct db *db, const struct issue_filter *f, struct arena *arena, issue_fn fn,
                void *ctx, struct err *err)
{
        static const char sql[] =
                "SELECT * FROM issues WHERE company_id = ?1 AND hidden_at IS NULL "
                "AND (" WITHOUT("?2") " OR ',' || ?2 || ',' LIKE '%,' || status || ',%') " FILTER(
                        "assignee_agent_id",
                        "?3") FILTER("assignee_user_id",
                                     "?4") FILTER("project_id",
                                                  "?5") FILTER("parent_id",
                                                               "?6") FILTER("execution_workspace_id",
                                                                            "?7")
                        FILTER("origin_kind", "?8") FILTER("origin_id", "?9") "AND (" WITHOUT(
                                "?10") " OR LOWER(identifier) LIKE LOWER(?10) ESCAPE '\\' "
                                       "OR LOWER(title) LIKE LOWER(?10) ESCAPE '\\' "
                                       "OR LOWER(description) LIKE LOWER(?10) ESCAPE '\\') "
                                       "AND (" WITHOUT(
                                               "?11") " OR id IN (WITH RECURSIVE below (id) AS "
                                                      "(SELECT id FROM issues WHERE parent_id = ?11 UNION "
                                                      "SELECT i.id FROM issues i JOIN below b ON i.parent_id = b.id) "
                                                      "SELECT id FROM below)) "
                                                      "AND (" WITHOUT(
                                                              "?12") " OR assignee_agent_id = ?12 OR created_by_agent_id = ?12 "
                                                                     "OR id IN (SELECT issue_id FROM issue_comments WHERE author_agent_id = ?12)) "
                                                                     "ORDER BY CASE priority WHEN 'critical' THEN 0 WHEN 'high' THEN 1 "
                                                                     "WHEN 'medium' THEN 2 ELSE 3 END, updated_at DESC, id DESC LIMIT ?13 OFFSET ?14";

        return ROW_EACH(db, &issue_table, sql,
                        DB_ARGS(DB_T(f->company_id), DB_T(f->statuses), DB_T(f->assignee_agent_id),
                                DB_T(f->assignee_user_id), DB_T(f->project_id), DB_T(f->parent_id),
                                DB_T(f->execution_workspace_id), DB_T(f->origin_kind),
                                DB_T(f->origin_id), DB_T(like_pattern(arena, f->text)),
                                DB_T(f->descendant_of), DB_T(f->participant_agent_id),
                                DB_I(f->limit), DB_I(f->offset)),
                        arena, fn, ctx, err);
}

int issues_ancestors(struct db *db, const char *id, struct arena *arena, issue_fn fn, void *ctx,
                     struct err *err)
{
        static const char sql[] =
                "WITH RECURSIVE above (ancestor, depth) AS "
                "(SELECT parent_id, 1 FROM issues WHERE id = ?1 UNION "
                "SELECT i.parent_id, a.depth + 1 FROM issues i JOIN above a ON i.id = a.ancestor "
                "WHERE a.depth < 64) "
                "SELECT * FROM issues JOIN above ON ancestor = id ORDER BY depth";

        return ROW_EACH(db, &issue_table, sql, DB_ARGS(DB_T(id)), arena, fn, ctx, err);
}

int issues_of_run(struct db *db, const char *run_id, const char *issue_id, struct arena *arena,
                  issue_fn fn, void *ctx, struct err *err)
{
        return ROW_EACH(db, &issue_table,
                        "SELECT * FROM issues WHERE hidden_at IS NULL AND id IN ("
                        "SELECT CAST(?2 AS TEXT) UNION SELECT entity_id FROM activity_log "
                        "WHERE run_id = ?1 AND entity_type = 'issue') ORDER BY created_at, id",
                        DB_ARGS(DB_T(run_id), DB_T(issue_id)), arena, fn, ctx, err);
}

int issue_blockers_list(struct db *db, const char *id, bool reverse, struct arena *arena,
                        issue_fn fn, void *ctx, struct err *err)
{
        static const char blocked_by[] =
                "SELECT * FROM issues WHERE id IN (SELECT blocker_id FROM "
                "issue_blockers WHERE issue_id = ?1) ORDER BY created_at, id";
        static const char blocks[] =
                "SELECT * FROM issues WHERE id IN (SELECT issue_id FROM issue_blockers "
                "WHERE blocker_id = ?1) ORDER BY created_at, id";

        return ROW_EACH(db, &issue_table, reverse ? blocks : blocked_by, DB_ARGS(DB_T(id)), arena,
                        fn, ctx, err);
}

int issue_blockers_open(struct db *db, const char *id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM issues WHERE status <> 'done' AND id IN "
                         "(SELECT blocker_id FROM issue_blockers WHERE issue_id = ?1)",
                         DB_ARGS(DB_T(id)), ret, err);
}

int issue_blockers_put(struct db *db, const char *id, const char *blocker_id, int64_t now_us,
                       struct err *err)
{
        return db_exec(db,
                       "INSERT INTO issue_blockers (issue_id, blocker_id, created_at) "
                       "VALUES (?1, ?2, ?3) ON CONFLICT (issue_id, blocker_id) DO NOTHING",
                       DB_ARGS(DB_T(id), DB_T(blocker_id), DB_I(now_us)), err);
}

int issue_blockers_clear(struct db *db, const char *id, struct err *err)
{
        return db_exec(db, "DELETE FROM issue_blockers WHERE issue_id = ?1", DB_ARGS(DB_T(id)),
                       err);
}

int issue_blockers_reach(struct db *db, const char *from, const char *to, bool *ret,
                         struct err *err)
{
        int64_t n;
        int r = db_number(db,
                          "WITH RECURSIVE waits (id) AS (SELECT blocker_id FROM issue_blockers "
                          "WHERE issue_id = ?1 UNION SELECT b.blocker_id FROM issue_blockers b "
                          "JOIN waits w ON b.issue_id = w.id) "
                          "SELECT COUNT(*) FROM waits WHERE id = ?2",
                          DB_ARGS(DB_T(from), DB_T(to)), &n, err);

        *ret = r >= 0 && n > 0;
        return r;
}

int issue_run_lives(struct db *db, const char *run_id, struct arena *arena, bool *ret,
                    const char **ret_agent_id, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db,
                         "SELECT agent_id, CASE WHEN " RUN_HOLDS " THEN 1 ELSE 0 END "
                         "FROM heartbeat_runs WHERE id = ?1",
                         DB_ARGS(DB_T(run_id)), &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r < 0)
                return r;
        *ret = r > 0 && stmt_number(s, 1) != 0;
        *ret_agent_id = r > 0 ? stmt_text(s, 0, arena) : NULL;
        return 0;
}
