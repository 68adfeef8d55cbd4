/* SQL for `activity_log`. */
#include "store/activity.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct activity, id, "id"),
        TEXT(struct activity, company_id, "companyId"),
        TEXT(struct activity, actor_type, "actorType"),
        TEXT(struct activity, actor_id, "actorId"),
        TEXT(struct activity, action, "action"),
        TEXT(struct activity, entity_type, "entityType"),
        TEXT(struct activity, entity_id, "entityId"),
        TEXT(struct activity, agent_id, "agentId"),
        TEXT(struct activity, run_id, "runId"),
        DOCUMENT(struct activity, details, "details"),
        TIME(struct activity, created_at, "createdAt"),
};
const struct row_type activity_table = ROW_TYPE("activity_log", struct activity, columns, NULL);

int activity_insert(struct db *db, const struct activity *row, struct err *err)
{
        return row_insert(db, &activity_table, row, err);
}

/* The leading filter has an index of its own; the others only check what it finds. */
#define LIST(leading)                                                                              \
        "SELECT * FROM activity_log WHERE " leading " AND company_id = ?1 "                        \
        "AND COALESCE(agent_id, '') = COALESCE(CAST(?2 AS TEXT), agent_id, '') "                   \
        "AND entity_type = COALESCE(CAST(?3 AS TEXT), entity_type) "                               \
        "AND entity_id = COALESCE(CAST(?4 AS TEXT), entity_id) "                                   \
        "AND action = COALESCE(CAST(?5 AS TEXT), action) "                                         \
        "ORDER BY created_at DESC, id DESC LIMIT ?6"

int activity_list(struct db *db, const char *company_id, const char *agent_id,
                  const char *entity_type, const char *entity_id, const char *action, int64_t limit,
                  struct arena *arena, activity_fn fn, void *ctx, struct err *err)
{
        const char *sql = entity_id     ? LIST("entity_id = ?4")
                          : agent_id    ? LIST("agent_id = ?2")
                          : entity_type ? LIST("entity_type = ?3")
                                        : LIST("1 = 1");

        return ROW_EACH(db, &activity_table, sql,
                        DB_ARGS(DB_T(company_id), DB_T(agent_id), DB_T(entity_type),
                                DB_T(entity_id), DB_T(action), DB_I(limit)),
                        arena, fn, ctx, err);
}

int activity_count(struct db *db, const char *company_id, int64_t *ret, struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) FROM (SELECT 1 FROM activity_log WHERE company_id = ?1 "
                         "LIMIT 1) AS one",
                         DB_ARGS(DB_T(company_id)), ret, err);
}

#define OF_RUN                                                                                     \
        "FROM activity_log WHERE run_id = ?1 AND actor_type = 'agent' "                            \
        "AND entity_type <> 'environment_lease' AND entity_type <> 'heartbeat_run'"

int activity_of_run(struct db *db, const char *run_id, struct arena *arena,
                    int (*fn)(void *ctx, const char *action, int64_t n), void *ctx, struct err *err)
{
        return db_counts(db, "SELECT action, COUNT(*) " OF_RUN " GROUP BY action",
                         DB_ARGS(DB_T(run_id)), arena, fn, ctx, err);
}

int activity_last_of_run(struct db *db, const char *run_id, int64_t *ret, struct err *err)
{
        return db_number(db, "SELECT COALESCE(MAX(created_at), 0) " OF_RUN, DB_ARGS(DB_T(run_id)),
                         ret, err);
}

int activity_comments_of_run(struct db *db, const char *run_id, const char *issue_id, int64_t *ret,
                             struct err *err)
{
        return db_number(db,
                         "SELECT COUNT(*) " OF_RUN
                         " AND entity_id = ?2 AND action = 'issue.comment_added'",
                         DB_ARGS(DB_T(run_id), DB_T(issue_id)), ret, err);
}
