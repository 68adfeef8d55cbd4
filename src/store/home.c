/* SQL for `database_home`, and for ending the work of the node before. */
#include "store/home.h"

#include "store/row.h"

static const struct column columns[] = {
        TEXT(struct home, singleton_key), TEXT(struct home, node_id),  TEXT(struct home, machine),
        TEXT(struct home, boot_id),       NUMBER(struct home, device), NUMBER(struct home, inode),
        TIME(struct home, taken_at),
};
const struct row_type home_table =
        ROW_TYPE("database_home", struct home, columns, "The database has no home yet");

int home_get(struct db *db, struct arena *arena, struct home *ret, struct err *err)
{
        return row_get(db, &home_table, "SELECT * FROM database_home WHERE singleton_key = 'home'",
                       DB_NO_ARGS, arena, ret, err);
}

int home_set(struct db *db, const struct home *row, struct err *err)
{
        struct home made = *row;

        made.singleton_key = "home";
        return row_exec(db, &home_table,
                        "INSERT INTO database_home (*) ON CONFLICT (singleton_key) DO UPDATE SET "
                        "node_id = excluded.node_id, machine = excluded.machine, "
                        "boot_id = excluded.boot_id, device = excluded.device, "
                        "inode = excluded.inode, taken_at = excluded.taken_at",
                        &made, DB_NO_ARGS, err);
}

int home_forget(struct db *db, struct err *err)
{
        return db_exec(db, "DELETE FROM database_home WHERE singleton_key = 'home'", DB_NO_ARGS,
                       err);
}

int home_has_work(struct db *db, bool *ret, struct err *err)
{
        int64_t n;
        int r = db_number(db,
                          "SELECT (SELECT COUNT(*) FROM places WHERE state <> 'gone') + "
                          "(SELECT COUNT(*) FROM heartbeat_runs WHERE step <> 'done')",
                          DB_NO_ARGS, &n, err);

        *ret = r >= 0 && n > 0;
        return r;
}

/* Their arguments, as many as each takes: the time, the reason. Or the new node alone. The ids that
 * sandboxes have on this machine stay taken: the processes that use them may live. A snapshot that
 * was being made is removed from our directory; its sandbox is not ours to thaw. Agents that a
 * timer wakes are paused: the node before wakes them, too. */
static const struct {
        size_t n_args;
        const char *sql;
        bool of_node;
} left_behind[] = {
        { 2, "UPDATE executions SET status = 'lost', is_incomplete = 1, reason = ?2, "
             "ended_at = ?1, updated_at = ?1 WHERE status = 'starting' OR status = 'running'" },
        { 2, "UPDATE environment_leases SET status = 'failed', failure_reason = ?2, "
             "released_at = ?1, updated_at = ?1 WHERE status = 'active' OR status = 'retained'" },
        { 2, "UPDATE places SET state = CASE WHEN has_world = 1 THEN 'uncertain' ELSE 'gone' END, "
             "epoch = epoch + 1, note = ?2, policy = 'ephemeral', holder_run_id = NULL, "
             "request_key = NULL, deadline_at = NULL, next_attempt_at = NULL, updated_at = ?1 "
             "WHERE state <> 'gone'" },
        { 1, "UPDATE sandboxes SET node_id = ?1", true },
        { 1, "UPDATE snapshots SET state = 'deleting', updated_at = ?1 WHERE state <> 'ready'" },
        { 0, "UPDATE company_secret_versions SET status = 'failed', reserved_by = NULL "
             "WHERE reserved_by IS NOT NULL AND secret_id IN "
             "(SELECT id FROM company_secrets WHERE provider <> 'local_encrypted')" },
        { 0, "DELETE FROM company_secrets "
             "WHERE reserved_by IS NOT NULL AND provider <> 'local_encrypted'" },
        { 0, "UPDATE issues SET checkout_run_id = NULL WHERE checkout_run_id IN "
             "(SELECT id FROM heartbeat_runs WHERE step <> 'done')" },
        { 0, "UPDATE issues SET execution_run_id = NULL, execution_locked_at = NULL "
             "WHERE execution_run_id IN (SELECT id FROM heartbeat_runs WHERE step <> 'done')" },
        { 2, "UPDATE agent_wakeup_requests SET status = 'cancelled', error = ?2, "
             "finished_at = ?1 WHERE status = 'deferred_issue_execution'" },
        { 2, "UPDATE agent_wakeup_requests SET status = 'cancelled', error = ?2, "
             "finished_at = ?1 WHERE "
             "id IN (SELECT wakeup_request_id FROM heartbeat_runs WHERE step <> 'done' "
             "AND status IN ('queued', 'scheduled_retry', 'running'))" },
        { 2, "UPDATE heartbeat_runs SET error = ?2, "
             "error_code = CASE WHEN status = 'running' THEN 'process_lost' ELSE 'cancelled' END, "
             "status = CASE WHEN status = 'running' THEN 'failed' ELSE 'cancelled' END, "
             "finished_at = ?1, updated_at = ?1 "
             "WHERE step <> 'done' AND status IN ('queued', 'scheduled_retry', 'running')" },
        { 1, "UPDATE heartbeat_runs SET step = 'done', updated_at = ?1 WHERE step <> 'done'" },
        { 2, "UPDATE agents SET status = 'paused', pause_reason = ?2, paused_at = ?1, "
             "updated_at = ?1 WHERE status NOT IN ('paused', 'pending_approval', 'terminated') "
             "AND id IN (SELECT agent_id FROM agent_schedules)" },
};

int home_leave_work(struct db *db, const char *node_id, const char *reason, int64_t now_us,
                    struct err *err)
{
        const struct db_arg args[] = { DB_I(now_us), DB_T(reason) }, node = DB_T(node_id);
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(left_behind); i++)
                r = db_exec(db, left_behind[i].sql, left_behind[i].of_node ? &node : args,
                            left_behind[i].n_args, err);
        return r < 0 ? r : 0;
}
