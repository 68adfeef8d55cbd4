/* Decides what the end of a run means for its issue. Nothing may be left in progress that nobody
 * will ever look at again: the agent is woken once more, a bounded number of times, or the issue is
 * blocked with a comment that says why and what to do. */
#include "base/clock.h"
#include "core/access/audit.h"
#include "core/access/run_policy.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_internal.h"
#include "store/activity.h"
#include "store/issue_comments.h"

#define FOLLOW_REASON "run_liveness_continuation"

/* -- How far a run got --------------------------------------------------------------------------
 */

/* What the agent did through the API. */
struct evidence {
        int64_t comments, documents, others;
};

static int count_action(void *ctx, const char *action, int64_t n)
{
        struct evidence *e = ctx;

        if (streq(action, "issue.comment_added"))
                e->comments += n;
        else if (strncmp(action, "issue.document_", strlen("issue.document_")) == 0)
                e->documents += n;
        else
                e->others += n;
        return 0;
}

static const char *evidence_text(struct arena *arena, const struct evidence *e)
{
        const struct {
                const char *what;
                int64_t n;
        } parts[] = {
                { "issue comment(s)", e->comments },
                { "document revision(s)", e->documents },
                { "activity event(s)", e->others },
        };
        const char *text = "Run produced concrete action evidence:", *comma = "";

        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
                if (parts[i].n == 0)
                        continue;
                text = arena_printf(arena, "%s%s %lld %s", text, comma, (long long)parts[i].n,
                                    parts[i].what);
                comma = ",";
        }
        return text;
}

static bool has_text(const char *s)
{
        return s && s[strspn(s, " \t\r\n")];
}

static void set_liveness(struct run *run, const char *state, const char *reason)
{
        run->liveness_state = state;
        run->liveness_reason = reason;
}

int run_judge_liveness(struct db *db, const struct op *op, struct run *run, bool spoke,
                       struct err *err)
{
        struct evidence did = { 0 };
        struct issue issue = { 0 };
        int r = 0;

        if (!streq(run->status, RUN_SUCCEEDED)) {
                set_liveness(run, "failed",
                             run->error_code
                                     ? arena_printf(op->arena, "Run ended with %s (%s)",
                                                    run->status, run->error_code)
                                     : arena_printf(op->arena, "Run ended with %s", run->status));
                return 0;
        }
        if (run->issue_id)
                r = issues_get(db, run->issue_id, op->arena, &issue, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = 0;
        }
        if (r >= 0)
                r = activity_of_run(db, run->id, op->arena, count_action, &did, err);
        if (r >= 0)
                r = activity_last_of_run(db, run->id, &run->last_useful_action_at, err);
        if (r < 0)
                return r;
        if (issue.id && issue_is_closed(&issue))
                set_liveness(run, "completed",
                             arena_printf(op->arena, "Issue is %s", issue.status));
        else if (issue.id && streq(issue.status, "blocked"))
                set_liveness(run, "blocked", "Issue status is blocked");
        else if (did.comments + did.documents + did.others > 0)
                set_liveness(run, "advanced", evidence_text(op->arena, &did));
        else if (spoke || has_text(run->stdout_excerpt) || has_text(run->stderr_excerpt))
                set_liveness(run, "needs_followup",
                             "Run produced useful output but no concrete action evidence");
        else
                set_liveness(run, "empty_response",
                             "Run succeeded without useful output or concrete action evidence");
        return 0;
}

/* -- What becomes of the issue ------------------------------------------------------------------
 */

struct follow {
        struct db *db;
        struct op op; /* as the system */
        struct run_task *t;
        const struct run *run;
        struct issue issue;
        struct run_policy policy;
        bool *kick;
};

static int follow_block(struct follow *f, const char *why, struct err *err)
{
        struct issue seen = f->issue, *i = &f->issue;
        struct issue_comment comment = {
                .id = arena_strdup(f->op.arena, uuid_new().s),
                .company_id = i->company_id,
                .issue_id = i->id,
                .author_type = "system",
                .created_by_run_id = f->run->id,
                .created_at = clock_now_us(),
        };
        int r;

        comment.body = arena_printf(
                f->op.arena,
                "%s\n\nBerth does not try again by itself and has set the issue to `blocked`. Look at "
                "the run: `berth runs show %.8s`, `berth runs logs %.8s`. When the cause is gone, set "
                "the status to `todo` with a comment: the comment wakes the assignee.",
                why, f->run->id, f->run->id);
        comment.updated_at = i->updated_at = comment.created_at;
        issue_set_status(i, "blocked", i->updated_at);
        r = issues_update(f->db, i, &seen, err);
        if (r == 0)
                return issue_conflict(&seen, "Issue was changed by someone else", err);
        if (r >= 0)
                r = issue_comments_insert(f->db, &comment, err);
        if (r >= 0)
                r = audit(f->db, &f->op, i->company_id, "issue.comment_added", "issue", i->id,
                          json_pack("{s:s, s:s}", "identifier", i->identifier, "commentId",
                                    comment.id),
                          err);
        if (r >= 0)
                r = audit(f->db, &f->op, i->company_id, "issue.updated", "issue", i->id,
                          json_pack("{s:s, s:[s], s:s, s:s}", "identifier", i->identifier,
                                    "changedFields", "status", "status", i->status,
                                    "previousStatus", seen.status),
                          err);
        return r < 0 ? r
                     : run_event_add(
                               f->db, f->t->rt, f->run, "lifecycle", "warn", "the issue is blocked",
                               json_pack("{s:s, s:s}", "issueId", i->id, "commentId", comment.id),
                               err);
}

static int follow_wake(struct follow *f, struct err *err)
{
        int64_t n = f->run->continuation_attempt + 1;
        const char *instruction = arena_printf(
                f->op.arena,
                "Your last run succeeded, but %s is still in progress and nothing says what comes next. "
                "Finish the work, or say how it stands: set the status `done`, `blocked` or "
                "`in_review`, or comment what is done and what comes next. This is follow-up %lld of "
                "%lld; after the last one the issue is blocked.",
                f->issue.identifier, (long long)n, (long long)f->policy.max_follow_ups);
        CLEAN(json_decrefp)
        json_t *payload =
                json_pack("{s:s, s:s, s:s?, s:s?, s:I, s:I, s:s}", "issueId", f->issue.id,
                          "sourceRunId", f->run->id, "livenessState", f->run->liveness_state,
                          "livenessReason", f->run->liveness_reason, "continuationAttempt",
                          (json_int_t)n, "maxContinuationAttempts",
                          (json_int_t)f->policy.max_follow_ups, "instruction", instruction);
        struct wake_request req = {
                .agent_id = f->run->agent_id,
                .source = WAKE_AUTOMATION,
                .trigger_detail = "system",
                .reason = FOLLOW_REASON,
                .issue_id = f->issue.id,
                .payload = payload,
                .continuation_attempt = n,
        };
        struct wake_result result;
        int r = run_wake_in(f->db, &f->op, f->t->rt, &req, &result, err);

        if (r < 0 || result.outcome != WAKE_QUEUED)
                return r;
        *f->kick = true;
        return run_event_add(f->db, f->t->rt, f->run, "lifecycle", "warn",
                             "the issue is still open; its agent is woken once more",
                             json_pack("{s:s, s:I}", "followUpRunId", result.run.id,
                                       "continuationAttempt", (json_int_t)n),
                             err);
}

/* A run that succeeded. What it commented on its issue counts as its word on what comes next. */
static int follow_success(struct follow *f, struct err *err)
{
        int64_t said;
        int r = activity_comments_of_run(f->db, f->run->id, f->issue.id, &said, err);

        if (r < 0 || said > 0 || !streq(f->issue.status, "in_progress") ||
            f->policy.max_follow_ups == 0)
                return r;
        if (f->run->continuation_attempt < f->policy.max_follow_ups)
                return follow_wake(f, err);
        return follow_block(
                f,
                arena_printf(
                        f->op.arena,
                        "Run %.8s succeeded but left the issue in progress without a word, and "
                        "so did the %lld before it (last: %s).",
                        f->run->id, (long long)f->run->continuation_attempt,
                        f->run->liveness_reason),
                err);
}

int run_follow(struct db *db, struct run_task *t, const struct run *run, bool *ret_kick,
               struct err *err)
{
        struct follow f = { .db = db, .op = *t->op, .t = t, .run = run, .kick = ret_kick };
        const struct issue *i = &f.issue;
        const char *holder = NULL;
        int r;

        /* The agent of a request may still work: it said only that it was asked. */
        if (!run->issue_id || t->command.is_http || !run_agent_is_invokable(&t->agent))
                return 0;
        f.op.actor = &actor_system;
        r = issues_get(db, run->issue_id, f.op.arena, &f.issue, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r >= 0)
                r = issue_active_run(db, &f.op, i, &holder, err);
        if (r < 0 || holder || !i->assignee_agent_id ||
            !streq(i->assignee_agent_id, run->agent_id) ||
            !(streq(i->status, "in_progress") || streq(i->status, "todo")))
                return r;
        run_policy_read(&t->agent, f.op.arena, &f.policy);
        if (streq(run->status, RUN_SUCCEEDED))
                return follow_success(&f, err);
        if (run->error_code && streq(run->error_code, RUN_LOST_CODE))
                return follow_block(
                        &f,
                        arena_printf(f.op.arena, "The command of run %.8s was lost%s: %s", run->id,
                                     run->process_loss_retry_count > 0 ? ", for the second time"
                                                                       : "",
                                     run->error),
                        err);
        if (run->retry_exhausted_reason)
                return follow_block(&f,
                                    arena_printf(f.op.arena, "Run %.8s failed: %s. %s.", run->id,
                                                 run->error, run->retry_exhausted_reason),
                                    err);
        return 0;
}
