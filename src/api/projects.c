/* Projects, and goals, of which there are none. */
#include "core/companies/project.h"

#include "api/api.h"
#include "api/encode.h"

#define MISSING_COMPANY "Company not found"

static int encode_one(struct call *c, const struct project *project)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_project(&w, project);
        return 0;
}

static int show(void *ctx, const struct project *row)
{
        encode_project(ctx, row);
        return 0;
}

static int list_projects(struct call *c, struct err *err)
{
        const char *company;
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, project_list(c->op, c->rt, company, show, &w, err));
}

static int hide(void *ctx UNUSED, const struct project *row UNUSED)
{
        return 0;
}

/* Who may see the projects may see that there are no goals. */
static int list_goals(struct call *c, struct err *err)
{
        const char *company;
        struct jw w;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r < 0)
                return r;
        call_list(c, &w);
        return call_list_end(&w, project_list(c->op, c->rt, company, hide, &w, err));
}

static int create(struct call *c, struct err *err)
{
        struct project project;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = project_create(c->op, c->rt, company, c->body, &project, err);
        c->status = 201;
        return r < 0 ? r : encode_one(c, &project);
}

static int get(struct call *c, struct err *err)
{
        struct project project;
        int r = project_get(c->op, c->rt, c->params[0], call_query(c, "companyId"), &project, err);

        return r < 0 ? r : encode_one(c, &project);
}

static int patch(struct call *c, struct err *err)
{
        struct project project;
        int r = project_update(c->op, c->rt, c->params[0], call_query(c, "companyId"), c->body,
                               &project, err);

        return r < 0 ? r : encode_one(c, &project);
}

const struct route routes_projects[] = {
        { "GET", "/api/companies/:companyId/projects", list_projects, 0 },
        { "POST", "/api/companies/:companyId/projects", create, 0 },
        { "GET", "/api/companies/:companyId/goals", list_goals, 0 },
        { "GET", "/api/projects/:id", get, 0 },
        { "PATCH", "/api/projects/:id", patch, 0 },
        { NULL, NULL, NULL, 0 },
};
