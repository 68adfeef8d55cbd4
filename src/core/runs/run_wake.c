/* Waking an agent: decides what becomes of a wake-up, and writes its rows in the caller's
 * transaction. A wake-up for an issue that a run works on waits for that run to end; each agent has
 * at most one per issue, and later wake-ups meanwhile are added to it and told to the same run. */
#include "core/runs/run_wake.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/run_policy.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_wake_internal.h"

#define WAKE_MEMBER "_wake"

/* -- Loading ----------------------------------------------------------------------------------- */

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

static int wake_load(struct wake *w, struct err *err)
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

static struct wakeup wake_row(const struct wake *w, const char *status)
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
                .id = arena_strdup(w->op->arena, uuid_new_run().s),
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
                .continuation_attempt = w->req->continuation_attempt,
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

static int wake_queue(struct wake *w, const struct wakeup *from, struct wake_result *ret,
                      struct err *err)
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

static int wake_tell_holder(struct wake *w, const char *run_id, struct wake_result *ret,
                            struct err *err)
{
        struct agent holder;
        int r;

        *ret = (struct wake_result){ .outcome = WAKE_DEFERRED,
                                     .reason = WAKE_REASON_DEFERRED,
                                     .issue_id = w->issue.id };
        if (!run_id)
                return 0;
        r = runs_get(w->db, run_id, w->op->arena, &ret->run, err);
        if (r >= 0)
                r = agents_get(w->db, ret->run.agent_id, w->op->arena, &holder, err);
        if (r < 0)
                return r;
        ret->holder_agent_id = holder.id;
        ret->holder_agent_name = holder.name;
        return 0;
}

/* -- Deferring -------------------------------------------------------------------------------- */

/* What the run has to know besides the payload, over the wake-up that waits already (NULL:
 * none). */
static json_t *gather_besides(const struct wake *w, const json_t *waiting)
{
        const char *comment = w->req->wake_comment_id;
        json_t *ids = json_deep_copy(json_object_get(waiting, "commentIds"));
        bool fresh = w->req->force_fresh_session ||
                     json_is_true(json_object_get(waiting, "forceFreshSession"));

        if (!json_is_array(ids)) {
                json_decref(ids);
                ids = json_array();
        }
        if (comment)
                json_array_append_new(ids, json_string(comment));
        else
                comment = json_get_string(waiting, "commentId");
        while (json_array_size(ids) > WAKE_COMMENTS_MAX)
                json_array_remove(ids, 0);
        return json_pack("{s:s?, s:o, s:b}", "commentId", comment, "commentIds", ids,
                         "forceFreshSession", fresh);
}

/* The payload, and the rest. `before` is the text of the waiting wake-up. */
static const char *pack_deferred(const struct wake *w, const char *before)
{
        json_t *payload = w->req->payload ? json_deep_copy(w->req->payload) : json_object();
        json_t *waiting = NULL;
        const char *text;

        if (before)
                (void)json_parse(before, strlen(before), &waiting, NULL);
        json_object_set_new(payload, WAKE_MEMBER,
                            gather_besides(w, json_get_object(waiting, WAKE_MEMBER)));
        text = json_to_arena(w->op->arena, payload);
        json_decref(payload);
        json_decref(waiting);
        return text;
}

static int wake_defer(struct wake *w, const char *holder, struct wake_result *ret, struct err *err)
{
        struct wakeup before, row;
        int r = wakeups_deferred_of(w->db, w->agent.id, w->issue.id, w->op->arena, &before, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                row = wake_row(w, WAKEUP_DEFERRED);
                row.payload = pack_deferred(w, NULL);
                row.run_id = holder;
                r = wakeups_insert(w->db, &row, err);
        } else if (r >= 0) {
                r = wakeups_merge(w->db, before.id, WAKEUP_DEFERRED,
                                  w->req->reason ? w->req->reason : before.reason,
                                  pack_deferred(w, before.payload), err);
        }
        return r < 0 ? r : wake_tell_holder(w, holder, ret, err);
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

static int skip_reason(struct wake *w, const char **ret, struct err *err)
{
        struct run_policy policy;
        int64_t blockers = 0;
        int r = 0;

        /* A comment wakes its agent even if an issue that this one waits for is not done. */
        if (w->issue.id && !w->req->wake_comment_id)
                r = issue_blockers_open(w->db, w->issue.id, &blockers, err);
        run_policy_read(&w->agent, w->op->arena, &policy);
        *ret = NULL;
        if (!streq(w->req->source, WAKE_TIMER) && !policy.wake_on_demand)
                *ret = WAKE_REASON_SKIPPED;
        else if (blockers > 0)
                *ret = WAKE_REASON_BLOCKED;
        return r;
}

/* The wake-up joins a run that has not begun. */
static int wake_coalesce(struct wake *w, const char *run_id, struct wake_result *ret,
                         struct err *err)
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

static int wake_decide(struct wake *w, struct wake_result *ret, struct err *err)
{
        const char *waiting, *holder = NULL;
        int r = wakeups_waiting_run(w->db, w->agent.id, w->issue.id, w->task_key, w->op->arena,
                                    &waiting, err);

        if (r >= 0 && waiting)
                return wake_coalesce(w, waiting, ret, err);
        /* An agent that is mentioned beside the work does not have to wait for the work. */
        if (r >= 0 && w->issue.id && !(w->req->reason && streq(w->req->reason, WAKE_MENTIONED)))
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
                return wake_decide(&w, ret, err);
        *ret = (struct wake_result){ .outcome = WAKE_SKIPPED,
                                     .reason = why,
                                     .issue_id = w.issue.id };
        return wake_note(&w, WAKEUP_SKIPPED, NULL, why, err);
}

/* -- Taking up a deferred wake-up ------------------------------------------------------------- */

/* The request as it was made. *ret_payload is a new reference; *ret_earlier goes with the arena. */
static struct wake_request unpack_deferred(const struct wakeup *row, struct arena *arena,
                                           json_t **ret_payload, const json_t **ret_earlier)
{
        struct wake_request q = {
                .agent_id = row->agent_id,
                .source = row->source,
                .trigger_detail = row->trigger_detail,
                .reason = row->reason,
                .issue_id = row->issue_id,
        };
        json_t *besides;

        *ret_payload = NULL;
        if (row->payload)
                (void)json_parse(row->payload, strlen(row->payload), ret_payload, NULL);
        besides = json_get_object(*ret_payload, WAKE_MEMBER);
        q.wake_comment_id = arena_strdup(arena, json_get_string(besides, "commentId"));
        q.force_fresh_session = json_is_true(json_object_get(besides, "forceFreshSession"));
        *ret_earlier = run_keep(arena, json_incref(json_object_get(besides, "commentIds")));
        if (besides)
                json_object_del(*ret_payload, WAKE_MEMBER);
        if (json_object_size(*ret_payload) > 0)
                q.payload = *ret_payload;
        return q;
}

/* Whether the wake-up was for the issue's assignee, rather than for this agent. */
static bool is_for_assignee(const struct wake *w)
{
        static const char *const reasons[] = { WAKE_ASSIGNED, WAKE_COMMENTED, WAKE_TAKEN,
                                               WAKE_UNBLOCKED };

        for (size_t i = 0; w->req->reason && i < ARRAY_LEN(reasons); i++)
                if (streq(w->req->reason, reasons[i]))
                        return true;
        return false;
}

/* Why the wake-up is not wanted any more; NULL when it is. */
static const char *obsolete_reason(const struct wake *w)
{
        const char *status = w->issue.status;
        bool closed = streq(status, "done") || streq(status, "cancelled");

        if (!run_agent_is_invokable(&w->agent))
                return "agent_not_invokable";
        if (closed && !w->req->wake_comment_id)
                return "issue_closed";
        if (!is_for_assignee(w) ||
            (w->issue.assignee_agent_id && streq(w->issue.assignee_agent_id, w->agent.id)))
                return NULL;
        return "issue_reassigned";
}

/* 1 when it became a run. */
static int promote_wakeup(struct db *db, const struct op *op, const struct wakeup *row,
                          bool *ret_kick, struct err *err)
{
        json_t *payload;
        const json_t *earlier;
        struct wake_request req = unpack_deferred(row, op->arena, &payload, &earlier);
        struct wake w = { .db = db,
                          .op = op,
                          .req = &req,
                          .actor_type = row->requested_by_actor_type,
                          .actor_id = row->requested_by_actor_id,
                          .earlier = earlier,
                          .now = clock_now_us() };
        struct wake_result result;
        const char *why;
        int r = wake_load(&w, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = wakeups_move(db, row->id, WAKEUP_DEFERRED, WAKEUP_SKIPPED, NULL,
                                 "issue_not_found", w.now, err);
                json_decref(payload);
                return r < 0 ? r : 0;
        }
        why = r < 0 ? NULL : obsolete_reason(&w);
        if (r >= 0 && why) {
                r = wakeups_move(db, row->id, WAKEUP_DEFERRED, WAKEUP_SKIPPED, NULL, why, w.now,
                                 err);
        } else if (r >= 0) {
                r = wake_queue(&w, row, &result, err);
                if (r > 0 && ret_kick)
                        *ret_kick = true;
        }
        json_decref(payload);
        return r < 0 ? r : (why ? 0 : r);
}

struct wakeup_rows {
        struct arena *arena;
        struct wakeup *at;
        size_t n, room;
};

static int wakeup_rows_add(void *ctx, const struct wakeup *row)
{
        struct wakeup_rows *rows = ctx;

        rows->at = arena_more(rows->arena, rows->at, rows->n, &rows->room, sizeof(*rows->at));
        rows->at[rows->n++] = *row;
        return 0;
}

/* Promote unless a run works on the issue, which may be one that was just made for an earlier
 * row. */
static int promote_free(struct db *db, const struct op *op, const struct wakeup *row,
                        bool *ret_kick, struct err *err)
{
        const char *holder = NULL;
        struct issue issue;
        int r = issues_get(db, row->issue_id, op->arena, &issue, err);

        if (r >= 0)
                r = issue_active_run(db, op, &issue, &holder, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = 0;
        }
        return r < 0 || holder ? r : promote_wakeup(db, op, row, ret_kick, err);
}

int run_wake_promote_in(struct db *db, const struct op *op, struct runtime *rt UNUSED,
                        const struct run *ended, bool *ret_kick, struct err *err)
{
        struct wakeup_rows rows = { .arena = op->arena };
        int r = ended ? wakeups_deferred_after(db, ended->id, ended->issue_id, op->arena,
                                               wakeup_rows_add, &rows, err)
                      : wakeups_deferred(db, op->arena, wakeup_rows_add, &rows, err);

        for (size_t n = 0; r >= 0 && n < rows.n; n++)
                r = promote_free(db, op, &rows.at[n], ret_kick, err);
        return r < 0 ? r : 0;
}

/* -- Operations ------------------------------------------------------------------------------- */

struct waking {
        struct op *op;
        struct runtime *rt;
        const struct wake_request *wake;
        struct wake_result *result;
};

static int check_actor(struct db *db, const struct waking *q, struct err *err)
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

static int wake_by_caller(struct db *db, void *arg, struct err *err)
{
        struct waking *q = arg;
        int r = check_actor(db, q, err);

        return r < 0 ? r : run_wake_in(db, q->op, q->rt, q->wake, q->result, err);
}

int run_wake(struct op *op, struct runtime *rt, const struct wake_request *req,
             struct wake_result *ret, struct err *err)
{
        struct waking q = { op, rt, req, ret };
        int r = access_authenticated(op->actor, err);

        if (r < 0)
                return r;
        FAULT("run.wake.before");
        r = store_write(op, rt->store, wake_by_caller, &q, err);
        FAULT("run.wake.after");
        if (r >= 0 && ret->outcome == WAKE_QUEUED)
                run_host_kick(rt->runs);
        return r < 0 ? r : 0;
}
