/* Projects, and goals, of which there are none. */
#include "core/companies/project.h"

#include "api/api.h"
#include "api/encode.h"

static int answer_project(struct call *c, int r, const struct project *project)
{
        if (r >= 0)
                encode_project(call_json(c), project);
        return r;
}

static int show(void *ctx, const struct project *row)
{
        encode_project(ctx, row);
        return 0;
}

static int list_projects(struct call *c, struct err *err)
{
        return call_list_end(c, project_list(c->op, c->rt, c->params[0], show, call_list(c), err));
}

static int hide(void *ctx UNUSED, const struct project *row UNUSED)
{
        return 0;
}

/* A caller who may see the projects may see that there are no goals. */
static int list_goals(struct call *c, struct err *err)
{
        return call_list_end(c, project_list(c->op, c->rt, c->params[0], hide, call_list(c), err));
}

static int create(struct call *c, struct err *err)
{
        struct project project;
        int r = project_create(c->op, c->rt, c->params[0], c->body, &project, err);

        return answer_project(c, r, &project);
}

static int get(struct call *c, struct err *err)
{
        struct project project;
        int r = project_get(c->op, c->rt, c->params[0], call_query(c, "companyId"), &project, err);

        return answer_project(c, r, &project);
}

static int patch(struct call *c, struct err *err)
{
        struct project project;
        int r = project_update(c->op, c->rt, c->params[0], call_query(c, "companyId"), c->body,
                               &project, err);

        return answer_project(c, r, &project);
}

const struct route routes_projects[] = {
        { "GET", "/api/companies/:companyId/projects", .fn = list_projects },
        { "POST", "/api/companies/:companyId/projects", .fn = create, .status = 201 },
        { "GET", "/api/companies/:companyId/goals", .fn = list_goals },
        { "GET", "/api/projects/:id", .fn = get },
        { "PATCH", "/api/projects/:id", .fn = patch },
        { 0 },
};
