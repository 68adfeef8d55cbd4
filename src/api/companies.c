#include "api/api.h"
#include "api/encode.h"
#include "core/access/member.h"
#include "core/companies/company.h"

#define MISSING "Company not found"

static int show(void *ctx, const struct company *company)
{
        encode_company(ctx, company);
        return 0;
}

static int list_companies(struct call *c, struct err *err)
{
        struct jw w;

        call_list(c, &w);
        return call_list_end(&w, company_list(c->op, c->rt, show, &w, err));
}

static int encode_one(struct call *c, const struct company *company)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_company(&w, company);
        return 0;
}

static int create(struct call *c, struct err *err)
{
        struct company company;
        int r = company_create(c->op, c->rt, c->body, &company, err);

        c->status = 201;
        return r < 0 ? r : encode_one(c, &company);
}

static int get(struct call *c, struct err *err)
{
        struct company company;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = company_get(c->op, c->rt, id, &company, err);
        return r < 0 ? r : encode_one(c, &company);
}

static int update(struct call *c, struct err *err)
{
        struct company company;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = company_update(c->op, c->rt, id, c->body, &company, err);
        return r < 0 ? r : encode_one(c, &company);
}

static int archive(struct call *c, struct err *err)
{
        struct company company;
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = company_archive(c->op, c->rt, id, &company, err);
        return r < 0 ? r : encode_one(c, &company);
}

static int remove_company(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = company_delete(c->op, c->rt, id, err);
        if (r >= 0)
                buf_puts(&c->out, "{\"ok\":true}");
        return r;
}

static int stats(struct call *c, struct err *err)
{
        return company_stats(c->op, c->rt, &c->out, err);
}

static int export_preview(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : company_export_preview(c->op, c->rt, id, &c->out, err);
}

static int list_members(struct call *c, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        return r < 0 ? r : member_list(c->op, c->rt, id, &c->out, err);
}

static int patch_permissions(struct call *c, struct err *err)
{
        const char *company, *member;
        int r = call_uuid(c, 0, MISSING, &company, err);

        if (r >= 0)
                r = call_uuid(c, 1, "Member not found", &member, err);
        return r < 0 ? r
                     : member_set_permissions(c->op, c->rt, company, member, c->body, &c->out, err);
}

const struct route routes_companies[] = {
        { "GET", "/api/companies", list_companies, 0 },
        { "POST", "/api/companies", create, 0 },
        { "GET", "/api/companies/stats", stats, 0 },
        { "GET", "/api/companies/:id", get, 0 },
        { "PATCH", "/api/companies/:id", update, 0 },
        { "POST", "/api/companies/:id/archive", archive, 0 },
        { "DELETE", "/api/companies/:id", remove_company, 0 },
        { "POST", "/api/companies/:id/exports/preview", export_preview, ROUTE_BODY_FREE },
        { "GET", "/api/companies/:id/members", list_members, 0 },
        { "PATCH", "/api/companies/:id/members/:member/permissions", patch_permissions, 0 },
        { NULL, NULL, NULL, 0 },
};
