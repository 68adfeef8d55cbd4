/* An overview of a company: counts by status, and the tree of managers and reports. */
#include "core/companies/company.h"
#include "store/agents.h"

struct request {
        struct op *op;
        const char *company_id;
        struct jw w;
};

/* Counts */

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

static void write_dashboard(struct jw *w, const struct company *company, const struct counts *n)
{
        int64_t budget = company->budget_monthly_cents, spent = company->spent_monthly_cents;

        jw_object(w);
        jw_kstring(w, "companyId", company->id);
        jw_key(w, "agents");
        jw_object(w);
        jw_kint(w, "active", n->active);
        jw_kint(w, "running", n->running);
        jw_kint(w, "paused", n->paused);
        jw_kint(w, "error", n->failed);
        jw_object_end(w);
        jw_key(w, "tasks");
        jw_object(w);
        jw_kint(w, "open", n->open);
        jw_kint(w, "inProgress", n->in_progress);
        jw_kint(w, "blocked", n->blocked);
        jw_kint(w, "done", n->done);
        jw_object_end(w);
        jw_key(w, "costs");
        jw_object(w);
        jw_kint(w, "monthSpendCents", spent);
        jw_kint(w, "monthBudgetCents", budget);
        jw_kint(w, "monthUtilizationPercent", budget > 0 ? spent * 100 / budget : 0);
        jw_object_end(w);
        jw_kint(w, "pendingApprovals", 0);
        jw_object_end(w);
}

static int dashboard(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct counts n = { 0 };
        struct company company;
        int r = access_company(db, q->op->actor, q->company_id, false, err);

        if (r >= 0)
                r = companies_get(db, q->company_id, q->op->arena, &company, err);
        if (r >= 0)
                r = companies_count_by_status(db, "agents", q->company_id, q->op->arena,
                                              count_agents, &n, err);
        if (r >= 0)
                r = companies_count_by_status(db, "issues", q->company_id, q->op->arena,
                                              count_issues, &n, err);
        if (r >= 0)
                write_dashboard(&q->w, &company, &n);
        return r;
}

int company_dashboard(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                      struct err *err)
{
        struct request q = { .op = op, .company_id = id };

        jw_init(&q.w, ret_json);
        return store_read(op, rt->store, dashboard, &q, err);
}

/* Managers and reports */

/* No agent reports to itself, however indirectly (agent_check_manager()), so this ends; levels that
 * are deeper than a document may be are left out. */
#define DEPTH_MAX (JSON_MAX_DEPTH / 2 - 2)

struct chart {
        struct arena *arena;
        struct agent *at;
        const struct agent **managers; /* of each; NULL: none, or one that does not exist */
        size_t n, room;
};

static int collect(void *ctx, const struct agent *row)
{
        struct chart *chart = ctx;

        if (streq(row->status, "terminated"))
                return 0;
        chart->at = arena_more(chart->arena, chart->at, chart->n, &chart->room, sizeof(*chart->at));
        chart->at[chart->n++] = *row;
        return 0;
}

static void find_managers(struct chart *chart)
{
        chart->managers = arena_alloc(chart->arena, (chart->n + 1) * sizeof(const struct agent *));
        for (size_t i = 0; i < chart->n; i++)
                for (size_t j = 0; chart->at[i].reports_to && j < chart->n; j++)
                        if (streq(chart->at[j].id, chart->at[i].reports_to))
                                chart->managers[i] = &chart->at[j];
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

static int organisation(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct chart chart = { .arena = q->op->arena };
        int r = access_company(db, q->op->actor, q->company_id, false, err);

        if (r >= 0)
                r = agents_list(db, q->company_id, q->op->arena, collect, &chart, err);
        if (r < 0)
                return r;
        find_managers(&chart);
        write_reports(&q->w, &chart, NULL, 0);
        return 0;
}

int company_organisation(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                         struct err *err)
{
        struct request q = { .op = op, .company_id = id };

        jw_init(&q.w, ret_json);
        return store_read(op, rt->store, organisation, &q, err);
}
