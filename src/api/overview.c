/* A company from above: how many of what, and who reports to whom. Also the lists of things that
 * Paperclip has and Berth does not, which its clients and agents ask for: they are empty. */
#include "api/api.h"
#include "core/companies/company.h"
#include "core/issues/issue.h"

#define MISSING_COMPANY "Company not found"

static int dashboard(struct call *c, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        return r < 0 ? r : company_dashboard(c->op, c->rt, company, &c->out, err);
}

static int organisation(struct call *c, struct err *err)
{
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        return r < 0 ? r : company_organisation(c->op, c->rt, company, &c->out, err);
}

/* Who may see the company may see that it has none. */
static int none_of_company(struct call *c, struct err *err)
{
        struct company company;
        const char *id;
        int r = call_uuid(c, 0, MISSING_COMPANY, &id, err);

        if (r >= 0)
                r = company_get(c->op, c->rt, id, &company, err);
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
        { "GET", "/api/companies/:companyId/dashboard", dashboard, 0 },
        { "GET", "/api/companies/:companyId/org", organisation, 0 },
        { "GET", "/api/companies/:companyId/approvals", none_of_company, 0 },
        { "GET", "/api/companies/:companyId/labels", none_of_company, 0 },
        { "GET", "/api/companies/:companyId/routines", none_of_company, 0 },
        { "GET", "/api/issues/:id/approvals", none_of_issue, 0 },
        { "GET", "/api/issues/:id/attachments", none_of_issue, 0 },
        { "GET", "/api/issues/:id/interactions", none_of_issue, 0 },
        { "GET", "/api/issues/:id/work-products", none_of_issue, 0 },
        { "GET", "/api/goals/:id", no_goal, 0 },
        { "GET", "/api/approvals/:id", no_approval, 0 },
        { NULL, NULL, NULL, 0 },
};
