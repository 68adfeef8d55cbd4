/* Routes of companies. */
#include "api/api.h"
#include "api/encode.h"
#include "core/companies/company.h"

static int show(void *ctx, const struct company *company)
{
        encode_company(ctx, company);
        return 0;
}

static int list_companies(struct call *c, struct err *err)
{
        return call_list_end(c, company_list(c->op, c->rt, show, call_list(c), err));
}

static int answer_company(struct call *c, int r, const struct company *company)
{
        if (r >= 0)
                encode_company(call_json(c), company);
        return r;
}

static int create(struct call *c, struct err *err)
{
        struct company company;

        return answer_company(c, company_create(c->op, c->rt, c->body, &company, err), &company);
}

static int get(struct call *c, struct err *err)
{
        struct company company;

        return answer_company(c, company_get(c->op, c->rt, c->params[0], &company, err), &company);
}

static int update(struct call *c, struct err *err)
{
        struct company company;
        int r = company_update(c->op, c->rt, c->params[0], c->body, &company, err);

        return answer_company(c, r, &company);
}

static int archive(struct call *c, struct err *err)
{
        struct company company;
        int r = company_archive(c->op, c->rt, c->params[0], &company, err);

        return answer_company(c, r, &company);
}

const struct route routes_companies[] = {
        { "GET", "/api/companies", .fn = list_companies },
        { "POST", "/api/companies", .fn = create, .status = 201 },
        { "GET", "/api/companies/stats", .write = company_stats },
        { "GET", "/api/companies/:id", .fn = get },
        { "PATCH", "/api/companies/:id", .fn = update },
        { "POST", "/api/companies/:id/archive", .fn = archive },
        { "DELETE", "/api/companies/:id", .end_of = company_delete },
        { "POST", "/api/companies/:id/exports/preview", .write_of = company_export_preview,
          .flags = ROUTE_BODY_FREE },
        { 0 },
};
