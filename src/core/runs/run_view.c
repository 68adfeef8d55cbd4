/* Decides who may see runs and their events, and who may decide about silent runs. */
#include "core/runs/run_view.h"

#include "base/clock.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_internal.h"
#include "store/agents.h"

struct request {
        struct op *op;
        const char *id; /* of a run, or an issue's reference */
        const struct run_filter *filter;
        int64_t after_seq, limit;
        struct run_view *view;
        run_view_fn fn;
        run_event_fn event_fn;
        issue_fn issue_fn;
        workspace_row_fn operation_fn;
        void *ctx;
};

/* -- One run ---------------------------------------------------------------------------------- */

static int load(struct db *db, struct request *q, bool write, struct run *ret, struct err *err)
{
        int r = access_authenticated(q->op->actor, err);

        if (r >= 0)
                r = runs_get(db, q->id, q->op->arena, ret, err);
        return r < 0 ? r : access_company(db, q->op->actor, ret->company_id, write, err);
}

/* An object that is gone has no name any more. */
static int unless_gone(int r, struct err *err)
{
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return 0;
}

static int name_agent(struct db *db, struct request *q, struct run_view *v, struct err *err)
{
        struct agent g;
        int r = agents_get(db, v->run.agent_id, q->op->arena, &g, err);

        if (r < 0)
                return unless_gone(r, err);
        v->agent_name = g.name;
        v->adapter_type = g.adapter_type;
        return 0;
}

static int name_issue(struct db *db, struct request *q, struct run_view *v, struct err *err)
{
        if (!v->run.issue_id)
                return 0;
        return unless_gone(issues_name(db, v->run.issue_id, q->op->arena, &v->issue_identifier,
                                       &v->issue_title, err),
                           err);
}

static int complete(struct db *db, struct request *q, struct run_view *v, struct err *err)
{
        int r = name_agent(db, q, v, err);

        v->now_us = clock_wall_us();
        if (r >= 0)
                r = name_issue(db, q, v, err);
        if (r < 0)
                return r;
        if (!streq(v->run.status, RUN_RUNNING))
                return 0;
        return run_decisions_last(db, v->run.id, q->op->arena, &v->decision, err);
}

static int get(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = load(db, q, false, &q->view->run, err);

        return r < 0 ? r : complete(db, q, q->view, err);
}

int run_view_get(struct op *op, struct runtime *rt, const char *run_id, struct run_view *ret,
                 struct err *err)
{
        struct request q = { .op = op, .id = run_id, .view = ret };
        int r;

        *ret = (struct run_view){ 0 };
        r = store_read(op, rt->store, get, &q, err);
        return r < 0 ? r : 0;
}

/* -- Lists ------------------------------------------------------------------------------------ */

static int show_all(struct db *db, struct request *q, const struct run_filter *filter,
                    struct err *err)
{
        struct run_rows rows = { .arena = q->op->arena };
        int r = runs_list(db, filter, q->op->arena, run_rows_add, &rows, err);

        for (size_t n = 0; r >= 0 && n < rows.n; n++) {
                struct run_view view = { .run = rows.at[n] };

                r = complete(db, q, &view, err);
                if (r >= 0)
                        r = q->fn(q->ctx, &view);
        }
        return r;
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = access_company(db, q->op->actor, q->filter->company_id, false, err);

        return r < 0 ? r : show_all(db, q, q->filter, err);
}

int run_view_list(struct op *op, struct runtime *rt, const struct run_filter *filter,
                  run_view_fn fn, void *ctx, struct err *err)
{
        struct request q = { .op = op, .filter = filter, .fn = fn, .ctx = ctx };

        return store_read(op, rt->store, list, &q, err);
}

static int list_of_issue(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct run_filter filter = *q->filter;
        struct issue issue;
        int r = issue_load(db, q->op, q->id, false, &issue, err);

        filter.issue_id = issue.id;
        return r < 0 ? r : show_all(db, q, &filter, err);
}

int run_view_issue(struct op *op, struct runtime *rt, const char *issue,
                   const struct run_filter *filter, run_view_fn fn, void *ctx, struct err *err)
{
        struct request q = { .op = op, .id = issue, .filter = filter, .fn = fn, .ctx = ctx };

        return store_read(op, rt->store, list_of_issue, &q, err);
}

static int find_active(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        const char *run_id = NULL;
        struct issue issue;
        int r = issue_load(db, q->op, q->id, false, &issue, err);

        if (r >= 0)
                r = issue_active_run(db, q->op, &issue, &run_id, err);
        if (r < 0 || !run_id)
                return r;
        r = runs_get(db, run_id, q->op->arena, &q->view->run, err);
        if (r < 0 || run_is_terminal(&q->view->run)) /* over, except that its command still runs */
                return r;
        r = complete(db, q, q->view, err);
        return r < 0 ? r : 1;
}

int run_view_active(struct op *op, struct runtime *rt, const char *issue, struct run_view *ret,
                    struct err *err)
{
        struct request q = { .op = op, .id = issue, .view = ret };

        *ret = (struct run_view){ 0 };
        return store_read(op, rt->store, find_active, &q, err);
}

/* -- What belongs to a run -------------------------------------------------------------------- */

static int list_events(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct run run;
        int r = load(db, q, false, &run, err);

        return r < 0 ? r
                     : run_events_list(db, run.id, q->after_seq, q->limit, q->op->arena,
                                       q->event_fn, q->ctx, err);
}

int run_view_events(struct op *op, struct runtime *rt, const char *run_id, int64_t after_seq,
                    int64_t limit, run_event_fn fn, void *ctx, struct err *err)
{
        struct request q = { .op = op,
                             .id = run_id,
                             .after_seq = after_seq,
                             .limit = limit,
                             .event_fn = fn,
                             .ctx = ctx };

        return store_read(op, rt->store, list_events, &q, err);
}

static int list_issues(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct run run;
        int r = load(db, q, false, &run, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? r
                     : issues_of_run(db, run.id, run.issue_id, q->op->arena, q->issue_fn, q->ctx,
                                     err);
}

int run_view_issues(struct op *op, struct runtime *rt, const char *run_id, issue_fn fn, void *ctx,
                    struct err *err)
{
        struct request q = { .op = op, .id = run_id, .issue_fn = fn, .ctx = ctx };

        return store_read(op, rt->store, list_issues, &q, err);
}

static int list_operations(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct workspace_row row;
        struct run run;
        int r = load(db, q, false, &run, err);

        if (r < 0 || !run.lease_id)
                return r;
        r = workspaces_of_lease(db, run.lease_id, q->op->arena, &row, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? r : q->operation_fn(q->ctx, &row);
}

int run_view_operations(struct op *op, struct runtime *rt, const char *run_id, workspace_row_fn fn,
                        void *ctx, struct err *err)
{
        struct request q = { .op = op, .id = run_id, .operation_fn = fn, .ctx = ctx };

        return store_read(op, rt->store, list_operations, &q, err);
}

/* -- Decisions -------------------------------------------------------------------------------- */

struct decision {
        struct request request;
        json_t *body;
        struct run_decision *row;
};

static int check_decision(struct decision *d, struct err *err)
{
        static const char *const decisions[] = { "snooze", "continue", "dismissed_false_positive",
                                                 NULL };
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = d->request.op->arena;
        const char *until;

        check_init(&c, d->body);
        d->row->decision = arena_strdup(a, check_enum(&c, "decision", CHECK_REQUIRED, decisions));
        d->row->evaluation_issue_id =
                arena_strdup(a, check_uuid(&c, "evaluationIssueId", CHECK_NULLABLE));
        d->row->reason = arena_strdup(a, check_string(&c, "reason", CHECK_NULLABLE, 0, 4000));
        until = check_string(&c, "snoozedUntil", CHECK_NULLABLE, 0, 0);
        if (until && !clock_parse_iso(until, &d->row->snoozed_until))
                check_invalid_string(&c, "snoozedUntil", "datetime", "Invalid datetime");
        if (d->row->decision && streq(d->row->decision, "snooze") && !until)
                check_custom(&c, "snoozedUntil", "A snooze needs snoozedUntil");
        return check_end(&c, err);
}

static int decide(struct db *db, void *arg, struct err *err)
{
        struct decision *d = arg;
        struct op *op = d->request.op;
        struct run run;
        int r = load(db, &d->request, true, &run, err);

        if (r >= 0)
                r = check_decision(d, err);
        if (r < 0)
                return r;
        d->row->id = arena_strdup(op->arena, uuid_new().s);
        d->row->run_id = run.id;
        d->row->company_id = run.company_id;
        d->row->created_by_agent_id = op->actor->agent_id;
        d->row->created_by_user_id = op->actor->user_id;
        d->row->created_by_run_id = op->run_id;
        d->row->created_at = clock_now_us();
        r = run_decisions_insert(db, d->row, err);
        return r < 0 ? r
                     : audit(db, op, run.company_id, "heartbeat.output_stale_decision",
                             "heartbeat_run", run.id,
                             json_pack("{s:s}", "decision", d->row->decision), err);
}

int run_decide(struct op *op, struct runtime *rt, const char *run_id, json_t *body,
               struct run_decision *ret, struct err *err)
{
        struct decision d = { .request = { .op = op, .id = run_id }, .body = body, .row = ret };

        *ret = (struct run_decision){ 0 };
        return store_write(op, rt->store, decide, &d, err);
}
