/* Routes of a company's overview: how many objects of each kind it has, and which agent reports to
 * which. Also the lists of things that Paperclip has and Berth does not, which its clients and
 * agents ask for: they are empty. */
#include "api/api.h"
#include "core/companies/company.h"
#include "core/issues/issue.h"

/* A caller who may see the company may see that it has none. */
static int none_of_company(struct call *c, struct err *err)
{
        struct company company;
        int r = company_get(c->op, c->rt, c->params[0], &company, err);

        if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

static int none_of_issue(struct call *c, struct err *err)
{
        struct issue_detail detail;
        int r = issue_get(c->op, c->rt, c->params[0], NULL, &detail, err);

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
        { "GET", "/api/companies/:companyId/dashboard", .write_of = company_dashboard },
        { "GET", "/api/companies/:companyId/org", .write_of = company_organisation },
        { "GET", "/api/companies/:companyId/approvals", .fn = none_of_company },
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
