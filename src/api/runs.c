/* Runs of agents: waking, looking, ending. Their logs are in run_log.c. */
#include "api/api.h"
#include "api/encode.h"
#include "api/encode_run.h"
#include "api/thing.h"
#include "base/clock.h"
#include "codec/check.h"

#define LIST_MAX       1000
#define LIVE_MAX       50
#define EVENTS_DEFAULT 200
#define EVENTS_MAX     1000

/* -- Waking ----------------------------------------------------------------------------------- */

static int check_wake(struct call *c, struct wake_request *q, struct err *err)
{
        static const char *const sources[] = { WAKE_TIMER, WAKE_ASSIGNMENT, WAKE_ON_DEMAND,
                                               WAKE_AUTOMATION, NULL };
        static const char *const triggers[] = { "manual", "ping", "callback", "system", NULL };
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = c->op->arena;

        check_init(&k, c->body);
        const char *source = check_enum(&k, "source", CHECK_OPTIONAL, sources);
        q->source = source ? arena_strdup(a, source) : WAKE_ON_DEMAND;
        q->trigger_detail =
                arena_strdup(a, check_enum(&k, "triggerDetail", CHECK_OPTIONAL, triggers));
        q->reason = arena_strtrim(a, check_string(&k, "reason", CHECK_NULLABLE, 0, 2000));
        q->payload = check_record(&k, "payload", CHECK_NULLABLE);
        q->idempotency_key =
                arena_strtrim(a, check_string(&k, "idempotencyKey", CHECK_NULLABLE, 0, 255));
        q->force_fresh_session = check_bool(&k, "forceFreshSession", CHECK_OPTIONAL, false);
        q->wake_comment_id = arena_strdup(a, json_get_string(q->payload, "commentId"));
        return check_end(&k, err);
}

static const char *skip_message(struct call *c, const struct wake_result *result)
{
        if (streq(result->reason, WAKE_REASON_DEFERRED))
                return arena_printf(c->op->arena,
                                    "Wakeup was deferred because this issue is already being "
                                    "executed by %s.",
                                    result->holder_agent_name ? result->holder_agent_name
                                                              : "another agent");
        if (streq(result->reason, WAKE_REASON_BLOCKED))
                return "Wakeup was skipped because this issue waits for issues that are not done.";
        return "Wakeup was skipped.";
}

static void encode_skip(struct call *c, const struct wake_result *result)
{
        struct jw *w = call_json(c);

        jw_object(w);
        jw_kstring(w, "status", "skipped");
        jw_kstring(w, "reason", result->reason);
        jw_kstring(w, "message", skip_message(c, result));
        jw_kstring(w, "issueId", result->issue_id);
        jw_kstring(w, "executionRunId", result->run.id);
        jw_kstring(w, "executionAgentId", result->holder_agent_id);
        jw_kstring(w, "executionAgentName", result->holder_agent_name);
        jw_object_end(w);
}

static int answer_wake(struct call *c, const struct wake_request *q, struct err *err)
{
        struct wake_result result = { 0 };
        int r = run_wake(c->op, c->rt, q, &result, err);

        if (r < 0)
                return r;
        if (result.outcome == WAKE_DEFERRED || result.outcome == WAKE_SKIPPED)
                encode_skip(c, &result);
        else
                encode_run(call_json(c), &result.run);
        return 0;
}

static int read_wake(struct call *c, struct wake_request *q, struct err *err)
{
        int r = access_authenticated(&c->actor, err);

        if (r >= 0)
                r = call_check_thing(c, err);
        q->agent_id = c->params[0];
        return r < 0 ? r : check_wake(c, q, err);
}

static int post_wakeup(struct call *c, struct err *err)
{
        struct wake_request q = { 0 };
        int r = read_wake(c, &q, err);

        return r < 0 ? r : answer_wake(c, &q, err);
}

static int post_invoke(struct call *c, struct err *err)
{
        struct wake_request q = { 0 };
        int r = read_wake(c, &q, err);

        if (!q.trigger_detail)
                q.trigger_detail = "manual";
        return r < 0 ? r : answer_wake(c, &q, err);
}

/* -- Lists ------------------------------------------------------------------------------------ */

static int show_run(void *ctx, const struct run_view *view)
{
        struct call_page *p = ctx;

        if (call_page_has_room(p, view->run.created_at, view->run.id))
                encode_run_view(p->w, view, false);
        return 0;
}

static int list_runs(struct call *c, struct err *err)
{
        struct run_filter filter = { .company_id = c->params[0],
                                     .agent_id = call_query(c, "agentId"),
                                     .issue_id = call_query(c, "issueId") };
        struct call_page p = { 0 };
        int r = call_query_int(c, "limit", 0, INT64_MIN, INT64_MAX, &p.limit, err);

        if (r >= 0 && call_query(c, "limit"))
                p.limit = MAX(1, MIN(p.limit, LIST_MAX));
        if (r >= 0)
                r = call_cursor(c, &p, err);
        if (r < 0)
                return r;
        filter.before_us = p.before_us;
        filter.before_id = p.before_id;
        filter.limit = call_page_rows(&p);
        call_page_begin(c, &p);
        return call_page_end(c, &p, run_view_list(c->op, c->rt, NULL, &filter, show_run, &p, err),
                             err);
}

struct fill {
        struct call_page *page;
        int64_t wanted;
};

/* Those that ended, until there are enough. */
static int show_ended(void *ctx, const struct run_view *view)
{
        struct fill *f = ctx;

        if (!run_is_terminal(&view->run) || f->page->shown >= f->wanted)
                return 0;
        return show_run(f->page, view);
}

static int list_live(struct call *c, struct err *err)
{
        struct run_filter filter = { .company_id = c->params[0], .live = true };
        struct call_page p = { 0 };
        struct fill fill = { .page = &p };
        int r = call_query_int(c, "limit", LIVE_MAX, INT64_MIN, INT64_MAX, &p.limit, err);

        if (r >= 0)
                r = call_query_int(c, "minCount", 0, INT64_MIN, INT64_MAX, &fill.wanted, err);
        if (r < 0)
                return r;
        filter.limit = p.limit = MAX(1, MIN(p.limit, LIVE_MAX));
        fill.wanted = MIN(fill.wanted, p.limit);
        call_page_begin(c, &p);
        r = run_view_list(c->op, c->rt, NULL, &filter, show_run, &p, err);
        if (r >= 0 && p.shown < fill.wanted) {
                filter.live = false;
                filter.limit = 2 * LIVE_MAX;
                r = run_view_list(c->op, c->rt, NULL, &filter, show_ended, &fill, err);
        }
        return call_page_end(c, &p, r, err);
}

static int answer_issue(struct call *c, bool live, struct err *err)
{
        struct run_filter filter = { .live = live };
        struct call_page p = { 0 };
        int r = call_cursor(c, &p, err);

        if (r < 0)
                return r;
        filter.before_us = p.before_us;
        filter.before_id = p.before_id;
        filter.limit = call_page_rows(&p);
        call_page_begin(c, &p);
        r = run_view_list(c->op, c->rt, c->params[0], &filter, show_run, &p, err);
        return call_page_end(c, &p, r, err);
}

static int list_of_issue(struct call *c, struct err *err)
{
        return answer_issue(c, false, err);
}

static int list_live_of_issue(struct call *c, struct err *err)
{
        return answer_issue(c, true, err);
}

static int get_active_run(struct call *c, struct err *err)
{
        struct run_view view;
        int r = run_view_active(c->op, c->rt, c->params[0], &view, err);

        if (r > 0)
                encode_run_view(call_json(c), &view, false);
        else if (r == 0)
                jw_null(call_json(c));
        return r;
}

/* -- One -------------------------------------------------------------------------------------- */

static int get_run(struct call *c, struct err *err)
{
        struct run_view view;
        int r = run_view_get(c->op, c->rt, c->params[0], &view, err);

        if (r >= 0)
                encode_run_view(call_json(c), &view, true);
        return r;
}

static int cancel_run(struct call *c, struct err *err)
{
        struct run run;
        int r = run_cancel(c->op, c->rt, c->params[0], &run, err);

        if (r >= 0)
                encode_run(call_json(c), &run);
        return r;
}

static int show_run_event(void *ctx, const struct run_event *event)
{
        encode_run_event(ctx, event);
        return 0;
}

static int list_run_events(struct call *c, struct err *err)
{
        int64_t after, limit;
        int r = call_query_int(c, "afterSeq", 0, INT64_MIN, INT64_MAX, &after, err);

        if (r >= 0)
                r = call_query_int(c, "limit", EVENTS_DEFAULT, INT64_MIN, INT64_MAX, &limit, err);
        if (r < 0)
                return r;
        limit = MAX(1, MIN(limit, EVENTS_MAX));
        return call_list_end(c, run_view_events(c->op, c->rt, c->params[0], after, limit,
                                                show_run_event, call_list(c), err));
}

static int show_run_issue(void *ctx, const struct issue *i)
{
        struct jw *w = ctx;

        jw_object(w);
        jw_kstring(w, "issueId", i->id);
        jw_kstring(w, "id", i->id);
        jw_kstring(w, "identifier", i->identifier);
        jw_kstring(w, "title", i->title);
        jw_kstring(w, "status", i->status);
        jw_kstring(w, "priority", i->priority);
        jw_object_end(w);
        return 0;
}

static int list_run_issues(struct call *c, struct err *err)
{
        return call_list_end(
                c, run_view_issues(c->op, c->rt, c->params[0], show_run_issue, call_list(c), err));
}

static int list_run_operations(struct call *c, struct err *err)
{
        return answer_operations(c, run_view_operations, err);
}

/* A line of an operation's log, as a record of a run's log. */
static void add_record(struct buf *log, int64_t at_us, const char *text)
{
        char at[ISO_TIME_LEN + 1];
        CLEAN(json_decrefp) json_t *record = NULL;
        CLEAN(cleanup_free) char *line = NULL;

        clock_iso(at_us, at);
        record = json_pack("{s:s, s:s, s:o}", "ts", at, "stream", "system", "chunk",
                           json_sprintf("%s\n", text));
        line = json_to_text(record);
        buf_appendf(log, "%s\n", line);
}

/* Bringing a workspace in and home is quick and keeps no file of its own: what its row says. */
static int operation_log(struct call *c, struct err *err)
{
        CLEAN(buf_done) struct buf log = BUF_INIT;
        struct workspace_row row;
        struct jw *w;
        int r = run_view_operation(c->op, c->rt, c->params[0], &row, err);

        if (r < 0)
                return r;
        if (row.cwd)
                add_record(&log, row.created_at,
                           arena_printf(c->op->arena,
                                        "%s staged to %s (%s): %lld files, %lld bytes, %lld sent",
                                        row.local_path, row.cwd, row.way, (long long)row.files,
                                        (long long)row.bytes, (long long)row.sent_bytes));
        if (row.restored_at)
                add_record(&log, row.restored_at,
                           arena_printf(c->op->arena, "restored to %s: %s",
                                        row.target_path ? row.target_path : row.local_path,
                                        row.report ? row.report : "nothing"));
        if (row.note)
                add_record(&log, row.updated_at, row.note);
        w = call_json(c);
        jw_object(w);
        jw_kstring(w, "operationId", row.id);
        jw_kstring(w, "store", "local_file");
        jw_kstring(w, "logRef", row.id);
        jw_kstring(w, "content", buf_str(&log));
        jw_object_end(w);
        return 0;
}

static int post_decision(struct call *c, struct err *err)
{
        static const char *const decisions[] = { "snooze", "continue", "dismissed_false_positive",
                                                 NULL };
        CLEAN(check_done) struct check k = { 0 };
        struct run_decision decision = { 0 };
        struct arena *a = c->op->arena;
        int r = run_decide_check(c->op, c->rt, c->params[0], err);

        if (r < 0)
                return r;
        check_init(&k, c->body);
        decision.decision = arena_strdup(a, check_enum(&k, "decision", CHECK_REQUIRED, decisions));
        decision.evaluation_issue_id =
                arena_strdup(a, check_uuid(&k, "evaluationIssueId", CHECK_NULLABLE));
        decision.reason = arena_strdup(a, check_string(&k, "reason", CHECK_NULLABLE, 0, 4000));
        const char *until = check_string(&k, "snoozedUntil", CHECK_NULLABLE, 0, 0);
        if (until && !clock_parse_iso(until, &decision.snoozed_until))
                check_invalid_string(&k, "snoozedUntil", "datetime", "Invalid datetime");
        if (decision.decision && streq(decision.decision, "snooze") && !until)
                check_custom(&k, "snoozedUntil", "A snooze needs snoozedUntil");
        r = check_end(&k, err);
        if (r >= 0)
                r = run_decide(c->op, c->rt, c->params[0], &decision, err);
        if (r >= 0)
                encode_run_decision(call_json(c), &decision);
        return r;
}

const struct route routes_runs[] = {
        { "POST", "/api/agents/:id/wakeup", .fn = post_wakeup, .flags = ROUTE_RIGHTS_FIRST,
          .status = 202 },
        { "POST", "/api/agents/:id/heartbeat/invoke", .fn = post_invoke,
          .flags = ROUTE_BODY_FREE | ROUTE_RIGHTS_FIRST, .status = 202 },
        { "GET", "/api/companies/:companyId/heartbeat-runs", .fn = list_runs },
        { "GET", "/api/companies/:companyId/live-runs", .fn = list_live },
        { "GET", "/api/heartbeat-runs/:id", .fn = get_run },
        { "POST", "/api/heartbeat-runs/:id/cancel", .fn = cancel_run,
          .flags = ROUTE_BODY_FREE | ROUTE_WHEN_FULL },
        { "GET", "/api/heartbeat-runs/:id/events", .fn = list_run_events },
        { "GET", "/api/heartbeat-runs/:id/issues", .fn = list_run_issues,
          .flags = ROUTE_RIGHTS_FIRST },
        { "GET", "/api/heartbeat-runs/:id/workspace-operations", .fn = list_run_operations },
        { "POST", "/api/heartbeat-runs/:id/watchdog-decisions", .fn = post_decision },
        { "GET", "/api/workspace-operations/:id/log", .fn = operation_log },
        { "GET", "/api/issues/:id/runs", .fn = list_of_issue },
        { "GET", "/api/issues/:id/live-runs", .fn = list_live_of_issue },
        { "GET", "/api/issues/:id/active-run", .fn = get_active_run },
        { 0 },
};
