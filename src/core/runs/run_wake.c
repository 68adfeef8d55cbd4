/* Waking an agent: decides what becomes of a wake-up, and writes its rows in the caller's
 * transaction. */
#include "core/runs/run_wake.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/run_policy.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_wake_internal.h"

static void name_actor(struct wake *w)
{
        const struct actor *a = w->op->actor;

        w->actor_type = "system";
        w->actor_id = "berth";
        if (a && a->type == ACTOR_AGENT) {
                w->actor_type = "agent";
                w->actor_id = a->agent_id;
        } else if (a && a->type == ACTOR_BOARD) {
                w->actor_type = "user";
                w->actor_id = a->user_id;
        }
}

static int load_issue(struct wake *w, struct err *err)
{
        const char *reference = w->req->issue_id;
        int r;

        if (!reference)
                reference = json_get_string(w->req->payload, "issueId");
        if (!reference || !*reference)
                return 0;
        r = issues_get(w->db, reference, w->op->arena, &w->issue, err);
        if (r >= 0 && !streq(w->issue.company_id, w->agent.company_id))
                r = err_set(err, ERR_NOT_FOUND, "Issue not found");
        return r;
}

int wake_load(struct wake *w, struct err *err)
{
        const char *key = json_get_string(w->req->payload, "taskKey");
        int r = agents_get(w->db, w->req->agent_id, w->op->arena, &w->agent, err);

        if (r >= 0)
                r = load_issue(w, err);
        if (r < 0)
                return r;
        if (!key || !*key)
                key = json_get_string(w->req->payload, "taskId");
        w->task_key = w->issue.id ? w->issue.id : arena_strtrim(w->op->arena, key);
        return 0;
}

/* -- Rows ------------------------------------------------------------------------------------- */

struct wakeup wake_row(const struct wake *w, const char *status)
{
        struct wakeup row = {
                .id = arena_strdup(w->op->arena, uuid_new().s),
                .company_id = w->agent.company_id,
                .agent_id = w->agent.id,
                .source = w->req->source,
                .trigger_detail = w->req->trigger_detail,
                .reason = w->req->reason,
                .status = status,
                .requested_by_actor_type = w->actor_type,
                .requested_by_actor_id = w->actor_id,
                .idempotency_key = w->req->idempotency_key,
                .issue_id = w->issue.id,
                .requested_at = w->now,
        };

        if (w->req->payload)
                row.payload = json_to_arena(w->op->arena, w->req->payload);
        return row;
}

/* Write the row of a request, with what became of it. */
static int wake_note(struct wake *w, const char *status, const char *run_id, const char *why,
                     struct err *err)
{
        struct wakeup row = wake_row(w, status);

        row.run_id = run_id;
        row.error = why;
        row.finished_at = w->now;
        return wakeups_insert(w->db, &row, err);
}

void run_announce_queued(struct db *db, const struct run *run)
{
        db_announce(db, run->company_id, "heartbeat.run.queued",
                    json_pack("{s:s, s:s, s:s, s:s?, s:s?}", "runId", run->id, "agentId",
                              run->agent_id, "invocationSource", run->invocation_source,
                              "triggerDetail", run->trigger_detail, "wakeupRequestId",
                              run->wakeup_request_id));
}

static int insert_run(struct wake *w, const char *request_id, struct run *ret, struct err *err)
{
        int r;

        *ret = (struct run){
                .id = arena_strdup(w->op->arena, uuid_new().s),
                .company_id = w->agent.company_id,
                .agent_id = w->agent.id,
                .invocation_source = w->req->source,
                .trigger_detail = w->req->trigger_detail,
                .status = RUN_QUEUED,
                .step = STEP_QUEUED,
                .exit_code = -1,
                .wakeup_request_id = request_id,
                .issue_id = w->issue.id,
                .task_key = w->task_key,
                .created_at = w->now,
                .updated_at = w->now,
        };
        r = wake_context(w, NULL, &ret->context_snapshot, err);
        if (r >= 0)
                r = runs_insert(w->db, ret, err);
        if (r >= 0)
                run_announce_queued(w->db, ret);
        return r;
}

int wake_queue(struct wake *w, const struct wakeup *from, struct wake_result *ret, struct err *err)
{
        struct wakeup row = from ? *from : wake_row(w, WAKEUP_QUEUED);
        struct run run;
        int r = insert_run(w, row.id, &run, err);

        if (r < 0)
                return r;
        row.run_id = run.id;
        r = from ? wakeups_move(w->db, row.id, WAKEUP_DEFERRED, WAKEUP_QUEUED, run.id, NULL, w->now,
                                err)
                 : wakeups_insert(w->db, &row, err);
        *ret = (struct wake_result){ .outcome = WAKE_QUEUED, .run = run, .issue_id = w->issue.id };
        return r;
}

/* -- What becomes of a wake-up ---------------------------------------------------------------- */

/* The same idempotency key again: give the earlier answer. 1 when there was one. */
static int answer_again(struct wake *w, struct wake_result *ret, struct err *err)
{
        struct wakeup row;
        int r;

        if (!w->req->idempotency_key)
                return 0;
        r = wakeups_by_key(w->db, w->agent.id, w->req->idempotency_key, w->op->arena, &row, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        *ret = (struct wake_result){ .outcome = WAKE_SKIPPED,
                                     .reason = row.error ? row.error : WAKE_REASON_SKIPPED,
                                     .issue_id = row.issue_id };
        if (streq(row.status, WAKEUP_DEFERRED)) {
                const char *holder = NULL;

                r = issue_active_run(w->db, w->op, &w->issue, &holder, err);
                if (r >= 0)
                        r = wake_tell_holder(w, holder, ret, err);
        } else if (row.run_id && !streq(row.status, WAKEUP_SKIPPED)) {
                ret->outcome = WAKE_COALESCED;
                ret->reason = NULL;
                r = runs_get(w->db, row.run_id, w->op->arena, &ret->run, err);
        }
        return r < 0 ? r : 1;
}

/* Whether an issue that this one waits for is not done. A comment wakes its agent all the same. */
static int is_blocked(struct wake *w, bool *ret, struct err *err)
{
        int64_t n = 0;
        int r = 0;

        if (w->issue.id && !w->req->wake_comment_id)
                r = issue_blockers_open(w->db, w->issue.id, &n, err);
        *ret = n > 0;
        return r;
}

static int skip_reason(struct wake *w, const char **ret, struct err *err)
{
        struct run_policy policy;
        bool blocked;
        int r = is_blocked(w, &blocked, err);

        run_policy_read(&w->agent, w->op->arena, &policy);
        *ret = NULL;
        if (!streq(w->req->source, WAKE_TIMER) && !policy.wake_on_demand)
                *ret = WAKE_REASON_SKIPPED;
        else if (blocked)
                *ret = WAKE_REASON_BLOCKED;
        return r;
}

/* The wake-up joins a run that has not begun. */
static int coalesce(struct wake *w, const char *run_id, struct wake_result *ret, struct err *err)
{
        int r = runs_get(w->db, run_id, w->op->arena, &ret->run, err);

        if (r >= 0)
                r = wake_context(w, ret->run.context_snapshot, &ret->run.context_snapshot, err);
        if (r >= 0)
                r = wakeups_set_context(w->db, run_id, ret->run.context_snapshot, w->now, err);
        if (r >= 0)
                r = wake_note(w, WAKEUP_COALESCED, run_id, NULL, err);
        ret->outcome = WAKE_COALESCED;
        ret->issue_id = w->issue.id;
        return r;
}

/* An agent that is mentioned beside the work does not have to wait for the work. */
static bool is_aside(const struct wake *w)
{
        return w->req->reason && streq(w->req->reason, WAKE_MENTIONED);
}

static int decide(struct wake *w, struct wake_result *ret, struct err *err)
{
        const char *waiting, *holder = NULL;
        int r = wakeups_waiting_run(w->db, w->agent.id, w->issue.id, w->task_key, w->op->arena,
                                    &waiting, err);

        if (r >= 0 && waiting)
                return coalesce(w, waiting, ret, err);
        if (r >= 0 && w->issue.id && !is_aside(w))
                r = issue_active_run(w->db, w->op, &w->issue, &holder, err);
        if (r < 0)
                return r;
        return holder ? wake_defer(w, holder, ret, err) : wake_queue(w, NULL, ret, err);
}

int run_wake_in(struct db *db, const struct op *op, struct runtime *rt UNUSED,
                const struct wake_request *req, struct wake_result *ret, struct err *err)
{
        struct wake w = { .db = db, .op = op, .req = req, .now = clock_now_us() };
        const char *why = NULL;
        int r;

        *ret = (struct wake_result){ 0 };
        name_actor(&w);
        r = wake_load(&w, err);
        if (r >= 0)
                r = answer_again(&w, ret, err);
        if (r != 0)
                return r < 0 ? r : 0;
        r = run_agent_check(&w.agent, err);
        if (r >= 0)
                r = skip_reason(&w, &why, err);
        if (r < 0)
                return r;
        if (!why)
                return decide(&w, ret, err);
        *ret = (struct wake_result){ .outcome = WAKE_SKIPPED,
                                     .reason = why,
                                     .issue_id = w.issue.id };
        return wake_note(&w, WAKEUP_SKIPPED, NULL, why, err);
}

/* -- Operations ------------------------------------------------------------------------------- */

struct request {
        struct op *op;
        struct runtime *rt;
        const struct wake_request *wake;
        struct wake_result *result;
};

static int check_actor(struct db *db, const struct request *q, struct err *err)
{
        const struct actor *a = q->op->actor;
        struct agent g;
        int r = agents_get(db, q->wake->agent_id, q->op->arena, &g, err);

        if (r < 0 || a->type == ACTOR_SYSTEM)
                return r;
        if (a->type != ACTOR_AGENT)
                return access_manage_agents(db, a, g.company_id, err);
        r = access_company(db, a, g.company_id, true, err);
        if (r >= 0 && !streq(a->agent_id, g.id))
                r = err_set(err, ERR_FORBIDDEN, "Agent can only invoke itself");
        return r;
}

static int wake(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = check_actor(db, q, err);

        return r < 0 ? r : run_wake_in(db, q->op, q->rt, q->wake, q->result, err);
}

int run_wake(struct op *op, struct runtime *rt, const struct wake_request *req,
             struct wake_result *ret, struct err *err)
{
        struct request q = { op, rt, req, ret };
        int r = access_authenticated(op->actor, err);

        if (r < 0)
                return r;
        FAULT("run.wake.before");
        r = store_write(op, rt->store, wake, &q, err);
        FAULT("run.wake.after");
        if (r >= 0 && ret->outcome == WAKE_QUEUED)
                run_host_kick(rt->runs);
        return r < 0 ? r : 0;
}
