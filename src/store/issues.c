#include "store/issues.h"

#include "store/runs.h"

#define COLUMNS                                                                                    \
        "id, company_id, project_id, parent_id, identifier, title, description, status, "          \
        "work_mode, priority, assignee_agent_id, assignee_user_id, checkout_run_id, "              \
        "execution_run_id, created_by_agent_id, created_by_user_id, origin_kind, origin_id, "      \
        "origin_run_id, billing_code, execution_policy, execution_workspace_id, "                  \
        "execution_workspace_preference, execution_workspace_settings, issue_number, "             \
        "request_depth, execution_locked_at, started_at, completed_at, cancelled_at, hidden_at, "  \
        "created_at, updated_at"

static void load(struct stmt *s, struct arena *a, struct issue *i)
{
        *i = (struct issue){
                .id = stmt_text(s, 0, a),
                .company_id = stmt_text(s, 1, a),
                .project_id = stmt_text(s, 2, a),
                .parent_id = stmt_text(s, 3, a),
                .identifier = stmt_text(s, 4, a),
                .title = stmt_text(s, 5, a),
                .description = stmt_text(s, 6, a),
                .status = stmt_text(s, 7, a),
                .work_mode = stmt_text(s, 8, a),
                .priority = stmt_text(s, 9, a),
                .assignee_agent_id = stmt_text(s, 10, a),
                .assignee_user_id = stmt_text(s, 11, a),
                .checkout_run_id = stmt_text(s, 12, a),
                .execution_run_id = stmt_text(s, 13, a),
                .created_by_agent_id = stmt_text(s, 14, a),
                .created_by_user_id = stmt_text(s, 15, a),
                .origin_kind = stmt_text(s, 16, a),
                .origin_id = stmt_text(s, 17, a),
                .origin_run_id = stmt_text(s, 18, a),
                .billing_code = stmt_text(s, 19, a),
                .execution_policy = stmt_text(s, 20, a),
                .execution_workspace_id = stmt_text(s, 21, a),
                .execution_workspace_preference = stmt_text(s, 22, a),
                .execution_workspace_settings = stmt_text(s, 23, a),
                .number = stmt_number(s, 24),
                .request_depth = stmt_number(s, 25),
                .execution_locked_at = stmt_number(s, 26),
                .started_at = stmt_number(s, 27),
                .completed_at = stmt_number(s, 28),
                .cancelled_at = stmt_number(s, 29),
                .hidden_at = stmt_number(s, 30),
                .created_at = stmt_number(s, 31),
                .updated_at = stmt_number(s, 32),
        };
}

/* Run a query whose rows are issues. */
static int each(struct db *db, const char *sql, const struct db_arg *args, size_t n_args,
                struct arena *arena, issue_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, sql, args, n_args, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                struct issue row;

                load(s, arena, &row);
                r = fn(ctx, &row);
        }
        return r;
}

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
        return db_exec(
                db,
                "INSERT INTO issues (" COLUMNS
                ") VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, "
                "?17, ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29, ?30, ?31, ?32, "
                "?33)",
                DB_ARGS(DB_T(i->id), DB_T(i->company_id), DB_T(i->project_id), DB_T(i->parent_id),
                        DB_T(i->identifier), DB_T(i->title), DB_T(i->description), DB_T(i->status),
                        DB_T(i->work_mode), DB_T(i->priority), DB_T(i->assignee_agent_id),
                        DB_T(i->assignee_user_id), DB_T(i->checkout_run_id),
                        DB_T(i->execution_run_id), DB_T(i->created_by_agent_id),
                        DB_T(i->created_by_user_id), DB_T(i->origin_kind), DB_T(i->origin_id),
                        DB_T(i->origin_run_id), DB_T(i->billing_code), DB_T(i->execution_policy),
                        DB_T(i->execution_workspace_id), DB_T(i->execution_workspace_preference),
                        DB_T(i->execution_workspace_settings), DB_I(i->number),
                        DB_I(i->request_depth), DB_TIME(i->execution_locked_at),
                        DB_TIME(i->started_at), DB_TIME(i->completed_at), DB_TIME(i->cancelled_at),
                        DB_TIME(i->hidden_at), DB_I(i->created_at), DB_I(i->updated_at)),
                err);
}

static int note(void *ctx, const struct issue *row)
{
        *(struct issue *)ctx = *row;
        return 0;
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
        struct issue found = { 0 };
        int r = each(db, "SELECT " COLUMNS " FROM issues WHERE id = ?1 OR identifier = UPPER(?1)",
                     DB_ARGS(DB_T(reference)), arena, note, &found, err);

        if (r < 0)
                return r;
        if (!found.id)
                return err_set(err, ERR_NOT_FOUND, "Issue not found");
        *ret = found;
        return 0;
}

/* Equal, where NULL equals NULL; '' is no value of these columns. */
#define SAME(column, parameter)                                                                    \
        "COALESCE(" column ", '') = COALESCE(CAST(" parameter " AS TEXT), '')"

int issues_update(struct db *db, const struct issue *i, const struct issue *seen, struct err *err)
{
        return db_exec(
                db,
                "UPDATE issues SET project_id = ?2, parent_id = ?3, title = ?4, description = ?5, "
                "status = ?6, work_mode = ?7, priority = ?8, assignee_agent_id = ?9, "
                "assignee_user_id = ?10, checkout_run_id = ?11, execution_run_id = ?12, "
                "billing_code = ?13, execution_policy = ?14, execution_workspace_id = ?15, "
                "execution_workspace_preference = ?16, execution_workspace_settings = ?17, "
                "request_depth = ?18, execution_locked_at = ?19, started_at = ?20, "
                "completed_at = ?21, cancelled_at = ?22, hidden_at = ?23, updated_at = ?24 "
                "WHERE id = ?1 AND status = ?25 AND " SAME("assignee_agent_id", "?26") " AND " SAME(
                        "assignee_user_id",
                        "?27") " AND " SAME("checkout_run_id",
                                            "?28") " AND " SAME("execution_run_id", "?29"),
                DB_ARGS(DB_T(i->id), DB_T(i->project_id), DB_T(i->parent_id), DB_T(i->title),
                        DB_T(i->description), DB_T(i->status), DB_T(i->work_mode),
                        DB_T(i->priority), DB_T(i->assignee_agent_id), DB_T(i->assignee_user_id),
                        DB_T(i->checkout_run_id), DB_T(i->execution_run_id), DB_T(i->billing_code),
                        DB_T(i->execution_policy), DB_T(i->execution_workspace_id),
                        DB_T(i->execution_workspace_preference),
                        DB_T(i->execution_workspace_settings), DB_I(i->request_depth),
                        DB_TIME(i->execution_locked_at), DB_TIME(i->started_at),
                        DB_TIME(i->completed_at), DB_TIME(i->cancelled_at), DB_TIME(i->hidden_at),
                        DB_I(i->updated_at), DB_T(seen->status), DB_T(seen->assignee_agent_id),
                        DB_T(seen->assignee_user_id), DB_T(seen->checkout_run_id),
                        DB_T(seen->execution_run_id)),
                err);
}

#define WITHOUT(parameter)        "CAST(" parameter " AS TEXT) IS NULL"
#define FILTER(column, parameter) "AND (" WITHOUT(parameter) " OR " column " = " parameter ") "

/* "%what%", with what LIKE would take for a pattern taken literally. */
static const char *pattern(struct arena *arena, const char *text)
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
                "SELECT " COLUMNS " FROM issues WHERE company_id = ?1 AND hidden_at IS NULL "
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

        return each(db, sql,
                    DB_ARGS(DB_T(f->company_id), DB_T(f->statuses), DB_T(f->assignee_agent_id),
                            DB_T(f->assignee_user_id), DB_T(f->project_id), DB_T(f->parent_id),
                            DB_T(f->execution_workspace_id), DB_T(f->origin_kind),
                            DB_T(f->origin_id), DB_T(pattern(arena, f->text)),
                            DB_T(f->descendant_of), DB_T(f->participant_agent_id), DB_I(f->limit),
                            DB_I(f->offset)),
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
                "SELECT " COLUMNS " FROM issues JOIN above ON ancestor = id ORDER BY depth";

        return each(db, sql, DB_ARGS(DB_T(id)), arena, fn, ctx, err);
}

int issues_of_run(struct db *db, const char *run_id, const char *issue_id, struct arena *arena,
                  issue_fn fn, void *ctx, struct err *err)
{
        return each(db,
                    "SELECT " COLUMNS " FROM issues WHERE hidden_at IS NULL AND id IN ("
                    "SELECT CAST(?2 AS TEXT) UNION SELECT entity_id FROM activity_log "
                    "WHERE run_id = ?1 AND entity_type = 'issue') ORDER BY created_at, id",
                    DB_ARGS(DB_T(run_id), DB_T(issue_id)), arena, fn, ctx, err);
}

int issue_blockers_list(struct db *db, const char *id, bool reverse, struct arena *arena,
                        issue_fn fn, void *ctx, struct err *err)
{
        static const char blocked_by[] =
                "SELECT " COLUMNS " FROM issues WHERE id IN (SELECT blocker_id FROM "
                "issue_blockers WHERE issue_id = ?1) ORDER BY created_at, id";
        static const char blocks[] =
                "SELECT " COLUMNS " FROM issues WHERE id IN (SELECT issue_id FROM issue_blockers "
                "WHERE blocker_id = ?1) ORDER BY created_at, id";

        return each(db, reverse ? blocks : blocked_by, DB_ARGS(DB_T(id)), arena, fn, ctx, err);
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
