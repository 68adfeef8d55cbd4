/* Decides who may see runs and their events, and who may decide about silent runs. */
#include "core/runs/run_view.h"

#include "base/clock.h"
#include "core/access/audit.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_internal.h"
#include "store/agents.h"

/* -- One run ---------------------------------------------------------------------------------- */

static int run_view_load(struct db *db, struct op *op, const char *id, bool write, struct run *ret,
                         struct err *err)
{
        int r = access_authenticated(op->actor, err);

        if (r >= 0)
                r = runs_get(db, id, op->arena, ret, err);
        return r < 0 ? r : access_company(db, op->actor, ret->company_id, write, err);
}

/* An object that is gone has no name any more. */
static int run_view_complete(struct db *db, struct op *op, struct run_view *v, struct err *err)
{
        struct agent g;
        int r = agents_get(db, v->run.agent_id, op->arena, &g, err);

        v->now_us = clock_wall_us();
        if (r >= 0) {
                v->agent_name = g.name;
                v->adapter_type = g.adapter_type;
        }
        if ((r >= 0 || r == ERR_NOT_FOUND) && v->run.issue_id)
                r = issues_name(db, v->run.issue_id, op->arena, &v->issue_identifier,
                                &v->issue_title, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = 0;
        }
        if (r >= 0 && streq(v->run.status, RUN_RUNNING))
                r = run_decisions_last(db, v->run.id, op->arena, &v->decision, err);
        return MIN(r, 0);
}

int run_view_get(struct op *op, struct runtime *rt, const char *run_id, struct run_view *ret,
                 struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        *ret = (struct run_view){ 0 };
        if (r >= 0)
                r = run_view_load(db, op, run_id, false, &ret->run, err);
        return r < 0 ? r : run_view_complete(db, op, ret, err);
}

/* -- Lists ------------------------------------------------------------------------------------ */

int run_view_list(struct op *op, struct runtime *rt, const char *issue_ref,
                  const struct run_filter *filter, run_view_fn fn, void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run_rows rows = { .arena = op->arena };
        struct run_filter wanted = *filter;
        struct issue issue;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0 && issue_ref) {
                r = issue_load(db, op, issue_ref, false, &issue, err);
                wanted.issue_id = r < 0 ? NULL : issue.id;
        } else if (r >= 0) {
                r = access_company(db, op->actor, filter->company_id, false, err);
        }
        if (r >= 0)
                r = runs_list(db, &wanted, op->arena, run_rows_add, &rows, err);
        for (size_t n = 0; r >= 0 && n < rows.n; n++) {
                struct run_view view = { .run = rows.at[n] };

                r = run_view_complete(db, op, &view, err);
                if (r >= 0)
                        r = fn(ctx, &view);
        }
        return r;
}

int run_view_active(struct op *op, struct runtime *rt, const char *issue_ref, struct run_view *ret,
                    struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *run_id = NULL;
        struct issue issue;
        int r = store_read_begin(op, rt->store, &db, err);

        *ret = (struct run_view){ 0 };
        if (r >= 0)
                r = issue_load(db, op, issue_ref, false, &issue, err);
        if (r >= 0)
                r = issue_active_run(db, op, &issue, &run_id, err);
        if (r < 0 || !run_id)
                return r;
        r = runs_get(db, run_id, op->arena, &ret->run, err);
        if (r < 0 || run_is_terminal(&ret->run)) /* over, except that its command still runs */
                return r;
        r = run_view_complete(db, op, ret, err);
        return r < 0 ? r : 1;
}

/* -- What belongs to a run -------------------------------------------------------------------- */

int run_view_events(struct op *op, struct runtime *rt, const char *run_id, int64_t after_seq,
                    int64_t limit, run_event_fn fn, void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run run;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = run_view_load(db, op, run_id, false, &run, err);
        return r < 0 ? r : run_events_list(db, run.id, after_seq, limit, op->arena, fn, ctx, err);
}

int run_view_issues(struct op *op, struct runtime *rt, const char *run_id, issue_fn fn, void *ctx,
                    struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run run;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = run_view_load(db, op, run_id, false, &run, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? r : issues_of_run(db, run.id, run.issue_id, op->arena, fn, ctx, err);
}

int run_view_operations(struct op *op, struct runtime *rt, const char *run_id, workspace_row_fn fn,
                        void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct workspace_row row;
        struct run run;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = run_view_load(db, op, run_id, false, &run, err);
        if (r < 0 || !run.lease_id)
                return r;
        r = workspaces_of_lease(db, run.lease_id, op->arena, &row, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? r : fn(ctx, &row);
}

int run_view_operation(struct op *op, struct runtime *rt, const char *id, struct workspace_row *ret,
                       struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = access_authenticated(op->actor, err);

        if (r >= 0)
                r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = workspaces_get(db, id, op->arena, ret, err);
        if (r == ERR_NOT_FOUND)
                return err_set(err, r, "Workspace operation log not found");
        return r < 0 ? r : access_company(db, op->actor, ret->company_id, false, err);
}

/* -- Decisions -------------------------------------------------------------------------------- */

struct decision {
        struct op *op;
        const char *run_id;
        struct run_decision *row;
};

int run_decide_check(struct op *op, struct runtime *rt, const char *run_id, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run run;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : run_view_load(db, op, run_id, true, &run, err);
}

static int run_decide_in(struct db *db, void *arg, struct err *err)
{
        struct decision *d = arg;
        struct op *op = d->op;
        struct run run;
        int r = run_view_load(db, op, d->run_id, true, &run, err);

        if (r < 0)
                return r;
        d->row->id = arena_strdup(op->arena, uuid_new().s);
        d->row->run_id = run.id;
        d->row->company_id = run.company_id;
        d->row->created_by_agent_id = op->actor->agent_id;
        d->row->created_by_user_id = op->actor->user_id;
        d->row->created_by_run_id = op->run_id;
        d->row->created_at = clock_now_us();
        if (streq(d->row->decision, "continue") && !d->row->snoozed_until)
                d->row->snoozed_until = d->row->created_at + RUN_SILENCE_CONTINUE_MS * US_PER_MS;
        r = run_decisions_insert(db, d->row, err);
        return r < 0 ? r
                     : audit(db, op, run.company_id, "heartbeat.output_stale_decision",
                             "heartbeat_run", run.id,
                             json_pack("{s:s}", "decision", d->row->decision), err);
}

int run_decide(struct op *op, struct runtime *rt, const char *run_id, struct run_decision *row,
               struct err *err)
{
        struct decision d = { .op = op, .run_id = run_id, .row = row };

        return store_write(op, rt->store, run_decide_in, &d, err);
}
