/* Routes of a company's overview: how many objects of each kind it has, and which agent reports to
 * which. Also the lists of things that Paperclip has and Berth does not, which its clients and
 * agents ask for: they are empty. */
#include "api/api.h"
#include "core/issues/issue.h"
#include "store/agents.h"
#include "store/companies.h"

/* -- Counts ----------------------------------------------------------------------------------- */

struct counts {
        int64_t active, running, paused, failed;
        int64_t open, in_progress, blocked, done;
};

static int count_agents(void *ctx, const char *status, int64_t n)
{
        struct counts *c = ctx;

        if (streq(status, "running"))
                c->running += n;
        else if (streq(status, "paused"))
                c->paused += n;
        else if (streq(status, "error"))
                c->failed += n;
        else if (streq(status, "active") || streq(status, "idle"))
                c->active += n;
        return 0;
}

static int count_issues(void *ctx, const char *status, int64_t n)
{
        struct counts *c = ctx;

        if (streq(status, "done"))
                c->done += n;
        else if (!streq(status, "cancelled"))
                c->open += n;
        if (streq(status, "in_progress"))
                c->in_progress += n;
        else if (streq(status, "blocked"))
                c->blocked += n;
        return 0;
}

static int dashboard(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *id = c->params[0];
        struct jw *w = call_json(c);
        struct counts n = { 0 };
        struct company company;
        int r = call_read(c, id, &db, err);

        if (r >= 0)
                r = companies_get(db, id, c->op->arena, &company, err);
        if (r >= 0)
                r = companies_count_by_status(db, "agents", id, c->op->arena, count_agents, &n,
                                              err);
        if (r >= 0)
                r = companies_count_by_status(db, "issues", id, c->op->arena, count_issues, &n,
                                              err);
        if (r < 0)
                return r;
        int64_t budget = company.budget_monthly_cents;
        int64_t spent = company.spent_monthly_cents;
        jw_object(w);
        jw_kstring(w, "companyId", company.id);
        jw_key(w, "agents");
        jw_object(w);
        jw_kint(w, "active", n.active);
        jw_kint(w, "running", n.running);
        jw_kint(w, "paused", n.paused);
        jw_kint(w, "error", n.failed);
        jw_object_end(w);
        jw_key(w, "tasks");
        jw_object(w);
        jw_kint(w, "open", n.open);
        jw_kint(w, "inProgress", n.in_progress);
        jw_kint(w, "blocked", n.blocked);
        jw_kint(w, "done", n.done);
        jw_object_end(w);
        jw_key(w, "costs");
        jw_object(w);
        jw_kint(w, "monthSpendCents", spent);
        jw_kint(w, "monthBudgetCents", budget);
        jw_kint(w, "monthUtilizationPercent", budget > 0 ? spent * 100 / budget : 0);
        jw_object_end(w);
        jw_kint(w, "pendingApprovals", 0);
        jw_object_end(w);
        return 0;
}

/* -- Managers and reports --------------------------------------------------------------------- */

/* No agent reports to itself, however indirectly (agent_check_manager()), so this ends; levels that
 * are deeper than a document may be are left out. */
#define DEPTH_MAX (JSON_MAX_DEPTH / 2 - 2)

struct chart {
        struct arena *arena;
        struct agent *at;
        const struct agent **managers; /* of each; NULL: none, or one that does not exist */
        size_t n, room;
};

static int collect_agent(void *ctx, const struct agent *row)
{
        struct chart *chart = ctx;

        if (streq(row->status, "terminated"))
                return 0;
        chart->at = arena_more(chart->arena, chart->at, chart->n, &chart->room, sizeof(*chart->at));
        chart->at[chart->n++] = *row;
        return 0;
}

/* manager NULL: agents without a manager. */
static void write_reports(struct jw *w, const struct chart *chart, const struct agent *manager,
                          int depth)
{
        jw_array(w);
        for (size_t i = 0; i < chart->n && depth < DEPTH_MAX; i++) {
                const struct agent *g = &chart->at[i];

                if (chart->managers[i] != manager)
                        continue;
                jw_object(w);
                jw_kstring(w, "id", g->id);
                jw_kstring(w, "name", g->name);
                jw_kstring(w, "role", g->role);
                jw_kstring(w, "title", g->title);
                jw_kstring(w, "status", g->status);
                jw_key(w, "reports");
                write_reports(w, chart, g, depth + 1);
                jw_object_end(w);
        }
        jw_array_end(w);
}

static int organisation(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct chart chart = { .arena = c->op->arena };
        int r = call_read(c, c->params[0], &db, err);

        if (r >= 0)
                r = agents_list(db, c->params[0], chart.arena, collect_agent, &chart, err);
        if (r < 0)
                return r;
        chart.managers = arena_alloc(chart.arena, (chart.n + 1) * sizeof(const struct agent *));
        for (size_t i = 0; i < chart.n; i++)
                for (size_t j = 0; chart.at[i].reports_to && j < chart.n; j++)
                        if (streq(chart.at[j].id, chart.at[i].reports_to))
                                chart.managers[i] = &chart.at[j];
        write_reports(call_json(c), &chart, NULL, 0);
        return 0;
}

/* -- What there is none of -------------------------------------------------------------------- */

/* A caller who may see the company may see that it has none. */
static int none_of_company(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = call_read(c, c->params[0], &db, err);

        if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

static int none_of_issue(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct issue issue;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        if (r >= 0)
                r = issue_load(db, c->op, c->params[0], false, &issue, err);
        if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

static int no_goal(struct call *c, struct err *err)
{
        int r = access_authenticated(&c->actor, err);

        return r < 0 ? r : err_set(err, ERR_NOT_FOUND, "Goal not found");
}

static int no_approval(struct call *c, struct err *err)
{
        int r = access_authenticated(&c->actor, err);

        return r < 0 ? r : err_set(err, ERR_NOT_FOUND, "Approval not found");
}

const struct route routes_overview[] = {
        { "GET", "/api/companies/:companyId/dashboard", .fn = dashboard },
        { "GET", "/api/companies/:companyId/org", .fn = organisation },
        { "GET", "/api/companies/:companyId/approvals", .fn = none_of_company },
        { "GET", "/api/companies/:companyId/goals", .fn = none_of_company },
        { "GET", "/api/companies/:companyId/labels", .fn = none_of_company },
        { "GET", "/api/companies/:companyId/routines", .fn = none_of_company },
        { "GET", "/api/issues/:id/approvals", .fn = none_of_issue },
        { "GET", "/api/issues/:id/attachments", .fn = none_of_issue },
        { "GET", "/api/issues/:id/interactions", .fn = none_of_issue },
        { "GET", "/api/issues/:id/work-products", .fn = none_of_issue },
        { "GET", "/api/goals/:id", .fn = no_goal },
        { "GET", "/api/approvals/:id", .fn = no_approval },
        { 0 },
};
